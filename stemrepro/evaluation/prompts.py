"""Questions about facts: a prompt, where the entity is in it, and the answer, all as tokens."""

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from stemrepro.common.errors import UserError
from stemrepro.model.config import END_OF_DOCUMENT


@dataclass(frozen=True)
class Question:
    """One prompt and its answer, as tokens."""

    prompt: tuple[int, ...]  # begins with the end mark, as a document does
    places: tuple[int, ...]  # of the entity's tokens in the prompt, next to each other
    answer: tuple[int, ...]

    @property
    def entity(self) -> tuple[int, ...]:
        """Return the entity's tokens."""
        return tuple(self.prompt[place] for place in self.places)


def ask(tokenizer: Tokenizer, prompt: str, entity: str, answer: str) -> Question:
    """Return a prompt that names the entity and ends where the answer begins; the first mention counts.

    UserError: the prompt doesn't name it.
    """
    start = prompt.find(entity)
    if start < 0:
        raise UserError(f"the prompt '{prompt}' does not name '{entity}'")
    encoded, end = tokenizer.encode(prompt), start + len(entity)
    places = [k for k, (first, last) in enumerate(encoded.offsets, 1) if first < end and last > start]
    # The answer is encoded by itself: a word never shares a token with the one before it.
    answer_ids = tokenizer.encode(f" {answer}").ids if answer else []
    return Question((END_OF_DOCUMENT, *encoded.ids), tuple(places), tuple(answer_ids))


def padded(rows: list[tuple[int, ...]]) -> Tensor:
    """Return rows of tokens [n, longest], with end marks on the right, where a causal model doesn't see them."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[END_OF_DOCUMENT] * (longest - len(row))] for row in rows])


@dataclass(frozen=True)
class Answered:
    """What a model says to questions."""

    nats: Tensor  # loss of each whole answer [n]
    first: Tensor  # is every token of the answer the most probable one? [n]
    next: Tensor  # log-probabilities of the token after each prompt [n, vocab]


def answered(logits: Tensor, prompts: list[tuple[int, ...]], answers: list[tuple[int, ...]]) -> Answered:
    """Return what logits [n, T, vocab] of rows of a prompt and its answer say."""
    logs = logits.float().log_softmax(dim=-1).cpu()
    nats, first, following = [], [], []
    for row, prompt, answer in zip(logs, prompts, answers, strict=True):
        predicted = row[len(prompt) - 1 : len(prompt) - 1 + len(answer)]
        tokens = torch.tensor(answer)
        nats.append(-predicted.gather(1, tokens[:, None]).double().sum())
        first.append(bool((predicted.argmax(dim=-1) == tokens).all()))
        following.append(row[len(prompt) - 1])
    return Answered(torch.stack(nats), torch.tensor(first), torch.stack(following))
