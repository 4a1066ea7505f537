"""recipes/ is checked key by key: every mistake gives one sentence with file, key and value."""

import itertools
import shutil

import pytest
import yaml

from stemrepro.common.errors import UserError
from stemrepro.config.catalog import merged
from stemrepro.measures.base import conditions_of, measure_module, refusal
from stemrepro.measures.catalog import load
from tests.conftest import ROOT


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    return tmp_path / "recipes"


def edit(path, change):
    value = yaml.load(path.read_text(), yaml.CSafeLoader)  # C, which is several times as fast
    change(value)
    path.write_text(yaml.dump(value, Dumper=yaml.CSafeDumper))


def put(value, changes):
    """Set "training/batch"; None takes a key away, "arms+" gets one more, "+name/metric" makes an estimate a claim."""
    for place, new in changes.items():
        *path, key = place.split("/")
        at = value
        if path and path[0].startswith("+"):
            at = as_claim(value, path.pop(0)[1:])
        for part in path:
            at = at[part]
        if key.endswith("+"):
            at[key[:-1]].append(new)
        elif new is None:
            del at[key]
        else:
            at[key] = new


def test_the_shipped_recipes_are_valid(catalog):
    assert {"smoke", "laptop"} <= catalog.scales.keys()
    assert len(catalog.scales["laptop"].seeds) >= 5
    assert "token-only" in catalog.recipes["validation_loss"].arms
    claims = [claim for recipe in catalog.recipes.values() for claim in recipe.claims.values()]
    assert all(claim.paper.source for claim in claims if claim.paper)
    assert {claim.origin for claim in claims} == {"paper", "arithmetic", "control"}
    assert {claim.kind for claim in claims if claim.origin == "arithmetic"} == {"exact"}
    assert [recipe.place for recipe in catalog.recipes.values()] == sorted(r.place for r in catalog.recipes.values())


def test_every_file_of_recipes_is_read(catalog):
    """A recipe, a scale or a sweep that no command reads would be a promise nobody keeps."""
    names = {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    others = {"arms", "mixes", "model_cards", "models", "paper", "questions", "variants", "shapes"}
    assert names == set(catalog.recipes) | others
    assert {path.stem for path in (ROOT / "recipes/scales").iterdir()} == set(catalog.scales)


def test_no_condition_looks_at_its_own_claim(catalog):
    """Else the claim could only be 'not testable' where it fails."""
    for recipe, claim in ((r, c) for r in catalog.recipes.values() for c in r.claims.values()):
        for name, function in conditions_of(measure_module(recipe.measure)).items():
            looked_at = function.condition.arms + function.condition.any_of
            for pair in itertools.combinations(looked_at, 2):
                copy = claim.model_copy(update={"arms": pair, "requires": (name,), "kind": "greater"})
                assert refusal(catalog, recipe, copy), (claim.metric, pair, name)


def as_claim(recipe, name):
    """Make a claim of an estimate and return it, to be changed."""
    estimate = recipe["estimates"].pop(name)
    claim = {key: value for key, value in estimate.items() if key not in ("label", "tolerance")}
    claim |= {"sentence": estimate["label"], "smallest_effect": estimate.get("tolerance", 0.02)}
    claim["kind"] = "greater" if "arms" in estimate else "exact"
    return recipe.setdefault("claims", {}).setdefault(name, claim)


MIXES, ARMS, VARIANTS, LAPTOP, SMOKE = "mixes", "arms", "variants", "scales/laptop", "scales/smoke"
LOSS, DESIGN, RIVALS, AUDIT = "validation_loss", "table_design", "rivals", "paper_audit"
GAIN, BELOW = ["no_gain_without_information"], ["token_only_below_three_quarters"]
DEEP = {"deep": {"extends": {"after": "mid"}}, "longer-8/extends/after": "deep"}
FLOPS = ["stem-full", "dense-equal-flops"]
NAMED_TWICE = {"estimates/equal-flops": {"label": "", "metric": {"loss": "prose"}}}


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        (MIXES, {"text/kind": "web"}, r"mixes\.yaml: text\.kind: choose one of archives, sample, .*\(got 'web'\)"),
        (LAPTOP, {"data": "poems"}, r"laptop\.yaml: data: mix 'poems' is unknown \(recipes/mixes\.yaml has text"),
        (LAPTOP, {"mid": "mid-olmo"}, r"mid: 'mid-olmo' has parts with a `sample`, and 'text-8' has none; a blend"),
        (LAPTOP, {"inherits": "smoke"}, r"\.yaml: inherits: '\S+' inherits from"),
        (LAPTOP, {"training/clip": 0}, r"laptop\.yaml: training\.clip: .*greater than 0 \(got 0\)$"),
        (LAPTOP, {"training/micro_bacth": 2}, r"'training\.micro_bacth'; did you mean 'micro_batch'\? known are tok"),
        (LAPTOP, {"training/tokens": 1000}, r"no multiple of batch x sequence = 1024; the least is 1024"),
        (LAPTOP, {"training/tokens": 2500}, r"tokens 2500 is no multiple .* = 1024; the nearest are 2048 and 3072"),
        (LAPTOP, {"learning_rate": float("nan")}, r"laptop\.yaml: learning_rate: .*\(got nan\)"),
        (LAPTOP, {"scoreboard": "../elsewhere"}, r"laptop\.yaml: scoreboard: "),
        (LAPTOP, {"model/heads": 3}, r"laptop\.yaml with arm 'dense': heads 3 does not divide width 32"),
        (LAPTOP, {"model/layers": 2}, r"arm 'stem-third': placement 'third' needs layers >= 3"),
        (LAPTOP, {"counting/lenght": 9}, r"unknown key 'counting\.lenght'; did you mean 'length'\? known are vocab"),
        (LAPTOP, {"tuned/dense/head_std": -1}, r"laptop\.yaml: tuned\.dense\.head_std: .*greater than 0 \(got -1\)"),
        (LAPTOP, {"seeds": [0, 1, 1]}, r"seeds \[0, 1, 1\] names a seed twice"),
        (LAPTOP, {"seeds": [2, 0, 1]}, r"seeds \[2, 0, 1\] must stand in order"),
        (SMOKE, {"inherits": "lapdog"}, r"smoke\.yaml: inherits: scale 'lapdog' is unknown; did you mean 'laptop'\?"),
        (SMOKE, {"inherits": "atlas"}, r"inherits: 'atlas' inherits from another itself; name a scale that doesn't"),
        (SMOKE, {"training/batch": 12}, r"smoke\.yaml: training: micro_batch 16 .*; it inherits \S+laptop\.yaml"),
        (ARMS, {"dense/placment": "none"}, r"arms\.yaml: unknown key 'dense\.placment'; did you mean 'placement'\?"),
        (ARMS, {"dense/ffn": "swish"}, r"arms\.yaml: dense: .*'swish' is unknown \(stemrepro/model/ffn"),
        (ARMS, {"dense/hue": "pale"}, r"dense: hue 'pale' is unknown: choose one of black, blue"),
        (ARMS, {"dense/marker": "%"}, r"dense: marker '%' is unknown: choose one of "),
        (ARMS, {"dense/label": "$d$"}, r"dense: label '\$d\$' holds a \$"),
        (ARMS, {"a;touch x": {}}, r"arms\.yaml: 'a;touch x' is no name"),
        (ARMS, {"stem-half/family": "stems"}, r"stem-half: family 'stems' is unknown; did you mean 'stem-"),
        (VARIANTS, {"main": {"tokens": 2}}, r"variants\.yaml: 'main' is the scale itself"),
        (VARIANTS, {"half/at": "lapdog"}, r"variants\.yaml: half\.at: scale 'lapdog' is unknown; did you mean 'lapt"),
        (VARIANTS, {"half/at": None}, r"variants\.yaml: half\.tokens: say at which scale"),
        (VARIANTS, {"half/tokens": -5}, r"variants\.yaml: half\.tokens: .*\(got -5\)"),
        (VARIANTS, {"half/tokns": 5}, r"unknown key 'half\.tokns'; did you mean 'tokens'"),
        (VARIANTS, {"mid/extends/txt": "own"}, r"unknown key 'mid\.extends\.txt'; did you mean 'text'"),
        (VARIANTS, {"wide-rung-1/width": 9}, r"token_ladder\.yaml: \S+@wide-rung-1 at scale '\w+': width \S+ with"),
        (VARIANTS, DEEP, r"dense@longer-8 .*: it resumes from 'deep', which resumes from 'mid'; two stages"),
        (VARIANTS, {"longer-8/extends/after": "vocab-4"}, r"'vocab-4', which has 'vocab'; tokens, learning"),
        (VARIANTS, {"second-half-mean-row/extends/after": "second-half"}, r"resumes from 'half'; .* stands alone"),
        (LOSS, {"estimates/token-part/metrik": "prose"}, r"'estimates\.token-part\.metrik'; did you mean 'metric'\?"),
        (LOSS, {"arms+": "stem-tenth"}, r"arm 'stem-tenth' is unknown; did you mean 'stem-late'"),
        (LOSS, {"measure": "losess"}, r"validation_loss\.yaml: measure 'losess' is unknown; did you mean 'losses'"),
        (LOSS, {"+full-below-dense/requires": BELOW}, r"looks at the claim's own contrast"),
        (LOSS, {"+token-part/arms": ["dense", "x"]}, r"claim 'token-part' names arm 'x'"),
        (LOSS, {"+token-part/origin": "ours"}, r"claims\.token-part\.origin: .*'paper', .* 'control' \(got 'ours'\)"),
        (LOSS, {"+token-part/metric": {"los": "prose"}}, r"'los' is unknown; .* 'loss'\? \(measure 'comparison' has "),
        (LOSS, {"+token-part/requires": ["spikes_expected"]}, r"condition 'spikes_expected' is unknown"),
        (DESIGN, {"+random-rows/requires": GAIN}, r"claim 'random-rows': .* looks at the claim's own contrast"),
        (DESIGN, {"+vocabulary/requires": GAIN}, r"unit must be nats/token \(got 'bits/byte a doubling'\)"),
        (DESIGN, {"variants/vocab": {}}, r"table_design\.yaml: variant 'vocab' is unknown; did you mean 'vocab-4'\?"),
        (DESIGN, {"variants/own-rate": {"arms": ["jtok"]}}, r"own-rate names 'jtok', which is not among"),
        (DESIGN, {"compare_at": "halb"}, r"compare_at 'halb' is no variant at which all of the recipe's arms are tr"),
        ("retrofit", {"variants/half": None}, r"its 5 seeds resume from those of dense@half, .* asks for 0"),
        ("benchmark_scores", {"estimates/recall/metric": {"accuracy": "chess"}}, r"task 'chess' is unknown \(this"),
        (RIVALS, {"arms+": "topk-moe"}, r"rivals\.yaml: .*names an arm twice"),
        (DESIGN, {"estimates/narrow/arms": ["dense"]}, r"estimates\.narrow: .*two arms, or none .*, not 1"),
        (DESIGN, {"estimates/narrow/arms": None}, r"'narrow': metric 'loss' is a contrast, which needs arms"),
        (RIVALS, NAMED_TWICE, r"'equal-flops' has the name of a claim"),
        (RIVALS, {"estimates/table-at-equal-flops/arms": FLOPS}, r"asks what 'equal-flops' asks"),
        (LOSS, {"+third-below-dense/paper": {"cells": ["fig-1b/lead/16k"]}}, r"'fig-1b/lead/16k' is empty"),
        (LOSS, {"+third-below-dense/paper": {"cells": ["fig-1b/lead/8k"] * 3}}, r"one or two cells .*, not 3"),
        ("paper", {"table-4/rows/dense": [1.0]}, r"paper\.yaml: table-4\.rows\.dense has 1 cells for 11 columns"),
        ("paper", {"table-4/by_column": {"chess": {"unit": "%"}}}, r"table-4\.by_column names 'chess'"),
        ("paper", {"table-4/colums": []}, r"paper\.yaml: unknown key 'table-4\.colums'; did you mean 'columns'"),
        (AUDIT, {"+roi-full/paper": None}, r"claims\.roi-full: .*needs the paper's number"),
        (AUDIT, {"estimates/roi-full/tolerance": None}, r"roi-full: .*'paper' and 'tolerance' stand together"),
        (AUDIT, {"estimates/roi-full/paper/cells": ["table-9/a/b"]}, r"'table-9/a/b' is unknown; did you mean"),
        (AUDIT, {"claims/roi/metric": {"deviating": "rois"}}, r"'deviating: rois': group 'rois' is unknown"),
    ],
)
def test_mistakes_are_named(folder, file, changes, words):
    edit(folder / f"{file}.yaml", lambda value: put(value, changes))
    with pytest.raises(UserError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_condition_needs_a_control(folder):
    def change(recipe):
        as_claim(recipe, "half-below-dense")["requires"] = GAIN
        recipe["arms"].remove("stem-frozen")
        del recipe["estimates"]["frozen-rows"]

    edit(folder / "validation_loss.yaml", change)
    with pytest.raises(UserError, match="needs the arm 'stem-frozen' or 'stem-shuffled'; add one to the recipe's arms"):
        load(folder)


def test_one_control_of_two_is_enough_for_a_condition(folder):
    def change(recipe):
        recipe["arms"].remove("stem-shuffled")
        del recipe["estimates"]["identity"]
        as_claim(recipe, "narrow")
        for key in ("rare-tokens", "trained-rows"):  # the second shares one of the condition's arms, not its contrast
            as_claim(recipe, key)["requires"] = GAIN

    edit(folder / "table_design.yaml", change)
    claims = load(folder).recipes["table_design"].claims
    assert claims["rare-tokens"].requires == tuple(GAIN)
    assert claims["narrow"].requires == ()


@pytest.mark.parametrize(
    ("base", "changes", "expected"),
    [
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "c"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_scale_is_merged_into_its_base_as_rfc_7396_has_it(base, changes, expected):
    """Examples of its appendix A."""
    assert merged(base, changes) == expected


def test_a_scale_has_its_bases_values_and_its_own(folder):
    text = "inherits: laptop\nmid: null\nscoreboard: results/mine\nmodel: {width: 64}\n"
    (folder / "scales/mine.yaml").write_text(text)
    scales = load(folder).scales
    laptop, mine = scales["laptop"], scales["mine"]
    assert (mine.mid, mine.scoreboard, mine.model.width) == (None, "results/mine", 64)
    changed = {"inherits": "laptop", "mid": None, "scoreboard": "results/mine", "model": mine.model}
    assert laptop.model_copy(update=changed) == mine
    assert laptop.model.model_copy(update={"width": 64}) == mine.model
