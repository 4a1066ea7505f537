"""The ten minutes of a GPU, on the processor: all sections, with the packages that the GPU's machine has."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tarfile
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

from benchmarks import gpu_checks, gpu_day, gpu_job, gpu_part, gpu_speed
from benchmarks.gpu_job import Section
from stemrepro.common.errors import UserError
from stemrepro.common.paths import SCORES
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import shaped
from stemrepro.data.encoding import write_blocks
from stemrepro.data.tokenizer import train_tokenizer
from stemrepro.measures import store
from stemrepro.measures.base import scores_of
from stemrepro.measures.catalog import load
from stemrepro.pipeline.adopt import adopt
from stemrepro.pipeline.plan import make_plan
from stemrepro.report.analyse import module
from stemrepro.report.style import settle, use_style
from stemrepro.training.train import train
from tests.conftest import ROOT, copy_recipes, quiet
from tests.report.looks import faults


@pytest.fixture(scope="module")
def laid_out(sample, tmp_path_factory):
    """What travels with git's files, with the text of the scale gpu-smoke alone, and data/ with that text."""
    home = tmp_path_factory.mktemp("gpu")
    folder = home / "data/gpu-smoke"
    folder.mkdir(parents=True)
    train_tokenizer(sample / "corpus/corpus.parquet", 512, folder / "tokenizer.json")
    write_blocks(sample / "corpus/corpus.parquet", folder / "tokenizer.json", folder / "blocks")
    gpu_day.pack_text(("gpu-smoke",), home / "data", home / ".gpu/text.tar.xz")
    (home / ".gpu/COMMIT").write_text("abc")
    return home


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("python", [sys.executable, os.environ.get("GPU_PYTHON")], ids=["this", "the machine's"])
def test_the_job_runs_in_a_copy_and_its_scores_are_taken_in(laid_out, tmp_path, monkeypatch, python):
    """Without .git, scores/ and results/, with the packages of benchmarks/gpu_machine.txt.

    All sections are minutes: here those that what comes back follows from. Others have tests below.
    """
    if python is None:
        pytest.skip("GPU_PYTHON names no Python 3.12 with these packages and the wheels of gpu_day")
    monkeypatch.chdir(ROOT)
    copy, only = tmp_path / "copy", ("ceilings", "training", "scores") if python == sys.executable else ()
    code = gpu_day.rehearse(copy, python, laid_out / ".gpu", minutes=20, only=only)  # of a slow machine
    out = copy / "out"
    ends = {row["section"]: (row["end"], row.get("said", "")) for row in lines(out / "sections.jsonl")}
    asked = gpu_job.sections("cpu", "gpu-smoke", out, only)
    assert set(ends) == {section.name for section in asked}
    assert {end for end, _ in ends.values()} == {"exit code 0"}, ends
    assert code == 0
    assert not {".git", "scores", "results"} & {path.name for path in copy.iterdir()} - {"scores"}
    assert {path.name for path in out.iterdir()} == {"about.json", "rows.jsonl", "runs.tar.xz", "sections.jsonl"}
    rows = lines(out / "rows.jsonl")
    measured = {"ceilings", "modules", "paths", "serving", "training"}
    assert {row["section"] for row in rows} == ({"ceilings"} if only else measured)
    assert all(row.get("holds", True) and "error" not in row for row in rows)
    with tarfile.open(out / "runs.tar.xz") as archive:
        assert not [name for name in archive.getnames() if name.endswith((".safetensors", ".ckpt"))]

    copy_recipes(tmp_path, "gpu_width")
    monkeypatch.chdir(laid_out)
    plan = make_plan("gpu-smoke", (), load(tmp_path / "recipes"))
    taken, refused = adopt(plan, out / "runs.tar.xz", runs=tmp_path / "runs", scores=tmp_path / "scores")
    assert not refused
    assert len(taken) == (3 if only else 5)  # and two wider ones
    made = json.loads((tmp_path / "scores/gpu-smoke/made.json").read_text())
    assert made["commits"] == ["abc+unpacked"]


def test_all_that_travels_fits(laid_out, monkeypatch):
    monkeypatch.chdir(ROOT)
    room = 20 * 2**20  # for text and wheels of the scale gpu: 12.9 and 2.8 MiB
    monkeypatch.setattr(gpu_day, "MOST", gpu_day.MOST - room)
    gpu_day.travelling(laid_out / ".gpu")
    monkeypatch.setattr(gpu_day, "MOST", 2**20)
    with pytest.raises(UserError, match=r"1 MiB may"):
        gpu_day.travelling(laid_out / ".gpu")


PATIENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('child', 'w').close(); time.sleep(60)"


def test_a_section_is_ended_with_its_children_and_the_next_one_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_job, "PATIENCE", 0.2)
    asked = [
        Section("endless", ("-c", PATIENT.format(child=CHILD)), 2.0),
        Section("failing", ("-c", "print('last words'); raise SystemExit(3)"), 30),
        Section("greedy", ("-c", "pass"), 60, least=30),
        Section("alongside", ("-c", "print(1)"), 20, alongside=True),
        Section("vital", ("-c", "open('vital', 'w').close()"), 60, least=30, vital=True, packs=True),
        Section("after", ("-c", "open('out/runs.tar.xz').close()"), 60, least=30),
    ]
    assert not gpu_job.work(tmp_path / "out", asked, "gpu", minutes=1.6)
    rows = {row["section"]: row for row in lines(tmp_path / "out/sections.jsonl")}
    assert rows["endless"]["end"] == "ended after 2 s"
    assert rows["failing"]["end"] == "exit code 3"
    assert rows["failing"]["said"] == "last words\n"
    assert rows["greedy"]["end"].startswith("left out: 9")
    assert rows["alongside"]["end"] == rows["vital"]["end"] == rows["after"]["end"] == "exit code 0"
    assert (tmp_path / "child").exists()
    assert not subprocess.run(["pgrep", "-f", "signal.SIG_IGN[)]; open"], capture_output=True).stdout
    assert (tmp_path / "out/runs.tar.xz").exists()


@pytest.fixture
def smoke(laid_out, monkeypatch, tmp_path):
    """A folder with the scale's text and recipes; the plan of the recipe there."""
    monkeypatch.chdir(tmp_path)
    copy_recipes(tmp_path, "gpu_width")
    (tmp_path / "data").symlink_to(laid_out / "data")
    return gpu_part.planned("gpu-smoke", "main")


@pytest.fixture(scope="module")
def five(laid_out, tmp_path_factory):
    """Runs of a scale whose time ended in the second seed."""
    home = tmp_path_factory.mktemp("five")
    copy_recipes(home, "gpu_width")
    (home / "data").symlink_to(laid_out / "data")
    with chdir(home):
        for run in gpu_part.planned("gpu-smoke", "main")[1][:5]:
            train(run, quiet)
    return home / "runs/gpu-smoke"


@pytest.mark.slow
def test_runs_go_seed_by_seed_and_whole_seeds_are_scored(smoke, five):
    _, runs = smoke
    arms = ["dense", "stem-third", "stem-full"]
    assert [(run.seed, run.address.arm) for run in runs] == [(seed, arm) for seed in range(3) for arm in arms]
    for first, last, scored in ((0, 2, arms[:2]), (2, 5, arms)):
        for run in runs[first:last]:
            shutil.copytree(five / run.folder.relative_to("runs/gpu-smoke"), run.folder)
        assert gpu_part.score("gpu-smoke", "main") == (0,)
        assert {address.arm for address in store.scored(SCORES / "gpu-smoke", "losses")} == {*scored}
    for arm in arms:
        assert store.about(SCORES / "gpu-smoke", "losses", Address(MAIN, arm))["seeds"] == 1


def test_an_arm_that_fails_is_left_out_and_the_others_go_on(smoke, monkeypatch):
    tried = []

    def some(runs, *_, **__):
        tried.append([str(run) for run in runs])
        if "stem-full seed 0" in tried[-1]:
            raise UserError("stem-full seed 0 failed:\nTraceback")

    monkeypatch.setattr(gpu_part, "train_runs", some)
    assert not gpu_part.train("gpu-smoke", "main")
    assert [len(names) for names in tried[:2]] == [9, 6]
    assert not [name for name in tried[1] if name.startswith("stem-full")]


def test_scale_and_recipe_are_cut_to_what_was_reached():
    scale, recipe = ((ROOT / f"recipes/{name}.yaml").read_text() for name in ("scales/gpu", "gpu_width"))
    whole = [yaml.safe_load(text) for text in gpu_day.fitted(scale, recipe, [0, 1, 2], wider=True)]
    assert whole == [yaml.safe_load(scale) | {"scoreboard": "results"}, yaml.safe_load(recipe)]
    cut = [yaml.safe_load(text) for text in gpu_day.fitted(scale, recipe, [0, 1], wider=False)]
    assert cut[0] == whole[0] | {"seeds": [0, 1]}
    assert (cut[1]["seeds"], "variants" in cut[1]) == (2, False)
    assert set(cut[1]["estimates"]) == set(whole[1]["estimates"]) - {"lead-384"}
    assert cut[1]["claims"] == whole[1]["claims"]


@pytest.mark.slow
def test_what_comes_back_is_taken_in_judged_and_drawn(laid_out, five, tmp_path, monkeypatch, capsys):
    """The scale gpu is gpu-smoke here. The time ended in the second seed, and no wider model was trained."""
    monkeypatch.chdir(tmp_path)
    for name in ("recipes", "analysis"):
        shutil.copytree(ROOT / name, name)
    text = Path("recipes/scales/gpu-smoke.yaml").read_text().replace("results/gpu-smoke", "results/gpu")
    Path("recipes/scales/gpu.yaml").write_text(text)
    for place, source in (("data/gpu", laid_out / "data/gpu-smoke"), ("scores/width", ROOT / "scores/width")):
        Path(place).parent.mkdir()
        Path(place).symlink_to(source)
    Path("docs").mkdir()
    shutil.copytree(five, "runs/gpu")
    gpu_part.score("gpu", "main")
    out = tmp_path / "out"
    ceilings = {"section": "ceilings", "what": "ceilings", "product_flops": 1.0}
    rows = [ceilings, {"section": "modules", "class": "dense", "holds": False}]
    out.mkdir()
    (out / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (out / "sections.jsonl").write_text(json.dumps({"section": "training", "end": "ended after 340 s"}) + "\n")
    (out / "about.json").write_text(json.dumps({"device": "a card", "driver": "1.2", "torch": "2.11"}))
    gpu_job.pack(out, "gpu")
    shutil.rmtree("runs/gpu")
    shutil.rmtree("scores/gpu")
    gpu_day.take(out)
    said = capsys.readouterr().out
    assert "training: ended after 340 s" in said
    assert 'look at: {"section": "modules", "class": "dense", "holds": false}' in said
    assert "Left to do:" in said
    assert yaml.safe_load(Path("recipes/scales/gpu.yaml").read_text())["seeds"] == [0]
    verdicts = json.loads(Path("results/gpu/gpu_width/verdicts.json").read_text())
    assert [row["seeds"] for row in verdicts] == [1, 1]
    assert (
        json.loads(Path("results/gpu/gpu_width/provenance.json").read_text())["trained"]["about"]["device"] == "a card"
    )
    use_style(load().arms)
    scores = scores_of("gpu_width", load(), "gpu", Path("scores/gpu"))
    drawn = module(Path("analysis/gpu_width.py"), ["draw"])
    figure = drawn.draw(drawn.collect(scores), scores)
    settle(figure)
    assert faults(figure) == []
    table = list(csv.DictReader(Path("docs/gpu.csv").read_text().splitlines()))
    assert [row["section"] for row in table] == ["ceilings", "modules"]
    assert {row["device"] for row in table} == {"a card"}


def test_times_of_a_step_and_its_share_of_the_peak(catalog, monkeypatch):
    """By hand: products of a layer and of the head, of 64 tokens in sequences of 32, three times."""
    monkeypatch.setattr(gpu_speed, "compiler_works", lambda _: False)
    monkeypatch.setattr(gpu_speed, "ceilings", lambda _: {"product_flops": 1e9})
    shape = catalog.scale("gpu-smoke").model
    (row,) = gpu_speed.training("dense", shaped(shape, catalog.arms["dense"]), "cpu")
    d, f, length = shape.width, shape.ffn_width, 32
    layer = 2 * (2 * d * d + 2 * d * d // 2) + 4 * length * d + 6 * d * f
    flops = 3 * 64 * (shape.layers * layer + 2 * d * shape.vocab)
    seconds = (row["passes_ms"] + row["update_ms"]) / 1e3
    assert row["tokens_per_second"] == pytest.approx(64 / seconds)
    assert row["mfu"] == pytest.approx(flops / seconds / 989e12)
    assert row["mfu_of_product"] == pytest.approx(flops / seconds / 1e9)
    assert row["step_ms_16384"] == pytest.approx(256 * row["passes_ms"] + row["update_ms"])


def test_tables_in_host_memory_give_the_same_logits_and_their_bytes(catalog):
    shape = catalog.scale("gpu-smoke").model
    dense, here, ahead, asked = gpu_speed.rows("serving", catalog, shape, "cpu")
    assert "error" not in dense | here
    for row in (ahead, asked):
        assert row["same_logits"]
        distinct = len(gpu_speed.batches(shape.vocab, (1, 64), "cpu")[0].unique())
        assert row["prompt_bytes"] == distinct * 2 * shape.ffn_width * 2  # of two tables, in bfloat16


def test_every_network_and_memory_is_compared(catalog):
    every = gpu_checks.classes(catalog)
    assert {arm.ffn for arm in every.values()} == {arm.ffn for arm in catalog.arms.values()}
    assert {arm.memory for arm in every.values()} == {arm.memory for arm in catalog.arms.values()}
    assert set(gpu_checks.CHOOSING) <= set(every)


def test_a_network_that_computes_something_else_does_not_hold(catalog, monkeypatch):
    """Also where the loss is as good as the same: the gradient of one parameter tells."""
    assert all(row["holds"] for row in gpu_checks.modules(catalog, "cpu", ["stem-third"]))
    step, calls = gpu_checks.step, []

    def other(*arguments):
        loss, gradients = step(*arguments)
        calls.append(loss)
        if len(calls) > 1:
            gradients["blocks.0.ffn.gate.weight"] *= -1
        return loss, gradients

    monkeypatch.setattr(gpu_checks, "step", other)
    rows = [*gpu_checks.modules(catalog, "cpu", ["stem-third"])]
    assert [(row["holds"], row["parameter"]) for row in rows] == [(False, "blocks.0.ffn.gate.weight")] * 2


@pytest.mark.slow
def test_paths_of_a_device_are_compared(smoke, catalog, monkeypatch):
    """A resumed run has the bits of a whole one; one at another rate lies further apart than it may."""
    some = [pair for pair in gpu_checks.pairs("cpu") if pair[0] == "whole and resumed"]
    other = ("other", "dense", {}, {"learning_rate": 0.1}, gpu_checks.ROUNDING)
    broken = ("broken", "dense", {}, {"accelerator": "none"}, gpu_checks.ROUNDING)
    monkeypatch.setattr(gpu_checks, "pairs", lambda device: (*some, broken, other))
    resumed, failed, apart = gpu_checks.paths(catalog, "cpu", 8)
    assert (resumed["same_bits"], resumed["apart"], resumed["holds"]) == (True, 0.0, True)
    assert "none" in failed["error"]
    assert not apart["holds"]
    assert not apart["same_bits"]
