"""Scores that a recipe compares are of one plan: else what another text or budget did is taken for what an arm does."""

from typing import TYPE_CHECKING

from stemrepro.errors import UserError
from stemrepro.scores.plans import SCORING, START, STEPS, TEXT, plan

if TYPE_CHECKING:
    from stemrepro.measures.base import Inputs


def check_one_plan(inputs: "Inputs") -> None:
    """Compares the scores that a recipe reads, as far as they are there: at a point in all that its arms share, over points in the text,
    in how they were scored, and in the budget, of which points take shares.

    Raises:
        UserError: two of them are of two plans.
    """
    known: dict[tuple, tuple[object, str]] = {}
    steps: list[tuple[int, int, str]] = []
    for address, parts in inputs.recipe.scored().items():
        point = inputs.book.point(address.point)
        there = point.at(inputs.scale)
        text = (point.vocab, point.people, point.extends.text if point.extends else "own")
        for part in parts:
            folder, name = inputs.folder / part / address.path, f"{part} of {address}"
            if not (folder / "summary.json").exists():
                continue  # whoever reads it says so
            for what, value in plan(folder).items():
                if what == START and point.own_rate:
                    continue
                place = {TEXT: text, SCORING: part}.get(what, address.point)
                before, other = known.setdefault((what, place), (value, name))
                if value != before:
                    raise _apart(inputs, other, name, f"{what}: {before} and {value}")
                if what == STEPS and point.vocab == 1:
                    steps.append((there.training.tokens // (there.training.batch * there.model.sequence), value, name))
    if steps:
        most, ran, longest = max(steps)
        for planned, own, name in steps:
            if abs(own - ran * planned / most) > 1.5:  # whole steps on both sides
                raise _apart(inputs, longest, name, f"{STEPS}: {ran} and {own}, planned {most} and {planned}")


def _apart(inputs: "Inputs", one: str, other: str, difference: str) -> UserError:
    return UserError(
        f"{one} and {other} at scale '{inputs.scale_name}' are of two plans and can't be compared ({difference}); "
        f"run 'make reproduce SCALE={inputs.scale_name}'"
    )
