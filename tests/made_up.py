"""Score files whose right answer is given, and measures made of them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.config.catalog import Catalog
from stemrepro.measures.base import Measure
from stemrepro.measures.comparison import ComparedArm
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.losses import ArmLosses

SOURCES = ("speeches", "bible", "glosses")


def write_summary(folder: Path, seeds: int, **more: object) -> None:
    """Write summary.json with what every part has."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"key": "k", "params_hash": folder.name, "data_hash": "d"} | more | {"seeds": seeds}
    (folder / "summary.json").write_text(json.dumps(about))


PAIRS = {"0": 1.0, "4-31": -1.0}
"""Buckets by count of the pair -> their losses less the mean."""


def write_arm(
    folder, prose, seeds=(0, 1, 2), evals=(0.4, 0.2), documents=40, unigram=5.0, diverged=(), flops=10.0, parameters=5,
    pairs=PAIRS, steps=20,
):  # fmt: skip
    """Write and return an arm whose loss is `prose[seed]` on both prose sources and 1.0 on glosses.

    Runs of the seeds `diverged` ended at step 15.
    """
    folder.mkdir(parents=True)
    rows, curve, nats, scored = [], [], [], [seed for seed in seeds if seed not in diverged]
    tokens = np.full(3 * documents, 10)
    source = np.repeat(SOURCES, documents)
    noise = np.random.default_rng(0).normal(0, 0.2, documents)
    for seed in scored:
        for name, loss in zip(SOURCES, (prose[seed], prose[seed], 1.0), strict=True):
            buckets = [("pair", bucket, shift) for bucket, shift in pairs.items()]
            for by, bucket, shift in [*buckets, ("position", "0", 0.0)]:
                count = 100 * len(pairs) if by == "position" else 100
                about = {"seed": seed, "by": by, "source": name, "bucket": bucket, "tokens": count}
                rows.append(about | {"nats": count * (loss + shift), "bytes": 250 * count // 100})
        for number, extra in enumerate(evals):
            losses = {"speeches": prose[seed] + extra, "bible": prose[seed] + extra, "glosses": 1.0}
            spent = {"tokens": 100 * (number + 1), "flops": flops * (number + 1), "train": 1.0}
            curve.append({"seed": seed} | spent | losses)
        wave = np.tile(noise - noise.mean(), 3)
        nats.append(tokens * np.where(source == "glosses", 1.0, prose[seed]) + wave * prose[seed])
    pd.DataFrame(rows).to_csv(folder / "losses.csv", index=False)
    pd.DataFrame(curve).to_csv(folder / "curve.csv", index=False)
    counts = [] if diverged else range(1, len(seeds) + 1)
    sums = np.array([np.sum(nats[:count], axis=0) for count in counts]).reshape(len(counts), len(source))
    np.savez(folder / "documents.npz", counts=np.array(counts, int), source=source, tokens=tokens, nats=sums)
    series = np.ones((len(seeds), steps))
    for number, seed in enumerate(seeds):
        if seed in diverged:
            series[number, 14:] = np.nan
    np.savez(folder / "steps.npz", seeds=np.array(seeds), loss=series, norm=series)
    mean = float(np.mean([prose[seed] for seed in scored])) if scored else 1.0
    nats_of = {"speeches": mean, "bible": mean, "glosses": 1.0, "prose": mean, "all": (2 * mean + 1) / 3}
    loss = {name: {"nats_per_token": value, "bits_per_byte": 1.0} for name, value in nats_of.items()}
    more = {
        "seed_numbers": list(seeds),
        "steps": steps,
        "loss": loss,
        "unigram_nats_per_token": unigram,
        "forward_flops_per_token": flops,
        "parameters": {"total": parameters, "tables": parameters // 2},
    }
    ended = {"diverged": {str(seed): 15 for seed in diverged}} if diverged else {}
    write_summary(folder, len(seeds), **more, **ended)
    return ArmLosses(folder)


def made(kind: type[Measure], catalog: Catalog, recipe: str, arms: dict, **scale: object) -> Measure:
    """Return a measure of a recipe at the laptop scale (with other fields), of made-up arms."""
    laptop = catalog.scale("laptop").model_copy(update=scale)
    measure = kind(
        Inputs(recipe, catalog.model_copy(update={"scales": {"laptop": laptop}}), "laptop", Path("scores/laptop"))
    )
    measure.arms = {name: arm if isinstance(arm, ComparedArm) else ComparedArm(arm) for name, arm in arms.items()}
    return measure
