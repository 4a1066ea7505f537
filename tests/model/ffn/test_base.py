"""What classes say of themselves, against what they do."""

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn_class, ffns
from tests.model.shapes import SMALL


@pytest.mark.parametrize("name", ffns())
def test_the_rows_that_have_a_gradient_are_the_tokens_own_if_and_only_if_the_class_says_so(name):
    shape = SMALL | {"vocab": 50, "width": 16, "rank": 4, "slots": 3, "experts": 4, "top_k": 2}
    config = ModelConfig(**shape, ffn=name, replaced_layers=(1,))
    ffn, generator = ffn_class(name)(config), torch.Generator().manual_seed(1)
    for parameter in ffn.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    ffn.start_step("0:1:1")
    tokens = torch.tensor([[7, 3, 41, 12, 9]])
    ffn(torch.randn(1, 5, 16, generator=generator), tokens).square().sum().backward()
    tables = [parameter for key, parameter in ffn.named_parameters() if key == "table.weight"]
    for table in tables:
        rows = set(table.grad.abs().sum(dim=1).nonzero().flatten().tolist())
        assert (rows == set(tokens.flatten().tolist())) == (ffn.row_address == "token")
    assert tables or ffn.row_address == "token"
