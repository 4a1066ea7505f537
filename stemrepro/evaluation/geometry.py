"""Angles between the vectors in the up-projection's place (paper, Fig. 6).

* "rows": all rows of a replaced layer's table, at initialisation, each snapshot and the end, also by the tokens'
  training counts.
* "up": for one occurrence each of some distinct tokens, the vector that meets the gate (a row, or dense's W_u x).
* "gated": the same times SiLU(W_g x), which enters the down-projection.

Each is raw, and with the set's mean vector subtracted ("centred"). The tables:

* cosines: statistics of the cosines by seed, share of training, layer, kind of vectors and bucket;
* density: heights of the cosines' histogram between -1 and 1 at the end of training, means over seeds, by bin;
  `what` ends in ":centred" where the mean is subtracted;
* spread: by seed and token, the mean |cos| of its row to all others; tokens that no table was sampled at are left out.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.config.buckets import BUCKETS, bucket_name
from stemrepro.config.scores import Geometry
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.losses import seen_pairs
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables, long
from stemrepro.model.ffn.base import FFN, table_parameters
from stemrepro.model.transformer import Decoder, build
from stemrepro.training.run import Run

MOST_ROWS = 4096
"""Rows of a table that are compared at most, in all pairs; larger tables are sampled.

The limit is that of torch's quantile, 2^24 values."""
FEWEST = 8  # vectors that a set must have


def cosines(vectors: Tensor, centred: bool) -> Tensor:
    """Return cosines of all pairs of different vectors: [n, f] -> [n (n - 1) / 2]."""
    vectors = vectors.double()
    if centred:
        vectors = vectors - vectors.mean(dim=0)
    unit = F.normalize(vectors, dim=1)
    first, second = torch.triu_indices(len(unit), len(unit), offset=1)
    return (unit @ unit.T)[first, second]


def density(values: Tensor, bins: int) -> np.ndarray:
    """Return a histogram between -1 and 1 whose area is 1, [bins]."""
    return np.histogram(values.numpy(), bins=bins, range=(-1, 1), density=True)[0]


def statistics(values: Tensor, bins: int) -> dict[str, float]:
    """Return the 95th percentile of |cos|, the mean cosine, and where and how high the density of cosines peaks."""
    heights = density(values, bins)
    peak = int(heights.argmax())
    return {
        "p95": float(values.abs().quantile(0.95)),
        "mean": float(values.mean()),
        "mode": -1 + 2 * (peak + 0.5) / bins,
        "peak": float(heights[peak]),
    }


def chosen_places(blocks: TokenBlocks, tokens_per_source: int, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose one occurrence each of up to `wanted` distinct tokens in the scored validation blocks.

    They are the same for all arms and seeds. Return block numbers [n] and positions in them [n]. UserError: there are
    fewer than FEWEST distinct tokens.
    """
    numbers, _ = blocks.spread(tokens_per_source)
    inputs = blocks.at(numbers)[:, :-1].numpy()
    order = np.random.default_rng(0).permutation(inputs.size)
    tokens, first = np.unique(inputs.ravel()[order], return_index=True)
    first = np.sort(first)[:wanted]  # the first distinct ones in random order
    places = order[first]
    if len(tokens) < FEWEST:
        raise UserError(f"{blocks.path} has {len(tokens)} distinct tokens; {FEWEST} are needed to compare vectors")
    return numbers[places // inputs.shape[1]], places % inputs.shape[1]


def ffn_vectors(model: Decoder, rows: Tensor, positions: Tensor) -> dict[int, dict[str, Tensor]]:
    """Return "up" and "gated" vectors [n, f] of every layer but the first, at one position of each sequence."""
    captured: dict[int, dict[str, Tensor]] = {}

    def keep(layer: int) -> Callable[[Any, Any], None]:
        def hook(ffn: FFN, inputs: tuple[Tensor, Tensor]) -> None:
            places = torch.arange(len(positions)), positions
            up, gate = ffn.up_vectors(*inputs, places), ffn.gate_vectors(inputs[0], places)
            if up is not None:
                captured[layer] = {"up": up} | ({} if gate is None else {"gated": gate * up})

        return hook

    with ExitStack() as hooks, torch.no_grad():
        for layer, block in enumerate(model.blocks[1:], 1):
            hooks.enter_context(cast(FFN, block.ffn).register_forward_pre_hook(keep(layer)))
        model(rows.to(next(model.parameters()).device))
    return {layer: {what: vectors.cpu() for what, vectors in kinds.items()} for layer, kinds in captured.items()}


def tables_over_training(run: Run, model: Decoder) -> dict[float, dict[int, Tensor]]:
    """Return every replaced layer's table [V, f] by the share of training.

    The shares are those of the initialisation (from the seed), the snapshots and the end. UserError: a snapshot is
    missing or damaged.
    """

    def by_layer(tables: Mapping[str, Tensor]) -> dict[int, Tensor]:
        own = {name: table for name, table in sorted(tables.items()) if name.startswith("blocks.")}
        return {int(name.split(".")[1]): table.detach().cpu().float() for name, table in own.items()}

    tables_at = {0.0: by_layer(table_parameters(build(run.model, run.seed)))}
    for share in run.training.snapshots:
        path = run.folder / f"tables-{round(100 * share):03d}.safetensors"
        if not path.exists():
            raise UserError(f"{path} is missing; train that run again ('make reproduce' with its SCALE)")
        try:
            tables_at[share] = by_layer(load_file(path))
        except (OSError, ValueError, SafetensorError) as error:
            raise UserError(f"{path} is damaged ({error}); train that run again") from error
    return tables_at | {1.0: by_layer(table_parameters(model))}


def score(run: Run, report: Report, asked: Geometry, tokens: int) -> Result:
    """Score the angles of one run, in so many tokens per source of the validation text; {} for one that diverged.

    Return "cosines": one line per share of training, layer, kind of vector, bucket and centring; "density": {(what,
    centred): [layers, bins]} at the end of training; "layers" [layers]; "spread" [V]: mean |cos| of each token's row to
    all others, mean over layers (NaN without tables).
    """
    if run.diverged is not None:
        return {}
    bins, model = asked.bins, load_run(run)
    blocks = TokenBlocks(run.blocks, "validation", run.training.sequence, run.model.vocab)
    replaced_layers = run.model.replaced_layers or tuple(range(1, run.model.layers))
    lines: list[Result] = []
    heights: dict[tuple[str, bool], list[np.ndarray]] = {}

    def add(share: float, layer: int, what: str, bucket: str, vectors: Tensor) -> None:
        if len(vectors) < FEWEST:
            return
        for centred in (False, True):
            values = cosines(vectors, centred)
            about = {"share": share, "layer": layer, "what": what, "bucket": bucket, "centred": centred}
            lines.append(about | {"vectors": len(vectors)} | statistics(values, bins))
            if share == 1.0 and bucket == "all":
                heights.setdefault((what, centred), []).append(density(values, bins))

    numbers, positions = chosen_places(blocks, tokens, asked.tokens)
    vectors = ffn_vectors(model, blocks.at(numbers)[:, :-1], torch.from_numpy(positions))
    for layer in replaced_layers:
        for what, layer_vectors in vectors.get(layer, {}).items():
            add(1.0, layer, what, "all", layer_vectors)
    spread = np.full(run.model.vocab, np.nan)
    if run.model.replaced_layers:
        seen = np.asarray(seen_pairs(run).sum(axis=1)).ravel()
        sample = np.random.default_rng(0).permutation(run.model.vocab)[:MOST_ROWS]
        edges = BUCKETS["frequency"]
        bucket = np.searchsorted(edges, seen[sample], side="right") - 1
        times = tables_over_training(run, model)
        for number, (share, tables) in enumerate(times.items()):
            for layer, table in tables.items():
                add(share, layer, "rows", "all", table[sample])
                for which in range(len(edges)):
                    add(share, layer, "rows", bucket_name(edges, which), table[sample[bucket == which]])
            report(int(run.training.steps * (number + 1) / len(times)), math.nan, 0.0)
        means = []
        for table in times[1.0].values():
            unit = F.normalize(table[sample].double(), dim=1)
            means.append(((unit @ unit.T).abs().sum(dim=1) - 1) / (len(sample) - 1))
        spread[sample] = torch.stack(means).mean(dim=0).numpy()
    return {
        "cosines": pd.DataFrame(lines),
        "density": {key: np.stack(value) for key, value in heights.items()},
        "layers": np.array(replaced_layers),
        "spread": spread,
    }


def _cosines(result: Result) -> pd.DataFrame:
    return result["cosines"].round(6)


def _spread(result: Result) -> pd.DataFrame:
    return long(("token",), spread=result["spread"]).dropna()


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return widths and compared layers of an arm, and its tables (all its seeds)."""
    first = scored.runs[0].model
    about = {"width": first.width, "ffn_width": first.ffn_width, "layers": []}
    if not scored.ended:
        return about, {}
    results = [result for _, result in scored.ended]
    layers, keys = results[0]["layers"], results[0]["density"]
    names = {key: f"{key[0]}{':centred' if key[1] else ''}" for key in keys}
    heights = {name: np.mean([result["density"][key] for result in results], axis=0) for key, name in names.items()}
    axes, layer = ("place", "bin"), layers[:, None]
    densities = [long(axes, what=np.array(name), layer=layer, density=values) for name, values in heights.items()]
    made = {"cosines": scored.lines(_cosines), "density": pd.concat(densities), "spread": scored.lines(_spread)}
    return about | {"layers": layers.tolist()}, {name: frame for name, frame in made.items() if len(frame)}
