"""Edits of a published model by another country's rows (paper, Fig. 4 and 7).

A row is the mean of W_u x over the name's places in a text (stemrepro.published.rows). An edit reads the target's row at
the source's place, in some layers. Two models are edited: the published one, in which the difference of the two rows is
added to W_u x, and a converted one, in which these layers read rows at every place in place of W_u x. Nothing else
changes: no weight, no token, no input embedding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from stemrepro.published.models import Model
from stemrepro.published.rows import Means

PROMPTS = {
    "capital": "The capital of {} is",
    "currency": "The currency of {} is the",
    "continent": "{} is in the continent of",
    "nationality": "A person who comes from {} is called",
}
"""Beginnings of sentences that the answer ends; the first is edited, the others ask what else moves."""
PAIRS = 400
"""Ordered pairs of countries, drawn evenly where there are more."""
SCHEMES = ("left-pad", "right-pad", "copy", "subset", "average")
Change = Callable[[Tensor], Tensor]


@contextmanager
def changed(model: Model, changes: Mapping[int, Change]) -> Iterator[None]:
    """Change what the up-projections of some layers give [n, T, F], in all passes within."""
    with ExitStack() as hooks:
        for layer, change in changes.items():
            up = model.decoder.blocks[layer].ffn.up
            hooks.enter_context(up.register_forward_hook(lambda _, __, out, change=change: change(out)))
        yield


@torch.no_grad()
def following(model: Model, tokens: Tensor, ends: Tensor, changes: Mapping[int, Change] | None = None) -> Tensor:
    """Return the probabilities of the token after each prompt [n, vocab].

    Args:
        tokens: prompts, with end marks on the right [n, T].
        ends: place of each prompt's last token [n].
        changes: by layer.
    """
    with changed(model, changes or {}):
        hidden = model.decoder.hidden(tokens)
    return model.decoder.head(hidden[torch.arange(len(tokens)), ends]).softmax(dim=-1)


def asked(model: Model, folder: Path) -> dict[str, dict[str, Question]]:
    """Return the questions about each country by relation; folder: of the archive with the countries."""
    with opened(SOURCES["factbook"]["archive"], folder) as archive:
        facts = list(countries(archive))
    return {
        relation: {one["name"]: ask(model.tokenizer, prompt.format(one["name"]), one["name"], one[relation]) for one in facts}
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


def drawn(pairs: list[tuple[str, str]], most: int = PAIRS) -> list[tuple[str, str]]:
    """Return at most so many pairs, drawn by chance, in their order."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(pairs))[:most])
    return [pairs[number] for number in chosen]


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
    """Return the token whose row each of the source's places reads, and its weight: [places of the source, vocab...].

    It is a matrix [places, tokens of the target + 1] of weights; the last column is the end mark's.
    """
    weights = torch.zeros(len(source.places), len(target.places) + 1)
    for place, reads in enumerate(shares(scheme, len(source.places), [lengths[token] for token in target.entity])):
        for which, weight in reads:
            weights[place, which] += weight
    return weights


def vectors(rows: Rows, layer: int, scheme: str, pairs: list[tuple[Question, Question]], lengths: Sequence[int]) -> Tensor:
    """Return what is read at each place of the sources' prompts in place of their own rows, less these rows [n, T, F]."""
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


def edited(model: Model, means: Means, questions: dict[str, dict[str, Question]]) -> pd.DataFrame:
    """Edit what the model says of capitals.

    Returns:
        relation, model (published or converted), method, layers, source, target; success: the target's answer is the
        first choice; kept: the source's is; new, old: probabilities of the two.
    """
    rows, lengths, layers = Rows(model, means), token_bytes(model.tokenizer), len(model.decoder.blocks)
    capitals, sets, out = questions["capital"], placements(len(model.decoder.blocks)), []
    known = sorted(knows(model, capitals))
    size = {name: len(capitals[name].places) for name in known}
    every = [pair for pair in permutations(known, 2) if capitals[pair[0]].answer[0] != capitals[pair[1]].answer[0]]
    groups = {
        "equal": drawn([pair for pair in every if size[pair[0]] == size[pair[1]] == 1]),
        "longer": drawn([pair for pair in every if size[pair[0]] > size[pair[1]] == 1], PAIRS // 2),
        "shorter": drawn([pair for pair in every if size[pair[1]] > size[pair[0]] == 1], PAIRS // 2),
    }

    def add(names: list[tuple[str, str]], relation: str, kind: str, method: str, where: str, probabilities: Tensor) -> None:
        pairs = [(questions[relation][source], questions[relation][target]) for source, target in names]
        for number, (source, target) in enumerate(names):
            out.append({
                "relation": relation, "model": kind, "method": method, "layers": where, "source": source,
                "target": target, **{key: values[number] for key, values in results.items()},
            }) if (results := _outcomes(probabilities, pairs)) else None  # fmt: skip

    def deltas(pairs: list[tuple[Question, Question]], scheme: str) -> list[Tensor]:
        return [vectors(rows, layer, scheme, pairs, lengths) for layer in range(layers)]

    def plus(delta: Tensor) -> Change:
        return lambda given: given + delta

    names = groups["equal"]
    pairs = [(capitals[source], capitals[target]) for source, target in names]
    tokens, ends = stacked([source for source, _ in pairs])
    other = np.random.default_rng(1).permutation(len(pairs))
    chance = [(source, pairs[number][1]) for (source, _), number in zip(pairs, other, strict=True)]
    added, random = deltas(pairs, "one-to-one"), deltas(chance, "one-to-one")
    aims, _ = stacked([target for _, target in pairs])
    own: list[Tensor] = [torch.empty(0)] * layers

    def keep(layer: int) -> Change:
        def change(given: Tensor) -> Tensor:
            own[layer] = given
            return given

        return change

    following(model, aims, ends, {layer: keep(layer) for layer in range(layers)})
    place = torch.zeros(tokens.shape, dtype=torch.bool)
    for number, (source, _) in enumerate(pairs):
        place[number, list(source.places)] = True

    def patch(layer: int) -> Change:
        return lambda given: torch.where(place[..., None], own[layer], given)

    def read(layer: int, delta: Tensor | None) -> Change:
        own_rows = rows.at(layer, tokens)
        return lambda _: own_rows if delta is None else own_rows + delta

    for where, chosen in track(list(sets.items()), "edits"):
        add(names, "capital", "published", "rows", where, following(model, tokens, ends, {k: plus(added[k]) for k in chosen}))
        add(names, "capital", "published", "patched", where, following(model, tokens, ends, {k: patch(k) for k in chosen}))
        if where in ("third", "half", "full", "all"):
            chance_changes = {k: plus(random[k]) for k in chosen}
            add(names, "capital", "published", "another's rows", where, following(model, tokens, ends, chance_changes))
        if where in ("third", "half", "full") or where.startswith(("layer", "first")):
            converted = {k: read(k, added[k]) for k in chosen}
            add(names, "capital", "converted", "rows", where, following(model, tokens, ends, converted))
            plain = {k: read(k, None) for k in chosen}
            add(names, "capital", "converted", "none", where, following(model, tokens, ends, plain))
            add(names, "capital", "converted", "input", where, following(model, aims, ends, plain))
    add(names, "capital", "published", "input", "all", following(model, aims, ends))
    for relation in list(questions)[1:]:
        known_too = knows(model, questions[relation])
        both = [pair for pair in names if set(pair) <= known_too]
        both = [(s, t) for s, t in both if questions[relation][s].answer[0] != questions[relation][t].answer[0]]
        if not both:
            continue
        pairs_too = [(questions[relation][source], questions[relation][target]) for source, target in both]
        text, last = stacked([source for source, _ in pairs_too])
        moved = deltas(pairs_too, "one-to-one")
        for where in ("third", "full"):
            add(both, relation, "published", "rows", where, following(model, text, last, {k: plus(moved[k]) for k in sets[where]}))
    for group, schemes in (("longer", ("left-pad", "right-pad", "copy", "average")), ("shorter", ("subset", "average"))):
        if not (names := groups[group]):
            continue
        pairs = [(capitals[source], capitals[target]) for source, target in names]
        tokens, ends = stacked([source for source, _ in pairs])
        for scheme in track(schemes, f"{group} names"):
            moved = deltas(pairs, scheme)
            for where in ("third", "full"):
                done = following(model, tokens, ends, {k: plus(moved[k]) for k in sets[where]})
                add(names, "capital", "published", f"{group}: {scheme}", where, done)
    return pd.DataFrame(out)
