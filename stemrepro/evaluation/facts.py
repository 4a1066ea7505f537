"""What a model knows: every fact of a mix, as a question in trained and in held-out templates.

* facts: a line per fact, with its entity's labels; `told`: whether the text states it.
* answers: by seed, fact and prompt the loss of the answer in nats, and whether each of its tokens is the most probable
  one (`first`).
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from stemrepro.config.scores import Knowledge
from stemrepro.data.atlas import Atlas, Fact, read_atlas
from stemrepro.data.relations import HELD_OUT, held_out_prompt, trained_prompts
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.prompts import Question, answered, ask, padded
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables, halved, long
from stemrepro.model.transformer import Decoder
from stemrepro.training.run import Run

TRAINED = 8  # trained templates that a fact is a question in


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


def score(run: Run, report: Report, asked: Knowledge, tokenizer_file: Path, facts: Path) -> Result:
    """Score one run on every fact: return "nats" and "first" [facts, prompts]; {} for one that diverged."""
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
    labels = pd.DataFrame(map(asdict, atlas.entities)).rename(columns={"name": "entity"}).drop(columns="whole")
    facts = pd.DataFrame(map(asdict, atlas.facts)).merge(labels, how="left", on="entity")
    return facts.rename_axis("fact").reset_index()


def _answers(result: Result) -> pd.DataFrame:
    return long(("fact", "prompt"), nats=halved(result["nats"]), first=result["first"])


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return the shares of first choices that are right, and the tables of an arm (all its seeds)."""
    table = fact_table(read_atlas(scored.given["facts"]))
    if not scored.ended:
        return {}, {"facts": table}
    first = np.stack([result["first"] for _, result in scored.ended])
    stated, last = table["told"].to_numpy(), slice(-1, None)
    groups = {"trained": (stated, slice(TRAINED)), "held_out": (stated, last), "untold": (~stated, last)}
    recall = {name: round(float(first[:, which, of].mean()), 6) for name, (which, of) in groups.items()}
    return {"recall": recall}, {"facts": table, "answers": scored.lines(_answers)}
