"""Give a scale the learning rate that its pilot chose, and plan again.

    stemrepro sweep recipes/sweeps/pilot_rate.yaml --scale gpu --workers 3
    python -m benchmarks.pilot_rate gpu

The pilot is dense at four rates, one seed, an eighth of the tokens. The rate with the lowest loss on the tune split is
written into recipes/scales/<scale>.yaml, for all arms. A best at an end of the grid is named; a better rate may lie
beyond.
"""

import re
import sys
from pathlib import Path

import pandas as pd

from stemrepro.common.files import atomic_write
from stemrepro.common.paths import RECIPES, RESULTS
from stemrepro.pipeline.plan import write
from stemrepro.pipeline.planned import read_params

PILOT, ARM = "pilot_rate", "dense"
LINE = re.compile(r"^learning_rate: *\S+", re.MULTILINE)


def chosen(results: Path) -> tuple[float, str]:
    """Return the pilot's best rate, and the field in which it lies at an end of the grid, if it does."""
    best = pd.read_csv(results / "sweeps" / PILOT / "best.csv", keep_default_na=False).set_index("arm").loc[ARM]
    return float(best["learning_rate"]), best["at_edge"]


def take(scale: str, file: Path, rate: float) -> None:
    """Write a rate into the file of a scale, whose comments stay, and the plan of the same recipes anew.

    Raises:
        ValueError: the file has no rate of its own.
    """
    text, count = LINE.subn(f"learning_rate: {rate:g}", file.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{file} has no line 'learning_rate: ...' of its own")
    recipes = read_params().recipe_names
    atomic_write(file, text)
    write(scale, recipes)


def main(scale: str) -> None:
    """Take the rate and say so."""
    rate, edge = chosen(RESULTS / scale)
    file = RECIPES / "scales" / f"{scale}.yaml"
    take(scale, file, rate)
    print(f"{file}: learning_rate {rate:g}{f', at an end of the grid ({edge})' if edge else ''}")


if __name__ == "__main__":
    main(*sys.argv[1:])
