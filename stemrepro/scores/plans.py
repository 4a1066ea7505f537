"""Of which plan scores are: the text, the budget and the settings that all arms at a point share, as far as their files tell.

Arms differ in model and learning rate, at points of own rates also in their start. Scores that were made before plans were written tell
of text and steps alone.
"""

from pathlib import Path

from stemrepro.scores.reading import Array, read_npz, read_summary

MODEL = ("vocab", "width", "layers", "heads", "kv_heads", "rope_base", "norm_eps", "document_mask")
TRAINING = ("schedule", "warmup_tokens", "cooldown", "final_rate", "betas", "eps", "weight_decay", "clip", "precision")
STARTS = ("warmup", "embedding_rate_factor", "embedding_decay_factor")
"""Fields of a run that all arms at a point share, but for STARTS at own rates. How often a run is saved or looked at is none of them."""
TEXT, STEPS, START, SCORING = "text", "steps of training", "start of the embeddings", "settings of scoring"


def plan(folder: Path) -> dict:
    """What the scores of an arm tell of their plan; UserError where they are damaged."""
    summary, steps = read_summary(folder / "summary.json"), folder / "steps.npz"
    found = {TEXT: summary["data_hash"], **summary.get("plan", {})}
    if steps.exists():
        found[STEPS] = read_npz(steps, {"loss": Array("numbers", "seeds steps", gaps=True)})["loss"].shape[1]
    if "unigram_nats_per_token" in summary:
        found["loss of token frequencies in the validation text"] = summary["unigram_nats_per_token"]
    return found


def other_plan(first: Path, second: Path) -> bool:
    """Are the scores of two arms at a point of two plans, but for their start?"""
    one, other = plan(first), plan(second)
    return any(one[what] != other[what] for what in one.keys() & other.keys() - {START})
