"""Training that a scale's launcher hands to Slurm; the same command, repeated, waits for the job that it finds."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from stemrepro.common.errors import Unfinished, UserError
from stemrepro.training.run import Run

POLL = 5.0
"""Seconds between two looks at Slurm's queue."""


def jobs_named(name: str) -> list[str]:
    """Return the numbers of this user's jobs in Slurm's queue that have a name and were submitted in this folder.

    Raises:
        UserError: Slurm doesn't answer.
    """
    command = ["squeue", "--me", "--noheader", f"--name={name}", "--format=%F %Z"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise UserError(f"a scale's launcher needs Slurm, and squeue can't be run here ({error})") from error
    if asked.returncode:
        raise UserError(f"Slurm's queue can't be read ({asked.stderr.strip()}); repeat the command when squeue works")
    found = (line.split(maxsplit=1) for line in asked.stdout.splitlines())
    return sorted({number for number, folder in found if Path(folder).resolve() == Path.cwd().resolve()})


def wait_for_jobs(name: str) -> None:
    """Wait until no job of a name is in the queue. A controller that doesn't answer is asked again."""
    while True:
        try:
            if not jobs_named(name):
                return
        except UserError as error:
            print(f"stemrepro: {error}", file=sys.stderr)
        time.sleep(POLL)


def hand_over(scale: str, launcher: str, options: list[str], runs: list[Run]) -> None:
    """Have a launcher train runs, and wait until its jobs have left the queue.

    Jobs are called stemrepro-SCALE. Where there are some in the queue, none is submitted.

    Args:
        options: further words of `stemrepro train`.
        runs: those that are to have ended then.

    Raises:
        UserError: the launcher isn't there or has failed, or Slurm doesn't answer.
        Unfinished: the jobs are gone, and some runs haven't ended.
    """
    name, words, code = f"stemrepro-{scale}", shlex.split(launcher), 0
    if found := jobs_named(name):
        print(f"stemrepro: waiting for {name}, which is in the queue (job {', '.join(found)})", file=sys.stderr)
    elif not shutil.which(words[0]):
        raise UserError(f"launcher '{launcher}' of scale '{scale}': there is no command '{words[0]}' here")
    else:
        # --part has the job train by itself; slurm/train.sbatch gives each task of its array a share instead.
        command = [*words, "stemrepro", "train", "--scale", scale, "--untracked", *options, "--part", "1/1"]
        named = {"SBATCH_JOB_NAME": name, "SLURM_JOB_NAME": name}  # sbatch's and srun's
        code = subprocess.run(command, env=os.environ | named).returncode
    wait_for_jobs(name)
    left = [str(run) for run in runs if not run.ended]
    if left and code:
        raise UserError(
            f"launcher '{launcher}' of scale '{scale}' ended with code {code}, and {len(left)} runs haven't ended, "
            f"{left[0]} among them: see the jobs' logs"
        )
    if left:
        raise Unfinished(
            f"the jobs {name} are gone, and {len(left)} runs haven't ended, {left[0]} among them: see the jobs' logs; "
            "the same command starts new jobs, which resume them"
        )
