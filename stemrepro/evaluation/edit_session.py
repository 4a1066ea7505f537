"""One trained run to explore: continuations of a prompt, and its answers when it reads another entity's rows."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stemrepro.common.errors import UserError, unknown
from stemrepro.data.atlas import FILE, read_atlas
from stemrepro.data.tokenizer import token_bytes
from stemrepro.evaluation.editing import capture, mixing, patch, patched_modules, up_projections
from stemrepro.evaluation.prompts import Question, ask, padded
from stemrepro.evaluation.run_tokenizer import run_tokenizer
from stemrepro.evaluation.weights import load_folder
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.generate import Choose, continuations, greedy
from stemrepro.training.run_folder import read_config


@dataclass(frozen=True)
class Answer:
    """What a model says to a prompt."""

    top: tuple[tuple[str, float], ...]  # the most probable next tokens, with their probabilities
    continuation: str  # what greedy decoding gives, to the end of the line


@dataclass(frozen=True)
class EditResult:
    """An edit, with the answers before it and to the target's own prompt.

    `by_layer` has two probabilities for each number of lowest tables that read the target's rows, from none to all. The
    first is of the model's first choice before the edit, the second of its first choice for the target. In a dense
    model the first layer counts.
    """

    before: Answer  # to the prompt
    edited: Answer
    aim: Answer  # to the same prompt with the target's name
    by_layer: tuple[tuple[float, float], ...]
    first: Answer | None  # of a dense model, all of whose layers but the first are edited, where the first alone is
    scheme: str
    lengths: tuple[int, int]  # tokens of the two names


class EditSession:
    """A trained run and its tokenizer.

    Args:
        folder: a run's, runs/<scale>/<variant>/<arm>/seed<k>.
        data: where the scales' tokenizers and the mixes' facts lie.
        trust: also execute the file of a network that no arm of the recipes here names; read it before.

    UserError: there is no finished run or no tokenizer of its text, or its network is such a file.
    """

    context: int | None

    def __init__(self, folder: Path, data: Path, trust: bool = False) -> None:
        settings = read_config(folder)
        self.model, self.context = load_folder(folder, trust)
        self.tokenizer = run_tokenizer(folder, data)
        facts = data / settings.data.mix / "corpus" / FILE
        self.names = tuple(entity.name for entity in read_atlas(facts).entities) if facts.exists() else ()

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text at the start of a document; UserError where it can't be encoded in UTF-8."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"the prompt {text!r} is no text in this terminal's encoding; give it in UTF-8") from error
        return [END_OF_DOCUMENT, *self.tokenizer.encode(text).ids]

    @torch.no_grad()
    def generate(self, prompt: str, count: int, choose: Choose = greedy) -> str:
        """Return a continuation of up to `count` tokens."""
        row = torch.tensor([self.tokens(prompt)])
        tokens = [int(token) for token in continuations(self.model, row, count, choose, self.context)]
        return self.tokenizer.decode([token for token in tokens if token != END_OF_DOCUMENT])

    @torch.no_grad()
    def _next(self, question: Question, edit: Sequence[Any] = (), tokens: Sequence[int] = ()) -> Tensor:
        """Return the probabilities of the token after the prompt and `tokens`; an edit stays at the prompt's places."""
        with patch(*edit) if edit else nullcontext():
            return self.model(padded([(*question.prompt, *tokens)]))[0, -1].float().softmax(dim=-1)

    def _answer(self, question: Question, top: int, count: int, edit: Sequence[Any] = ()) -> Answer:
        likely = self._next(question, edit).topk(min(top, self.model.config.vocab))
        tokens: list[int] = []
        while len(tokens) < count and tokens[-1:] != [END_OF_DOCUMENT]:
            tokens.append(int(self._next(question, edit, tokens).argmax()))
        words = [self.tokenizer.decode([token]) or "(end)" for token in likely.indices.tolist()]
        text = self.tokenizer.decode([token for token in tokens if token != END_OF_DOCUMENT])
        return Answer(tuple(zip(words, likely.values.tolist(), strict=True)), text.lstrip("\n").partition("\n")[0])

    def edit(
        self, prompt: str, source: str, target: str, scheme: str = "auto", top: int = 4, count: int = 24
    ) -> EditResult:
        """Read the target's rows at the source's positions; in a dense model W_u x of the target's own prompt.

        UserError: a name that the run doesn't know or the prompt doesn't hold, a model that reads no rows, or a scheme
        that doesn't fit the lengths of the names.
        """
        for name in (source, target):
            if not name.strip():
                raise UserError("a name is empty; give the one in the prompt, and the one whose rows are read")
            if self.names and name not in self.names:
                raise unknown("country", name, self.names, "the run's text")
        question = ask(self.tokenizer, prompt, source, "")
        aim = ask(self.tokenizer, prompt.replace(source, target), target, "")
        lengths = len(question.places), len(aim.places)
        if scheme == "auto":
            scheme = "one-to-one" if lengths[0] == lengths[1] else "average"
        tables = patched_modules(self.model)
        if not tables:
            raise UserError("this run's model has neither tables nor up-projections whose output could be exchanged")
        ups = up_projections(self.model.blocks)
        if dense := tables[0] in ups:  # STEM leaves the first layer as it is
            tables = ups
        try:
            weights = mixing([question], [aim], scheme, token_bytes(self.tokenizer))
        except ValueError as error:
            raise UserError(f"{error}; choose another scheme ('auto' fits all)") from error
        with torch.no_grad(), capture(tables) as kept:
            self.model(padded([aim.prompt]))
        old, new = int(self._next(question).argmax()), int(self._next(aim).argmax())
        doses = [self._next(question, (tables[:k], kept[:k], weights) if k else ()) for k in range(len(tables) + 1)]
        return EditResult(
            before=self._answer(question, top, count),
            edited=self._answer(question, top, count, (tables[dense:], kept[dense:], weights)),
            first=self._answer(question, top, count, (tables[:1], kept[:1], weights)) if dense else None,
            aim=self._answer(aim, top, count),
            by_layer=tuple((float(dose[old]), float(dose[new])) for dose in doses),
            scheme=scheme,
            lengths=lengths,
        )
