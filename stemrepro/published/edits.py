"""Edits of a published model by another country's rows (paper, Fig. 4 and 7).

A row is the mean of W_u x over the name's places in a text (stemrepro.published.rows). An edit reads the target's row
at the source's place, in some layers. Two models are edited. In the published one the difference of the two rows is
added to W_u x. In a converted one these layers read rows at every place in place of W_u x. Nothing else changes: no
weight, no token, no input embedding.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import permutations, product
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stemrepro.common.progress import track
from stemrepro.config.sources import SOURCES
from stemrepro.data.archives import opened
from stemrepro.data.relations import countries
from stemrepro.data.tokenizer import token_bytes
from stemrepro.evaluation.editing import shares
from stemrepro.evaluation.prompts import Question, ask, padded
from stemrepro.model.config import layers_of
from stemrepro.model.loss import token_losses
from stemrepro.published.converted import Rows, rows_of
from stemrepro.published.models import Model, load
from stemrepro.published.rows import Change, changed, constant
from stemrepro.published.texts import once, sequences

PROMPTS = {
    "capital": "The capital of {} is",
    "currency": "The currency of {} is the",
    "continent": "The country of {} is in the continent of",
}
"""Beginnings of sentences that the answer ends; the first is edited, the others ask what else moves."""
PAIRS = 120
"""Ordered pairs of countries, drawn evenly where there are more."""
SCHEMES = {"longer": ("left-pad", "right-pad", "copy", "average"), "shorter": ("subset", "average")}
"""How rows are dealt out where the source's name has more or fewer tokens than the target's."""
DEEP = ("third", "half", "full", "all")
EXAMPLES, EXAMPLE_SETS = (("Spain", "Germany"), ("United States", "France")), ("layer 0", "full", "all")
"""Pairs of which the model's words are kept, and the layers in which they are edited."""
MENTIONING, MENTIONS, DAMAGED = dict.fromkeys(("passages", "speeches"), 200), 2, 20
"""Sequences of text that may hold a name, how many are read of each pair, and pairs of which text is read."""

Outcomes = dict[str, list[float]]
"""success, kept, new and old (see Study), of each pair."""
Pair = TypeVar("Pair", tuple[str, str], tuple[int, int])


@torch.no_grad()
def following(model: Model, tokens: Tensor, ends: Tensor, changes: Mapping[int, Change] | None = None) -> Tensor:
    """Return the probabilities of the token after prompts [n, T], which end at places [n] -> [n, vocab]."""
    with changed(model.decoder, changes or {}):
        hidden = model.decoder.hidden(tokens)
    return model.decoder.head(hidden[torch.arange(len(tokens)), ends]).softmax(dim=-1)


def asked(model: Model, folder: Path) -> dict[str, dict[str, Question]]:
    """Return the questions about each country by relation; folder: of the archive with the countries."""
    with opened(SOURCES["factbook"]["archive"], folder) as archive:
        facts = list(countries(archive))
    return {
        relation: {
            one["name"]: ask(model.tokenizer, prompt.format(one["name"]), one["name"], one[relation]) for one in facts
        }
        for relation, prompt in PROMPTS.items()
    }


def prompts(questions: Sequence[Question]) -> tuple[Tensor, Tensor]:
    """Return prompts [n, T], with end marks on the right, and the place of each one's last token [n]."""
    rows = [question.prompt for question in questions]
    return padded(rows), torch.tensor([len(row) - 1 for row in rows])


def knows(model: Model, questions: Mapping[str, Question]) -> set[str]:
    """Return the countries of which the answer's first token is the model's first choice."""
    names = list(questions)
    first = following(model, *prompts([questions[name] for name in names])).argmax(dim=-1).tolist()
    return {name for name, token in zip(names, first, strict=True) if token == questions[name].answer[0]}


def drawn(pairs: list[Pair], most: int) -> list[Pair]:
    """Return at most so many pairs, drawn by chance, in their order."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(pairs))[:most])
    return [pairs[number] for number in chosen]


def _plus(extra: Tensor) -> Change:
    return partial(torch.add, extra)


def _at_places(given: Tensor, place: Tensor) -> Change:
    return lambda out: torch.where(place[..., None], given, out)


def placements(layers: int) -> dict[str, tuple[int, ...]]:
    """Return the sets of layers that are edited, by name."""
    named = {name: layers_of(name, layers) for name in ("third", "half", "full")}
    named |= {"all": tuple(range(layers))} | {f"layer {layer}": (layer,) for layer in range(layers)}
    return named | {f"first {count}": tuple(range(1, count + 1)) for count in range(2, layers - 1, 4)}


def dealt(scheme: str, source: Question, target: Question, lengths: Sequence[int]) -> Tensor:
    """Return how much of each target row a source's place reads [places, tokens of the target + 1].

    The last column is the end mark's.
    """
    weights = torch.zeros(len(source.places), len(target.places) + 1)
    for place, reads in enumerate(shares(scheme, len(source.places), [lengths[token] for token in target.entity])):
        for which, weight in reads:
            weights[place, which] += weight
    return weights


def vectors(
    rows: Rows, layer: int, scheme: str, pairs: list[tuple[Question, Question]], lengths: Sequence[int]
) -> Tensor:
    """Return what is read at each place of the sources' prompts, less their own rows [n, T, F]."""
    longest = max(len(source.prompt) for source, _ in pairs)
    out = torch.zeros(len(pairs), longest, rows.model.decoder.config.ffn_width)
    for number, (source, target) in enumerate(pairs):
        new = dealt(scheme, source, target, lengths) @ rows.at(layer, torch.tensor([*target.entity, 0]))
        out[number, list(source.places)] = new - rows.at(layer, torch.tensor(source.entity))
    return out


def _outcomes(probabilities: Tensor, pairs: list[tuple[Question, Question]]) -> Outcomes:
    old, new = (torch.tensor([pair[side].answer[0] for pair in pairs]) for side in (0, 1))
    every, first = torch.arange(len(pairs)), probabilities.argmax(dim=-1)
    success, kept = (first == new).int().tolist(), (first == old).int().tolist()
    chances = {"new": probabilities[every, new].tolist(), "old": probabilities[every, old].tolist()}
    return {"success": success, "kept": kept} | chances


class Trial:
    """Pairs of questions about a source and a target, and edits of the model's answer to the first by a scheme."""

    def __init__(
        self, model: Model, rows: Rows, questions: Mapping[str, Question], names: list[tuple[str, str]], scheme: str
    ) -> None:
        self.model, self.rows = model, rows
        self.pairs = [(questions[source], questions[target]) for source, target in names]
        self.lengths, self.layers = token_bytes(model.tokenizer), len(model.decoder.blocks)
        self.tokens, self.ends = prompts([source for source, _ in self.pairs])
        self.added = self._added(self.pairs, scheme)

    def _added(self, pairs: list[tuple[Question, Question]], scheme: str) -> list[Tensor]:
        return [vectors(self.rows, layer, scheme, pairs, self.lengths) for layer in range(self.layers)]

    def after(self, changes: Mapping[int, Change], tokens: Tensor | None = None) -> Outcomes:
        """Return what the model says with changes of some layers, of the sources' prompts or of others."""
        said = following(self.model, self.tokens if tokens is None else tokens, self.ends, changes)
        return _outcomes(said, self.pairs)

    def plus(self, layers: Sequence[int], added: list[Tensor] | None = None) -> dict[int, Change]:
        """Return changes that add the difference of the rows."""
        given = added or self.added
        return {layer: _plus(given[layer]) for layer in layers}

    def read(self, layers: Sequence[int], edit: bool) -> dict[int, Change]:
        """Return changes by which layers read rows at every place, at the source's those of the target if `edit`."""
        own = {layer: self.rows.at(layer, self.tokens) for layer in layers}
        return {layer: constant(own[layer] + self.added[layer] if edit else own[layer]) for layer in layers}

    def chance(self) -> list[Tensor]:
        """Return differences to the rows of other countries, drawn by chance."""
        order = np.random.default_rng(1).permutation(len(self.pairs))
        others = [(source, self.pairs[number][1]) for (source, _), number in zip(self.pairs, order, strict=True)]
        return self._added(others, "one-to-one")

    def patched(self, aims: Tensor) -> dict[int, Change]:
        """Return the changes by layer that put W_u x of the targets' prompts at the sources' places."""
        kept: dict[int, Tensor] = {}
        following(self.model, aims, self.ends, {layer: partial(kept.setdefault, layer) for layer in range(self.layers)})
        place = torch.zeros(self.tokens.shape, dtype=torch.bool)
        for number, (source, _) in enumerate(self.pairs):
            place[number, list(source.places)] = True
        return {layer: _at_places(given, place) for layer, given in kept.items()}


class Study:
    """Edits of a model, in parts of which each is a table.

    The columns are relation, model (published or converted), method, layers, source, target; success: the target's
    answer is the first choice; kept: the source's is; new, old: probabilities of the two.
    """

    def __init__(self, model: Model, rows: Rows, questions: dict[str, dict[str, Question]]) -> None:
        self.model, self.rows, self.questions = model, rows, questions
        self.sets = placements(len(model.decoder.blocks))
        capitals = questions["capital"]
        known = sorted(knows(model, capitals))
        self.size = {name: len(capitals[name].places) for name in known}
        self.pairs = [
            pair for pair in permutations(known, 2) if capitals[pair[0]].answer[0] != capitals[pair[1]].answer[0]
        ]
        self.names = drawn([pair for pair in self.pairs if self.size[pair[0]] == self.size[pair[1]] == 1], PAIRS)

    def parts(self) -> dict[str, Callable[[], pd.DataFrame]]:
        """Return what makes the table of each part."""
        return {"capital": self.capitals, "relations": self.relations, "lengths": self.lengths}

    def trial(self, names: list[tuple[str, str]], scheme: str = "one-to-one", relation: str = "capital") -> Trial:
        """Return the edits of pairs of countries."""
        return Trial(self.model, self.rows, self.questions[relation], names, scheme)

    def capitals(self) -> pd.DataFrame:
        """Edit pairs of names of one token, by set of layers, next to what controls do."""
        trial, note = self.trial(self.names), partial(table, self.names, relation="capital")
        aims, _ = prompts([target for _, target in trial.pairs])
        patched, chance = trial.patched(aims), trial.chance()
        tables = [
            note(trial.after({}), model="published", method="none", layers="all"),
            note(trial.after({}, aims), model="published", method="input", layers="all"),
        ]
        for where, layers in track(list(self.sets.items()), "edits"):
            done = {
                ("published", "rows"): trial.after(trial.plus(layers)),
                ("published", "patched"): trial.after({layer: patched[layer] for layer in layers}),
            }
            if where in DEEP:
                done["published", "chance"] = trial.after(trial.plus(layers, chance))
            if where != "all":
                plain = trial.read(layers, edit=False)
                done["converted", "rows"] = trial.after(trial.read(layers, edit=True))
                done["converted", "none"] = trial.after(plain)
                done["converted", "input"] = trial.after(plain, aims)
            tables += [
                note(results, model=kind, method=method, layers=where) for (kind, method), results in done.items()
            ]
        return pd.concat(tables)

    def relations(self) -> pd.DataFrame:
        """Ask the same pairs about other things that the model knows of both."""
        tables, about = [], {"model": "published", "method": "rows"}
        for relation in list(self.questions)[1:]:
            asked, known = self.questions[relation], knows(self.model, self.questions[relation])
            both = [pair for pair in self.names if set(pair) <= known]
            both = [pair for pair in both if len({len(asked[name].places) for name in pair}) == 1]
            both = [pair for pair in both if asked[pair[0]].answer[0] != asked[pair[1]].answer[0]]
            if both:
                trial = self.trial(both, relation=relation)
                done = {where: trial.after(trial.plus(self.sets[where])) for where in DEEP}
                tables += [table(both, done[where], relation=relation, **about, layers=where) for where in DEEP]
        return pd.concat(tables)

    def lengths(self) -> pd.DataFrame:
        """Edit names of more than one token by names of one, and the other way, by the paper's schemes."""
        tables = []
        for group, schemes in SCHEMES.items():
            longer = [pair for pair in self.pairs if self.size[pair[0]] > self.size[pair[1]] == 1]
            chosen = drawn(longer if group == "longer" else [(new, old) for old, new in longer], PAIRS // 2)
            for scheme in schemes if chosen else ():
                trial, about = self.trial(chosen, scheme), {"model": "published", "method": f"{group}: {scheme}"}
                for where in DEEP:
                    done = trial.after(trial.plus(self.sets[where]))
                    tables.append(table(chosen, done, relation="capital", **about, layers=where))
        return pd.concat(tables)

    def examples(self) -> pd.DataFrame:
        """Return what the model says of EXAMPLES: `example`, with source and target."""
        sets, tables = {where: self.sets[where] for where in EXAMPLE_SETS}, []
        for names in EXAMPLES:
            prompt = PROMPTS["capital"]
            source, target = (ask(self.model.tokenizer, prompt.format(name), name, "") for name in names)
            told = example(self.model, self.rows, source, target, sets)
            tables.append(told.assign(source=names[0], target=names[1]))
        return pd.concat(tables)

    def damage(self, text: pd.DataFrame) -> pd.DataFrame:
        """Return what a text that holds names loses: `damage` of some pairs."""
        capitals, sets = self.questions["capital"], {where: self.sets[where] for where in EXAMPLE_SETS}
        pairs = [(capitals[old].entity[0], capitals[new].entity[0]) for old, new in self.names]
        return damage(self.model, self.rows, drawn(pairs, DAMAGED), text, sets)


def table(names: list[tuple[str, str]], results: Outcomes, **about: str) -> pd.DataFrame:
    """Return the outcomes of an edit of each pair, with what it was."""
    return pd.DataFrame(names, columns=["source", "target"]).assign(**about | results)


def example(
    model: Model, rows: Rows, question: Question, aim: Question, sets: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Return the four most probable words before an edit of each set of layers, after it, and for the target's prompt.

    Columns: said (before, target, or the scheme that rows are dealt by), layers, rank, word, probability.
    """
    lengths, (tokens, ends) = token_bytes(model.tokenizer), prompts([question])
    said = {("before", "all"): following(model, tokens, ends), ("target", "all"): following(model, *prompts([aim]))}
    size = len(question.places) - len(aim.places)
    schemes = SCHEMES["longer" if size > 0 else "shorter"] if size else ("one-to-one",)
    for scheme, (name, layers) in product(schemes, sets.items()):
        changes = {layer: _plus(vectors(rows, layer, scheme, [(question, aim)], lengths)) for layer in layers}
        said[scheme, name] = following(model, tokens, ends, changes)
    out = []
    for (scheme, name), probabilities in said.items():
        top = probabilities[0].topk(4)
        for rank, (token, value) in enumerate(zip(top.indices.tolist(), top.values.tolist(), strict=True), 1):
            out.append((scheme, name, rank, model.tokenizer.decode([token]), value))
    return pd.DataFrame(out, columns=["said", "layers", "rank", "word", "probability"])


@torch.no_grad()
def damage(
    model: Model, rows: Rows, pairs: list[tuple[int, int]], text: pd.DataFrame, sets: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Read a text that holds a name with another's rows at the name's places.

    Text without the name doesn't change: no other place reads its rows.

    Args:
        pairs: tokens of two names.
        text: sequences, as `sequences` returns them.
        sets: layers to edit, by name.

    Returns:
        source, target (tokens), layers, sequence, tokens, nats: loss of the tokens from the name on with the other
        rows, dense: loss without; sums over a sequence.
    """
    decoder, out = model.decoder, []
    tokens = torch.from_numpy(np.stack(text["tokens"]).astype(np.int64))
    for source, target in track(pairs, "text with the name"):
        for number in (tokens[:, 1:-1] == source).any(dim=1).nonzero().flatten().tolist()[:MENTIONS]:
            row = tokens[number : number + 1]
            place = row[:, :-1] == source
            after = int(place[0].nonzero()[0])
            dense = token_losses(decoder(row[:, :-1]), row[:, 1:])[:, after:].sum().item()
            for name, layers in sets.items():
                moved = {
                    layer: rows.at(layer, torch.tensor(target)) - rows.at(layer, torch.tensor(source))
                    for layer in layers
                }
                with changed(decoder, {layer: _plus(place[..., None] * vector) for layer, vector in moved.items()}):
                    nats = token_losses(decoder(row[:, :-1]), row[:, 1:])[:, after:].sum().item()
                out.append((source, target, name, number, row.shape[1] - 1 - after, nats, dense))
    return pd.DataFrame(out, columns=["source", "target", "layers", "sequence", "tokens", "nats", "dense"])


def make(name: str, corpus: Path, rows: Path, out: Path) -> None:
    """Write edits.<part>.parquet, examples.parquet and damage.parquet; the archives lie next to the corpus's folder."""
    model = load(name)
    study = Study(model, rows_of(model, rows), asked(model, corpus.parent.parent / "raw"))
    for part, edit in study.parts().items():
        once(out / f"edits.{part}.parquet", edit)
    once(out / "examples.parquet", study.examples)
    once(out / "damage.parquet", lambda: study.damage(sequences(model, corpus, "validation", MENTIONING)))
