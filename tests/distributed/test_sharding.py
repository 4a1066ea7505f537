"""Losses and gradients of a model that four ranks share, each way, against one process."""

import pytest
import torch

from stemrepro.config.parallel import Parallel
from stemrepro.model import transformer
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import build
from stemrepro.training import ranks
from stemrepro.training.launch import group
from stemrepro.training.module import mean_loss
from stemrepro.training.outline import draw, outline
from stemrepro.training.sharding import recompute, reduce_copies, shard
from stemrepro.training.tensor_parallel import losses_of_shards
from tests.conftest import quiet

RANKS, AT_ONCE = 4, 5
STEM = ModelConfig(
    vocab=48, width=24, layers=3, heads=4, kv_heads=2, ffn_width=36, ffn="stem", replaced_layers=(1, 2),
    value_layers=(2,), document_mask=True,
)  # fmt: skip
WAYS = {
    "copies": {"strategy": "fsdp", "replicate": 2},
    "copies, tables": {"strategy": "tables", "replicate": 2, "table_ranks": 2},
    "recomputed": {"strategy": "fsdp", "recompute": True},
    "recomputed, tables": {"strategy": "tables", "recompute": True},
    "tensor": {"strategy": "fsdp", "tensor": 2},
    "recomputed, tensor": {"strategy": "fsdp", "tensor": 2, "recompute": True},
    "bfloat16": {"strategy": "fsdp", "param_dtype": "bfloat16"},
    "bfloat16, tables": {"strategy": "tables", "param_dtype": "bfloat16", "table_ranks": 2},
}


def loss_of(model, rank, at_once=None):
    tokens = torch.randint(48, (2, 9), generator=torch.Generator().manual_seed(rank))
    return mean_loss(model, tokens, at_once)


def learnt(way):
    """Return this rank's loss, all gradients, how often an FFN was passed, and how a norm and a table are sharded."""
    transformer.LONG = 8  # so each rank attends document by document
    model, parallel, passes = outline(STEM), Parallel(devices=RANKS, **way), []
    assert all(parameter.is_meta for parameter in model.parameters())
    if parallel.recompute:
        recompute(model)
    shard(model, parallel, torch.device("cpu"))
    draw(model, 0)
    for name, weight in build(STEM, 0).named_parameters():
        assert torch.equal(model.get_parameter(name).full_tensor(), weight), name
    model.blocks[1].ffn.register_forward_pre_hook(lambda *_: passes.append(1))
    with losses_of_shards(parallel):
        loss = loss_of(model, ranks.reader(parallel)[0], AT_ONCE)
        loss.backward()
    reduce_copies(model)
    gradients = {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()}
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    shown = model.norm.weight, model.blocks[1].ffn.table.weight
    places = [str(parameter.placements) for parameter in shown]
    return loss.item(), {name: gradient.tolist() for name, gradient in gradients.items()}, len(passes), places


def all_learnt(report):
    return {name: learnt(way) for name, way in WAYS.items()}


@pytest.mark.slow
def test_losses_and_gradients_are_those_of_one_process(deadline, tiny):
    results, expected = group(all_learnt, (), RANKS, tiny.training, quiet), {}
    for dtype, readers in ((torch.float32, RANKS), (torch.float32, RANKS // 2), (torch.bfloat16, RANKS)):
        model = build(STEM, 0).to(dtype)
        losses, sums = [], {}
        for rank in range(readers):
            model.zero_grad()
            loss = loss_of(model, rank, None if dtype == torch.float32 else AT_ONCE)
            loss.backward()
            losses.append(loss.item())
            for name, parameter in model.named_parameters():
                sums[name] = sums.get(name, 0) + parameter.grad.float() / readers
        expected[dtype, readers] = losses, sums
    for rank, result in enumerate(results):
        for way, (loss, gradients, _, _) in result.items():
            parallel = Parallel(devices=RANKS, **WAYS[way])
            dtype = getattr(torch, parallel.param_dtype)
            losses, sums = expected[dtype, parallel.readers]
            # Without bfloat16 products of its own a processor rounds sums by how their operands lie in memory.
            loosely = torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0
            assert loss == pytest.approx(losses[rank // parallel.tensor], rel=1e-6 + loosely / 10), way
            assert gradients.keys() == sums.keys()
            for name, gradient in gradients.items():
                atol = 1e-6 + 3 * loosely * sums[name].abs().max().item()
                torch.testing.assert_close(
                    torch.tensor(gradient), sums[name], atol=atol, rtol=1e-5, msg=f"{way} {name}"
                )
    (wide, _), _, (narrow, _) = expected.values()
    assert min(abs(a - b) for a, b in zip(wide, narrow, strict=True)) > 1e-5  # so bfloat16 shows
    passes = {way: number for way, (_, _, number, _) in results[0].items()}
    assert passes == {way: 1 + way.startswith("recomputed") for way in WAYS}
    places = {way: found for way, (_, _, _, found) in results[0].items()}
    assert places["copies"] == ["(Replicate(), Shard(dim=0))"] * 2
    assert places["copies, tables"] == ["(Replicate(), Shard(dim=0))", "(Replicate(), Shard(dim=1))"]
    assert places["tensor"] == ["(Shard(dim=0), Replicate())", "(Shard(dim=0), Shard(dim=1))"]
    assert places["bfloat16"] == ["(Shard(dim=0),)"] * 2
