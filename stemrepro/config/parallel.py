"""How many devices train a run together, and what each of them holds. It is no part of a run's identity."""

from typing import Literal

from pydantic import Field, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import Positive, Strict, later
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig


class Parallel(Strict):
    """The block `parallel` of a scale: `devices` processes on each of `nodes` machines train a run, one run at a time.

    torchrun or srun starts them. Runs of other strategies are equal to rounding, not to the bit.
    """

    strategy: Literal["ddp", "fsdp"] = Field(description="ddp: each device holds all; fsdp: all is sharded (FSDP2)")
    devices: Positive = Field(description="processes of a machine, one a device; a run has one without the block")
    nodes: Positive = later(1, description="machines (docs/cluster.md)")

    @property
    def ranks(self) -> int:
        """Processes of a run on all machines together."""
        return self.nodes * self.devices

    @model_validator(mode="after")
    def _several(self) -> "Parallel":
        if self.ranks == 1:
            raise ValueError("devices 1 on one node is what a run has without the block: leave the block out")
        return self

    def check(self, who: str, model: ModelConfig, training: RunTraining) -> None:
        """Raise UserError, which begins with `who`, where a batch doesn't divide or a setting needs whole tensors."""
        size, reasons = training.micro_batch, []
        if training.batch % (size * self.ranks):
            all_of = f"devices {self.devices}" + (f" x nodes {self.nodes}" if self.nodes > 1 else "")
            reasons = [f"batch {training.batch} is no multiple of micro_batch {size} x {all_of} = {size * self.ranks}"]
        elif self.strategy == "fsdp":
            needs_whole = {
                f"table_update '{training.table_update}' needs whole tables": training.table_update != "dense",
                f"precision '{training.precision}' needs full weights": training.precision in ("16-mixed", "bf16-true"),
                "table_shared lets layers read a table that another layer has put away": model.table_shared,
                f"memory '{model.memory}' has tables outside of the layers": model.memory,
            }
            reasons += [f"{reason}; use strategy 'ddp'" for reason, holds in needs_whole.items() if holds]
        if reasons:
            raise UserError(f"{who} can't be trained under parallel (strategy '{self.strategy}'): {reasons[0]}")
