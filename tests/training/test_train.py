"""Whole runs: paired data, resume, folders, golden losses."""

import json
import resource
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.model.transformer import build
from stemrepro.pipeline.runs import with_prefixes
from stemrepro.training import callbacks
from stemrepro.training import run as runs
from stemrepro.training.compiling import compiled, compiler_works
from stemrepro.training.module import Batches, LanguageModule, epochs
from stemrepro.training.optimizers import Chain
from stemrepro.training.schedule import schedule_factor
from stemrepro.training.train import train
from tests.conftest import quiet, retrained, written

GOLDEN = json.loads(Path(__file__).with_name("golden_losses.json").read_text())
QUICK = ("dense", "stem-third", "stem-full", "stem-slots", "topk-moe", "engram")
"""Arms whose losses the quick tests compare."""


def rows(run):
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


class Killed(Exception):
    """Stands for the kill."""


def train_until(run, step):
    """Trains and dies after an optimiser step, as a killed process would: nothing is tidied up."""

    def report(done, *_):
        if done >= step:
            raise Killed

    with pytest.raises(Killed):
        train(run, report)


@pytest.fixture
def report_every_step(monkeypatch):
    """Makes the recorder report each step, not twice a second."""
    monkeypatch.setattr(callbacks.time, "monotonic", iter(range(10**9)).__next__)


def test_a_run_equals_a_plain_training_loop(make_run):
    """Lightning, callbacks and accumulation change nothing: the oracle is twenty lines of torch."""
    run = make_run("stem-half", table_rate_factor=2.0, table_decay_factor=0.5)
    train(run, quiet)
    model, training = build(run.model, 0), run.training
    blocks = LanguageModule(run).text
    tables = [p for n, p in model.named_parameters() if "table" in n]
    backbone = [p for n, p in model.named_parameters() if "table" not in n]
    groups = [{"params": backbone, "weight_decay": 0.1}, {"params": tables, "weight_decay": 0.05}]
    optimizer, losses = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), fused=True), []
    for step in range(run.training.steps):
        factor = schedule_factor(step, training)
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = 0.01 * factor, 0.02 * factor
        parts = []
        for k in (2 * step, 2 * step + 1):
            batch = blocks.batch(0, k, 2)
            loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            (loss / 2).backward()
            parts.append(float(loss.detach()))
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(np.mean(parts))
    assert [row["loss"] for row in rows(run)] == pytest.approx(losses, abs=1e-5)
    for name, weight in load_file(run.weights).items():
        torch.testing.assert_close(weight, model.state_dict()[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("arm", "stop"), [("stem-full", 7), ("stem-rowwise", 10), ("stem-touched", 7)])
def test_resume_is_bit_exact(make_run, tmp_path, arm, stop, report_every_step):
    """Killed at and after checkpoints (steps 5 and 10): weights, metrics rows, snapshots and the checkpoint for
    later runs are those of an uninterrupted run."""
    whole = replace(make_run(arm, seed=1), keep_final_checkpoint=True)
    train(whole, quiet)
    expected = written(whole)
    shutil.rmtree(whole.folder)
    train_until(whole, stop)
    assert not whole.weights.exists()
    train(whole, quiet)
    assert written(whole) == expected
    resumed = json.loads((whole.folder / "provenance.json").read_text())["resumed_from"]
    assert resumed == (f"step{stop // 5 * 5:09d}.ckpt" if stop >= 5 else None)


def under_wsd(run, folder, steps, **fields):
    """The same run under WSD, of so many steps, in another folder."""
    wsd = {"schedule": "wsd", "warmup": None, "warmup_tokens": 256, "snapshots": (), "tokens": 128 * steps} | fields
    return replace(retrained(run, **wsd), folder=folder)


@pytest.mark.slow
def test_a_longer_run_resumes_from_a_shorter_ones_stable_phase(make_run, tmp_path):
    """It ends with the bytes of a run that started anew; with another learning rate it does start anew."""
    run = make_run("stem-full")
    short, prefixes = under_wsd(run, tmp_path / "b", 12), under_wsd(run, tmp_path / "a", 5)
    anew = under_wsd(run, tmp_path / "anew", 20)
    train(anew, quiet)
    for each in with_prefixes([short, prefixes]):
        train(each, quiet)
    third = under_wsd(run, tmp_path / "c", 20)
    (long,) = [each for each in with_prefixes([short, third, prefixes]) if each.folder == third.folder]
    assert long.prefixes == (prefixes.folder, short.folder)
    train(long, quiet)
    assert json.loads((long.folder / "provenance.json").read_text())["resumed_from"] == "stable.ckpt"
    for name in ("weights.safetensors", "metrics.jsonl"):
        assert (long.folder / name).read_bytes() == (anew.folder / name).read_bytes(), name
    other = under_wsd(run, tmp_path / "other", 20, learning_rate=0.02)
    train(replace(other, prefixes=long.prefixes), quiet)
    assert json.loads((other.folder / "provenance.json").read_text())["resumed_from"] is None


@pytest.mark.slow
def test_a_decay_is_never_gone_on_from(make_run, tmp_path):
    run = make_run("dense")
    long, short = under_wsd(run, tmp_path / "long", 20), under_wsd(run, tmp_path / "short", 18)
    train(long, quiet)
    # The long one's last step before its decay is 16, the short one's 14.
    train(replace(short, prefixes=(long.folder,)), quiet)
    assert json.loads((short.folder / "provenance.json").read_text())["resumed_from"] is None


@pytest.fixture(scope="module")
def compiled_code(tmp_path_factory):
    """A place for torch's cache: its own is shared by processes, also under another instruction set."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def compiler(compiled_code, monkeypatch):
    """The counters of a compiler that has compiled nothing yet."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(compiled_code))
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):  # each instruction set is tried for seconds otherwise
        if not compiler_works("cpu"):  # seconds, which collecting the tests doesn't need
            pytest.skip("there is no working C++ compiler")
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        yield torch._dynamo.utils.counters["stats"]


@pytest.fixture
def captured(monkeypatch):
    """The counters of a compiler that captures graphs, and makes no C++ of them, which takes seconds."""
    monkeypatch.setattr("stemrepro.training.compiling.compiler_works", lambda _: True)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    compiled.cache_clear()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters["stats"]
    compiled.cache_clear()


@pytest.fixture(scope="module")
def shallow(tiny):
    """Two layers, one with a table: compiling takes its seconds by the layer."""
    return tiny.model_copy(update={"model": tiny.model.model_copy(update={"layers": 2})})


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads", "report_every_step")
def test_a_compiled_run_resumes_bit_exactly_and_is_the_eager_one_but_for_roundings(make_run, shallow, compiler):
    """On two threads. Without care they race for an embedding's gradient: eight of eight runs had other weights."""
    run = make_run("stem-full", scale=shallow)
    run = retrained(run, threads=2, micro_batch=4)
    train(run, quiet)
    assert not compiler
    eager, names = [row["loss"] for row in rows(run)], load_file(run.weights).keys()
    run = retrained(run, "compiled", compile=True)
    train(run, quiet)
    assert compiler["unique_graphs"]  # without any both were eager
    ours = [row["loss"] for row in rows(run)]
    assert ours == pytest.approx(eager, abs=1e-4)
    assert ours[:3] == pytest.approx(eager[:3], rel=1e-5)
    assert load_file(run.weights).keys() == names
    assert json.loads((run.folder / "provenance.json").read_text())["compiled"] is True
    expected = run.weights.read_bytes()
    shutil.rmtree(run.folder)
    train_until(run, 7)
    train(run, quiet)
    assert run.weights.read_bytes() == expected


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_of_touched_rows_the_update_alone_is_compiled(make_run):
    """Were the model compiled too, its losses would part from step 2 on."""
    run = make_run("stem-full", table_update="touched")
    train(run, quiet)
    requested = retrained(run, "requested", compile=True)
    train(requested, quiet)
    losses = [[row["loss"] for row in rows(each)] for each in (requested, run)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert json.loads((requested.folder / "provenance.json").read_text())["compiled"] is True


def test_without_a_compiler_a_run_is_eager_says_so_and_records_it(make_run, monkeypatch, capfd):
    run = make_run("dense")
    train(run, quiet)
    expected = rows(run)
    run = retrained(run, "compiled", compile=True)
    monkeypatch.setattr("stemrepro.training.compiling.compiler_works", lambda _: False)
    train(run, quiet)
    assert "no working compiler" in capfd.readouterr().err
    assert rows(run) == expected
    assert json.loads((run.folder / "provenance.json").read_text())["compiled"] is False


def test_a_damaged_checkpoint_is_passed_over_by_name(make_run, report_every_step):
    run = make_run("dense")
    train_until(run, 11)
    newest = run.folder / "resume" / "step000000010.ckpt"
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"step000000010\.ckpt is damaged"):
        train(run, quiet)
    about = json.loads((run.folder / "provenance.json").read_text())
    assert about["resumed_from"] == "step000000005.ckpt"


def test_arms_see_the_same_batches(make_run):
    first = [iter(LanguageModule(make_run(arm, seed=2)).train_dataloader()) for arm in ("dense", "token-only")]
    for _ in range(3):
        assert next(first[0]).equal(next(first[1]))
    blocks = LanguageModule(make_run("dense")).text
    assert next(iter(Batches(blocks, 0, 2, 7))).equal(blocks.batch(0, 7, 2))


def test_a_finished_run_returns_at_once_and_keeps_its_bytes(make_run):
    run = make_run("stem-third")
    train(run, quiet)
    before = {path.name: path.stat().st_mtime_ns for path in run.folder.iterdir()}
    train(run, quiet)
    assert {path.name: path.stat().st_mtime_ns for path in run.folder.iterdir()} == before
    assert not (run.folder / "resume").exists()
    assert yaml.safe_load((run.folder / "config.yaml").read_text()) == run.config


def test_other_settings_are_refused_by_key_and_lose_nothing(make_run):
    run = make_run("stem-full")
    train(run, quiet)
    weights = run.weights.read_bytes()
    other = make_run("stem-full", table_rate_factor=3.0)
    with pytest.raises(UserError, match=r"training\.table_rate_factor: 1\.0 there, 3\.0 requested"):
        train(other, quiet)
    assert run.weights.read_bytes() == weights
    train(other, quiet, replace=True)
    assert other.weights.read_bytes() != weights


@pytest.mark.slow
def test_settings_are_readable_while_a_run_is_replaced(make_run, monkeypatch):
    run, other, seen = make_run("stem-full"), make_run("stem-full", table_rate_factor=3.0), []
    train(run, quiet)

    def watched(path, *what):
        if path.name == "config.yaml":  # what another seed's tracking would read at this moment
            seen.append(yaml.safe_load(path.read_text()) == run.config and not run.weights.exists())
        return atomic_write(path, *what)

    monkeypatch.setattr("stemrepro.training.folder.atomic_write", watched)
    train(other, quiet, replace=True)
    assert seen == [True]
    assert yaml.safe_load((other.folder / "config.yaml").read_text()) == other.config != run.config


def test_a_run_made_by_other_code_is_refused_or_trained_anew(make_run, monkeypatch):
    run = make_run("dense")
    train(run, quiet)
    written = run.weights.stat().st_mtime_ns
    monkeypatch.setattr(runs, "run_code", lambda *_: "other")
    with pytest.raises(UserError, match=r"code: [0-9a-f]{12} there, other requested"):
        train(run, quiet)
    train(run, quiet, replace=True)
    assert run.weights.stat().st_mtime_ns != written


def test_snapshots_hold_the_tables_only(make_run):
    run = make_run("stem-half")
    train(run, quiet)
    tables = load_file(run.folder / "tables-050.safetensors")
    assert {(str(t.dtype), tuple(t.shape)) for t in tables.values()} == {("torch.bfloat16", (300, 24))}
    assert len(tables) == len(run.model.replaced_layers) == 2
    dense = make_run("dense")
    train(dense, quiet)
    assert not list(dense.folder.glob("tables-*"))


def test_marks_carry_validation_by_source(make_run):
    run = make_run("dense")
    train(run, quiet)
    marked = [row["step"] for row in rows(run) if "validation" in row]
    assert marked == [4, 8, 12]
    assert set(rows(run)[3]["validation"]) == {"speeches", "factbook", "bible"}
    assert [row["tokens"] for row in rows(run)] == [128 * step for step in range(1, 13)]


@pytest.mark.parametrize("arm", [arm if arm in QUICK else pytest.param(arm, marks=pytest.mark.slow) for arm in GOLDEN])
def test_golden_losses(make_run, arm):
    """The first losses of every arm, one thread. Other processors add in another order, so a loss may deviate by
    GOLDEN's tolerance of its step, which follows from the effect of the weights' last bits (write_golden.py).
    A refactor must leave them alone; a deliberate change rewrites the file and says why in its commit.
    benchmarks/same_losses.py compares bits, on one machine."""
    run = make_run(arm)
    train(run, quiet)
    losses = np.array([row["loss"] for row in rows(run)])
    deviation = np.abs(losses - GOLDEN[arm]["loss"])
    assert (deviation <= GOLDEN[arm]["tolerance"]).all(), deviation


def test_a_full_disk_loses_nothing(make_run, report_every_step):
    """The kernel refuses the checkpoint of step 10 half-way (a limit on file sizes in place of a full disk); after
    there is room again the run resumes and ends with the bytes it would have had."""
    whole, run = make_run("stem-full", seed=1), make_run("stem-full", seed=1)
    train(whole, quiet)
    expected = written(whole)
    run = replace(run, folder=run.folder.parent / "full")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def report(step, *_):
        if step == 6:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))

    try:
        with pytest.raises(UserError, match=r"0010\.ckpt could not be written \(File too large\); .* unharmed"):
            train(run, report)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    kept = [path.name for path in sorted((run.folder / "resume").iterdir())]
    assert kept == ["step000000005.ckpt", "step000000005.ckpt.sha256"]
    train(run, quiet)
    assert written(run) == expected


@pytest.mark.slow
def test_nothing_is_compiled_anew_for_experts_that_get_other_numbers_of_tokens_at_each_step(make_run, captured):
    eager = retrained(make_run("topk-moe"), tokens=32 * 4 * 3, evals=1)
    run = retrained(eager, "compiled", compile=True)
    train(eager, quiet)
    train(run, quiet)
    assert 0 < captured["unique_graphs"] < 10
    ours, theirs = ([row["loss"] for row in rows(each)] for each in (run, eager))
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert load_file(run.weights).keys() == load_file(eager.weights).keys()


def spoil(run, step, monkeypatch):
    """From `step` on the training loss is NaN."""
    real = LanguageModule.training_step

    def training_step(module, batch, number):
        loss = real(module, batch, number)
        return loss * float("nan") if module.global_step == step - 1 else loss

    monkeypatch.setattr(LanguageModule, "training_step", training_step)


def test_a_run_that_diverges_ends_there_by_name(make_run, monkeypatch):
    run = make_run("stem-full")
    spoil(run, 8, monkeypatch)
    train(run, quiet)
    assert run.diverged == 8
    assert run.ended
    assert not run.weights.exists()
    assert [row["step"] for row in rows(run)] == list(range(1, 8))
    assert not (run.folder / "resume").exists()
    monkeypatch.undo()
    before = (run.folder / "metrics.jsonl").stat().st_mtime_ns
    train(run, quiet)  # it has come to its end
    assert (run.folder / "metrics.jsonl").stat().st_mtime_ns == before


def test_a_run_that_diverged_after_a_resume_has_the_step(make_run, monkeypatch, report_every_step):
    run = make_run("stem-full")
    train_until(run, 7)
    spoil(run, 9, monkeypatch)
    train(run, quiet)
    assert run.diverged == 9
    assert len(rows(run)) == 8


def test_weights_that_are_no_numbers_at_the_end_are_not_kept(make_run, monkeypatch):
    run = make_run("dense")
    real = Chain.step

    def step(self, *arguments, **named):
        loss = real(self, *arguments, **named)
        if next(iter(self.state.values()))["step"] == run.training.steps:
            self.param_groups[0]["params"][0].data.view(-1)[0] = torch.nan
        return loss

    monkeypatch.setattr(Chain, "step", step)
    monkeypatch.setattr(callbacks, "validation_losses", lambda *_: {})
    train(run, quiet)
    assert run.diverged == run.training.steps
    assert not run.weights.exists()


def test_two_can_not_train_in_one_folder(make_run):
    """The second would leave its weights under the settings of the first."""
    run, other = make_run("stem-full"), make_run("stem-full", table_rate_factor=3.0)

    def meanwhile(*_):
        with pytest.raises(UserError, match=r"another process is training in .*seed0; wait for it"):
            train(other, quiet, replace=True)

    train(run, meanwhile)
    assert run.ended


@pytest.mark.parametrize("tasks", ["1", "2"])
def test_a_run_inside_a_slurm_job_is_as_anywhere(make_run, monkeypatch, tmp_path, tasks):
    """Lightning would refuse two tasks, requeue the job at SIGUSR1, and load checkpoints in the working folder."""
    run = make_run("dense")
    train(run, quiet)
    job = f"JOB_ID=1 JOB_NAME=j NTASKS={tasks} PROCID=0 LOCALID=0 NODEID=0 NODELIST=localhost"
    for name, value in (field.split("=") for field in job.split()):
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.chdir(tmp_path)
    Path("hpc_ckpt_1.ckpt").write_bytes(b"of another run")
    inside, before, handlers = replace(run, folder=tmp_path / "inside"), signal.getsignal(signal.SIGUSR1), []
    train(inside, lambda *_: handlers.append(signal.getsignal(signal.SIGUSR1)))
    assert set(handlers) == {before}
    assert inside.weights.read_bytes() == run.weights.read_bytes()
    assert [path.name for path in Path().glob("hpc*")] == ["hpc_ckpt_1.ckpt"]


def test_a_run_of_more_than_four_passes_is_refused(make_run):
    run = make_run("dense")
    blocks = LanguageModule(run).text
    available = blocks.count * blocks.length
    step = run.training.batch * run.training.sequence
    at_most, more = 4 * available // step * step, (4 * available // step + 1) * step
    assert epochs(retrained(run, tokens=at_most), blocks) <= 4
    over = retrained(run, tokens=more)
    with pytest.raises(UserError, match=rf"{more:,} training tokens are 4\.0 passes.*plan {4 * available:,} tokens"):
        train(over, quiet)
    assert not over.weights.exists()
