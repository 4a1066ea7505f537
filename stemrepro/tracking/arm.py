"""MLflow's view of an arm: final scores by seed, their means, the gap to dense as claims pair it, and costs."""

from pathlib import Path

import numpy as np

from stemrepro.config.address import Address
from stemrepro.config.catalog import Catalog
from stemrepro.measures import losses
from stemrepro.measures.items import ArmItems
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.plans import other_plan
from stemrepro.verdicts.contrast import Unmeasured

REFERENCE = "dense"
"""The arm whose loss the gap of all others is taken from, at the same variant."""
GAP = "final/prose_gap"


def losses_of(scores: Path, address: Address) -> ArmLosses | None:
    """Return the losses of an address below scores/<scale>; None where none were scored."""
    losses = ArmLosses(scores / "losses" / address.path)
    return losses if (losses.folder / "losses.csv").exists() else None


def final_scores(catalog: Catalog, scores: Path, address: Address, params_hash: str) -> dict[str, dict[int, float]]:
    """Read the final losses (nats per token) and accuracies (%) of an address, by name and seed.

    Args:
        params_hash: of the settings; scores of other settings are left out.
    """
    values: dict[str, dict[int, float]] = {}
    arm = losses_of(scores, address)
    if arm and arm.summary["params_hash"] == params_hash and arm.scored:
        values |= {f"final/{mix}_loss": arm.loss(mix).to_dict() for mix in ("prose", "all")}
    for recipe in (recipe for recipe in catalog.recipes.values() if recipe.tasks):
        items = ArmItems(scores / "benchmarks" / address.path, recipe)
        if not (items.folder / "summary.json").exists() or items.summary["params_hash"] != params_hash:
            continue
        groups = {group: f"final/{group}_accuracy" for group in recipe.groups}
        for group, name in (groups | {task: f"tasks/{task}" for task in recipe.tasks}).items():
            accuracies = items.sample("accuracy", group).by_seed
            if np.isfinite(accuracies).all():
                values[name] = dict(zip(items.arrays["seeds"].tolist(), accuracies.tolist(), strict=True))
    return values


def gap(scores: Path, address: Address, shaped: bool = False) -> float | None:
    """Compute loss(dense) - loss(arm) on prose in nats per token, over the seeds that both have, as claims do.

    It is None where one of the two has no losses, or where they are of different plans. With `shaped` the arm has
    another shape than dense.
    """
    arm, reference = losses_of(scores, address), losses_of(scores, Address(address.variant, REFERENCE))
    if not arm or not reference or other_plan(arm.folder, reference.folder, shaped):
        return None
    try:
        first, second = losses.paired(reference, arm)
    except Unmeasured:
        return None
    return float((first.loss("prose") - second.loss("prose")).to_numpy().mean())


def arm_metrics(
    scores: Path, address: Address, values: dict[str, dict[int, float]], shaped: bool = False
) -> dict[str, float]:
    """Return the numbers that arms are compared by: means over seeds, standard deviations, gap and costs.

    They are rounded to six decimals.

    Args:
        values: as `final_scores` has them; gap and costs are those of the losses among them.
        shaped: whether the arm has another shape than dense.
    """
    metrics = {name: float(np.mean([*by_seed.values()])) for name, by_seed in values.items()}
    for name, by_seed in values.items():
        if len(by_seed) > 1:
            metrics[f"variation_over_seeds/{name.split('/')[1]}"] = float(np.std([*by_seed.values()], ddof=1))
    if (arm := losses_of(scores, address)) and "final/prose_loss" in values:
        counts = arm.summary["parameters"]
        metrics |= {f"cost/{kind}_parameters": float(counts[kind]) for kind in ("active", "tables")}
        metrics |= {"cost/parameters": float(counts["total"])}
        metrics |= {"cost/flops_per_token": float(arm.summary["forward_flops_per_token"])}
        metrics |= {GAP: lead} if (lead := gap(scores, address, shaped)) is not None else {}
    return {name: round(value, 6) for name, value in metrics.items()}


def recipes_of(catalog: Catalog, address: Address) -> str:
    """List the recipes that want an address."""
    return ", ".join(name for name, recipe in catalog.recipes.items() if address in recipe.wanted())
