"""The flowchart of stages has the edges that DVC itself finds, and the page shows it."""

import re

import networkx as nx
import pytest
from dvc.repo import Repo

from stemrepro.pipeline import plan
from stemrepro.pipeline.stage_graph import ANALYSES, mermaid, shortest
from tests.conftest import ROOT


def drawn(text: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^  (\w+) --> (\w+)$", text, re.MULTILINE))


@pytest.fixture(params=["laptop", "atlas"])
def by_dvc(request, catalog, tmp_path):
    """The scale, and the stages as DVC orders them, the analyses as one."""
    plan.write(request.param, (), ROOT / "recipes", tmp_path)
    names = {}
    graph = Repo.init(str(tmp_path), no_scm=True).index.graph
    for stage in graph:
        name, _, scale = stage.name.partition("@")
        if name not in catalog.recipes or scale == request.param:
            names[stage] = ANALYSES if name in catalog.recipes else name
    edges = [(names.get(first), names.get(then)) for then, first in graph.edges]  # DVC's lead to what is needed
    return request.param, nx.DiGraph(edge for edge in edges if all(edge))


def test_the_flowchart_says_of_every_stage_what_it_waits_for(catalog, by_dvc):
    scale, graph = by_dvc
    found = nx.DiGraph(drawn(mermaid(catalog, scale)))
    assert set(found) == set(graph)
    assert set(found.edges) <= set(graph.edges)
    assert set(nx.transitive_closure(found).edges) == set(nx.transitive_closure(graph).edges)
    assert nx.transitive_reduction(found).edges == found.edges  # no edge that another way stands for


def test_every_stage_stands_in_one_place(catalog):
    text = mermaid(catalog, "laptop")
    nodes = re.findall(r"^    (\w+)$|^  (\w+)\[", text, re.MULTILINE)
    names = [first or second for first, second in nodes]
    assert len(names) == len(set(names))
    assert set(names) == {name for edge in drawn(text) for name in edge}
    assert re.search(r'analyses\["(\d+) analyses', text)[1] == str(len(catalog.at("laptop").recipes))


def test_an_edge_goes_where_a_longer_way_leads():
    assert shortest({("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "c")}) == {
        ("a", "b"),
        ("b", "c"),
        ("c", "d"),
    }


def test_the_page_shows_it(catalog):
    """Else 'stemrepro prose' brings it up to date."""
    assert f"<!--laptop::stages-->\n{mermaid(catalog, 'laptop')}\n<!--/-->" in (ROOT / "docs/howto.md").read_text()
