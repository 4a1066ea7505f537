"""How often reading another entity's rows edits what a model says, with controls (paper, Fig. 7).

A case is a pair of countries and a relation: the training text states both facts, and the answers differ. The cases are
the same for every arm. A trial is a case under a method: what is exchanged (tables' rows, input embeddings, both), by
which scheme, in which layers. The prompts are in a template that was held out.

* cases: a line per case, with the tokens of both names;
* known: by seed and case, are both prompts answered right before the edit?
* edits: the results of every trial (FIELDS), by seed, method and case.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from stemrepro.config.scores import Knowledge
from stemrepro.data.atlas import Atlas, read_atlas
from stemrepro.data.relations import RELATIONS, held_out_prompt
from stemrepro.data.tokenizer import read_tokenizer, token_bytes
from stemrepro.evaluation.editing import capture, mixing, patch, patched_modules
from stemrepro.evaluation.prompts import Answered, Question, answered, ask, padded
from stemrepro.evaluation.weights import load_run
from stemrepro.evaluation.writing import Report, Result, Scored, Tables, halved, long
from stemrepro.model.transformer import Decoder
from stemrepro.training.run import Run

EQUAL, LONGER, SHORTER = "equal", "longer", "shorter"  # tokens of the source's name compared with those of the target's
FIELDS = ("success", "kept", "new", "old", "to_target", "to_source")
"""Results of a trial.

Is the target's answer, or still the source's, the first choice? What are their probabilities? How many nats is the KL
divergence from the edited distribution of the next token to that of the target's prompt, and to that of the
source's?"""
TEMPLATE = 1  # which of the held-out templates the prompts are in; the other one chose learning rates


@dataclass(frozen=True)
class Case:
    """One pair and relation, with questions."""

    source: str
    target: str
    relation: str
    lengths: str
    question: Question
    aim: Question
    third: Question  # two sentences, the first about the source, the second a question about a third country


@dataclass(frozen=True)
class Method:
    """What is exchanged, in cases of which lengths."""

    lengths: str
    scheme: str
    tables: bool = True  # exchange what tables give
    inputs: bool = False  # exchange what the input embedding gives
    layers: int = 0  # how many of the tables, from the lowest; 0 for all
    shifted: bool = False  # a table reads what the next one should
    drawn: bool = False  # rows of tokens drawn by chance replace the target's
    third: bool = False  # the question is about a third country, after a sentence about the source


def methods(tables: int) -> dict[str, Method]:
    """Return all methods by name, for a model with so many tables."""
    equal = {
        "rows": Method(EQUAL, "one-to-one"),
        "input": Method(EQUAL, "one-to-one", tables=False, inputs=True),
        "both": Method(EQUAL, "one-to-one", inputs=True),
        "random": Method(EQUAL, "one-to-one", drawn=True),
        "average": Method(EQUAL, "average"),
        "beside": Method(EQUAL, "one-to-one", third=True),
        "beside-unedited": Method(EQUAL, "one-to-one", tables=False, third=True),
    }
    if tables > 1:
        equal["wrong-layer"] = Method(EQUAL, "one-to-one", shifted=True)
    equal |= {f"layers-{count}": Method(EQUAL, "one-to-one", layers=count) for count in range(1, tables)}
    longer = {f"longer-{scheme}": Method(LONGER, scheme) for scheme in ("left-pad", "right-pad", "copy", "average")}
    shorter = {f"shorter-{scheme}": Method(SHORTER, scheme) for scheme in ("subset", "average")}
    inputs = {f"{kind}-input": Method(kind, "average", tables=False, inputs=True) for kind in (LONGER, SHORTER)}
    return equal | longer | shorter | inputs


def cases(atlas: Atlas, tokenizer: Tokenizer, pairs: int) -> list[Case]:
    """Return the cases: `pairs` ordered pairs of countries of each kind of lengths, in every relation.

    Their order has nothing to do with content, but the mix's first two countries, the paper's example, come first.
    """
    answers = {(fact.entity, fact.relation): fact.answer for fact in atlas.facts if fact.told}
    names = [entity.name for entity in atlas.entities]
    rng = np.random.default_rng(0)
    ordered, first = [(a, b) for a in names for b in names if a != b], (names[0], names[1])
    ordered = [first, *(ordered[k] for k in rng.permutation(len(ordered)) if ordered[k] != first)]
    about = {name: ask(tokenizer, f"of {name} is", name, "") for name in names}
    left: dict[str, int] = dict.fromkeys((EQUAL, LONGER, SHORTER), pairs)
    result = []
    for source, target in ordered:
        difference = len(about[source].places) - len(about[target].places)
        kind = LONGER if difference > 0 else SHORTER if difference else EQUAL
        common = [relation for relation in RELATIONS if (source, relation) in answers and (target, relation) in answers]
        common = [relation for relation in common if answers[source, relation] != answers[target, relation]]
        if not left[kind] or not common:
            continue
        left[kind] -= 1
        for relation in common:
            others = [name for name in names if name not in (source, target) and (name, relation) in answers]
            if not others:
                continue
            third = others[int(rng.integers(len(others)))]
            prompts = {name: held_out_prompt(relation, name, TEMPLATE) for name in (source, target, third)}
            question, aim = (ask(tokenizer, prompts[name], name, answers[name, relation]) for name in (source, target))
            sentences = f"{prompts[source]} {answers[source, relation]}. {prompts[third]}"
            third_question = ask(tokenizer, sentences, source, answers[third, relation])
            result.append(Case(source, target, relation, kind, question, aim, third_question))
    return result


def case_table(rows: list[Case], atlas: Atlas) -> pd.DataFrame:
    """Return a line per case, with the labels of its countries."""
    entities, lines = {entity.name: entity for entity in atlas.entities}, []
    for number, case in enumerate(rows):
        source, target = entities[case.source], entities[case.target]
        names = {"case": number, "source": case.source, "target": case.target, "relation": case.relation}
        sizes = {"source_tokens": len(case.question.places), "target_tokens": len(case.aim.places)}
        labels = {"ambiguous": source.ambiguous or target.ambiguous, "rare": source.rare or target.rare}
        lines.append(names | {"lengths": case.lengths} | sizes | labels)
    return pd.DataFrame(lines)


def drawn_instead(question: Question, vocab: int, rng: np.random.Generator) -> Question:
    """Return the same prompt with tokens drawn by chance at the entity's places."""
    prompt = list(question.prompt)
    for place in question.places:
        prompt[place] = int(rng.integers(1, vocab))
    return Question(tuple(prompt), question.places, question.answer)


def _divergence(edited: Tensor, other: Tensor) -> Tensor:
    """Return KL(edited || other) of log-probabilities [n, vocab] in nats [n]."""
    return F.kl_div(other, edited, reduction="none", log_target=True).sum(dim=-1)


class Editor:
    """Trials of one model."""

    def __init__(self, model: Decoder, lengths: list[int]) -> None:
        self.model, self.lengths, self.tables = model, lengths, patched_modules(model)
        self.device = next(model.parameters()).device

    @torch.no_grad()
    def answers(self, questions: list[Question], to: list[Question]) -> Answered:
        """Return what the model says to prompts, scored by the answers to others; in `patch` what it says edited."""
        prompts, answers = [question.prompt for question in questions], [question.answer for question in to]
        rows = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
        return answered(self.model(padded(rows).to(self.device)), prompts, answers)

    def exchanged(
        self, method: Method, questions: list[Question], aims: list[Question]
    ) -> tuple[list[nn.Module], list[Tensor], Tensor]:
        """Return modules, what they are to give, and where: the arguments of `patch`."""
        chosen = self.tables[: method.layers or None] if method.tables else []
        if method.inputs:
            chosen = [*chosen, self.model.embedding]
        with capture(self.tables[1:] + self.tables[:1] if method.shifted else chosen) as kept:
            self.model(padded([aim.prompt for aim in aims]).to(self.device))
        return chosen, kept, mixing(questions, aims, method.scheme, self.lengths).to(self.device)

    @torch.no_grad()
    def trials(self, method: Method, batch: list[Case], rng: np.random.Generator) -> dict[str, Tensor]:
        """Return FIELDS of trials of some cases [n]; with `third` the third country's answer replaces the target's."""
        questions = [case.third if method.third else case.question for case in batch]
        aims = [case.third if method.third else case.aim for case in batch]
        read = [case.aim for case in batch]
        if method.drawn:
            read = [drawn_instead(aim, self.model.config.vocab, rng) for aim in read]
        source, aim = self.answers(questions, questions), self.answers(aims, aims)
        with patch(*self.exchanged(method, questions, read)):
            new, old = self.answers(questions, aims), self.answers(questions, [case.question for case in batch])
        return {
            "success": new.first,
            "kept": old.first,
            "new": new.nats.neg().exp(),
            "old": old.nats.neg().exp(),
            "to_target": _divergence(new.next, aim.next),
            "to_source": _divergence(new.next, source.next),
        }


def _batches(items: list[Case], size: int) -> Iterator[list[Case]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def score(run: Run, report: Report, asked: Knowledge, tokenizer_file: Path, facts: Path) -> Result:
    """Score edits of one run; {} for one that diverged.

    Return "known" [cases], "tables" (how many layers read rows), and by method FIELDS of its cases, in their order.
    """
    if run.diverged is not None:
        return {}
    tokenizer = read_tokenizer(tokenizer_file)
    every_case = cases(read_atlas(facts), tokenizer, asked.pairs)
    editor = Editor(load_run(run), token_bytes(tokenizer))
    answered_right = []
    for batch in _batches(every_case, asked.batch):
        sides = ([case.question for case in batch], [case.aim for case in batch])
        question, aim = (editor.answers(side, side).first for side in sides)
        answered_right.append(question & aim)
    results: Result = {"known": torch.cat(answered_right).numpy(), "tables": len(editor.tables)}
    every = methods(len(editor.tables))
    for number, (name, method) in enumerate(every.items(), 1):
        rng = np.random.default_rng(1)
        members = [case for case in every_case if case.lengths == method.lengths]
        parts = [editor.trials(method, batch, rng) for batch in _batches(members, asked.batch)]
        results[name] = {field: torch.cat([part[field] for part in parts]).numpy() for field in FIELDS} if parts else {}
        report(int(run.training.steps * number / len(every)), np.nan, 0.0)
    return results


def _known(result: Result) -> pd.DataFrame:
    return long(("case",), known=result["known"])


def _trials(result: Result, name: str, members: np.ndarray) -> pd.DataFrame:
    fields = {field: values if values.dtype == bool else halved(values) for field, values in result[name].items()}
    return pd.DataFrame({"method": name, "case": members} | fields)


def tables(scored: Scored) -> tuple[Result, Tables]:
    """Return the methods that an arm has cases for and its number of tables, and its score tables (all its seeds)."""
    atlas, tokenizer = read_atlas(scored.given["facts"]), read_tokenizer(scored.given["tokenizer_file"])
    every_case = case_table(cases(atlas, tokenizer, scored.given["asked"].pairs), atlas)
    if not scored.ended:
        return {"methods": [], "tables": 0}, {"cases": every_case}
    first = scored.ended[0][1]
    used = {name: method.lengths for name, method in methods(first["tables"]).items() if first[name]}
    members = {name: np.flatnonzero(every_case["lengths"] == lengths) for name, lengths in used.items()}
    trials = pd.concat([scored.lines(_trials, name, own) for name, own in members.items()])
    about = {"methods": list(members), "tables": first["tables"]}
    return about, {"cases": every_case, "known": scored.lines(_known), "edits": trials}
