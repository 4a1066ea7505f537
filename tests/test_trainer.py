"""The Python of docs/trainer.md does what stemrepro does, and its pilot's numbers follow."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from stemrepro.config.address import Address
from stemrepro.config.arm import run_settings
from stemrepro.config.scale import Shape
from stemrepro.measures.costs import dense_and_stem
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.model.ffn.input_add import InputAdd
from stemrepro.model.ffn.stem import Stem
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def page():
    """The names that the page's code defines, in order."""
    names = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs/trainer.md").read_text(), re.DOTALL):
        exec(code, names)
    return names


@pytest.mark.parametrize(("name", "network"), [("StemFFN", Stem), ("RowFFN", InputAdd)])
def test_the_modules_are_ours(page, tiny, name, network):
    theirs, ours = page[name](tiny.vocab, tiny.width, tiny.ffn_width), network(tiny)
    ours.load_state_dict(theirs.state_dict())
    x, tokens = torch.randn(2, 5, tiny.width), torch.randint(tiny.vocab, (2, 5))
    torch.testing.assert_close(theirs(x, tokens), ours(x, tokens))
    expected = (2 / sum(theirs.table.weight.shape)) ** 0.5
    assert theirs.table.weight.std().item() == pytest.approx(expected, rel=0.05)


@pytest.fixture
def tiny():
    return ModelConfig(
        vocab=256, width=16, layers=2, heads=2, kv_heads=1, ffn_width=40, ffn="stem", replaced_layers=(1,)
    )


@pytest.fixture
def model(page, tiny):
    return nn.ModuleDict(
        {"head": nn.Linear(tiny.width, tiny.vocab), "ffn": page["StemFFN"](tiny.vocab, tiny.width, tiny.ffn_width)}
    )


def test_every_parameter_is_in_one_group(page, model):
    rest, tables = (group["params"] for group in page["groups"](model, 0.01, 0.1))
    assert [*map(id, tables)] == [id(model["ffn"].table.weight)]
    assert sorted(map(id, [*rest, *tables])) == sorted(map(id, model.parameters()))
    torch.optim.AdamW(page["groups"](model, 0.01, 0.1))


def test_tables_drawn_anew_are_noticed(page, model):
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(saved)
    page["assert_tables_are_kept"](model, saved)
    nn.init.xavier_normal_(model["ffn"].table.weight)
    with pytest.raises(AssertionError, match="ffn"):
        page["assert_tables_are_kept"](model, saved)


def test_the_row_of_the_control_is_a_table_too(page, tiny):
    control = nn.ModuleDict({"ffn": page["RowFFN"](tiny.vocab, tiny.width, tiny.ffn_width)})
    _, tables = (group["params"] for group in page["groups"](control, 0.01, 0.1))
    assert [*map(id, tables)] == [id(control["ffn"].table.weight)]
    saved = {name: value.clone() for name, value in control.state_dict().items()}
    nn.init.xavier_normal_(control["ffn"].table.weight)
    with pytest.raises(AssertionError, match="ffn"):
        page["assert_tables_are_kept"](control, saved)


def said(pattern):
    """The numbers of the one place of the page that has a pattern."""
    (found,) = re.findall(pattern, re.sub(r"\s+", " ", (ROOT / "docs/trainer.md").read_text()))
    return [float(number) for number in np.atleast_1d(found)]


def test_the_pilots_deviations_are_those_of_our_pairs():
    rows = pd.read_csv(ROOT / "results/width/size_ladder/data.csv").query("panel == 'gap, fixed'")
    deviations = (rows["ci_high"] - rows["value"]) * np.sqrt(rows["count"]) / stats.t.ppf(0.975, rows["count"] - 1)
    spread = said(r"standard deviations of ([\d.]+) to ([\d.]+) nats")
    assert [round(deviations.min(), 2), round(deviations.max(), 2)] == spread
    claims = pd.read_csv(ROOT / "results/claims.csv").query(
        "recipe == 'token_ladder' and kind == 'greater' and origin == 'paper'"
    )
    longest = [np.std([float(value) for value in text.split()], ddof=1) for text in claims["differences"]]
    assert said(r"and up to ([\d.]+) after") == [round(max(longest), 2)]
    at, *apart = said(
        r"At a standard deviation of ([\d.]+), three seeds show a difference of ([\d.]+) nats, "
        r"and five seeds show ([\d.]+)"
    )
    for seeds, least in zip((3, 5), apart, strict=True):
        assert least == pytest.approx(at * stats.t.ppf(0.975, seeds - 1) / seeds**0.5, rel=0.02)


def test_stem_full_and_a_row_were_best_at_the_same_rate_of_tables():
    best = pd.read_csv(ROOT / "results/leaderboard/sweeps/leaderboard/best.csv").set_index("arm")["table_rate_factor"]
    assert best[["stem-full", "input-add"]].tolist() == 2 * said(r"both best at (\d+) times the matrices' rate")


def test_dense_with_a_row_at_1b_needs_the_memory_that_the_page_says():
    """Sixteen layers of width 2,048 and d_ff 8,192, 128,256 tokens: a table in all layers but the first, or in five."""
    row, third = (15 * 2048 * 128256, 5 * 8192 * 128256)
    assert [round(row / 1e9, 1), round(third / 1e9, 1)] == said(r"\(1B: ([\d.]+)B and ([\d.]+)B parameters\)")
    memory = pd.read_csv(ROOT / "results/laptop/cost_model/data.csv").query("panel == 'memory' and what == 'dense'")
    dense = 8 * memory.set_index("model").loc["llama-3.2-1b", "value"]  # there at two bytes a parameter, here sixteen
    assert said(r"dense with a row needs some (\d+) GB") == [round(dense + 16 * row / 1e9)]
    size = (dense + 16 * third / 1e9) / dense
    assert said(r"size takes ([\d.]+) times the hours") == [pytest.approx(size, abs=0.05)]


def test_the_wider_dense_model_takes_the_flops_that_the_page_says(catalog):
    scale, models = catalog.scale("ladder"), []
    for address in (Address("wide-rung-3", "dense"), Address("main", "stem-full")):
        arm, variant = catalog.arms[address.arm], catalog.variant(address.variant)
        models.append(run_settings(address, arm, variant, scale)[0])
    wider, stem = (flops_per_token(model, scale.model.sequence) for model in models)
    assert said(r"It takes ([\d.]+) times STEM full's FLOPs") == [round(wider / stem, 1)]


def test_the_pilots_costs_follow_from_its_formula(catalog):
    """Of a model of 125M parameters with 32,000 tokens; "some" is within a twentieth."""
    flops, hours = said(r"these are ([\d.]+e\d+): ([\d.]+) hours of one H100")
    assert flops == pytest.approx(6 * 125e6 * 36 * 125e6, rel=0.02)
    assert hours == pytest.approx(flops / (0.4 * 989e12) / 3600, rel=0.02)
    shape = Shape(vocab=32000, width=768, layers=12, heads=12, kv_heads=12, ffn_width=2048, sequence=2048)
    dense, stem = map(parameter_counts, dense_and_stem(shape, "third"))
    assert dense["total"] == pytest.approx(125e6, rel=0.1)
    assert stem["tables"] / dense["total"] == pytest.approx(2, rel=0.05)
    assert stem["total"] / dense["total"] == pytest.approx(3, rel=0.05)
    assert 16 * stem["total"] / 1e9 == pytest.approx(said(r"need (\d+) GB each")[0], rel=0.05)
    all_four = 3 * hours * (2 + (stem["active"] + stem["total"]) / dense["total"])
    one, three = said(r"take some (\d+) H100 hours at 125M, and some (\d+) at all three sizes")
    assert one == pytest.approx(all_four, rel=0.07)
    assert three == pytest.approx(all_four * sum((size / 125) ** 2 for size in (30, 60, 125)), rel=0.07)
    shape = catalog.shapes["mobilellm-350m"].model_copy(update={"sequence": 2048})
    models = dense_and_stem(shape, "third")
    tokens = 36 * parameter_counts(models[0])["total"]
    both = [3 * 3 * tokens * flops_per_token(model, 2048) / (0.4 * 989e12) / 3600 for model in models]
    after, again = said(r"36 tokens per parameter\) some (\d+)\. .*? and some (\d+) at 350M")
    assert [after, again] == pytest.approx([sum(both), both[1]], rel=0.03)
    least, most = said(r"In all these are (\d+) to (\d+) hours")
    assert [least, most] == pytest.approx([65 + rates + after + 11 + again for rates in (60, 115)], abs=5)
    paper = catalog.paper.value("table-2/pretraining_tokens/1b") / catalog.paper.value("table-3-1b/dense/active")
    (ratio,) = said(r"at (\d+) per parameter, as many as the paper's 1B")
    assert ratio == pytest.approx(paper, abs=1)
    assert "eighteen times" in (ROOT / "docs/trainer.md").read_text()
    assert ratio / 36 == pytest.approx(18, rel=0.05)
