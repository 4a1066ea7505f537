"""Every arm's feed-forward network; the equation stands in each class.

All have the same signature: `forward(x [batch, seq, width], tokens [batch, seq]) -> [batch, seq, width]`. To add an
arm, write a class here, name it in FFNS, give its counts in stemrepro.model.cost and its fields in recipes/arms.yaml.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig


class SwiGLU(nn.Module):
    """Dense FFN: y = W_d (SiLU(W_g x) * W_u x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.ffn_width, bias=False)
        self.up = nn.Linear(config.width, config.ffn_width, bias=False)
        self.down = nn.Linear(config.ffn_width, config.width, bias=False)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] (unused) -> [batch, seq, width]."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Stem(nn.Module):
    """STEM (paper, section 3): y = W_d (SiLU(W_g x) * U[token]).

    The up-projection is gone; row `token` of the layer's table U [vocab, ffn_width] stands in its place.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.ffn_width, bias=False)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = nn.Linear(config.ffn_width, config.width, bias=False)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return self.down(F.silu(self.gate(x)) * self.table(tokens))


class TokenOnly(nn.Module):
    """Control without gate or context: y = W_d U[token], a memory of the last token and nothing else."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = nn.Linear(config.ffn_width, config.width, bias=False)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width] (unused), tokens [batch, seq] -> [batch, seq, width]."""
        return self.down(self.table(tokens))


FFNS: dict[str, type[nn.Module]] = {"dense": SwiGLU, "stem": Stem, "token-only": TokenOnly}


def is_table(parameter_name: str) -> bool:
    """True for the name of a token-indexed table's parameter."""
    return parameter_name.endswith("ffn.table.weight")


def table_parameters(model: nn.Module) -> dict[str, torch.nn.Parameter]:
    """The tables of a model by parameter name, each [vocab, ffn_width]."""
    return {name: parameter for name, parameter in model.named_parameters() if is_table(name)}
