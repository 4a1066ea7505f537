"""Recipes at a user's scale, on runs of seconds: their addresses are trained, scored, judged, drawn in this process.

Other recipes have their text in test_made_mixes.py and test_own_text.py, made-up losses in test_token_ladder.py, or no
scores at all.
"""

import json
import os
import pkgutil
import shutil

import matplotlib as mpl
import pytest
import yaml

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.data.vocabularies import write_vocabularies
from stemrepro.measures import store
from stemrepro.measures.base import scores_of
from stemrepro.measures.catalog import load
from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.runs import runs_of
from stemrepro.pipeline.score import pending, write_scores
from stemrepro.pipeline.text import counts, text_steps
from stemrepro.report.analyse import analyse
from stemrepro.report.evidence import METHOD, OWN_SETTINGS, effect_of, judged, verdict_rows
from stemrepro.training.train import train
from stemrepro.verdicts.rule import NOT_TESTED, UNDECIDED
from tests.conftest import ROOT, TINY, quiet

pytestmark = pytest.mark.slow

RECIPES = (
    "ablation_graveyard",
    "angular_spread",
    "contextual_reasoning",
    "long_context_capacity",
    "retrofit",
    "rivals",
    "table_design",
    "table_offload",
    "training_roi",
    "training_stability",
    "validation_loss",
)
SHORT = {"tokens": 32 * 4 * 10, "micro_batch": 4, "evals": 2, "eval_tokens": 64, "snapshots": [], "save_every": 100}
BEST = {"dense": {"learning_rate": 0.01}, "stem-full": {"learning_rate": 0.02, "table_rate_factor": 2.0}}


@pytest.fixture(scope="module")
def scored(sample, tmp_path_factory):
    """A folder with recipes/, runs/ and scores/ of all that the recipes want at a scale of ten steps and one seed."""
    folder = tmp_path_factory.mktemp("analyses")
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    shutil.copytree(ROOT / "analysis", folder / "analysis")
    design = folder / "recipes/table_design.yaml"
    design.write_text(design.read_text().replace("scales: [tables]\n", ""))
    training = TINY["training"] | SHORT
    less = {"tuned": BEST, "evaluation": {"tokens": 128, "batch": 4}, "counting": TINY["counting"] | {"length": 1024}}
    tiny = TINY | {"training": training} | less
    (folder / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(tiny))
    here = os.getcwd()
    os.chdir(folder)
    try:
        plan = make_plan("tiny", RECIPES)
        write_vocabularies(sample / "corpus/corpus.parquet", list(plan.vocabularies), folder / "data/tiny/vocabularies")
        (folder / "data/tiny/blocks").symlink_to(sample / "blocks")
        (folder / "data/tiny/tokenizer.json").symlink_to(sample / "tokenizer.json")
        (folder / "data/sample").symlink_to(sample)
        counts(plan, text_steps(plan)[2]).do()
        for run in runs_of(plan):
            train(run, quiet)
        for part in SCORE_KINDS:
            score = pkgutil.resolve_name(f"stemrepro.evaluation.{part}:score")
            for members, given, out, key, _ in pending(plan, part):
                write_scores(part, members, [score(run, quiet, **given) for run in members], given, out, key)
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def project(scored, few_draws, monkeypatch):
    """The folder."""
    monkeypatch.chdir(scored)
    mpl.rcdefaults()
    return scored


@pytest.fixture(scope="module")
def tiny_catalog(scored):
    return load(scored / "recipes")


def rows_of(project, catalog, name):
    """Return the verdicts of a recipe by claim, without a figure."""
    scores = scores_of(name, catalog, "tiny", project / "scores/tiny")
    return {row["claim"]: row for row in verdict_rows("tiny", judged(scores))}


def judge(project, name):
    """Draw a recipe and return its verdicts by claim."""
    analyse(name, "tiny", project / "scores", project / "results")
    rows = json.loads((project / "results/tiny" / name / "verdicts.json").read_text())
    return {row["claim"]: row for row in rows}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_drawn_and_judged(project, catalog, name):
    rows, folder = judge(project, name), project / "results/tiny" / name
    claims = catalog.recipes[name].claims
    assert list(rows) == list(claims)
    verdicts = {row["verdict"] for key, row in rows.items() if claims[key].kind != "exact"}
    assert verdicts <= {NOT_TESTED, UNDECIDED}  # one seed is never enough
    assert (folder / "figure.svg").stat().st_size > 10_000


def test_a_claim_is_judged_at_own_settings_where_both_arms_have_them(project, tiny_catalog):
    """Dense's best learning rate is the common one here; the table of pairs was not tuned."""
    rows = rows_of(project, tiny_catalog, "rivals")
    scores = scores_of("rivals", tiny_catalog, "tiny", project / "scores/tiny")
    common = {name: effect_of(claim, scores).mean for name, claim in scores.recipe.claims.items()}
    assert rows["equal-flops"]["ours"] != pytest.approx(common["equal-flops"], abs=1e-5)
    assert rows["equal-flops"]["method"].endswith(OWN_SETTINGS)
    assert rows["over-bigram-table"]["ours"] == pytest.approx(common["over-bigram-table"], abs=1e-5)
    assert rows["over-bigram-table"]["method"] == METHOD


def test_a_recipe_without_an_analysis_file_gets_the_forest_plot(project, catalog):
    (project / "analysis/rivals.py").rename(project / "analysis/kept")
    try:
        assert judge(project, "rivals")
        data = (project / "results/tiny/rivals/data.csv").read_text()
        assert data.splitlines()[0].startswith("panel,what,x,value,ci_low,ci_high")
        drawn = [line.split(",")[1] for line in data.splitlines() if line.startswith("claim,")]
        assert drawn == list(catalog.recipes["rivals"].claims)
        panel = (project / "results/tiny/rivals/figure.svg").read_text()
        assert panel.count("<use") > len(drawn)  # a marker for each claim and ticks
    finally:
        (project / "analysis/kept").rename(project / "analysis/rivals.py")


def test_a_front_that_a_recipe_promises_must_exist(project):
    recipe, file = project / "recipes/rivals.yaml", project / "analysis/rivals.py"
    kept = recipe.read_text()
    recipe.write_text(kept + "front: true\n")
    try:
        with pytest.raises(UserError, match=r"rivals\.py lacks the function 'front'"):
            judge(project, "rivals")
        file.rename(project / "analysis/kept")
        with pytest.raises(UserError, match=r"analysis/rivals\.py is missing"):
            judge(project, "rivals")
    finally:
        recipe.write_text(kept)
        (project / "analysis/kept").rename(file)


@pytest.fixture
def kept(project):
    """The tables of scores, which are put back after a test."""
    folder = project / "scores/tiny"
    before = {path: path.read_bytes() for path in folder.glob("*.parquet")}
    yield folder
    folder.mkdir(exist_ok=True)
    for path, content in before.items():
        path.write_bytes(content)


def test_a_diverged_arm_makes_its_claims_undecided_and_the_others_stay(project, tiny_catalog, kept):
    """Also with a figure of what is left."""
    before, place = rows_of(project, tiny_catalog, "rivals"), Address(MAIN, "dense-equal-flops")
    about = store.about(kept, "losses", place) | {"diverged": {"0": 7}}
    tables = {name: store.lines(kept, "losses", place, name) for name, count in about.pop("lines").items() if count}
    store.write(kept, "losses", place, "key", about, tables)
    rows = judge(project, "rivals")
    hit = {name for name, row in rows.items() if "dense-equal-flops" in row["arms"]}
    assert hit
    for name in hit:
        assert rows[name]["verdict"] == UNDECIDED
        assert rows[name]["reason"] == "dense-equal-flops diverged: the loss of seed 0 is NaN from step 7 on"
        assert rows[name]["ours"] is None
        assert rows[name]["seeds"] == 0
    assert all(rows[name] == before[name] for name in rows.keys() - hit)


def test_a_scale_without_scores_names_the_command_that_makes_them(project, kept):
    shutil.rmtree(kept)
    with pytest.raises(UserError, match=f"'{kept.name}' has no scores yet; run 'stemrepro score --scale {kept.name}'"):
        judge(project, "rivals")


@pytest.mark.parametrize(("name", "recipe"), [("losses", "rivals"), ("protocol", "rivals"), ("curve", "training_roi")])
@pytest.mark.parametrize("content", [None, b"{}"])
def test_scores_that_are_missing_or_garbled_are_one_sentence(project, kept, name, recipe, content):
    path = kept / f"{name}.parquet"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}\.parquet is missing or damaged"):
        judge(project, recipe)
