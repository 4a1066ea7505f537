"""Losses and benchmark scores of arms, paired, in the common setting and in others."""

from typing import Annotated

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.buckets import BUCKETS, bucket_name
from stemrepro.config.scale import Variant
from stemrepro.config.sources import SOURCES
from stemrepro.measures import items, losses
from stemrepro.measures.base import Level, condition, on_scale
from stemrepro.measures.items import ArmItems
from stemrepro.measures.losses import ArmLosses, Bucket, arm_losses
from stemrepro.measures.metric import TaskName, VariantName
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect, Untested
from stemrepro.verdicts.rule import CONFOUNDED, TOO_SMALL

OWN_RATES, OFFICIAL_INIT = "own-rate", "official-start"
"""Variants at which arms are trained in another setting."""
WITH_TABLE = {("dense", "up-removed"): ("stem-dagger-full", "stem-full")}
"""The pair without a table (up-projection kept, removed), and the same pair with one: a factorial."""
UNINFORMED = ("stem-frozen", "stem-shuffled")
"""Arms whose rows hold nothing learnt of a token: random ones that never move, and ones dealt anew at every step."""


def _buckets(by: str) -> tuple[str, ...]:
    return tuple(bucket_name(BUCKETS[by], number) for number in range(len(BUCKETS[by])))


Source = Annotated[str, ("prose", "all", *SOURCES, "hub")]
"""Texts of which losses are taken: means over sources, or a source."""
Pair = Annotated[str, _buckets("pair")]
Frequency = Annotated[str, _buckets("frequency")]
"""Buckets of targets, by the training count of the pair of tokens, or of the token before."""


@kept
def arm_items(scores: Scores, arm: str) -> ArmItems:
    """Return the benchmark items of an arm."""
    return ArmItems(scores.folder, Address(MAIN, arm), scores.recipe)


def variant_losses(scores: Scores, arm: str) -> dict[str, ArmLosses]:
    """Return an arm's losses at the recipe's variants, but for the one where the recipe compares its arms."""
    names = (name for name in scores.recipe.variants_of(arm) if name != scores.recipe.compare_at)
    return {name: arm_losses(scores, arm, name) for name in names}


def pair_of_losses(
    scores: Scores, high: str, low: str, at: str | None = None, own: bool = False
) -> tuple[ArmLosses, ArmLosses] | None:
    """Return two arms' losses where the recipe compares them, or at a variant, or each at its own studied settings.

    Of the latter it is None where an arm wasn't trained so, or both arms' are the common ones.
    """
    common = arm_losses(scores, high, at), arm_losses(scores, low, at)
    if not own:
        return common
    if at is not None:
        return None
    first, second = at_setting(scores, OWN_RATES, high), at_setting(scores, OWN_RATES, low)
    if first is None or second is None or (first is common[0] and second is common[1]):
        return None
    return first, second


def at_setting(scores: Scores, setting: str, arm: str) -> ArmLosses | None:
    """Return an arm's losses in another setting, at the recipe's budget; None where it wasn't trained there.

    At own rates these are the scale's own losses where the family's best rate is the common one. They are None where
    the scale doesn't know that rate.
    """
    runs = variant_losses(scores, arm).get(setting)
    if setting != OWN_RATES:
        return runs
    if (common := own_is_common(scores, arm)) is None:
        return None
    return runs or (arm_losses(scores, arm) if common else None)


def own_is_common(scores: Scores, arm: str) -> bool | None:
    """Tell whether the best settings of an arm's family are the common ones; None where the scale has none."""
    fields, scale = scores.catalog.arms[arm], scores.scale
    if scale.tuned_of(arm, fields.family) is None:
        return None
    tuned, common = (run_settings(Address(MAIN, arm), fields, Variant(tuned=flag), scale) for flag in (True, False))
    return tuned == common


def loss(
    scores: Scores,
    high: str,
    low: str,
    source: Source,
    pair: Pair | None = None,
    frequency: Frequency | None = None,
    at: VariantName | None = None,
    own: bool = False,
) -> Effect | None:
    """Loss in nats per token, every source of a mix the same weight; of one bucket of targets, if one is named.

    `at`: another variant than the one where the recipe compares its arms.
    """
    named = {"pair": pair, "frequency": frequency}
    bucket = next((Bucket(by, name) for by, name in named.items() if name), None)
    if bucket:
        sums = arm_losses(scores, high, at).losses
        if not ((sums.by == bucket.by) & (sums.bucket == bucket.name)).any():
            raise Untested(f"no target at this scale fell into the bucket {bucket.name}")
    runs = pair_of_losses(scores, high, low, at, own)
    return losses.contrast(*runs, source, bucket) if runs else None


def lead(scores: Scores, high: str, low: str, at: VariantName | None = None) -> Effect:
    """Lead of the second arm in % of the first's bits per byte, which all vocabularies and sizes share."""
    return losses.lead(arm_losses(scores, high, at), arm_losses(scores, low, at))


def drift(scores: Scores, high: str, low: str, own: bool = False) -> Effect | None:
    """Change of the prose gap from the first mark of training to its last."""
    runs = pair_of_losses(scores, high, low, own=own)
    return losses.drift(*runs) if runs else None


def accuracy_levels(scores: Scores, task: str) -> list[Level]:
    """Return where dense stands in accuracy on a task or group."""
    return items.levels(arm_items(scores, "dense"), task)


@on_scale(accuracy_levels)
def accuracy(scores: Scores, high: str, low: str, task: TaskName) -> Effect:
    """Accuracy in points of a task or group, each task under its own acc or acc_norm."""
    return _of_items(scores, high, low, "accuracy", task)


def margin(scores: Scores, high: str, low: str, task: TaskName) -> Effect:
    """Bits that the prompt adds to the right answer over the wrong ones."""
    return _of_items(scores, high, low, "margin", task)


def _of_items(scores: Scores, high: str, low: str, score: str, task: str) -> Effect:
    if not arm_items(scores, "dense").whole().tasks(task):
        raise Untested("this scale has no items of it")
    return items.contrast(arm_items(scores, high), arm_items(scores, low), score, task)


def interaction(scores: Scores, high: str, low: str, at: VariantName | None = None) -> Effect:
    """What the up-projection is worth without a table less what it is worth with one, prose loss."""
    if (low, high) in WITH_TABLE:
        other = interaction(scores, low, high, at)
        return Effect(-other.differences, other.item_se)
    if (high, low) not in WITH_TABLE:
        choices = "; ".join(f"[{first}, {second}]" for first, second in WITH_TABLE)
        raise UserError(f"metric 'interaction' is of the pairs without a table, {choices}; got [{high}, {low}]")
    if missing := [arm for arm in WITH_TABLE[high, low] if arm not in scores.recipe.arms]:
        raise UserError(f"metric 'interaction' of [{high}, {low}] needs the arm '{missing[0]}', which the recipe lacks")
    without, with_table = (
        (arm_losses(scores, up, at), arm_losses(scores, removed, at))
        for up, removed in ((high, low), WITH_TABLE[high, low])
    )
    return losses.interaction(without, with_table, "prose")


def official(scores: Scores, high: str, low: str) -> Effect | None:
    """Return the difference on prose at the official start of the embeddings; None where an arm lacks it."""
    first, second = (at_setting(scores, OFFICIAL_INIT, arm) for arm in (high, low))
    return losses.contrast(first, second, "prose") if first and second else None


@condition(CONFOUNDED, ("dense", "token-only", "stem-full"))
def token_only_below_three_quarters(scores: Scores) -> str | None:
    """A memory of the last token explains less than three quarters of the gap between dense and STEM full."""
    dense, stem, memory = (arm_losses(scores, arm) for arm in ("dense", "stem-full", "token-only"))
    gap, part = (losses.contrast(dense, low, "prose") for low in (stem, memory))
    if gap.interval(0.05)[1] <= 0:
        return f"there is no gap between dense and stem-full to explain ({gap.mean:.3f} nats)"
    if Effect(part.differences - 0.75 * gap.differences).interval(0.05)[0] > 0:
        return f"the token-only control explains {100 * part.mean / gap.mean:.0f}% of the gap (over three quarters)"
    return None


@condition(TOO_SMALL, ("dense",))
def dense_beats_answers(scores: Scores, task: str) -> str | None:
    """Dense scores above what needs no knowledge."""
    return items.no_knowledge(arm_items(scores, "dense"), "accuracy", task)


@condition(CONFOUNDED, ("dense",), any_of=UNINFORMED)
def no_gain_without_information(scores: Scores, smallest_effect: float) -> str | None:
    """Rows that hold nothing learnt aren't shown to end below dense by more than the claim's smallest effect."""
    controls = tuple(arm for arm in UNINFORMED if arm in scores.recipe.arms)
    return gain_without_information(scores, controls, smallest_effect)


def gain_without_information(scores: Scores, controls: tuple[str, ...], smallest_effect: float) -> str | None:
    """Return a reason where a control whose rows say nothing is shown to end below dense by what counts."""
    dense = arm_losses(scores, "dense")
    gains = [(losses.contrast(dense, arm_losses(scores, arm), "prose").interval(0.05), arm) for arm in controls]
    (low, high), worst = max(gains)
    if low > smallest_effect:
        gain = f"ends {low:.3f} to {high:.3f} nats (95%) below dense, more than the {smallest_effect:g} that count"
        return f"{worst}, whose rows hold nothing that was learnt of a token, {gain}"
    return None


def cost(scores: Scores, arm: str) -> dict[str, float]:
    """Return an arm's FLOPs per token and all of its parameters, as multiples of dense's."""
    own, dense = arm_losses(scores, arm).summary, arm_losses(scores, "dense").summary
    flops = own["forward_flops_per_token"] / dense["forward_flops_per_token"]
    return {"FLOPs": flops, "parameters": own["parameters"]["total"] / dense["parameters"]["total"]}
