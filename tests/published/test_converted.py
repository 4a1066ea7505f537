"""Rows of every token, and the model that reads them, against a plain loop."""

import numpy as np
import torch
import torch.nn.functional as F

from stemrepro.published.converted import RIDGE, Rows, convert, rows_of
from stemrepro.published.rows import ROWS, changed, constant
from tests.published.conftest import TEXT, VOCAB

LAYER = 1


def test_a_row_is_the_mean_drawn_to_its_prior(model, averaged):
    rows, up = Rows(model, averaged, few=2.0), model.decoder.blocks[LAYER].ffn.up.weight
    seen = sorted({*TEXT.ravel().tolist()} - {0})
    embedded = F.rms_norm(model.decoder.embedding.weight, (32,)).double()
    features = torch.cat([embedded, torch.ones(VOCAB, 1).double()], dim=1)
    left, right = torch.zeros(33, 33).double(), torch.zeros(33, 32).double()
    left.diagonal()[:32] += RIDGE
    for token in seen:
        count, mean = int((token == TEXT).sum()), averaged.read[LAYER][averaged.index[token]].double()
        left += count * torch.outer(features[token], features[token])
        right += count * torch.outer(features[token], mean)
    prior = features @ torch.linalg.inv(left) @ right
    for token in (5, 7, 8):  # often, once, never
        count = int((token == TEXT).sum())
        mean = averaged.read[LAYER][averaged.index[token]].double() if count else torch.zeros(32).double()
        expected = up.double() @ (count * mean + 2 * prior[token]) / (count + 2)
        assert torch.allclose(rows.at(LAYER, torch.tensor(token)).double(), expected, rtol=1e-3, atol=1e-4)
    plain = Rows(model, averaged, few=2.0, prior="mean")
    assert torch.allclose(plain.at(LAYER, torch.tensor(8)), up @ averaged.grand(averaged.read)[LAYER], atol=1e-5)


def test_the_converted_model_reads_rows_in_the_up_projections_place(model, averaged, tmp_path):
    averaged.save(tmp_path / ROWS)
    rows, tokens = rows_of(model, tmp_path), torch.from_numpy(TEXT.astype(np.int64))
    stem = convert(model, rows, (1, 2))
    with torch.no_grad():
        with changed(model.decoder, {layer: constant(rows.at(layer, tokens)) for layer in (1, 2)}):
            expected = model.decoder(tokens)
        assert torch.allclose(stem(tokens), expected, atol=1e-5)
        assert not torch.allclose(model.decoder(tokens), expected, atol=1e-3)
    assert stem.config.replaced_layers == (1, 2)
    assert stem.embedding.weight.data_ptr() == model.decoder.embedding.weight.data_ptr()
    half = convert(model, rows, (1,), torch.bfloat16)
    assert half.blocks[1].ffn.table.weight.dtype == torch.bfloat16
    assert half(tokens).dtype == torch.float32
