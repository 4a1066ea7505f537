"""What `dvc metrics show` lists: a file an arm, so that every line of its table is an arm, in few enough columns for a terminal."""

from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.config.address import MAIN
from stemrepro.config.catalog import Catalog
from stemrepro.measures.losses import ArmLosses, paired
from stemrepro.measures.plans import other_plan
from stemrepro.verdicts.contrast import Unmeasured

METRICS = Path("metrics")
REFERENCE = "dense"
DIGITS = 4


def compared_arms(catalog: Catalog) -> list[str]:
    """Return the arms of whose runs at the scale itself, not at a variant, recipes read losses."""
    wanted = [own for recipe in catalog.recipes.values() for own in recipe.wanted().items()]
    arms = {
        address.arm for address, kinds in wanted if address.variant == MAIN and {"losses", "context"} & kinds.keys()
    }
    return [arm for arm in catalog.arms if arm in arms]


def metrics_of(arm: ArmLosses, reference: ArmLosses) -> dict[str, float]:
    """`params`, all parameters; `kflops`, thousands of forward FLOPs a token; `prose`, nats a token, the mean over the seeds that the
    reference has too; `gap`, by how much that is below the reference, seed by seed, as in a claim (none of the reference itself).

    An arm has no losses where one of its runs diverged, and no gap where one of the reference's did or the two are of other plans.
    """
    costs = arm.summary
    found = {"params": costs["parameters"]["total"], "kflops": round(costs["forward_flops_per_token"] / 1000, 1)}
    try:
        found["prose"] = float(arm.whole().loss("prose").mean())
        if arm.folder != reference.folder and not other_plan(arm.folder, reference.folder):
            first, second = paired(reference, arm)
            found["prose"] = float(second.loss("prose").mean())
            found["gap"] = float((first.loss("prose") - second.loss("prose")).mean())
    except Unmeasured:
        pass
    return {name: round(value, DIGITS) for name, value in found.items()}


def write_metrics(catalog: Catalog, scale: str, scores: Path, out: Path = METRICS) -> int:
    """Write `out`/<scale>/<arm>.json for the arms of a scale that have scores, removes those of others, and returns how many there are.

    Raises:
        UserError: scores are damaged, or those that others are compared with are missing.
    """
    folder, asked = scores / scale / "losses" / MAIN, compared_arms(catalog.at(scale))
    there = [arm for arm in asked if (folder / arm / "summary.json").exists()]
    if there and REFERENCE not in there:
        raise UserError(f"{folder / REFERENCE} is missing, which the other arms are compared with; score it first")
    reference = ArmLosses(folder / REFERENCE)
    found = {arm: metrics_of(ArmLosses(folder / arm), reference) for arm in there}
    for path in (out / scale).glob("*.json"):
        if path.stem not in found:
            path.unlink()
    for arm, own in found.items():
        write_json(out / scale / f"{arm}.json", own)
    return len(found)
