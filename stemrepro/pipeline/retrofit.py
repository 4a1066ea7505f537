"""One trained dense run made into STEM, beside two controls: losses before, right behind the retrofit, and after some training.

All three go on with the same text, rate and schedule and an optimiser that knows nothing: of a run only its weights are asked for.
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
from stemrepro.training.callbacks import losses_by_source
from stemrepro.training.checkpoint import AtomicCheckpointIO, intact
from stemrepro.training.explained import explained
from stemrepro.training.launch import train_runs
from stemrepro.training.retrofit import PREFIX, beginning
from stemrepro.training.run import InitFrom, Run
from stemrepro.training.run_folder import read_config

VALIDATION = 16384
"""Tokens a source that losses are taken of, or as many as there are."""
BEFORE, AFTER, CONTROL = "before", "retrofit", "retrofit-mean-row"
"""Points of the folders below OUT: the dense weights, runs that go on from them, and the control."""
FILE, SHARES = "losses.csv", "explained.csv"


@dataclass(frozen=True)
class Asked:
    """What to make of a dense run.

    Attributes:
        placement: the layers that get tables, as in recipes/arms.yaml.
        tokens: of the run's own training text, that rows are made of; at most those that it was trained on.
        steps: of training behind the retrofit.
    """

    placement: str
    tokens: int
    steps: int


def _beginning(folder: Path, model: Decoder, config: dict) -> None:
    """Write what three runs go on from: weights, and an optimiser that knows nothing."""
    if intact(folder / "end.ckpt"):
        return
    state = {PREFIX + name: value for name, value in model.state_dict().items()}
    about = {"state_dict": state, "optimizer_states": [{"state": {}, "param_groups": []}], "run_config": config}
    AtomicCheckpointIO().save_checkpoint(about, folder / "end.ckpt")


def planned(run: Path, out: Path, asked: Asked, data: Path) -> dict[str, Run]:
    """Return the runs behind a retrofit by what they are called; writes what they go on from.

    Raises:
        UserError: the run isn't a finished dense one, its text isn't there, too many tokens are asked for, or `out` holds other runs.
    """
    parts = run.resolve().parts
    settings = read_config(run)
    dense, before = settings.model, settings.training
    if len(parts) < 5:
        raise UserError(f"{run} is no folder of a run: runs/<scale>/<variant>/<arm>/seed<k>")
    if settings.init_from:
        raise UserError(
            f"{run} goes on from another run, whose tokens it doesn't know of; choose a run that begins anew"
        )
    stem = replace(dense, ffn="stem", replaced_layers=layers_of(asked.placement, dense.layers))
    check(dense, stem)
    model, sequence = load_folder(run)
    if not sequence <= asked.tokens <= before.tokens:
        raise UserError(
            f"{asked.tokens:,} tokens for rows: {run} was trained on {before.tokens:,} in sequences of {sequence}; ask for as many "
            "as those at most, and one sequence at least"
        )
    text = own_text(dense.vocab, data / parts[-4])
    if text.data_hash != settings.data.train_sha256:
        raise UserError(f"{text.blocks} isn't the text that {run} was trained on; restore that, or train the run again")
    training = before.model_copy(
        update={"tokens": asked.steps * before.batch * sequence, "evals": 1, "snapshots": (), "table_trained": True}
    )
    home, seed = out / parts[-4], settings.seed
    parent = home / BEFORE / settings.arm / f"seed{seed}"
    _beginning(parent, model, settings.written)

    def made(variant: str, arm: str, own: ModelConfig, tables: str) -> Run:
        init_from = InitFrom(
            parent, settings.hash, tables, before.tokens, before.tokens // (before.micro_batch * sequence),
            0 if tables == "kept" else asked.tokens,
        )  # fmt: skip
        place = Address(variant, arm)
        mix, folder = settings.data.mix, home / place.path / f"seed{seed}"
        run = Run(place, seed, own, training, folder, mix, text.blocks, text.data_hash, init_from=init_from)
        if folder.exists() and (changes := run.other_settings()):
            raise UserError(f"{folder} holds a run with other settings ({changes}); name another folder to write to")
        return run

    return {
        "dense": made(AFTER, settings.arm, dense, "kept"),
        "token means": made(AFTER, f"stem-{asked.placement}", stem, "token-means"),
        "mean row": made(CONTROL, f"stem-{asked.placement}", stem, "mean-row"),
    }


def _losses(run: Run, state: dict[str, Tensor]) -> dict[str, float]:
    """Return mean validation losses over sources, in nats a token, of weights."""
    model = Decoder(run.model).eval()
    model.load_state_dict(state)
    blocks = TokenBlocks(run.blocks, "validation", run.training.sequence, run.model.vocab)
    found = losses_by_source(model, blocks, VALIDATION, run.training.eval_batch)
    kinds = {"prose": prose(found), "all": tuple(found)}
    return {kind: total(found[source] for source in sources) / len(sources) for kind, sources in kinds.items()}


def _started(run: Run) -> dict[str, Tensor]:
    """Return the weights that a run begins with."""
    blocks = TokenBlocks(run.blocks, "train", run.training.sequence, run.model.vocab)
    return {name.removeprefix(PREFIX): value for name, value in beginning(run, blocks)["state_dict"].items()}


def _ended(run: Run) -> dict[str, Tensor]:
    """Return those that it ended with.

    Raises:
        UserError: it diverged.
    """
    if run.diverged is not None:
        raise UserError(
            f"{run.folder}: the loss is no number from step {run.diverged} on; the run's own rate is too high for it"
        )
    return load_folder(run.folder)[0].state_dict()


def _rows(states: dict[str, dict[str, Tensor]], runs: dict[str, Run], behind: int) -> Iterator[dict]:
    """Return losses of all runs' weights, so many steps behind the retrofit."""
    when = "right behind the retrofit" if not behind else f"after {behind} steps"
    for name in track(runs, f"losses {when}"):
        yield {"model": name, "steps": behind} | _losses(runs[name], states[name])


def _shares(run: Run, state: dict[str, Tensor], dense: Decoder) -> pd.DataFrame:
    """layer, share: of the variance of dense's W_u x that the rows of `state` explain, on held-out text of all sources."""
    blocks = TokenBlocks(run.blocks, "validation", run.training.sequence, run.model.vocab)
    numbers, _ = blocks.spread(VALIDATION)
    size = run.training.eval_batch
    batches = (blocks.at(numbers[k : k + size])[:, :-1] for k in range(0, len(numbers), size))
    rows = {layer: state[f"blocks.{layer}.ffn.table.weight"] for layer in run.model.replaced_layers}
    return pd.DataFrame(explained(dense, rows, batches).items(), columns=["layer", "share"])


def retrofit(run: Path, out: Path, asked: Asked, data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make STEM of a dense run, trains it and its controls some steps, and takes losses.

    Below `out` folders lie as below runs/: <scale>/retrofit/stem-<placement>/seed<k> is the retrofitted run, to be exported or scored.
    What is finished there isn't done again.

    Args:
        run: runs/<scale>/<variant>/<arm>/seed<k> of a dense arm.
        data: where the scales' texts lie.

    Returns:
        model ("dense", "token means", "mean row"), steps (0: before any), prose, all (nats a token); dense at 0 steps is the run as it
        was. And layer, share: of the variance of its W_u x that the rows of token means explain. Also written to losses.csv and
        explained.csv in `out`.

    Raises:
        UserError: see `planned`; or a run diverged.
    """
    torch.set_num_threads(1)  # models this small gain nothing from more
    runs = planned(run, out, asked, data)
    started = {name: _started(own) for name, own in runs.items()}
    rows = list(_rows(started, runs, 0))
    shares = _shares(runs["token means"], started["token means"], load_folder(run)[0])
    train_runs(list(runs.values()), min(len(runs), os.cpu_count() or 1), replace=False)
    found = pd.DataFrame([*rows, *_rows({name: _ended(own) for name, own in runs.items()}, runs, asked.steps)])
    atomic_write(out / FILE, found.to_csv(index=False))
    atomic_write(out / SHARES, shares.to_csv(index=False))
    return found, shares


def show(found: pd.DataFrame, shares: pd.DataFrame, asked: Asked, console: Console) -> None:
    """Print the losses on prose, and what the rows of token means explain."""
    by = found.pivot(index="model", columns="steps", values="prose")
    table = Table("prose, nats a token", "before any step", f"after {asked.steps:,} steps", box=box.SIMPLE)
    names = {
        "dense": "dense, goes on",
        "token means": f"STEM ({asked.placement}), rows of token means",
        "mean row": "control: one row for all",
    }
    for name, words in names.items():
        table.add_row(words, *(f"{by.loc[name, steps]:.4f}" for steps in (0, asked.steps)))
    console.print(table)
    by_layer = ", ".join(f"{row.share:.0%} (layer {row.layer:.0f})" for row in shares.itertuples())
    console.print(f"of W_u x the token alone explains {by_layer} of the variance", highlight=False)
