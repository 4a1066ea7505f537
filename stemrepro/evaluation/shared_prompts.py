"""Answers that stand behind their prompt in one row of tokens, so that the prompt is read once.

An answer attends to its prompt and to itself, and its positions continue the prompt's: its log-likelihood is that of
the answer in a row of its own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

Request = tuple[list[int], list[int]]
"""Tokens of a prompt and of an answer; neither is empty."""


@dataclass(frozen=True)
class Row:
    """A prompt and answers to it, by the number of their request."""

    prompt: list[int]
    answers: dict[int, list[int]]

    @property
    def read(self) -> list[list[int]]:
        """Return what is read of each answer: all but its last token, which predicts nothing."""
        return [answer[:-1] for answer in self.answers.values()]

    @property
    def tokens(self) -> list[int]:
        """Return what the model reads."""
        return self.prompt + [token for read in self.read for token in read]

    @property
    def owners(self) -> list[int]:
        """Return whose each token is: 0 for the prompt, k for the k-th answer."""
        return [0] * len(self.prompt) + [owner for owner, read in enumerate(self.read, 1) for _ in read]

    @property
    def places(self) -> list[int]:
        """Return where the tokens of the answers are predicted, the first of each at the prompt's last token."""
        places, start = [], len(self.prompt)
        for read in self.read:
            places += [len(self.prompt) - 1, *range(start, start + len(read))]
            start += len(read)
        return places


def shared_rows(requests: list[Request], room: int) -> list[Row]:
    """Return rows with the requests, longest first.

    A row of several answers has up to `room` tokens. The next answer begins another row.
    """
    newest: dict[tuple[int, ...], Row] = {}
    rows = []
    for number, (prompt, answer) in enumerate(requests):
        row = newest.get(tuple(prompt))
        if row is None or len(row.tokens) + len(answer) - 1 > room:
            row = newest[tuple(prompt)] = Row(prompt, {})
            rows.append(row)
        row.answers[number] = answer
    return sorted(rows, key=lambda row: -len(row.tokens))


def sharing_mask(owners: Tensor) -> Tensor:
    """Return what each token attends to: owners [B, T] -> bool [B, 1, T, T].

    Those are, up to itself, the prompt's and its own answer's.
    """
    seen = (owners[:, None, :] == 0) | (owners[:, None, :] == owners[:, :, None])
    return (seen & torch.ones_like(seen[0]).tril())[:, None]
