"""The interface for notebooks and scripts: verdicts as a DataFrame, a trained run with its tokenizer.

from stemrepro.api import load, verdicts

verdicts()[["recipe", "claim", "ours", "ci_low", "ci_high", "verdict"]]
load("runs/laptop/main/stem-full/seed0").losses("We the people of the United States")
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tokenizers import Tokenizer
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.evaluation.run_tokenizer import run_tokenizer
from stemrepro.evaluation.weights import load_folder
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder
from stemrepro.report.page_parts import shown
from stemrepro.report.verdicts import read_verdicts
from stemrepro.training.run_folder import read_config


@dataclass(frozen=True)
class Loaded:
    """A trained run.

    Attributes:
        config: its settings, as config.yaml has them.
        context: tokens of its training sequences; longer texts are read, but at positions that it wasn't trained on.
    """

    model: Decoder
    tokenizer: Tokenizer
    config: dict[str, Any]
    context: int

    def tokens(self, text: str) -> Tensor:
        """Return a text as the beginning of a document, after an end mark: int64 [1, tokens + 1]."""
        return torch.tensor([[END_OF_DOCUMENT, *self.tokenizer.encode(text).ids]])

    @torch.no_grad()
    def logits(self, text: str) -> Tensor:
        """Return the logits at the beginning and after each token: float32 [tokens + 1, vocab]."""
        return self.model(self.tokens(text))[0].float()

    @torch.no_grad()
    def losses(self, text: str) -> pd.DataFrame:
        """Return token (as text), nats given all before it, and rank (0 for the most probable token) of each token."""
        row = self.tokens(text)
        logits, targets = self.model(row[:, :-1]).float(), row[:, 1:]
        target_logits = logits.gather(-1, targets[..., None])
        words = [self.tokenizer.decode([token]) for token in targets[0].tolist()]
        rank = (logits > target_logits).sum(dim=-1)[0].tolist()
        return pd.DataFrame({"token": words, "nats": token_losses(logits, targets)[0].tolist(), "rank": rank})


def load(run: Path | str, data: Path | str = "data", trust: bool = False) -> Loaded:
    """Return the trained model of a run folder, runs/<scale>/<variant>/<arm>/seed<k>, on the CPU.

    Args:
        data: where the scales' tokenizers lie, with the index of their token blocks.
        trust: also execute the file of a network that no arm of the recipes here names; read it before.

    Raises:
        UserError: there is no finished run, no tokenizer of its text, or its network is such a file.
    """
    folder = Path(run)
    settings = read_config(folder)
    model, context = load_folder(folder, trust)
    return Loaded(model, run_tokenizer(folder, Path(data)), settings.written, context)


def verdicts(scale: str = "laptop", results: Path | str = "results") -> pd.DataFrame:
    """Return every claim of a scale's page, one row each: its entry in verdicts.json, its recipe, and where it was run.

    UserError: no such scale, none of its recipes has results, or verdicts that are damaged.
    """
    rows = []
    for recipe, at in shown(scale, Path(results)):
        path = Path(results) / at / recipe / "verdicts.json"
        if path.exists():
            rows += [{"recipe": recipe} | row for row in read_verdicts(path)]
    if not rows:
        raise UserError(f"{Path(results) / scale} has no verdicts; run 'make reproduce SCALE={scale}'")
    return pd.DataFrame(rows)
