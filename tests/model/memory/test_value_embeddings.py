"""Value embeddings against the speedrun's lines, written as a loop."""

import torch

from stemrepro.model.config import ModelConfig, layers_of
from stemrepro.model.memory.value_embeddings import ValueEmbeddings
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL | {"layers": 12}, memory="value-embeddings", memory_layers=layers_of("ends", 12))


def test_of_twelve_layers_the_first_three_and_the_last_three_share_three_tables():
    assert CONFIG.memory_layers == (0, 1, 2, 9, 10, 11)
    memory = ValueEmbeddings(CONFIG)
    torch.nn.init.normal_(memory.factors)
    tokens, values = torch.tensor([[1, 3, 0], [2, 1, 4]]), torch.randn(2, 3, 4)
    for place, table in enumerate([0, 1, 2, 0, 1, 2]):
        got = memory.values(place, values, torch.zeros(2, 3, 8), tokens)
        a, b = memory.factors[place].tolist()
        for s in range(2):
            for t in range(3):
                row = memory.tables[table].weight[tokens[s, t]]
                torch.testing.assert_close(got[s, t], a * values[s, t] + b * row)
