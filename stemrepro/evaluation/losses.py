"""Losses of finished runs, split by source, position, token frequency, token pair and document.

Losses are in nats, and sums over targets ("tokens") but in `curve` and `steps`. The tables:

* losses: by seed, source and bucket of `by`;
* documents: by document, sums over the first `seeds` seeds, for the error between items;
* curve: means during training by seed, tokens read and source; `train` is the step's loss;
* context: by seed and document of prose; `what` is "position" for the whole block, in buckets that begin `at` a
  position, or one of CONTEXTS for its second half, in buckets of the offset from its start;
* tokens: by seed and input token, which training had `seen` so often;
* steps: loss and gradient norm by seed and step of training, from 1; none once a run diverged.

What no recipe reads of an arm isn't written. A run that diverged has steps alone.

The second half of a block is scored three times: after its first half as it is ("intact"), after the same tokens in a
shuffled order ("shuffled"), and without it ("alone"). Targets and their last tokens are the same each time. So
differences between arms that grow from "alone" to "intact" can only come from the first half; what "shuffled" leaves of
them needs no order.
"""

from collections.abc import Callable, Collection

import numpy as np
import pandas as pd
import torch
from scipy.sparse import coo_array, csr_array

from stemrepro.common.errors import UserError
from stemrepro.config.buckets import BUCKETS, CONTEXTS, bucket_name, position_edges
from stemrepro.config.scores import Evaluation
from stemrepro.config.sources import prose
from stemrepro.data.blocks import COUNTED, TokenBlocks
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables, long
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder
from stemrepro.training.run import Run
from stemrepro.training.run_folder import read_metrics

SUMMED = (3, 5)
"""Numbers of first seeds whose sums of a document's nats are kept, next to that of all: those of recipes and variants
that say nothing else."""


def seen_pairs(run: Run) -> csr_array:
    """Return how often each pair (input token, target) occurred in this run's batches; sparse [vocab, vocab].

    The batches of the run that it was initialised from count too. Of more than 2**30 tokens so many are counted, in
    evenly spread batches, and the counts are multiplied: a pair that the sample lacks then counts as unseen.
    """
    training, vocab, micro = run.training, run.model.vocab, run.training.micro_batch
    blocks = TokenBlocks(run.blocks, "train", training.sequence, vocab)
    counts = csr_array((vocab, vocab), dtype=np.int64)
    chunk = max(1, 2**20 // (micro * training.sequence))
    batches = training.steps * training.batch // micro + (run.init_from.batches if run.init_from else 0)
    counted = min(batches, max(1, COUNTED // (micro * training.sequence)))
    for first in range(0, counted, chunk):
        numbers = range(first, min(first + chunk, counted))
        rows = torch.cat([blocks.batch(run.seed, k * batches // counted, micro) for k in numbers]).numpy()
        pairs = (rows[:, :-1].ravel(), rows[:, 1:].ravel())
        counts = counts + coo_array((np.ones(len(pairs[0]), np.int64), pairs), shape=(vocab, vocab)).tocsr()
    if counted < batches:
        counts.data = np.rint(counts.data * (batches / counted)).astype(np.int64)
    return counts


def training_rows(run: Run) -> list[Result]:
    """Return how a run's training went: a row per step, up to where it diverged if it did.

    UserError: rows are missing.
    """
    rows = read_metrics(run.folder)
    steps = run.training.steps if run.diverged is None else run.diverged - 1
    if len(rows) != steps:
        raise UserError(
            f"{run.folder}/metrics.jsonl has {len(rows)} rows where the run has {steps} steps; train that run again"
        )
    return rows


def losses_of(model: Decoder, rows: torch.Tensor) -> torch.Tensor:
    """Return the losses of blocks [n, T + 1] in nats [n, T]."""
    rows = rows.to(next(model.parameters()).device)
    with torch.no_grad():
        return token_losses(model(rows[:, :-1]), rows[:, 1:]).cpu()


def validation_losses(
    model: Decoder, blocks: TokenBlocks, numbers: np.ndarray, batch: int, report: Callable[[int, float], None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Score blocks: return losses in nats, input tokens and targets, each [n, T]. UserError: a loss is not finite."""
    rows = blocks.at(numbers)
    nats = np.empty((len(rows), blocks.length))
    for first in range(0, len(rows), batch):
        losses = losses_of(model, rows[first : first + batch])
        nats[first : first + batch] = losses.numpy()
        report(first + len(losses), float(losses.mean()))
    if not np.isfinite(nats).all():
        raise UserError(f"a model gives losses that are not finite on {blocks.path}; its weights are damaged")
    return nats, rows[:, :-1].numpy(), rows[:, 1:].numpy()


def scored_blocks(run: Run, tokens: int) -> tuple[TokenBlocks, np.ndarray, np.ndarray, np.ndarray]:
    """Return held-out blocks of a run's text, of which `tokens` tokens of the scale's own text by source are scored.

    Return all blocks, numbers of those that are scored [n], each target's document [n, T], the documents' sources.
    """
    blocks = TokenBlocks(run.blocks, "validation", run.training.sequence, run.model.vocab)
    sources = np.array([document[1] for document in blocks.about["documents"]])
    return blocks, *blocks.spread(round(run.text_ratio * tokens)), sources


def shuffled_prefixes(rows: torch.Tensor, numbers: np.ndarray, half: int) -> torch.Tensor:
    """Return blocks [n, T + 1] with their first `half` tokens in another order, which the block's number fixes."""
    rows = rows.clone()
    for place, number in enumerate(numbers):
        order = np.random.Generator(np.random.PCG64([7, int(number)])).permutation(half)
        rows[place, :half] = rows[place, torch.from_numpy(order)]
    return rows


def sums(values: np.ndarray, documents: np.ndarray, buckets: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Sum values [n, T] by document and bucket, each [n, T] or of a shape that broadcasts to it -> `shape`."""
    keys = documents * shape[1] + buckets
    return np.bincount(keys.ravel(), weights=values.ravel(), minlength=shape[0] * shape[1]).reshape(shape)


def context_sums(
    model: Decoder,
    blocks: TokenBlocks,
    numbers: np.ndarray,
    documents: np.ndarray,
    nats: np.ndarray,
    batch: int,
    report: Callable[[int], None],
) -> dict[str, np.ndarray]:
    """Sum losses over the blocks that lie within one document.

    Args:
        documents: number of each target's document [n, T].
        nats: losses of the blocks as they are [n, T].

    Returns:
        by_position, by_position_tokens [documents, buckets of T]: losses and targets by position in the block;
        by_target [3, documents, buckets of T/2], by_target_tokens [documents, buckets]: of the second half under each
        condition, by offset from its start; document [documents]: their numbers in the index.
    """
    length = nats.shape[1]
    half, starts = length // 2, numbers * length
    begins, sizes = np.array([document[2:] for document in blocks.about["documents"]])[documents[:, 0]].T
    kept = np.flatnonzero((begins <= starts) & (starts + length < begins + sizes))
    losses = {"intact": nats[kept, half:], **{c: np.empty((len(kept), half)) for c in ("shuffled", "alone")}}
    for first in range(0, len(kept), batch):
        part = slice(first, first + batch)
        rows = blocks.at(numbers[kept[part]])
        mixed = shuffled_prefixes(rows, numbers[kept[part]], half)
        losses["shuffled"][part] = losses_of(model, mixed)[:, -half:].numpy()
        losses["alone"][part] = losses_of(model, rows[:, half:])[:, -half:].numpy()
        report(first + len(rows))
    chosen, place = np.unique(documents[kept, 0], return_inverse=True)
    by_position, by_offset = (
        np.searchsorted(position_edges(n), np.arange(n), side="right") - 1 for n in (length, half)
    )
    wide, narrow = (len(chosen), len(position_edges(length))), (len(chosen), len(position_edges(half)))
    ones = np.ones((len(kept), length))
    return {
        "document": chosen,
        "by_position": sums(nats[kept], place[:, None], by_position, wide),
        "by_position_tokens": sums(ones, place[:, None], by_position, wide).astype(int),
        "by_target": np.stack([sums(losses[c], place[:, None], by_offset, narrow) for c in CONTEXTS]),
        "by_target_tokens": sums(ones[:, half:], place[:, None], by_offset, narrow).astype(int),
    }


def score(run: Run, report: Report, asked: Evaluation, wanted: Collection[str]) -> Result:
    """Score one run.

    Args:
        wanted: what recipes read: "steps" of training, "losses", and "context" for losses by position, context and
            input token too.

    Returns:
        "curve": the run's metrics rows. Losses add to it, for a run that didn't diverge: "buckets": rows (by,
            source, bucket, tokens, nats, bytes); "documents": nats of each document [documents]; "document_tokens",
            "document_source" [documents]; "context": see `context_sums`, prose only; "tokens",
            "token_nats", "token_seen" [vocab]: targets after each input token, their nats, its count in training.
    """
    curve: Result = {"curve": training_rows(run)}
    if not {"losses", "context"}.intersection(wanted) or run.diverged is not None:
        return curve
    steps, vocab, model = run.training.steps, run.model.vocab, load_run(run)
    blocks, numbers, documents, names = scored_blocks(run, asked.tokens)
    nats, inputs, targets = validation_losses(
        model, blocks, numbers, asked.batch, lambda done, loss: report(int(steps / 2 * done / len(numbers)), loss, 0.0)
    )
    pairs = seen_pairs(run)
    frequency = np.asarray(pairs.sum(axis=1)).ravel()
    keys = {
        "pair": np.asarray(pairs[inputs.ravel(), targets.ravel()]).ravel(),
        "frequency": frequency[inputs].ravel(),
        "position": np.tile(np.arange(blocks.length), len(inputs)),
    }
    sources, result = names[documents], curve
    if "context" in wanted:
        long = np.isin(sources[:, 0], prose(np.unique(sources)))

        def halfway(done: int) -> None:
            report(int(steps / 2 * (1 + done / long.sum())), float(nats.mean()), 0.0)

        chosen = (numbers[long], documents[long], nats[long])
        result |= {
            "tokens": np.bincount(inputs.ravel(), minlength=vocab),
            "token_nats": np.bincount(inputs.ravel(), weights=nats.ravel(), minlength=vocab),
            "token_seen": frequency,
            "context": context_sums(model, blocks, *chosen, asked.batch, halfway),
        }
    size = np.array(blocks.index["token_bytes"])[targets]
    frame = pd.DataFrame({"source": sources.ravel(), "nats": nats.ravel(), "bytes": size.ravel(), "tokens": 1})
    tables = []
    for by, key in keys.items():
        buckets = [bucket_name(BUCKETS[by], number) for number in range(len(BUCKETS[by]))]
        frame["bucket"] = np.array(buckets)[np.searchsorted(BUCKETS[by], key, side="right") - 1]
        summed = frame.groupby(["source", "bucket"], as_index=False)[["tokens", "nats", "bytes"]].sum()
        tables.append(summed.assign(by=by))
    return result | {
        "buckets": pd.concat(tables),
        "documents": np.bincount(documents.ravel(), weights=nats.ravel(), minlength=len(names)),
        "document_tokens": np.bincount(documents.ravel(), minlength=len(names)),
        "document_source": names,
    }


def unigram_entropy(run: Run, settings: Evaluation) -> float:
    """Return the loss in nats per token of the best predictor without context (add-one counts), on validation prose."""
    train = TokenBlocks(run.blocks, "train", run.training.sequence, run.model.vocab)
    counts = train.frequencies(run.model.vocab) + 1.0
    blocks, numbers, documents, names = scored_blocks(run, settings.tokens)
    sources, targets = names[documents], blocks.at(numbers)[:, 1:].numpy()
    return float(-np.log(counts / counts.sum())[targets[np.isin(sources, prose(np.unique(sources)))]].mean())


def training_entropy(run: Run) -> float:
    """Return the entropy of the training tokens in nats per token: what knowing their frequencies is worth."""
    counts = TokenBlocks(run.blocks, "train", run.training.sequence, run.model.vocab).frequencies(run.model.vocab)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _means(buckets: pd.DataFrame) -> Result:
    """Return nats per token and bits per byte, by source and for `prose` and `all` (every source the same weight)."""
    sums = buckets[buckets.by == "pair"].groupby("source")[["tokens", "nats", "bytes"]].sum()
    nats, bits = sums.nats / sums.tokens, sums.nats / np.log(2) / sums.bytes
    mixes = {"all": list(sums.index), "prose": list(prose(sums.index))}
    rows = {source: (nats[source], bits[source]) for source in sums.index}
    rows |= {mix: (nats[members].mean(), bits[members].mean()) for mix, members in mixes.items()}
    return {name: {"nats_per_token": float(a), "bits_per_byte": float(b)} for name, (a, b) in rows.items()}


def _about(scored: Scored) -> Result:
    first, training = scored.runs[0], scored.runs[0].training
    return {
        "seed_numbers": scored.seeds,
        "steps": training.steps,
        "forward_flops_per_token": flops_per_token(first.model, training.sequence),
        "learning_rate": training.learning_rate,
        "training_entropy": round(training_entropy(first), 6),
        "parameters": parameter_counts(first.model),
    }


def _steps(scored: Scored) -> pd.DataFrame:
    lines = [
        (run.seed, step, row["loss"], row["norm"])
        for run, result in zip(scored.runs, scored.results, strict=True)
        for step, row in enumerate(result["curve"], 1)
    ]
    return pd.DataFrame(lines, columns=["seed", "step", "loss", "norm"]).astype(
        dict.fromkeys(("loss", "norm"), np.float32)
    )


def _buckets(result: Result) -> pd.DataFrame:
    return result["buckets"].round(6)


def _documents(scored: Scored) -> pd.DataFrame:
    """Return sums over the first seeds, of counts of SUMMED and of all, as far as the first seeds didn't diverge."""
    shared, before = scored.ended[0][1], len(scored.kept_seeds)
    kept = shared["document_tokens"] > 0
    ended = next((n for n, run in enumerate(scored.runs) if run.diverged is not None), len(scored.runs)) + before
    counts = sorted({count for count in (*SUMMED, len(scored.seeds)) if before < count <= ended})
    begin = np.zeros(kept.sum())
    if before:
        lines = scored.kept["documents"]
        begin = lines.loc[lines["seeds"] == before, "nats"].to_numpy()
    sums = [
        begin + np.sum([result["documents"][kept] for result in scored.results[: count - before]], axis=0)
        for count in counts
    ]
    return long(
        ("sum", "document"),
        seeds=np.array(counts, np.int64)[:, None],
        source=shared["document_source"][kept],
        tokens=shared["document_tokens"][kept],
        nats=np.reshape(sums, (len(counts), kept.sum())),
    )


def _curve(scored: Scored) -> pd.DataFrame:
    cost = 3 * flops_per_token(scored.runs[0].model, scored.runs[0].training.sequence)
    lines = [
        (run.seed, row["tokens"], source, row["tokens"] * cost, row["loss"], nats)
        for run, result in scored.ended
        for row in result["curve"]
        for source, nats in row.get("validation", {}).items()
    ]
    return pd.DataFrame(lines, columns=["seed", "tokens", "source", "flops", "train", "nats"]).round(6)


def _context(result: Result, what: str) -> pd.DataFrame:
    sums = result["context"]
    if what == "position":
        nats, tokens = sums["by_position"], sums["by_position_tokens"]
    else:
        nats, tokens = sums["by_target"][CONTEXTS.index(what)], sums["by_target_tokens"]
    at, source = np.array(position_edges(2**20)[: nats.shape[1]]), result["document_source"][sums["document"]]
    axes = ("document", "bucket")
    return long(axes, what=np.array(what), at=at, source=source[:, None], tokens=tokens, nats=nats)


def _tokens(result: Result) -> pd.DataFrame:
    return long(("token",), tokens=result["tokens"], nats=result["token_nats"], seen=result["token_seen"])


def _loss(losses: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return means over the seeds of a table of losses."""
    means = [_means(of_seed) for _, of_seed in losses.groupby("seed")]
    return {
        name: {unit: round(float(np.mean([mean[name][unit] for mean in means])), 6) for unit in means[0][name]}
        for name in means[0]
    }


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return training, costs and mean losses of an arm, and those of its tables that recipes read (all its seeds)."""
    about, made = _about(scored), {}
    if "steps" in scored.given["wanted"]:
        made["steps"] = _steps(scored)
    if any("buckets" in result for result in scored.results):
        made |= {"losses": scored.lines(_buckets), "documents": _documents(scored), "curve": _curve(scored)}
        entropy = unigram_entropy(scored.runs[0], scored.given["asked"])
        about["unigram_nats_per_token"] = round(entropy, 6)
        if "context" in scored.ended[0][1]:
            made["context"] = pd.concat([scored.lines(_context, what) for what in ("position", *CONTEXTS)])
            made["tokens"] = scored.lines(_tokens)
    if scored.kept:
        if odd := ", ".join(sorted(scored.kept.keys() ^ made.keys())):
            why = f"{odd}: in the scores before or in those now alone"
            raise UserError(
                f"seeds of {scored.runs[0].address} can't be added to its scores ({why}); train all of them"
            )
        made = {name: pd.concat([scored.kept[name], frame], ignore_index=True) for name, frame in made.items()}
    if "losses" in made:
        about["loss"] = _loss(made["losses"])
    return about, {name: frame for name, frame in made.items() if len(frame)}
