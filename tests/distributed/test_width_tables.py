"""Tables by width on 4 ranks, two copies of them, against whole tables; the bytes against a closed form."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from stemrepro.config.parallel import Parallel
from stemrepro.data.blocks import TokenBlocks
from stemrepro.training import ranks
from stemrepro.training.callbacks import Recorder
from stemrepro.training.launch import group
from stemrepro.training.train import train
from stemrepro.training.width_tables import Exchange, WidthTable
from tests.conftest import quiet

ROWS, WIDTH, TABLES, SHARED = 20, 6, 3, 2
TOKENS = [[[3, 3, 19], [0, 3, 3]], [[1, 2, 3], [4, 5, 6]], [[7, 7, 7], [7, 7, 7]], [[0, 1, 0], [2, 0, 1]]]
"""Of each rank; their distinct ids are 3, 6, 1 and 3."""


def whole_tables():
    torch.manual_seed(0)
    return [nn.Embedding(ROWS, WIDTH) for _ in range(TABLES)]


def loss_of(tables, tokens, rank):
    """A sum that has another gradient in every row, column, table and rank; all tables read by the same ids."""
    weight = torch.arange(1.0, 1 + tokens.numel() * WIDTH).view(*tokens.shape, WIDTH)
    return sum((number + rank + 1) * (table(tokens) * weight).sum() for number, table in enumerate(tables))


def exchanged(report):
    """What a rank reads, its gradients (whole) and its bytes."""
    mesh = init_device_mesh("cpu", (2, SHARED), mesh_dim_names=("copy", "width"))
    exchange = Exchange(mesh.get_group("width"))
    tables = [WidthTable(table, mesh, exchange) for table in whole_tables()]
    passes = [torch.tensor(TOKENS[ranks.rank()]) for _ in range(2)]
    shapes = [tuple(table.weight.to_local().shape) for table in tables]
    for tokens in passes:
        loss_of(tables, tokens, ranks.rank()).backward()
    for table in tables:
        table.reduce_copies()
    rows = [table(passes[1]).detach().tolist() for table in tables]
    gradients = [table.weight.grad.full_tensor().tolist() for table in tables]
    return shapes, rows, gradients, (exchange.asked, exchange.received, exchange.returned)


@pytest.mark.slow
def test_rows_gradients_and_bytes(deadline, tiny):
    results, tables = group(exchanged, (), 4, tiny.training, quiet), whole_tables()
    for _ in range(2):
        (sum(loss_of(tables, torch.tensor(TOKENS[rank]), rank) for rank in range(4)) / 4).backward()
    for rank, (shapes, rows, gradients, counted) in enumerate(results):
        assert shapes == [(ROWS, WIDTH // SHARED)] * TABLES
        for table, read, gradient in zip(tables, rows, gradients, strict=True):
            assert torch.equal(torch.tensor(read), F.embedding(torch.tensor(TOKENS[rank]), table.weight.detach()))
            torch.testing.assert_close(torch.tensor(gradient), table.weight.grad)
        distinct = [len({token for row in TOKENS[rank] for token in row}) for rank in range(4)]
        row_bytes = TABLES * distinct[rank] * WIDTH * 4 * (SHARED - 1) // SHARED
        pair = distinct[rank // 2 * 2 : rank // 2 * 2 + 2]
        assert counted[2] == 2 * row_bytes
        assert counted[1] == 3 * row_bytes  # the last pass has no gradient
        assert counted[0] == 2 * (SHARED - 1) * 8 * (1 + max(pair))  # once a pass for all tables


def counted_step(run, report):
    """Trains; returns the bytes of ids, rows and gradients after the first step."""
    counted, end_of_batch = [], Recorder.on_train_batch_end

    def counting(self, trainer, module, *arguments):
        if trainer.global_step == 1 and not counted:
            exchange = module.model.blocks[1].ffn.table.exchange
            counted.append((exchange.asked, exchange.received, exchange.returned))
        end_of_batch(self, trainer, module, *arguments)

    Recorder.on_train_batch_end = counting
    train(run, report)
    return counted[0]


@pytest.mark.slow
def test_a_step_of_a_model_moves_the_rows_of_its_distinct_tokens(deadline, make_run):
    """Its layers ask once a pass, also from inside FSDP's blocks."""
    run = make_run("stem-half")
    run = replace(
        run,
        parallel=Parallel(strategy="tables", devices=2),
        training=run.training.model_copy(update={"micro_batch": 1}),
    )
    counted = group(counted_step, (run,), 2, run.training, quiet)
    blocks = TokenBlocks(run.blocks, "train", run.training.sequence, run.model.vocab)
    distinct = [len(blocks.batch(0, k, 1)[:, :-1].unique()) for k in range(4)]  # micro-batch k goes to rank k % 2
    for rank in range(2):
        rows = sum(distinct[rank::2]) * len(run.model.replaced_layers) * run.model.ffn_width * 4 // 2
        assert counted[rank] == (sum(8 + 8 * max(distinct[k : k + 2]) for k in (0, 2)), rows, rows)
