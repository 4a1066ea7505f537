"""Runs on 2 and 4 devices against the same run on one: what they learn, write, leave behind and resume from."""

import json
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from stemrepro.common.errors import Unfinished, UserError
from stemrepro.common.files import locked
from stemrepro.config.parallel import Parallel
from stemrepro.training import launch
from stemrepro.training.callbacks import Recorder
from stemrepro.training.checkpoint import newest
from stemrepro.training.launch import group, train_on_devices
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.distributed.what_ranks_do import STEP, at_step, compiled_eagerly, killed, killed_once, signalled

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("deadline")]
DDP, FSDP, TABLES = (Parallel(strategy=name, devices=2) for name in ("ddp", "fsdp", "tables"))
FOUR = FSDP.model_copy(update={"devices": 4, "replicate": 2, "recompute": True})
SPLIT = FSDP.model_copy(update={"tensor": 2})
SPLIT_FOUR = SPLIT.model_copy(update={"devices": 4})
COPIES = TABLES.model_copy(update={"devices": 4, "table_ranks": 2})


def named(parallel):
    """A test's name for a parallel block."""
    if not isinstance(parallel, Parallel):
        return None
    split = f"-tensor-{parallel.tensor}" if parallel.tensor > 1 else ""
    return f"{parallel.strategy}-{parallel.devices}{split}"


SIGNALS = {
    "ddp-2": (signal.SIGTERM, 1), "fsdp-2": (signal.SIGINT, 0), "tables-2": (signal.SIGUSR1, 1),
    "fsdp-2-tensor-2": (signal.SIGTERM, 0),
}  # fmt: skip
"""A signal, and the rank that it comes to."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("parallel")


@pytest.fixture(scope="module")
def make(runs_in, tiny, folders):
    """make("fsdp", parallel) -> a run of 9 steps in a folder of that name, with 4 micro-batches a step."""
    training = tiny.training.model_copy(update={"micro_batch": 1, "tokens": 32 * 4 * 9})
    scale = tiny.model_copy(update={"training": training, "model": tiny.model.model_copy(update={"kv_heads": 2})})

    def made(name, parallel=None, arm="stem-half", **fields):
        return replace(runs_in(folders / name)(arm, scale=scale, **fields), parallel=parallel)

    return made


@pytest.fixture(scope="module")
def one(make):
    """The run on one device."""
    run = make("one")
    train(run, quiet)
    return run


@pytest.fixture(scope="module")
def whole(make):
    """whole(parallel) -> the run on several devices that nobody interrupted."""
    made = {}

    def of(parallel):
        key = json.dumps(parallel.model_dump())
        if key not in made:
            made[key] = make(f"whole-{len(made)}", parallel)
            train_on_devices(made[key], quiet)
        return made[key]

    return of


@pytest.fixture(scope="module")
def left(make):
    """left(name, parallel) -> a copy of the run on several devices, as a signal to one rank has left it."""
    made = {}

    def of(name, parallel):
        kind = named(parallel)
        if kind not in made:
            run, (number, which) = make(f"left-{kind}", parallel), SIGNALS[kind]
            made[kind] = run
            with pytest.raises(Unfinished) as end:
                group(signalled, (run, number, which), 2, run.training, quiet)
            assert end.value.code == 75
            assert newest(run.folder / "resume").name == f"step{STEP:09d}.ckpt"
        run = make(name, parallel)
        shutil.copytree(made[kind].folder, run.folder)
        return run

    return of


def rows(run):
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


def same(run, other):
    """Both runs learnt the same, to rounding; Adam blows it up where a gradient is nearly zero."""
    for row, expected in zip(rows(run), rows(other), strict=True):
        validation, others = row.pop("validation", {}), expected.pop("validation", {})
        assert row == pytest.approx(expected, rel=1e-5, abs=5e-6)
        assert validation == pytest.approx(others, rel=1e-5, abs=5e-6)
    weights, expected = load_file(run.weights), load_file(other.weights)
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], atol=2e-4, rtol=0)


def bits(run):
    return {path.name: path.read_bytes() for path in run.folder.iterdir() if path.name != "provenance.json"}


@pytest.mark.parametrize("parallel", [DDP, FSDP, TABLES], ids=named)
def test_a_run_on_several_devices_is_that_on_one(one, whole, parallel):
    run = whole(parallel)
    same(run, one)
    assert run.ended
    assert run.config == one.config
    assert {path.name for path in run.folder.iterdir()} == {path.name for path in one.folder.iterdir()}
    about = json.loads((run.folder / "provenance.json").read_text())
    assert about["parallel"] == parallel.model_dump()
    assert "parallel" not in json.loads((one.folder / "provenance.json").read_text())


def test_bfloat16_gathers_learn_what_autocast_learns(make):
    """They round the residual stream too; weights and optimiser stay float32."""
    training = make("autocast").training.model_copy(update={"precision": "bf16-mixed"})
    parallel = TABLES.model_copy(update={"param_dtype": "bfloat16"})
    run, other = (
        replace(make(name, parallel), training=training)
        for name, parallel in (("narrow", parallel), ("autocast", None))
    )
    train_on_devices(run, quiet)
    train(other, quiet)
    losses, expected = ([row["loss"] for row in rows(each)] for each in (run, other))
    assert losses == pytest.approx(expected, abs=0.02)
    assert losses != pytest.approx(expected, abs=1e-6)
    assert {weight.dtype for weight in load_file(run.weights).values()} == {torch.float32}


def test_blocks_are_compiled_one_by_one(make, one):
    """Also where their rows come from other ranks, and where activations are made anew."""
    run = make("compiled", TABLES.model_copy(update={"recompute": True}))
    run = replace(run, training=run.training.model_copy(update={"compile": True}))
    assert min(group(compiled_eagerly, (run,), 2, run.training, quiet)) > 0
    assert json.loads((run.folder / "provenance.json").read_text())["compiled"]
    same(run, one)


def test_ddp_takes_parameters_that_no_pass_reads(make):
    """The norms before tables without a gate; their weights stay as they were drawn."""
    run, other = (make(name, parallel, "token-only") for name, parallel in (("unread", DDP), ("unread-one", None)))
    train_on_devices(run, quiet)
    train(other, quiet)
    same(run, other)


@pytest.mark.parametrize("parallel", [DDP, FSDP, TABLES], ids=named)
def test_a_signal_to_a_rank_leaves_all_with_a_checkpoint_and_75(left, whole, parallel):
    """The run resumes from the very step, to the bit."""
    run = left(f"signal-{parallel.strategy}", parallel)
    train_on_devices(run, quiet)
    assert bits(run) == bits(whole(parallel))


def test_a_killed_rank_is_started_again_with_the_others(make, whole, monkeypatch, capfd):
    """From the checkpoint of step 5, to the bit."""
    run = make("killed-fsdp", FSDP)
    monkeypatch.setattr(launch, "_train", killed_once)
    train_on_devices(run, quiet)
    assert run.folder.with_name("killed").exists()
    assert "started again" in capfd.readouterr().err
    assert json.loads((run.folder / "provenance.json").read_text())["resumed_from"] == "step000000005.ckpt"
    assert bits(run) == bits(whole(FSDP))


MOVES = [(SPLIT, None), (None, TABLES), (TABLES, None), (TABLES, FOUR), (FSDP, COPIES), (FSDP, SPLIT_FOUR)]


@pytest.mark.parametrize(("before", "after"), MOVES, ids=named)
def test_a_checkpoint_moves_between_strategies_and_devices(make, left, one, before, after, monkeypatch):
    name = f"moved-{MOVES.index((before, after))}"
    if before is None:
        run = make(name)
        monkeypatch.setattr(Recorder, "on_train_batch_end", Recorder.on_train_batch_end)
        at_step(killed)
        with pytest.raises(InterruptedError):
            train(run, quiet)
        monkeypatch.undo()
    else:
        run = left(name, before)
    run = replace(run, parallel=after)
    train_on_devices(run, quiet) if after else train(run, quiet)
    assert json.loads((run.folder / "provenance.json").read_text())["resumed_from"]
    same(run, one)


def test_a_damaged_shard_is_passed_over(left, whole):
    """The two newest checkpoints are kept; a byte of one rank's file is flipped."""
    run = left("damaged", FSDP)
    kept = sorted((run.folder / "resume").glob("step*.ckpt"))
    assert [path.name for path in kept] == ["step000000005.ckpt", f"step{STEP:09d}.ckpt"]
    shard = max(kept[-1].glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    train_on_devices(run, quiet)
    assert json.loads((run.folder / "provenance.json").read_text())["resumed_from"] == "step000000005.ckpt"
    assert bits(run) == bits(whole(FSDP))


def test_a_later_stage_resumes_from_a_sharded_run(make, one, folders):
    """Its first steps are those of a stage that resumes from the same run on one device."""
    from stemrepro.pipeline.planned import init_from

    ends = []
    for name, parallel in (("stage-one", None), ("stage-fsdp", FSDP)):
        first = replace(make(name, parallel), keep_final_checkpoint=True)
        train_on_devices(first, quiet) if parallel else train(first, quiet)
        second = replace(first, folder=first.folder.with_name("later"), keep_final_checkpoint=False)
        second = replace(second, init_from=init_from(second, [first], "kept"))
        train_on_devices(second, quiet) if parallel else train(second, quiet)
        ends.append(second)
    same(*ends)


def test_what_the_first_rank_refuses_is_one_sentence(make):
    run = make("locked", DDP)
    with locked(run.folder), pytest.raises(UserError, match="another process is training") as error:
        train_on_devices(run, quiet)
    assert type(error.value) is UserError
