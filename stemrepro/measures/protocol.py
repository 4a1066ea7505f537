"""The plan of scores: the text, the budget and the settings that all arms at a variant share, as their files tell.

Scores that a recipe compares are of one plan. Else the effect of another text or budget is taken for that of an arm.
Arms differ in model and learning rate, at variants of own rates also in their initialisation; an arm of another shape
(`match: shape`, `track: size`) differs in width, and so in both. At equal time they differ in steps.
"""

from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.config.arm import changes_width
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.reading import read_summary

MODEL = ("vocab", "width", "layers", "heads", "kv_heads", "rope_base", "norm_eps", "document_mask")
TRAINING = ("schedule", "warmup_tokens", "decay", "final_rate", "betas", "eps", "weight_decay", "clip", "precision")
STARTS = ("warmup", "embedding_rate_factor", "embedding_decay_factor")
"""Fields of a run that all arms at a variant share, but for STARTS at own rates.

How often a run is saved or evaluated is none of them.
"""
TEXT, STEPS, START, SCORING = "text", "steps of training", "start of the embeddings", "settings of scoring"
TRAINED, TOKENS = "settings of training", "tokens of training"


def plan(folder: Path) -> dict:
    """Return what an arm's scores tell of their plan; UserError where they are damaged."""
    summary = read_summary(folder / "summary.json")
    settings = {TEXT: summary["data_hash"], **summary.get("plan", {})}
    if "steps" in summary:
        settings[STEPS] = summary["steps"]
    if "unigram_nats_per_token" in summary:
        settings["loss of token frequencies in the validation text"] = summary["unigram_nats_per_token"]
    return settings


def other_plan(first: Path, second: Path, shaped: bool = False) -> bool:
    """Return whether two arms' scores are of two plans, but for their initialisation and, `shaped`, their width."""
    one, other = plan(first), plan(second)
    left_out = {START, TRAINED} if shaped else {START}
    return any(one[what] != other[what] for what in one.keys() & other.keys() - left_out)


def check_one_plan(inputs: Inputs) -> None:
    """Raise UserError where scores that a recipe reads are of two plans.

    Scores at a variant agree in all that its arms share. Over variants they agree in the text, in the settings of
    scoring, and in the budget, of which variants take shares.
    """
    expected: dict[tuple, tuple[object, str]] = {}
    steps: list[tuple[int, int, str]] = []
    for address, kinds in inputs.recipe.scored().items():
        variant = inputs.catalog.variant(address.variant)
        scale = variant.at(inputs.scale)
        text = (variant.vocab, variant.people, variant.extends.text if variant.extends else "own")
        for kind in kinds:
            folder, name = inputs.folder / kind / address.path, f"{kind} of {address}"
            if not (folder / "summary.json").exists():
                continue  # whoever reads it says so
            for what, value in plan(folder).items():
                wider = changes_width(scale.model.track, inputs.catalog.arms[address.arm])
                own = {START} if variant.tuned else set()
                own |= ({START, TRAINED} if wider else set()) | ({STEPS, TOKENS} if variant.equal_time else set())
                if what in own:
                    continue
                place = {TEXT: text, SCORING: kind}.get(what, address.variant)
                before, other = expected.setdefault((what, place), (value, name))
                if value != before:
                    raise _apart(inputs, other, name, f"{what}: {before} and {value}")
                if what == STEPS and variant.vocab == 1:
                    steps.append((scale.training.tokens // (scale.training.batch * scale.model.sequence), value, name))
    if steps:
        most, ran, longest = max(steps)
        for planned, count, name in steps:
            if abs(count - ran * planned / most) > 1.5:  # whole steps on both sides
                raise _apart(inputs, longest, name, f"{STEPS}: {ran} and {count}, planned {most} and {planned}")


def _apart(inputs: Inputs, one: str, other: str, difference: str) -> UserError:
    return UserError(
        f"{one} and {other} at scale '{inputs.scale_name}' are of two plans and can't be compared ({difference}); "
        f"run 'make reproduce SCALE={inputs.scale_name}'"
    )
