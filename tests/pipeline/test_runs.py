"""From a plan to runs."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest
from stemrepro.common.workers import Job
from stemrepro.config.address import MAIN, Address
from stemrepro.data.blend import write_blend
from stemrepro.pipeline import runs as of_plan
from stemrepro.pipeline.plan import Planned, make_plan
from stemrepro.pipeline.runs import asked_runs, by_stage, runs_of, share_of, train
from stemrepro.training.run import InitFrom
from tests.conftest import ROOT, TINY


def test_a_run_asked_for_alone_knows_shorter_ones_of_its_stable_phase(make_run, tiny, sample, catalog, tmp_path):
    """Else `stemrepro train dense@long` would train the whole stable phase anew."""
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    run, step = make_run("dense"), tiny.training.batch * tiny.model.sequence
    wsd = {"schedule": "wsd", "warmup": None, "warmup_tokens": 2 * step}

    def planned(steps, **fields):
        training = run.training.model_copy(update={"tokens": steps * step} | fields)
        return Planned(run.model, training, None, 0, "own", (), {"losses": (0, 1)})

    arms = {Address("short", "dense"): planned(5, **wsd), Address("long", "dense"): planned(20, **wsd)}
    arms |= {Address(MAIN, "dense"): planned(12)}
    plan = replace(make_plan("smoke", ("paper_audit",), catalog), name="tiny", scale=tiny, runs=arms)
    folders = tmp_path / "data", tmp_path / "runs"
    long = asked_runs(plan, [Address("long", "dense")], *folders)
    short = tmp_path / "runs/tiny/short/dense"
    assert [(one.seed, one.prefixes) for one in long] == [(seed, (short / f"seed{seed}",)) for seed in (0, 1)]
    (plain, _) = asked_runs(plan, [Address(MAIN, "dense")], *folders)
    assert plain.prefixes == ()


def test_runs_that_resume_from_others_are_planned_with_them(sample, tmp_path, monkeypatch):
    """The whole way: a variant that extends, the plan, and runs; also where only later ones are requested."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", "recipes")
    (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY | {"seeds": [0, 1]}))
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    variants, recipe = tmp_path / "recipes/variants.yaml", tmp_path / "recipes/rivals.yaml"
    extends = "{sequence: 64, rope: 100000, tables: anew}"
    variants.write_text(f"{variants.read_text()}later: {{at: tiny, tokens: 768, extends: {extends}}}\n")
    settings = yaml.safe_load(recipe.read_text())
    settings["variants"]["later"] = {"arms": ["dense", "stem-full"], "seeds": 2}
    recipe.write_text(yaml.safe_dump(settings))
    plan = make_plan("tiny", ("rivals",))
    every = {(run.address, run.seed): run for run in runs_of(plan)}
    later, parent = every[Address("later", "stem-full"), 1], every[Address(MAIN, "stem-full"), 1]
    begun = (later.init_from.folder, later.init_from.parent, later.init_from.tables)
    assert begun == (parent.folder, digest(parent.config), "anew")
    assert (later.training.sequence, later.training.batch) == (2 * parent.training.sequence, parent.training.batch // 2)
    assert later.model.rope_base == 10 * parent.model.rope_base
    assert {str(address) for (address, _), run in every.items() if run.keep_final_checkpoint} == {"dense", "stem-full"}
    parents = [every[Address(MAIN, "dense"), seed].folder for seed in (0, 1)]
    assert [run.init_from.folder for run in asked_runs(plan, [Address("later", "dense")])] == parents
    assert all(run.keep_final_checkpoint for run in asked_runs(plan, [Address(MAIN, "dense")])[:2])


def test_shares_are_whole_even_and_keep_runs_with_what_they_resume_from(make_run, tmp_path):
    run = make_run("dense")
    parents = [replace(run, seed=seed, folder=tmp_path / f"dense{seed}") for seed in range(6)]
    begins = [InitFrom(parent.folder, "", "kept", 0) for parent in parents]
    children = [replace(run, folder=tmp_path / f"later{seed}", init_from=begin) for seed, begin in enumerate(begins)]
    long = [replace(run, folder=tmp_path / f"long{seed}", prefixes=(parents[seed].folder,)) for seed in range(6)]
    every = [*parents, *children, *long]
    shares = [share_of(every, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(str(run.folder) for share in shares for run in share) == sorted(str(run.folder) for run in every)
    assert [len(share) for share in shares] == [6, 6, 6]
    for share in shares:
        folders = {run.folder.name for run in share}
        seeds = {name[-1] for name in folders}
        assert folders == {f"{name}{seed}" for name in ("dense", "later", "long") for seed in seeds}
    assert share_of(every, "1/1") == every
    assert share_of(every[:2], "3/3") == []


def test_a_scale_of_gpus_is_not_trained_where_there_is_none(make_run, catalog, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run = make_run("dense")
    run = replace(run, training=run.training.model_copy(update={"accelerator": "gpu"}))
    plan = replace(make_plan("smoke", ("paper_audit",), catalog), name="gpu-smoke")
    with pytest.raises(UserError, match="scale gpu-smoke trains on a GPU and torch sees none here; set 'accelerator"):
        train(plan, [run])
    assert not run.folder.exists()


@pytest.mark.parametrize(("schedule", "order"), [({}, [1, 0]), ({"schedule": "wsd", "warmup_tokens": 64}, [0, 1])])
def test_the_dearest_run_starts_first_unless_it_may_resume_from_a_shorter_one(make_run, monkeypatch, schedule, order):
    run, started = make_run("dense"), []
    runs = [
        replace(run, seed=seed, training=run.training.model_copy(update=schedule | {"tokens": tokens}))
        for seed, tokens in ((0, run.training.tokens), (1, 2 * run.training.tokens))
    ]
    monkeypatch.setattr(of_plan, "run_jobs", lambda jobs, *_: started.extend(job.run.seed for job in jobs) or [])
    of_plan.train_runs(runs, 1, False)
    assert started == order


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1"])
def test_a_shard_is_a_pair_of_numbers(shard):
    with pytest.raises(UserError, match=f"--shard {shard}: give I/N with I from 1 to N"):
        share_of([], shard)


@pytest.fixture
def blended(sample, tmp_path, monkeypatch):
    """A plan of mid-training at a tiny scale with its blend, and of two stages after it, on either text."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", "recipes")
    (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY | {"mid": "mid-sample"}))
    variants, recipe = tmp_path / "recipes/variants.yaml", tmp_path / "recipes/mid_training.yaml"
    back = "{at: tiny, tokens: 768, extends: {after: mid}}"
    more = "{at: tiny, tokens: 256, extends: {after: mid, text: mid, sequence: 64}}"
    variants.write_text(f"{variants.read_text()}back: {back}\nmore: {more}\n")
    settings = yaml.safe_load(recipe.read_text()) | {"scales": ["tiny"]}
    settings["variants"] |= {"back": {"scores": ["losses"], "seeds": 5}, "more": {"scores": ["losses"], "seeds": 5}}
    recipe.write_text(yaml.safe_dump(settings))
    folder = tmp_path / "data/tiny"
    folder.mkdir(parents=True)
    (folder / "blocks").symlink_to(sample / "blocks")
    plan = make_plan("tiny", ("mid_training",))
    with pytest.raises(UserError, match="data/tiny/mid/blocks has no text yet; run 'stemrepro data --scale tiny'"):
        runs_of(plan)
    place = (sample / "corpus", sample / "tokenizer.json", folder / "mid", tmp_path / "card.md")
    write_blend("mid-sample", plan.blend[0], 4000, *place)
    return plan


def test_a_stage_on_a_blend_reads_it_and_its_parent_does_not(blended):
    every = {(run.address, run.seed): run for run in runs_of(blended)}
    later, parent = every[Address("mid", "dense"), 0], every[Address(MAIN, "dense"), 0]
    assert (later.blocks, later.mix) == (Path("data/tiny/mid/blocks"), "mid")
    assert (parent.blocks, parent.mix) == (Path("data/tiny/blocks"), "sample")
    assert later.data_hash != parent.data_hash
    assert later.init_from.parent == digest(parent.config)
    assert later.init_from.tokens == 0


def test_a_stage_may_follow_a_stage(blended):
    """It begins where the runs before it that read the same text ended, and they keep their ends."""
    every = {(run.address, run.seed): run for run in runs_of(blended)}
    main, mid, back, more = (every[Address(name, "stem-third"), 0] for name in (MAIN, "mid", "back", "more"))
    assert [run.init_from.parent for run in (back, more)] == [digest(mid.config)] * 2
    assert (back.blocks, more.blocks) == (main.blocks, mid.blocks)
    micro_batches = main.training.tokens // (main.training.micro_batch * main.training.sequence)
    assert (back.init_from.tokens, back.init_from.batches) == (main.training.tokens, micro_batches)
    assert (more.init_from.tokens, more.init_from.batches) == (mid.training.tokens, 0)  # its sequences are longer
    assert [run.keep_final_checkpoint for run in (main, mid, back, more)] == [True, True, False, False]
    (alone,) = asked_runs(blended, [Address("mid", "dense")])[:1]
    assert alone.keep_final_checkpoint


def test_stages_are_trained_one_after_another(blended):
    runs = [run for run in runs_of(blended) if run.address.arm == "dense"]
    jobs = [Job("", run, str(run), 1, {}, 1.0, True) for run in reversed(runs)]
    names = [{job.run.address.variant for job in stage} for stage in by_stage(jobs)]
    assert names == [{MAIN}, {"mid"}, {"back", "more"}]
    rest = [job for job in jobs if job.run.address.variant in ("mid", "back")]  # the pretraining has ended
    assert [len(stage) for stage in by_stage(rest)] == [len(rest) // 2] * 2
