"""The parts of the traffic's closed form that no process counts; tests/distributed/test_traffic.py has the others."""

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.traffic import Step, exchanged_bytes, expert_bytes, fsdp_bytes, step_of
from stemrepro.model.transformer import Decoder

MOE = ModelConfig(
    vocab=48, width=24, layers=3, heads=4, kv_heads=2, ffn_width=36, ffn="hash-moe", experts=4, top_k=1,
    replaced_layers=(1, 2),
)  # fmt: skip


def test_a_step_is_dealt_to_ranks():
    assert step_of(512, 4096, 8, 8) == Step(8, 8, 32768)
    assert step_of(512, 4096, 512, 8) == Step(512, 1, 4096)
    with pytest.raises(ValueError, match="12 sequences don't divide into micro-batches of 2 on 5 ranks"):
        step_of(12, 4096, 5, 8)
    with pytest.raises(ValueError, match="on 16 ranks"):
        step_of(12, 4096, 16, 8)


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
