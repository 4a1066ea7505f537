"""What MLflow shows of an arm: its scores by seed, their means, the gap to dense as claims pair it, costs, and a description in words."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stemrepro.common.provenance import read_provenance
from stemrepro.config.address import MAIN, Address
from stemrepro.config.catalog import Catalog
from stemrepro.measures import losses
from stemrepro.measures.geometry import ArmGeometry
from stemrepro.measures.items import ArmItems
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.plans import other_plan
from stemrepro.model.ffn.naming import module_of
from stemrepro.report.verdicts import read_verdicts, word
from stemrepro.tracking.run import cost_of, made_at
from stemrepro.training.run_folder import read_config
from stemrepro.verdicts.contrast import Contrast, Unmeasured

REFERENCE = "dense"
"""The arm whose loss the gap of all others is taken from, at the same variant."""
GAP = "final/prose_gap"
MOST_CLAIMS = 50  # a line each; MLflow cuts a description at 8,000 characters


def losses_of(scores: Path, address: Address) -> ArmLosses | None:
    """Return the losses of an address below scores/<scale>; None where none were scored."""
    found = ArmLosses(scores / "losses" / address.path)
    return found if (found.folder / "losses.csv").exists() else None


def by_seed(catalog: Catalog, scores: Path, address: Address, params_hash: str) -> dict[str, dict[int, float]]:
    """Return final metrics of an address by name and seed, where they were scored from runs of these settings."""
    found: dict[str, dict[int, float]] = {}
    own = losses_of(scores, address)
    if own and own.summary["params_hash"] == params_hash:
        found |= {f"final/{metric}_loss": own.loss(metric).to_dict() for metric in ("prose", "all")}
    for recipe in (recipe for recipe in catalog.recipes.values() if recipe.tasks):
        items = ArmItems(scores / "benchmarks" / address.path, recipe)
        if (items.folder / "summary.json").exists() and items.summary["params_hash"] == params_hash:
            names = {what: f"final/{what}_accuracy" for what in recipe.groups} | {
                what: f"tasks/{what}" for what in recipe.tasks
            }
            for what, name in names.items():
                values = items.sample("accuracy", what).by_seed
                if np.isfinite(values).all():
                    found[name] = dict(zip(items.arrays["seeds"].tolist(), values.tolist(), strict=True))
    if address.variant == MAIN and (scores / "geometry" / address.path / "summary.json").exists():
        angles = ArmGeometry(scores, address.arm)
        if angles.summary["params_hash"] == params_hash:
            found["final/p95_cosine"] = angles.by_layer("p95", "up").mean(axis=1).to_dict()
    return found


def gap(scores: Path, address: Address) -> Contrast | None:
    """loss(dense) - loss(arm) on prose in nats a token, by the code and the seeds that claims have it from: those that both arms have;
    None where one has no losses, or the two are of other plans.
    """
    own, reference = losses_of(scores, address), losses_of(scores, Address(address.variant, REFERENCE))
    if not own or not reference or other_plan(own.folder, reference.folder):
        return None
    try:
        return losses.contrast(reference, own, "prose")
    except Unmeasured:
        return None


@dataclass(frozen=True)
class ArmView:
    """An arm of some settings.

    Attributes:
        seeds: those that were scored, or trained where none were.
        scores: final metrics by name and seed; empty where none were scored from runs of these settings.
        gap: to dense; None as long as one of the two has no scores.
        cost: "forward_flops_per_token" and "parameters", by what they count; empty where nobody may count them (`cost_of`).
        recipes: that read it.
        trained: the commits of its runs, short; "" where they aren't here.
        drawn: the commits of the results that it stands in, short; "" where there are none.
    """

    address: Address
    seeds: tuple[int, ...]
    scores: dict[str, dict[int, float]]
    gap: Contrast | None
    cost: dict
    recipes: list[str]
    trained: str
    drawn: str

    def metrics(self) -> dict[str, float]:
        """Return what the arm is compared by: means over seeds, their standard deviations, the gap, costs; to six digits, as in verdicts.json."""
        found = {}
        for name, values in self.scores.items():
            own = list(values.values())
            found[name] = float(np.mean(own))
            if len(own) > 1:
                found[f"variation_over_seeds/{name.split('/')[1]}"] = float(np.std(own, ddof=1))
        if self.gap:
            found[GAP] = self.gap.mean
        if self.cost:
            counts = self.cost["parameters"]
            found |= {f"cost/{kind}_parameters": float(counts[kind]) for kind in ("active", "tables")}
            found["cost/parameters"] = float(counts["total"])
            found["cost/flops_per_token"] = float(self.cost["forward_flops_per_token"])
        return {name: round(value, 6) for name, value in found.items()}


def recipes_of(catalog: Catalog, address: Address) -> list[str]:
    """Return the recipes that want an address."""
    return [name for name, recipe in catalog.recipes.items() if address in recipe.wanted()]


def drawn_at(results: Path, recipes: list[str]) -> str:
    """Return the commits, short, at which results of recipes were made; "" where none were."""
    files = [results / name / "provenance.json" for name in recipes]
    commits = {read_provenance(path)["commit"][:7] for path in files if path.exists()}
    return ", ".join(sorted(commits))


def arm_view(
    catalog: Catalog, scores: Path, results: Path, address: Address, params_hash: str, folders: list[Path]
) -> ArmView:
    """Return an arm of some settings, from its scores where they are of these, else from its run folders.

    Args:
        scores: the folder scores/<scale>.
        results: the folder results/<scale>.
        folders: its run folders, of these settings; none where they aren't here.
    """
    own, recipes = losses_of(scores, address), recipes_of(catalog, address)
    scored = bool(own) and own.summary["params_hash"] == params_hash
    configs = [read_config(folder) for folder in folders]
    return ArmView(
        address,
        seeds=tuple(own.scored if scored else (config["seed"] for config in configs)),
        scores=by_seed(catalog, scores, address, params_hash),
        gap=gap(scores, address) if scored else None,
        cost=own.summary if scored else cost_of(configs[0]),
        recipes=recipes,
        trained=", ".join(sorted({made_at(folder)[:7] for folder in folders})),
        drawn=drawn_at(results, recipes) if scored else "",
    )


@dataclass(frozen=True)
class Spoken:
    """A claim as its recipe's verdicts.json has it, and the variant at which its arms are compared."""

    recipe: str
    row: dict
    variant: str

    def __str__(self) -> str:
        numbers = "no value"
        if self.row["ours"] is not None:
            numbers = f"{self.row['ours']:+.4f} {self.row['unit']}"
            if self.row["ci_low"] is not None and self.row["level"] is not None:
                level = f"{100 * self.row['level']:.4g}%"
                numbers += f" ({level} interval {self.row['ci_low']:+.4f} to {self.row['ci_high']:+.4f})"
        return f"`{self.recipe}/{self.row['claim']}`: {word(self.row)}, {numbers}"


def spoken(catalog: Catalog, results: Path) -> list[Spoken]:
    """Return all claims that were judged below results/<scale>, in the recipes' order; UserError names verdicts that are damaged."""
    return [
        Spoken(name, row, row["metric"].partition("@")[2] or recipe.base)
        for name, recipe in catalog.recipes.items()
        if (path := results / name / "verdicts.json").exists()
        for row in read_verdicts(path)
    ]


def claims_on(address: Address, claims: list[Spoken]) -> list[Spoken]:
    """Return those that name an address's arm at its variant."""
    return [claim for claim in claims if address.arm in claim.row["arms"] and claim.variant == address.variant]


def _what(catalog: Catalog, address: Address) -> str:
    at = "" if address.variant == MAIN else f" at the variant `{address.variant}` of recipes/variants.yaml"
    if address.arm not in catalog.arms:
        return f"**{address.arm}**{at}, which is not in recipes/arms.yaml any more."
    arm, module = catalog.arms[address.arm], module_of(catalog.arms[address.arm].ffn)
    file = str(module) if isinstance(module, Path) else f"{module.replace('.', '/')}.py"
    where = "in every layer" if arm.placement == "none" else f"in the layers `{arm.placement}`"
    return f"**{arm.label or address.arm}**{at}: feed-forward network `{arm.ffn}` {where}; its equation is in `{file}`, all its fields are in `recipes/arms.yaml`."


def _gap(view: ArmView) -> str:
    if not view.scores:
        return "No scores of these settings yet: `make reproduce` or `stemrepro evaluate` makes them."
    if view.address.arm == REFERENCE or not view.gap:
        return (
            "The gap of other arms is to this one."
            if view.address.arm == REFERENCE
            else "Dense has no scores of this plan here."
        )
    count, side = len(view.gap.differences), "below" if view.gap.mean > 0 else "above"
    low, high = view.gap.interval(0.05)
    within = f" (95% interval of the difference {low:+.4f} to {high:+.4f}, for this arm alone)" if count > 1 else ""
    pairs = f"in {count} pair{'s' if count > 1 else ''} of runs with the same seed"
    return f"Prose loss: {abs(view.gap.mean):.4f} nats a token {side} dense{within}, {pairs}. Means over other seeds differ by other numbers."


def describe(catalog: Catalog, scale: str, view: ArmView, claims: list[Spoken]) -> str:
    """Return an arm in Markdown: what it is, seeds, gap, costs, commits, and the claims that name it.

    Args:
        claims: as `claims_on` has them.
        recipes: that read it.
    """
    seeds, cost = (
        ", ".join(map(str, view.seeds)),
        "its costs are not counted, as no arm of recipes/arms.yaml names the file of its network",
    )
    if view.cost:
        counts = view.cost["parameters"]
        cost = (
            f"{view.cost['forward_flops_per_token']:,} FLOPs a token forward; {counts['total']:,} parameters, "
            f"{counts['tables']:,} of them in tables"
        )
    trained = f"Trained at commit {view.trained}" if view.trained else "Its run folders are not here"
    drawn = f"; results drawn at {view.drawn}" if view.drawn else ""
    lines = [
        _what(catalog, view.address),
        _gap(view),
        f"Seeds {seeds}; {cost}.",
        f"{trained}{drawn}. Recipes that read it: {', '.join(view.recipes) or 'none'}.",
    ]
    if claims:
        more = len(claims) - MOST_CLAIMS
        lines.append(f"Claims that name it (`stemrepro explain RECIPE/CLAIM --scale {scale}`):")
        lines.append("\n".join(f"- {claim}" for claim in claims[:MOST_CLAIMS]))
        lines += [f"and {more} more in `results/{scale}/`."] if more > 0 else []
    return "\n\n".join(lines)
