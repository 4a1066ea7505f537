"""What a model knows: every fact of a mix, as a question in trained and in held-out templates.

Files are written per arm: facts.csv (the facts), facts.npz and summary.json (means). facts.npz holds "nats" and "first"
[seeds, facts, prompts]: loss of the answer, and whether each of its tokens is the most probable one.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from stemrepro.common.files import atomic_write
from stemrepro.config.scores import Knowledge
from stemrepro.data.atlas import Atlas, Fact, read_atlas
from stemrepro.data.relations import HELD_OUT, held_out_prompt, trained_prompts
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.prompts import Question, answered, ask, padded
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Scored, save_arrays
from stemrepro.model.transformer import Decoder
from stemrepro.training.run import Run

TRAINED = 8
"""Trained templates that a fact is a question in."""


@torch.no_grad()
def answers(
    model: Decoder, questions: list[Question], batch: int, report: Callable[[float], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss of each answer in nats [n], and whether it is the model's first choice [n]."""
    device = next(model.parameters()).device
    nats, first = np.empty(len(questions)), np.empty(len(questions), bool)
    order = sorted(range(len(questions)), key=lambda k: len(questions[k].prompt) + len(questions[k].answer))
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        chosen = [questions[k] for k in part]
        rows = padded([question.prompt + question.answer for question in chosen]).to(device)
        scores = answered(model(rows), [q.prompt for q in chosen], [q.answer for q in chosen])
        nats[part], first[part] = scores.nats.numpy(), scores.first.numpy()
        report((start + len(part)) / len(order))
    return nats, first


def prompts(fact: Fact) -> list[str]:
    """Return a fact's prompts: some that were trained on, and those of the held-out templates."""
    held_out = [held_out_prompt(fact.relation, fact.entity, which) for which in range(len(HELD_OUT))]
    return trained_prompts(fact.relation, fact.entity)[:TRAINED] + held_out


def score(run: Run, report: Callable, asked: Knowledge, tokenizer_file: Path, facts: Path) -> dict:
    """Score one run on every fact; {} for one that diverged.

    Returns:
        "nats" and "first" [facts, prompts].
    """
    if run.diverged is not None:
        return {}
    atlas, tokenizer = read_atlas(facts), read_tokenizer(tokenizer_file)
    questions = [ask(tokenizer, prompt, fact.entity, fact.answer) for fact in atlas.facts for prompt in prompts(fact)]
    steps = run.training.steps
    nats, first = answers(load_run(run), questions, asked.batch, lambda share: report(int(share * steps), np.nan, 0.0))
    shape = (len(atlas.facts), -1)
    return {"nats": nats.reshape(shape), "first": first.reshape(shape)}


def fact_table(atlas: Atlas) -> pd.DataFrame:
    """Return a line per fact, with its entity's labels."""
    entities = {entity.name: entity for entity in atlas.entities}
    return pd.DataFrame([
        {"entity": fact.entity, "relation": fact.relation, "answer": fact.answer, "told": fact.told,
         "ambiguous": entities[fact.entity].ambiguous, "rare": entities[fact.entity].rare}
        for fact in atlas.facts
    ])  # fmt: skip


def write(scored: Scored) -> dict:
    """Write facts.csv and facts.npz of one arm (all its seeds); return the content of summary.json."""
    pairs = scored.ended
    table = fact_table(read_atlas(scored.given["facts"]))
    atomic_write(scored.out / "facts.csv", table.to_csv(index=False))
    if not pairs:
        return {}
    arrays = {name: np.stack([result[name] for _, result in pairs]) for name in ("nats", "first")}
    seeds = np.array([run.seed for run, _ in pairs])
    save_arrays(scored.out / "facts.npz", {"seeds": seeds} | arrays | {"nats": arrays["nats"].astype(np.float16)})
    stated, first, last = table["told"].to_numpy(), arrays["first"], slice(-1, None)
    groups = {"trained": (stated, slice(TRAINED)), "held_out": (stated, last), "untold": (~stated, last)}
    return {"recall": {name: round(float(first[:, which, of].mean()), 6) for name, (which, of) in groups.items()}}
