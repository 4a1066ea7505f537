"""Runs and scores that another machine made of the same recipes, text and code: checked, then moved into place.

Weights may stay there. A run's folder then holds their sha256 in weights.sha256. Its scores are taken in, itself not.
"""

import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError, safe_open

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, locked, read_json, write_json
from stemrepro.common.paths import DATA, RUNS, SCORES
from stemrepro.common.provenance import Trained, read_provenance
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.measures import store
from stemrepro.pipeline.plan import Plan
from stemrepro.pipeline.runs import runs_of
from stemrepro.pipeline.score import arguments, score_key, weights_hash
from stemrepro.training.run import Run


def unpacked(archive: Path, out: Path) -> None:
    """Unpack a tar archive into a folder; nothing gets out of it, and no symbolic link or device is made.

    Of equal files that DVC's cache holds once, tar packs the second one as a hard link to the first. UserError: the
    file is no such archive, or holds what has no place in one.
    """
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                if not (member.isfile() or member.isdir() or member.islnk()):
                    reason = "is neither a file nor a folder; 'tar -chzf' packs what links lead to"
                    raise UserError(f"{archive}: {member.name} {reason}")
                opened.extract(member, out, filter="data")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise UserError(f"{archive} can't be read as a tar archive: {error}") from error


def _unpacked_run(run: Run, place: Path, runs: Path) -> Run:
    return replace(run, folder=place / "runs" / run.folder.relative_to(runs))


def refusal(run: Run) -> str:
    """Return why a folder doesn't hold the end of a run, or ""."""
    if changes := run.other_settings():
        return f"made with other settings, code or text ({changes})"
    record = run.folder / "provenance.json"
    if record.exists() and read_provenance(record, Trained)["params_hash"] != run.params_hash:
        return "provenance.json is of another run"
    if not run.finished and not weights_stayed(run):
        return "it isn't finished"
    if run.diverged is not None:
        return ""
    if weights_stayed(run):
        return "" if re.fullmatch("[0-9a-f]{64}", weights_hash(run)) else "weights.sha256 holds no sha256"
    try:
        with safe_open(run.weights, "pt") as opened:
            made_with = (opened.metadata() or {}).get("config")
    except (OSError, SafetensorError) as error:
        return f"weights.safetensors is damaged ({error})"
    return "" if made_with == digest(run.config) else "weights.safetensors is of another run"


def weights_stayed(run: Run) -> bool:
    """Tell whether a folder has a finished run but for its weights."""
    needed = (run.folder / "weights.sha256", run.folder / "metrics.jsonl")
    return not run.weights.exists() and all(map(Path.exists, needed))


def move(source: Path, folder: Path) -> None:
    """Move a folder to where nothing of worth is: an unfinished run of the same settings gives way."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as aside:
        if folder.exists():
            folder.rename(Path(aside) / "before")
        source.rename(folder)


def adopted_runs(plan: Plan, place: Path, data: Path, runs: Path) -> Iterator[tuple[str, str]]:
    """Move runs of an unpacked archive; yield names, and why one was refused or "". Without weights one stays."""
    for run in runs_of(plan, data=data, runs=runs):
        there = _unpacked_run(run, place, runs)
        if not there.folder.is_dir():
            continue
        with locked(run.folder, f"another process is training in {run.folder}; wait for it, or stop it"):
            reason = "" if run.ended else refusal(there)
            if not reason and not run.ended:
                if weights_stayed(there):
                    continue
                if any(run.folder.iterdir()) and run.other_settings():
                    reason = f"{run.folder} holds something else; move it away"
                else:
                    move(there.folder, run.folder)
        yield str(run), reason


def adopted_scores(plan: Plan, place: Path, data: Path, runs: Path, scores: Path) -> Iterator[tuple[str, str]]:
    """Copy the scores of an unpacked archive that follow from the runs here; yield as above."""
    there, here = (root / plan.name for root in (place / "scores", scores))
    for kind in SCORE_KINDS:
        made = store.scored(there, kind)
        for address, arm in plan.runs.items():
            if not arm.seeds.get(kind) or address not in made:
                continue
            planned = runs_of(plan, [address], kind, data, runs)
            members = [run if run.ended else _unpacked_run(run, place, runs) for run in planned]
            if any(refusal(run) for run in members):
                yield f"{kind} of {address}", "its runs are neither here nor in the archive"
                continue
            key = score_key(members, kind, arguments(plan, kind, arm, data))
            if store.key_of(there, kind, address) != key:
                yield f"{kind} of {address}", "scored from other runs, text or code"
                continue
            with locked(here):
                if store.key_of(here, kind, address) != key:
                    about = store.about(there, kind, address)
                    filled = [name for name, count in about["lines"].items() if count]
                    tables = {name: store.lines(there, kind, address, name) for name in filled}
                    store.write(here, kind, address, key, about, tables)
                    write_origin(members, place, here)
            yield f"{kind} of {address}", ""


def write_origin(runs: list[Run], place: Path, scores: Path) -> None:
    """Write `scores`/made.json: where the runs of a scale were trained, for git to keep.

    It has what their provenance.json says, and about.json of the archive, if there is one: device, driver, versions.
    """
    path, files = scores / "made.json", [run.folder / "provenance.json" for run in runs]
    made = [read_provenance(file, Trained) for file in files if file.exists()]
    if not made:
        return
    known = read_json(path) if path.exists() else {}
    about = {
        name: sorted({*known.get(name, []), *(str(each[key]) for each in made if key in each)})
        for name, key in (("commits", "commit"), ("machines", "machine"), ("devices", "device"), ("dates", "date"))
    }
    about["dates"] = [about["dates"][0], about["dates"][-1]]
    machine = read_json(place / "about.json") if (place / "about.json").exists() else known.get("about", {})
    write_json(path, about | {"versions": made[0]["versions"], "about": machine})


def adopt(
    plan: Plan, archive: Path, data: Path = DATA, runs: Path = RUNS, scores: Path = SCORES
) -> tuple[list[str], list[str]]:
    """Take in what an archive has of the planned runs and their scores; return what is here now and what was refused.

    The archive has runs/<scale>/ and scores/<scale>/ as this folder has them. A run is taken if its settings, the hash
    of its code and that of its text are those planned here, scores if their key is, which follows from the hash of the
    weights too. No file of it is executed. UserError: see `unpacked`; or the plan's text isn't here.
    """
    runs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=runs, prefix=".adopt-") as folder:  # where a move is a rename
        place = Path(folder)
        unpacked(archive, place)
        found = [*adopted_runs(plan, place, data, runs)]
        found += adopted_scores(plan, place, data, runs, scores)
    if not found:
        raise UserError(f"{archive} holds nothing that is planned: it needs runs/{plan.name}/ or scores/{plan.name}/")
    return [name for name, reason in found if not reason], [f"{name}: {reason}" for name, reason in found if reason]
