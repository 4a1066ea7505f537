"""The Python of docs/trainer.md does what stemrepro does."""

import re

import pytest
import torch
from torch import nn

from stemrepro.model.config import ModelConfig
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
