"""Pairs at the model's input: against whole numbers, the size of their table, and their place in the optimiser."""

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import half_of_the_model, parameter_counts
from stemrepro.model.ffn.base import table_parameters
from stemrepro.model.transformer import build
from stemrepro.training.module import LanguageModule

SHAPE = {"vocab": 61, "width": 32, "layers": 3, "heads": 4, "kv_heads": 2, "ffn_width": 40}


def test_the_first_block_reads_token_plus_scaled_pair():
    model, read = build(ModelConfig(**SHAPE, pair_rows=97), seed=0), []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    torch.nn.init.constant_(model.pairs.scale, 1.7)
    tokens = torch.tensor([[5, 3, 0, 5, 3], [9, 9, 9, 60, 0]])
    model(tokens)
    for row, inputs in zip(tokens.tolist(), read[0], strict=True):
        for before, token, x in zip([0, *row[:-1]], row, inputs, strict=True):
            place = (((before * 1000003 + token) * 2654435761 % 2**32) >> 7) % 97
            torch.testing.assert_close(x, model.embedding.weight[token] + 1.7 * model.pairs.table.weight[place])
    torch.testing.assert_close(read[0][0, 0], read[0][0, 3])  # first of the sequence, and first of a document


@pytest.mark.parametrize("start", ["xavier", "small", "normal"])
def test_a_pairs_row_starts_as_large_as_a_tokens_embedding(start):
    model = build(ModelConfig(**SHAPE | {"vocab": 3000}, pair_rows=4500, table_init=start), seed=0)
    added = model.pairs(torch.randint(0, 3000, (20, 50), generator=torch.Generator().manual_seed(1)))
    assert float(added.std()) == pytest.approx(32**-0.5, rel=0.02)
    assert float(added.std()) == pytest.approx(float(model.embedding.weight.std()), rel=0.03)


@pytest.mark.parametrize("vocab", [61, 300, 1024])
def test_the_table_is_the_largest_of_at_most_half_of_the_model_between_multiples_of_the_vocabulary(vocab):
    config = ModelConfig(**SHAPE | {"vocab": vocab})
    rows, rest = half_of_the_model(config), parameter_counts(config)["total"]
    assert rows % vocab == vocab // 2
    assert rows * 32 <= rest < (rows + vocab) * 32


def test_its_table_is_one_of_the_tables(make_run):
    module = LanguageModule(make_run("bigram-input", table_rate_factor=3.0))
    assert list(table_parameters(module.model)) == ["pairs.table.weight"]
    groups = {group["name"]: group for group in module.configure_optimizers()["optimizer"].param_groups}
    backbone, tables = groups["backbone"], groups["tables"]
    assert [id(p) for p in tables["params"]] == [id(module.model.pairs.table.weight)]
    assert id(module.model.pairs.scale) in {id(p) for p in backbone["params"]}
    assert tables["initial_lr"] == 3 * backbone["initial_lr"]
