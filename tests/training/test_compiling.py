"""What the compiler sees of a decoder."""

from functools import partial

import pytest
import torch

from stemrepro.config.arm import shaped
from stemrepro.measures.catalog import load
from stemrepro.model import block
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import build
from stemrepro.training.compiling import compiled
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def test_compiled_code_does_not_make_rotary_tables_anew(tiny):
    """A graph holds the sines and cosines of its length; with the marking gone it has the operations that make them."""
    model = build(shaped(tiny.model, load(ROOT / "recipes").arms["dense"]), 0)
    compiled(model.forward)
    graphs = torch._dynamo.explain(model)(torch.zeros(1, 8, dtype=torch.long)).graphs
    called = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    assert any("scaled_dot_product_attention" in target for target in called)
    assert not called & {"cos", "sin"}


def test_other_documents_are_not_compiled_anew(monkeypatch):
    """Their lengths are no part of what is compiled."""
    for name in ("attend_inside", "documents_of"):
        monkeypatch.setattr(block, name, getattr(block, name))  # restores what `compiled` puts there
    monkeypatch.setattr(block, "LONG", 8)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    shape = ModelConfig(vocab=5, width=16, layers=2, heads=2, kv_heads=1, ffn_width=8, document_mask=True)
    model, graphs = build(shape, 0), torch._dynamo.utils.counters["stats"]
    loss = compiled(lambda tokens: model.losses(tokens, tokens).mean())
    counts = []
    for number in range(4):
        tokens = torch.randint(0, 5, (2, 16), generator=torch.Generator().manual_seed(number))
        assert loss(tokens) == model.losses(tokens, tokens).mean()
        counts.append(graphs["unique_graphs"])
    assert counts[0] > 0
    assert counts == counts[:1] * 4
