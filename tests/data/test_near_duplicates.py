"""Near-duplicates against every pair compared in plain Python."""

import random
import re
from fractions import Fraction

import numpy as np

from stemrepro.data.near_duplicates import near_duplicates


def grams(text):
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def plain(texts):
    """Compares every text with every earlier one that stayed, in fractions."""
    kept, repeated = [], []
    for text in texts:
        now = grams(text)
        repeated.append(any(now and Fraction(len(now & other), len(now | other)) >= Fraction(4, 5) for other in kept))
        if not repeated[-1]:
            kept.append(now)
    return repeated


def varied(draw):
    """Texts of a few words, many of them edits of earlier ones: cut, appended to, a word changed, in capitals."""
    texts = []
    for _ in range(400):
        if texts and draw.random() < 0.6:
            words = draw.choice(texts).split()
            for _ in range(draw.randrange(3)):
                if words:
                    words[draw.randrange(len(words))] = draw.choice("abcdefgh")
            words = words[: draw.randrange(len(words) + 1)] if draw.random() < 0.2 else words
            words += draw.choices("abcdefgh", k=draw.randrange(4))
            texts.append(draw.choice([" ".join(words), ", ".join(words).upper()]).replace(",", ", "))
        else:
            texts.append(" ".join(draw.choices("abcdefgh", k=draw.randrange(60))))
    return texts


def test_as_every_pair_compared():
    for seed in range(2):
        texts = varied(random.Random(seed))
        expected = plain(texts)
        assert 40 < sum(expected) < 360
        assert near_duplicates(texts).tolist() == expected


def test_the_threshold_itself_counts():
    eight, nine, ten = (" ".join(map(str, range(n + 4))) for n in (8, 9, 10))  # of so many 5-grams
    assert near_duplicates([nine, ten]).tolist() == [False, True]
    assert near_duplicates([eight, ten]).tolist() == [False, True]  # 8 of 10
    assert near_duplicates([eight, ten + " 14"]).tolist() == [False, False]  # 8 of 11


def test_short_texts_and_none():
    assert near_duplicates(["one two three four"] * 2).tolist() == [False, False]
    assert near_duplicates(["one two three four five"] * 2).tolist() == [False, True]
    assert near_duplicates([]).tolist() == []
    assert near_duplicates(["", "."]).dtype == np.bool_
