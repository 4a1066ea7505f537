"""The Lightning callback of a run: metrics rows, evaluations, table snapshots, checkpoints, progress."""

import json
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
from stemrepro.data.blocks import TokenBlocks
from stemrepro.model.ffn.base import is_table
from stemrepro.training import devices
from stemrepro.training.checkpoint import STABLE, checkpoint_path, prune
from stemrepro.training.metrics import check_finite, step_row
from stemrepro.training.module import LanguageModule
from stemrepro.training.run import Run
from stemrepro.training.schedule import branch_step, eval_steps
from stemrepro.training.validation import losses_by_source

Report = Callable[[int, float, float], None]
"""Called with (steps done, loss, tokens per second)."""


class Recorder(L.Callback):
    """The keeper of the metrics rows, which also validates, snapshots and saves.

    The rows are in the checkpoint, and the file is rewritten from it. All happens after an optimiser step in one fixed
    order: row, validation, snapshot, metrics file, checkpoint. So a checkpoint always holds what was written before it.
    """

    def __init__(
        self, run: Run, report: Report, on_eval: Callable[[int, dict[str, float]], None] | None = None
    ) -> None:
        self.run, self.report, self.on_eval = run, report, on_eval
        self.rows: list[dict[str, Any]] = []
        self.losses: list[Tensor] = []  # of this step's micro-batches so far
        self.validation: TokenBlocks | None = None
        self.evals = eval_steps(run.training)
        self.snapshots = {round(run.training.steps * share): share for share in run.training.snapshots}
        self.last_time, self.last_step = time.monotonic(), 0

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, for the checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the rows back from the checkpoint."""
        self.rows = list(state_dict["rows"])
        self.last_step = len(self.rows)

    def write_rows(self) -> None:
        """Rewrite metrics.jsonl, which has one row per optimiser step."""
        if devices.is_rank_zero():
            atomic_write(self.run.folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in self.rows))

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Let SIGTERM end each of several processes: Lightning's handler would broadcast where it finds them."""
        if trainer.world_size > 1:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Act once per optimiser step, after its last micro-batch.

        Raises:
            Diverged: the step's loss, gradient or validation is NaN or infinite, or the last step's weights are.
        """
        assert isinstance(module, LanguageModule)
        parts = trainer.accumulate_grad_batches
        self.losses.append(outputs["loss"].detach() - outputs.get("load_balancing_loss", 0.0) / parts)
        if len(self.losses) < parts:
            return
        row = step_row(trainer, module, self.losses)
        self.losses.clear()
        if row["step"] in self.evals:
            row["validation"] = self.validate(module)
        check_finite(row, module)
        self.rows.append(row)
        if "validation" in row and self.on_eval:
            self.on_eval(row["step"], row["validation"])
        self._save(trainer, module, row["step"])
        self._report(row["step"], row["loss"])

    def validate(self, module: LanguageModule) -> dict[str, float]:
        """Return the loss by source on a small, fixed part of the validation split."""
        run, training = self.run, self.run.training
        if self.validation is None:
            self.validation = TokenBlocks(run.blocks, "validation", training.sequence, run.model.vocab)
        tokens, batch = training.eval_tokens, training.eval_batch
        return losses_by_source(module.model, self.validation, tokens, batch, training.loss_tokens)

    def _save(self, trainer: L.Trainer, module: LanguageModule, step: int) -> None:
        run, training = self.run, self.run.training
        if step in self.snapshots:
            save_tables(module.model, run.folder / f"tables-{round(100 * self.snapshots[step]):03d}.safetensors")
        if training.schedule == "wsd" and step == branch_step(training):
            trainer.save_checkpoint(run.folder / STABLE)
        if run.keep_final_checkpoint and step == training.steps:
            trainer.save_checkpoint(run.end)
        if step % training.save_every == 0 and step < training.steps:
            self.write_rows()
            trainer.save_checkpoint(checkpoint_path(run.folder / "resume", step))
            if devices.is_rank_zero():
                prune(run.folder / "resume")

    def _report(self, step: int, loss: float) -> None:
        now, training = time.monotonic(), self.run.training
        if devices.is_rank_zero() and (now - self.last_time > 0.5 or step == training.steps):
            speed = (step - self.last_step) * training.batch * training.sequence / (now - self.last_time)
            self.last_time, self.last_step = now, step
            self.report(step, loss, speed)


def save_tables(model: torch.nn.Module, path: Path) -> None:
    """Write the tables in bfloat16; a model without tables writes nothing.

    At 0% of the training they follow from the seed alone.
    """
    tables = devices.gathered({name: table for name, table in model.state_dict().items() if is_table(name)})
    if tables:
        atomic_write(path, to_bytes({name: table.bfloat16() for name, table in tables.items()}))
