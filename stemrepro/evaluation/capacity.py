"""How many bits of invented people a model holds.

Each attribute of each person is requested right after the name, which begins a sequence as people do in training. A
value is worth log2(values) bits; what the model still lacks of it is its loss in bits. The table capacity has a line
per seed: people, facts, bits of the text, bits known, share of first choices that are right.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from stemrepro.common.sums import total
from stemrepro.config.mixes import InventedMix
from stemrepro.data.invented import people, words
from stemrepro.evaluation.recall import token_of
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Scored
from stemrepro.model.loss import token_losses
from stemrepro.training.run import Run

BATCH = 512


@torch.no_grad()
def score(run: Run, report: Callable, mix: InventedMix, count: int, tokenizer_file: Path) -> dict:
    """Score one run on everything that its text states; {} for one that diverged.

    Args:
        count: people in its text.
    """
    if run.diverged is not None:
        return {}
    vocabulary = words(mix.names, mix.attributes, mix.values)
    ids = {part: token_of(tokenizer_file, names) for part, names in vocabulary.items()}
    name, dealt = people(mix.names, mix.attributes, mix.values, count)
    model, nats, first = load_run(run), [], []
    device = next(model.parameters()).device
    for attribute in range(mix.attributes):
        for start in range(0, count, BATCH):
            part = slice(start, start + BATCH)
            size = len(name[part])
            rows = np.stack(
                [
                    ids["first"][name[part, 0]],
                    ids["last"][name[part, 1]],
                    np.full(size, ids["attribute"][attribute]),
                    ids["value"][attribute * mix.values + dealt[part, attribute]],
                ],
                axis=1,
            )
            tokens = torch.from_numpy(rows).to(device)
            logits = model(tokens[:, :-1])[:, -1:]
            nats.append(token_losses(logits, tokens[:, -1:]).double().sum().item())
            first.append((logits.argmax(dim=-1) == tokens[:, -1:]).sum().item())
        report(int(run.training.steps * (attribute + 1) / mix.attributes), np.nan, 0.0)
    facts = count * mix.attributes
    bits = facts * np.log2(mix.values)
    known = bits - total(nats) / np.log(2)
    return {"people": count, "facts": facts, "bits": bits, "known": known, "first": sum(first) / facts}


def tables(scored: Scored) -> tuple[dict, dict[str, pd.DataFrame]]:
    """Return nothing more of an arm, and its table (all its seeds)."""
    lines = [{"seed": run.seed} | result for run, result in scored.ended]
    return {}, {"capacity": pd.DataFrame(lines).round(6)} if lines else {}
