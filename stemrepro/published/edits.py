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
from stemrepro.published.models import Model, load, once, sequences
from stemrepro.published.rows import Change, changed, constant

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
Names = list[tuple[str, str]]
Questions = list[tuple[Question, Question]]
"""Pairs of a source and a target."""
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
    questions: dict[str, dict[str, Question]] = {relation: {} for relation in PROMPTS}
    for (relation, prompt), one in product(PROMPTS.items(), facts):
        name = one["name"]
        questions[relation][name] = ask(model.tokenizer, prompt.format(name), name, one[relation])
    return questions


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


def vectors(rows: Rows, layer: int, scheme: str, pairs: Questions, lengths: Sequence[int]) -> Tensor:
    """Return what is read at each place of the sources' prompts, less their own rows [n, T, F]."""
    longest = max(len(source.prompt) for source, _ in pairs)
    out = torch.zeros(len(pairs), longest, rows.model.decoder.config.ffn_width)
    for number, (source, target) in enumerate(pairs):
        new = dealt(scheme, source, target, lengths) @ rows.at(layer, torch.tensor([*target.entity, 0]))
        out[number, list(source.places)] = new - rows.at(layer, torch.tensor(source.entity))
    return out


def _outcomes(probabilities: Tensor, pairs: Questions) -> Outcomes:
    old, new = (torch.tensor([pair[side].answer[0] for pair in pairs]) for side in (0, 1))
    every, first = torch.arange(len(pairs)), probabilities.argmax(dim=-1)
    success, kept = (first == new).int().tolist(), (first == old).int().tolist()
    chances = {"new": probabilities[every, new].tolist(), "old": probabilities[every, old].tolist()}
    return {"success": success, "kept": kept} | chances


class Trial:
    """Pairs of questions about a source and a target, and edits of the model's answer to the first by a scheme."""

    def __init__(
        self, model: Model, rows: Rows, asked: Mapping[str, Question], names: Names, scheme: str = "one-to-one"
    ) -> None:
        self.model, self.rows = model, rows
        self.pairs = [(asked[source], asked[target]) for source, target in names]
        self.lengths, self.layers = token_bytes(model.tokenizer), len(model.decoder.blocks)
        self.tokens, self.ends = prompts([source for source, _ in self.pairs])
        self.added = self._added(self.pairs, scheme)

    def _added(self, pairs: Questions, scheme: str) -> list[Tensor]:
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


def _differ(questions: Mapping[str, Question], source: str, target: str) -> bool:
    return questions[source].answer[0] != questions[target].answer[0]


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
        self.pairs = [pair for pair in permutations(known, 2) if _differ(capitals, *pair)]
        self.names = drawn([pair for pair in self.pairs if self.size[pair[0]] == self.size[pair[1]] == 1], PAIRS)

    def parts(self) -> dict[str, Callable[[], pd.DataFrame]]:
        """Return what makes the table of each part."""
        return {"capital": self.capitals, "relations": self.relations, "lengths": self.lengths}

    def capitals(self) -> pd.DataFrame:
        """Edit pairs of names of one token, by set of layers, next to what controls do."""
        trial = Trial(self.model, self.rows, self.questions["capital"], self.names)
        note = partial(table, self.names, relation="capital")
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
            for (kind, method), results in done.items():
                tables.append(note(results, model=kind, method=method, layers=where))
        return pd.concat(tables)

    def relations(self) -> pd.DataFrame:
        """Ask the same pairs about other things that the model knows of both."""
        tables = []
        for relation in list(self.questions)[1:]:
            asked, known = self.questions[relation], knows(self.model, self.questions[relation])
            both = [pair for pair in self.names if set(pair) <= known]
            both = [pair for pair in both if len({len(asked[name].places) for name in pair}) == 1]
            both = [pair for pair in both if _differ(asked, *pair)]
            if both:
                tables += self._deep(both, relation, "one-to-one", "rows")
        return pd.concat(tables)

    def lengths(self) -> pd.DataFrame:
        """Edit names of more than one token by names of one, and the other way, by the paper's schemes."""
        tables = []
        for group, schemes in SCHEMES.items():
            longer = [pair for pair in self.pairs if self.size[pair[0]] > self.size[pair[1]] == 1]
            chosen = drawn(longer if group == "longer" else [(new, old) for old, new in longer], PAIRS // 2)
            for scheme in schemes if chosen else ():
                tables += self._deep(chosen, "capital", scheme, f"{group}: {scheme}")
        return pd.concat(tables)

    def _deep(self, names: Names, relation: str, scheme: str, method: str) -> list[pd.DataFrame]:
        """Edit the published model in each of DEEP."""
        trial = Trial(self.model, self.rows, self.questions[relation], names, scheme)
        about = {"relation": relation, "model": "published", "method": method}
        done = {where: trial.after(trial.plus(self.sets[where])) for where in DEEP}
        return [table(names, outcomes, **about, layers=where) for where, outcomes in done.items()]

    def examples(self) -> pd.DataFrame:
        """Return the four most probable words of EXAMPLES before an edit, after it, and for the target's prompt.

        Columns: said (before, target, or the scheme that rows are dealt by), layers, rank, word, probability, source,
        target.
        """
        out, model, prompt = [], self.model, PROMPTS["capital"]
        lengths = token_bytes(model.tokenizer)
        for names in EXAMPLES:
            source, target = (ask(model.tokenizer, prompt.format(name), name, "") for name in names)
            read, aims = prompts([source]), prompts([target])
            said = {("before", "all"): following(model, *read), ("target", "all"): following(model, *aims)}
            size = len(source.places) - len(target.places)
            schemes = SCHEMES["longer" if size > 0 else "shorter"] if size else ("one-to-one",)
            for scheme, where in product(schemes, EXAMPLE_SETS):
                added = [vectors(self.rows, layer, scheme, [(source, target)], lengths) for layer in self.sets[where]]
                changes = dict(zip(self.sets[where], map(_plus, added), strict=True))
                said[scheme, where] = following(model, *read, changes)
            for (scheme, where), probabilities in said.items():
                top = probabilities[0].topk(4)
                for rank, (token, value) in enumerate(zip(top.indices.tolist(), top.values.tolist(), strict=True), 1):
                    out.append((scheme, where, rank, model.tokenizer.decode([token]), value, *names))
        return pd.DataFrame(out, columns=["said", "layers", "rank", "word", "probability", "source", "target"])

    def damage(self, text: pd.DataFrame) -> pd.DataFrame:
        """Return what a text that holds names loses: `damage` of some pairs."""
        capitals, sets = self.questions["capital"], {where: self.sets[where] for where in EXAMPLE_SETS}
        pairs = [(capitals[old].entity[0], capitals[new].entity[0]) for old, new in self.names]
        return damage(self.model, self.rows, drawn(pairs, DAMAGED), text, sets)


def table(names: Names, results: Outcomes, **about: str) -> pd.DataFrame:
    """Return the outcomes of an edit of each pair, with what it was."""
    return pd.DataFrame(names, columns=["source", "target"]).assign(**about | results)


@torch.no_grad()
def damage(
    model: Model, rows: Rows, pairs: list[tuple[int, int]], text: pd.DataFrame, sets: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """Read a text that holds a name with another's rows at the name's places; no other place reads its rows.

    Args:
        pairs: tokens of two names.
        text: sequences, as `sequences` returns them.

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
                old, new = ([rows.at(layer, torch.tensor(token)) for layer in layers] for token in (source, target))
                moved = [_plus(place[..., None] * (b - a)) for a, b in zip(old, new, strict=True)]
                with changed(decoder, dict(zip(layers, moved, strict=True))):
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
