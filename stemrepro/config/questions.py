"""What readers ask, and which claims answer it: recipes/questions.yaml, held against the catalog."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.paths import RECIPES
from stemrepro.common.yaml_records import Strict, checked_name, parse, read_yaml
from stemrepro.config.catalog import Catalog

FILE = "questions.yaml"
Panel = Annotated[str, StringConstraints(pattern=r"^[^/]+/[a-z]$")]


class Question(Strict):
    """A question, and the claims that answer it, each as recipe/claim."""

    asked: str
    supports: tuple[str, ...] = Field((), description="claims that say yes where they are supported")
    opposes: tuple[str, ...] = Field((), description="claims that say no where they are supported")
    also: tuple[str, ...] = Field((), description="claims that are shown and decide nothing")
    number: str | None = Field(
        None, description="the claim whose effect is shown; left out, printed numbers that come out are counted"
    )
    label: str = Field(description="what that number is")
    panel: Panel = Field(description="picture: recipe/letter of the panel")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not (self.supports or self.opposes):
            raise ValueError("a question needs claims under supports or opposes, which decide its answer")
        if self.number is not None and self.number not in self.claims():
            raise ValueError(f"number '{self.number}' is none of its claims ({', '.join(self.claims())})")
        return self

    def claims(self) -> tuple[str, ...]:
        """Return all its claims."""
        return (*self.supports, *self.opposes, *self.also)


def read_questions(catalog: Catalog, folder: Path = RECIPES) -> dict[str, Question]:
    """Read the questions.

    Raises:
        UserError: a claim or a recipe is unknown, a claim stands twice, or `number` is none of the question's claims.
    """
    file = folder / FILE
    questions = {checked_name(key, file): parse(Question, value, file, key) for key, value in read_yaml(file).items()}
    owner: dict[str, str] = {}
    for key, question in questions.items():
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
