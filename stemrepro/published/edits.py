"""Edits of a published model by another country's rows (paper, Fig. 4 and 7).

A row is the mean of W_u x over the name's places in a text (stemrepro.published.rows). An edit reads the target's row
at the source's place, in some layers. Two models are edited. In the published one the difference of the two rows is
added to W_u x. In a converted one these layers read rows at every place in place of W_u x. Nothing else changes: no
weight, no token, no input embedding.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from stemrepro.common.progress import track
from stemrepro.config.sources import SOURCES
from stemrepro.data.archives import opened
from stemrepro.data.relations import countries
from stemrepro.data.tokenizer import token_bytes
from stemrepro.evaluation.editing import shares
from stemrepro.evaluation.prompts import Question, ask
from stemrepro.model.config import layers_of
from stemrepro.published.models import Model, load
from stemrepro.published.rows import Change, Means, added, changed, constant, parts
from stemrepro.published.texts import write_parquet

PROMPTS = {
    "capital": "The capital of {} is",
    "currency": "The currency of {} is the",
    "continent": "The country of {} is in the continent of",
}
"""Beginnings of sentences that the answer ends; the first is edited, the others ask what else moves."""
PAIRS = 200
"""Ordered pairs of countries, drawn evenly where there are more."""
SCHEMES = {"longer": ("left-pad", "right-pad", "copy", "average"), "shorter": ("subset", "average")}
"""How rows are dealt out where the source's name has more or fewer tokens than the target's."""
DEEP = ("third", "half", "full", "all")


@torch.no_grad()
def following(model: Model, tokens: Tensor, ends: Tensor, changes: Mapping[int, Change] | None = None) -> Tensor:
    """Return the probabilities of the token after each prompt [n, vocab].

    Args:
        tokens: prompts, with end marks on the right [n, T].
        ends: place of each prompt's last token [n].
        changes: by layer.
    """
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


def stacked(questions: Sequence[Question]) -> tuple[Tensor, Tensor]:
    """Return prompts [n, T], with end marks on the right, and the place of each one's last token [n]."""
    longest = max(len(question.prompt) for question in questions)
    rows = [[*question.prompt, *[0] * (longest - len(question.prompt))] for question in questions]
    return torch.tensor(rows), torch.tensor([len(question.prompt) - 1 for question in questions])


def knows(model: Model, questions: Mapping[str, Question]) -> set[str]:
    """Return the countries of which the answer's first token is the model's first choice."""
    names = list(questions)
    first = following(model, *stacked([questions[name] for name in names])).argmax(dim=-1).tolist()
    return {name for name, token in zip(names, first, strict=True) if token == questions[name].answer[0]}


def drawn(pairs: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Return at most so many pairs, drawn by chance, in their order."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(pairs))[:most])
    return [pairs[number] for number in chosen]


def plus(extra: Tensor) -> Change:
    """Return the change that adds vectors."""
    return lambda out: out + extra


def at_places(given: Tensor, place: Tensor) -> Change:
    """Return the change that puts vectors at some places [n, T]."""
    return lambda out: torch.where(place[..., None], given, out)


class Rows:
    """Rows of W_u by token, [n, F] at a layer; of a token that the text lacks, the mean row."""

    def __init__(self, model: Model, means: Means) -> None:
        self.model, self.means = model, means
        self.mean = means.grand(means.read)

    def at(self, layer: int, tokens: Tensor) -> Tensor:
        """Return the rows of tokens [...] -> [..., F]."""
        places = self.means.index[tokens].long()
        read = torch.where((places < 0)[..., None], self.mean[layer], self.means.read[layer][places.clamp(min=0)])
        return F.linear(read, self.model.decoder.blocks[layer].ffn.up.weight)


def placements(layers: int) -> dict[str, tuple[int, ...]]:
    """Return the sets of layers that are edited, by name."""
    named = {name: tuple(layers_of(name, layers)) for name in ("third", "half", "full")}
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


def _outcomes(probabilities: Tensor, pairs: list[tuple[Question, Question]]) -> dict[str, list[float]]:
    old, new = (torch.tensor([pair[side].answer[0] for pair in pairs]) for side in (0, 1))
    every, first = torch.arange(len(pairs)), probabilities.argmax(dim=-1)
    return {
        "success": (first == new).int().tolist(), "kept": (first == old).int().tolist(),
        "new": probabilities[every, new].tolist(), "old": probabilities[every, old].tolist(),
    }  # fmt: skip


class Trial:
    """Pairs of questions about a source and a target, and edits of the model's answer to the first.

    Args:
        questions: by country.
        names: the pairs of countries.
        scheme: how rows are dealt out to the source's places.
    """

    def __init__(
        self, model: Model, rows: Rows, questions: Mapping[str, Question], names: list[tuple[str, str]], scheme: str
    ) -> None:
        self.model, self.rows, self.names = model, rows, names
        self.pairs = [(questions[source], questions[target]) for source, target in names]
        self.lengths, self.layers = token_bytes(model.tokenizer), len(model.decoder.blocks)
        self.tokens, self.ends = stacked([source for source, _ in self.pairs])
        self.added = self._added(self.pairs, scheme)

    def _added(self, pairs: list[tuple[Question, Question]], scheme: str) -> list[Tensor]:
        return [vectors(self.rows, layer, scheme, pairs, self.lengths) for layer in range(self.layers)]

    def after(self, changes: Mapping[int, Change], tokens: Tensor | None = None) -> dict[str, list]:
        """Return what the model says with changes of some layers, of the sources' prompts or of others."""
        said = following(self.model, self.tokens if tokens is None else tokens, self.ends, changes)
        return _outcomes(said, self.pairs)

    def plus(self, layers: Sequence[int], added: list[Tensor] | None = None) -> dict[int, Change]:
        """Return changes that add the difference of the rows."""
        given = added or self.added
        return {layer: plus(given[layer]) for layer in layers}

    def read(self, layers: Sequence[int], edit: bool) -> dict[int, Change]:
        """Return changes by which layers read rows at every place, at the source's those of the target if `edit`."""
        own = {layer: self.rows.at(layer, self.tokens) for layer in layers}
        return {layer: constant(own[layer] + self.added[layer] if edit else own[layer]) for layer in layers}

    def chance(self) -> list[Tensor]:
        """Return differences to the rows of other countries, drawn by chance."""
        order = np.random.default_rng(1).permutation(len(self.pairs))
        others = [(source, self.pairs[number][1]) for (source, _), number in zip(self.pairs, order, strict=True)]
        return self._added(others, "one-to-one")

    def patched(self, aims: Tensor) -> Callable[[Sequence[int]], dict[int, Change]]:
        """Return what makes changes that put W_u x of the targets' prompts at the sources' places."""
        kept: dict[int, Tensor] = {}

        def keep(layer: int) -> Change:
            return lambda out: kept.setdefault(layer, out)

        following(self.model, aims, self.ends, {layer: keep(layer) for layer in range(self.layers)})
        place = torch.zeros(self.tokens.shape, dtype=torch.bool)
        for number, (source, _) in enumerate(self.pairs):
            place[number, list(source.places)] = True
        return lambda layers: {layer: at_places(kept[layer], place) for layer in layers}


def edited(model: Model, means: Means, questions: dict[str, dict[str, Question]]) -> pd.DataFrame:
    """Edit what the model says of capitals, and ask what else moves.

    Returns:
        relation, model (published or converted), method, layers, source, target; success: the target's answer is the
        first choice; kept: the source's is; new, old: probabilities of the two.
    """
    rows, capitals, tables = Rows(model, means), questions["capital"], []
    sets, known = placements(len(model.decoder.blocks)), sorted(knows(model, questions["capital"]))
    size = {name: len(capitals[name].places) for name in known}
    every = [pair for pair in permutations(known, 2) if capitals[pair[0]].answer[0] != capitals[pair[1]].answer[0]]

    def note(names: list[tuple[str, str]], results: dict[str, list], **about: str) -> None:
        table = pd.DataFrame(names, columns=["source", "target"]).assign(**about | results)
        tables.append(table)

    names = drawn([pair for pair in every if size[pair[0]] == size[pair[1]] == 1], PAIRS)
    trial = Trial(model, rows, capitals, names, "one-to-one")
    aims, _ = stacked([target for _, target in trial.pairs])
    patched, chance = trial.patched(aims), trial.chance()
    note(names, trial.after({}), relation="capital", model="published", method="none", layers="all")
    note(names, trial.after({}, aims), relation="capital", model="published", method="input", layers="all")
    for where, layers in track(list(sets.items()), "edits"):
        done = {
            ("published", "rows"): trial.after(trial.plus(layers)),
            ("published", "patched"): trial.after(patched(layers)),
        }
        if where in DEEP:
            done["published", "chance"] = trial.after(trial.plus(layers, chance))
        if where != "all":
            plain = trial.read(layers, edit=False)
            done["converted", "rows"] = trial.after(trial.read(layers, edit=True))
            done["converted", "none"] = trial.after(plain)
            done["converted", "input"] = trial.after(plain, aims)
        for (kind, method), results in done.items():
            note(names, results, relation="capital", model=kind, method=method, layers=where)
    for relation in list(questions)[1:]:
        asked_too, known_too = questions[relation], knows(model, questions[relation])
        both = [pair for pair in names if set(pair) <= known_too]
        both = [pair for pair in both if len({len(asked_too[name].places) for name in pair}) == 1]
        both = [pair for pair in both if asked_too[pair[0]].answer[0] != asked_too[pair[1]].answer[0]]
        if both:
            trial = Trial(model, rows, asked_too, both, "one-to-one")
            for where in DEEP:
                note(
                    both,
                    trial.after(trial.plus(sets[where])),
                    relation=relation,
                    model="published",
                    method="rows",
                    layers=where,
                )
    for group, schemes in SCHEMES.items():
        longer = [pair for pair in every if size[pair[0]] > size[pair[1]] == 1]
        names = drawn(longer if group == "longer" else [(target, source) for source, target in longer], PAIRS // 2)
        for scheme in schemes if names else ():
            trial = Trial(model, rows, capitals, names, scheme)
            for where in DEEP:
                done = trial.after(trial.plus(sets[where]))
                note(names, done, relation="capital", model="published", method=f"{group}: {scheme}", layers=where)
    return pd.concat(tables, ignore_index=True)


def example(model: Model, means: Means, question: Question, aim: Question, layers: Sequence[int]) -> pd.DataFrame:
    """Return the four most probable words before an edit, after it, and for the target's own prompt.

    Returns:
        said: before, edited or target; rank, word, probability.
    """
    rows = Rows(model, means)
    lengths = token_bytes(model.tokenizer)
    scheme = "one-to-one" if len(question.places) == len(aim.places) else "average"
    tokens, ends = stacked([question])
    changes = {layer: plus(vectors(rows, layer, scheme, [(question, aim)], lengths)) for layer in layers}
    said = {
        "before": following(model, tokens, ends), "edited": following(model, tokens, ends, changes),
        "target": following(model, *stacked([aim])),
    }  # fmt: skip
    out = []
    for name, probabilities in said.items():
        top = probabilities[0].topk(4)
        words = [model.tokenizer.decode([token]) for token in top.indices.tolist()]
        out += [
            {"said": name, "rank": rank, "word": word, "probability": value}
            for rank, (word, value) in enumerate(zip(words, top.values.tolist(), strict=True), 1)
        ]
    return pd.DataFrame(out)


def make(name: str, corpus: Path, rows: Path, out: Path) -> None:
    """Write edits.parquet and example.parquet of a model.

    Args:
        name: of the model.
        corpus: a corpus.parquet, next to whose folder the archives lie.
        rows: folder with the parts of the rows.
        out: folder of the tables.
    """
    model, means = load(name), added(parts(rows))
    questions = asked(model, corpus.parent.parent / "raw")
    capitals = questions["capital"]
    layers = placements(len(model.decoder.blocks))["full"]
    write_parquet(out / "example.parquet", example(model, means, capitals["Spain"], capitals["Germany"], layers))
    write_parquet(out / "edits.parquet", edited(model, means, questions))
