"""Losses on text that no run has read, against a plain loop over its blocks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from stemrepro.data.blend import write_blend
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.elsewhere import score
from stemrepro.evaluation.weights import load_run
from stemrepro.training.train import train
from tests.conftest import quiet, tables_of


@pytest.fixture
def blend(sample, catalog, tmp_path):
    """Blocks of the sample with mathematics and code."""
    place = sample / "corpus", sample / "tokenizer.json", tmp_path, tmp_path / "card.md"
    write_blend("mid-sample", catalog.mixes["mid-sample"], 4000, *place)
    return tmp_path / "blocks"


def test_only_sources_that_training_lacked_are_scored(make_run, blend, tiny):
    run = make_run("stem-full")
    train(run, quiet)
    result = score(run, quiet, tiny.evaluation, blend / "index.json")
    rows = result["sources"].set_index("source")
    assert set(rows.index) == {"mathematics", "code"}
    blocks = TokenBlocks(blend, "validation", run.training.sequence, run.model.vocab)
    numbers, documents = blocks.spread(tiny.evaluation.tokens)
    names = [document[1] for document in blocks.about["documents"]]
    model, sizes, wanted = load_run(run), blocks.index["token_bytes"], {name: np.zeros(3) for name in rows.index}
    for row, of in zip(blocks.at(numbers), documents, strict=True):
        with torch.no_grad():
            logs = model(row[None, :-1])[0].log_softmax(-1)
        for place, target in enumerate(row[1:].tolist()):
            if names[of[0]] in wanted:
                wanted[names[of[place]]] += (1, -float(logs[place, target]), sizes[target])
    for name, (tokens, nats, size) in wanted.items():
        assert rows.loc[name, ["tokens", "bytes"]].tolist() == [tokens, size]
        assert rows.loc[name, "nats"] == pytest.approx(nats, rel=1e-5)
    _, made = tables_of("elsewhere", [run, replace(run, seed=1)], [result, result])
    assert len(made["elsewhere"]) == 4
