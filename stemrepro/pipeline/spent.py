"""What the study has computed: the runs whose scores are committed, and the trials of its sweeps."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from stemrepro.common.files import damaged, read_json
from stemrepro.common.provenance import ignored
from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.measures.price import training_flops
from stemrepro.pipeline.planned import Planned


@dataclass(frozen=True)
class Spent:
    """Trainings that were made: how many, their tokens, and their FLOPs, forward and backward."""

    runs: int = 0
    tokens: int = 0
    flops: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.runs + other.runs, self.tokens + other.tokens, self.flops + other.flops)


def of_runs(planned: Mapping[Address, Planned], scores: Path) -> Spent:
    """Return what the planned runs of a scale took that have scores, with those that they resume from.

    Each counts as if it were trained from its start. Runs under WSD share their stable phase, so they took less.

    Args:
        scores: the scale's folder, which holds <kind>/<variant>/<arm>/.

    Raises:
        UserError: a summary or a curve of losses is damaged.
    """
    seeds: dict[Address, int] = {}
    for address, run in planned.items():
        summaries = sorted(scores.glob(f"*/{address.path}/summary.json"))
        count, begin = max((_seeds(path) for path in summaries), default=0), run.init_from
        while count:
            seeds[address] = max(count, seeds.get(address, 0))
            if begin is None:
                break
            address, begin = Address(begin.variant, begin.arm or address.arm), begin.init_from
    spent = Spent()
    for address, count in seeds.items():
        model, training = planned[address].model, planned[address].training
        tokens, flops = training.tokens, training_flops(model, training)
        if (curve := scores / "losses" / address.path / "curve.csv").exists():
            tokens, flops = _end(curve)  # of another vocabulary a run takes as many tokens as the same text has
        spent += Spent(count, round(count * tokens), count * flops)
    return spent


def of_trials(catalog: Catalog, results: Path, sweeps: Path) -> Spent:
    """Return what the trials took that results/<scale>/sweeps/<sweep>/data.csv list, where git doesn't ignore it.

    Args:
        sweeps: the folder with the sweeps' files, which say at which variant a sweep is.

    Raises:
        UserError: a list of trials or a sweep's file is missing or damaged.
    """
    spent = Spent()
    for path in sorted(results.glob("*/sweeps/*/data.csv")):
        if ignored(path):
            continue
        scale, variant = path.parts[-4], read_yaml(sweeps / f"{path.parent.name}.yaml").get("variant", MAIN)
        try:
            trials = pd.read_csv(path)["arm"].value_counts()
        except (OSError, ValueError, KeyError) as error:
            raise damaged(path, error) from error
        for arm, count in trials.items():
            address = Address(variant, str(arm))
            settings = run_settings(address, catalog.arms[address.arm], catalog.variant(variant), catalog.scale(scale))
            tokens, flops = settings[1].tokens, training_flops(*settings)
            spent += Spent(int(count), int(count) * tokens, count * flops)
    return spent


def _seeds(path: Path) -> int:
    summary = read_json(path)
    seeds = summary.get("seeds") if isinstance(summary, dict) else None
    if not isinstance(seeds, int):
        raise damaged(path, ValueError("it does not say of how many seeds"))
    return seeds


def _end(path: Path) -> tuple[float, float]:
    """Return tokens and FLOPs of a run at the end of its curve, in the mean over seeds."""
    try:
        ends = pd.read_csv(path).groupby("seed")[["tokens", "flops"]].max().mean()
        return float(ends["tokens"]), float(ends["flops"])
    except (OSError, ValueError, KeyError) as error:
        raise damaged(path, error) from error
