"""What readers ask, and which claims answer it: recipes/questions.yaml, held against the catalog."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import checked_name, parse, read_yaml
from stemrepro.config.catalog import Catalog

FILE = "questions.yaml"
Panel = Annotated[str, StringConstraints(pattern=r"^[^/]+/[a-z]$")]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, and the claims that answer it, each as recipe/claim."""

    asked: str
    supports: tuple[str, ...] = ()  # claims that say yes where they are supported
    opposes: tuple[str, ...] = ()  # claims that say no where they are supported
    also: tuple[str, ...] = ()  # claims that are shown and decide nothing
    number: str | None = None  # the claim whose effect is shown; left out, printed numbers that come out are counted
    label: str  # what that number is
    panel: Panel  # picture: recipe/letter of the panel

    def __post_init__(self) -> None:
        if self.number is not None and self.number not in self.claims():
            raise ValueError(f"number '{self.number}' is none of its claims ({', '.join(self.claims())})")

    def claims(self) -> tuple[str, ...]:
        """Return all its claims."""
        return (*self.supports, *self.opposes, *self.also)


def read_questions(catalog: Catalog, folder: Path = RECIPES) -> dict[str, Question]:
    """Read the questions; UserError: an unknown claim or recipe, a claim named twice, or none that decides."""
    file = folder / FILE
    questions = {checked_name(key, file): parse(Question, value, file, key) for key, value in read_yaml(file).items()}
    owner: dict[str, str] = {}
    for key, question in questions.items():
        if not (question.supports or question.opposes):
            raise UserError(f"{file}: {key}: name claims under supports or opposes, which decide its answer")
        for name in (*question.claims(), question.panel):
            recipe, _, claim = name.partition("/")
            if recipe not in catalog.recipes:
                raise UserError(f"{file}: {key}: {unknown('recipe', recipe, catalog.recipes, 'recipes/')}")
            claims = catalog.recipes[recipe].claims
            if name != question.panel and claim not in claims:
                raise UserError(f"{file}: {key}: {unknown('claim', claim, claims, f'{folder}/{recipe}.yaml')}")
        for name in question.claims():
            if owner.setdefault(name, key) != key or question.claims().count(name) > 1:
                raise UserError(f"{file}: {key}: '{name}' stands under '{owner[name]}' too; name it once")
    return questions
