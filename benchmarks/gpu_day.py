"""The day on which a GPU is at hand for ten minutes, on the side that keeps the results.

    python -m benchmarks.gpu_day prepare                          # text, wheels, size; prints the call
    python -m benchmarks.gpu_day rehearse FOLDER [--python PATH]  # the call on the processor, in a copy
    python -m benchmarks.gpu_day restore                          # after the sitting, or instead of it
    python -m benchmarks.gpu_day take OUT                         # results in, judged; what to commit

What travels is what git holds but for scores/ and results/, and .gpu/: the text's blocks, the commit's hash, and wheels
of what the machine lacks. prepare takes scores/ and results/ out of git's index, where what copies tracked files would
find them; restore puts them back. rehearse hides packages that the machine (benchmarks/gpu_machine.txt) lacks; with
--python, one of its version whose packages are the list's, the wheels are tried too.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

import pandas as pd

from benchmarks.gpu_job import LAID_OUT, TEXT, WHEELS
from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, read_json

SCALES, HIDDEN = ("gpu", "gpu-smoke"), ("scores", "results")  # whose text travels; folders that stay behind
IGNORED = [f"/{name}/\n" for name in HIDDEN]
MOST = 64 * 2**20  # bytes that travel
MACHINE, EXCLUDED = Path("benchmarks/gpu_machine.txt"), Path(".git/info/exclude")
# What the machine lacks, or may have too old
WANTED = (
    "pydantic==2.14.3",
    "pydantic-core==2.50.4",
    "annotated-types==0.8.0",
    "typing-inspection==0.4.5",
    "typing-extensions==4.16.0",
)
FOR = (
    "--only-binary=:all:",
    "--python-version=3.12",
    "--implementation=cp",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=manylinux2014_x86_64",
)
CALL = """The call, of at most 595 seconds; OUT is the folder that comes back:
  set -o pipefail; PYTHONUNBUFFERED=1 python3 -m benchmarks.gpu_job OUT --minutes 9 2>&1 | tee OUT/log.txt
Afterwards: python -m benchmarks.gpu_day restore, then take OUT"""
LEFT = """Left to do: 'make figures', 'stemrepro docs', 'make test'; outcomes in docs/predictions.csv, also wrong ones;
card, driver and seconds in docs/method.md and docs/cluster.md; one commit of scores/gpu, results, docs, recipes"""
STEMREPRO = (sys.executable, "-m", "stemrepro.cli")
run = partial(subprocess.check_output, text=True)
HIDE = """import sys
sys.path[:] = [path for path in sys.path if path.startswith((sys.base_prefix, {!r})) and "-packages" not in path]
"""


def hide_lacking(folder: Path) -> Path:
    """Make a folder from which Python imports the machine's packages, with what they need here, and no others."""
    folder.mkdir(parents=True)
    names = re.findall(r"(?m)^[\w.-]+", "\n".join([MACHINE.read_text(encoding="utf-8"), *WANTED]))
    for name in names:  # another version of a package may need others
        with suppress(PackageNotFoundError):
            package = distribution(name)
            needs = {re.split(r"[^\w.-]", need)[0] for need in package.requires or () if "extra ==" not in need}
            names += needs - {*names}
            for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(package.locate_file(top))
    (folder / "sitecustomize.py").write_text(HIDE.format(str(folder)), encoding="utf-8")
    return folder


def travelling(laid_out: Path) -> list[tuple[Path, Path]]:
    """Return each file that travels, and its place there; UserError where they are too large."""
    names = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).split("\0")
    kept = [Path(name) for name in names if name and Path(name).parts[0] not in (*HIDDEN, LAID_OUT.name)]
    found = [(path, path) for path in kept if path.is_file()]
    found += [(path, LAID_OUT / path.relative_to(laid_out)) for path in laid_out.rglob("*") if path.is_file()]
    total = sum(path.stat().st_size for path, _ in found)
    print(f"{total / 2**20:.1f} MiB travel: what git holds now, and the ignored folder {LAID_OUT}")
    if total > MOST:
        raise UserError(f"{MOST / 2**20:.0f} MiB may travel")
    return found


def pack_text(scales: tuple[str, ...], data: Path, path: Path) -> None:
    """Pack blocks and tokenizers of scales, as data/ has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for scale, name in product(scales, ("blocks", "tokenizer.json")):
            archive.add((data / scale / name).resolve(), f"data/{scale}/{name}")


def prepare() -> None:
    """Make the text, fetch the wheels, take out of the index what stays behind, and print the call."""
    if changed := run(["git", "status", "--porcelain", "--untracked-files=no"]):
        raise UserError(f"results name the commit that made them; commit or undo first:\n{changed}")
    for scale in SCALES:
        run([*STEMREPRO, "data", "--scale", scale])
    shutil.rmtree(LAID_OUT, ignore_errors=True)
    pack_text(SCALES, Path("data"), TEXT)
    atomic_write(LAID_OUT / "COMMIT", run(["git", "rev-parse", "HEAD"]))
    run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *FOR, "-d", WHEELS, *WANTED])
    with open(EXCLUDED, "a", encoding="utf-8") as lines:
        lines.writelines(IGNORED)
    run(["git", "rm", "-r", "-q", "--cached", *HIDDEN])
    travelling(LAID_OUT)
    print(CALL)


def restore() -> None:
    """Put what stayed behind back into the index, and forget what was excluded for it."""
    run(["git", "reset", "-q", "--", *HIDDEN])
    kept = EXCLUDED.read_text(encoding="utf-8").splitlines(keepends=True)
    atomic_write(EXCLUDED, "".join(line for line in kept if line not in IGNORED))


def rehearse(folder: Path, python: str, laid_out: Path = LAID_OUT, minutes: float = 9, only: Sequence[str] = ()) -> int:
    """Run the job on the processor in a copy of what travels -> its exit code; its results are in `folder`/out."""
    if folder.exists():
        raise UserError(f"{folder} exists; name a new folder for the copy")
    own = python == sys.executable
    for path, place in travelling(laid_out):
        if own and path.suffix == ".whl":  # of another Python
            continue
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / place)
    environment = os.environ | {"PYTHONPATH": str(hide_lacking(folder.absolute() / ".gpu/hidden")) if own else ""}
    command = [python, "-m", "benchmarks.gpu_job", "out", "--minutes", str(minutes), "--device", "cpu"]
    command += ["--only", *only] if only else []
    return subprocess.run(command, cwd=folder, env=environment).returncode


def ended(archive: Path, variant: str) -> list[int]:
    """Return the seeds that every arm of a variant ended, by the archive's runs of the scale gpu."""
    with tarfile.open(archive) as opened:
        names = "\n".join(opened.getnames())
    runs = set(re.findall(rf"runs/gpu/{variant}/(.+)/seed(\d+)/(?:weights.sha256|diverged.json)", names))
    arms = {arm for arm, _ in runs}
    return sorted(int(seed) for seed in {seed for _, seed in runs} if {(arm, seed) for arm in arms} <= runs)


def fitted(scale: str, recipe: str, seeds: list[int], wider: bool) -> tuple[str, str]:
    """Return the texts of scale and recipe for the seeds and the wider model that ended, on the main page."""
    scale = re.sub(r"(?m)^seeds: .*$", f"seeds: {seeds}", scale)
    scale = re.sub(r"(?m)^scoreboard: .*$", "scoreboard: results", scale).replace(" Not run so far.", "")
    recipe = re.sub(r"(?m)^seeds: .*$", f"seeds: {len(seeds)}", recipe)
    if not wider:
        recipe = re.sub(r"(?m)^variants:\n(  .*\n)+\n", "", recipe)
        recipe = re.sub(r"(?m)^  [a-z0-9-]+: \{metric: \{lead: .*\n", "", recipe)
    return scale, recipe


def take(out: Path) -> None:
    """Say how the sitting went, take its scores in, judge and draw them, and print what is left to do."""
    for line in (out / "sections.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        print(f"{row['section']}: {row['end']}, {row.get('seconds', 0):g} s")
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if row.get("holds") is False or "error" in row:
            print(f"look at: {json.dumps(row)}")
    about = read_json(out / "about.json")
    origin = {name: about.get(name) for name in ("device", "driver", "torch", "cuda", "commit", "date")}
    table = pd.DataFrame(rows).convert_dtypes().assign(**origin)
    atomic_write("docs/gpu.csv", table.to_csv(index=False))
    archive = out / "runs.tar.xz"
    if not (seeds := ended(archive, "main")):
        raise UserError(f"{archive}: no seed was ended by every arm, so there is nothing to judge")
    files = (Path("recipes/scales/gpu.yaml"), Path("recipes/gpu_width.yaml"))
    texts = fitted(*(file.read_text(encoding="utf-8") for file in files), seeds, bool(ended(archive, "width-384")))
    for file, text in zip(files, texts, strict=True):
        atomic_write(file, text)
    for command in (["plan"], ["adopt", str(archive)], ["analyse"], ["explain", "gpu_width/full-below-dense"]):
        print(run([*STEMREPRO, *command, "--scale", "gpu"]))
    print(LEFT)


def main() -> None:
    """Read the command and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("prepare", "rehearse", "restore", "take"))
    parser.add_argument("folder", type=Path, nargs="?", default="out")
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    try:
        if given.command == "rehearse":
            sys.exit(rehearse(given.folder, given.python))
        take(given.folder) if given.command == "take" else {"prepare": prepare, "restore": restore}[given.command]()
    except (UserError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
