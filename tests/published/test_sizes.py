"""Shares of our own models against a plain loop, and their tables."""

import pandas as pd
import pytest
import torch

from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.weights import load_run
from stemrepro.published import sizes
from stemrepro.training.train import train
from tests.conftest import quiet


@pytest.fixture
def run(make_run, monkeypatch):
    run = make_run("dense")
    train(run, quiet)
    monkeypatch.setattr(sizes, "ROWS", 8 * run.training.sequence)
    monkeypatch.setattr(sizes, "ASKED", 2 * run.training.sequence)
    return run


def test_shares_are_those_of_a_plain_loop(run, tmp_path):
    model, length, layer = load_run(run), run.training.sequence, 1
    train_, held = (TokenBlocks(run.blocks, split, length, run.model.vocab) for split in ("train", "validation"))
    kept = []
    hook = model.blocks[layer].ffn.up.register_forward_hook(lambda _, __, out: kept.append(out.detach().double()))
    documents = held.about["documents"]
    numbers, of = held.spread(2 * length)
    asked = numbers[[documents[document][1] in ("speeches", "bible") for document in of[:, 0]]]
    texts = [train_.batch(run.seed, 0, 8)[:, :-1], held.at(asked)[:, :-1]]
    with torch.no_grad():
        for text in texts:
            model(text)
    hook.remove()
    seen = {}
    for token, vector in zip(texts[0].flatten().tolist(), kept[0].flatten(0, 1), strict=True):
        seen.setdefault(token, []).append(vector)
    mean = kept[0].flatten(0, 1).mean(dim=0)
    total = left = 0.0
    for row, vectors in zip(texts[1].tolist(), kept[1], strict=True):
        for place in range(1, length):
            of_token = seen.get(row[place])
            total += float((vectors[place] - mean).square().sum())
            centre = torch.stack(of_token).mean(dim=0) if of_token else mean
            left += float((vectors[place] - centre).square().sum())
    sizes.make([run], tmp_path)
    table = pd.read_parquet(tmp_path / "shares.parquet")
    row = table[(table.layer == layer) & (table.what == "W_u x") & (table.address == "token")].iloc[0]
    assert (row.total, row.left) == (pytest.approx(total, rel=1e-3), pytest.approx(left, rel=1e-3))
    assert (row.variant, row.seed) == ("main", run.seed)
    assert set(table.what) == {"W_u x", "W_g x"}
    assert set(table.address) == {"token", "limit"}
