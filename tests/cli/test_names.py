"""Names on the command line: what was meant, why an arm isn't planned, and what the tab key offers."""

import shutil

import pytest
import yaml
from typer.testing import CliRunner

from stemrepro.cli import app, names
from stemrepro.config.address import MAIN, Address
from stemrepro.pipeline.plan import make_plan
from tests.conftest import ROOT, TINY


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """recipes/ with a scale `tiny`, with all recipes."""
    project = tmp_path_factory.mktemp("names")
    shutil.copytree(ROOT / "recipes", project / "recipes")
    (project / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY))
    run = project / "runs/tiny/main/stem-full/seed0"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("arm: stem-full\n")
    return project


@pytest.fixture
def project(planned, monkeypatch):
    """It is the working directory, which nothing here changes."""
    monkeypatch.chdir(planned)


def sentence(*arguments):
    """The one line of a command that is refused."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_run_that_is_not_there_yet_comes_with_the_command_that_makes_it(project):
    said = sentence("export", "runs/atlas/main/stem-full/seed0", "out")
    assert said.startswith("stemrepro: run 'runs/atlas/main/stem-full/seed0' is unknown; did you mean 'runs/tiny/main/")
    assert said.endswith("; 'make reproduce SCALE=atlas RECIPE=knowledge_editing' trains the runs of 'stem-full'\n")
    assert "no recipe trains 'stem-quarter' at scale 'atlas'" in sentence(
        "export", "runs/atlas/main/stem-quarter/seed0", "o"
    )
    for other in ("runs/atlantis/main/stem-full/seed0", "runs/atlas/main/stem-full", "my/atlas/main/stem-full/seed0"):
        assert "make" not in sentence("generate", "--run", other, "--prompt", "x")


def test_a_recipe_of_other_scales_comes_with_what_to_add(project):
    asked = ("plan", "--scale", "atlas", "--recipe")
    said = sentence(*asked, "pretraining_350m")
    assert "recipe 'pretraining_350m' is for the scales paper-350m; add 'atlas' to `scales:`" in said
    assert "recipe 'rivals' names no scales, and scale 'atlas' is only for" in sentence(*asked, "rivals")
    assert "recipe 'rivls' is unknown; did you mean 'rivals'?" in sentence(*asked, "rivls")


AT = ("--scale", "tiny")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", *AT, "stem-thrid"), "arm 'stem-thrid' is unknown; did you mean 'stem-third'?"),
        (("train", *AT, "dense@haf"), "variant 'haf' is unknown; did you mean 'half'?"),
        (("track", *AT, "stem-ful"), "run 'stem-ful' is unknown; did you mean 'stem-full'?"),
        (("score", *AT, "--kind", "loses"), "kind 'loses' is unknown; did you mean 'losses'?"),
        (("data", "corpse"), "step 'corpse' is unknown; did you mean 'corpus'?"),
        (("data", "corpus", "--mix", "sampel"), "mix 'sampel' is unknown; did you mean 'sample'?"),
        (("cost", "--shape", "llama-3.2-1b", "--stem", "thrid"), "placement 'thrid' is unknown; did you mean 'third'?"),
        (("cost", "--shape", "lama-3.2-1b"), "shape 'lama-3.2-1b' is unknown; did you mean 'llama-3.2-1b'?"),
        (("explain", "rivls/equal-flops"), "recipe 'rivls' is unknown; did you mean 'rivals'?"),
        (("explain", "rivals/equal-flop"), "claim 'equal-flop' is unknown; did you mean 'equal-flops'?"),
        (("verify", "--scale", "tinny"), "scale 'tinny' is unknown; did you mean 'tiny'?"),
        (("sweep", "recipes/sweeps/ablation.yaml"), "did you mean 'recipes/sweeps/ablations.yaml'?"),
        (("sweep", "recipes/sweeps/ablations.yaml", "--scale", "tinny"), "'tinny' is unknown; did you mean 'tiny'?"),
        (("new", "recipe", "mine", "dens", "stem-full"), "arm 'dens' is unknown; did you mean 'dense'?"),
        (("new", "arm", "mine", "--ffn", "sten"), "ffn 'sten' is unknown; did you mean 'stem'?"),
    ],
)
def test_what_was_meant(project, arguments, words):
    assert words in sentence(*arguments)


def test_planned_runs_are_chosen_by_name(project):
    plan = make_plan("tiny")
    assert names.chosen(plan, ["stem-third", "dense"]) == [Address(MAIN, "stem-third"), Address(MAIN, "dense")]
    assert names.chosen(plan, []) == list(plan.runs)


def test_why_an_arm_that_is_there_is_not_planned(project, catalog):
    """Each reason why an arm exists and isn't planned, by an example from the recipes."""
    arms = {arm for recipe in catalog.recipes.values() for arm in recipe.arms}
    nowhere = next(arm for arm in catalog.arms if arm not in arms)
    text = sentence("train", *AT, nowhere)
    assert f"no recipe names arm '{nowhere}'" in text
    assert f"stemrepro new recipe NAME dense {nowhere}" in text
    assert "no recipe wants arm 'dense' at variant 'rate-1-own'" in sentence("train", *AT, "dense@rate-1-own")


def offered(line, monkeypatch):
    """The completions of a line's end, by typer's protocol for bash."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_STEMREPRO_COMPLETE": "complete_bash"}
    done = CliRunner().invoke(app, [], prog_name="stemrepro", env=asked)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("stemrepro train stem-th", {"stem-third"}),
        ("stemrepro train dense stem-f", {"stem-full", "stem-fast", "stem-frozen"}),
        ("stemrepro train dense@hal", {"dense@half"}),
        ("stemrepro train dense @ hal", {"half"}),  # as bash takes it apart
        ("stemrepro score --kind geo", {"geometry"}),
        ("stemrepro analyse riv", {"rivals"}),
        ("stemrepro explain riv", {"rivals/"}),
        ("stemrepro explain rivals/equal-f", {"rivals/equal-flops"}),
        ("stemrepro sweep recipes/sweeps/abl", {"recipes/sweeps/ablations.yaml"}),
        ("stemrepro data --mix text-", {"text-8"}),
        ("stemrepro cost --shape l", {"llama-3.2-1b", "laptop"}),
        ("stemrepro show dense@hal", {"dense@half"}),
        ("stemrepro new recipe mine stem-th", {"stem-third"}),
        ("stemrepro tra", {"train", "track"}),
    ],
)
def test_the_tab_key_knows_the_names(project, line, some, monkeypatch):
    offers = offered(line, monkeypatch)
    assert some <= set(offers)
    last = line.split(" ")[-1]
    assert all(name.startswith(last) for name in offers)


def test_files_that_cannot_be_read_offer_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/arms.yaml").write_text("a: [")
    assert offered("stemrepro train stem", monkeypatch) == []
