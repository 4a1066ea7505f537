"""The LightningModule: next-token loss, optimiser, gradient clipping, batches."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from stemrepro.common.errors import UserError
from stemrepro.data.blocks import TokenBlocks
from stemrepro.model.ffn.base import is_table, table_parameters
from stemrepro.model.transformer import Decoder, build
from stemrepro.training import devices
from stemrepro.training.compiling import compiled
from stemrepro.training.optimizers import carry, make_optimizer, state_by_name
from stemrepro.training.run import Run
from stemrepro.training.schedule import schedule_factor
from stemrepro.training.table_adamw import clip, sparse_gradients

MOST_EPOCHS = 4
"""Up to so many, repeated text teaches nearly as much as new text (Muennighoff et al. 2023).

Beyond them arms differ in what they memorise.
"""


def mean_loss(model: Decoder, batch: Tensor, at_once: int | None = None) -> Tensor:
    """Return the mean loss in nats per token: batch [micro_batch, sequence + 1] -> scalar.

    With `at_once`, the logits of so many tokens are in memory at a time.
    """
    return model.losses(batch[:, :-1], batch[:, 1:], at_once).mean()


class Batches(IterableDataset[Tensor]):
    """The micro-batches `start`, start + every, start + 2 every, ... of a seed.

    It has no length: with one, Lightning would count from zero after a resume.
    """

    def __init__(self, text: TokenBlocks, seed: int, size: int, start: int, every: int = 1) -> None:
        self.text, self.seed, self.size, self.start, self.every = text, seed, size, start, every

    def __iter__(self) -> Iterator[Tensor]:
        """Yield int64 [size, sequence + 1]."""
        k = self.start
        while True:
            yield self.text.batch(self.seed, k, self.size)
            k += self.every


def epochs(run: Run, text: TokenBlocks) -> float:
    """Return how many times a run passes over its training text, with the run that it resumes from.

    UserError: more than 4 times.
    """
    planned = run.training.tokens + (run.init_from.tokens if run.init_from else 0)
    available = text.count * text.length
    if planned > MOST_EPOCHS * available:
        raise UserError(
            f"{run}: {planned:,} training tokens are {planned / available:.1f} passes over the {available:,} tokens of "
            f"{text.path}, and more than {MOST_EPOCHS} are refused; plan {MOST_EPOCHS * available:,} tokens or fewer "
            "for it (training.tokens of its scale, times tokens of its variant), or take a larger mix of "
            "recipes/mixes.yaml"
        )
    return planned / available


class LanguageModule(L.LightningModule):
    """One run's model and optimiser."""

    def __init__(self, run: Run, compile: bool = False) -> None:
        super().__init__()
        self.run, self.compiles = run, compile
        self.sharded = run.parallel is not None and run.parallel.strategy == "fsdp"
        # Compiled by torch 2.13, sparse gradients of a model's tables come out wrong.
        compiles_model = compile and run.training.table_update != "touched" and not self.sharded
        self.mean_loss = compiled(mean_loss) if compiles_model else mean_loss
        self.model = build(run.model, run.seed)
        for table in table_parameters(self.model).values():
            table.requires_grad_(run.training.table_trained)
        if run.training.table_update == "touched":
            sparse_gradients(self.model)
        self.text = TokenBlocks(run.blocks, "train", run.training.sequence, run.model.vocab)
        counts = cache(self.token_counts)
        for ffn in self.model.ffns:
            ffn.start_run(counts)
        self.first_batch = run.init_from.batches if run.init_from else 0
        self.carried: dict[str, dict[str, Tensor]] = {}
        self.gradient_norm = torch.zeros(())

    def token_counts(self) -> Tensor:
        """Count each token of the training text, int64 [vocab]."""
        return torch.from_numpy(self.text.frequencies(self.run.model.vocab))

    def configure_model(self) -> None:
        """Shard the model where several devices share it."""
        if self.sharded:
            assert self.device_mesh is not None, "Lightning gives FSDP2 a mesh"
            devices.shard(self.model, self.device_mesh["data_parallel"], self.compiles)

    def take_over(self, checkpoint: dict[str, Any]) -> None:
        """Begin with the weights and the optimiser's state of another run's end; the schedule begins anew.

        With `tables: anew` tables stay as they were drawn, and the optimiser has no state of them.

        Args:
            checkpoint: what `beginning` gives.
        """
        kept = {name.removeprefix("model."): value for name, value in checkpoint["state_dict"].items()}
        states = state_by_name(checkpoint["optimizer_states"][0])
        if self.run.init_from and self.run.init_from.tables == "anew":
            kept = {name: value for name, value in kept.items() if not is_table(name)} | table_parameters(self.model)
            states = {name: state for name, state in states.items() if not is_table(name)}
        self.model.load_state_dict(kept)
        self.carried = states

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        """Tell every FFN that a micro-batch begins; the random stream is named by seed, step and layer."""
        for layer, ffn in enumerate(self.model.ffns):
            ffn.start_step(f"{self.run.seed}:{self.global_step}:{layer}")

    def training_step(self, batch: Tensor, _: int) -> Tensor | dict[str, Any]:
        """Return the mean loss in nats per token of a batch [micro_batch, sequence + 1].

        With a learned router it is {"loss": that and the load-balancing loss, "load_balancing_loss": the latter alone}.
        """
        loss = self.mean_loss(self.model, batch, self.run.training.loss_tokens)
        found = [ffn.load_balancing_loss for ffn in self.model.ffns if ffn.load_balancing_loss is not None]
        if not found:
            return loss
        weight = self.model.ffns[self.run.model.replaced_layers[0]].load_balancing_weight  # the same in all of them
        load_balancing_loss = weight * torch.stack(found).sum()
        return {"loss": loss + load_balancing_loss, "load_balancing_loss": load_balancing_loss.detach()}

    def configure_optimizers(self) -> Any:  # one of Lightning's forms
        """Make the optimiser, with the state that is carried over, and the schedule of its learning rates."""
        training = self.run.training
        optimizer = make_optimizer(self.model, training, self.compiles)
        carry(self.carried, optimizer)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule_factor(step, training))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip tables and all else separately, each to the same norm (official code); rows log the norm of all else."""
        training = self.run.training
        others = [parameter for name, parameter in self.model.named_parameters() if not is_table(name)]
        self.gradient_norm = torch.nn.utils.clip_grad_norm_(others, training.clip).detach()
        clip_tables = clip if training.table_update == "touched" else torch.nn.utils.clip_grad_norm_
        clip_tables(list(table_parameters(self.model).values()), training.clip)

    def train_dataloader(self) -> DataLoader[Tensor]:
        """Return the micro-batches from where the run is, dealt out to devices in turn; one epoch is the whole run."""
        start, size = self.first_batch + self.global_rank, self.run.training.micro_batch
        batches = Batches(self.text, self.run.seed, size, start, self.run.devices)
        # A loader draws a seed when it starts. From the global generator, a resume would shift the random state.
        return DataLoader(batches, batch_size=None, generator=torch.Generator())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the random state and what the checkpoint belongs to."""
        checkpoint["rng_state"] = torch.get_rng_state()
        checkpoint["run_config"], checkpoint["stable_phase"] = self.run.config, self.run.stable_phase

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the random state and the place in the data, also where other devices counted other micro-batches."""
        torch.set_rng_state(checkpoint["rng_state"])
        training, passed = self.run.training, checkpoint["global_step"] * self.trainer.accumulate_grad_batches
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counts in (progress["total"], progress["current"]):
            counts |= {key: count + passed - counts["ready"] for key, count in counts.items()}
        before = self.run.init_from.batches if self.run.init_from else 0
        self.first_batch = before + checkpoint["global_step"] * (training.batch // training.micro_batch)
