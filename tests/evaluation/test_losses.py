"""Scores against counting by hand, and losses after more and less context against one forward pass per block."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_rows
from stemrepro.config.buckets import CONTEXTS
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation import losses
from stemrepro.evaluation.losses import context_sums, score, seen_pairs
from stemrepro.evaluation.weights import load_run
from stemrepro.model.transformer import build
from stemrepro.training.run import InitFrom
from stemrepro.training.train import train
from tests.conftest import quiet, tables_of


@pytest.fixture
def scored(make_run, tiny):
    run = make_run("stem-full")
    train(run, quiet)
    return run, score(run, quiet, tiny.evaluation, ["context"])


def pairs_by_hand(run, every=1):
    """Pairs of the run's batches of two, or of one in so many."""
    blocks, counts = TokenBlocks(run.blocks, "train", 32, 300), Counter()
    for k in range(0, run.training.steps * 2, every):
        for row in blocks.batch(run.seed, k, 2).tolist():
            counts.update(itertools.pairwise(row))
    return counts


def test_seen_pairs_are_those_of_the_batches(make_run):
    run = make_run("dense", seed=4)
    pairs, expected = seen_pairs(run), pairs_by_hand(run)
    assert pairs.sum() == run.training.tokens
    assert all(pairs[pair] == count for pair, count in expected.items())
    assert pairs.nnz == len(expected)


def test_seen_pairs_of_a_long_text_come_from_batches_evenly_spread(make_run, monkeypatch):
    run = make_run("dense", seed=4)
    monkeypatch.setattr(losses, "COUNTED", 8 * 2 * 32)  # a third of 24 batches
    pairs, counts = seen_pairs(run), pairs_by_hand(run, 3)
    assert pairs.nnz == len(counts)
    assert all(pairs[pair] == 3 * count for pair, count in counts.items())


def test_seen_pairs_of_a_later_stage_are_also_those_of_the_text_before_it(make_run):
    """Two stages on the same text in one order see what one long run sees."""
    whole = make_run("dense", seed=4)
    half = whole.training.model_copy(update={"tokens": whole.training.tokens // 2})
    earlier = InitFrom(whole.folder, "", "kept", half.tokens, batches=half.tokens // (half.micro_batch * half.sequence))
    second = replace(whole, training=half, init_from=earlier)
    assert (seen_pairs(second) != seen_pairs(whole)).nnz == 0
    assert seen_pairs(replace(second, init_from=None)).sum() == half.tokens


def test_buckets_equal_a_loop_over_tokens(scored, tiny):
    run, result = scored
    blocks = TokenBlocks(run.blocks, "validation", 32, 300)
    model = load_run(run)
    counts, frequency, expected = pairs_by_hand(run), Counter(), {}
    for (first, _), count in counts.items():
        frequency[first] += count
    numbers, _ = blocks.spread(tiny.evaluation.tokens)
    owners = blocks.about["documents"]
    for number in numbers:
        row = blocks.at(np.array([number]))
        with torch.no_grad():
            likelihood = model(row[:, :-1])[0].log_softmax(-1)
        for t in range(32):
            x, y = int(row[0, t]), int(row[0, t + 1])
            place = number * 32 + t + 1
            source = next(s for _, s, start, length in owners if start <= place < start + length)
            n, f = counts[x, y], frequency[x]
            pair = "0" if n == 0 else "1-3" if n < 4 else "4-31" if n < 32 else "32+"
            often = "0" if f == 0 else "1-31" if f < 32 else "32-255" if f < 256 else "256-2047"
            assert f < 2048
            position = "0" if t == 0 else "1-3" if t < 4 else "4-15" if t < 16 else "16-63"
            for by, bucket in (("pair", pair), ("frequency", often), ("position", position)):
                cell = expected.setdefault((by, source, bucket), [0, 0.0])
                cell[0] += 1
                cell[1] -= float(likelihood[t, y])
    buckets = {(r.by, r.source, r.bucket): (r.tokens, r.nats) for r in result["buckets"].itertuples()}
    assert buckets.keys() == expected.keys()
    for key, (tokens, nats) in expected.items():
        assert (buckets[key][0], buckets[key][1]) == (tokens, pytest.approx(nats, rel=1e-5))


def test_documents_add_up_to_the_total(scored):
    _, result = scored
    pair = result["buckets"][result["buckets"].by == "pair"]
    assert result["documents"].sum() == pytest.approx(pair.nats.sum())
    assert result["document_tokens"].sum() == pair.tokens.sum()


@pytest.fixture
def tabled(tiny):
    """tabled(runs, results, "context") -> what is known of the arm, and its tables."""

    def made(runs, results, *wanted):
        return tables_of("losses", runs, results, {"asked": tiny.evaluation, "wanted": wanted})

    return made


def test_tables_are_those_that_are_wanted_and_repeatable(scored, tiny, tabled):
    run, result = scored
    summary, tables = tabled([run], [result], "context")
    _, again = tabled([run], [score(run, quiet, tiny.evaluation, ["context"])], "context")
    assert tables.keys() == again.keys() == {"losses", "curve", "documents", "context", "tokens"}
    assert all(frame.equals(again[name]) for name, frame in tables.items())
    pairs = tables["losses"].query("by == 'pair'")
    speeches, loss = pairs[pairs.source == "speeches"].sum(), summary["loss"]["speeches"]
    assert loss["nats_per_token"] == pytest.approx(speeches.nats / speeches.tokens, abs=1e-5)
    assert loss["bits_per_byte"] == pytest.approx(speeches.nats / np.log(2) / speeches.bytes, abs=1e-5)
    assert 4 < summary["unigram_nats_per_token"] < np.log(300)
    assert tables["tokens"]["nats"].sum() == pytest.approx(pairs.nats.sum())
    assert tables["tokens"]["tokens"].sum() == pairs.tokens.sum()
    first = Counter(token for token, _ in pairs_by_hand(run).elements())
    assert tables["tokens"]["seen"].tolist() == [first[token] for token in range(300)]


def test_context_has_a_line_per_document_condition_and_bucket(scored, tabled):
    run, result = scored
    _, tables = tabled([run], [result], "context")
    sums, lines = result["context"], tables["context"]
    assert lines["what"].unique().tolist() == ["position", "intact", "shuffled", "alone"]
    for line in lines.itertuples():
        bucket = [0, 1, 2, 4, 8, 16].index(line.at)
        if line.what == "position":
            nats, tokens = sums["by_position"], sums["by_position_tokens"]
        else:
            which = ["intact", "shuffled", "alone"].index(line.what)
            nats, tokens = sums["by_target"][which], sums["by_target_tokens"]
        assert (line.nats, line.tokens) == (nats[line.document, bucket], tokens[line.document, bucket])
        assert line.source == result["document_source"][sums["document"][line.document]]
    assert len(lines) == sums["by_position"].size + sums["by_target"].size


def test_without_context_the_losses_are_the_same(scored, tiny, tabled):
    run, result = scored
    short = score(run, quiet, tiny.evaluation, ["losses"])
    assert short["buckets"].equals(result["buckets"])
    summary, tables = tabled([run], [short], "losses")
    assert tables.keys() == {"losses", "curve", "documents"}
    assert (summary["seed_numbers"], summary["steps"]) == ([run.seed], run.training.steps)


def test_steps_hold_every_training_step(scored, tiny, tabled):
    run, _ = scored
    summary, tables = tabled([run], [score(run, quiet, tiny.evaluation, ["steps"])], "steps")
    assert tables.keys() == {"steps"}
    rows, steps = read_rows(run.folder / "metrics.jsonl"), tables["steps"]
    assert steps["step"].tolist() == [row["step"] for row in rows]
    assert steps["loss"].tolist() == pytest.approx([row["loss"] for row in rows])
    assert steps["norm"].tolist() == pytest.approx([row["norm"] for row in rows])
    assert summary["steps"] == len(rows)
    assert summary["learning_rate"] == run.training.learning_rate
    tokens = np.fromfile(run.blocks / "train.bin", np.uint16)
    assert summary["training_entropy"] == pytest.approx(entropy(np.bincount(tokens)), abs=1e-5)


def test_the_curve_has_every_validation_by_source(scored, tabled):
    run, result = scored
    _, tables = tabled([run], [result], "losses")
    expected = [
        [run.seed, row["tokens"], source, round(row["loss"], 6), round(nats, 6)]
        for row in read_rows(run.folder / "metrics.jsonl")
        for source, nats in row.get("validation", {}).items()
    ]
    assert tables["curve"][["seed", "tokens", "source", "train", "nats"]].to_numpy().tolist() == expected


def test_a_run_that_diverged_has_steps_alone(scored, make_run, tiny, tabled):
    """And the other seeds have everything."""
    run, result = scored
    other = make_run("stem-full", seed=1)
    train(other, quiet)
    rows = (other.folder / "metrics.jsonl").read_text().splitlines()[:6]
    (other.folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    (other.folder / "diverged.json").write_text('{"step": 7}')
    ended = score(other, quiet, tiny.evaluation, ["context"])
    assert ended.keys() == {"curve"}
    _, tables = tabled([run, other], [result, ended], "steps", "context")
    assert tables["steps"].groupby("seed")["step"].agg(list).tolist() == [[*range(1, 13)], [*range(1, 7)]]
    assert set(tables["losses"]["seed"]) == {0}
    assert "documents" not in tables
    assert tabled([other], [ended], "steps", "context")[1].keys() == {"steps"}


def test_documents_are_summed_over_the_first_seeds(scored, tabled):
    run, result = scored
    results = [result | {"documents": result["documents"] * factor} for factor in range(1, 7)]
    _, tables = tabled([replace(run, seed=seed) for seed in range(6)], results, "losses")
    kept = result["document_tokens"] > 0
    for seeds, factor in ((3, 6), (5, 15), (6, 21)):
        lines = tables["documents"][tables["documents"]["seeds"] == seeds]
        assert lines["nats"].tolist() == pytest.approx(factor * result["documents"][kept])
        assert lines["tokens"].tolist() == result["document_tokens"][kept].tolist()
        assert lines["source"].tolist() == result["document_source"][kept].tolist()
    assert set(tables["documents"]["seeds"]) == {3, 5, 6}


def test_a_loss_that_is_not_finite_is_no_loss_of_nothing(scored, tiny, monkeypatch):
    """One NaN used to give a loss of 0.000000, the best possible."""
    run, _ = scored
    model = load_run(run)
    model.head.weight.data.fill_(3e38)  # a number, unlike the logits
    monkeypatch.setattr(losses, "load_run", lambda _: model)
    with pytest.raises(UserError, match=r"losses that are not finite on .*validation\.bin; its weights are damaged"):
        score(run, quiet, tiny.evaluation, ["losses"])


@pytest.fixture
def halves(make_run):
    run = make_run("stem-full")
    blocks = TokenBlocks(run.blocks, "validation", 32, 300)
    model = build(run.model, 0).eval()
    starts = [start for _, _, start, _ in blocks.about["documents"]]
    numbers = np.unique([start // 32 + k for start in starts for k in range(5)])  # some hold a document's end
    numbers = numbers[numbers < blocks.count]
    documents = np.searchsorted(starts, numbers[:, None] * 32 + 1 + np.arange(32), side="right") - 1
    nats = np.concatenate([loss(model, blocks.at(numbers[[i]]))[None] for i in range(len(numbers))])
    return model, blocks, numbers, documents, nats


def loss(model, row):
    """Losses of one sequence [1, T + 1] -> [T]."""
    with torch.no_grad():
        likelihood = model(row[:, :-1])[0].log_softmax(-1)
    return -likelihood[torch.arange(row.shape[1] - 1), row[0, 1:]].numpy()


def test_sums_equal_a_loop_over_blocks(halves):
    model, blocks, numbers, documents, nats = halves
    result = context_sums(model, blocks, numbers, documents, nats, 5, quiet)
    expected = {name: np.zeros_like(result[name], float) for name in ("by_position", "by_target")}
    kept = 0
    for number, owners in zip(numbers, documents, strict=True):
        _, _, start, length = blocks.about["documents"][owners[0]]
        if not start <= number * 32 or not number * 32 + 32 < start + length:
            continue
        kept += 1
        place = list(result["document"]).index(owners[0])
        row = blocks.at(np.array([number]))
        order = np.random.Generator(np.random.PCG64([7, int(number)])).permutation(16)
        mixed = torch.cat([row[:, :16][:, order], row[:, 16:]], dim=1)
        losses = {"intact": loss(model, row), "shuffled": loss(model, mixed), "alone": loss(model, row[:, 16:])}
        for t in range(32):
            expected["by_position"][place, t.bit_length()] += losses["intact"][t]
        for which, condition in enumerate(CONTEXTS):
            for t in range(16):
                expected["by_target"][which, place, t.bit_length()] += losses[condition][-16:][t]
    assert kept > 3
    assert kept < len(numbers)
    assert result["by_position_tokens"].sum() == 32 * kept
    assert result["by_target_tokens"].sum() == 16 * kept
    for name, sums in expected.items():
        assert np.allclose(result[name], sums, rtol=1e-4, atol=1e-4)
