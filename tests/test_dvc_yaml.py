"""The pipelines that are written by hand are those of the recipes."""

import re
from itertools import pairwise, product
from pathlib import Path
from pkgutil import iter_modules

import networkx as nx
import pytest
import yaml
from dvc.repo import Repo

from stemrepro import measures
from stemrepro.common.code_hash import files
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.measures.base import study_of
from stemrepro.model.ffn.base import ffns
from stemrepro.model.memory.base import memories
from stemrepro.model.names import memory_module, module_of
from stemrepro.pipeline.reproduce import RECORDS
from stemrepro.training.run import DECIDING_NOTHING
from tests.conftest import ROOT

MEASURES = [found.name for found in iter_modules(measures.__path__, f"{measures.__name__}.")]
MOST_LINES = {"dvc.yaml": 150, "params.yaml": 20, "studies/dvc.yaml": 150, "recipes/sweeps/dvc.yaml": 30}


def content(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", MOST_LINES)
def test_they_can_be_read(path):
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= MOST_LINES[path]


def test_the_default_study_draws_every_recipe_of_its_scale(catalog):
    params = content("params.yaml")
    here = catalog.at(params["scale"])
    assert params["mix"] == catalog.scale(params["scale"]).data
    assert sorted(params["recipes"]) == sorted(here.recipes)
    stages = content("dvc.yaml")["stages"]
    trained = {f"recipes/{name}.yaml" for name, recipe in here.recipes.items() if recipe.wanted()}
    assert {path for path in stages["train"]["deps"] if path in trained} == trained
    published = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("results/*/*/verdicts.json")}
    of_studies = {path for path in published if not path.startswith("results/laptop/")}
    drawn = {f"results/${{scale}}/{name}" for name in params["recipes"]}
    assert {path for path in stages["report"]["deps"] if path.startswith("results/")} == drawn | of_studies


def test_the_studies_are_all_other_scales_of_the_page(catalog):
    texts, scales, studies, models, figures = (next(iter(v.values())) for v in content("studies/dvc.yaml")["vars"])
    shown = {name for name, scale in catalog.scales.items() if scale.scoreboard == "results"} - {"laptop"}
    assert {recipe: name for name in shown for recipe in catalog.at(name).recipes} == figures
    read = {name: study_of(catalog.recipes[name]) for name in figures}
    published = {name for name, at in figures.items() if catalog.scale(at).published}
    assert {name: study for name, study in read.items() if name in published} == models
    shown = {name for name in shown if catalog.scale(name).published is None}
    assert studies.keys() == shown | {"smoke"}
    assert scales == {name: catalog.scale(name).data for name in shown | {"smoke", "start"}}
    assert {name: study["text"] for name, study in studies.items()} == {name: scales[name] for name in studies}
    assert {f"recipes/{name}.yaml" for name in figures.keys() - models.keys()} == {
        studies[name]["recipes"] for name in shown
    }
    assert {*scales.values()} == {*texts, content("params.yaml")["mix"]}


DECIDE_NOTHING = (*DECIDING_NOTHING, "stemrepro.common.paths", "stemrepro.common.progress")
NETWORKS = (*map(module_of, ffns()), *map(memory_module, memories()))
DATA = ("encoding", "large", "card", "vocabularies", "blend")
MODULES = {
    "corpus": ("stemrepro.data.corpus", "stemrepro.data.items"),
    "tokenizer": ("stemrepro.data.tokenizer",),
    "blocks": tuple(f"stemrepro.data.{name}" for name in DATA),
    "train": ("stemrepro.training.train", *NETWORKS),
    "score": (*(f"stemrepro.evaluation.{kind}" for kind in SCORE_KINDS), "stemrepro.data.counting", *NETWORKS),
    "analyse": (
        "stemrepro.report.analyse",
        *(found.name for found in iter_modules(measures.__path__, "stemrepro.measures.")),
    ),
    "report": ("stemrepro.report.pages",),
    "study": tuple(
        f"stemrepro.published.{study}"
        for study in ("premise", "edits", "scoreboard", "spread", "capacity", "conversion", "serving")
    ),
}
"""What the command of a stage runs."""


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("file", ["dvc.yaml", "studies/dvc.yaml"])
def test_a_stage_waits_for_all_code_that_it_runs(file, name):
    """Else DVC would pass over a stage whose command would make something else."""
    stages = content(file)["stages"]
    if (stage := stages.get(name) or stages.get({"analyse": "figure"}.get(name))) is None:
        assert (file, name) in {("studies/dvc.yaml", "report"), ("dvc.yaml", "study")}
        return
    deps = [ROOT / path for path in stage.get("do", stage)["deps"]]
    own = ("stemrepro.published.sizes",) if (file, name) == ("studies/dvc.yaml", "score") else ()  # of the scale sizes
    files_of_code = [path for path in files((*MODULES[name], *own), DECIDE_NOTHING) if path.name != "__init__.py"]
    assert len(files_of_code) > 2
    assert [path for path in files_of_code if not any(path.is_relative_to(dep) for dep in deps)] == []


@pytest.mark.parametrize("file", ["dvc.yaml", "studies/dvc.yaml"])
def test_scores_wait_for_the_recipes_and_the_scale_that_ask_for_them(file):
    """A recipe's `scores:`, a scale's tasks."""
    train, score = ({*stage.get("do", stage)["deps"]} for stage in map(content(file)["stages"].get, ("train", "score")))
    assert {path for path in train if "recipe" in path} - {"recipes/arms.yaml", "recipes/variants.yaml"} <= score


def test_a_figure_waits_for_the_same_records_with_dvc_and_without():
    for file, stage in (("dvc.yaml", "analyse"), ("studies/dvc.yaml", "figure")):
        records = {
            path for path in content(file)["stages"][stage]["do"]["deps"] if re.fullmatch(r"recipes/\w+\.yaml", path)
        }
        assert records <= {f"recipes/{name}.yaml" for name in RECORDS}


@pytest.mark.parametrize("file", ["dvc.yaml", "studies/dvc.yaml"])
def test_dvc_removes_nothing(file):
    """Before a stage it removes what doesn't persist, which another command may read, and which a failed one loses.

    'dvc exp apply' deletes what its cache could hold and dvc.lock doesn't name: longer studies are mostly made without.
    """
    stages = [stage.get("do", stage) for stage in content(file)["stages"].values()]
    outs = [out for stage in stages for out in (*stage["outs"], *stage.get("metrics", []))]
    costly = [out for out in outs if not str(out).startswith("{'results/")]
    assert len(costly) == {"dvc.yaml": 9, "studies/dvc.yaml": 12}[file]
    assert all(about["persist"] is True for out in outs for about in out.values())
    for out in costly:
        (about,) = out.values()
        assert file == "dvc.yaml" or about["cache"] is False


def test_every_sweep_is_a_stage_with_committed_results():
    scale_of = content("recipes/sweeps/dvc.yaml")["vars"][0]["scale_of"]
    assert scale_of.keys() == {path.stem for path in ROOT.glob("recipes/sweeps/*.yaml")} - {"dvc"}
    committed = {
        (path.parts[-1], path.parts[-3]) for path in ROOT.glob("results/*/sweeps/*") if "smoke" not in path.parts[-3]
    }
    assert committed
    assert committed <= set(scale_of.items())


@pytest.fixture(scope="module")
def graph():
    """DVC's graph of all stages, by name; an arrow leads to what a stage waits for."""
    graph = Repo(str(ROOT)).index.graph
    names = {stage: f"{Path(stage.path).parent.name}:{stage.name}" for stage in graph}
    home = ROOT.name
    return nx.relabel_nodes(graph, {stage: name.removeprefix(f"{home}:") for stage, name in names.items()})


def test_a_figure_waits_for_the_whole_way_from_its_sources(graph):
    way = ["fetch", "corpus", "tokenizer", "blocks", "train", "score", "analyse@rivals"]
    assert nx.descendants(graph, "analyse@rivals") == {*way} - {"analyse@rivals"}
    assert all(nx.has_path(graph, later, earlier) for earlier, later in pairwise(way))
    ladder = nx.descendants(graph, "studies:figure@token_ladder")
    assert ladder == {*way[:2], *(f"studies:{name}@ladder" for name in way[2:6])}


def test_no_target_of_the_default_study_asks_for_a_longer_one(graph):
    own, others = ([name for name in graph if (":" in name) is other] for other in (False, True))
    assert len(own) > 20
    assert len(others) > 40
    assert not [pair for pair in product(own, others) if nx.has_path(graph, *pair)]
