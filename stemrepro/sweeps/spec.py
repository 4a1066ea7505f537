"""The files of recipes/sweeps/ as data."""

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from stemrepro.common.yaml_records import Name, Strict, parse, read_yaml
from stemrepro.config.address import MAIN

ARM_FIELDS = {"table_rate_factor": 1.0, "table_decay_factor": 1.0, "table_init": "xavier", "placement": "none"}
"""Fields of an arm that a sweep may set, and what an arm without tables has in their place."""
MODEL_FIELDS = ("embedding_std", "head_std")
TRAINING_FIELDS = ("embedding_rate_factor", "embedding_decay_factor", "warmup")
"""Fields of a scale's model and training that a sweep may set."""


class Range(Strict):
    """An interval to search in."""

    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "Range":
        if not self.low < self.high or (self.log and self.low <= 0):
            with_log = ", or none with a logarithm" if self.log else ""
            raise ValueError(f"{self.low:g} to {self.high:g} is no range{with_log}")
        return self


Values = Annotated[
    Annotated[tuple[float | int | str, ...], Tag("list")] | Annotated[Range, Tag("range")],
    Discriminator(lambda value: "range" if isinstance(value, dict | Range) else "list"),
]
Space = dict[str, Values]


class Sweep(Strict):
    """One file of recipes/sweeps/."""

    title: str
    sampler: Literal["grid", "tpe"]
    space: Space
    variant: Name = Field(MAIN, description="of recipes/variants.yaml, at which its runs are; else the scale itself")
    trials: int | None = Field(None, gt=0, description="runs of an open search, for each arm")
    first: dict[str, tuple[float, ...]] = Field(
        {}, description="a coarse grid with which an open search begins; fields that it leaves out are the scale's"
    )

    @model_validator(mode="after")
    def _fits(self) -> "Sweep":
        keys = ("arm", "seed", "learning_rate", *ARM_FIELDS, *MODEL_FIELDS, *TRAINING_FIELDS)
        if unknown := [key for key in self.space if key not in keys]:
            raise ValueError(f"space has no '{unknown[0]}'; its keys are {', '.join(keys)}")
        if missing := [key for key in keys[:3] if key not in self.space]:
            raise ValueError(f"space lacks '{missing[0]}'")
        rates, seeds, grid = self.space["learning_rate"], self.space["seed"], self.sampler == "grid"
        lows = [rates.low] if isinstance(rates, Range) else rates
        if not lows or not all(isinstance(value, int | float) and value > 0 for value in lows):
            raise ValueError(f"learning_rate must be above 0 (got {rates})")
        if isinstance(seeds, Range) or not seeds or not all(type(value) is int and value >= 0 for value in seeds):
            raise ValueError(f"seed must be a list of whole numbers from 0 on (got {seeds})")
        if isinstance(self.space["arm"], Range) or not self.space["arm"]:
            raise ValueError("arm must be a list of arms")
        if grid and any(isinstance(values, Range) for values in self.space.values()):
            raise ValueError("a grid needs lists, not ranges")
        if grid != (self.trials is None):
            raise ValueError("an open search (tpe) needs `trials`, a grid has as many as its points")
        for key, values in self.first.items():
            span = self.space.get(key)
            if not isinstance(span, Range) or any(not span.low <= value <= span.high for value in values):
                raise ValueError(f"first: '{key}' {list(values)} must lie in a range of the space")
        if self.first and math.prod(map(len, self.first.values())) > (self.trials or 0):
            raise ValueError("first: an open search begins with no more points than it has trials, a grid with none")
        return self


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; UserError names what is wrong in it."""
    return parse(Sweep, read_yaml(path), path)
