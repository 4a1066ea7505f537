"""What is scored anew and what isn't: the key of a score follows from its runs, settings and code."""

import inspect
import pkgutil
from dataclasses import replace

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from stemrepro.common.errors import UserError
from stemrepro.common.files import locked
from stemrepro.config.address import MAIN, Address
from stemrepro.config.scores import SCORE_KINDS, Knowledge
from stemrepro.data.tokenizer import train_tokenizer
from stemrepro.evaluation import losses
from stemrepro.measures import store
from stemrepro.pipeline import score
from stemrepro.pipeline.plan import Planned, make_plan
from stemrepro.pipeline.runs import runs_of
from stemrepro.pipeline.score import arguments, pending, plan_of, score_key, write_scores
from stemrepro.training.train import train
from tests.conftest import quiet

DENSE = Address(MAIN, "dense")


@pytest.fixture
def place(make_run, sample, tiny, catalog, tmp_path):
    """A plan of one run, its text in data/, and the folders for `pending`."""
    folders = tmp_path / "data", tmp_path / "runs", tmp_path / "scores"
    (folders[0] / "tiny").mkdir(parents=True)
    (folders[0] / "tiny/blocks").symlink_to(sample / "blocks")
    run = make_run("dense")
    runs = {DENSE: Planned(run.model, run.training, None, 0, "own", ("losses",), {"losses": (0,)})}
    plan = replace(make_plan("smoke", ("paper_audit",), catalog), name="tiny", scale=tiny, runs=runs)
    return plan, runs_of(plan, None, None, *folders[:2])[0], folders


@pytest.fixture
def given(tiny):
    return {"asked": tiny.evaluation, "wanted": ["losses"]}


def test_a_key_changes_with_runs_settings_and_weights(make_run, given, tiny):
    run = make_run("dense")
    train(run, quiet)
    key = score_key([run], "losses", given)
    assert key == score_key([run], "losses", given)
    assert key != score_key([run], "losses", given | {"wanted": ["context"]})
    assert key != score_key([run], "losses", given | {"asked": tiny.evaluation.model_copy(update={"tokens": 256})})
    assert key != score_key([run], "geometry", given)
    weights = load_file(run.weights)
    name = next(iter(weights))
    save_file(weights | {name: torch.nextafter(weights[name], torch.tensor(9.0))}, run.weights)
    assert key != score_key([run], "losses", given)


def test_lines_of_a_run_that_has_since_diverged_do_not_stay(make_run, given, tmp_path):
    run = make_run("dense")
    train(run, quiet)
    wanted = given | {"wanted": ["losses", "steps"]}
    write_scores("losses", [run], [losses.score(run, quiet, **wanted)], wanted, tmp_path, "key")
    about = store.about(tmp_path, "losses", DENSE)
    assert about["seeds"] == 1
    assert "diverged" not in about
    assert len(store.lines(tmp_path, "losses", DENSE, "steps")) == 12
    (run.folder / "metrics.jsonl").write_text("".join((run.folder / "metrics.jsonl").open().readlines()[:6]))
    (run.folder / "diverged.json").write_text('{"step": 7}')
    write_scores("losses", [run], [losses.score(run, quiet, **wanted)], wanted, tmp_path, "key")
    assert store.about(tmp_path, "losses", DENSE)["diverged"] == {"0": 7}
    assert len(store.lines(tmp_path, "losses", DENSE, "steps")) == 6
    with pytest.raises(UserError, match="has nothing of dense"):
        store.lines(tmp_path, "losses", DENSE, "losses")


def test_equal_scores_are_equal_bytes(make_run, given, tmp_path):
    run = make_run("dense")
    train(run, quiet)
    for name in ("a", "b"):
        write_scores("losses", [run], [losses.score(run, quiet, **given)], given, tmp_path / name, "key")
    assert written_in(tmp_path / "a") == written_in(tmp_path / "b")
    assert written_in(tmp_path / "a").keys() == {f"{n}.parquet" for n in ("losses", "documents", "curve", "protocol")}


def written_in(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_scores_are_written_under_the_lock_of_their_scale(place, tmp_path, monkeypatch):
    """Another command may write other arms' lines into the same files."""
    plan, run, _ = place
    train(run, quiet)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(score, "run_jobs", lambda *_: [(0, {})])
    written = []

    def write(kind, members, results, given, folder, key, kept):
        with pytest.raises(UserError, match="busy"), locked(folder, "busy"):
            pass
        written.append(folder.as_posix())

    monkeypatch.setattr(score, "write_scores", write)
    score.evaluate(plan, "losses", [DENSE])
    assert written == ["scores/tiny"]


def test_a_protocol_has_the_plan_that_arms_share(make_run, given, tiny, tmp_path):
    """Models and learning rates differ by arm; how often a run is saved or evaluated changes nothing at its end."""
    run = make_run("dense")
    train(run, quiet)
    write_scores("losses", [run], [losses.score(run, quiet, **given)], given, tmp_path / "scores", "key")
    summary = store.about(tmp_path / "scores", "losses", DENSE)["plan"]
    assert summary["tokens of training"] == run.training.tokens
    rates = {"learning_rate": 0.5, "table_rate_factor": 2.0, "save_every": 3, "evals": 2, "micro_batch": 1}
    alike = replace(make_run("stem-full"), training=run.training.model_copy(update=rates))
    assert plan_of(alike, given | {"wanted": ["context"]}) == summary
    for what, change, more in (
        ("tokens of training", {"tokens": run.training.tokens // 2}, {}),
        ("tokens a step", {"batch": 2}, {}),
        ("settings of training", {"weight_decay": 0.2}, {}),
        ("start of the embeddings", {"warmup": 0.5}, {}),
        ("settings of scoring", {}, {"asked": tiny.evaluation.model_copy(update={"tokens": 256})}),
    ):
        other = plan_of(replace(run, training=run.training.model_copy(update=change)), given | more)
        assert {name for name in summary if other[name] != summary[name]} == {what}
    deeper = replace(run, model=replace(run.model, layers=5))
    assert plan_of(deeper, given)["settings of training"] != summary["settings of training"]


def test_only_runs_that_ended_are_scored_and_each_once(place):
    plan, run, folders = place
    with pytest.raises(UserError, match=r"weights\.safetensors is missing; train that run first"):
        list(pending(plan, "losses", None, *folders))
    train(run, quiet)
    ((members, needs, folder, key, _),) = pending(plan, "losses", None, *folders)
    assert members == [run]
    assert folder == folders[2] / "tiny"
    write_scores("losses", members, [losses.score(run, quiet, **needs)], needs, folder, key)
    assert list(pending(plan, "losses", None, *folders)) == []
    curve = (folder / "curve.parquet").read_bytes()
    (folder / "curve.parquet").unlink()
    assert len(list(pending(plan, "losses", None, *folders))) == 1
    (folder / "curve.parquet").write_bytes(curve)
    assert list(pending(plan, "benchmarks", None, *folders)) == []
    other = replace(plan.runs[DENSE], training=run.training.model_copy(update={"clip": 9.0}))
    with pytest.raises(UserError, match=r"seed0 holds .*training\.clip"):
        list(pending(replace(plan, runs={DENSE: other}), "losses", None, *folders))


def test_seeds_are_added_to_scores_whose_weights_are_gone(place, tmp_path, monkeypatch):
    """They are those of all seeds scored at once, and no scores of other settings or code are added to."""
    plan, _, (data, runs, scores) = place

    def of(count, **changes):
        arm = replace(plan.runs[DENSE], seeds={"losses": tuple(range(count))})
        changed = arm.training.model_copy(update=changes)
        return replace(plan, runs={DENSE: replace(arm, training=changed)})

    def write(count, scores):
        for members, given, folder, key, kept in pending(of(count), "losses", None, data, runs, scores):
            write_scores(
                "losses", members, [losses.score(r, quiet, **given) for r in members], given, folder, key, kept
            )
        return scores / "tiny"

    for run in runs_of(of(5), None, None, data, runs):
        train(run, quiet)
    whole = write(5, tmp_path / "whole")
    write(2, scores)
    for seed in (0, 1):
        (runs / f"tiny/main/dense/seed{seed}/weights.safetensors").unlink()
    for other in ({"clip": 9.0}, {"learning_rate": 0.5}, {"table_rate_factor": 2.0}):
        with pytest.raises(UserError, match=r"seed0/weights\.safetensors is missing; train that run first"):
            list(pending(of(5, **other), "losses", None, data, runs, scores))
    with monkeypatch.context() as patch:
        patch.setattr(score, "code_hash", lambda *_, **__: "other code")
        with pytest.raises(UserError, match=r"safetensors is missing; train that run first"):
            list(pending(of(5), "losses", None, data, runs, scores))
    write(4, scores)
    for seed in (2, 3):  # of scores to which seeds were added these can go too
        (runs / f"tiny/main/dense/seed{seed}/weights.safetensors").unlink()
    added = write(5, scores)
    assert list(pending(of(5), "losses", None, data, runs, scores)) == []
    abouts = [{**store.about(folder, "losses", DENSE)} for folder in (whole, added)]
    assert abouts[1].pop("kept")[1] == [0, 1, 2, 3]
    told = [about.pop("lines") for about in abouts]
    assert abouts[0] == abouts[1]
    for name in ("losses", "curve"):
        first, second = (store.lines(folder, "losses", DENSE, name) for folder in (whole, added))
        pd.testing.assert_frame_equal(first, second)
    documents = [store.lines(folder, "losses", DENSE, "documents") for folder in (whole, added)]
    sums = [frame[frame["seeds"].isin([3, 5])].reset_index(drop=True) for frame in documents]
    pd.testing.assert_frame_equal(*sums)
    assert told[1]["losses"] == told[0]["losses"]
    (runs / "tiny/main/dense/seed4/weights.safetensors").unlink()
    with pytest.raises(UserError, match=r"weights\.safetensors is missing"):
        list(pending(of(5), "losses", None, data, runs, scores))


def test_planned_runs_are_not_scored_with_another_tokenizer(place, sample, catalog):
    plan, run, folders = place
    train(run, quiet)
    planned = replace(plan.runs[DENSE], seeds={"facts": (0,)})
    scale = plan.scale.model_copy(update={"knowledge": Knowledge(pairs=3, batch=16)})
    plan = replace(plan, runs={DENSE: planned}, scale=scale)
    file = folders[0] / "tiny/tokenizer.json"
    file.symlink_to(sample / "tokenizer.json")
    assert len(list(pending(plan, "facts", None, *folders))) == 1
    file.unlink()
    train_tokenizer(sample / "corpus/corpus.parquet", 320, file)
    with pytest.raises(UserError, match=r"its tokens are not those of the text"):
        list(pending(plan, "facts", None, *folders))


@pytest.fixture(scope="module")
def plans(catalog):
    """Scales that have every kind of scores between them."""
    return {scale: make_plan(scale, (), catalog) for scale in ("smoke", "atlas", "recall", "capacity", "needle")}


@pytest.mark.parametrize("kind", SCORE_KINDS)
def test_a_kind_of_scores_gets_what_its_function_takes(plans, kind):
    score, calls = pkgutil.resolve_name(f"stemrepro.evaluation.{kind}:score"), 0
    for plan in plans.values():
        for arm in plan.runs.values():
            if kind in arm.seeds:
                inspect.signature(score).bind("run", quiet, **arguments(plan, kind, arm))
                calls += 1
    assert calls


def test_a_scale_that_lacks_what_a_kind_of_scores_needs_is_refused(plans):
    arm = plans["smoke"].runs[DENSE]
    with pytest.raises(UserError, match="'smoke' says nothing under 'knowledge'"):
        arguments(plans["smoke"], "edits", arm)
