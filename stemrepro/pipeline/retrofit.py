"""One trained dense run made into STEM, next to two controls.

Losses are taken before the retrofit, right after it, and after some training. All three runs train with the same text,
learning rate and schedule, and with a fresh optimiser: only the weights of the dense run are needed.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.common.progress import track
from stemrepro.common.sums import total
from stemrepro.config.address import Address
from stemrepro.config.retrofit import check
from stemrepro.config.sources import prose
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.vocabularies import own_text
from stemrepro.evaluation.weights import load_folder
from stemrepro.model.config import ModelConfig, layers_of
from stemrepro.model.transformer import Decoder
from stemrepro.pipeline.runs import train_runs
from stemrepro.training.callbacks import losses_by_source
from stemrepro.training.checkpoint import AtomicCheckpointIO, intact
from stemrepro.training.explained import explained
from stemrepro.training.retrofit import PREFIX, beginning
from stemrepro.training.run import InitFrom, Run
from stemrepro.training.run_folder import read_config

VALIDATION = 16384
"""Tokens per source over which losses are taken, or all that the source has."""
BEFORE, AFTER, CONTROL = "before", "retrofit", "retrofit-mean-row"
"""Variants in the folders below OUT: the dense weights, runs that resume from them, and the control."""
FILE, SHARES = "losses.csv", "explained.csv"


@dataclass(frozen=True)
class Asked:
    """What to make of a dense run.

    Attributes:
        placement: the layers that get tables, as in recipes/arms.yaml.
        tokens: number of tokens of the run's training text that rows are made of; at most those of its training.
        steps: of training after the retrofit.
    """

    placement: str
    tokens: int
    steps: int


def _beginning(folder: Path, model: Decoder, config: dict) -> None:
    """Write what the three runs resume from: weights, and a fresh optimiser."""
    if intact(folder / "end.ckpt"):
        return
    state = {PREFIX + name: value for name, value in model.state_dict().items()}
    about = {"state_dict": state, "optimizer_states": [{"state": {}, "param_groups": []}], "run_config": config}
    AtomicCheckpointIO().save_checkpoint(about, folder / "end.ckpt")


def planned(run: Path, out: Path, settings: Asked, data: Path) -> dict[str, Run]:
    """Return the runs of a retrofit by name, and write what they resume from.

    Raises:
        UserError: the run isn't a finished dense one, its text is missing, too many tokens are requested, or `out`
            holds other runs.
    """
    parts = run.resolve().parts
    config = read_config(run)
    dense, before = config.model, config.training
    if len(parts) < 5:
        raise UserError(f"{run} is no folder of a run: runs/<scale>/<variant>/<arm>/seed<k>")
    if config.init_from:
        raise UserError(
            f"{run} resumes from another run, whose tokens are not recorded; choose a run that was trained from scratch"
        )
    stem = replace(dense, ffn="stem", replaced_layers=layers_of(settings.placement, dense.layers))
    check(dense, stem)
    model, sequence = load_folder(run)
    if not sequence <= settings.tokens <= before.tokens:
        raise UserError(
            f"{settings.tokens:,} tokens for rows: {run} was trained on {before.tokens:,} in sequences of {sequence}; "
            "ask for as many as those at most, and one sequence at least"
        )
    text = own_text(dense.vocab, data / parts[-4])
    if text.data_hash != config.data.train_sha256:
        raise UserError(f"{text.blocks} isn't the text that {run} was trained on; restore that, or train the run again")
    training = before.model_copy(
        update={"tokens": settings.steps * before.batch * sequence, "evals": 1, "snapshots": (), "table_trained": True}
    )
    home, seed = out / parts[-4], config.seed
    parent = home / BEFORE / config.arm / f"seed{seed}"
    _beginning(parent, model, config.written)

    def made(variant: str, arm: str, network: ModelConfig, tables: str) -> Run:
        init_from = InitFrom(
            parent, config.hash, tables, before.tokens, before.tokens // (before.micro_batch * sequence),
            0 if tables == "kept" else settings.tokens,
        )  # fmt: skip
        place = Address(variant, arm)
        mix, folder = config.data.mix, home / place.path / f"seed{seed}"
        run = Run(place, seed, network, training, folder, mix, text.blocks, text.data_hash, init_from=init_from)
        changes = run.other_settings() if folder.exists() else ""
        if changes:
            raise UserError(f"{folder} holds a run with other settings ({changes}); name another folder to write to")
        return run

    return {
        "dense": made(AFTER, config.arm, dense, "kept"),
        "token means": made(AFTER, f"stem-{settings.placement}", stem, "token-means"),
        "mean row": made(CONTROL, f"stem-{settings.placement}", stem, "mean-row"),
    }


def _losses(run: Run, state: dict[str, Tensor]) -> dict[str, float]:
    """Return the mean validation losses of weights over sources, in nats per token."""
    model = Decoder(run.model).eval()
    model.load_state_dict(state)
    blocks = TokenBlocks(run.blocks, "validation", run.training.sequence, run.model.vocab)
    losses = losses_by_source(model, blocks, VALIDATION, run.training.eval_batch)
    kinds = {"prose": prose(losses), "all": tuple(losses)}
    return {kind: total(losses[source] for source in sources) / len(sources) for kind, sources in kinds.items()}


def _started(run: Run) -> dict[str, Tensor]:
    """Return the weights with which a run begins."""
    blocks = TokenBlocks(run.blocks, "train", run.training.sequence, run.model.vocab)
    return {name.removeprefix(PREFIX): value for name, value in beginning(run, blocks)["state_dict"].items()}


def _ended(run: Run) -> dict[str, Tensor]:
    """Return the weights with which a run ended.

    Raises:
        UserError: the run diverged.
    """
    if run.diverged is not None:
        raise UserError(
            f"{run.folder}: the loss is NaN from step {run.diverged} on; the run's learning rate is too high for it"
        )
    return load_folder(run.folder)[0].state_dict()


def _rows(states: dict[str, dict[str, Tensor]], runs: dict[str, Run], steps: int) -> Iterator[dict]:
    """Yield the losses of all runs' weights, that many steps after the retrofit."""
    when = f"after {steps} steps" if steps else "right after the retrofit"
    for name in track(runs, f"losses {when}"):
        yield {"model": name, "steps": steps} | _losses(runs[name], states[name])


def _shares(run: Run, state: dict[str, Tensor], dense: Decoder) -> pd.DataFrame:
    """Return by layer which share of the variance of dense's W_u x the rows of `state` explain.

    The text is held out, of all sources.
    """
    blocks = TokenBlocks(run.blocks, "validation", run.training.sequence, run.model.vocab)
    numbers, _ = blocks.spread(VALIDATION)
    size = run.training.eval_batch
    batches = (blocks.at(numbers[k : k + size])[:, :-1] for k in range(0, len(numbers), size))
    rows = {layer: state[f"blocks.{layer}.ffn.table.weight"] for layer in run.model.replaced_layers}
    return pd.DataFrame(explained(dense, rows, batches).items(), columns=["layer", "share"])


def retrofit(run: Path, out: Path, settings: Asked, data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make STEM of a dense run, train it and its controls for some steps, and take losses.

    Folders below `out` are laid out as below runs/. <scale>/retrofit/stem-<placement>/seed<k> is the retrofitted run,
    to be exported or scored. Runs that are finished are not trained again.

    Args:
        run: runs/<scale>/<variant>/<arm>/seed<k> of a dense arm.
        out: the folder to write to.
        settings: what to make of the run.
        data: the folder of the scales' texts.

    Returns:
        Two tables, which are also written to losses.csv and explained.csv in `out`. The first has the columns model
        ("dense", "token means", "mean row"), steps (0: before any), prose and all (nats per token). Dense at 0 steps is
        the run as it was. The second has layer and share: the share of the variance of dense's W_u x that the rows of
        token means explain.

    Raises:
        UserError: see `planned`; or a run diverged.
    """
    torch.set_num_threads(1)  # models this small gain nothing from more
    runs = planned(run, out, settings, data)
    started = {name: _started(one) for name, one in runs.items()}
    rows = list(_rows(started, runs, 0))
    shares = _shares(runs["token means"], started["token means"], load_folder(run)[0])
    train_runs(list(runs.values()), min(len(runs), os.cpu_count() or 1), replace=False)
    ended = {name: _ended(one) for name, one in runs.items()}
    losses = pd.DataFrame([*rows, *_rows(ended, runs, settings.steps)])
    atomic_write(out / FILE, losses.to_csv(index=False))
    atomic_write(out / SHARES, shares.to_csv(index=False))
    return losses, shares


def show(losses: pd.DataFrame, shares: pd.DataFrame, settings: Asked, console: Console) -> None:
    """Print the losses on prose, and what the rows of token means explain."""
    by_steps = losses.pivot(index="model", columns="steps", values="prose")
    table = Table("prose, nats per token", "before any step", f"after {settings.steps:,} steps", box=box.SIMPLE)
    names = {
        "dense": "dense, trained on",
        "token means": f"STEM ({settings.placement}), rows of token means",
        "mean row": "control: one row for all",
    }
    for name, words in names.items():
        table.add_row(words, *(f"{by_steps.loc[name, steps]:.4f}" for steps in (0, settings.steps)))
    console.print(table)
    by_layer = ", ".join(f"{row.share:.0%} (layer {row.layer:.0f})" for row in shares.itertuples())
    console.print(f"of W_u x the token alone explains {by_layer} of the variance", highlight=False)
