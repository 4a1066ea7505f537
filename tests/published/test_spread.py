"""Angles between rows and between what up-projections give, against plain loops."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from stemrepro.evaluation import geometry
from stemrepro.published import spread
from tests.published.conftest import TEXT


def test_cosines_and_their_statistics_are_those_of_the_packages_own_models():
    vectors = torch.randn(30, 7, generator=torch.Generator().manual_seed(0)) + 1
    for centred, values in spread.cosines(vectors).items():
        expected = geometry.cosines(vectors, centred)
        assert np.allclose(values, expected.numpy(), atol=1e-9)
        heights = geometry.density(expected, spread.BINS)
        assert spread.statistics(values, heights) == pytest.approx(geometry.statistics(expected, spread.BINS))
    assert spread.cosines(vectors)[False].mean() > 0.3 > abs(spread.cosines(vectors)[True].mean())


def test_each_token_is_chosen_once_and_the_start_never():
    places = spread.chosen(TEXT, 3)
    assert sorted(TEXT.ravel()[places]) == [5, 6, 7, 9]
    assert {tuple(spread.chosen(TEXT, seed)) for seed in range(20)} > {tuple(places)}


def test_vectors_are_those_of_each_side_at_the_chosen_places(model, rows):
    lines, densities = spread.spread(rows, TEXT, 3)
    table, layer, places = pd.DataFrame(lines), 2, spread.chosen(TEXT, 3)
    kept = {}
    hook = model.decoder.blocks[layer].ffn.register_forward_pre_hook(lambda _, inputs: kept.update(x=inputs[0]))
    with torch.no_grad():
        model.decoder.hidden(torch.from_numpy(TEXT.astype(np.int64)))
    hook.remove()
    ffn, sides = model.decoder.blocks[layer].ffn, {"dense": [], "rows": []}
    for place in places:
        x, token = kept["x"].reshape(-1, 32)[place], torch.tensor(int(TEXT.ravel()[place]))
        sides["dense"].append((ffn.up.weight @ x, F.silu(ffn.gate.weight @ x) * (ffn.up.weight @ x)))
        row = rows.at(layer, token)
        sides["rows"].append((row, F.silu(ffn.gate.weight @ x) * row))
    for side, vectors in sides.items():
        for number, what in enumerate(("up", "gated")):
            for centred in (False, True):
                expected = geometry.cosines(torch.stack([pair[number] for pair in vectors]).detach(), centred)
                at = (table.layer == layer) & (table.side == side) & (table.what == what) & (table.centred == centred)
                assert table[at].p95.item() == pytest.approx(expected.abs().quantile(0.95).item(), abs=1e-5)
                assert table[at]["mean"].item() == pytest.approx(expected.mean().item(), abs=1e-5)
    assert len(table) == len(densities) == 3 * 5 * 2
    assert set(table.vectors) == {4}


def test_tables_are_means_over_groups_of_other_sequences(model, rows, tmp_path, monkeypatch):
    text = pd.DataFrame({"source": ["bible"] * 2 + ["plays"] * 2, "tokens": [*TEXT, TEXT[0]]})
    given = {"load": lambda _: model, "rows_of": lambda *_: rows, "sequences": lambda *_: text}
    for name, value in {"GROUPS": 2, "EACH": 1, "SOURCES": ("bible", "plays"), **given}.items():
        monkeypatch.setattr(spread, name, value)
    spread.make("tiny", tmp_path, tmp_path, tmp_path)
    table, density = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("cosines", "density"))
    parts = [spread.spread(rows, TEXT[[group, 2 if group == 0 else 0]], group) for group in range(2)]
    assert table.p95.tolist() == [line["p95"] for lines, _ in parts for line in lines]
    key = (1, "rows", "gated", True)
    rows_of_key = density[(density.layer == 1) & (density.side == "rows") & (density.what == "gated") & density.centred]
    assert np.allclose(rows_of_key.density, np.mean([heights[key] for _, heights in parts], axis=0))
    assert np.isclose(rows_of_key.density.sum() * 2 / spread.BINS, 1)
