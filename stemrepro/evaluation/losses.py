"""Validation losses of finished runs, split by source, position, token frequency, token pair and document.

Written a whole arm at a time, as small files that git keeps: losses.csv (sums a seed and bucket), documents.npz (sums a
document, for the error between items), curve.csv (losses during training), context.npz (stemrepro.evaluation.context),
tokens.npz (sums an input token), steps.npz (losses and gradient norms of training), summary.json (means over seeds). At a
recipe's points there are no context.npz and tokens.npz.
"""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.sparse import coo_array, csr_array

from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.sources import prose
from stemrepro.evaluation.buckets import BUCKETS, bucket_name
from stemrepro.evaluation.context import context_sums
from stemrepro.evaluation.weights import load_run
from stemrepro.files import atomic_write, read_rows, write_json
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.model.loss import token_losses
from stemrepro.training.spec import Run


def seen_pairs(run: Run) -> csr_array:
    """How often each pair (input token, target) occurred in the batches this run saw, sparse [vocab, vocab]."""
    scale, vocab = run.scale, run.model.vocab
    blocks = TokenBlocks(run.blocks, "train", scale.model.sequence, vocab)
    counts = csr_array((vocab, vocab), dtype=np.int64)
    micro = scale.training.micro_batch
    chunk = max(1, 2**20 // (micro * scale.model.sequence))
    batches = scale.steps * scale.training.batch // micro
    for first in range(0, batches, chunk):
        numbers = range(first, min(first + chunk, batches))
        rows = torch.cat([blocks.batch(run.seed, k, micro) for k in numbers]).numpy()
        pairs = (rows[:, :-1].ravel(), rows[:, 1:].ravel())
        counts = counts + coo_array((np.ones(len(pairs[0]), np.int64), pairs), shape=(vocab, vocab)).tocsr()
    return counts


def steps(run: Run) -> dict:
    """How a run's training went: "curve": its metrics rows."""
    return {"curve": read_rows(run.folder / "metrics.jsonl")}


def score(run: Run, report: Callable, context: bool) -> dict:
    """Scores one run on the validation split.

    Args:
        context: also by position and context, and by input token.

    Returns:
        "buckets": rows (by, source, bucket, tokens, nats, bytes); "documents": nats of each document [documents];
        "document_tokens" [documents]; "context": see stemrepro.evaluation.context, prose only; "tokens", "token_nats",
        "token_seen" [vocab]: targets behind each input token, their nats, its count in training; "curve": the run's metrics rows.
    """
    scale = run.scale
    blocks = TokenBlocks(run.blocks, "validation", scale.model.sequence, run.model.vocab)
    model = load_run(run)
    numbers, documents = blocks.spread(scale.evaluation.tokens)
    nats = np.empty(documents.shape)
    inputs, targets = np.empty(documents.shape, np.int64), np.empty(documents.shape, np.int64)
    with torch.no_grad():
        for first in range(0, len(numbers), scale.evaluation.batch):
            part = slice(first, first + scale.evaluation.batch)
            rows = blocks.at(numbers[part])
            losses = token_losses(model(rows[:, :-1]), rows[:, 1:])
            nats[part], inputs[part], targets[part] = losses.numpy(), rows[:, :-1].numpy(), rows[:, 1:].numpy()
            report(int(scale.steps / 2 * (first + len(rows)) / len(numbers)), float(losses.mean()), 0.0)
    pairs = seen_pairs(run)
    frequency = np.asarray(pairs.sum(axis=1)).ravel()
    keys = {
        "pair": np.asarray(pairs[inputs.ravel(), targets.ravel()]).reshape(inputs.shape),
        "frequency": frequency[inputs],
        "position": np.broadcast_to(np.arange(scale.model.sequence), inputs.shape),
    }
    sources = np.array([document[1] for document in blocks.about["documents"]])[documents]
    long = np.isin(sources[:, 0], prose(np.unique(sources)))
    sums = {}
    if context:
        sums = {
            "tokens": np.bincount(inputs.ravel(), minlength=run.model.vocab),
            "token_nats": np.bincount(inputs.ravel(), weights=nats.ravel(), minlength=run.model.vocab),
            "token_seen": frequency,
            "context": context_sums(
                model, blocks, numbers[long], documents[long], nats[long], scale.evaluation.batch,
                lambda done: report(int(scale.steps / 2 * (1 + done / long.sum())), float(nats.mean()), 0.0),
            ),
        }  # fmt: skip
    size = np.array(blocks.index["token_bytes"])[targets]
    frame = pd.DataFrame({"source": sources.ravel(), "nats": nats.ravel(), "bytes": size.ravel(), "tokens": 1})
    tables = []
    for by, key in keys.items():
        names = [bucket_name(BUCKETS[by], number) for number in range(len(BUCKETS[by]))]
        frame["bucket"] = np.array(names)[np.searchsorted(BUCKETS[by], key.ravel(), side="right") - 1]
        found = frame.groupby(["source", "bucket"], as_index=False)[["tokens", "nats", "bytes"]].sum()
        tables.append(found.assign(by=by))
    count = len(blocks.about["documents"])
    return {
        "buckets": pd.concat(tables),
        "documents": np.bincount(documents.ravel(), weights=nats.ravel(), minlength=count),
        "document_tokens": np.bincount(documents.ravel(), minlength=count),
        "document_source": np.array([document[1] for document in blocks.about["documents"]]),
        **sums,
        **steps(run),
    }


def unigram_entropy(run: Run) -> float:
    """Loss in nats per token, on the validation blocks of prose, of the best predictor without context (add-one counts)."""
    scale = run.scale
    blocks = TokenBlocks(run.blocks, "validation", scale.model.sequence, run.model.vocab)
    train = TokenBlocks(run.blocks, "train", scale.model.sequence, run.model.vocab)
    counts = np.bincount(train.tokens, minlength=run.model.vocab) + 1.0
    numbers, documents = blocks.spread(scale.evaluation.tokens)
    sources = np.array([document[1] for document in blocks.about["documents"]])[documents]
    targets = blocks.at(numbers)[:, 1:].numpy()
    return float(-np.log(counts / counts.sum())[targets[np.isin(sources, prose(np.unique(sources)))]].mean())


def training_entropy(run: Run) -> float:
    """Entropy of the training tokens in nats per token: what knowing their frequencies is worth."""
    tokens = TokenBlocks(run.blocks, "train", run.scale.model.sequence, run.model.vocab).tokens
    shares = np.bincount(tokens) / len(tokens)
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())


def _means(buckets: pd.DataFrame) -> dict:
    """Nats per token and bits per byte, by source and for the mixes `prose` and `all` (every source the same weight)."""
    sums = buckets[buckets.by == "pair"].groupby("source")[["tokens", "nats", "bytes"]].sum()
    nats, bits = sums.nats / sums.tokens, sums.nats / np.log(2) / sums.bytes
    mixes = {"all": list(sums.index), "prose": list(prose(sums.index))}
    rows = {source: (nats[source], bits[source]) for source in sums.index}
    rows |= {mix: (nats[members].mean(), bits[members].mean()) for mix, members in mixes.items()}
    return {name: {"nats_per_token": float(a), "bits_per_byte": float(b)} for name, (a, b) in rows.items()}


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    atomic_write(path, buffer.getvalue())


def write_steps(runs: list[Run], results: list[dict], out: Path, **about: object) -> None:
    """Writes steps.npz (loss, norm [seeds, steps]) and summary.json of one arm; a run that was cut short by a loss that is no
    number has none from there on."""
    first = runs[0]
    columns = {
        name: np.stack([[row[name] for row in result["curve"]] for result in results]).astype(np.float32)
        for name in ("loss", "norm")
    }
    _write_arrays(out / "steps.npz", {"seeds": np.array([run.seed for run in runs]), **columns})
    shared = {
        "forward_flops_per_token": flops_per_token(first.model, first.scale.model.sequence),
        "learning_rate": first.learning_rate,
        "training_entropy": round(training_entropy(first), 6),
        "params_hash": first.params_hash,
        "data_hash": first.data_hash[:12],
        "seeds": len(runs),
    }
    write_json(out / "summary.json", about | shared)


def write_scores(runs: list[Run], results: list[dict], out: Path) -> None:
    """Writes the score files of one arm (all its seeds); equal results give equal bytes."""
    first, scale = runs[0], runs[0].scale
    buckets = pd.concat([r["buckets"].assign(seed=run.seed) for run, r in zip(runs, results, strict=True)])
    columns = ["seed", "by", "source", "bucket", "tokens", "nats", "bytes"]
    atomic_write(out / "losses.csv", buckets[columns].to_csv(index=False, float_format="%.6f"))
    scored = results[0]["document_tokens"] > 0
    seeds = np.array([run.seed for run in runs])
    _write_arrays(out / "documents.npz", {
        "seeds": seeds, "source": results[0]["document_source"][scored],
        "tokens": results[0]["document_tokens"][scored], "nats": np.stack([r["documents"][scored] for r in results]),
    })  # fmt: skip
    if "context" in results[0]:
        sums = [result["context"] for result in results]
        _write_arrays(out / "context.npz", {
            "seeds": seeds, "source": results[0]["document_source"][sums[0]["document"]],
            **{name: sums[0][name] for name in ("by_position_tokens", "by_target_tokens")},
            **{name: np.stack([own[name] for own in sums]) for name in ("by_position", "by_target")},
        })  # fmt: skip
        _write_arrays(out / "tokens.npz", {
            "seeds": seeds, "tokens": results[0]["tokens"], "nats": np.stack([r["token_nats"] for r in results]),
            "seen": np.stack([r["token_seen"] for r in results]),
        })  # fmt: skip
    cost = flops_per_token(first.model, scale.model.sequence)
    curve = [
        {"seed": run.seed, "tokens": row["tokens"], "flops": row["tokens"] * 3 * cost, "train": row["loss"], **marks}
        for run, result in zip(runs, results, strict=True)
        for row in result["curve"]
        if (marks := row.get("validation"))
    ]
    atomic_write(out / "curve.csv", pd.DataFrame(curve).to_csv(index=False, float_format="%.6f"))
    seeds = [_means(result["buckets"]) for result in results]
    mean = {
        name: {unit: round(float(np.mean([seed[name][unit] for seed in seeds])), 6) for unit in seeds[0][name]}
        for name in seeds[0]
    }
    unigram, parameters = round(unigram_entropy(first), 6), parameter_counts(first.model)
    write_steps(runs, results, out, loss=mean, unigram_nats_per_token=unigram, parameters=parameters)
