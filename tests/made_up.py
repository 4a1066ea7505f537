"""Score tables whose right answer is given, and recipes that read them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.config.address import Address
from stemrepro.config.catalog import Catalog
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.measures import store
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.scores import Scores

SOURCES = ("speeches", "bible", "glosses")
HASHES = {"params_hash": "p", "data_hash": "d"}


Scored = tuple[int, Mapping[str, pd.DataFrame], Mapping[str, object]]
"""Number of seeds, tables, and what the protocol says."""


def write_scores(
    folder: Path, kind: str, address: str, seeds: int, tables: Mapping[str, pd.DataFrame] | None = None, **about: object
) -> Address:
    """Write an arm's tables of a kind into `folder`, which is scores/<scale>, in place of those that are there.

    Args:
        address: "dense", or "dense@half".
        about: more of the protocol, or other values.
    """
    write_many(folder, kind, {address: (seeds, tables or {}, about)})
    return Address.parse(address)


def write_many(folder: Path, kind: str, arms: Mapping[str, Scored]) -> None:
    """Write the tables of arms by address at once, without the store's checks and its order: ten times as quick."""
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in (*SCORE_KINDS[kind].tables, store.PROTOCOL)}
    for address, (seeds, tables, about) in arms.items():
        told = {**HASHES, **about, "seeds": seeds, "lines": {name: len(frame) for name, frame in tables.items()}}
        protocol = pd.DataFrame([{"kind": kind, "key": "k", "about": json.dumps(told)}])
        for name, frame in {**tables, store.PROTOCOL: protocol}.items():
            parts[name].append(frame.assign(**vars(Address.parse(address))))
    folder.mkdir(parents=True, exist_ok=True)
    for name, frames in parts.items():
        path = folder / f"{name}.parquet"
        if path.exists():
            old = pd.read_parquet(path)
            places = zip(old["variant"], old["arm"], strict=True)
            gone = np.array([str(Address(*place)) in arms for place in places], bool)
            frames.insert(0, old[~gone | (old["kind"] != kind if name == store.PROTOCOL else False)])
        if frames:
            pd.concat(frames).to_parquet(path, index=False)


def edit(folder: Path, kind: str, address: str, name: str, change: Callable) -> None:
    """Put other lines in place of an arm's of a table, as `change` makes them of those; its other tables stay."""
    place = Address.parse(address)
    told = dict(store.about(folder, kind, place))
    tables = {table: store.lines(folder, kind, place, table) for table in told.pop("lines")}
    write_scores(folder, kind, address, told.pop("seeds"), tables | {name: change(tables[name])}, **told)


def grid(**axes: Iterable) -> pd.DataFrame:
    """Return a line for each combination of the axes' values, the last axis the fastest."""
    return pd.MultiIndex.from_product(axes.values(), names=list(axes)).to_frame(index=False)


PAIRS = {"0": 1.0, "4-31": -1.0}
"""Buckets by count of the pair -> their losses less the mean."""


def write_arm(folder: Path, address: str, prose: Sequence[float] | Mapping[int, float], **fields: object) -> ArmLosses:
    """Write and return an arm whose losses are those of `arm_scores`; `folder` is scores/<scale>."""
    write_arms(folder, {address: {"prose": prose} | fields})
    return ArmLosses(folder, Address.parse(address))


def write_arms(folder: Path, arms: Mapping[str, Mapping[str, object]]) -> None:
    """Write the losses of many arms at once; `arms` are fields of `arm_scores` by address."""
    write_many(folder, "losses", {address: arm_scores(**fields) for address, fields in arms.items()})


def arm_scores(
    prose: Sequence[float] | Mapping[int, float],
    seeds: Sequence[int] | None = None,
    evals: Sequence[float] = (0.4, 0.2),
    documents: int = 40,
    diverged: Sequence[int] = (),
    flops: float = 10.0,
    parameters: int = 5,
    pairs: Mapping[str, float] = PAIRS,
    steps: int = 20,
    series: Mapping[str, np.ndarray] | None = None,
    **about: object,
) -> Scored:
    """Return number of seeds, tables and protocol of an arm.

    Its loss is `prose[seed]` on both prose sources and 1.0 on glosses.

    Args:
        evals: what marks of training lie above the last loss.
        documents: of each source.
        diverged: seeds whose runs ended at step 15.
        pairs: buckets, and their losses less the mean.
        series: "loss" and "norm" of training [seeds, steps]; 1.0 at all of `steps` when left out.
        about: more of the protocol.
    """
    seeds = list(range(len(prose)) if seeds is None else seeds)
    scored = [seed for seed in seeds if seed not in diverged]
    series = series or dict.fromkeys(("loss", "norm"), np.ones((len(seeds), steps)))
    steps = series["loss"].shape[1]
    by_step = grid(seed=seeds, step=range(1, steps + 1)).assign(**{name: of.ravel() for name, of in series.items()})
    by_step = by_step[~(by_step["seed"].isin(diverged) & (by_step["step"] >= 15)) & by_step["loss"].notna()]
    tables = {"steps": by_step}
    if scored:
        loss = {(seed, source): 1.0 if source == "glosses" else prose[seed] for seed in scored for source in SOURCES}
        tables["losses"] = pd.DataFrame(
            [
                {"seed": seed, "by": by, "source": source, "bucket": bucket, "tokens": count, "bytes": 5 * count // 2}
                | {"nats": count * (value + shift)}
                for (seed, source), value in loss.items()
                for by, bucket, count, shift in (
                    *(("pair", bucket, 100, shift) for bucket, shift in pairs.items()),
                    ("position", "0", 100 * len(pairs), 0.0),
                )
            ]
        )
        tables["curve"] = pd.DataFrame(
            [
                {"seed": seed, "tokens": 100 * mark, "source": source, "flops": flops * mark, "train": 1.0}
                | {"nats": value + (0.0 if source == "glosses" else extra)}
                for (seed, source), value in loss.items()
                for mark, extra in enumerate(evals, 1)
            ]
        )
    if not diverged:
        tables["documents"] = _documents(prose, seeds, documents)
    mean = float(np.mean([prose[seed] for seed in scored])) if scored else 1.0
    nats = {"speeches": mean, "bible": mean, "glosses": 1.0, "prose": mean, "all": (2 * mean + 1) / 3}
    told = {
        "seed_numbers": seeds,
        "steps": steps,
        "loss": {name: {"nats_per_token": value, "bits_per_byte": 1.0} for name, value in nats.items()},
        "unigram_nats_per_token": 5.0,
        "forward_flops_per_token": flops,
        "parameters": {"total": parameters, "tables": parameters // 2},
    }
    told |= {"diverged": {str(seed): 15 for seed in diverged}} if diverged else {}
    return len(seeds), tables, told | about


def _documents(prose: Sequence[float] | Mapping[int, float], seeds: Sequence[int], count: int) -> pd.DataFrame:
    """Return documents of ten tokens, whose nats are the loss and a noise that is in proportion to it."""
    noise = np.random.default_rng(0).normal(0, 0.2, count)
    wave, source = np.tile(noise - noise.mean(), len(SOURCES)), np.repeat(SOURCES, count)
    nats = [10 * np.where(source == "glosses", 1.0, prose[seed]) + wave * prose[seed] for seed in seeds]
    lines = grid(seeds=range(1, len(seeds) + 1), document=range(len(source)))
    return lines.assign(source=np.tile(source, len(seeds)), tokens=10, nats=np.cumsum(nats, axis=0).ravel())


def made(catalog: Catalog, recipe: str, folder: Path, arms: Sequence[str] = (), **scale: object) -> Scores:
    """Return a recipe's scores in a folder at the laptop scale, with other fields of the scale.

    Args:
        folder: where `write_arm` and `write_scores` write.
        arms: those that the recipe then has; all of them when left out.
    """
    laptop = catalog.scale("laptop").model_copy(update=scale)
    asked = catalog.recipes[recipe]
    recipes = {recipe: asked.model_copy(update={"arms": tuple(arms)}) if arms else asked}
    return Scores(
        recipe, catalog.model_copy(update={"scales": {"laptop": laptop}, "recipes": recipes}), "laptop", folder
    )
