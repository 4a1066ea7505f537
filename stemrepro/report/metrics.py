"""What `dvc metrics show` lists: one file per arm, so that its table has one line per arm."""

from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.config.address import MAIN, Address
from stemrepro.config.catalog import Catalog
from stemrepro.measures import store
from stemrepro.measures.losses import ArmLosses, paired
from stemrepro.measures.protocol import other_plan
from stemrepro.verdicts.effect import Unmeasured

METRICS = Path("metrics")
GAP, LOSS, FLOPS, PARAMETERS = "gap (nats/token)", "loss (nats/token)", "kFLOPs/token", "parameters"
REFERENCE = "dense"
"""The arm that all others are compared with, at the same variant."""
DIGITS = 4


def compared_arms(catalog: Catalog) -> list[str]:
    """Return the arms whose losses recipes read at the scale itself, without its variants."""
    arms = set()
    for recipe in catalog.recipes.values():
        for address, kinds in recipe.wanted().items():
            if address.variant == MAIN and {"losses", "context"} & kinds.keys():
                arms.add(address.arm)
    return [arm for arm in catalog.arms if arm in arms]


def gap(arm: ArmLosses, reference: ArmLosses, shaped: bool = False) -> float | None:
    """Return by how much an arm's prose loss is below another's, the mean of differences seed by seed, as in a claim.

    It is None where the other has no losses, one of their runs diverged, or they follow different plans.

    Args:
        shaped: whether the arm has another shape, and so another width.
    """
    known = reference.address in store.with_losses(reference.folder)
    if not known or other_plan(arm.folder, arm.address, reference.address, shaped):
        return None
    try:
        first, second = paired(reference, arm)
        return float((first.loss("prose") - second.loss("prose")).mean())
    except Unmeasured:
        return None


def metrics_of(arm: ArmLosses, reference: ArmLosses, shaped: bool = False) -> dict[str, float]:
    """Return an arm's parameters, thousands of forward FLOPs per token, prose loss and gap; see `gap`.

    The loss is the mean over the seeds that the reference has too; there is none where a run of the arm diverged.
    """
    costs = arm.summary
    metrics = {PARAMETERS: costs["parameters"]["total"], FLOPS: round(costs["forward_flops_per_token"] / 1000, 1)}
    if not arm.diverged:
        metrics[LOSS] = float(arm.loss("prose").mean())
        if arm.address != reference.address and (below := gap(arm, reference, shaped)) is not None:
            metrics |= {LOSS: float(paired(reference, arm)[1].loss("prose").mean()), GAP: below}
    return {name: round(value, DIGITS) for name, value in metrics.items()}


def write_metrics(catalog: Catalog, scale: str, scores: Path, out: Path = METRICS) -> int:
    """Write `out`/<scale>/<arm>.json for the arms of a scale that have scores, remove others; return how many it has.

    Raises:
        UserError: scores are damaged, or those of the reference are missing.
    """
    folder, scored = scores / scale, store.scored(scores / scale, "losses")
    arms = [arm for arm in compared_arms(catalog.at(scale)) if Address(MAIN, arm) in scored]
    if arms and REFERENCE not in arms:
        raise UserError(
            f"{folder} has no losses of {REFERENCE}, which the other arms are compared with; score it first"
        )
    reference = ArmLosses(folder, Address(MAIN, REFERENCE))
    by_arm = {
        arm: metrics_of(ArmLosses(folder, Address(MAIN, arm)), reference, catalog.arms[arm].match == "shape")
        for arm in arms
    }
    for path in (out / scale).glob("*.json"):
        if path.stem not in by_arm:
            path.unlink()
    for arm, metrics in by_arm.items():
        write_json(out / scale / f"{arm}.json", metrics)
    return len(by_arm)
