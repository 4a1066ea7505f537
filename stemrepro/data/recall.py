"""Associative recall in context: keys with their values, then keys that need them again (multi-query, as in zoology).

    bako midu tofa resi   tofa resi bako midu bako midu ...

Keys and values are words of one token each, drawn at random in every document. So no pair can be learnt by heart. A
document fills a training sequence; its first part has each key once, its second draws keys by chance.
"""

from itertools import product

import numpy as np

from stemrepro.data.readers import Document

SOURCE = "recall"
TITLE = ("Keys and values to be recalled in context, drawn by chance", "public domain", "stemrepro")
HELD_OUT = 256  # documents per held-out split: tune and validation


def made_up_words(keys: int, values: int) -> tuple[list[str], list[str]]:
    """Make up so many keys and values: words of two syllables that nobody uses, all different."""
    syllables = list(product("bdfgklmnprstvz", "aeiou"))
    words = ["".join(first + second) for first, second in product(syllables, syllables)]
    chosen = [words[k] for k in np.random.default_rng(0).permutation(len(words))[: keys + values]]
    return chosen[:keys], chosen[keys:]


def pairs_and_queries(
    rng: np.random.Generator, keys: int, values: int, pairs: int, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Make one document, by numbers of keys and values [length // 2] each; the first `pairs` of them are given."""
    chosen, dealt = rng.choice(keys, pairs, replace=False), rng.integers(values, size=pairs)
    order = np.concatenate([np.arange(pairs), rng.integers(pairs, size=length // 2 - pairs)])
    return chosen[order], dealt[order]


def recall_documents(
    keys: int, values: int, pairs: tuple[int, ...], length: int, count: int
) -> list[tuple[Document, str]]:
    """Return `count` training documents and the held-out ones, with their splits; numbers of pairs come in turn.

    With its end mark, which comes after a value, a document has `length` tokens, an odd number.
    """
    names, answers = made_up_words(keys, values)
    documents = []
    for seed, (split, wanted) in enumerate((("train", count), ("tune", HELD_OUT), ("validation", HELD_OUT))):
        rng = np.random.default_rng(seed)
        for k in range(wanted):
            number = pairs[k % len(pairs)]
            key, value = pairs_and_queries(rng, keys, values, number, length)
            text = "".join(f" {names[a]} {answers[b]}" for a, b in zip(key, value, strict=True))
            documents.append((Document(SOURCE, f"{split}/{k:06d}-{number}", "", [text]), split))
    return documents
