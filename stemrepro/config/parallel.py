"""How many devices train a run together, and what each of them holds. It is no part of a run's identity."""

from typing import Literal

from pydantic import Field, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import Positive, Strict, later
from stemrepro.config.training import RunTraining
from stemrepro.model.config import ModelConfig


class Parallel(Strict):
    """The block `parallel` of a scale: `devices` processes on each of `nodes` machines train a run, one run at a time.

    Runs of other strategies are equal to rounding, not to the bit.
    """

    strategy: Literal["ddp", "fsdp", "tables"] = Field(
        description="ddp: each device holds all; fsdp: weights and optimiser are fully sharded (FSDP2); "
        "tables: the same, but tables are sharded along their width and their rows exchanged"
    )
    devices: Positive = Field(description="processes of a machine, one a device; a run has one without the block")
    nodes: Positive = later(1, description="machines; each runs the command, as a task of Slurm (docs/cluster.md)")
    table_ranks: Positive | None = Field(
        None, description="tables: ranks that share a table; all when left out, and else there are several copies"
    )
    replicate: Positive = Field(
        1,
        description="copies of the sharded weights, tables by width apart: each is held by ranks / replicate (HSDP)",
    )
    tensor: Positive = Field(
        1,
        description="devices that share each layer's heads, channels of ffn_width and columns of tables (tensor "
        "parallel); they read the same micro-batches",
    )
    param_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="type in which weights and tables' rows are gathered; shards and reductions are float32"
    )
    recompute: bool = Field(
        False, description="a block keeps its input alone, and makes its activations anew in the backward pass"
    )

    @property
    def ranks(self) -> int:
        """Processes of a run on all machines together."""
        return self.nodes * self.devices

    @property
    def sharded(self) -> bool:
        """Whether no device holds all of the model."""
        return self.strategy != "ddp"

    @property
    def ranks_per_table(self) -> int:
        """Ranks that share a table, under `tables`."""
        return self.table_ranks or self.ranks

    @property
    def _counted(self) -> str:
        return f"devices {self.devices}" + (f" x nodes {self.nodes}" if self.nodes > 1 else "")

    @property
    def readers(self) -> int:
        """Ranks, or groups of `tensor` of them, that read micro-batches of their own."""
        return self.ranks // self.tensor

    @model_validator(mode="after")
    def _divides(self) -> "Parallel":
        if self.ranks == 1:
            raise ValueError("devices 1 on one node is what a run has without the block: leave the block out")
        if self.table_ranks and self.strategy != "tables":
            raise ValueError(
                f"table_ranks {self.table_ranks} shards tables along their width; strategy 'tables' does that, "
                f"'{self.strategy}' doesn't: leave table_ranks out"
            )
        if self.ranks % self.ranks_per_table:
            raise ValueError(f"table_ranks {self.table_ranks} does not divide {self._counted}")
        if self.ranks % self.replicate or self.ranks == self.replicate:
            raise ValueError(
                f"replicate {self.replicate} must divide {self._counted} into groups of two or more; "
                "for a copy on each device use strategy 'ddp'"
            )
        if self.tensor > 1 and (self.strategy != "fsdp" or self.replicate > 1 or self.devices % self.tensor):
            raise ValueError(
                f"tensor {self.tensor} must divide devices {self.devices}, and goes with strategy 'fsdp' and "
                "replicate 1; tables are then sharded along their width, too"
            )
        for name in ("replicate", "param_dtype"):
            if not self.sharded and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} is for sharded weights, and under strategy 'ddp' each device has all: leave it out"
                )
        return self

    def check(self, who: str, model: ModelConfig, training: RunTraining, splits: bool) -> None:
        """Check that a run can be trained so.

        Args:
            who: names the run in the error.
            splits: whether devices can share the channels of its networks (stemrepro.model.specs).

        Raises:
            UserError: a size doesn't divide, or a setting needs whole tensors.
        """
        if reason := self._refusal(model, training, splits):
            raise UserError(f"{who} can't be trained under parallel (strategy '{self.strategy}'): {reason}")

    def _refusal(self, model: ModelConfig, training: RunTraining, splits: bool) -> str:
        per_pass = training.micro_batch * self.readers
        if training.batch % per_pass:
            devices = self._counted + (f" / tensor {self.tensor}" if self.tensor > 1 else "")
            return (
                f"batch {training.batch} is no multiple of micro_batch {training.micro_batch} x {devices} = {per_pass}"
            )
        if training.table_home == "host":
            return "table_home 'host' has each process train all rows; use 'device'"
        if not self.sharded:
            return ""
        if self.param_dtype == "bfloat16" and training.precision != "bf16-mixed":
            return f"param_dtype 'bfloat16' doesn't compute in precision '{training.precision}'; use 'bf16-mixed'"
        if training.table_update != "dense":
            return f"table_update '{training.table_update}' needs whole tables; use 'dense', or strategy 'ddp'"
        if training.optimizer == "muon":
            return "optimizer 'muon' needs whole matrices; use 'adamw', or strategy 'ddp'"
        if training.precision in ("16-mixed", "bf16-true"):
            return f"precision '{training.precision}' is not for sharded weights; use '32-true' or 'bf16-mixed'"
        if model.table_shared:
            return "table_shared lets layers read a table that another layer has put away; use strategy 'ddp'"
        if model.memory:
            return f"memory '{model.memory}' has tables outside of the layers; use strategy 'ddp'"
        if self.tensor > 1 and (reason := self._unsplit(model, splits)):
            return reason
        if self.strategy == "tables" and model.replaced_layers and model.ffn_width % self.ranks_per_table:
            return f"ffn_width {model.ffn_width} is no multiple of table_ranks {self.ranks_per_table}"
        return ""

    def _unsplit(self, model: ModelConfig, splits: bool) -> str:
        """Say why `tensor` devices can't share a model's layers."""
        if not splits:
            return f"the network '{model.ffn}' can't be shared by channels; leave tensor out"
        if model.pair_rows:
            return "pair_rows has a table at the input, which can't be shared by channels; leave tensor out"
        for name in ("heads", "kv_heads", "ffn_width", "vocab"):
            if getattr(model, name) % self.tensor:
                return f"{name} {getattr(model, name)} is no multiple of tensor {self.tensor}"
        return ""
