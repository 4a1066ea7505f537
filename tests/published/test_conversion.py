"""Conversions of a tiny model: controls against plain hooks, and trainings of the parts that an arm names alone."""

import numpy as np
import pandas as pd
import pytest
import torch

from stemrepro.measures.conversion import CHOSEN
from stemrepro.published import conversion
from stemrepro.published.conversion import ARMS, Study, at_once, chosen, kept_model, losses, train, trainable
from stemrepro.published.converted import FEW, Rows, convert
from stemrepro.published.models import LENGTH
from stemrepro.published.rows import means
from stemrepro.report.analyse import module
from tests.conftest import ROOT

VOCAB = 264
RATES = {"table": 0.05, "matrices": 0.01}


def text(seed, sequences=4):
    tokens = np.random.default_rng(seed).integers(2, 40, (sequences, 12)).astype(np.int32)
    tokens[:, 0] = 0
    return pd.DataFrame({"source": "a", "tokens": list(tokens)})


@pytest.fixture
def rows(model):
    tokens = np.stack(text(0).tokens)
    return Rows(model, means(model.decoder, tokens, np.full_like(tokens, -1), VOCAB))


@pytest.fixture
def study(model, rows, monkeypatch):
    monkeypatch.setattr(conversion, "STEPS", 6)
    monkeypatch.setattr(conversion, "TRIED", 2)
    return Study(model, rows, text(1, 24), text(2), text(3))


def test_losses_at_once_are_those_of_the_converted_model(model, rows, monkeypatch):
    monkeypatch.setattr(conversion, "FIRST", (1,))
    asked = text(2)
    table = at_once(model, rows, asked).set_index(["placement", "kind"])
    stem = convert(model, rows, (1, 2))
    assert table.loc[("full", "rows"), "nats"].tolist() == pytest.approx(losses(stem, asked), rel=1e-5)
    assert table.loc[("none", "dense"), "nats"].tolist() == pytest.approx(losses(model.decoder, asked), rel=1e-5)
    hooks = [
        block.ffn.register_forward_hook(lambda _, __, out: torch.cat([out[:, :1], torch.zeros_like(out[:, 1:])], 1))
        for block in model.decoder.blocks[1:]
    ]
    first = [
        block.ffn.up.register_forward_hook(
            lambda _, __, out, layer=layer: rows.at(layer, torch.zeros(1, dtype=torch.long)).expand_as(out)
        )
        for layer, block in enumerate(model.decoder.blocks)
        if layer
    ]
    expected = losses(model.decoder, asked)
    for hook in (*hooks, *first):
        hook.remove()
    assert table.loc[("full", "no-ffn"), "nats"].tolist() == pytest.approx(expected, rel=1e-5)
    assert table.loc[("full", "one-row"), "nats"].sum() != pytest.approx(sum(expected), rel=1e-3)
    assert len({round(value, 3) for value in table.groupby(level=[0, 1])["nats"].sum()}) > 8  # no two alike but "first"


@pytest.mark.parametrize("name", ARMS)
def test_a_training_changes_the_parts_of_its_arm_alone(model, study, name):
    before = {key: value.clone() for key, value in model.decoder.state_dict().items()}
    decoder = trainable(model, study.rows, ARMS[name], study.tokens)
    start = {key: value.detach().clone() for key, value in decoder.named_parameters()}
    seen = pd.DataFrame({"source": "a", "tokens": list(study.text)})
    done = [(step, sum(losses(decoder, seen))) for step in train(decoder, study.text, RATES, 6, "")]
    moved = {key for key, value in decoder.named_parameters() if not torch.equal(value, start[key])}
    layers = (1, 2) if ARMS[name].placement == "full" else (1,)
    assert moved == {f"blocks.{layer}.ffn.{part}.weight" for layer in layers for part in ARMS[name].parts}
    assert all(torch.equal(value, before[key]) for key, value in model.decoder.state_dict().items())
    assert [step for step, _ in done] == [0, 6]
    assert done[-1][1] < done[0][1]


def test_the_kept_weights_are_those_that_were_trained(model, study, tmp_path, monkeypatch):
    rows, tables = tmp_path / "rows", tmp_path / "tables"
    monkeypatch.setattr(conversion, "study_of", lambda *_: study)
    monkeypatch.setattr(conversion, "rows_of", lambda *_: study.rows)
    tables.mkdir()
    study.tried("third", RATES).to_parquet(tables / "rates.parquet")
    decoder = kept_model(model, tmp_path, rows, tables)  # there are none: it trains
    table = study.trained("third", RATES, tmp_path / "again.safetensors")
    last = table[table.step == 6].nats.tolist()
    assert losses(decoder, study.held_out) == pytest.approx(last, rel=2e-3)  # kept in half precision
    first = table[table.step == 0].nats.tolist()
    assert losses(convert(model, study.rows, (1,)), study.held_out) == pytest.approx(first, rel=1e-5)
    assert last != pytest.approx(first, rel=1e-2)


def test_the_chosen_rates_have_the_smallest_loss(study):
    table = study.rates()
    sums = table.groupby(["arm", "table", "matrices"]).nats.sum()
    for arm in ("dense", "third-tables", "third"):
        assert sums[arm].min() == sums[arm, *chosen(table, arm).values()]
    assert set(table[table.arm == "third"].table) == {chosen(table, "third-tables")["table"]}


def test_what_pages_say_of_the_study_is_what_it_does(catalog):
    assert CHOSEN == ("linear", FEW)
    assert module(ROOT / "analysis/conversion.py", ["draw"]).TOKENS_OF_STEP == conversion.BATCH * LENGTH
    sentence = catalog.recipes["conversion"].claims["training-gives-half-back"].sentence
    assert f"{conversion.STEPS * conversion.BATCH * LENGTH:,} tokens" in sentence
    assert max(conversion.MEASURED) == conversion.STEPS
