"""Angles between the rows of a published model, and between what its up-projections give (paper, Fig. 6).

For one place each of some distinct tokens: what meets the gate ("up"), and that times SiLU(W_g x) ("gated"), raw and
with the set's mean vector taken off ("centred"). The side "dense" has W_u x, "rows" the tokens' rows, "random" W_u of
random directions. All gates are the dense model's.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from stemrepro.common.progress import track
from stemrepro.published.converted import Rows, rows_of
from stemrepro.published.models import load, sequences, write_parquet
from stemrepro.published.rows import ffn_of, watched

GROUPS, EACH = 16, 2
"""Groups of sequences, and how many sequences of each source are in a group."""
SOURCES = ("speeches", "bible", "plays", "passages")
MOST = 512
"""Distinct tokens of a group that are compared at most."""
BINS = 100
Line = dict[str, object]
"""A row of cosines.parquet, by column."""
Densities = dict[tuple[int, str, str, bool], np.ndarray]
"""Heights [BINS] by layer, side, what and whether centred."""


def cosines(vectors: Tensor) -> dict[bool, np.ndarray]:
    """Return cosines of all pairs of different vectors [n, f] -> [n (n - 1) / 2], by whether these are centred.

    Those of stemrepro.evaluation.geometry differ in the last bits, and committed tables have these.
    """
    products = (vectors.double() @ vectors.double().T).numpy()
    mean = products.mean(axis=0)
    first, second = np.triu_indices(len(products), k=1)
    result = {}
    for centred in (False, True):
        if centred:
            products = products - mean - mean[:, None] + mean.mean()
        norms = np.sqrt(products.diagonal())
        result[centred] = (products / norms / norms[:, None])[first, second]
    return result


def statistics(values: np.ndarray, heights: np.ndarray) -> dict[str, float]:
    """Return the 95th percentile of |cos|, the mean cosine, and where and how high the density of cosines peaks."""
    peak = int(heights.argmax())
    mode = -1 + 2 * (peak + 0.5) / len(heights)
    p95 = np.quantile(np.abs(values), 0.95)
    return {"p95": p95, "mean": values.mean(), "mode": mode, "peak": heights[peak]}


def chosen(tokens: np.ndarray, seed: int) -> np.ndarray:
    """Return one place each of up to MOST distinct tokens of sequences [n, T], as places of tokens.ravel().

    The start token is none of them: what stands for it is like no other vector.
    """
    places = np.arange(tokens.size).reshape(tokens.shape)[:, 1:].ravel()
    places = np.random.default_rng(seed).permutation(places)
    _, first = np.unique(tokens.ravel()[places], return_index=True)
    return places[np.sort(first)[:MOST]]  # the first distinct ones in random order


@torch.no_grad()
def spread(rows: Rows, tokens: np.ndarray, group: int) -> tuple[list[Line], Densities]:
    """Compare vectors at some places of a group of sequences [n, T] -> lines of cosines.parquet, and densities."""
    decoder = rows.model.decoder
    lines: list[Line] = []
    densities: Densities = {}
    shape = {"width": decoder.config.width, "ffn_width": decoder.config.ffn_width}
    places = torch.from_numpy(chosen(tokens, group))
    text = torch.from_numpy(tokens.astype(np.int64))
    random = torch.randn(len(places), shape["width"], generator=torch.Generator().manual_seed(group))

    def keep(layer: int, x: Tensor, _: Tensor) -> None:
        ffn, read = ffn_of(decoder, layer), x.flatten(0, 1)[places]
        gate, own = F.silu(ffn.gate(read)), rows.at(layer, text.flatten()[places])
        up = F.linear(read, ffn.up.weight)
        kinds = {
            ("dense", "up"): up,
            ("dense", "gated"): gate * up,
            ("rows", "up"): own,
            ("rows", "gated"): gate * own,
            ("random", "up"): F.linear(random, ffn.up.weight),
        }
        for (side, what), vectors in kinds.items():
            for centred, values in cosines(vectors).items():
                heights = np.histogram(values, bins=BINS, range=(-1, 1), density=True)[0]
                densities[layer, side, what, centred] = heights
                about = {"group": group, "layer": layer, "side": side, "what": what, "centred": centred}
                lines.append(about | {"vectors": len(vectors)} | shape | statistics(values, heights))

    with watched(decoder, keep):
        decoder.hidden(text)
    return lines, densities


def make(name: str, corpus: Path, rows: Path, out: Path) -> None:
    """Write cosines.parquet, and density.parquet, the mean over groups: minutes, so that nothing is kept in between."""
    model = load(name)
    own, asked = rows_of(model, rows), sequences(model, corpus, "validation", dict.fromkeys(SOURCES, GROUPS * EACH))
    tokens = np.stack(asked["tokens"]).reshape(len(SOURCES), GROUPS, EACH, -1)
    lines: list[Line] = []
    densities: list[Densities] = []
    for group in track(range(GROUPS), "spread"):
        part, heights = spread(own, np.concatenate(tokens[:, group]), group)
        lines += part
        densities.append(heights)
    keys = list(densities[0])
    means = [np.mean([heights[key] for heights in densities], axis=0) for key in keys]
    middles = -1 + 2 * (np.arange(BINS) + 0.5) / BINS
    density = pd.DataFrame(keys, columns=["layer", "side", "what", "centred"]).assign(
        cosine=[middles] * len(keys), density=means
    )
    density = density.explode(["cosine", "density"]).astype({"cosine": float, "density": float})
    write_parquet(out / "density.parquet", density)
    write_parquet(out / "cosines.parquet", pd.DataFrame(lines))
