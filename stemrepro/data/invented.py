"""People who don't exist, by first and last name, and what is known of each: for counting how much a model can hold.

    bako midu  pe tofa  ki resi ...

A document is one person: two words of a name, then every attribute's word and its value, in an order that changes. Names share their
words with many others, so that what is known hangs on the pair; values are drawn by chance, so that each is worth log2(values) bits.
"""

import numpy as np

from stemrepro.data.readers import Document
from stemrepro.data.recall import made_up_words

SOURCE = "invented"
TITLE = {
    "title": "People who don't exist, with attributes drawn by chance",
    "licence": "public domain",
    "attribution": "stemrepro",
}
EVERY = 4
"""Of so many people one stands in the tune split too, and another in validation's: the losses of training, watched."""


def words(names: int, attributes: int, values: int) -> dict[str, list[str]]:
    """First names, last names, the attributes' words and their values, attribute by attribute: all different."""
    found, _ = made_up_words(2 * names + attributes * (1 + values), 0)
    cuts = np.cumsum([names, names, attributes])
    first, last, attribute, value = (list(part) for part in np.split(np.array(found), cuts))
    return {"first": first, "last": last, "attribute": attribute, "value": value}


def people(names: int, attributes: int, values: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return names [count, 2] and values [count, attributes] of the first `count` people: fewer are the first ones of more.

    Raises:
        ValueError: there are fewer names.
    """
    if count > names**2:
        raise ValueError(f"{names} first and last names make {names**2} people, not {count}")
    order = np.random.default_rng(0).permutation(names**2)[:count]
    dealt = np.random.default_rng(1).integers(values, size=(names**2, attributes))[:count]
    return np.stack([order // names, order % names], axis=1), dealt


def sentence(known: dict[str, list[str]], name: np.ndarray, dealt: np.ndarray, order: np.ndarray) -> str:
    """One person in words; every word stands behind a space."""
    values = len(known["value"]) // len(known["attribute"])
    said = [known["first"][name[0]], known["last"][name[1]]]
    for attribute in order:
        said += [known["attribute"][attribute], known["value"][attribute * values + dealt[attribute]]]
    return "".join(f" {word}" for word in said)


def invented_documents(
    names: int, attributes: int, values: int, count: int, exposures: int
) -> list[tuple[Document, str]]:
    """Return every person `exposures` times, attributes in an order drawn anew each time; with their splits."""
    known, (name, dealt) = words(names, attributes, values), people(names, attributes, values, count)
    rng, found = np.random.default_rng(2), []
    for copy in range(exposures):
        for person in range(count):
            text = sentence(known, name[person], dealt[person], rng.permutation(attributes))
            found.append((Document(SOURCE, f"train/{copy:04d}-{person:06d}", "", [text]), "train"))
    for which, split in enumerate(("tune", "validation")):
        for person in range(which, count, EVERY):
            text = sentence(known, name[person], dealt[person], rng.permutation(attributes))
            found.append((Document(SOURCE, f"{split}/{person:06d}", "", [text]), split))
    return found
