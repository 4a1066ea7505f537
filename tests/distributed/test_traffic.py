"""The closed form of traffic against the bytes that three real processes receive."""

from dataclasses import replace

import pytest
import torch
from torch.distributed.nn.functional import all_to_all_single
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from stemrepro.config.parallel import Parallel
from stemrepro.model.config import ModelConfig
from stemrepro.model.traffic import Step, exchanged_bytes, fsdp_bytes, tensor_bytes, width_bytes
from stemrepro.model.transformer import build
from stemrepro.training import ranks
from stemrepro.training.launch import group
from stemrepro.training.sharding import recompute, reduce_gradients_when, shard
from stemrepro.training.tensor_parallel import losses_of_shards
from tests.conftest import quiet

RANKS = 3
DENSE = ModelConfig(vocab=48, width=24, layers=3, heads=4, kv_heads=2, ffn_width=36)
STEM = ModelConfig(vocab=48, width=24, layers=3, heads=4, kv_heads=2, ffn_width=36, ffn="stem", replaced_layers=(1, 2))
THIRDS = replace(STEM, heads=3, kv_heads=3)
STEP = Step(RANKS, passes=2, tokens=12, number=4)
NARROW = replace(STEP, number=2)
CASES = {
    "dense": (DENSE, {"strategy": "fsdp"}),
    "tables inside FSDP": (STEM, {"strategy": "fsdp"}),
    "tables by width": (STEM, {"strategy": "tables"}),
    "tensor": (THIRDS, {"strategy": "fsdp", "tensor": RANKS}),
    "tensor, recomputed": (THIRDS, {"strategy": "fsdp", "tensor": RANKS, "recompute": True}),
    "tables by width, bfloat16": (STEM, {"strategy": "tables", "param_dtype": "bfloat16"}),
}


def size(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Received(TorchDispatchMode):
    """Bytes that this rank receives; a reduction's are those of a ring."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if DTensor in types:  # what it is made of is counted
            return NotImplemented
        result, name = function(*args, **kwargs or {}), function.name()
        if name in ("c10d::_allgather_base_", "c10d::_reduce_scatter_base_"):
            self.bytes += abs(size(args[:1]) - size(args[1:2]))
        elif name == "c10d::allgather_":
            self.bytes += size(args[0][0]) - size(args[1])
        elif name == "_c10d_functional::all_reduce":
            self.bytes += 2 * size(args[:1]) * (RANKS - 1) // RANKS
        elif name == "c10d::alltoall_base_":
            rows = args[3] or [len(args[0]) // RANKS] * RANKS
            self.bytes += size(args[:1]) * (sum(rows) - rows[ranks.rank()]) // sum(rows)
        elif name.startswith(("c10d::", "_c10d_functional::")) and not name.endswith(
            ("wait_tensor", "_wrap_tensor_autograd")
        ):
            raise AssertionError(f"{name} isn't counted")
        return result


def tokens_of(rank):
    """As many distinct ids on each rank: 12 tokens, 4 of them distinct."""
    return torch.arange(12).reshape(2, 6) % 4 + 4 * rank


def received(config, way):
    """Count a step's bytes."""
    model, parallel = build(config, 0), Parallel(devices=RANKS, **way)
    if parallel.recompute:
        recompute(model)
    shard(model, parallel, torch.device("cpu"))
    with Received() as counter, losses_of_shards(parallel):
        for number in range(STEP.passes):
            reduce_gradients_when(model, number == STEP.passes - 1)
            tokens = tokens_of(ranks.reader(parallel)[0])
            ranks.whole(model.losses(tokens, tokens)).mean().backward()
    return counter.bytes


def exchanged():
    """Count the bytes of a layer whose tokens go to the ranks of their experts, evenly, and back."""
    states = torch.randn(12, 24, requires_grad=True)
    with Received() as counter:
        there = all_to_all_single(torch.empty_like(states), states)
        back = all_to_all_single(torch.empty_like(states), 2 * there)
        back.sum().backward()
    return counter.bytes


def all_counted(report):
    return {name: received(*case) for name, case in CASES.items()} | {"experts": exchanged()}


@pytest.mark.slow
def test_bytes_are_those_of_the_closed_form(deadline, tiny):
    for counted in group(all_counted, (), RANKS, tiny.training, quiet):
        assert counted["dense"] == pytest.approx(fsdp_bytes(DENSE, STEP), abs=1)
        assert counted["tables inside FSDP"] == pytest.approx(fsdp_bytes(STEM, STEP), abs=1)
        assert counted["tables by width"] == pytest.approx(width_bytes(STEM, STEP, rows=4), abs=1)
        assert counted["tables by width, bfloat16"] == pytest.approx(width_bytes(STEM, NARROW, rows=4), abs=1)
        for name, recomputed in (("tensor", False), ("tensor, recomputed", True)):
            assert counted[name] == pytest.approx(tensor_bytes(THIRDS, STEP, RANKS, recomputed), abs=1), name
        experts = ModelConfig(
            vocab=48, width=24, layers=3, heads=4, kv_heads=2, ffn_width=36, ffn="hash-moe", experts=3, top_k=1,
            replaced_layers=(1,),
        )  # fmt: skip
        assert counted["experts"] == exchanged_bytes(experts, Step(RANKS, 1, 12, 4), RANKS)
