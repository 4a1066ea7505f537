"""The numbers that MLflow compares arms by: final scores over seeds, the gap to dense as claims pair it, and costs."""

from pathlib import Path

import numpy as np

from stemrepro.config.address import Address
from stemrepro.config.arm import changes_width
from stemrepro.config.catalog import Catalog
from stemrepro.measures import losses
from stemrepro.measures.items import ArmItems
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.plans import other_plan
from stemrepro.verdicts.contrast import Unmeasured

REFERENCE = "dense"
"""The arm whose loss the gap of all others is taken from, at the same variant."""


def gap(scores: Path, address: Address, shaped: bool = False) -> float | None:
    """Compute loss(dense) - loss(arm) on prose in nats per token, over the seeds that both have, as claims do.

    It is None where one of the two has no losses, or where they are of different plans. With `shaped` the arm has
    another shape than dense.
    """
    ours, dense = (scores / "losses" / place.path for place in (address, Address(address.variant, REFERENCE)))
    if not all((folder / "losses.csv").exists() for folder in (ours, dense)) or other_plan(ours, dense, shaped):
        return None
    try:
        reference, arm = losses.paired(ArmLosses(dense), ArmLosses(ours))
    except Unmeasured:
        return None
    return float((reference.loss("prose") - arm.loss("prose")).to_numpy().mean())


def summary_of(catalog: Catalog, scale: str, scores: Path, address: Address) -> tuple[dict[str, float], dict[str, str]]:
    """Return the metrics of an arm that has losses, and what MLflow lists as its tags.

    Losses are in nats per token, accuracies in %, each the mean over seeds; all are rounded to six decimals.
    Accuracies of other settings than those of the losses are left out.

    Args:
        scores: scores/<scale>.
    """
    arm = ArmLosses(scores / "losses" / address.path)
    by_seed = {f"final/{mix}_loss": arm.loss(mix).to_numpy() for mix in ("prose", "all") if arm.scored}
    for recipe in (recipe for recipe in catalog.recipes.values() if recipe.tasks):
        items = ArmItems(scores / "benchmarks" / address.path, recipe)
        path = items.folder / "summary.json"
        if path.exists() and items.summary["params_hash"] == arm.summary["params_hash"]:
            groups = {f"final/{group}_accuracy": group for group in recipe.groups}
            for name, group in (groups | {f"tasks/{task}": task for task in recipe.tasks}).items():
                by_seed[name] = items.sample("accuracy", group).by_seed
    metrics = {name: float(np.mean(values)) for name, values in by_seed.items() if np.isfinite(values).all()}
    for name in list(metrics):
        if len(by_seed[name]) > 1:
            metrics |= {f"variation_over_seeds/{name.split('/')[1]}": float(np.std(by_seed[name], ddof=1))}
    counts, flops = arm.summary["parameters"], float(arm.summary["forward_flops_per_token"])
    metrics |= {f"model/{kind}_parameters": float(counts[kind]) for kind in ("active", "tables", "total")}
    metrics |= {"model/flops_per_token": flops}
    track = catalog.variant(address.variant).track or catalog.scale(scale).model.track
    shaped = changes_width(track, catalog.arms[address.arm])
    if arm.scored and (lead := gap(scores, address, shaped)) is not None:
        metrics["final/prose_gap"] = lead
    names = ", ".join(name for name, recipe in catalog.recipes.items() if address in recipe.wanted())
    tags = {"arm": address.arm, "variant": address.variant, "seeds": str(len(arm.scored)), "recipes": names}
    return {name: round(value, 6) for name, value in metrics.items()}, tags
