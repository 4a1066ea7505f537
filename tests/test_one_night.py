"""The night on eight GPUs of docs/cluster.md works word by word, as far as that needs no GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stemrepro.cli import estimate
from stemrepro.config.address import Address
from stemrepro.measures.catalog import load
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.pipeline.plan import make_plan
from stemrepro.sweeps.trials import first_points, read_sweep, space_of
from tests.conftest import ROOT, copy_recipes

OWN = "own-rate"
PAGE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
SECTION, PILOT = (
    PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in ("One night on 8 H100s", "The pilot")
)


def run_block(section, folder):
    """Run a section's first block in a folder, and return what it printed."""
    copy_recipes(folder, "pretraining_350m")
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", block],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder in which the page's first block was run, and what it printed."""
    folder = tmp_path_factory.mktemp("night")
    return folder, run_block(SECTION, folder)


def test_the_files_of_the_page_are_planned_at_the_cost_that_it_names(written):
    folder, said = written
    flops, days, hours, gpu_hours = re.search(
        r"# (\S+) FLOPs, (\S+) days of one H100 at 40% of its peak \(\S+\): (\d+) hours of eight, (\d+) GPU", SECTION
    ).groups()
    assert f" {flops} FLOPs: " in said
    assert f" or {days} days of one H100 at 40% of its peak" in said
    plan = make_plan("tonight", (), load(folder / "recipes"))
    cost = estimate.estimate(plan)
    seconds = cost["flops"] / estimate.GPU_FLOPS
    assert (round(seconds / 3600), round(seconds / 3600 / 8)) == (int(gpu_hours), int(hours))
    speeds = [share * 8 * cost["tokens"] / seconds for share in (0.5, 1)]
    told = re.search(r"about ([\d,]+) tokens a second, where 40% are ([\d,]+)", SECTION).groups()
    assert speeds == pytest.approx([float(number.replace(",", "")) for number in told], rel=0.05)
    assert (plan.scale.parallel.strategy, plan.scale.parallel.devices) == ("ddp", 8)
    runs = {str(address): (run.trained, run.training.steps) for address, run in plan.runs.items()}
    assert runs == {
        "dense": ((0,), 4768), "stem-third": ((0,), 4768), "dense@probe": ((0,), 20), "stem-third@probe": ((0,), 20)
    }  # fmt: skip


def test_the_smoke_test_is_the_same_recipe_on_one_device_and_the_vendored_text(written, sample):
    """The sample's 300 entries make more tokens than the smoke test's 512, but less than twice as many."""
    plan = make_plan("tonight-smoke", (), load(written[0] / "recipes"))
    assert [str(address) for address in plan.runs] == ["dense", "stem-third", "dense@probe", "stem-third@probe"]
    assert (plan.scale.parallel, plan.mix.kind, plan.scale.training.accelerator) == (None, "sample", "gpu")
    assert plan.scale.training.tokens < 2 * (sample / "blocks/train.bin").stat().st_size / 2


def test_the_commands_of_the_page_exist_and_it_says_what_is_unproven():
    assert "**None of this ran on a GPU.**" in SECTION
    assert SECTION.count("\n") < 45
    asked = set(re.findall(r"stemrepro (\w+)", SECTION)) - {"tonight"}
    assert asked == {"new", "plan", "data", "train", "score", "analyse"}


def test_the_pilot_is_planned_at_the_cost_that_its_page_names(tmp_path, monkeypatch):
    said = run_block(PILOT, tmp_path)
    *flops, hours = re.search(
        r"# (\S+), (\S+) and (\S+) FLOPs: (\d+) hours of one H100 at 40% of its peak", PILOT
    ).groups()
    assert re.findall(r" tokens, (\S+) FLOPs: ", said) == flops
    catalog, seconds, shares, parts = load(tmp_path / "recipes"), 0.0, [], []
    for size, parameters in (("30m", 30e6), ("60m", 60e6), ("125m", 125e6)):
        plan = make_plan(f"pilot-{size}", (), catalog)
        parts.append(estimate.estimate(plan)["flops"] / estimate.GPU_FLOPS)
        seconds += parts[-1]
        total = {address.arm: parameter_counts(run.model)["total"] for address, run in plan.runs.items()}
        assert total["dense"] == pytest.approx(parameters, rel=0.02)
        assert total["dense-third-size"] == pytest.approx(total["stem-third"], rel=0.001)
        tokens = {run.training.tokens for run in plan.runs.values()}
        assert tokens.pop() / total["dense"] == pytest.approx(36, rel=0.01)
        assert {run.trained for run in plan.runs.values()} == {(0, 1, 2)}
        model = plan.runs[Address(OWN, "dense")].model
        larger = plan.runs[Address(OWN, "dense-third-size")].model
        assert (larger.kv_heads, larger.head_width, larger.ffn_width % 8) == (larger.heads, model.head_width, 0)
        shares.append(2 * model.vocab * model.width / total["dense"])  # a table at the input, one at the output
    assert shares[::2] == pytest.approx([2 / 3, 1 / 3], rel=0.03)  # docs/trainer.md
    dearest = plan.runs[Address(OWN, "dense-third-size")]
    flops_of_one = 3 * dearest.training.tokens * flops_per_token(dearest.model, dearest.training.sequence)
    assert 8 < flops_of_one / estimate.GPU_FLOPS / 3600 < 9  # "over eight hours"
    claims = {claim.arms for claim in catalog.recipe("pilot").claims.values()}
    assert claims == {(other, "stem-third") for other in ("dense", "input-add", "dense-third-size")}
    sweep = read_sweep(tmp_path / "recipes/sweeps/pilot.yaml")
    monkeypatch.chdir(tmp_path)
    spaces = {arm: space_of(arm, sweep.space, catalog, "pilot-30m") for arm in sweep.arms}
    assert {arm: len(first_points(sweep, space, plan.scale)) for arm, space in spaces.items()} == {
        "dense": 3, "input-add": 6, "stem-third": 6, "dense-third-size": 3
    }  # fmt: skip
    assert abs(seconds / 3600 - int(hours)) < 2
    told = re.search(r"the three sizes take (\d+), (\d+) and (\d+)\.", PILOT).groups()
    assert [round(part / 3600) for part in parts] == [int(number) for number in told]
    with (tmp_path / "recipes/scales/pilot-30m.yaml").open("a") as file:
        file.write("tuned:\n  stem-third: {learning_rate: 0.004, table_rate_factor: 4}\n")
    runs = make_plan("pilot-30m", (), load(tmp_path / "recipes")).runs
    rates = {at.arm: (run.training.learning_rate, run.training.table_rate_factor) for at, run in runs.items()}
    assert rates == {
        "dense": (0.002, 1), "input-add": (0.002, 1), "dense-third-size": (0.002, 1), "stem-third": (0.004, 4)
    }  # fmt: skip


def test_the_bill_of_the_pilot_follows_from_its_formulas():
    """docs/trainer.md: 6 N D at 40% of an H100's peak, and a published law of the loss."""
    page = (ROOT / "docs/trainer.md").read_text(encoding="utf-8")
    told = re.search(r"takes (\d+) hours at 20 tokens per parameter, (\d+) at 36, and ([\d,]+) with", page).groups()
    hours = [6 * 1.5e9 * tokens / estimate.GPU_FLOPS / 3600 for tokens in (30e9, 54e9, 1e12)]
    assert [float(number.replace(",", "")) for number in told] == pytest.approx(
        hours, rel=0.015
    )  # the estimate rounds the peak
    parts = 406.4 / 1.5e9**0.34, 410.7 / 30e9**0.28
    loss = 1.69 + sum(parts)
    worth = [100 * ((parts[1] / (parts[1] - lead * loss)) ** (1 / 0.28) - 1) for lead in (0.01, 0.004)]
    said = re.search(
        r"a loss of (\S+) nats there\. A lead of 1% is then worth (\d+)% more tokens, and a lead of 0.4% .* (\d+)%\.",
        page,
    )
    assert [float(number) for number in said.groups()] == pytest.approx([loss, *worth], abs=0.5)
    assert float(said[1]) == pytest.approx(loss, abs=0.005)
