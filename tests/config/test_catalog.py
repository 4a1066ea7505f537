"""recipes/ is checked key by key: every mistake gives one sentence with file, key and value."""

import itertools
import shutil

import pytest
import yaml

from stemrepro.common.errors import UserError
from stemrepro.config.catalog import merged
from stemrepro.measures.base import measure_class, refusal
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


def test_the_shipped_recipes_are_valid(catalog):
    assert {"smoke", "laptop"} <= catalog.scales.keys()
    assert len(catalog.scales["laptop"].seeds) >= 5
    assert "token-only" in catalog.recipes["validation_loss"].arms
    claims = [claim for recipe in catalog.recipes.values() for claim in recipe.claims.values()]
    assert all(claim.paper.source for claim in claims if claim.paper)
    assert {claim.origin for claim in claims} == {"paper", "arithmetic", "control"}
    assert [recipe.place for recipe in catalog.recipes.values()] == sorted(r.place for r in catalog.recipes.values())


def test_every_file_of_recipes_is_read(catalog):
    """A recipe, a scale or a sweep that no command reads would be a promise nobody keeps."""
    names = {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    others = {"arms", "mixes", "model_cards", "models", "paper", "questions", "variants", "shapes"}
    assert names == set(catalog.recipes) | others
    assert {path.stem for path in (ROOT / "recipes/scales").iterdir()} == set(catalog.scales)


def test_arithmetic_is_exact(catalog):
    claims = {key: claim for recipe in catalog.recipes.values() for key, claim in recipe.claims.items()}
    assert [key for key, claim in claims.items() if claim.origin == "arithmetic" and claim.kind != "exact"] == []


def test_no_precondition_looks_at_its_own_claim(catalog):
    """Else the claim could only be 'not testable' where it fails."""
    for recipe, claim in ((r, c) for r in catalog.recipes.values() for c in r.claims.values()):
        measure = measure_class(recipe.measure)
        for precondition in measure.preconditions:
            looked_at = measure.preconditions[precondition].looked_at
            for pair in itertools.combinations(looked_at, 2):
                copy = claim.model_copy(update={"arms": pair, "preconditions": (precondition,), "kind": "greater"})
                assert refusal(measure, catalog, recipe, copy), (claim.metric, pair, precondition)


def as_claim(recipe, name):
    """Make a claim of an estimate and return it, to be changed."""
    estimate = recipe["estimates"].pop(name)
    claim = {key: value for key, value in estimate.items() if key not in ("label", "tolerance")}
    claim |= {"sentence": estimate["label"], "smallest_effect": estimate.get("tolerance", 0.02)}
    claim["kind"] = "greater" if "arms" in estimate else "exact"
    return recipe.setdefault("claims", {}).setdefault(name, claim)


def without_controls(recipe):
    as_claim(recipe, "half-below-dense")["preconditions"] = ["no-gain-without-information"]
    recipe["arms"] = [arm for arm in recipe["arms"] if arm not in ("stem-frozen", "stem-shuffled")]
    del recipe["variants"], recipe["more_seeds"]
    del recipe["estimates"]["frozen-rows"], recipe["estimates"]["shuffled-rows"]


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        (
            "mixes.yaml",
            lambda v: v["text"].update(kind="web"),
            r"mixes\.yaml: text\.kind: choose one of archives, sample, hub, .*\(got 'web'\)",
        ),
        (
            "scales/laptop.yaml",
            lambda v: v.update(data="poems"),
            r"laptop\.yaml: data: mix 'poems' is unknown \(recipes/mixes\.yaml has text",
        ),
        (
            "scales/laptop.yaml",
            lambda v: v.update(mid="mid-olmo"),
            r"laptop\.yaml: mid: 'mid-olmo' has parts with a `sample`, and 'text-8' has none; a blend",
        ),
        (
            "scales/smoke.yaml",
            lambda v: v.update(inherits="lapdog"),
            r"smoke\.yaml: inherits: scale 'lapdog' is unknown; did you mean 'laptop'\?",
        ),
        (
            "scales/smoke.yaml",
            lambda v: v.update(inherits="atlas"),
            r"smoke\.yaml: inherits: 'atlas' inherits from another itself; name a scale that doesn't",
        ),
        ("scales/laptop.yaml", lambda v: v.update(inherits="smoke"), r"\.yaml: inherits: '\S+' inherits from"),
        (
            "scales/smoke.yaml",
            lambda v: v["training"].update(batch=12),
            r"smoke\.yaml: training: micro_batch 16 does not divide .*; it inherits \S+laptop\.yaml",
        ),
        (
            "scales/laptop.yaml",
            lambda v: v["training"].update(clip=0),
            r"laptop\.yaml: training\.clip: .*greater than 0 \(got 0\)$",
        ),
        ("arms.yaml", lambda v: v["dense"].update(colour=1), r"arms\.yaml: unknown key 'dense\.colour'; known are ffn"),
        (
            "arms.yaml",
            lambda v: v["dense"].update(placment=v["dense"].pop("placement")),
            r"arms\.yaml: unknown key 'dense\.placment'; did you mean 'placement'\? known are ffn",
        ),
        (
            "scales/laptop.yaml",
            lambda v: v["model"].update(widht=v["model"].pop("width")),
            r"laptop\.yaml: unknown key 'model\.widht'; did you mean 'width'\? known are vocab, width",
        ),
        (
            "scales/laptop.yaml",
            lambda v: v["training"].update(micro_bacth=2),
            r"unknown key 'training\.micro_bacth'; did you mean 'micro_batch'\? known are tokens",
        ),
        (
            "validation_loss.yaml",
            lambda v: v["estimates"]["token-part"].update(metrik="prose"),
            r"unknown key 'estimates\.token-part\.metrik'; did you mean 'metric'\?",
        ),
        (
            "arms.yaml",
            lambda v: v["dense"].update(ffn="swish"),
            r"arms\.yaml: dense: .*'swish' is unknown \(stemrepro/model/specs\.py",
        ),
        (
            "arms.yaml",
            lambda v: v["dense"].update(hue="pale"),
            r"dense: hue 'pale' is unknown: choose one of black, blue",
        ),
        ("arms.yaml", lambda v: v.update({"a;touch x": v["dense"]}), r"arms\.yaml: 'a;touch x' is no name"),
        ("variants.yaml", lambda v: v.update(main={"tokens": 2}), r"variants\.yaml: 'main' is the scale itself"),
        (
            "variants.yaml",
            lambda v: v["half"].update(at="lapdog"),
            r"variants\.yaml: half\.at: scale 'lapdog' is unknown; did you mean 'laptop'\?",
        ),
        ("variants.yaml", lambda v: v["half"].pop("at"), r"variants\.yaml: half\.tokens: say at which scale"),
        ("variants.yaml", lambda v: v["half"].update(tokens=-5), r"variants\.yaml: half\.tokens: .*\(got -5\)"),
        ("variants.yaml", lambda v: v["half"].update(tokns=5), r"unknown key 'half\.tokns'; did you mean 'tokens'"),
        (
            "variants.yaml",
            lambda v: v["wide-rung-1"].update(width=9),
            r"token_ladder\.yaml: \S+@wide-rung-1 at scale '\w+': width \S+ with",
        ),
        (
            "scales/laptop.yaml",
            lambda v: v.update(learning_rate=float("nan")),
            r"laptop\.yaml: learning_rate: .*\(got nan\)",
        ),
        ("scales/laptop.yaml", lambda v: v.update(scoreboard="../elsewhere"), r"laptop\.yaml: scoreboard: "),
        (
            "scales/laptop.yaml",
            lambda v: v["model"].update(heads=3),
            r"laptop\.yaml with arm 'dense': heads 3 does not divide width 32",
        ),
        (
            "scales/laptop.yaml",
            lambda v: v["model"].update(layers=2),
            r"arm 'stem-third': placement 'third' needs layers >= 3",
        ),
        (
            "scales/laptop.yaml",
            lambda v: v["training"].update(tokens=1000),
            r"training\.tokens 1000 is no multiple of batch x sequence = 1024",
        ),
        ("scales/laptop.yaml", lambda v: v.update(seeds=[0, 1, 1]), r"seeds \[0, 1, 1\] names a seed twice"),
        ("arms.yaml", lambda v: v["dense"].update(marker="%"), r"dense: marker '%' is unknown: choose one of "),
        ("arms.yaml", lambda v: v["dense"].update(label="$d$"), r"dense: label '\$d\$' holds a \$"),
        ("rivals.yaml", lambda v: v["arms"].append("ple"), r"rivals\.yaml: .*names an arm twice"),
        ("scales/laptop.yaml", lambda v: v.update(seeds=[2, 0, 1]), r"seeds \[2, 0, 1\] must stand in order"),
        (
            "validation_loss.yaml",
            lambda v: as_claim(v, "full-below-dense").update(preconditions=["token-only-below-three-quarters"]),
            r"'full-below-dense': precondition .* looks at the claim's own contrast",
        ),
        (
            "validation_loss.yaml",
            lambda v: v["arms"].append("stem-tenth"),
            r"validation_loss\.yaml: arm 'stem-tenth' is unknown; did you mean 'stem-late'",
        ),
        (
            "validation_loss.yaml",
            lambda v: v.update(measure="scores"),
            r"validation_loss\.yaml: measure 'scores' is unknown",
        ),
        (
            "validation_loss.yaml",
            lambda v: as_claim(v, "token-part").update(arms=["dense", "x"]),
            r"claim 'token-part' names arm 'x'",
        ),
        (
            "validation_loss.yaml",
            lambda v: as_claim(v, "token-part").update(origin="ours"),
            r"claims\.token-part\.origin: .*'paper', 'arithmetic' or 'control' \(got 'ours'\)",
        ),
        (
            "validation_loss.yaml",
            lambda v: as_claim(v, "token-part").update(metric="prosee"),
            r"claim 'token-part': metric 'prosee' is unknown; did you mean 'prose'\? \(measure 'comparison' has prose, "
            r"all,",
        ),
        (
            "validation_loss.yaml",
            lambda v: as_claim(v, "token-part").update(preconditions=["spikes-expected"]),
            r"claim 'token-part': precondition 'spikes-expected' is unknown to this measure; it has ",
        ),
        (
            "validation_loss.yaml",
            without_controls,
            r"precondition 'no-gain-without-information' needs the arm 'stem-frozen' or 'stem-shuffled'; add one to the "
            r"recipe's arms, or leave",
        ),
        (
            "table_design.yaml",
            lambda v: as_claim(v, "random-rows").update(preconditions=["no-gain-without-information"]),
            r"claim 'random-rows': precondition 'no-gain-without-information' looks at the claim's own contrast",
        ),
        (
            "table_design.yaml",
            lambda v: as_claim(v, "vocabulary").update(preconditions=["no-gain-without-information"]),
            r"claim 'vocabulary': precondition .* compares losses, so unit must be nats/token "
            r"\(got 'bits/byte a doubling'\)",
        ),
        (
            "benchmark_scores.yaml",
            lambda v: v["estimates"]["recall"].update(metric="accuracy:chess"),
            r"estimate 'recall': metric 'accuracy:chess': task 'chess' is unknown \(this recipe has ",
        ),
        (
            "paper_audit.yaml",
            lambda v: as_claim(v, "roi-full").pop("paper"),
            r"claims\.roi-full: .*needs the paper's number",
        ),
        (
            "validation_loss.yaml",
            lambda v: as_claim(v, "third-below-dense").update(paper={"cells": ["fig-1b/lead/16k"]}),
            r"'fig-1b/lead/16k' is empty",
        ),
        (
            "validation_loss.yaml",
            lambda v: as_claim(v, "third-below-dense").update(paper={"cells": ["fig-1b/lead/8k"] * 3}),
            r"one or two cells make a number, not 3",
        ),
        (
            "paper.yaml",
            lambda v: v["table-4"]["rows"]["dense"].pop(),
            r"paper\.yaml: table-4\.rows\.dense has 10 cells for 11 columns",
        ),
        (
            "paper.yaml",
            lambda v: v["table-4"].update(by_column={"chess": {"unit": "%"}}),
            r"table-4\.by_column names 'chess'",
        ),
        (
            "arms.yaml",
            lambda v: v["stem-half"].update(family="stems"),
            r"arms\.yaml: stem-half: family 'stems' is unknown; did you mean 'stem-",
        ),
        (
            "table_design.yaml",
            lambda v: v["variants"].update(haf={}),
            r"table_design\.yaml: variant 'haf' is unknown; did you mean 'half'\?",
        ),
        (
            "table_design.yaml",
            lambda v: v["variants"].update({"half-own-rate": {"arms": ["ple"]}}),
            r"table_design\.yaml: variants\.half-own-rate names 'ple', which is not among the recipe's arms",
        ),
        (
            "table_design.yaml",
            lambda v: v.update(compare_at="halb"),
            r"table_design\.yaml: compare_at 'halb' is no variant at which all of the recipe's arms are trained",
        ),
        (
            "retrofit.yaml",
            lambda v: v["variants"].pop("half"),
            r"dense@second-half at scale '\S+': its 5 seeds resume from those of dense@half, of which the recipe asks "
            r"for 0",
        ),
        (
            "variants.yaml",
            lambda v: (v.update(deep={"extends": {"after": "mid"}}), v["longer-8"]["extends"].update(after="deep")),
            r"dense@longer-8 at scale 'paper-1b': it resumes from 'deep', which resumes from 'mid'; two stages of the",
        ),
        (
            "variants.yaml",
            lambda v: v["longer-8"]["extends"].update(after="half-vocab-4"),
            r"dense@longer-8 .*: it resumes from 'half-vocab-4', which has 'vocab'; tokens, learning rate and clip alone",
        ),
        (
            "variants.yaml",
            lambda v: v["second-half-mean-row"]["extends"].update(after="second-half"),
            r"@second-half-mean-row .*: it resumes from 'second-half', which resumes from 'half'; .* stands alone",
        ),
        (
            "rivals.yaml",
            lambda v: v["estimates"]["over-jtok"].update(arms=["jtok"]),
            r"estimates\.over-jtok: .*two arms, or none where it is computed, not 1",
        ),
        (
            "rivals.yaml",
            lambda v: v["estimates"]["over-jtok"].pop("arms"),
            r"estimate 'over-jtok': metric 'prose' is a contrast, which needs arms",
        ),
        (
            "rivals.yaml",
            lambda v: v["estimates"].update({"equal-flops": v["estimates"]["over-jtok"]}),
            r"estimate 'equal-flops' has the name of a claim",
        ),
        (
            "rivals.yaml",
            lambda v: v["estimates"]["over-jtok"].update(arms=["stem-full", "dense-equal-flops"]),
            r"estimate 'over-jtok' asks what 'equal-flops' asks: metric 'prose' of the same arms",
        ),
        (
            "paper_audit.yaml",
            lambda v: v["estimates"]["roi-full"].pop("tolerance"),
            r"estimates\.roi-full: .*'paper' and 'tolerance' stand together",
        ),
        (
            "paper_audit.yaml",
            lambda v: v["estimates"]["roi-full"]["paper"].update(cells=["table-9/a/b"]),
            r"estimate 'roi-full': .*cell .* 'table-9/a/b' is unknown; did you mean",
        ),
        (
            "paper_audit.yaml",
            lambda v: v["claims"]["roi"].update(metric="deviating:rois"),
            r"claim 'roi': metric 'deviating:rois': group 'rois' is unknown",
        ),
    ],
)
def test_mistakes_are_named(folder, file, change, words):
    edit(folder / file, change)
    with pytest.raises(UserError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_one_control_of_two_is_enough_for_a_precondition(folder):
    def change(recipe):
        recipe["arms"].remove("stem-shuffled")
        del recipe["estimates"]["identity"]
        as_claim(recipe, "narrow")
        for key in ("rare-tokens", "trained-rows"):  # the second shares one of the condition's arms, not its contrast
            as_claim(recipe, key)["preconditions"] = ["no-gain-without-information"]

    edit(folder / "table_design.yaml", change)
    claims = load(folder).recipes["table_design"].claims
    assert claims["rare-tokens"].preconditions == ("no-gain-without-information",)
    assert claims["narrow"].preconditions == ()


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
    (folder / "scales/mine.yaml").write_text(
        "inherits: laptop\nmid: null\nscoreboard: results/mine\nmodel: {width: 64}\n"
    )
    scales = load(folder).scales
    laptop, mine = scales["laptop"], scales["mine"]
    assert (mine.mid, mine.scoreboard, mine.model.width) == (None, "results/mine", 64)
    changed = {"inherits": "laptop", "mid": None, "scoreboard": "results/mine", "model": mine.model}
    assert laptop.model_copy(update=changed) == mine
    assert laptop.model.model_copy(update={"width": 64}) == mine.model
