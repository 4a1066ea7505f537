"""What one GPU shows in half an hour: sections with deadlines, the paths that only a GPU has first.

    python -m benchmarks.gpu_job OUT [--minutes 28] [--peak 989e12]
    python -m benchmarks.gpu_job OUT --device cpu --scale smoke

A section is a command of this repository. Its end and last words are appended to OUT/sections.jsonl at once, so
that a machine that goes away loses one section. A section gets as long as it says, if so long is left; what doesn't fit
is named as left out. A pilot chooses the scale's learning rate before the long runs (benchmarks/pilot_rate.py); without
its end they have the scale's own. Runs share the device, as many as the scale's `workers`. Runs and scores end up in
OUT/runs.tar, for `stemrepro adopt`; the scale with its rate, and the pilot, next to it. Text is made before, where
there is a network: `stemrepro plan --scale gpu`, and the plan's stage `blocks`.

With --device cpu sections of a GPU are skipped, and say so. The job was not run on a GPU so far.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pilot_rate import PILOT
from stemrepro.common.paths import RECIPES, RESULTS, RUNS, SCORES
from stemrepro.common.provenance import provenance

LAST = 4000
"""Characters of what a section said that are kept."""
VERSIONS = """
import torch
print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())
print(torch.cuda.get_device_properties(0) if torch.cuda.is_available() else "no GPU")
"""


@dataclass(frozen=True)
class Section:
    """A command with a deadline.

    Attributes:
        name: of the section.
        arguments: of this Python.
        seconds: after which it is killed.
        gpu: whether it means nothing without one.
    """

    name: str
    arguments: tuple[str, ...]
    seconds: float
    gpu: bool = False


def sections(out: Path, device: str, scale: str, peak: float) -> list[Section]:
    """Return the sections in their order."""
    commands, pilot = ("-m", "stemrepro.cli"), f"recipes/sweeps/{PILOT}.yaml"
    steps, workers = ("40", "3") if device == "gpu" else ("4", "1")
    return [
        Section("versions", ("-c", VERSIONS), 30),
        Section("paths", ("-m", "benchmarks.device_paths", "--device", device, "--steps", steps), 180),
        Section("speeds", ("-m", "benchmarks.peers", "--device", "cuda", "--peak", str(peak), "--out",
                           str(out / "speeds.csv")), 420, gpu=True),
        Section("pilot", (*commands, "sweep", pilot, "--scale", scale, "--workers", workers), 240),
        Section("rate", ("-m", "benchmarks.pilot_rate", scale), 60),
        Section("training", (*commands, "train", "--scale", scale, "--untracked"), 600),
        Section("scores", (*commands, "evaluate", "--scale", scale, "--part", "losses"), 120),
    ]  # fmt: skip


def ended(section: Section, device: str, left: float) -> dict:
    """Run a section, if it fits into the seconds that are left -> what its line says."""
    if section.gpu and device == "cpu":
        return {"section": section.name, "end": "skipped: no GPU"}
    if left < section.seconds:
        return {"section": section.name, "end": f"left out: {section.seconds:.0f} s, and {max(0, left):.0f} are left"}
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *section.arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=section.seconds,
        )  # fmt: skip
        end, said = f"exit code {done.returncode}", done.stdout
    except subprocess.TimeoutExpired as late:
        end, said = f"killed after {section.seconds:.0f} s", late.stdout or b""
    seconds = round(time.monotonic() - start, 1)
    return {"section": section.name, "end": end, "seconds": seconds, "said": said.decode(errors="replace")[-LAST:]}


def pack(out: Path, scale: str) -> Path:
    """Write runs and scores of a scale, as far as there are any, to a tar file, which is returned.

    The scale's file and the results of its pilot are copied next to it.
    """
    path, pilot = out / "runs.tar", RESULTS / scale / "sweeps" / PILOT
    shutil.copy(RECIPES / "scales" / f"{scale}.yaml", out)
    if pilot.exists():
        shutil.copytree(pilot, out / PILOT, dirs_exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for folder in (RUNS / scale, SCORES / scale):
            if folder.exists():
                archive.add(folder, folder.as_posix())
    return path


def work(out: Path, device: str, scale: str, minutes: float, peak: float) -> None:
    """Run all sections and pack what they made."""
    out.mkdir(parents=True, exist_ok=True)
    about, until = provenance(), time.monotonic() + 60 * minutes
    for section in sections(out, device, scale, peak):
        row = ended(section, device, until - time.monotonic()) | {"commit": about["commit"], "date": about["date"]}
        with open(out / "sections.jsonl", "a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(f"{row['section']}: {row['end']}", flush=True)
    path = pack(out, scale)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    """Read the arguments and work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--scale", default="gpu")
    parser.add_argument("--minutes", type=float, default=28)
    parser.add_argument("--peak", type=float, default=989e12, help="FLOPs a second of the device in bfloat16")
    given = parser.parse_args()
    work(given.out, given.device, given.scale, given.minutes, given.peak)


if __name__ == "__main__":
    main()
