"""The plan of scores: the text, the budget and the settings that all arms at a variant share, as their protocol tells.

Scores that a recipe compares are of one plan. Else the effect of another text or budget is taken for that of an arm.
Arms differ in model and learning rate, at variants of own rates also in their initialisation; an arm of another shape
(`match: shape`, `track: size`) differs in width, and so in both. At equal time they differ in steps.
"""

from pathlib import Path
from typing import Any

from stemrepro.common.errors import UserError
from stemrepro.config.address import Address
from stemrepro.config.arm import changes_width
from stemrepro.measures import store
from stemrepro.measures.scores import Scores

MODEL = ("vocab", "width", "layers", "heads", "kv_heads", "rope_base", "norm_eps", "document_mask")
TRAINING = ("schedule", "warmup_tokens", "decay", "final_rate", "betas", "eps", "weight_decay", "clip", "precision")
STARTS = ("warmup", "embedding_rate_factor", "embedding_decay_factor")
"""Fields of a run that all arms at a variant share, but for STARTS at own rates. How often it is saved is none."""
TEXT, STEPS, START, SCORING = "text", "steps of training", "start of the embeddings", "settings of scoring"
TRAINED, TOKENS = "settings of training", "tokens of training"


def plan(folder: Path, kind: str, address: Address) -> dict[str, Any]:
    """Return what an arm's scores in scores/<scale> tell of their plan; UserError where it has none."""
    about = store.about(folder, kind, address)
    named = {STEPS: "steps", "loss of token frequencies in the validation text": "unigram_nats_per_token"}
    told = {what: about[key] for what, key in named.items() if key in about}
    return {TEXT: about["data_hash"], **about.get("plan", {}), **told}


def other_plan(folder: Path, first: Address, second: Address, shaped: bool = False) -> bool:
    """Return whether two arms' losses are of two plans, but for their initialisation and, `shaped`, their width."""
    one, other = (plan(folder, "losses", address) for address in (first, second))
    left_out = {START, TRAINED} if shaped else {START}
    return any(one[what] != other[what] for what in one.keys() & other.keys() - left_out)


def check_one_plan(scores: Scores) -> None:
    """Raise UserError where scores that a recipe reads are of two plans.

    Scores at a variant agree in all that its arms share. Over variants they agree in the text, in the settings of
    scoring, and in the budget, of which variants take shares.
    """
    known = store.protocol(scores.folder)
    expected: dict[tuple[str, object], tuple[object, str]] = {}
    steps: list[tuple[int, int, str]] = []
    for address, kinds in scores.recipe.scored().items():
        variant = scores.catalog.variant(address.variant)
        scale = variant.at(scores.scale)
        text = (variant.vocab, variant.people, variant.extends.text if variant.extends else "own")
        wider = changes_width(scale.model.track, scores.catalog.arms[address.arm])
        own = {START} if variant.tuned else set()
        own |= ({START, TRAINED} if wider else set()) | ({STEPS, TOKENS} if variant.equal_time else set())
        for kind in kinds:
            name = f"{kind} of {address}"
            if (kind, address.variant, address.arm) not in known:
                continue  # whoever reads it says so
            for what, value in plan(scores.folder, kind, address).items():
                if what in own:
                    continue
                place = {TEXT: text, SCORING: kind}.get(what, address.variant)
                before, other = expected.setdefault((what, place), (value, name))
                if value != before:
                    raise _apart(scores, other, name, f"{what}: {before} and {value}")
                if what == STEPS and variant.vocab == 1:
                    steps.append((scale.training.tokens // (scale.training.batch * scale.model.sequence), value, name))
    if steps:
        most, ran, longest = max(steps)
        for planned, count, name in steps:
            if abs(count - ran * planned / most) > 1.5:  # whole steps on both sides
                raise _apart(scores, longest, name, f"{STEPS}: {ran} and {count}, planned {most} and {planned}")


def _apart(scores: Scores, one: str, other: str, difference: str) -> UserError:
    return UserError(
        f"{one} and {other} at scale '{scores.scale_name}' are of two plans and can't be compared ({difference}); "
        f"run 'make reproduce SCALE={scores.scale_name}'"
    )
