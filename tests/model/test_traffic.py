"""The traffic's closed form against bytes that were counted once on real processes, and against plain sums."""

import pytest
import torch

from stemrepro.config.arm import shaped
from stemrepro.model.config import ModelConfig
from stemrepro.model.traffic import Step, exchanged_bytes, expert_bytes, fsdp_bytes, step_of, width_bytes
from stemrepro.model.transformer import Decoder

SHAPE = {"vocab": 48, "width": 24, "layers": 3, "heads": 4, "kv_heads": 2, "ffn_width": 36, "replaced_layers": (1, 2)}
MOE = ModelConfig(**SHAPE, ffn="hash-moe", experts=4, top_k=1)


def test_a_step_is_dealt_to_ranks():
    assert step_of(512, 4096, 8, 8) == Step(8, 8, 32768)
    assert step_of(512, 4096, 512, 8) == Step(512, 1, 4096)
    with pytest.raises(ValueError, match="12 sequences don't divide into micro-batches of 2 on 5 ranks"):
        step_of(12, 4096, 5, 8)
    with pytest.raises(ValueError, match="on 16 ranks"):
        step_of(12, 4096, 16, 8)


@pytest.mark.parametrize(("ranks", "dense", "tables"), [(2, 0.548, 1.815), (4, 0.822, 2.723)])
def test_sharded_weights_move_what_gloo_moved(catalog, ranks, dense, tables):
    """Megabytes a rank and step that were counted on 2 and 4 processes: width 32, 6 layers, five tables, one pass."""
    shape = catalog.scales["laptop"].model.model_copy(update={"vocab": 512})
    for arm, counted in (("dense", dense), ("stem-full", tables)):
        step = Step(ranks, 1, shape.sequence, number=4)
        assert fsdp_bytes(shaped(shape, catalog.arms[arm]), step) / 1e6 == pytest.approx(counted, rel=0.002)


def test_tables_by_width():
    """Of each of 2 tables, 5 rows of 36 and their gradients, of which 2 of 3 parts come from others; and ids."""
    stem = ModelConfig(**SHAPE, ffn="stem")
    step = Step(3, passes=7, tokens=12, number=2)
    tables = 2 * 48 * 36 * 2 / 3 * (7 * 2 * 2 + 4)  # gathered twice a pass, reduced once in float32
    rows = 2 * 2 * 5 * 36 * 2 / 3 * 2
    ids = 2 * 8 * (1 + 5)
    assert width_bytes(stem, step, rows=5) == pytest.approx(fsdp_bytes(stem, step) - tables + 7 * (rows + ids))


@pytest.mark.parametrize(("ranks", "group"), [(2, 2), (8, 4)])
def test_experts_by_rank(ranks, group):
    """A rank holds experts / group whole ones, or its part of them: of other copies it receives the rest."""
    with torch.device("meta"):
        model = Decoder(MOE)
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    assert experts == 2 * 4 * 3 * 24 * 36
    step, copies = Step(ranks, passes=5, tokens=12), ranks // group
    parts = experts / group * (1 - 1 / copies) * (5 * 2 * 2 + 4)
    rest = fsdp_bytes(MOE, step) - experts * (1 - 1 / ranks) * (5 * 2 * 2 + 4)
    assert expert_bytes(MOE, step) == pytest.approx(rest + exchanged_bytes(MOE, step, group) + parts)
