"""The paper's feed-forward networks, its dropped variants and its controls; the equation stands in each class.

All have the same signature: `forward(x [batch, seq, width], tokens [batch, seq]) -> [batch, seq, width]`. To add an
arm, write a class here (or in rivals.py, moe.py), name it in FFNS, give its counts in stemrepro.model.cost and its fields in
recipes/arms.yaml. W are matrices, U is a table [vocab, ffn_width] of which a token's row is read.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig


def matrix(inputs: int, outputs: int) -> nn.Linear:
    """A linear map without bias."""
    return nn.Linear(inputs, outputs, bias=False)


class SwiGLU(nn.Module):
    """Dense FFN: y = W_d (SiLU(W_g x) * W_u x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = matrix(config.width, config.ffn_width)
        self.up = matrix(config.width, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] (unused) -> [batch, seq, width]."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Stem(nn.Module):
    """STEM (paper, section 3): y = W_d(SiLU(W_g x) * U[token]).

    The up-projection is gone; row `token` of the layer's table U [vocab, ffn_width] stands in its place.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = matrix(config.width, config.ffn_width)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def rows(self, tokens: Tensor) -> Tensor:
        """U[token]: tokens [batch, seq] -> [batch, seq, ffn_width]."""
        return self.table(tokens)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return self.down(F.silu(self.gate(x)) * self.rows(tokens))


class TokenOnly(nn.Module):
    """Control: y = W_d U[token], a memory of the last token and nothing else."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width] (unused), tokens [batch, seq] -> [batch, seq, width]."""
        return self.down(self.table(tokens))


class GateReplaced(nn.Module):
    """Dropped by the paper (Table 3): the row stands in the gate's place, y = W_d (SiLU(U[token]) * W_u x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = matrix(config.width, config.ffn_width)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return self.down(F.silu(self.table(tokens)) * self.up(x))


class DownReplaced(nn.Module):
    """Argued away by the paper, never run: a row [width] stands where the down-projection's output was, y = U[token].

    Nothing of gate and up could reach the output then, so they are gone too.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.vocab, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width] (unused), tokens [batch, seq] -> [batch, seq, width]."""
        return self.table(tokens)


class StemDagger(SwiGLU):
    """STEM-dagger (Table 3): the up-projection stays and the row is added, y = W_d (SiLU(W_g x) * (W_u x + U[token]))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.ffn_width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return self.down(F.silu(self.gate(x)) * (self.up(x) + self.table(tokens)))


class Blend(SwiGLU):
    """The authors' later code: a learnt mix, y = W_d (SiLU(W_g x) * (s(a) W_u x + (1 - s(a)) U[token])), s the logistic function;
    a is one number a layer and starts at 0, half and half."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.mix = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        share = self.mix.sigmoid()
        return self.down(F.silu(self.gate(x)) * (share * self.up(x) + (1 - share) * self.table(tokens)))


class StemShuffled(Stem):
    """Control: STEM whose rows are dealt out to tokens anew at every step, so that a row can't know its token.

    `set_step` (stemrepro.training.module) sets `order` from (seed, step); a model that is read to be scored has the last deal.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.register_buffer("order", torch.arange(config.vocab))

    def rows(self, tokens: Tensor) -> Tensor:
        """U[order[token]]: tokens [batch, seq] -> [batch, seq, ffn_width]."""
        return self.table(self.order[tokens])


def is_table(parameter_name: str) -> bool:
    """True for the name of a token-indexed table's parameter."""
    return parameter_name.endswith(("ffn.table.weight", "attention.table.weight"))


def table_parameters(model: nn.Module) -> dict[str, torch.nn.Parameter]:
    """The tables of a model by parameter name, each [vocab, its width]."""
    return {name: parameter for name, parameter in model.named_parameters() if is_table(name)}
