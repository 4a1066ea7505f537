"""recipes/ is checked key by key: every mistake gives one sentence with file, key and value."""

import shutil

import pytest
import yaml

from stemrepro.errors import UserError
from stemrepro.recipe import load
from tests.conftest import ROOT


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    return tmp_path / "recipes"


def edit(path, change):
    value = yaml.safe_load(path.read_text())
    change(value)
    path.write_text(yaml.safe_dump(value))


def test_the_shipped_recipes_are_valid(book):
    assert {"smoke", "laptop"} <= book.scales.keys()
    assert len(book.scales["laptop"].seeds) >= 5
    assert "token-only" in book.recipes["validation_loss"].arms
    sources = [c.paper.source for r in book.recipes.values() for c in r.claims.values() if c.paper]
    assert sources
    assert all(sources)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("mixes.yaml", lambda v: v["text"].update(kind="web"), r"mixes\.yaml: text\.kind: choose one of archives, sample, hub \(got 'web'\)"),
        ("mixes.yaml", lambda v: v["fineweb-edu"].update(licence=1), r"mixes\.yaml: fineweb-edu\.licence"),
        ("scales/laptop.yaml", lambda v: v.update(data="poems"), r"laptop\.yaml: data 'poems' is unknown: mixes\.yaml has text"),
        ("benchmark_scores.yaml", lambda v: v["groups"].update(x=["chess"]), r"group 'x' names 'chess'"),
        ("arms.yaml", lambda v: v["dense"].update(colour=1), r"arms\.yaml: unknown key 'dense\.colour'; known are ffn"),
        ("arms.yaml", lambda v: v["dense"].update(ffn="swish"), r"arms\.yaml: dense\.ffn: .*'dense'.* \(got 'swish'\)"),
        ("arms.yaml", lambda v: v["dense"].update(table_rate_factor=-1), r"dense\.table_rate_factor: .*greater than 0 \(got -1\)"),
        ("scales/laptop.yaml", lambda v: v["training"].pop("tokens"), r"laptop\.yaml: training\.tokens: Field required"),
        ("scales/laptop.yaml", lambda v: v["model"].update(heads=3), r"laptop\.yaml with arm 'dense': heads 3 does not divide width 64"),
        ("scales/laptop.yaml", lambda v: v["model"].update(layers=2), r"arm 'stem-third': placement 'third' needs layers >= 3"),
        ("scales/laptop.yaml", lambda v: v["training"].update(micro_batch=3), r"micro_batch 3 does not divide batch 8"),
        ("validation_loss.yaml", lambda v: v["arms"].append("stem-tenth"), r"validation_loss\.yaml: unknown arm 'stem-tenth'"),
        ("validation_loss.yaml", lambda v: v["claims"]["token-part"].update(arms=["dense", "x"]), r"claim 'token-part' names arm 'x'"),
        ("validation_loss.yaml", lambda v: v["claims"]["token-part"].update(kind="bigger"), r"claims\.token-part\.kind: .*'bigger'"),
        ("validation_loss.yaml", lambda v: v["claims"]["token-part"].update(arms=["dense"]), r"claims\.token-part: .*'greater' can't have 1 arms: two"),
        ("paper_audit.yaml", lambda v: v["claims"]["roi-full"].update(arms=["dense"]), r"claims\.roi-full: .*'exact' can't have 1 arms: none"),
        ("paper_audit.yaml", lambda v: v["claims"]["roi-full"].pop("paper"), r"claims\.roi-full: .*needs the paper's number"),
        ("paper_audit.yaml", lambda v: v["claims"]["roi-full"]["paper"].update(cells=["table-9/a/b"]), r"claim 'roi-full': .*paper\.yaml: no cell 'table-9/a/b'"),
        ("validation_loss.yaml", lambda v: v["claims"]["third-below-dense"]["paper"].update(cells=["fig-1b/lead/16k"]), r"'fig-1b/lead/16k' is empty"),
        ("validation_loss.yaml", lambda v: v["claims"]["third-below-dense"]["paper"].update(cells=["fig-1b/lead/8k"] * 3), r"one, two or four cells make a number, not 3"),
        ("paper.yaml", lambda v: v["table-4"]["rows"]["dense"].pop(), r"paper\.yaml: table-4\.rows\.dense has 10 cells for 11 columns"),
        ("paper.yaml", lambda v: v["table-4"].update(by_column={"chess": {"unit": "%"}}), r"table-4\.by_column names 'chess'"),
        ("paper.yaml", lambda v: v["table-4"].update(confidence="sure"), r"paper\.yaml: table-4\.confidence: .*'read'.* \(got 'sure'\)"),
        ("shapes.yaml", lambda v: v["llama-3.2-1b"].update(width=-1), r"shapes\.yaml: llama-3\.2-1b\.width: .*greater than 0"),
        ("scales/laptop.yaml", lambda v: v["training"].update(tokens=1000), r"training\.tokens 1000 is no multiple of batch x sequence = 1024"),
        ("scales/laptop.yaml", lambda v: v.update(seeds=[0, 1, 1]), r"seeds \[0, 1, 1\] names a seed twice"),
        ("arms.yaml", lambda v: v["stem-half"].update(family="stems"), r"arms\.yaml: stem-half: unknown family 'stems'; a family is an arm"),
        ("scaling_ladder.yaml", lambda v: v["points"]["width-half"].update(width=0.3), r"scaling_ladder\.yaml: point 'width-half' at scale '\w+': width 9?[0-9.]+ with"),
        ("scaling_ladder.yaml", lambda v: v["point_arms"].append("ple"), r"scaling_ladder\.yaml: point_arms names 'ple', which is not among the recipe's arms"),
        ("scaling_ladder.yaml", lambda v: v.pop("points"), r"points and point_arms need each other"),
        ("table_design.yaml", lambda v: v.update(base="halb"), r"table_design\.yaml: base 'halb' is no point at which all of the recipe's arms are trained"),
        ("table_design.yaml", lambda v: v.update(base="vocab-4"), r"base 'vocab-4' is no point at which all"),
        ("table_design.yaml", lambda v: v["point_arms"].pop(), r"base 'half' is no point at which all"),
        ("validation_loss.yaml", lambda v: [c.update(primary=True) for c in v["claims"].values()], r"primary claims over all recipes; at most 8"),
    ],
)  # fmt: skip
def test_mistakes_are_named(folder, file, change, words):
    edit(folder / file, change)
    with pytest.raises(UserError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_broken_yaml_and_missing_files(folder, tmp_path):
    (folder / "arms.yaml").write_text("dense: {ffn: dense")
    with pytest.raises(UserError, match=r"arms\.yaml is not valid YAML"):
        load(folder)
    with pytest.raises(UserError, match="run from the repository's root"):
        load(tmp_path / "nothing")


def test_an_unknown_scale_names_those_there_are(book):
    with pytest.raises(UserError, match="'huge' is unknown: recipes/scales/ has gpu, laptop, overnight, smoke"):
        book.scale("huge")
