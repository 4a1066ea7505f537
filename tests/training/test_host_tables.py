"""Training with host tables: the trajectory of the on-device optimiser, whole runs, kills, each row moved once."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from stemrepro.common.errors import UserError
from stemrepro.model.ffn.base import is_table
from stemrepro.offload.link import Link
from stemrepro.training.host_tables import HostModule, HostRows, HostTables
from stemrepro.training.touched import TouchedAdamW, summed
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.training.test_kill import files, finish, kill_after, other

VOCAB, WIDTH, BETAS, EPS = 19, 6, (0.9, 0.95), 1e-8


def steps(count=9):
    """Tokens of each step: neighbours share some rows."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(0, VOCAB, (2, 5), generator=generator) for _ in range(count)]


def target(rows, step):
    """A loss whose gradient hangs on rows and step."""
    return ((rows - step / 7) ** 2 * torch.arange(1, WIDTH + 1)).sum()


def on_device(start):
    table = nn.Parameter(start.clone())
    table.register_hook(summed)
    optimizer = TouchedAdamW([table], lr=0.03, betas=BETAS, eps=EPS, weight_decay=0.1)
    for step, tokens in enumerate(steps()):
        optimizer.zero_grad()
        target(nn.functional.embedding(tokens, table, sparse=True), step).backward()
        optimizer.step()
    return table.detach(), optimizer.state[table]


@pytest.mark.parametrize("ahead", [False, True])
def test_the_trajectory_of_the_optimiser_on_the_device(ahead):
    start = torch.randn(VOCAB, WIDTH, generator=torch.Generator().manual_seed(2))
    held = HostRows(start.clone())
    tables, tokens = HostTables([held], Link(), BETAS, EPS), steps()
    for step, now in enumerate(tokens):
        tables.stage(now)
        if ahead and step + 1 < len(tokens):
            tables.prefetch(tokens[step + 1])
        target(held(now), step).backward()
        tables.update(0.03, 0.1)
    expected, state = on_device(start)
    assert torch.equal(held.weight, expected)
    assert all(torch.equal(tables.moments[0][name], state[name]) for name in state)
    rows = sum(len(set(now.flatten().tolist())) for now in tokens)
    assert tables.link.moved == tables.returned == rows * WIDTH * 4  # each row of a step once to the device, once back


def test_rows_brought_ahead_for_other_tokens_are_refused():
    tables = HostTables([HostRows(torch.randn(VOCAB, WIDTH))], Link(), BETAS, EPS)
    tables.stage(torch.tensor([1, 2]))
    tables.prefetch(torch.tensor([3, 4]))
    with pytest.raises(ValueError, match="not those"):
        tables.stage(torch.tensor([3, 5]))


@pytest.mark.parametrize(
    ("arm", "clip"), [("stem-full", 1e6), ("stem-third", 1e6), ("stem-normed", 1e6), ("stem-full", 0.1)]
)
def test_a_run_equals_one_with_tables_on_the_device(make_run, tiny, arm, clip):
    """The same bytes, also where the norm is clipped."""
    scale = tiny.model_copy(update={"training": tiny.training.model_copy(update={"clip": clip})})
    losses, weights, names = [], [], []
    for home in ("device", "host"):
        fields = {"table_update": "touched", "table_home": home, "table_rate_factor": 2.0, "table_decay_factor": 0.5}
        run = make_run(arm, scale=scale, **fields)
        run = replace(run, folder=run.folder.parent / home)
        train(run, quiet)
        losses.append([json.loads(line)["loss"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()])
        weights.append(load_file(run.weights))
        names.append({path.name for path in run.folder.iterdir()})
    assert names[0] == names[1]
    assert weights[0].keys() == weights[1].keys()
    assert losses[0] == losses[1]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_killed_and_resumed_with_host_rows(make_run):
    """The official code loses the tables' optimiser state here."""
    run = make_run("stem-full", table_update="touched", table_home="host")
    finish(run, 1)
    killed = other(run, "killed")
    kill_after(killed, 8)
    finish(killed, 1)
    assert files(killed) == files(run)


def test_tables_stay_in_host_memory(make_run):
    module = HostModule(make_run("stem-full", table_update="touched", table_home="host"))
    moved = module.to("meta").model.state_dict()
    assert {weight.device.type for name, weight in moved.items() if is_table(name)} == {"cpu"}
    assert {weight.device.type for name, weight in moved.items() if not is_table(name)} == {"meta"}


@pytest.mark.parametrize(
    ("arm", "fields", "named"), [("stem-full", {}, "touched"), ("dense", {"table_update": "touched"}, "no table")]
)
def test_runs_that_host_tables_cannot_train(make_run, arm, fields, named):
    with pytest.raises(UserError, match=named):
        train(make_run(arm, table_home="host", **fields), quiet)


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-true"])
def test_precisions_that_host_rows_do_not_have(make_run, tiny, precision):
    scale = tiny.model_copy(update={"training": tiny.training.model_copy(update={"precision": precision})})
    with pytest.raises(UserError, match="nor train in 16-mixed or bf16-true"):
        train(make_run("stem-full", scale=scale, table_home="host", table_update="touched"), quiet)
