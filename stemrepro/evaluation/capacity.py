"""How many bits of invented people a model holds.

Each attribute of each person is requested right after the name, which begins a sequence as people do in training. A
value is worth log2(values) bits; what the model still lacks of it is its loss in bits. The table capacity has a line
per seed: people, facts, bits of the text, bits known, share of first choices that are right.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from stemrepro.common.sums import total
from stemrepro.config.mixes import InventedMix
from stemrepro.data.invented import people, words
from stemrepro.evaluation.recall import token_of
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables
from stemrepro.model.loss import token_losses
from stemrepro.training.run import Run

BATCH = 512


@torch.no_grad()
def score(run: Run, report: Report, mix: InventedMix, count: int, tokenizer_file: Path) -> Result:
    """Score one run on everything that its text of `count` people states; {} for one that diverged."""
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
            names = ids["first"][name[part, 0]], ids["last"][name[part, 1]]
            value = ids["value"][attribute * mix.values + dealt[part, attribute]]
            rows = np.stack([*names, np.full(len(value), ids["attribute"][attribute]), value], axis=1)
            tokens = torch.from_numpy(rows).to(device)
            logits = model(tokens[:, :-1])[:, -1:]
            nats.append(token_losses(logits, tokens[:, -1:]).double().sum().item())
            first.append((logits.argmax(dim=-1) == tokens[:, -1:]).sum().item())
        report(int(run.training.steps * (attribute + 1) / mix.attributes), np.nan, 0.0)
    facts, bits = count * mix.attributes, count * mix.attributes * np.log2(mix.values)
    known = bits - total(nats) / np.log(2)
    return {"people": count, "facts": facts, "bits": bits, "known": known, "first": sum(first) / facts}


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return nothing more of an arm, and its table (all its seeds)."""
    lines = [{"seed": run.seed} | result for run, result in scored.ended]
    return {}, {"capacity": pd.DataFrame(lines).round(6)} if lines else {}
