"""Comparison of the results in the working tree with the committed ones, field by field.

It covers verdicts, lines of claims.csv, and data.csv where it follows from the committed scores.

What was made here is seen from files: run folders whose weights the scores follow from, and scores and figures that
were written since. Without any of these, nothing was reproduced, and the comparison says so.
"""

import csv
import itertools
import json
import math
import re
import subprocess
from collections import Counter
from pathlib import Path

from rich.console import Console

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json
from stemrepro.common.paths import DATA, PARAMS, RUNS, SCORES
from stemrepro.common.provenance import provenance
from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.address import Address
from stemrepro.config.recipe import Recipe
from stemrepro.config.scores import PartName
from stemrepro.measures.base import measure_class
from stemrepro.measures.catalog import load
from stemrepro.pipeline.planned import Params, read_params
from stemrepro.report.pages import claims_table
from stemrepro.report.verdicts import read_verdicts

MOST = 0.5
"""Largest deviation of a number that still counts as the same, over half the width of the committed interval."""
NUMBERS = ("ours", "ci_low", "ci_high", "tuned", "official_init", "seed_se", "item_se")
"""Fields that may deviate; all others must be equal."""
MOST_P = 0.1
"""Largest difference of p where the claim's numbers differ too, and of adjusted p."""
OF_THE_PAGE = ("adjusted_p", "adjusted_other_p")
"""Fields that follow from all claims of the page."""
TRAINED, SCORED, DRAWN, COMPUTED, UNTOUCHED = "trained", "scored", "redrawn", "computed", "not made here"
MADE = (TRAINED, SCORED)
"""Ways of making a claim that reproduce runs; arithmetic doesn't."""


def committed_text(path: Path) -> str | None:
    """Return the text of a file in the commit, or None where the commit lacks it."""
    try:
        shown = subprocess.run(["git", "show", f"HEAD:./{path.as_posix()}"], capture_output=True)
    except OSError as error:
        raise UserError(f"verify compares with the committed results, but git can't be run ({error})") from error
    return shown.stdout.decode() if shown.returncode == 0 else None


def committed(path: Path) -> object | None:
    """Return the content of a JSON file in the commit, or None where the commit lacks it."""
    text = committed_text(path)
    return None if text is None else json.loads(text)


def committed_recipes(folder: Path) -> set[str]:
    """Return the recipes that have verdicts in the commit.

    Raises:
        UserError: no commit exists to compare with.
    """
    held = ["git", "rev-parse", "HEAD:./"]  # fails in a copy that another repository lies around
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", f"{folder.as_posix()}/"]
    try:
        shown = subprocess.run(held, capture_output=True, text=True)
        shown = shown if shown.returncode else subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise UserError(f"verify compares with the committed results, but git can't be run ({error})") from error
    if shown.returncode:
        raise UserError(
            f"verify compares with the committed results, but git says: {' '.join(shown.stderr.split())}; "
            "an unpacked archive gets a commit by git init -q && git add -A && git commit -qm stemrepro"
        )
    return {Path(line).parent.name for line in shown.stdout.splitlines() if line.endswith("/verdicts.json")}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def deviation(new: dict, old: dict) -> float:
    """Return the largest change of a claim's numbers, over half the width of its committed interval.

    It is infinite where one side lacks a number that the other has.
    """
    ends = (old.get("ci_low"), old.get("ci_high"))
    half = (ends[1] - ends[0]) / 2 if all(map(_is_number, ends)) else 0.0
    largest = 0.0
    for field in NUMBERS:
        pair = new.get(field), old.get(field)
        if pair[0] == pair[1]:
            continue
        if not all(map(_is_number, pair)) or half <= 0:
            return math.inf
        largest = max(largest, abs(pair[0] - pair[1]) / half)
    return largest


def alike(new: object, old: object) -> bool:
    """Tell whether two values are equal; numbers, also as texts, may differ in last digits, as they do by processor."""
    try:
        return new == old or math.isclose(float(new), float(old), rel_tol=1e-4, abs_tol=2e-6)
    except (TypeError, ValueError):
        return False


def by_seed_alike(now: dict, before: dict, still: bool) -> bool:
    """Tell whether a claim's differences are the committed ones.

    Where its numbers moved, there must be as many differences, and their mean must be its number, unless that is formed
    on logits: the difference of one seed may move by more.

    Args:
        now: the claim's row here.
        before: the committed row.
        still: whether the claim's numbers are the committed ones.
    """
    new, old = (row.get("differences") for row in (now, before))
    if new is None or old is None or len(new) != len(old):
        return new == old
    if still:
        return all(map(alike, new, old))
    if None in new or not _is_number(now.get("ours")):
        return False
    return "logits" in (now.get("method") or "") or alike(sum(new) / len(new), now["ours"])


def _words(text: object) -> str:
    """Return a sentence without its numbers."""
    return re.sub(r"[-+]?\d[\d.e+-]*", "#", str(text))


def compare(new: dict[str, dict], old: dict[str, dict]) -> tuple[dict[str, str], float, str]:
    """Compare verdicts.

    Returns:
        What differs, in words by claim; the largest deviation; and the claim that has it.
    """
    still = {name: all(new.get(name, {}).get(f) == row.get(f) for f in NUMBERS) for name, row in old.items()}
    # Adjusted p, moderated variances and so the numbers of a reason follow from all claims of the page.
    changes, largest, where = {}, 0.0, ""
    for name, before in old.items():
        if name not in new:
            changes[name] = "gone"
            continue
        now, fields = new[name], []
        for field in sorted(before.keys() | now.keys()):
            pair = before.get(field), now.get(field)
            same = pair[0] == pair[1]
            if field == "differences":
                same = by_seed_alike(now, before, still[name])
            if field in ("reason", "method"):
                same = _words(pair[0]) == _words(pair[1])
            if field in OF_THE_PAGE or (field in ("p", "other_p") and not still[name]):
                same = same or (all(map(_is_number, pair)) and abs(pair[0] - pair[1]) <= MOST_P)
            if not same and field not in NUMBERS:
                fields.append(f"{field} {pair[0]!r} -> {pair[1]!r}")
        moved = deviation(now, before)
        if moved > MOST:
            numbers = [f"{f} {before.get(f)} -> {now.get(f)}" for f in NUMBERS if before.get(f) != now.get(f)]
            fields.append(f"{', '.join(numbers)}, {moved:.2f} of its interval's half width")
        if math.isfinite(moved) and moved > largest:
            largest, where = moved, name
        if fields:
            changes[name] = "; ".join(fields)
    return changes | dict.fromkeys(new.keys() - old.keys(), "new"), largest, where


def first_change(new: str, old: str) -> str:
    """Return where the text of a CSV file differs from the committed one by more than last digits; "" if nowhere."""
    tables = [list(csv.reader(text.splitlines())) for text in (new, old)]
    for line, (now, before) in enumerate(zip(*tables, strict=False), 1):
        for number, (cell, was) in enumerate(itertools.zip_longest(now, before)):
            if not alike(cell, was):
                column = tables[1][0][min(number, len(tables[1][0]) - 1)]
                return f"line {line}, {column}: {was} -> {cell}"
    count = [len(table) for table in tables]
    return "" if count[0] == count[1] else f"{count[1]} lines -> {count[0]}"


def differences(here: dict, other: dict) -> list[str]:
    """Return what differs between this machine and the one that drew the committed results.

    Args:
        here: processor, Python and packages of this machine.
        other: the same of the other machine.
    """
    machines = []
    if here["machine"] != other["machine"]:
        machines.append(f"machine: {other['machine']} there, {here['machine']} here")
    names = sorted(here["versions"].keys() | other["versions"].keys())
    pairs = [(name, other["versions"].get(name, "none"), here["versions"].get(name, "none")) for name in names]
    return machines + [f"{name}: {old} there, {new} here" for name, old, new in pairs if old != new]


class Made:
    """How scores and claims of a scale were made in this working tree."""

    def __init__(self, params: Params | None, scale: str, results: Path) -> None:
        self.params, self.scale, self.results, self.catalog = params, scale, results, load()
        self.planned = params.planned(scale) if params and scale in params.run else {}

    def scores(self, address: Address, part: PartName) -> str:
        """Return how the scores of an address were made: TRAINED, SCORED or UNTOUCHED.

        Trained ones follow from runs in this working tree; scored ones were written here; others came with the clone.
        """
        from stemrepro.pipeline.planned import runs_of
        from stemrepro.pipeline.score import arguments, score_key

        out, arm = SCORES / self.scale / part / address.path, self.planned.get(address)
        try:
            key = json.loads((out / "summary.json").read_text(encoding="utf-8")).get("key")
        except (OSError, ValueError, AttributeError):
            return UNTOUCHED
        if arm and (RUNS / self.scale / address.path).exists():
            try:
                runs = runs_of(self.scale, self.params.scale[self.scale].data, {address: arm}, part)
                if runs and key == score_key(runs, part, arguments(self.params, self.scale, part, arm)):
                    return TRAINED
            except UserError:
                return UNTOUCHED
        try:
            scored = json.loads((out / "provenance.json").read_text(encoding="utf-8")).get("key")
            return SCORED if scored == key else UNTOUCHED
        except (OSError, ValueError, AttributeError):
            return UNTOUCHED

    def recipe(self, name: str, rows: list[dict]) -> dict[str, str]:
        """Return how each claim of a recipe was made here."""
        sidecar = self.results / self.scale / name / "provenance.json"
        drawn = sidecar.exists() and read_json(sidecar) != committed(sidecar)
        recipe = self.catalog.recipe(name)
        states = {address: [self.scores(address, part) for part in parts] for address, parts in recipe.scored().items()}
        # Where scores are the committed ones, DVC has nothing to draw: the committed verdicts follow from them.
        follow = drawn or self.as_committed(recipe)
        # Counts in the text came with the clone, unless the text itself is in this working tree.
        counted = not measure_class(recipe.measure).reads_text or (DATA / self.scale / "tokenizer.json").exists()
        ranks = (UNTOUCHED, SCORED, TRAINED)
        made = {}
        for row in rows:
            of_arms = [state for address in states if address.arm in row["arms"] for state in states[address]]
            if not row["arms"]:
                made[row["claim"]] = (COMPUTED if counted else DRAWN) if drawn else UNTOUCHED
            else:
                lowest = min(of_arms, key=ranks.index, default=UNTOUCHED)
                redrawn = DRAWN if drawn and of_arms else UNTOUCHED
                made[row["claim"]] = lowest if follow and lowest != UNTOUCHED else redrawn
        return made

    def as_committed(self, recipe: Recipe) -> bool:
        """Tell whether the scores that a recipe reads are the committed ones, as far as git holds them."""
        from stemrepro.measures.base import scores_of

        paths = sorted((SCORES / self.scale / folder).as_posix() for folder in scores_of(recipe))
        return not paths or not subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *paths]).returncode

    def drawn(self, name: str) -> str:
        """Return where a recipe's data.csv differs from the committed one despite the same scores; "" if nowhere."""
        path = self.results / self.scale / name / "data.csv"
        if (old := committed_text(path)) is None or not self.as_committed(self.catalog.recipe(name)):
            return ""
        return first_change(path.read_text(encoding="utf-8"), old) if path.exists() else "gone"

    def changed_lines(self) -> list[str]:
        """Return one text per claim whose line of claims.csv is missing, or neither committed nor made here."""
        path = self.results / Path(self.catalog.scale(self.scale).scoreboard).relative_to("results") / "claims.csv"
        if (old := committed_text(path)) is None:
            return []
        texts = path.read_text(encoding="utf-8") if path.exists() else "", old, claims_table(self.scale, self.results)
        lines, *right = [{tuple(row[:3]): row for row in csv.reader(text.splitlines())} for text in texts]
        wrong = [key for key in right[0] | lines if lines.get(key) not in [table.get(key) for table in right]]
        return [
            f"{path}: {'/'.join(key)} is neither the committed line nor what the verdicts here say" for key in wrong
        ]


def known_machines(scale: str) -> list[str]:
    """Return the outcomes of a scale's runs on other machines, in words (docs/machines.yaml)."""
    path = Path("docs/machines.yaml")
    return read_yaml(path).get(scale, []) if path.exists() else []


def verify(scale: str, results: Path, console: Console) -> int:
    """Print the comparison for every recipe of a scale.

    Returns:
        0 if all committed verdicts came out the same and a run was trained or scored here; 1 if not; 3 if no run was.

    Raises:
        UserError: there are no verdicts to compare.
    """
    folder = results / scale
    present = {path.parent.name for path in folder.glob("*/verdicts.json")}
    if not present:
        raise UserError(f"{folder} has no verdicts; run 'make reproduce SCALE={scale}' first")
    reference, params = committed_recipes(folder), read_params() if PARAMS.exists() else None
    here, how, others = Made(params, scale, results), Counter(), {}
    total, kept, changed = 0, 0, False
    for name in sorted(present | reference):
        path = folder / name / "verdicts.json"
        old, new = committed(path), {row["claim"]: row for row in (read_verdicts(path) if path.exists() else [])}
        if old is None:
            console.print(f"{name}: no committed verdicts for scale '{scale}' to compare with")
            continue
        before = {row["claim"]: row for row in old}
        changes, largest, where = compare(new, before)
        same = sum(claim not in changes for claim in before)
        drawn = here.drawn(name)
        if drawn:
            changes["data.csv"] = drawn
        total, kept, changed = total + len(before), kept + same, changed or bool(changes)
        by_claim = here.recipe(name, list(new.values()))
        made = Counter(by_claim.values())
        how += made
        words = ", ".join(f"{count} {way}" for way, count in made.items())
        console.print(f"{name}: {same} of {len(before)} claims came out the same ({words})", highlight=False)
        for way in made if len(made) > 1 else ():
            claims = ", ".join(claim for claim, its_way in by_claim.items() if its_way == way)
            console.print(f"  {way}: {claims}", highlight=False)
        if where:
            console.print(f"  largest deviation: {largest:.2f} of its interval's half width ({where})", highlight=False)
        for claim, words in changes.items():
            console.print(f"  {claim}: {words}", highlight=False, markup=False)
        if about := committed(folder / name / "provenance.json"):
            others |= dict.fromkeys(differences(provenance(), about))
    if not total:
        return 3
    for line in here.changed_lines():
        changed = True
        console.print(line, highlight=False, markup=False)
    return _conclude(console, scale, changed, f"{kept} of {total}", how, list(others))


def _conclude(console: Console, scale: str, changed: bool, count: str, how: Counter, others: list[str]) -> int:
    limit = f"(numbers may deviate by {MOST:g} of an interval's half width)"
    made = any(how[way] for way in MADE)
    ways = ", ".join(f"{how[way]} {way}" for way in (*MADE, COMPUTED, DRAWN, UNTOUCHED) if how[way])
    lines = [f"{count} claims are the committed ones; how all were made here: {ways}"]
    if changed:
        lines.append(f"the reproduction does not reproduce {limit}")
    elif not made:
        lines.append(f"nothing was trained or scored here, so this vouches for no run: 'make reproduce SCALE={scale}'")
    else:
        lines.append(f"what was made here reproduces {limit}")
    if made:
        if others:
            lines.append("this machine differs from the one that drew the committed results:")
            lines += [f"  {line}" for line in others]
        else:
            lines.append("same processor, Python and packages as where the committed results were drawn")
        lines += [f"on another machine: {words}" for words in known_machines(scale)]
    console.print("\n".join(lines), highlight=False, markup=False)
    return 1 if changed else 0 if made else 3
