"""CITATION.cff and what Zenodo is told from it."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

from stemrepro.cli.citation import citation, zenodo
from stemrepro.common.errors import UserError
from tests.conftest import ROOT


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("CITATION.cff", "pyproject.toml"):
        shutil.copy(ROOT / name, name)
    return tmp_path


def edit(change):
    given = yaml.safe_load(Path("CITATION.cff").read_text())
    change(given)
    Path("CITATION.cff").write_text(yaml.safe_dump(given))


def test_zenodo_is_told_what_the_files_say(project):
    cff, toml = yaml.safe_load(Path("CITATION.cff").read_text()), tomllib.loads(Path("pyproject.toml").read_text())
    told = zenodo(citation())
    assert told["title"] == cff["title"]
    assert told["version"] == toml["project"]["version"]
    assert told["license"] == toml["project"]["license"]
    assert told["keywords"] == cff["keywords"]
    assert told["upload_type"] == "software"
    assert told["creators"] == [{"name": "The stemrepro maintainers"}]
    assert told["related_identifiers"] == [{"identifier": "arXiv:2601.10639", "relation": "isSupplementTo"}]
    assert told["description"].replace("&quot;", '"') == f"<p>{cff['abstract']}</p>"


def test_persons_and_signs_of_html(project):
    person = {"family-names": "Doe", "given-names": "Jane", "affiliation": "A", "orcid": "https://orcid.org/0000-0001-2345-6789"}  # fmt: skip
    edit(lambda given: given.update(authors=[person, {"family-names": "Plato"}], abstract="a < b & c"))
    told = zenodo(citation())
    assert told["creators"] == [
        {"name": "Doe, Jane", "affiliation": "A", "orcid": "0000-0001-2345-6789"},
        {"name": "Plato"},
    ]
    assert told["description"] == "<p>a &lt; b &amp; c</p>"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda given: given.pop("abstract"), "CITATION.cff: abstract: Field required"),
        (lambda given: given.update(authors=[]), "CITATION.cff: authors: List should have at least 1 item"),
        (lambda given: given.update(authors=[{"alias": "x"}]), "CITATION.cff: authors.0: needs a name"),
        (lambda given: given["references"][0].pop("identifiers"), "CITATION.cff: references.0.identifiers: Field"),
        (
            lambda given: given.update(version="9"),
            "CITATION.cff says version 9 and pyproject.toml 0.1.0; make them one",
        ),
        (lambda given: given.update(license="MIT"), "CITATION.cff says license MIT and pyproject.toml Apache-2.0"),
    ],
)
def test_what_is_missing_or_said_twice_is_named(project, change, words):
    edit(change)
    with pytest.raises(UserError, match=re.escape(words)):
        citation()
