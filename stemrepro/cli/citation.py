"""Zenodo's metadata of this software, all of it from CITATION.cff and pyproject.toml."""

import html
import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.yaml_records import Strict, parse, read_yaml

CITATION, PROJECT = Path("CITATION.cff"), Path("pyproject.toml")
ORCID = "https://orcid.org/"


class Author(Strict, extra="ignore"):
    """A person, or an entity, which has a name alone."""

    name: str = ""
    family_names: Annotated[str, Field(alias="family-names")] = ""
    given_names: Annotated[str, Field(alias="given-names")] = ""
    affiliation: str = ""
    orcid: str = ""

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not (self.name or self.family_names or self.given_names):
            raise ValueError("needs a name, or family-names and given-names")
        return self

    def creator(self) -> dict[str, str]:
        """As Zenodo has it: a person's family name first, an ORCID without its address."""
        name = self.name or ", ".join(filter(None, (self.family_names, self.given_names)))
        about = {"name": name, "affiliation": self.affiliation, "orcid": self.orcid.removeprefix(ORCID)}
        return {key: value for key, value in about.items() if value}


class Identifier(Strict, extra="ignore"):
    """Of a work, such as arXiv:2601.10639."""

    value: str


class Reference(Strict, extra="ignore"):
    """The paper that is reproduced."""

    identifiers: list[Identifier]


class Citation(Strict, extra="ignore"):
    """The keys of CITATION.cff that an archive of the software wants."""

    title: str
    abstract: str
    license: str
    version: str
    keywords: list[str]
    authors: Annotated[list[Author], Field(min_length=1)]
    references: Annotated[list[Reference], Field(min_length=1)]


def citation() -> Citation:
    """CITATION.cff of the working directory.

    Raises:
        UserError: a key is missing or wrong, or pyproject.toml says otherwise.
    """
    cited = parse(Citation, read_yaml(CITATION), CITATION)
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    for key in ("version", "license"):
        if (own := getattr(cited, key)) != project[key]:
            raise UserError(f"{CITATION} says {key} {own} and {PROJECT} {project[key]}; make them one")
    return cited


def zenodo(cited: Citation) -> dict:
    """Return the metadata of a deposit (https://developers.zenodo.org/#deposit-metadata), as in a .zenodo.json."""
    identifiers = [identifier.value for reference in cited.references for identifier in reference.identifiers]
    return {
        "title": cited.title,
        "upload_type": "software",
        "description": f"<p>{html.escape(cited.abstract)}</p>",
        "creators": [author.creator() for author in cited.authors],
        "access_right": "open",
        "license": cited.license,
        "keywords": cited.keywords,
        "related_identifiers": [{"identifier": value, "relation": "isSupplementTo"} for value in identifiers],
        "version": cited.version,
    }
