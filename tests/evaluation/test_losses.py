"""Scores against counting by hand."""

import itertools
import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import entropy

from stemrepro.data.blocks import TokenBlocks
from stemrepro.errors import UserError
from stemrepro.evaluation.losses import score, seen_pairs, steps, write_scores, write_steps
from stemrepro.files import read_rows
from stemrepro.model.transformer import Decoder
from stemrepro.training.train import train
from tests.conftest import quiet


@pytest.fixture
def scored(make_run):
    run = make_run("stem-full")
    train(run, quiet)
    return run, score(run, quiet, context=True)


def pairs_by_hand(run):
    blocks, counts = TokenBlocks(run.blocks, "train", 32, 300), Counter()
    for k in range(run.scale.steps * 2):
        for row in blocks.batch(run.seed, k, 2).tolist():
            counts.update(itertools.pairwise(row))
    return counts


def test_seen_pairs_are_those_of_the_batches(make_run):
    run = make_run("dense", seed=4)
    found, expected = seen_pairs(run), pairs_by_hand(run)
    assert found.sum() == run.scale.training.tokens
    assert all(found[pair] == count for pair, count in expected.items())
    assert found.nnz == len(expected)


def test_buckets_equal_a_loop_over_tokens(scored):
    run, result = scored
    blocks = TokenBlocks(run.blocks, "validation", 32, 300)
    model = Decoder(run.model)
    model.load_state_dict(load_file(run.weights))
    counts, frequency = pairs_by_hand(run), Counter()
    for (first, _), count in counts.items():
        frequency[first] += count
    expected: dict = {}
    numbers, _ = blocks.spread(run.scale.evaluation.tokens)
    owners = blocks.about["documents"]
    for number in numbers:
        row = blocks.at(np.array([number]))
        with torch.no_grad():
            likelihood = model(row[:, :-1])[0].log_softmax(-1)
        for t in range(32):
            x, y = int(row[0, t]), int(row[0, t + 1])
            place = number * 32 + t + 1
            source = next(s for _, s, start, length in owners if start <= place < start + length)
            n = counts[x, y]
            pair = "0" if n == 0 else "1-3" if n < 4 else "4-31" if n < 32 else "32+"
            f = frequency[x]
            often = (
                "0" if f == 0 else "1-31" if f < 32 else "32-255" if f < 256 else "256-2047" if f < 2048 else "2048+"
            )
            position = "0" if t == 0 else "1-3" if t < 4 else "4-15" if t < 16 else "16-63"
            for by, bucket in (("pair", pair), ("frequency", often), ("position", position)):
                cell = expected.setdefault((by, source, bucket), [0, 0.0])
                cell[0] += 1
                cell[1] -= float(likelihood[t, y])
    found = {(r.by, r.source, r.bucket): (r.tokens, r.nats) for r in result["buckets"].itertuples()}
    assert found.keys() == expected.keys()
    for key, (tokens, nats) in expected.items():
        assert found[key][0] == tokens
        assert found[key][1] == pytest.approx(nats, rel=1e-5)


def test_documents_add_up_to_the_total(scored):
    _, result = scored
    pair = result["buckets"][result["buckets"].by == "pair"]
    assert result["documents"].sum() == pytest.approx(pair.nats.sum())
    assert result["document_tokens"].sum() == pair.tokens.sum()


def test_score_files_are_complete_and_repeatable(scored, tmp_path):
    run, result = scored
    write_scores([run], [result], tmp_path / "a")
    write_scores([run], [score(run, quiet, context=True)], tmp_path / "b")
    names = {"summary.json", "losses.csv", "curve.csv", "documents.npz", "context.npz", "tokens.npz", "steps.npz"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == names
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names)
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    losses = pd.read_csv(tmp_path / "a" / "losses.csv")
    speeches = losses[(losses.by == "pair") & (losses.source == "speeches")]
    assert summary["loss"]["speeches"]["nats_per_token"] == pytest.approx(
        speeches.nats.sum() / speeches.tokens.sum(), abs=1e-5
    )
    bits = speeches.nats.sum() / np.log(2) / speeches.bytes.sum()
    assert summary["loss"]["speeches"]["bits_per_byte"] == pytest.approx(bits, abs=1e-5)
    assert 4 < summary["unigram_nats_per_token"] < np.log(300)


def test_without_context_the_losses_are_the_same(scored, tmp_path):
    run, result = scored
    short = score(run, quiet, context=False)
    assert short["buckets"].equals(result["buckets"])
    write_scores([run], [short], tmp_path / "a")
    names = {"summary.json", "losses.csv", "curve.csv", "documents.npz", "steps.npz"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == names


def test_steps_hold_every_training_step(scored, tmp_path):
    run, _ = scored
    write_steps([run], [steps(run)], tmp_path / "a")
    rows, found = read_rows(run.folder / "metrics.jsonl"), np.load(tmp_path / "a" / "steps.npz")
    assert found["loss"][0] == pytest.approx([row["loss"] for row in rows])
    assert found["norm"][0] == pytest.approx([row["norm"] for row in rows])
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert (summary["seeds"], summary["learning_rate"]) == (1, run.learning_rate)
    tokens = np.fromfile(run.blocks / "train.bin", np.uint16)
    assert summary["training_entropy"] == pytest.approx(entropy(np.bincount(tokens)), abs=1e-5)


def test_damaged_metrics_are_named(scored):
    run, _ = scored
    path = run.folder / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UserError, match=r"metrics\.jsonl is missing or damaged"):
        read_rows(path)
