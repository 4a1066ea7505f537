"""Training with tables in host memory: rows come to the device, gradients go back, and the host updates the rows.

The token ids of a step are known before it begins. The rows of the next step that this one doesn't touch are brought
while this one computes. Those that it touches are brought after its update. So each row is moved once, and none is
stale.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.common.errors import UserError
from stemrepro.offload.link import Link, link_to
from stemrepro.offload.offload import table_owners
from stemrepro.training.module import LanguageModule
from stemrepro.training.run import Run
from stemrepro.training.schedule import schedule_factor
from stemrepro.training.touched import new_moments, row_update


class HostRows(nn.Module):
    """A module in a table's place: forward(tokens [batch, seq]) -> [batch, seq, width] on the model's device.

    Attributes:
        weight: the table [vocab, width] in host memory; saved under the table's name, and never moved.
        staged: the step's rows [rows, width] on the device, a leaf that gradients reach; None between steps.
        places: the row of `staged` that a token id has [vocab], on the device; shared by all tables of a model.
    """

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", table)
        self.staged: Tensor | None = None
        self.places: Tensor | None = None

    def _apply(self, fn: object, recurse: bool = True) -> "HostRows":
        """Leave the table where it is when the model moves to a device or to another precision."""
        return self

    def forward(self, tokens: Tensor) -> Tensor:
        """Return U[token]; without gradients (validation) rows of any tokens, straight from the host."""
        if not torch.is_grad_enabled():
            return F.embedding(tokens.cpu(), self.weight).to(tokens.device)
        return F.embedding(self.places[tokens], self.staged)


class HostTables:
    """A model's tables in host memory, trained by the update of TouchedAdamW on the rows of each step.

    Attributes:
        returned: bytes of gradients that went back to the host so far; `link.moved` has those of rows that came.
    """

    def __init__(
        self, tables: list[HostRows], link: Link, betas: tuple[float, float], eps: float, compile: bool = False
    ) -> None:
        self.tables, self.link, self.returned, self.move = tables, link, 0, row_update(compile)
        self.vocab = len(tables[0].weight)
        self.moments = [new_moments(table.weight) for table in tables]
        self.settings = {"betas": betas, "eps": eps}
        self.ids: Tensor | None = None
        self.early: Tensor | None = None
        """Rows of the next step that are on their way."""
        self.buffers = [[link.buffer(0, table.weight) for table in tables] for _ in range(2)]

    def _fill(self, half: int, ids: Tensor) -> None:
        """Begin to bring rows of all tables into one of the two sets of buffers."""
        for place, table in enumerate(self.tables):
            if len(self.buffers[half][place].rows) < len(ids):
                self.buffers[half][place] = self.link.buffer(len(ids), table.weight)
            self.link.fill(self.buffers[half][place], table.weight, ids)

    def prefetch(self, tokens: Tensor) -> None:
        """Begin to bring the rows of the next step's tokens [any shape] that the present step leaves as they are."""
        ids = torch.unique(tokens.cpu())
        self.early = ids[~torch.isin(ids, self.ids)]
        self._fill(0, self.early)

    def stage(self, tokens: Tensor) -> None:
        """Begin a step over tokens [any shape]: bring what is missing of its rows, and make leaves of them.

        Raises:
            ValueError: rows were brought ahead for other tokens.
        """
        ids = torch.unique(tokens.cpu())
        early = ids[:0] if self.early is None else self.early
        if not torch.isin(early, ids).all():
            raise ValueError("the rows that were brought ahead are not those of this step's tokens")
        late = ids[~torch.isin(ids, early)]
        self._fill(1, late)
        # In the order of ids whatever came early, or a resumed run would add up its norm in another order.
        order = torch.argsort(torch.cat([early, late])).to(self.link.device)
        self.ids, self.early = ids, None
        places = torch.full((self.vocab,), -1)
        places[ids] = torch.arange(len(ids))
        places = places.to(self.link.device)
        for place, table in enumerate(self.tables):
            halves = [self.buffers[half][place] for half in range(2)]
            for buffer in halves:
                self.link.wait(buffer)
            parts = [buffer.rows[: len(part)] for buffer, part in zip(halves, (early, late), strict=True)]
            table.staged, table.places = torch.cat(parts)[order].requires_grad_(), places
            for buffer in halves:
                self.link.release(buffer)

    def leaves(self) -> list[Tensor]:
        """Return the staged rows of all tables."""
        return [table.staged for table in self.tables]

    @torch.no_grad()
    def update(self, rate: float, decay: float) -> None:
        """Bring the gradients of the step's rows to the host, update as TouchedAdamW does, and end the step."""
        group = self.settings | {"lr": rate, "weight_decay": decay}
        gradients = self.link.back([table.staged.grad for table in self.tables])
        for table, moments, gradient in zip(self.tables, self.moments, gradients, strict=True):
            self.returned += gradient.numel() * gradient.element_size()
            self.move(table.weight, moments, self.ids, gradient, group)
            table.staged = None


class HostModule(LanguageModule):
    """LanguageModule with tables in host memory: the same steps as with `table_update: touched` on the device."""

    def __init__(self, run: Run, compile: bool = False) -> None:
        """Build the model and put its tables into host memory.

        Raises:
            UserError: settings that host tables don't have.
        """
        training = run.training
        if training.table_update != "touched" or not training.table_trained:
            raise UserError(
                f"{run}: table_home 'host' trains the rows that a batch touches: it needs table_update 'touched' "
                f"(not '{training.table_update}') and trained tables"
            )
        if run.init_from or training.precision in ("16-mixed", "bf16-true"):
            raise UserError(
                f"{run}: table_home 'host' can't resume from another run, nor train in 16-mixed or bf16-true; "
                "use 'device'"
            )
        super().__init__(run, compile)
        owners = table_owners(self.model)
        for owner in owners:
            owner.table = HostRows(owner.table.weight.detach())
        self.host = [owner.table for owner in owners]
        self.tables: HostTables | None = None
        self.moments: list[dict] | None = None

    def _tokens(self, step: int) -> Tensor:
        """Return the input tokens of all micro-batches of an optimiser step."""
        training = self.run.training
        parts = training.batch // training.micro_batch
        batches = [
            self.blocks.batch(self.run.seed, k, training.micro_batch) for k in range(step * parts, (step + 1) * parts)
        ]
        return torch.cat(batches)[:, :-1]

    def on_fit_start(self) -> None:
        """Make the tables' link, which needs the device."""
        training, device = self.run.training, self.model.embedding.weight.device
        if device.type == "cuda":
            for table in self.host:
                table.weight = table.weight.pin_memory()
        self.tables = HostTables(self.host, link_to(device), training.betas, training.eps, self.compiles)
        if self.moments is not None:
            self.tables.moments = self.moments

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        """Stage a step's rows with its first micro-batch, and begin to bring those of the next step."""
        super().on_train_batch_start(batch, batch_idx)
        if self.host[0].staged is None:
            self.tables.stage(self._tokens(self.global_step))
            if self.global_step + 1 < self.run.training.steps:
                self.tables.prefetch(self._tokens(self.global_step + 1))

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, **more: object) -> None:
        """Clip tables by the norm of their staged rows: other rows have no gradient."""
        super().configure_gradient_clipping(optimizer, **more)
        torch.nn.utils.clip_grad_norm_(self.tables.leaves(), self.run.training.clip)

    def optimizer_step(self, *args: object, **more: object) -> None:
        """Update the backbone, then the tables."""
        training, factor = self.run.training, schedule_factor(self.global_step, self.run.training)
        super().optimizer_step(*args, **more)
        self.tables.update(
            training.learning_rate * training.table_rate_factor * factor,
            training.weight_decay * training.table_decay_factor,
        )

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        """Add the rows' moments: without them a resumed run would begin them anew (as the official code does)."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["table_moments"] = self.tables.moments

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        """Restore the rows' moments."""
        super().on_load_checkpoint(checkpoint)
        self.moments = checkpoint["table_moments"]
