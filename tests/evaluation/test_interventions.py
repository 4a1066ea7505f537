"""Interventions on tables against models built by hand."""

import pytest
import torch

from stemrepro.evaluation.interventions import mean_rows, permute_rows
from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn import table_parameters
from stemrepro.model.transformer import build

CONFIG = ModelConfig(vocab=13, width=8, layers=3, heads=2, kv_heads=1, ffn_width=10, ffn="stem", placed=(1, 2))


@pytest.fixture
def model():
    return build(CONFIG, 0)


def test_permuted_rows_are_the_same_rows_in_another_order(model):
    before = {name: table.clone() for name, table in table_parameters(model).items()}
    permute_rows(model, 4)
    for name, table in table_parameters(model).items():
        assert not torch.equal(table, before[name])
        assert torch.equal(table.sort(dim=0).values, before[name].sort(dim=0).values)
        matches = (table[:, None] == before[name][None]).all(dim=2)
        assert (matches.sum(dim=0) == 1).all()
    again = build(CONFIG, 0)
    permute_rows(again, 4)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_a_model_of_mean_rows_reads_no_token_in_its_tables(model):
    first, second = table_parameters(model).values()
    expected = first.detach().mean(dim=0)
    mean_rows(model)
    torch.testing.assert_close(first[7], expected)
    assert (first == first[0]).all()
    assert (second == second[0]).all()


def test_means_may_be_weighted_by_frequency(model):
    table = next(iter(table_parameters(model).values()))
    counts = torch.zeros(13)
    counts[3], counts[5] = 1, 3
    expected = 0.25 * table[3].detach() + 0.75 * table[5].detach()
    mean_rows(model, counts)
    torch.testing.assert_close(table[0], expected)


def test_the_backbone_is_left_alone(model):
    for change in (lambda m: permute_rows(m, 0), mean_rows):
        other = build(CONFIG, 0)
        change(other)
        tables = table_parameters(other)
        assert all(
            torch.equal(p, dict(model.named_parameters())[n]) for n, p in other.named_parameters() if n not in tables
        )
