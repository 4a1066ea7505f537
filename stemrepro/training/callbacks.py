"""The Lightning callback of a run: metrics rows, evaluations, table snapshots, checkpoints, progress."""

import json
import math
import signal
import time
from collections.abc import Callable
from pathlib import Path

import lightning as L
import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from stemrepro.common.files import atomic_write
from stemrepro.common.sums import total
from stemrepro.data.blocks import TokenBlocks
from stemrepro.model.ffn.base import is_table
from stemrepro.training import devices
from stemrepro.training.checkpoint import STABLE, checkpoint_path, prune
from stemrepro.training.module import LanguageModule
from stemrepro.training.run import Run
from stemrepro.training.schedule import branch_step, eval_steps, schedule_factor

Report = Callable[[int, float, float], None]
"""Called with (steps done, loss, tokens per second)."""


class Diverged(Exception):
    """A loss, gradient or weight of the step `step` is NaN or infinite."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


def losses_by_source(
    model: torch.nn.Module, blocks: TokenBlocks, tokens: int, batch: int, at_once: int | None = None
) -> dict[str, float]:
    """Return the mean loss in nats per token of each source, over `tokens` evenly spread tokens per source.

    `at_once` is that of Decoder.losses.
    """
    numbers, documents = blocks.spread(tokens)
    sources = [document[1] for document in blocks.about["documents"]]
    device = next(model.parameters()).device
    found: list[Tensor] = []
    with torch.no_grad():
        for begin in range(0, len(numbers), batch):
            rows = blocks.at(numbers[begin : begin + batch]).to(device)
            found.append(model.losses(rows[:, :-1], rows[:, 1:], at_once).double().mean(dim=1))
    sums: dict[str, list[float]] = {}
    for loss, document in zip(torch.cat(found).tolist(), documents[:, 0], strict=True):
        sums.setdefault(sources[document], []).append(loss)
    return {source: total(values) / len(values) for source, values in sums.items()}


class Recorder(L.Callback):
    """The keeper of the metrics rows, which also validates, snapshots and saves.

    The rows are in the checkpoint, and the file is rewritten from it. All happens after an optimiser step in one fixed
    order: row, validation, snapshot, metrics file, checkpoint. So a checkpoint always holds what was written before it.
    """

    def __init__(self, run: Run, report: Report, on_eval: Callable[[int, dict], None] | None = None) -> None:
        self.run, self.report, self.on_eval = run, report, on_eval
        self.rows: list[dict] = []
        self.losses: list[Tensor] = []
        self.validation: TokenBlocks | None = None
        steps, training = run.training.steps, run.training
        self.evals = eval_steps(training)
        self.snapshots = {round(steps * share): share for share in training.snapshots}
        self.last_time, self.last_step = time.monotonic(), 0

    def state_dict(self) -> dict:
        """Return the rows, for the checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict) -> None:
        """Take the rows back from the checkpoint."""
        self.rows = list(state_dict["rows"])
        self.last_step = len(self.rows)

    def write_rows(self) -> None:
        """Rewrite metrics.jsonl, which has one row per optimiser step."""
        if devices.first():
            atomic_write(self.run.folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in self.rows))

    def on_train_start(self, trainer: L.Trainer, module: LanguageModule) -> None:
        """Let SIGTERM end each of several processes: Lightning's handler would broadcast where it finds them."""
        if trainer.world_size > 1:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: LanguageModule, outputs: dict, batch: Tensor, batch_idx: int
    ) -> None:
        """Act once per optimiser step, after its last micro-batch.

        Raises:
            Diverged: the step's loss, gradient or validation is NaN or infinite, or the last step's weights are.
        """
        step, training = trainer.global_step, self.run.training
        parts = training.batch // (training.micro_batch * self.run.devices)
        self.losses.append(outputs["loss"].detach() - outputs.get("load_balancing_loss", 0.0) / parts)
        if len(self.losses) < parts:
            return
        loss = float(torch.stack(self.losses).sum())  # Lightning has divided each by the number accumulated
        self.losses.clear()
        rate = training.learning_rate * schedule_factor(step - 1, training)
        tokens = step * training.batch * training.sequence
        norm = float(devices.whole(module.gradient_norm))
        if training.precision == "16-mixed" and not math.isfinite(norm):
            norm = 0.0  # the scaler of 16-bit gradients skips such a step
        weights = module.state_dict().values() if step == training.steps else ()
        finite = all(devices.whole(weight).isfinite().all() for weight in weights)
        both = torch.tensor([loss, norm], dtype=torch.float64, device=module.device)
        loss, norm = trainer.strategy.reduce(both).tolist()  # the mean over devices
        row = {"step": step, "tokens": tokens, "loss": loss, "rate": rate, "norm": norm}
        if step in self.evals:
            row["validation"] = self.validate(module)
        numbers = (row["loss"], row["norm"], *row.get("validation", {}).values())
        if not finite or not all(map(math.isfinite, numbers)):
            raise Diverged(step)
        self.rows.append(row)
        if step in self.evals and self.on_eval:
            self.on_eval(step, row["validation"])
        if step in self.snapshots:
            save_tables(module.model, self.run.folder / f"tables-{round(100 * self.snapshots[step]):03d}.safetensors")
        if training.schedule == "wsd" and step == branch_step(training):
            trainer.save_checkpoint(self.run.folder / STABLE)
        if self.run.keep_final_checkpoint and step == training.steps:
            trainer.save_checkpoint(self.run.end)
        if step % training.save_every == 0 and step < training.steps:
            self.write_rows()
            trainer.save_checkpoint(checkpoint_path(self.run.folder / "resume", step))
            if devices.first():
                prune(self.run.folder / "resume")
        now = time.monotonic()
        if devices.first() and (now - self.last_time > 0.5 or step == training.steps):
            speed = (step - self.last_step) * training.batch * training.sequence / (now - self.last_time)
            self.last_time, self.last_step = now, step
            self.report(step, loss, speed)

    def validate(self, module: LanguageModule) -> dict[str, float]:
        """Return the loss by source on a small, fixed part of the validation split."""
        run, training = self.run, self.run.training
        if self.validation is None:
            self.validation = TokenBlocks(run.blocks, "validation", training.sequence, run.model.vocab)
        tokens, batch = training.eval_tokens, training.eval_batch
        return losses_by_source(module.model, self.validation, tokens, batch, training.loss_tokens)


def save_tables(model: torch.nn.Module, path: Path) -> None:
    """Write the tables in bfloat16; a model without tables writes nothing.

    At 0% of the training they follow from the seed alone.
    """
    tables = devices.gathered({name: table for name, table in model.state_dict().items() if is_table(name)})
    if tables:
        atomic_write(path, to_bytes({name: table.bfloat16() for name, table in tables.items()}))
