"""Arms and recipes to start from: valid as written, and never over existing files."""

import shutil

import pytest
import torch
import yaml

from stemrepro.cli.skeletons import new_arm, new_method, new_recipe
from stemrepro.common.errors import UserError
from stemrepro.config.arm import shaped
from stemrepro.measures.catalog import load
from stemrepro.model.ffn.base import ffns
from stemrepro.model.transformer import build
from tests.conftest import ROOT, copy_recipes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    copy_recipes(tmp_path, "rivals")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "recipes"


def test_an_arm_of_a_known_network(folder):
    before = load(folder).arms
    assert new_arm("mine", "token-only", folder) == [(folder / "arms.yaml").as_posix()]
    after = load(folder).arms
    assert {name: after[name] for name in before} == before
    assert (after["mine"].ffn, after["mine"].label) == ("token-only", "mine")
    looks = [(arm.hue, arm.marker) for arm in after.values() if arm.hue == after["mine"].hue]
    assert len(looks) == len(set(looks))


def test_an_arm_with_a_network_of_its_own_is_stem_until_it_is_edited(folder, tiny):
    assert new_arm("mine", "my/rows.py:Rows", folder)[1] == "my/rows.py"
    arms = load(folder).arms
    tokens = torch.arange(20).reshape(2, 10)
    mine, stem = (build(shaped(tiny.model, arms[name]), 0) for name in ("mine", "stem-full"))
    assert torch.equal(mine(tokens), stem(tokens))
    (folder.parent / "my/rows.py").write_text((folder.parent / "my/rows.py").read_text() + "# edited\n")
    new_arm("other", "my/rows.py:Rows", folder)
    assert (folder.parent / "my/rows.py").read_text().endswith("# edited\n")


@pytest.mark.parametrize("ffn", ffns())
def test_every_network_makes_an_arm_that_is_valid(folder, ffn):
    new_arm("mine", ffn, folder)  # which reads it
    assert yaml.safe_load((folder / "arms.yaml").read_text())["mine"]["ffn"] == ffn


def test_a_recipe_is_the_last_one_and_its_claim_can_be_judged(folder):
    new_recipe("mine", ["dense", "stem-half", "jtok"], folder)
    name, recipe = list(load(folder).recipes.items())[-1]
    assert (name, recipe.arms) == ("mine", ("dense", "stem-half", "jtok"))
    (claim,) = recipe.claims.values()
    assert claim.arms == ("dense", "jtok")  # the last is the one that the claim is about
    assert claim.sentence == "jtok ends below dense."


def test_a_method_is_entered_with_what_others_have(folder):
    """Its study is the leaderboard's but for the arm, its tracks are the recipe's, and its figure can be drawn."""
    shutil.copy(ROOT / "recipes/leaderboard.yaml", folder)
    arms, sweep, recipe, figure = "arms.yaml", "sweeps/mine.yaml", "mine.yaml", "analysis/mine.py"
    written = [*((folder / file).as_posix() for file in (arms, sweep, recipe)), "my/mine.py", figure]
    assert sorted(new_method("mine", folder)) == sorted(written)
    catalog = load(folder)
    mine, common = catalog.recipe("mine"), catalog.recipe("leaderboard")
    assert (mine.measure, mine.compare_at, mine.scales) == (common.measure, common.compare_at, common.scales)
    assert set(mine.variants) | {"equal-time"} == set(common.variants)
    assert {variant.seeds for variant in mine.variants.values()} == {5}
    studies = [yaml.safe_load((folder / "sweeps" / f"{name}.yaml").read_text()) for name in ("mine", "leaderboard")]
    assert studies[0].pop("title") != studies[1].pop("title")
    assert studies[0]["space"].pop("arm") == ["mine"]
    assert "mine" not in studies[1]["space"].pop("arm")
    assert studies[0] == studies[1]
    with pytest.raises(UserError, match=r"mine\.yaml exists already; choose"):
        new_method("mine", folder)


def test_the_class_of_a_name_with_hyphens_has_a_name_of_python(folder, tiny):
    shutil.copy(ROOT / "recipes/leaderboard.yaml", folder)
    new_method("my-table", folder)
    arm = load(folder).arms["my-table"]
    assert arm.ffn == "my/my-table.py:MyTable"
    build(shaped(tiny.model, arm), 0)


def test_an_arm_that_exists_is_entered_as_it_is(folder):
    before = (folder / "arms.yaml").read_bytes()
    assert "my/jtok.py" not in new_method("jtok", folder)
    assert (folder / "arms.yaml").read_bytes() == before
    assert load(folder).recipe("jtok").arms == ("dense", "jtok")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: new_arm("dense", "stem", folder), "has an arm 'dense' already"),
        (lambda folder: new_arm("a b", "stem", folder), "'a b' is no name"),
        (lambda folder: new_arm("mine", "stemm", folder), "did you mean 'stem'"),
        (lambda folder: new_arm("null", "stem", folder), "'null' is no name: YAML reads it as something else"),
        (lambda folder: new_arm("mine", "link/x.py:Rows", folder), "below the repository's root"),
        (lambda folder: new_arm("mine", "my/x.py:Rows()", folder), "ffn 'my/x.py:Rows\\(\\)' is unknown"),
        (lambda folder: new_recipe("rivals", ["dense", "jtok"], folder), "exists already"),
        (lambda folder: new_recipe("mine", ["dense"], folder), "name two or more"),
        (lambda folder: new_recipe("mine", ["dense", "dense"], folder), "name each arm once"),
        (lambda folder: new_recipe("train", ["dense", "jtok"], folder), "a stage of the pipeline is called 'train'"),
    ],
)
def test_mistakes_write_nothing(folder, make, words, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (folder.parent / "link").symlink_to(outside)
    (folder.parent / "link.py").symlink_to(outside / "linked.py")
    before = {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=words):
        make(folder)
    assert {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()} == before
    assert not list(outside.iterdir())


def test_a_file_that_could_not_be_read_with_what_is_added_stays_as_it_was(folder):
    """Arms that another program has written without an end of line, or over whose keys the new text would run."""
    arms = folder / "arms.yaml"
    arms.write_text(arms.read_text().rstrip("\n"))
    new_arm("mine", "stem", folder)
    before = arms.read_bytes() + b"broken: [\n"
    arms.write_bytes(before)
    with pytest.raises(UserError, match=r"recipes/arms\.yaml is not valid YAML"):
        new_arm("other", "my/rows.py:Rows", folder)
    assert arms.read_bytes() == before
    assert not (folder.parent / "my/rows.py").exists()
