"""What metrics.jsonl says of a step, and when a run has diverged."""

import math
from typing import Any

import lightning as L
import torch
from torch import Tensor

from stemrepro.training import devices
from stemrepro.training.module import LanguageModule
from stemrepro.training.schedule import schedule_factor


class Diverged(Exception):
    """A loss, gradient or weight of the step `step` is NaN or infinite."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


def step_row(trainer: L.Trainer, module: LanguageModule, losses: list[Tensor]) -> dict[str, Any]:
    """Return step, tokens so far, loss, rate and gradient norm of the step that has just been made.

    Args:
        losses: of its micro-batches; Lightning has divided each by their number.
    """
    step, training = trainer.global_step, module.run.training
    norm = float(devices.unsharded(module.gradient_norm))
    if training.precision == "16-mixed" and not math.isfinite(norm):
        norm = 0.0  # the scaler of 16-bit gradients skips such a step
    both = torch.tensor([float(torch.stack(losses).sum()), norm], dtype=torch.float64, device=module.device)
    loss, norm = trainer.strategy.reduce(both).tolist()  # the mean over devices
    tokens = step * training.batch * training.sequence
    rate = training.learning_rate * schedule_factor(step - 1, training)
    return {"step": step, "tokens": tokens, "loss": loss, "rate": rate, "norm": norm}


def check_finite(row: dict[str, Any], module: LanguageModule) -> None:
    """Raise Diverged where a number of a row isn't finite, or at the last step a weight."""
    weights = module.state_dict().values() if row["step"] == module.run.training.steps else ()
    finite = [bool(devices.unsharded(weight).isfinite().all()) for weight in weights]  # in every process alike
    if not all(finite) or not all(map(math.isfinite, (row["loss"], row["norm"], *row.get("validation", {}).values()))):
        raise Diverged(row["step"])
