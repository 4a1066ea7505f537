"""What one GPU shows in ten minutes: sections with deadlines, each a command of this repository.

    python -m benchmarks.gpu_job OUT [--minutes 9] [--device cpu]

Run it in a folder that benchmarks/gpu_day.py made ready: what .gpu/ holds there is laid out first, text and wheels.
A section is a process of its own with a deadline. The seconds of scoring and packing are kept for them; a section for
which too few are left is left out. At its deadline its whole group of processes is ended. OUT gets, as soon as known:

* about.json: the device, its driver, versions;
* sections.jsonl: how each section ended, its seconds and its last words;
* rows.jsonl: everything that was measured, a line a row;
* runs.tar.xz: settings, losses of training, origin and hashes of the weights of all finished runs, and their scores,
  for `stemrepro adopt`; written after the first scores and again at the end.

With --device cpu every section takes the same way, cut down: the scale gpu-smoke, shapes of its size. This file needs
Python alone, so that nothing that lacks here can end it.
"""

import argparse
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

LAST = 4000
"""Characters of what a section said that are kept."""
RESERVE = 75.0
"""Seconds that are kept for scoring and packing until there are scores."""
PACKING = 10.0
"""Seconds that are kept once there are scores."""
PLAIN_ATTENTION = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}
"""Flash attention in place of cuDNN's, whose backward pass gave NaN on this card with torch 2.11 (pytorch #196678)."""
PATIENCE = 5.0
"""Seconds between asking a group of processes to end and killing it."""
SLOWER = 4
"""How many times as long sections may take on a processor."""
PACKED = ("config.yaml", "metrics.jsonl", "provenance.json", "diverged.json")
LAID_OUT, TEXT, WHEELS = Path(".gpu"), Path(".gpu/text.tar.xz"), Path(".gpu/wheels")


def record(row: dict, out: str | None) -> None:
    """Print a row of measurements, and append it to the file of rows where there is one."""
    line = json.dumps(row)
    print(line, flush=True)
    if out:
        with open(out, "a", encoding="utf-8") as rows:
            rows.write(line + "\n")


def failed(error: Exception) -> dict:
    """Return what a row says in place of numbers; what is measured next is measured all the same."""
    return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


@dataclass(frozen=True)
class Section:
    """A command with a deadline.

    Attributes:
        name: of the section.
        arguments: of this Python.
        seconds: after which it is ended.
        least: without so many it is left out.
        alongside: whether it runs alongside the next section, which doesn't wait for it.
        vital: whether it may use the time that is kept.
        packs: whether runs.tar.xz is written after it.
        environment: variables of its own.
    """

    name: str
    arguments: tuple[str, ...]
    seconds: float
    least: float = 0.0
    alongside: bool = False
    vital: bool = False
    packs: bool = False
    environment: tuple[tuple[str, str], ...] = ()


def sections(device: str, scale: str, folder: Path) -> list[Section]:
    """Return the sections in their order; what comes last is dropped first."""
    out, speed = ("--device", device, "--out", str(folder / "rows.jsonl")), ("-m", "benchmarks.gpu_speed")
    checks = ("-m", "benchmarks.gpu_checks")
    evidence, wide = ("-m", "benchmarks.gpu_evidence"), ("--scale", scale, "--variant", "width-384")
    three = (("TORCHINDUCTOR_COMPILE_THREADS", "5"),)  # in each of three runs, on 16 cores
    four = (("OMP_NUM_THREADS", "4"),)
    asked = [
        Section("ceilings", (*speed, "ceilings", *out, "--about", str(folder / "about.json")), 75),
        Section("modules", (*checks, "modules", *out), 65),
        Section("speeds", (*speed, "training", *out), 80, least=40),
        Section("paths", (*checks, "paths", *out), 180, least=60, alongside=True, environment=four),
        Section("training", (*evidence, "train", "--scale", scale), 340, least=60, environment=three),
        Section("scores", (*evidence, "score", "--scale", scale), 70, vital=True, packs=True),
        Section("serving", (*speed, "serving", *out), 60, least=25),
        Section("scores again", (*evidence, "score", "--scale", scale), 60, vital=True, packs=True),
        Section("wider", (*evidence, "train", *wide), 110, least=70, environment=three),
        Section("wider's scores", (*evidence, "score", *wide), 40, least=10, packs=True),
        Section("serving at 1B", (*speed, "serving", "--shape", "llama-3.2-1b", *out), 60, least=30),
    ]  # fmt: skip
    slower = 1 if device == "cuda" else SLOWER
    return [replace(section, seconds=slower * section.seconds) for section in asked]


def lay_out(environment: dict[str, str]) -> None:
    """Unpack the text, take the commit, and install the wheels that the machine lacks, into .gpu/site."""
    if TEXT.exists():
        with tarfile.open(TEXT) as archive:
            archive.extractall(filter="data")
    if (LAID_OUT / "COMMIT").exists():
        Path("COMMIT").write_bytes((LAID_OUT / "COMMIT").read_bytes())
    if wheels := sorted(map(str, WHEELS.glob("*.whl"))):
        site = str((LAID_OUT / "site").absolute())
        pip = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--upgrade"]
        subprocess.run([sys.executable, *pip, "--target", site, *wheels], check=True)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")]))


def ended(section: Section, left: float, kept: float, environment: dict[str, str]) -> dict:
    """Run a section in the seconds that are left, less those that are kept -> its row."""
    seconds = min(section.seconds, left if section.vital else left - kept)
    if seconds < max(section.least, 1.0):
        return {"section": section.name, "end": f"left out: {max(0.0, left):.0f} s are left, {kept:.0f} of them kept"}
    start = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, *section.arguments], stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            start_new_session=True, env=environment | dict(section.environment),
        )  # fmt: skip
        try:
            end = f"exit code {process.wait(timeout=seconds)}"
        except subprocess.TimeoutExpired:
            end = f"ended after {seconds:.0f} s"
            end_group(process, signal.SIGTERM)
        end_group(process, signal.SIGKILL)
        said.seek(max(0, said.seek(0, os.SEEK_END) - LAST))
        words = said.read().decode(errors="replace")
    return {"section": section.name, "end": end, "seconds": round(time.monotonic() - start, 1), "said": words}


def end_group(process: subprocess.Popen, sign: signal.Signals) -> None:
    """Send a signal to all that a section started, and wait a little for the section itself."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, sign)
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)


def pack(out: Path, scale: str) -> None:
    """Write runs.tar.xz anew: what `stemrepro adopt` needs of each ended run, and all scores. Weights stay here."""
    aside = out / ".runs.tar.xz"
    with tarfile.open(aside, "w:xz") as archive:
        if (out / "about.json").exists():
            archive.add(out / "about.json", "about.json")
        for config in sorted(Path("runs", scale).glob("*/*/seed*/config.yaml")):
            folder = config.parent
            weights = folder / "weights.safetensors"
            if not weights.exists() and not (folder / "diverged.json").exists():
                continue
            for name in PACKED:
                if (folder / name).exists():
                    archive.add(folder / name)
            if weights.exists():
                with open(weights, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest().encode()
                member = tarfile.TarInfo((folder / "weights.sha256").as_posix())
                member.size = len(digest)
                archive.addfile(member, io.BytesIO(digest))
        if Path("scores", scale).exists():
            archive.add(Path("scores", scale))
    aside.replace(out / "runs.tar.xz")


def work(out: Path, asked: list[Section], scale: str, minutes: float) -> bool:
    """Run the sections, and return whether every one ended well."""
    out.mkdir(parents=True, exist_ok=True)
    until, kept, lock = time.monotonic() + 60 * minutes, RESERVE, threading.Lock()
    environment, good, alongside = os.environ | PLAIN_ATTENTION, [], []

    def run(section: Section, left: float, kept: float) -> None:
        row = ended(section, left, kept, environment)
        with lock, open(out / "sections.jsonl", "a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
            good.append(row["end"] == "exit code 0")
        print(f"{row['section']}: {row['end']}, {row.get('seconds', 0):g} s", flush=True)

    try:
        lay_out(environment)
        for section in asked:
            left = until - time.monotonic()
            if section.alongside:
                alongside.append(threading.Thread(target=run, args=(section, left, kept)))
                alongside[-1].start()
                continue
            run(section, left, kept)
            if section.packs:
                for thread in alongside:  # or what is timed next would share the card
                    thread.join()
                with suppress(OSError, tarfile.TarError):
                    pack(out, scale)
                kept = PACKING
    finally:
        for thread in alongside:
            thread.join()
        pack(out, scale)
    for path in sorted(out.iterdir()):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return all(good)


def main() -> None:
    """Read the arguments and work. Exit code 1: a section was left out or didn't end well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    scale = "gpu" if given.device == "cuda" else "gpu-smoke"
    if (given.out / "sections.jsonl").exists():
        sys.exit(f"{given.out} holds another sitting; name another folder")
    out = given.out.absolute()
    sys.exit(0 if work(out, sections(given.device, scale, out), scale, given.minutes) else 1)


if __name__ == "__main__":
    main()
