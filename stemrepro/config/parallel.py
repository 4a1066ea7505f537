"""How many devices train a run together, and what each of them holds. It is no part of a run's identity."""

from typing import Literal

from pydantic import Field, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import Positive, Strict
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig


class Parallel(Strict):
    """The block `parallel` of a scale: each run is trained by `devices` processes of one machine, one run at a time.

    Runs of other strategies are equal to rounding, not to the bit.
    """

    strategy: Literal["ddp", "fsdp", "tables"] = Field(
        description="ddp: each device holds all; fsdp: weights and optimiser are fully sharded (FSDP2); "
        "tables: the same, but tables are sharded along their width and their rows exchanged"
    )
    devices: int = Field(ge=2, description="processes, one a device; left out with the block, a run has one")
    table_ranks: Positive | None = Field(
        None, description="tables: devices that share a table; all when left out, and else there are several copies"
    )

    @property
    def sharded(self) -> bool:
        """Whether no device holds all of the model."""
        return self.strategy != "ddp"

    @property
    def ranks_per_table(self) -> int:
        """Devices that share a table, under `tables`."""
        return self.table_ranks or self.devices

    @model_validator(mode="after")
    def _divides(self) -> "Parallel":
        if self.table_ranks and self.strategy != "tables":
            raise ValueError(
                f"table_ranks {self.table_ranks} shards tables along their width; strategy 'tables' does that, "
                f"'{self.strategy}' doesn't: leave table_ranks out"
            )
        if self.devices % self.ranks_per_table:
            raise ValueError(f"table_ranks {self.table_ranks} does not divide devices {self.devices}")
        return self

    def check(self, who: str, model: ModelConfig, training: RunTraining) -> None:
        """Check that a run can be trained so.

        Args:
            who: names the run in the error.

        Raises:
            UserError: a size doesn't divide, or a setting needs whole tensors.
        """
        if reason := self._refusal(model, training):
            raise UserError(f"{who} can't be trained under parallel (strategy '{self.strategy}'): {reason}")

    def _refusal(self, model: ModelConfig, training: RunTraining) -> str:
        per_pass = training.micro_batch * self.devices
        if training.batch % per_pass:
            return (
                f"batch {training.batch} is no multiple of micro_batch {training.micro_batch} x "
                f"devices {self.devices} = {per_pass}"
            )
        if training.table_home == "host":
            return "table_home 'host' has each process train all rows; use 'device'"
        if not self.sharded:
            return ""
        if training.table_update != "dense":
            return f"table_update '{training.table_update}' needs whole tables; use 'dense', or strategy 'ddp'"
        if training.optimizer == "muon":
            return "optimizer 'muon' needs whole matrices; use 'adamw', or strategy 'ddp'"
        if training.precision in ("16-mixed", "bf16-true"):
            return f"precision '{training.precision}' is not for sharded weights; use '32-true' or 'bf16-mixed'"
        if training.compile:
            return "compile compiles the model as a whole; set compile to false, or use strategy 'ddp'"
        if model.table_shared:
            return "table_shared lets layers read a table that another layer has put away; use strategy 'ddp'"
        if self.strategy == "tables" and model.replaced_layers and model.ffn_width % self.ranks_per_table:
            return f"ffn_width {model.ffn_width} is no multiple of table_ranks {self.ranks_per_table}"
        return ""
