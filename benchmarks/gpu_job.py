"""What one GPU shows in ten minutes: sections with deadlines, each a part of benchmarks/gpu_part.py.

    python -m benchmarks.gpu_job OUT [--minutes 9] [--device cpu] [--only training scores]

Run it in a folder that benchmarks/gpu_day.py made ready. A section is a group of processes, ended at its deadline. OUT
gets, as soon as known: about.json (device, driver, versions), sections.jsonl (how each ended, its last words),
rows.jsonl (what was measured), and runs.tar.xz for `stemrepro adopt`: scores, and of all ended runs everything but
weights, whose hashes it has. With --device cpu all is cut down. This file needs Python alone, lest something lacks.
"""

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

RESERVE, PACKING = 75.0, 10.0  # seconds kept for scoring and packing, until there are scores and then
PATIENCE = 5.0  # seconds between asking a group of processes to end and killing it
# Flash attention in place of cuDNN's, whose backward pass gave NaN on this card with torch 2.11 (pytorch #196678)
PLAIN_ATTENTION = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}
LAID_OUT, TEXT, WHEELS = Path(".gpu"), Path(".gpu/text.tar.xz"), Path(".gpu/wheels")


class Section(NamedTuple):
    """A command with a deadline: arguments of this Python, seconds after which it is ended, and how it goes."""

    name: str
    arguments: tuple[str, ...]
    seconds: float
    least: float = 0.0  # without so many seconds it is left out
    alongside: bool = False  # the next section doesn't wait for it
    vital: bool = False  # it may use the time that is kept
    packs: bool = False  # runs.tar.xz is written after it
    environment: dict[str, str] = {}  # noqa: RUF012


def sections(device: str, scale: str, out: Path, only: Container[str] = ()) -> list[Section]:
    """Return the sections, or those that are named, in their order; what comes last is dropped first."""
    slower = 1 if device == "cuda" else 4

    def part(name: str, what: str, seconds: float, least: float = 0.0, **fields: bool | dict[str, str]) -> Section:
        command = ("-m", "benchmarks.gpu_part", *what.split(), "--device", device, "--scale", scale, "--out", str(out))
        return Section(name, command, slower * seconds, least, **fields)

    three, four = {"TORCHINDUCTOR_COMPILE_THREADS": "5"}, {"OMP_NUM_THREADS": "4"}  # three runs on 16 cores
    every = [
        part("ceilings", "ceilings", 75),
        part("modules", "modules", 65),
        part("speeds", "training", 80, 40),
        part("paths", "paths", 180, 60, alongside=True, environment=four),
        part("training", "train", 340, 60, environment=three),
        part("scores", "score", 70, vital=True, packs=True),
        part("serving", "serving", 60, 25),
        part("scores again", "score", 60, vital=True, packs=True),
        part("wider", "train --variant width-384", 110, 70, environment=three),
        part("wider's scores", "score --variant width-384", 40, 10, packs=True),
        part("serving at 1B", "serving --shape llama-3.2-1b", 60, 30),
    ]
    return [section for section in every if not only or section.name in only]


def lay_out() -> dict[str, str]:
    """Unpack the text, take the commit, install the wheels that the machine lacks -> the sections' environment."""
    environment = os.environ | PLAIN_ATTENTION
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
    return environment


def ended(section: Section, out: Path, left: float, kept: float, environment: dict[str, str]) -> bool:
    """Run a section in the seconds that are left, less those that are kept, and return whether it ended well."""
    seconds, start, words = min(section.seconds, left if section.vital else left - kept), time.monotonic(), b""
    if seconds < max(section.least, 1.0):
        end = f"left out: {max(0.0, left):.0f} s are left, {kept:.0f} of them kept"
    else:
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                [sys.executable, *section.arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment | section.environment,
            )
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            code = process.poll()
            end = f"ended after {seconds:.0f} s" if code is None else f"exit code {code}"
            for sign in (signal.SIGTERM, signal.SIGKILL):  # to all that it started
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, sign)
                    process.wait(PATIENCE)
            said.seek(max(0, said.seek(0, os.SEEK_END) - 4000))
            words = said.read()
    row = {"section": section.name, "end": end, "seconds": round(time.monotonic() - start, 1)}
    with open(out / "sections.jsonl", "a", encoding="utf-8") as lines:
        lines.write(json.dumps(row | {"said": words.decode(errors="replace")}) + "\n")
    print(f"{section.name}: {end}, {row['seconds']:g} s", flush=True)
    return end == "exit code 0"


def pack(out: Path, scale: str) -> None:
    """Write runs.tar.xz anew."""
    for weights in Path("runs", scale).glob("*/*/seed*/weights.safetensors"):
        with open(weights, "rb") as file:
            weights.with_suffix(".sha256").write_text(hashlib.file_digest(file, "sha256").hexdigest(), encoding="utf-8")
    ends = [path for name in ("weights.sha256", "diverged.json") for path in Path("runs", scale).glob(f"*/*/*/{name}")]
    with tarfile.open(out / ".runs.tar.xz", "w:xz") as archive:
        for path in sorted({path.parent for path in ends} | {*Path("scores").glob(scale)}):
            archive.add(path, filter=lambda each: None if re.search(r"(\.safetensors|\.ckpt\S*)$", each.name) else each)
        if (out / "about.json").exists():
            archive.add(out / "about.json", "about.json")
    (out / ".runs.tar.xz").replace(out / "runs.tar.xz")


def work(out: Path, asked: list[Section], scale: str, minutes: float) -> bool:
    """Run the sections, and return whether every one ended well."""
    out.mkdir(parents=True, exist_ok=True)
    until, kept, ends = time.monotonic() + 60 * minutes, RESERVE, []
    try:
        environment = lay_out()
        with ThreadPoolExecutor() as threads:
            for section in asked:
                ends.append(threads.submit(ended, section, out, until - time.monotonic(), kept, environment))
                if not section.alongside:
                    wait(ends[-1:])
                if section.packs:
                    wait(ends)  # or what is timed next would share the card
                    with suppress(OSError, tarfile.TarError):
                        pack(out, scale)
                    kept = PACKING
    finally:
        pack(out, scale)
    return all(end.result() for end in ends)


def main() -> None:
    """Read the arguments and work. Exit code 1: a section was left out or didn't end well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    names = [section.name for section in sections("cpu", "", Path())]
    parser.add_argument("--only", nargs="+", choices=names, default=(), metavar="SECTION", help=", ".join(names))
    given = parser.parse_args()
    scale, out = "gpu" if given.device == "cuda" else "gpu-smoke", given.out.absolute()
    if (out / "sections.jsonl").exists():
        sys.exit(f"{given.out} holds another sitting; name another folder")
    sys.exit(0 if work(out, sections(given.device, scale, out, given.only), scale, given.minutes) else 1)


if __name__ == "__main__":
    main()
