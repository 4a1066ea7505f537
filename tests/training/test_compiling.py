"""What the compiler sees of a decoder."""

import torch

from stemrepro.config.arm import shaped
from stemrepro.measures.catalog import load
from stemrepro.model.transformer import build
from stemrepro.training.compiling import compiled
from tests.conftest import ROOT


def test_compiled_code_does_not_make_rotary_tables_anew(tiny):
    """A graph holds the sines and cosines of its length; with the marking gone it has the operations that make them."""
    model = build(shaped(tiny.model, load(ROOT / "recipes").arms["dense"]), 0)
    compiled(model.forward)
    graphs = torch._dynamo.explain(model)(torch.zeros(1, 8, dtype=torch.long)).graphs
    called = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    assert any("scaled_dot_product_attention" in target for target in called)
    assert not called & {"cos", "sin"}
