"""A published model with rows in the place of up-projections: STEM without training (paper, section 3)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from stemrepro.model.transformer import Decoder
from stemrepro.published.models import Model
from stemrepro.published.rows import ROWS, Means, ffn_of, looked_up

FEW = 2.0
"""How many places the prior of a row counts for."""
RIDGE = 10.0
"""Places that speak for a map of zeros, in each direction of the input embeddings."""


class Rows:
    """Rows of every token: W_u of what the layer's FFN reads where the token stands.

    A mean over few places is uncertain, and most tokens of the vocabulary stand nowhere in the text. So what is read is
    (n x mean + few x prior) / (n + few), where n places were seen. The prior is a linear map of the token's input
    embedding, fitted to the means of the text's tokens. Recipe `conversion` measures this choice.

    Args:
        means: by token.
        few: how many places the prior counts for.
        prior: "linear", or "mean": the mean over all places, for every token alike.
    """

    def __init__(self, model: Model, means: Means, few: float = FEW, prior: str = "linear") -> None:
        self.model, self.means, self.few = model, means, few
        decoder = model.decoder
        embedded = F.rms_norm(decoder.embedding.weight.detach(), (decoder.config.width,))
        self.features = torch.cat([embedded, torch.ones(len(embedded), 1)], dim=1)
        if prior == "linear":
            self.maps = self._fitted()
        else:
            self.maps = torch.zeros(len(means.read), self.features.shape[1], decoder.config.width)
            self.maps[:, -1] = means.grand(means.read)

    def _fitted(self) -> Tensor:
        """Return the maps of least squares over places [layers, D + 1, D]; the start token is no part of them."""
        tokens = (self.means.index >= 0).nonzero().flatten()[1:]
        features, counts = self.features[tokens].double(), self.means.counts[1:, None].double()
        squares = (features * counts).T @ features
        squares.diagonal()[:-1] += RIDGE  # not of the constant
        weighted = features * counts
        solved = [torch.linalg.solve(squares, weighted.T @ read[1:].double()) for read in self.means.read]
        return torch.stack(solved).float()

    def read(self, layer: int, tokens: Tensor) -> Tensor:
        """Return what stands for the FFN's input at tokens [...] -> [..., D]."""
        places = self.means.index[tokens].long()
        seen = looked_up(self.means.counts, places, 0.0)[..., None]
        mean, prior = looked_up(self.means.read[layer], places, 0.0), self.features[tokens] @ self.maps[layer]
        return (seen * mean + self.few * prior) / (seen + self.few)

    def at(self, layer: int, tokens: Tensor) -> Tensor:
        """Return the rows of tokens [...] -> [..., F]."""
        return F.linear(self.read(layer, tokens), ffn_of(self.model.decoder, layer).up.weight.detach())


def rows_of(model: Model, folder: Path) -> Rows:
    """Return a model's rows from the folder of their means."""
    return Rows(model, Means.load(folder / ROWS))


def convert(model: Model, rows: Rows, layers: Sequence[int], dtype: torch.dtype = torch.float32) -> Decoder:
    """Return STEM: the model with tables in the place of the up-projections of some layers, not of the first.

    All other weights are the model's own, not copies.

    Args:
        dtype: of the tables [vocab, F]; all else is computed in float32.
    """
    config = replace(model.decoder.config, ffn="stem", replaced_layers=tuple(layers))
    with torch.device("meta"):
        decoder = Decoder(config)
    state, every = model.decoder.state_dict(), torch.arange(config.vocab)
    for layer in layers:
        del state[f"blocks.{layer}.ffn.up.weight"]
        state[f"blocks.{layer}.ffn.table.weight"] = rows.at(layer, every).to(dtype)
    decoder.load_state_dict(state, assign=True)
    return decoder.eval()
