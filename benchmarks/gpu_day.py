"""The day on which a GPU is at hand for ten minutes, on the side that keeps the results.

    python -m benchmarks.gpu_day prepare                          # text, wheels, size; prints the call
    python -m benchmarks.gpu_day rehearse FOLDER [--python PATH]  # the call on the processor, in a copy
    python -m benchmarks.gpu_day restore                          # after the sitting, or instead of it
    python -m benchmarks.gpu_day take OUT                         # results in, judged; what to commit

What travels is what git holds but for scores/ and results/, and .gpu/: the text's blocks, the commit's hash, and wheels
of what the machine lacks (benchmarks/gpu_machine.txt has what it has). prepare takes scores/ and results/ out of git's
index, where a transfer of tracked files would find them; restore puts them back. rehearse hides packages that the
machine lacks; with --python, one of its version whose packages are the list's, the wheels are tried too.
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from benchmarks.gpu_job import LAID_OUT, TEXT, WHEELS
from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, read_json

SCALES = ("gpu", "gpu-smoke")
HIDDEN = ("scores", "results")
"""Folders that stay behind."""
MOST = 64 * 2**20
"""Bytes that travel, at most."""
MACHINE = Path("benchmarks/gpu_machine.txt")
WANTED = ("pydantic==2.14.3", "pydantic-core==2.50.4", "annotated-types==0.8.0", "typing-inspection==0.4.5",
          "typing-extensions==4.16.0")  # fmt: skip
"""What the machine lacks, or may have too old."""
FOR = ("--python-version=3.12", "--implementation=cp", "--platform=manylinux_2_28_x86_64",
       "--platform=manylinux_2_17_x86_64", "--platform=manylinux2014_x86_64")  # fmt: skip
LEFT = """Left to do:
* 'dvc repro', 'stemrepro docs', 'make test'
* outcomes next to the predictions (docs/predictions.csv), also those that were wrong
* card, driver and the seconds of the sections in docs/method.md and docs/cluster.md
* commit scores/gpu, results, docs/gpu.csv, recipes and dvc.lock together"""
EXCLUDED = Path(".git/info/exclude")
JOB = ("-m", "benchmarks.gpu_job")
HIDE = '''"""Hides the packages that a machine lacks."""
import importlib.machinery, importlib.metadata
MODULES, NAMES = {modules!r}, {names!r}
PATH, METADATA = importlib.machinery.PathFinder, importlib.metadata.MetadataPathFinder
spec, distributions = PATH.find_spec.__func__, METADATA.find_distributions.__func__
def find_spec(cls, name, path=None, target=None):
    return None if name in MODULES else spec(cls, name, path, target)
def find_distributions(cls, context=importlib.metadata.DistributionFinder.Context()):
    found = distributions(cls, context)
    return (each for each in found if each.metadata["Name"].lower().replace("_", "-") not in NAMES)
PATH.find_spec, METADATA.find_distributions = classmethod(find_spec), classmethod(find_distributions)
'''


def run(*command: str | Path, **options: object) -> str:
    """Run a command and return what it printed; UserError where it fails."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, **options)
    if done.returncode:
        print(done.stdout)
        raise UserError(f"'{' '.join(map(str, command))}' ended with exit code {done.returncode}")
    return done.stdout


def plain(name: str) -> str:
    """Return the name of a package as lists have it."""
    return re.split(r"[^\w.-]", name.strip())[0].lower().replace("_", "-")


def at_hand() -> set[str]:
    """Return the packages that the job finds: the machine's and the wheels, with what they need in this Python."""
    lines = MACHINE.read_text(encoding="utf-8").splitlines()
    found = [plain(line) for line in [*lines, *WANTED] if line and not line.startswith("#")]
    for name in found:  # another version of a package may need others
        with suppress(PackageNotFoundError):
            needs = {plain(need) for need in requires(name) or () if "extra ==" not in need}
            found += sorted(needs - {*found})
    return set(found)


def hide_lacking(folder: Path) -> Path:
    """Write a sitecustomize.py into a folder that hides this Python's packages which the machine lacks."""
    have = at_hand() | {"stemrepro"}
    homes = {module: {plain(name) for name in names} for module, names in packages_distributions().items()}
    modules = sorted(module for module, names in homes.items() if not names & have)
    names = sorted({name for names in homes.values() for name in names} - have)
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(HIDE.format(modules=modules, names=names), encoding="utf-8")
    return folder


def travelling(laid_out: Path) -> list[tuple[Path, Path]]:
    """Return each file that travels, and its place there."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    kept = [Path(name) for name in names if name and Path(name).parts[0] not in (*HIDDEN, LAID_OUT.name)]
    below = [path for path in laid_out.rglob("*") if path.is_file()]
    return [(path, path) for path in kept if path.is_file()] + [(p, LAID_OUT / p.relative_to(laid_out)) for p in below]


def size(laid_out: Path) -> int:
    """Return the bytes that travel; UserError where they are too many."""
    found = sum(path.stat().st_size for path, _ in travelling(laid_out))
    if found > MOST:
        raise UserError(f"{found / 2**20:.1f} MiB would travel, and {MOST / 2**20:.0f} may")
    return found


def pack_text(scales: tuple[str, ...], data: Path, path: Path) -> None:
    """Pack blocks and tokenizers of scales, as data/ has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for scale in scales:
            for name in ("blocks", "tokenizer.json"):
                archive.add((data / scale / name).resolve(), f"data/{scale}/{name}")


def prepare() -> None:
    """Make the text, fetch the wheels, take out of the index what stays behind, and print the call."""
    if changed := run("git", "status", "--porcelain", "--untracked-files=no"):
        raise UserError(f"results name the commit that made them; commit or undo first:\n{changed}")
    for scale in SCALES:
        run(sys.executable, "-m", "stemrepro.cli", "data", "--scale", scale)
    shutil.rmtree(LAID_OUT, ignore_errors=True)
    pack_text(SCALES, Path("data"), TEXT)
    atomic_write(LAID_OUT / "COMMIT", run("git", "rev-parse", "HEAD"))
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:")
    run(*pip, *FOR, "-d", WHEELS, *WANTED)
    lines = EXCLUDED.read_text(encoding="utf-8") if EXCLUDED.exists() else ""
    wanted = [f"/{name}/" for name in HIDDEN if f"/{name}/" not in lines.splitlines()]
    atomic_write(EXCLUDED, lines + "".join(f"{line}\n" for line in wanted))
    run("git", "rm", "-r", "-q", "--cached", *HIDDEN)
    print(f"{size(LAID_OUT) / 2**20:.1f} MiB travel: what git holds now, and the ignored folder {LAID_OUT}")
    print("The call, of at most 595 seconds; OUT is the folder that comes back:")
    print(f"  set -o pipefail; PYTHONUNBUFFERED=1 python3 {' '.join(JOB)} OUT --minutes 9 2>&1 | tee OUT/log.txt")
    print("Afterwards: python -m benchmarks.gpu_day restore, then take OUT")


def with_tools() -> dict[str, str]:
    """Return the environment with this Python's commands, which stages of DVC call by name."""
    return os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def restore() -> None:
    """Put what stayed behind back into the index, and forget what was excluded for it."""
    run("git", "reset", "-q", "--", *HIDDEN)
    if EXCLUDED.exists():
        ours = {f"/{name}/" for name in HIDDEN}
        kept = [line for line in EXCLUDED.read_text(encoding="utf-8").splitlines() if line not in ours]
        atomic_write(EXCLUDED, "".join(f"{line}\n" for line in kept))


def rehearse(folder: Path, python: str, laid_out: Path = LAID_OUT, minutes: float = 9) -> int:
    """Run the job on the processor in a copy of what travels -> its exit code; its results are in `folder`/out.

    Raises:
        UserError: too much would travel, or the folder exists.
    """
    size(laid_out)
    if folder.exists():
        raise UserError(f"{folder} exists; name a new folder for the copy")
    own = python == sys.executable
    for path, place in travelling(laid_out):
        if own and path.suffix == ".whl":  # of another Python
            continue
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / place)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if own:
        environment["PYTHONPATH"] = str(hide_lacking(folder.absolute() / ".gpu/hidden"))
    command = [python, *JOB, "out", "--minutes", str(minutes), "--device", "cpu"]
    return subprocess.run(command, cwd=folder, env=environment).returncode


def ended(archive: Path, variant: str) -> list[int]:
    """Return the seeds that every arm of a variant ended, by the archive's runs of the scale gpu."""
    seeds: dict[str, set[int]] = {}
    with tarfile.open(archive) as opened:
        for name in opened.getnames():
            parts = name.split("/")
            if parts[:3] == ["runs", "gpu", variant] and parts[-1] in ("weights.sha256", "diverged.json"):
                seeds.setdefault(parts[3], set()).add(int(parts[4].removeprefix("seed")))
    return sorted(set.intersection(*seeds.values())) if seeds else []


def fitted(scale: str, recipe: str, seeds: list[int], wider: bool) -> tuple[str, str]:
    """Return the texts of scale and recipe for the seeds and the wider model that ended, on the main page."""
    scale = re.sub(r"(?m)^seeds: .*$", f"seeds: {seeds}", scale)
    scale = re.sub(r"(?m)^scoreboard: .*$", "scoreboard: results", scale).replace(" Not run so far.", "")
    recipe = re.sub(r"(?m)^seeds: .*$", f"seeds: {len(seeds)}", recipe)
    if not wider:
        recipe = re.sub(r"(?m)^variants:\n(  .*\n)+\n", "", recipe)
        recipe = re.sub(r"(?m)^  [a-z0-9-]+: \{metric: lead@.*\n", "", recipe)
    return scale, recipe


def take(out: Path) -> None:
    """Say how the sitting went, take its scores in, judge and draw them, and print what is left to do.

    Raises:
        UserError: no seed was ended by every arm.
    """
    for line in (out / "sections.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        print(f"{row['section']}: {row['end']}, {row.get('seconds', 0):g} s")
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if row.get("holds") is False or "error" in row:
            print(f"look at: {json.dumps(row)}")
    write_rows(rows, read_json(out / "about.json"))
    archive = out / "runs.tar.xz"
    if not (seeds := ended(archive, "main")):
        raise UserError(f"{archive}: no seed was ended by every arm, so there is nothing to judge")
    files = (Path("recipes/scales/gpu.yaml"), Path("recipes/gpu_width.yaml"))
    texts = fitted(*(file.read_text(encoding="utf-8") for file in files), seeds, bool(ended(archive, "width-384")))
    for file, text in zip(files, texts, strict=True):
        atomic_write(file, text)
    for command in (["plan"], ["adopt", str(archive)], ["analyse"], ["explain", "gpu_width/full-below-dense"]):
        print(run(sys.executable, "-m", "stemrepro.cli", *command, "--scale", "gpu"))
    print(LEFT)


def write_rows(rows: list[dict], about: dict, path: Path = Path("docs/gpu.csv")) -> None:
    """Write what was measured as a table, each row with card, driver and torch."""
    origin = {name: about.get(name) for name in ("device", "driver", "torch", "cuda", "commit", "date")}
    columns = list(dict.fromkeys(name for row in rows for name in row)) + list(origin)
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(row | origin for row in rows)


def main() -> None:
    """Read the command and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare")
    commands.add_parser("restore")
    rehearsal = commands.add_parser("rehearse")
    rehearsal.add_argument("folder", type=Path)
    rehearsal.add_argument("--python", default=sys.executable)
    commands.add_parser("take").add_argument("out", type=Path)
    given = parser.parse_args()
    try:
        if given.command == "rehearse":
            sys.exit(rehearse(given.folder, given.python))
        take(given.out) if given.command == "take" else {"prepare": prepare, "restore": restore}[given.command]()
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
