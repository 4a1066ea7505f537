"""What `stemrepro show` says of a run, against the numbers and files of recipes/."""

import re

import pytest
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.cli.run_table import home_scale
from stemrepro.config.address import Address
from tests.conftest import ROOT


@pytest.fixture
def show(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "900")

    def run(*arguments):
        done = CliRunner().invoke(app, ["show", *arguments])
        return done.stdout if done.exit_code == 0 else done.stderr

    return run


@pytest.mark.parametrize(
    ("address", "origin", "setting"),
    [
        ("dense@rung-1", "scales/ladder.yaml", "schedule wsd"),
        ("dense@rung-1", "scales/laptop.yaml", "width 32"),
        ("dense@rung-1", "variant rung-1", "learning_rate 0.032"),
        ("dense@rung-1", "defaults", "embedding_rate_factor 1"),
        ("stem-full@own-rate", "tuned", "learning_rate 0.0175409"),
        ("stem-full@rate-1-own", "variant rate-1-own", "tokens 102400"),
        ("stem-full@width-64-table-rate", "width rule", "learning_rate 0.008"),
        ("stem-full@width-64-table-rate", "variant width-64-table-rate", "table_rate_factor 2"),
        ("dense-equal-flops", "arm dense-equal-flops", "ffn_width"),
        ("dense@longer-8", "scales/paper-1b.yaml", "learning_rate 0.0004"),
    ],
)
def test_each_setting_stands_next_to_where_it_is_from(show, address, origin, setting):
    text = show(address)
    assert re.search(rf"^ {re.escape(origin)} .*\b{re.escape(setting)}\b", text, re.MULTILINE), text
    assert len(text.splitlines()) < 40


def test_rates_step_by_step(show):
    """At twice the width the matrices' rate halves and the embeddings' stays; the variant doubles the tables'."""
    assert re.search(r"matrices +0\.016 +0\.016 +0\.008\b", text := show("stem-full@width-64-table-rate"))
    assert re.search(r"input embeddings +0\.016 +0\.016 +0\.016\b", text)
    assert re.search(r"tables +0\.032 +0\.032 +0\.016\b", text)


def test_the_scale_is_that_of_a_recipe_that_asks(catalog):
    asked = {"dense": "laptop", "dense@rung-1": "ladder", "dense@people-sixth": "capacity", "jtok@rung-1": "laptop"}
    assert {text: home_scale(catalog, Address.parse(text)) for text in asked} == asked


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dens@half",), "arm 'dens' is unknown; did you mean 'dense'?"),
        (("dense@rung1",), "variant 'rung1' is unknown; did you mean 'rung-1'?"),
        (("dense", "--scale", "lader"), "scale 'lader' is unknown; did you mean 'ladder'?"),
        (("dense@width-16", "--scale", "paper-350m"), "dense@width-16 at scale 'paper-350m': width 480 with 7.5 heads"),
    ],
)
def test_a_wrong_address_is_named(show, arguments, words):
    assert words in show(*arguments)
