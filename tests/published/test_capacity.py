"""What context touches and is worth, against plain loops."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from stemrepro.common.errors import UserError
from stemrepro.published import capacity
from stemrepro.published.converted import convert


@pytest.fixture
def short(monkeypatch):
    small = {"BEFORE": (2, 6), "TARGETS": 3, "LENGTHS": (2, 8, 12), "DOCUMENTS": {"plays": 2}}
    for name, value in small.items():
        monkeypatch.setattr(capacity, name, value)


@pytest.fixture
def corpus(tmp_path):
    texts = ["the is the is the a b the", "ab", "is a is b is the 12 12 12"]
    rows = [{"source": "plays", "id": str(k), "split": "validation", "text": text} for k, text in enumerate(texts)]
    rows.append({"source": "plays", "id": "9", "split": "train", "text": texts[0]})
    pd.DataFrame(rows).to_parquet(tmp_path / "corpus.parquet")
    return tmp_path / "corpus.parquet"


def test_documents_are_held_out_and_long_enough(model, corpus, short):
    table, every = capacity.documents(model, corpus, {"plays": 2})
    cut = [model.tokens(text)[1:] for text in ("the is the is the a b the", "ab", "is a is b is the 12 12 12")]
    assert [tokens.tolist() for tokens in table.tokens] == [cut[0], cut[2]]
    assert every["plays"].tolist() == [token for tokens in cut for token in tokens]
    with pytest.raises(UserError, match=r"'validation' of 'plays' has 2 documents"):
        capacity.documents(model, corpus, {"plays": 3})


def test_tokens_that_are_drawn_have_as_many_distinct_ones_as_a_draw_has():
    every = np.array([3, 3, 3, 3, 5, 5, 6, 9])
    draws = np.random.default_rng(0).choice(every, (20_000, 4))
    assert capacity.drawn(every, 4) == pytest.approx(np.mean([len({*draw}) for draw in draws.tolist()]), abs=0.02)
    assert capacity.drawn(every, 1) == pytest.approx(1)


def test_counts_are_of_beginnings_and_of_documents_that_are_long_enough(model, corpus, short):
    texts, every = capacity.documents(model, corpus, capacity.DOCUMENTS)
    table = capacity.counts(texts, every, model)
    for document, tokens in enumerate(texts.tokens):
        part = table[table.document == document].set_index("length").distinct.to_dict()
        assert part == {n: len({*tokens[:n].tolist()}) for n in (2, 8, 12) if len(tokens) >= n}
    assert 0 < table.length.eq(12).sum() < 3
    assert (table.width[0], table.ffn_width[0], table.layers[0], table.vocab[0]) == (32, 64, 3, 264)


@pytest.mark.parametrize("before", [2, 6])
def test_losses_are_of_the_same_targets_whatever_the_context(model, short, before):
    tokens = torch.tensor([5, 6, 7, 9, 11, 5, 6, 12, 13, 14])
    read = torch.tensor([[0, *tokens[6 - before : 9].tolist()]])
    with torch.no_grad():
        chances = F.log_softmax(model.decoder(read)[0], dim=-1)
    expected = [-chances[place - 1, read[0, place]].item() for place in range(before + 1, before + 4)]
    assert read[0, before + 1 :].tolist() == [6, 12, 13]
    start = torch.tensor([0])
    assert capacity.loss(model.decoder, start, tokens, before) == pytest.approx(np.mean(expected), abs=1e-5)


def test_a_killed_study_resumes_and_its_models_are_converted(model, rows, corpus, short, tmp_path, monkeypatch):
    monkeypatch.setattr(capacity, "rows_of", lambda *_: rows)
    monkeypatch.setattr(capacity, "load", lambda _: model)
    (tmp_path / "losses.dense.parquet").write_bytes(b"kept")
    capacity.make("tiny", corpus, tmp_path, tmp_path)
    assert (tmp_path / "losses.dense.parquet").read_bytes() == b"kept"
    texts, _ = capacity.documents(model, corpus, capacity.DOCUMENTS)
    for placement, layers in (("third", (1,)), ("full", (1, 2))):
        table = pd.read_parquet(tmp_path / f"losses.{placement}.parquet")
        stem = convert(model, rows, layers)
        read = [(stem, torch.tensor([0]), torch.from_numpy(tokens), n) for tokens in texts.tokens for n in (2, 6)]
        nats = [capacity.loss(*one) for one in read]
        assert np.allclose(table.nats, nats, atol=0.01)  # tables in half precision
        assert table.context.tolist() == [2, 6, 2, 6]
    assert len(pd.read_parquet(tmp_path / "counts.parquet")) > 0
