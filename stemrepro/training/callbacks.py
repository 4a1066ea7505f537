"""The Lightning callback of a run: metrics rows, evaluations, table snapshots, checkpoints, progress."""

import json
import math
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from stemrepro.common.files import atomic_write
from stemrepro.model.ffn.base import is_table
from stemrepro.training import devices
from stemrepro.training.checkpoint import STABLE, checkpoint_path, prune
from stemrepro.training.module import LanguageModule
from stemrepro.training.run import Run
from stemrepro.training.schedule import branch_step, eval_steps, schedule_factor
from stemrepro.training.validation import validation_losses

Report = Callable[[int, float, float], None]
"""Called with (steps done, loss, tokens per second)."""


class Diverged(Exception):
    """A loss or weight of the step `step` is NaN or infinite, or the gradient of what is no table."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


def step_row(trainer: L.Trainer, module: LanguageModule, losses: list[Tensor]) -> dict[str, Any]:
    """Return step, tokens so far, loss, rate and gradient norm (without tables) of the step that has just been made.

    The losses are its micro-batches'; Lightning has divided each by their number.
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


class Recorder(L.Callback):
    """The keeper of the metrics rows, which also validates, snapshots and saves.

    The rows are in the checkpoint, and the file is rewritten from it. All happens after an optimiser step in one fixed
    order: row, validation, metrics file, snapshot, checkpoint. So a checkpoint always holds what was written before it.
    """

    def __init__(
        self, run: Run, report: Report, on_eval: Callable[[int, dict[str, float]], None] | None = None
    ) -> None:
        self.run, self.report, self.on_eval = run, report, on_eval
        self.rows: list[dict[str, Any]] = []
        self.losses: list[Tensor] = []  # of this step's micro-batches so far
        self.evals = eval_steps(run.training)
        self.last_time, self.last_step = time.monotonic(), 0

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, for the checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the rows back from the checkpoint."""
        self.rows, self.last_step = list(state_dict["rows"]), len(state_dict["rows"])

    def write_rows(self) -> None:
        """Rewrite metrics.jsonl, which has one row per optimiser step."""
        if devices.is_rank_zero():
            atomic_write(self.run.folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in self.rows))

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Let SIGTERM end each of several processes: Lightning's handler would broadcast where it finds them."""
        if trainer.world_size > 1:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_train_batch_end(self, trainer: L.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Act once per optimiser step, after its last micro-batch; Diverged: see `check_finite`."""
        parts = trainer.accumulate_grad_batches
        # Lightning makes a mapping of a bare loss, and has divided "loss" alone by the number of micro-batches.
        self.losses.append(outputs["loss"].detach() - outputs.get("load_balancing_loss", 0.0) / parts)
        if len(self.losses) < parts:
            return
        row = step_row(trainer, module, self.losses)
        step, training = row["step"], self.run.training
        self.losses.clear()
        if step in self.evals:
            row["validation"] = validation_losses(self.run, module.model)
        check_finite(row, module)
        self.rows.append(row)
        if step in self.evals and self.on_eval:
            self.on_eval(step, row["validation"])
        if step % training.save_every == 0:
            self.write_rows()
        save(trainer, self.run, module.model, step)
        now = time.monotonic()
        if devices.is_rank_zero() and (now - self.last_time > 0.5 or step == training.steps):
            speed = (step - self.last_step) * training.batch * training.sequence / (now - self.last_time)
            self.last_time, self.last_step = now, step
            self.report(step, row["loss"], speed)


def save(trainer: L.Trainer, run: Run, model: torch.nn.Module, step: int) -> None:
    """Write the table snapshot and the checkpoints that are due after a step."""
    training = run.training
    snapshots = {round(training.steps * share): round(100 * share) for share in training.snapshots}
    if step in snapshots:
        save_tables(model, run.folder / f"tables-{snapshots[step]:03d}.safetensors")
    if training.schedule == "wsd" and step == branch_step(training):
        trainer.save_checkpoint(run.folder / STABLE)
    if run.keep_final_checkpoint and step == training.steps:
        trainer.save_checkpoint(run.end)
    if step % training.save_every == 0 and step < training.steps:
        trainer.save_checkpoint(checkpoint_path(run.folder / "resume", step))
        if devices.is_rank_zero():
            prune(run.folder / "resume")


def save_tables(model: torch.nn.Module, path: Path) -> None:
    """Write the tables in bfloat16; a model without tables writes nothing.

    At 0% of the training they follow from the seed alone.
    """
    tables = devices.gathered({name: table for name, table in model.state_dict().items() if is_table(name)})
    if tables:
        atomic_write(path, to_bytes({name: table.bfloat16() for name, table in tables.items()}))
