"""The runs of a plan: which there are, in which order and processes they are trained."""

import re
from collections.abc import Iterable
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest
from stemrepro.common.paths import DATA, RUNS
from stemrepro.common.progress import Course
from stemrepro.common.workers import Job, run_jobs, show
from stemrepro.config.address import Address
from stemrepro.config.retrofit import KINDS
from stemrepro.data.vocabularies import Text, mid_text, own_text
from stemrepro.model.cost import flops_per_token
from stemrepro.pipeline.plan import Before, Plan
from stemrepro.tracking.follow import followed
from stemrepro.training.run import InitFrom, Run

TOKENS_PER_ROW = 128
"""Tokens of text per row of a table that is made of a dense run; at most those of the run's training."""


def runs_of(
    plan: Plan,
    addresses: Iterable[Address] | None = None,
    kind: str | None = None,
    data: Path = DATA,
    runs: Path = RUNS,
) -> list[Run]:
    """Return a plan's runs at some addresses, or all: those trained, or those of one kind of scores."""
    chosen = {address: plan.runs[address] for address in (plan.runs if addresses is None else addresses)}
    kinds = {(arm.model.vocab, arm.people) for arm in chosen.values() if arm.text == "own" or arm.before}
    texts = {(vocab, people): own_text(vocab, data / plan.name, people) for vocab, people in kinds}
    stages = [stage for arm in chosen.values() for stage in (arm, arm.before) if stage]
    blend = mid_text(data / plan.name) if any(stage.text == "mid" for stage in stages) else None

    def resuming(run: Run, source: Before | None, own: Text) -> tuple[Run, list[Run]]:
        """Return a run that resumes from another where `source` says so, and all before it, the last one first."""
        if source is None:
            return run, []
        folder = runs / plan.name / source.address.path / f"seed{run.seed}"
        name, text = (plan.scale.data, own) if source.text == "own" else (source.text, cast(Text, blend))
        parent = replace(run, address=source.address, model=source.model, training=source.training, folder=folder)
        parent = replace(parent, mix=name, blocks=text.blocks, data_hash=text.data_hash)
        parent, earlier = resuming(parent, source.before, own)
        return replace(run, init_from=init_from(run, [parent, *earlier], source.tables)), [parent, *earlier]

    made = []
    for address, arm in chosen.items():
        text = cast(Text, blend) if arm.text == "mid" else texts[arm.model.vocab, arm.people]
        training = arm.training.same_text(text.ratio)
        for seed in arm.seeds.get(kind, ()) if kind else arm.trained:
            folder = runs / plan.name / address.path / f"seed{seed}"
            name = plan.scale.data if arm.text == "own" else arm.text
            run = Run(address, seed, arm.model, training, folder, name, text.blocks, text.data_hash, text.ratio)
            made.append(resuming(run, arm.before, texts[arm.model.vocab, arm.people])[0])
    parents = {run.init_from.folder for run in made if run.init_from}
    return with_prefixes([replace(run, keep_final_checkpoint=run.folder in parents) for run in made])


def init_from(run: Run, before: list[Run], tables: str) -> InitFrom:
    """Describe how a run begins: where those of `before` that read the same text ended; the last of these first."""
    training, same_text = run.training, [other.training for other in before if other.blocks == run.blocks]
    passed = sum(other.tokens for other in same_text)
    same_batches = all(other.sequence == training.sequence for other in same_text)
    return InitFrom(
        before[0].folder,
        digest(before[0].config),
        tables,
        passed,
        batches=passed // (training.micro_batch * training.sequence) if same_batches else 0,
        row_tokens=min(passed, TOKENS_PER_ROW * run.model.vocab) if tables in KINDS else 0,
    )


def asked_runs(
    plan: Plan, addresses: Iterable[Address] | None = None, data: Path = DATA, runs: Path = RUNS
) -> list[Run]:
    """Return the runs of some addresses of a plan, or all, to be trained on several devices where the scale says so.

    Other planned runs count too: runs under WSD know every shorter one, and runs from which others resume keep their
    final checkpoints.
    """
    asked = set(plan.runs if addresses is None else addresses)
    every_arm = plan.runs.items()
    related = [at for at, arm in every_arm if at in asked or arm.training.schedule == "wsd" or arm.before]
    every = runs_of(plan, related, data=data, runs=runs)
    return [replace(run, parallel=plan.scale.parallel) for run in every if run.address in asked]


def with_prefixes(runs: list[Run]) -> list[Run]:
    """Tell runs under WSD the folders of the shorter runs that share their stable phase, the shortest first."""
    by_stable_phase: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.training.tokens):
        if run.training.schedule == "wsd":
            by_stable_phase.setdefault(run.stable_phase, []).append(run)
    prefixes = {
        run.folder: tuple(other.folder for other in group if other.training.tokens < run.training.tokens)
        for group in by_stable_phase.values()
        for run in group
    }
    return [replace(run, prefixes=prefixes.get(run.folder, ())) for run in runs]


def cost(run: Run) -> float:
    """Return the forward FLOPs of a whole run."""
    return run.training.tokens * flops_per_token(run.model, run.training.sequence)


def share_of(runs: list[Run], shard: str) -> list[Run]:
    """Return share "I/N" of runs, in about equal FLOPs, each with those that it resumes from, or raise UserError."""
    given = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", shard)
    if not given or int(given[1]) > int(given[2]):
        raise UserError(f"--shard {shard}: give I/N with I from 1 to N, as in 1/8")
    groups: dict[Path, list[Run]] = {run.folder: [run] for run in runs}
    for run in runs:
        for folder in (*run.prefixes, *([run.init_from.folder] if run.init_from else [])):
            if folder in groups and groups[folder] is not groups[run.folder]:
                together = groups[folder] + groups[run.folder]
                groups |= {member.folder: together for member in together}
    shares: list[list[Run]] = [[] for _ in range(int(given[2]))]
    whole = {id(group): group for group in groups.values()}.values()
    for group in sorted(whole, key=lambda group: -sum(map(cost, group))):  # the dearest first, each to the least
        min(shares, key=lambda share: sum(map(cost, share))).extend(group)
    mine = {run.folder for run in shares[int(given[1]) - 1]}
    return [run for run in runs if run.folder in mine]


def train(plan: Plan, runs: list[Run], replace: bool = False, tracked: bool = True) -> bool:
    """Train what isn't finished of some runs; interrupted ones resume. MLflow follows where it is `tracked`.

    Return whether this process speaks for them: of several that share runs, the first does.
    """
    left = [run for run in runs if not run.ended]
    if not left:
        return True
    if left[0].training.accelerator == "gpu":
        import torch  # slow to import, and only a GPU is asked here

        if not torch.cuda.is_available():
            raise UserError(
                f"scale {plan.name} trains on a GPU and torch sees none here; set 'accelerator: cpu' in "
                f"recipes/scales/{plan.name}.yaml, or train where there is one"
            )
    if plan.scale.parallel:
        from stemrepro.training.devices import is_rank_zero, join  # with Lightning, which is slow to import

        join(left[0])
        if not is_rank_zero():
            train_runs(left, plan.scale.workers, replace)
            return False
    names = sorted({str(run.address) for run in left})
    with followed(plan.name, names) if tracked else nullcontext():
        train_runs(left, plan.scale.workers, replace, len(runs) - len(left))
    return True


def train_runs(runs: list[Run], workers: int, replace: bool, done: int = 0) -> None:
    """Train each run in a process, or on its devices one after another; `replace`: remove runs of other settings."""
    if any(run.training.schedule == "wsd" for run in runs):
        runs = sorted(runs, key=lambda run: run.training.tokens)  # longer ones resume from shorter ones
    else:
        runs = sorted(runs, key=cost, reverse=True)  # else the dearest might start last, and train alone
    threads = runs[0].training.threads if runs else 1
    jobs = [
        Job("stemrepro.training.train:train", run, str(run), run.training.steps, {"replace": replace}, cost(run), True)
        for run in runs
    ]
    stages = by_stage(jobs)
    if runs and runs[0].parallel:
        _train_on_devices([job for stage in stages for job in stage], replace, done)
        return
    preload, shown = ["stemrepro.training.fork_server"], "training"
    if any(run.training.mkl_avx512 for run in runs):
        preload.insert(0, "stemrepro.common.fork_server_avx512")
    for number, stage in enumerate(stages):
        later = [job for others in stages[number + 1 :] for job in others]
        for _ in run_jobs(stage, workers, threads, preload, shown, done, later):
            pass
        done += len(stage)


def by_stage(jobs: list[Job]) -> list[list[Job]]:
    """Return jobs in stages: those that resume from no other, those that resume from one of them, and so on."""
    waiting, stages = jobs, []
    while waiting:
        folders = {job.run.folder for job in waiting}
        later = [job for job in waiting if job.run.init_from and job.run.init_from.folder in folders]
        stages.append([job for job in waiting if job not in later])
        waiting = later
    return stages


def _train_on_devices(jobs: list[Job], replace: bool, done: int) -> None:
    """Train runs one after another in this process, which has joined the others (stemrepro.training.devices)."""
    from stemrepro.training.devices import is_rank_zero  # with Lightning, which is slow to import
    from stemrepro.training.train import train

    if not is_rank_zero():
        for job in jobs:
            train(job.run, lambda *_: None, replace)
        return
    with closing(Course("training", jobs, done)) as course:
        for number, job in enumerate(jobs):
            train(job.run, partial(show, course, number), replace)
            course.end(number)
