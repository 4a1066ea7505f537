"""Distances of the last same token against a plain search, and sums against counting one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.distance import last_same, score
from stemrepro.evaluation.losses import validation_losses
from stemrepro.evaluation.weights import load_run
from stemrepro.training.train import train
from tests.conftest import quiet, tables_of


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30))
def test_distance_by_a_plain_search(tokens):
    row = np.array([tokens])
    distances = last_same(row[:, :-1], row[:, 1:])[0].tolist()
    for place, back_at in enumerate(distances, 1):  # of the token at `place`
        nearest = next((back for back in range(1, place + 1) if tokens[place - back] == tokens[place]), 0)
        assert back_at == nearest


def test_sums_are_those_of_single_targets(make_run, tiny):
    run = make_run("stem-third")
    train(run, quiet)
    result = score(run, quiet, tiny.evaluation)
    blocks = TokenBlocks(run.blocks, "validation", run.training.sequence, run.model.vocab)
    numbers, documents = blocks.spread(tiny.evaluation.tokens)
    names = [document[1] for document in blocks.about["documents"]]
    assert set(result["source"]) == {"speeches", "bible"}
    nats, _, targets = validation_losses(load_run(run), blocks, numbers, 4, quiet)
    rows = blocks.at(numbers).numpy()
    edges = [0, 1, 2, 4, 8, 16, 32]
    wanted = {name: np.zeros((len(edges), 2)) for name in ("distance", "position")}
    words = np.zeros((run.model.vocab, 3, 2))
    for row, tokens in enumerate(rows.tolist()):
        for place in range(len(tokens) - 1):
            if names[documents[row, place]] not in ("speeches", "bible"):
                continue
            before = [k for k in range(place + 1) if tokens[k] == tokens[place + 1]]
            back = place + 1 - before[-1] if before else 0
            for name, length in (("distance", back), ("position", place)):
                bucket = max(k for k, edge in enumerate(edges) if edge <= length)
                wanted[name][bucket] += (nats[row, place], 1)
            kind = 0 if not before else 1 if back < 16 else 2
            words[tokens[place + 1], kind] += (nats[row, place], 1)
    assert targets.size == rows[:, 1:].size
    for name, sums in wanted.items():
        np.testing.assert_allclose(result[name].sum(axis=0), sums[:, 0], rtol=1e-6)
        np.testing.assert_array_equal(result[f"{name}_tokens"].sum(axis=0), sums[:, 1])
    np.testing.assert_allclose(result["word"], words[:, :, 0], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(result["word_tokens"], words[:, :, 1])
    assert (result["word_tokens"].sum(axis=0) > 0).all()
    assert wanted["distance"][0, 1] > 0
    assert wanted["distance"][-2, 1] > 0


def test_lines_of_two_seeds(make_run):
    shape = {"source": ["bible"], "distance_tokens": [[2, 3]], "position_tokens": [[1, 4]]}
    results = []
    for k in (5.0, 6.0):
        nats = {"word": [[1.0, k, 0.0], [3.0, 0.0, k]], "distance": [[1.0, k]], "position": [[2.0, k]]}
        columns = shape | nats | {"word_tokens": [[1, 4, 0], [2, 0, 6]]}
        results.append({name: np.array(values) for name, values in columns.items()})
    about, tables = tables_of("distance", [make_run("dense", seed) for seed in (0, 1)], results)
    assert about == {}
    assert tables["distance"].to_numpy().tolist() == [
        [seed, by, 0, at, "bible", tokens, nats]
        for by, counts, first in (("distance", (2, 3), 1.0), ("position", (1, 4), 2.0))
        for seed, k in ((0, 5.0), (1, 6.0))
        for at, tokens, nats in ((0, counts[0], first), (1, counts[1], k))
    ]
    words = [(0, 0, 1, 1.0), (0, 1, 4, 5.0), (0, 16, 0, 0.0), (1, 0, 2, 3.0), (1, 1, 0, 0.0), (1, 16, 6, 5.0)]
    assert tables["words"].query("seed == 0").to_numpy().tolist() == [[0, *line] for line in words]
