"""Exact near-duplicates among texts: Jaccard similarity of their word 5-grams of 0.8 or more.

Lee et al. (2022) take the same numbers. No pair is missed and none is estimated. Two texts that similar share a 5-gram
among the rarest fifth of either's (prefix filtering, Chaudhuri et al. 2006), and most 5-grams of a corpus occur once,
so few pairs are ever compared.
"""

import re
from collections.abc import Sequence

import numpy as np

from stemrepro.common.progress import track

WORDS = 5
JACCARD = 0.8


def _shingles(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct 5-grams of each text as numbers -> (text [n], 5-gram [n]), by text and then by 5-gram."""
    vocabulary: dict[str, int] = {}
    numbers, owners = [], []
    for owner, text in enumerate(track(texts, "words")):
        words = re.findall(r"\w+", text.casefold())
        if len(words) >= WORDS:
            numbers.append(np.array([vocabulary.setdefault(word, len(vocabulary)) for word in words]))
            owners.append(np.full(len(words), owner))
    if not numbers:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    every, owned = np.concatenate(numbers), np.concatenate(owners)
    grams = every
    for more in range(1, WORDS):
        # A gram and the next word make the longer gram's number; renumbered, so that the product fits 64 bits.
        grams = np.unique(grams[:-1] * len(vocabulary) + every[more:], return_inverse=True)[1]
    whole = owned[: len(grams)] == owned[WORDS - 1 :]
    base = int(grams.max()) + 1
    pairs = np.unique(owned[: len(grams)][whole] * base + grams[whole])
    return pairs // base, pairs % base


def near_duplicates(texts: Sequence[str]) -> np.ndarray:
    """Return which texts are near-duplicates of an earlier one that isn't itself one -> bool [texts].

    Case and punctuation don't count. Texts of fewer than 5 words are never compared.
    """
    owner, gram = _shingles(texts)
    sizes = np.bincount(owner, minlength=len(texts))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    frequency = np.bincount(gram) if len(gram) else gram
    rarest_first = np.lexsort((gram, frequency[gram], owner))
    rank = np.arange(len(gram)) - starts[owner]
    least = np.ceil(JACCARD * sizes - 1e-9).astype(int)  # 5-grams that a text shares with any that similar
    chosen = rarest_first[(rank <= (sizes - least)[owner]) & (frequency[gram[rarest_first]] > 1)]
    tried = np.split(gram[chosen], np.cumsum(np.bincount(owner[chosen], minlength=len(texts)))[:-1])
    kept: dict[int, list[int]] = {}
    repeated = np.zeros(len(texts), dtype=bool)
    for text in track(range(len(texts)), "near-duplicates"):
        grams = gram[starts[text] : starts[text + 1]]
        rare = tried[text].tolist()
        for other in dict.fromkeys(other for number in rare for other in kept.get(number, ())):
            if min(sizes[text], sizes[other]) < JACCARD * max(sizes[text], sizes[other]) - 1e-9:
                continue
            shared = len(np.intersect1d(grams, gram[starts[other] : starts[other + 1]], assume_unique=True))
            if shared >= JACCARD * (sizes[text] + sizes[other] - shared) - 1e-9:
                repeated[text] = True
                break
        else:
            for number in rare:
                kept.setdefault(number, []).append(text)
    return repeated
