"""People who don't exist, by first and last name, and their attributes: for counting how much a model can hold.

    bako midu  pe tofa  ki resi ...

A document is one person: two words of a name, then every attribute's word and its value, in an order that changes.
Names share their words with many others, so that the values depend on the pair. Values are drawn by chance, so that
each is worth log2(values) bits.
"""

import numpy as np

from stemrepro.data.readers import Document
from stemrepro.data.recall import made_up_words

SOURCE = "invented"
TITLE = ("People who don't exist, with attributes drawn by chance", "public domain", "stemrepro")
EVERY = 4
"""One in so many people is in the tune split too, and another in validation's, to watch the losses of training."""


def words(names: int, attributes: int, values: int) -> dict[str, list[str]]:
    """Return first names, last names, the attributes' words and their values by attribute; all words differ."""
    made_up, _ = made_up_words(2 * names + attributes * (1 + values), 0)
    cuts = np.cumsum([names, names, attributes])
    first, last, attribute, value = (list(part) for part in np.split(np.array(made_up), cuts))
    return {"first": first, "last": last, "attribute": attribute, "value": value}


def people(names: int, attributes: int, values: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return names [count, 2] and values [count, attributes] of the first people, the same whatever the count.

    ValueError: there are fewer names.
    """
    if count > names**2:
        raise ValueError(f"{names} first and last names make {names**2} people, not {count}")
    order = np.random.default_rng(0).permutation(names**2)[:count]
    dealt = np.random.default_rng(1).integers(values, size=(names**2, attributes))[:count]
    return np.stack([order // names, order % names], axis=1), dealt


def sentence(vocabulary: dict[str, list[str]], name: np.ndarray, dealt: np.ndarray, order: np.ndarray) -> str:
    """Return one person in words; a space comes before every word."""
    values = len(vocabulary["value"]) // len(vocabulary["attribute"])
    chosen = [vocabulary["first"][name[0]], vocabulary["last"][name[1]]]
    for attribute in order:
        chosen += [vocabulary["attribute"][attribute], vocabulary["value"][attribute * values + dealt[attribute]]]
    return "".join(f" {word}" for word in chosen)


def invented_documents(
    names: int, attributes: int, values: int, count: int, exposures: int
) -> list[tuple[Document, str]]:
    """Return every person `exposures` times, each time with attributes in another order; with their splits."""
    vocabulary, (name, dealt) = words(names, attributes, values), people(names, attributes, values, count)
    told = [("train", person, f"{copy:04d}-") for copy in range(exposures) for person in range(count)]
    for which, split in enumerate(("tune", "validation")):
        told += [(split, person, "") for person in range(which, count, EVERY)]
    rng, documents = np.random.default_rng(2), []
    for split, person, copy_of in told:
        text = sentence(vocabulary, name[person], dealt[person], rng.permutation(attributes))
        documents.append((Document(SOURCE, f"{split}/{copy_of}{person:06d}", "", [text]), split))
    return documents
