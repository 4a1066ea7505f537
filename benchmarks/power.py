"""How many seeds would a claim need? An answer from the committed scores.

    python -m benchmarks.power [--scale laptop]

A line has the spread of the claim's paired differences over seeds, the effect that its seeds find with 80% power, and
the seeds that find the smallest effect that counts: a 99% interval clear of 0, or within it where there is no effect.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize, stats

from stemrepro.measures.base import scores_of
from stemrepro.measures.catalog import load
from stemrepro.report.evidence import evidence_for
from stemrepro.verdicts.rule import DECIDES, Evidence

POWER, MOST, SURE = 0.8, 200, 0.8
GRID = (np.arange(400) + 0.5) / 400  # quantiles over which the estimated error is averaged


@dataclass(frozen=True)
class Spread:
    """What decides a claim's power: `sd` of its paired differences over seeds, its kind, the interval's level."""

    sd: float
    equivalent: bool
    alpha: float = DECIDES

    def power(self, effect: float, seeds: int) -> float:
        """Return the chance that so many seeds show an effect; of an equivalence: that 0 lies within +-effect."""
        se, df = self.sd / math.sqrt(seeds), seeds - 1
        critical = stats.t.ppf(1 - self.alpha / 2, df)
        if not self.equivalent:
            return float(stats.nct.sf(critical, df, effect / se))
        estimated = se * np.sqrt(stats.chi2.ppf(GRID, df) / df)
        return float(np.mean(np.clip(2 * stats.norm.cdf((effect - critical * estimated) / se) - 1, 0, 1)))

    def detectable(self, seeds: int) -> float:
        """Return the smallest effect that so many seeds find with 80% power."""
        return optimize.brentq(lambda effect: self.power(effect, seeds) - POWER, 1e-9 * self.sd, 100 * self.sd)

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
        read = scores_of(name, catalog, scale, scores / scale) if recipe.arms else None
        for key, claim in recipe.claims.items() if read else ():
            facts = evidence_for(claim, read)
            if facts.kind != "exact" and not facts.unmeasured and np.ptp(facts.contrast.differences) > 0:
                result.append(row(name, key, facts))
    return result


def main() -> None:
    """Print the table; `inf` seeds are more than MOST."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    print(pd.DataFrame(rows(parser.parse_args().scale)).to_string(index=False, float_format="{:.2g}".format))


if __name__ == "__main__":
    main()
