"""A plan's price: sums over its addresses, in the plan's own words and figures."""

import io

import pytest
from rich.console import Console

from stemrepro.cli.estimate import show
from stemrepro.config.address import MAIN, Address
from stemrepro.pipeline import plan, price


def test_the_paper_scale_prints_its_price(catalog):
    """Counts are the paper's; hours, dollars and bytes were calculated by hand from them."""
    params = plan.make_params(catalog, "paper-1b")
    machine = catalog.scales["paper-1b"].machine
    rows = {row.address: row for row in price.prices(catalog, params, machine)}
    dense, third = rows[Address(MAIN, "dense")], rows[Address(MAIN, "stem-third")]
    assert dense.hours == pytest.approx((6337, 10139), rel=1e-3)
    assert third.dollars == pytest.approx((14959, 23934), rel=1e-3)
    assert 10 * rows[Address("mid", "dense")].flops == pytest.approx(dense.flops, rel=1e-4)
    console = Console(file=io.StringIO(), width=200)
    show(catalog, params, console)
    text = console.file.getvalue()
    for words in ("6,337 to 10,139", "6.668 B", "1.415 B", "25% to 40%", "2.5 dollars an hour", "H100"):
        assert words in text
    assert "this machine's CPU" not in text


def test_disk_counts_each_text_once_and_parents_checkpoints(catalog):
    """Pretraining and its extension read one text on end, in four bytes a token; mid-training reads another."""
    need = price.disk(plan.make_params(catalog, "paper-1b"))
    assert need.blocks == 4 * (1000001765376 + 20000538624 + 100000595968)
    assert need.checkpoints == 12 * (2 * 6667962368 + 2 * (1498482688 + 6667962368))  # after both earlier stages
    assert need.weights == 3 * 4 * (1498482688 + 6667962368)
    assert need.total == need.blocks + need.checkpoints + need.weights


def test_a_scale_without_a_machine_prints_what_it_printed(catalog):
    console = Console(file=io.StringIO(), width=200)
    show(catalog, plan.make_params(catalog, "smoke"), console)
    text = console.file.getvalue()
    assert "this machine's CPU" in text
    assert "dollars" not in text
