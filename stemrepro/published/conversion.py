"""A published model made into STEM: what the loss rises by at once, and what a short training gives back.

Rows take the place of up-projections (stemrepro.published.converted). Then the tables are trained, alone or with the
gate and the down-projection of their layers, or by the authors' later rule, in which the up-projection fades out.
Dense is trained on the same tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stemrepro.common.progress import track
from stemrepro.model.config import layers_of
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder
from stemrepro.published.converted import FEW, Rows, convert, rows_of
from stemrepro.published.models import Model, load, once, sequences
from stemrepro.published.rows import TRAIN, changed, constant, ffn_of

HELD_OUT, TUNE = dict.fromkeys(TRAIN, 3), dict.fromkeys(TRAIN, 2)
"""Sequences on which losses are measured, and those on which the prior of rows and the learning rates are compared."""
PLACEMENTS, FIRST, CONTROLLED = ("third", "half", "full", "early", "late"), (1, 2, 4, 16), ("third", "full")
"""Layers that read rows: named sets, the first after layer 0, and the sets in which controls are read."""
NEVER = 0.01
"""How many places the prior counts for where it is only to fill in for tokens that the text lacks."""
PRIORS = (("mean", NEVER), ("mean", FEW), ("linear", NEVER), ("linear", FEW), ("linear", 4 * FEW))
"""Priors of rows that are compared, and how many places each counts for."""
BATCH, STEPS, WARM_UP, TRIED = 4, 24, 4, 8
"""Sequences of a step; steps of a training, steps in which its rate grows, steps of a trial of rates."""
MEASURED = (0, 6, 12, 24)
"""Steps after which the held-out loss is measured."""
HALF_LIFE = 3
"""Steps in which the dense share of an interpolation halves; the last of it is less than a hundredth."""
MATRICES, TABLES = (1e-4, 4e-4), (1e-3, 4e-3, 1.6e-2)
"""Learning rates that are tried."""


@dataclass(frozen=True)
class Arm:
    """What is trained: an FFN in some layers, and the parts of these FFNs."""

    ffn: str
    placement: str
    parts: tuple[str, ...]


BOTH = ("table", "gate", "down")
ARMS = {
    "dense": Arm("dense", "full", ("gate", "up", "down")),
    "third-tables": Arm("stem", "third", ("table",)),
    "third": Arm("stem", "third", BOTH),
    "third-interpolated": Arm("stem-interpolated", "third", BOTH),
    "half": Arm("stem", "half", BOTH),
    "full": Arm("stem", "full", BOTH),
}
KEPT, TRAINED = "third", "trained.safetensors"
"""The arm whose weights are kept, for benchmarks, in a file next to the rows."""


class Fewer(nn.Module):
    """A table as STEM's, without the rows that no text reads: rows [n, F] of tokens [n]."""

    index: Tensor

    def __init__(self, rows: Tensor, tokens: Tensor, vocab: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(rows)
        index = torch.full((vocab,), -1)
        index[tokens] = torch.arange(len(tokens))
        self.register_buffer("index", index, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return rows: tokens [B, T] -> [B, T, F]."""
        return F.embedding(self.index[tokens], self.weight)


def trainable(model: Model, rows: Rows, arm: Arm, tokens: Tensor) -> Decoder:
    """Return the decoder of an arm, whose parts alone can be trained, and are copies; it reads `tokens` alone."""
    shape = model.decoder.config
    layers = layers_of(arm.placement, shape.layers)
    with torch.device("meta"):
        decoder = Decoder(replace(shape, ffn=arm.ffn, replaced_layers=() if arm.ffn == "dense" else layers))
    for layer in layers if arm.ffn != "dense" else ():
        ffn: nn.Module = ffn_of(decoder, layer)
        ffn.table = Fewer(rows.at(layer, tokens), tokens, shape.vocab)
        if arm.ffn == "stem-interpolated":
            ffn.share = torch.zeros(())
    state = model.decoder.state_dict()
    decoder.load_state_dict({name: state[name] for name in decoder.state_dict() if name in state}, False, assign=True)
    decoder.requires_grad_(False)
    for layer in layers:
        for part in arm.parts:
            module = getattr(ffn_of(decoder, layer), part)
            module.weight = nn.Parameter(module.weight.detach().clone())
    return decoder


def losses(decoder: Decoder, text: pd.DataFrame) -> list[float]:
    """Return the loss of each sequence, a sum in nats."""
    tokens, out = torch.from_numpy(np.stack(text["tokens"]).astype(np.int64)), []
    with torch.no_grad():
        for row in tokens.split(BATCH):
            out += token_losses(decoder(row[:, :-1]), row[:, 1:]).sum(dim=1).tolist()
    return out


def measured(text: pd.DataFrame, nats: list[float], **about: object) -> pd.DataFrame:
    """Return losses by sequence: sequence, source, tokens, nats, and what is told of them."""
    tokens = [len(row) - 1 for row in text["tokens"]]
    rows = {"sequence": range(len(text)), "source": list(text["source"]), "tokens": tokens, "nats": nats}
    return pd.DataFrame(rows).assign(**about)


def placements(layers: int) -> dict[str, tuple[int, ...]]:
    """Return the sets of layers that read rows, by name."""
    named = {name: layers_of(name, layers) for name in PLACEMENTS}
    return named | {f"first {count}": tuple(range(1, count + 1)) for count in FIRST if count < layers}


Given = Callable[[int, Tensor], Tensor]
"""What a layer reads at tokens [B, T] in the place of W_u x [B, T, F]."""


def replaced(model: Model, text: pd.DataFrame, layers: Sequence[int], given: Given) -> list[float]:
    """Return the loss of each sequence, a sum in nats, with other vectors in the place of W_u x in some layers."""
    out = []
    for number in range(0, len(text), BATCH):
        some = text.iloc[number : number + BATCH]
        tokens = torch.from_numpy(np.stack(some["tokens"]).astype(np.int64))[:, :-1]
        with changed(model.decoder, {layer: constant(given(layer, tokens)) for layer in layers}):
            out += losses(model.decoder, some)
    return out


def _but_the_start(rows: Rows, given: Given, layer: int, tokens: Tensor) -> Tensor:
    """Return what a layer is given at tokens [B, T], and at the start tokens their own rows [B, T, F]."""
    own = rows.at(layer, tokens)
    return torch.cat([own[:, :1], given(layer, tokens).expand_as(own)[:, 1:]], dim=1)


def controls(model: Model, rows: Rows) -> Mapping[str, Given]:
    """Return rows and what can stand in their place; the start token keeps its own row.

    "one-row" is the mean for all tokens, "dealt-anew" gives a token of the rows' text the row of another. "no-up" has
    ones in place of W_u x, "no-ffn" zeros.
    """
    seen = (rows.means.index >= 0).nonzero().flatten()[1:]
    dealt = torch.arange(model.decoder.config.vocab)
    dealt[seen] = seen[torch.randperm(len(seen), generator=torch.Generator().manual_seed(0))]
    mean = rows.means.grand(rows.means.read)
    others: dict[str, Given] = {
        "one-row": lambda layer, _: F.linear(mean[layer], ffn_of(model.decoder, layer).up.weight),
        "dealt-anew": lambda layer, tokens: rows.at(layer, dealt[tokens]),
        "no-up": lambda layer, tokens: torch.ones(()),
        "no-ffn": lambda layer, tokens: torch.zeros(()),
    }
    return {"rows": rows.at} | {kind: partial(_but_the_start, rows, given) for kind, given in others.items()}


@torch.no_grad()
def at_once(model: Model, rows: Rows, text: pd.DataFrame) -> pd.DataFrame:
    """Measure losses with rows in the place of W_u x, and with controls: `measured`, with placement and kind."""
    kinds, sets = controls(model, rows), placements(len(model.decoder.blocks))
    asked = [("rows", name) for name in sets]
    asked += [(kind, name) for name in CONTROLLED for kind in kinds if kind != "rows"]
    tables = [measured(text, losses(model.decoder, text), placement="none", kind="dense")]
    for kind, name in track(asked, "rows in place of W_u x"):
        tables.append(measured(text, replaced(model, text, sets[name], kinds[kind]), placement=name, kind=kind))
    return pd.concat(tables, ignore_index=True)


@torch.no_grad()
def of_priors(model: Model, rows: Rows, text: pd.DataFrame) -> pd.DataFrame:
    """Measure losses with rows of other priors: `measured`, with placement, prior, few."""
    tables, sets = [], placements(len(model.decoder.blocks))
    for prior, few in track(PRIORS, "priors of rows"):
        given = Rows(model, rows.means, few, prior).at
        for name in CONTROLLED:
            nats = replaced(model, text, sets[name], given)
            tables.append(measured(text, nats, placement=name, prior=prior, few=few))
    return pd.concat(tables, ignore_index=True)


def train(decoder: Decoder, text: np.ndarray, rates: Mapping[str, float], steps: int, title: str) -> Iterator[int]:
    """Train what can be trained, with Adam, on one batch a step; yield the steps done where MEASURED has them.

    Args:
        text: sequences [steps x BATCH, T].
        rates: learning rates of "table" and of "matrices".
    """
    groups: dict[str, list[nn.Parameter]] = {"table": [], "matrices": []}
    for name, weight in decoder.named_parameters():
        if weight.requires_grad:
            groups["table" if ".table." in name else "matrices"].append(weight)
    parameters = [{"params": weights, "lr": rates[kind]} for kind, weights in groups.items() if weights]
    optimizer = torch.optim.Adam(parameters, betas=(0.9, 0.95))
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))
    batches = torch.from_numpy(text.astype(np.int64)).split(BATCH)[:steps]
    networks = [ffn_of(decoder, layer) for layer in range(len(decoder.blocks))]
    shares: list[Tensor] = [cast(Tensor, network.share) for network in networks if hasattr(network, "share")]
    yield 0
    for step, batch in enumerate(track(batches, title), 1):
        for share in shares:
            share.fill_(0.5 ** ((step - 1) / HALF_LIFE))
        loss = token_losses(decoder(batch[:, :-1]), batch[:, 1:]).mean()
        loss.backward()
        nn.utils.clip_grad_norm_([weight for weights in groups.values() for weight in weights], 1.0)
        optimizer.step()
        warm_up.step()
        optimizer.zero_grad()
        if step in MEASURED or step == steps:
            for share in shares:
                share.zero_()  # what is measured is STEM
            yield step


class Study:
    """Trainings of a model on the same tokens.

    Args:
        text: sequences to train on, more than are read.
        held_out, tune: those whose loss is measured, and by which rates are chosen.
    """

    def __init__(
        self, model: Model, rows: Rows, text: pd.DataFrame, held_out: pd.DataFrame, tune: pd.DataFrame
    ) -> None:
        self.model, self.rows, self.held_out, self.tune = model, rows, held_out, tune
        order = np.random.default_rng(0).permutation(len(text))[: BATCH * STEPS]
        self.text = np.stack(text["tokens"].iloc[order])
        read = np.concatenate([self.text, *(np.stack(some["tokens"]) for some in (held_out, tune))])
        self.tokens = torch.from_numpy(np.unique(read).astype(np.int64))

    def tried(self, name: str, rates: Mapping[str, float]) -> pd.DataFrame:
        """Return the losses on the text for tuning after a short training of an arm, with its rates."""
        decoder = trainable(self.model, self.rows, ARMS[name], self.tokens)
        list(train(decoder, self.text, rates, TRIED, f"rates of {name}"))  # to its end
        return measured(self.tune, losses(decoder, self.tune), arm=name, **rates)

    def rates(self) -> pd.DataFrame:
        """Try rates of dense's matrices, of tables alone, and of matrices with the best of these; return losses."""
        tables = [self.tried("third-tables", {"table": rate, "matrices": 0.0}) for rate in TABLES]
        best = chosen(pd.concat(tables), "third-tables")["table"]
        for rate in MATRICES:
            tables += [self.tried("dense", {"table": 0.0, "matrices": rate})]
            tables += [self.tried("third", {"table": best, "matrices": rate})]
        return pd.concat(tables, ignore_index=True)

    def trained(self, name: str, rates: Mapping[str, float], kept: Path) -> pd.DataFrame:
        """Train an arm, and keep KEPT's weights in a file: `measured`, with arm and step."""
        decoder, tables = trainable(self.model, self.rows, ARMS[name], self.tokens), []
        for step in train(decoder, self.text, rates, STEPS, name):
            tables.append(measured(self.held_out, losses(decoder, self.held_out), arm=name, step=step))
        if name == KEPT:
            weights = {key: weight for key, weight in decoder.named_parameters() if weight.requires_grad}
            halves = {key: weight.detach().bfloat16() for key, weight in weights.items()}
            save_file(halves | {"tokens": self.tokens}, aside := kept.with_suffix(".part"))
            aside.replace(kept)
        return pd.concat(tables, ignore_index=True)

    def trained_at_best(self, name: str, tables: Path, kept: Path) -> pd.DataFrame:
        """Return `trained` at the rates that trials in a folder of tables say."""
        tried = name if name in ("dense", "third-tables") else "third"
        return self.trained(name, chosen(pd.read_parquet(tables / "rates.parquet"), tried), kept)


def study_of(model: Model, corpus: Path, rows: Path) -> Study:
    """Return the trainings of a model on the rows' text."""
    many = {"train": TRAIN, "validation": HELD_OUT, "tune": TUNE}
    return Study(model, rows_of(model, rows), *(sequences(model, corpus, *split) for split in many.items()))


def chosen(rates: pd.DataFrame, arm: str) -> dict[str, float]:
    """Return the learning rates of an arm with the smallest loss."""
    sums = rates[rates["arm"] == arm].groupby(["table", "matrices"])["nats"].sum()
    return dict(zip(sums.index.names, sums.idxmin(), strict=True))


def kept_model(model: Model, corpus: Path, rows: Path, tables: Path) -> Decoder:
    """Return the decoder of the arm KEPT with its trained weights, and train it where they are missing.

    A token that the training never read has its first row. `tables` is the folder of the conversion's tables.
    """
    if not (kept := rows.with_name(TRAINED)).exists():
        study_of(model, corpus, rows).trained_at_best(KEPT, tables, kept)
    layers = layers_of(ARMS[KEPT].placement, len(model.decoder.blocks))
    decoder, trained = convert(model, rows_of(model, rows), layers), load_file(kept)
    tokens, state = trained.pop("tokens"), decoder.state_dict()
    for name, weights in trained.items():
        if name.endswith("ffn.table.weight"):
            state[name][tokens] = weights.float()
        else:
            state[name] = weights.float()
    decoder.load_state_dict(state, assign=True)
    return decoder


def make(name: str, corpus: Path, rows: Path, out: Path) -> None:
    """Write at-once.parquet, priors.parquet, rates.parquet and trained.<arm>.parquet; weights lie next to `rows`."""
    study = study_of(load(name), corpus, rows)
    once(out / "priors.parquet", partial(of_priors, study.model, study.rows, study.tune))
    once(out / "at-once.parquet", partial(at_once, study.model, study.rows, study.held_out))
    once(out / "rates.parquet", study.rates)
    for arm in ARMS:
        once(out / f"trained.{arm}.parquet", partial(study.trained_at_best, arm, out, rows.with_name(TRAINED)))
