"""How many seeds would a claim need? An answer from the committed scores.

    python -m benchmarks.power --scale laptop            a line per claim
    python -m benchmarks.power --scale laptop --short    a line per recipe and smallest effect

A line has the spread of the claim's paired differences over seeds, the effect that its seeds find with 80% power, and
the seeds that would find the smallest effect that counts. It is found where the 99% interval is clear of 0, by the
noncentral t distribution. An equivalence is to be shown by its 99% interval where the true effect is 0.
"""

import argparse
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from scipy import stats

from stemrepro.measures.base import measured
from stemrepro.measures.catalog import load
from stemrepro.measures.inputs import Inputs
from stemrepro.report.evidence import evidence_for
from stemrepro.verdicts.rule import DECIDES, Evidence

POWER, MOST, SURE = 0.8, 200, 0.8
MEDIANS = ("SD", "found with 80%", "seeds for m", "seeds for m, upper SD")
GRID = (np.arange(400) + 0.5) / 400
"""Quantiles over which the estimated error is averaged."""


@dataclass(frozen=True)
class Spread:
    """What decides a claim's power.

    Attributes:
        sd: of the paired differences over seeds.
        equivalent: whether the claim is an equivalence.
        alpha: two-sided level of the interval.
    """

    sd: float
    equivalent: bool = False
    alpha: float = DECIDES

    def power(self, effect: float, seeds: int) -> float:
        """Return the chance that so many seeds show an effect.

        Of an equivalence: that they show none within +-effect where the true effect is 0.
        """
        se, df = self.sd / math.sqrt(seeds), seeds - 1
        critical = stats.t.ppf(1 - self.alpha / 2, df)
        if not self.equivalent:
            return float(stats.nct.sf(critical, df, effect / se))
        estimated = se * np.sqrt(stats.chi2.ppf(GRID, df) / df)
        return float(np.mean(np.clip(2 * stats.norm.cdf((effect - critical * estimated) / se) - 1, 0, 1)))

    def detectable(self, seeds: int) -> float:
        """Return the smallest effect that so many seeds find with 80% power."""
        low, high = 0.0, 100 * self.sd
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.power(middle, seeds) >= POWER else (middle, high)
        return high

    def seeds(self, effect: float) -> float:
        """Return the fewest seeds that find an effect with 80% power; infinite when MOST don't."""
        return next((n for n in range(2, MOST + 1) if self.power(effect, n) >= POWER), math.inf)


def upper(sd: float, seeds: int) -> float:
    """Return the upper 80% bound of a standard deviation that so many seeds gave."""
    return sd * math.sqrt((seeds - 1) / stats.chi2.ppf(1 - SURE, seeds - 1))


def row(recipe: str, name: str, facts: Evidence) -> dict:
    """Return a claim's numbers."""
    contrast, m = facts.contrast, facts.smallest_effect
    seeds, sd = contrast.seeds, float(np.std(contrast.differences, ddof=1))
    estimate, bound = (Spread(value, facts.kind == "equivalent") for value in (sd, upper(sd, seeds)))
    return {
        "recipe": recipe, "claim": name, "kind": facts.kind, "m": m, "seeds": seeds, "SD": sd,
        "SD, upper 80%": bound.sd, "found with 80%": estimate.detectable(seeds),
        "seeds for m": estimate.seeds(m), "seeds for m, upper SD": bound.seeds(m),
    }  # fmt: skip


def rows(scale: str, scores: Path = Path("scores")) -> list[dict]:
    """Return a row per claim with a spread over seeds."""
    catalog, result = load().at(scale), []
    for name, recipe in catalog.recipes.items():
        if not recipe.arms:
            continue
        measure = measured(Inputs(name, catalog, scale, scores / scale))
        for key, claim in recipe.claims.items():
            facts = evidence_for(claim, measure)
            if facts.kind != "exact" and not facts.unmeasured and np.ptp(facts.contrast.differences) > 0:
                result.append(row(name, key, facts))
    return result


def shortened(every: list[dict]) -> list[dict]:
    """Return a line per recipe and smallest effect: medians over its claims, and the most seeds that one needs."""
    groups = defaultdict(list)
    for line in every:
        groups[line["recipe"], line["m"]].append(line)
    lines = []
    for (recipe, m), group in groups.items():
        seeds = "/".join(str(n) for n in sorted({line["seeds"] for line in group}))
        medians = {key: median(line[key] for line in group) for key in MEDIANS}
        most = max(line["seeds for m"] for line in group)
        about = {"recipe": recipe, "m": m, "claims": len(group), "seeds": seeds}
        lines.append(about | medians | {"most seeds for m": most})
    return lines


def table(lines: list[dict]) -> str:
    """Return lines as Markdown."""

    def cell(value: object) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"> {MOST}" if value == math.inf else f"{value:.2g}" if value < 10 else f"{value:.0f}"

    head = [f"| {' | '.join(lines[0])} |", f"|{'---|' * len(lines[0])}"]
    return "\n".join([*head, *(f"| {' | '.join(map(cell, line.values()))} |" for line in lines)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    every = rows(options.scale)
    print(table(shortened(every) if options.short else every))


if __name__ == "__main__":
    main()
