"""From pinned sources to token blocks: the steps that make the text of a scale and of its variants."""

from functools import partial
from pathlib import Path
from typing import Any, cast

from stemrepro.common.files import sha256
from stemrepro.common.paths import DATA, RESULTS, SCORES
from stemrepro.common.yaml_records import dumped
from stemrepro.config.mixes import BlendMix, InventedMix, Mix, is_large
from stemrepro.data.archives import PINS, SAMPLE, fetch
from stemrepro.data.blend import write_blend
from stemrepro.data.card import data_card
from stemrepro.data.corpus import build_corpus
from stemrepro.data.encoding import write_blocks
from stemrepro.data.items import write_items
from stemrepro.data.large import write_large
from stemrepro.data.tokenizer import train_tokenizer
from stemrepro.data.vocabularies import write_people, write_vocabularies
from stemrepro.pipeline.plan import Plan
from stemrepro.pipeline.steps import Step


def _modules(*names: str) -> tuple[str, ...]:
    return tuple(f"stemrepro.data.{name}" for name in names)


def _own_files(*mixes: Mix) -> list[Any]:
    """Return what decides whether files of one's own, which mixes read, are others: name, size and time of change."""
    folders = sorted({Path(mix.dataset) for mix in mixes if mix.kind == "hub" and mix.local})
    paths = [path for folder in folders for path in ([folder] if folder.is_file() else sorted(folder.rglob("*")))]
    return [[path.as_posix(), path.stat().st_size, path.stat().st_mtime_ns] for path in paths if path.is_file()]


def _corpus(plan: Plan) -> Path:
    return DATA / plan.scale.data / "corpus" / "corpus.parquet"


def text_of_mix(name: str, mix: Mix) -> tuple[Step, Step]:
    """Return the steps of a mix: `fetch` reads its sources, `corpus` cleans and splits them, with benchmark items."""
    home = DATA / name
    raw, corpus, items = home / "raw", home / "corpus", home / "items"

    def build() -> None:
        build_corpus(name, mix, raw, corpus)
        write_items(mix, raw, corpus / "corpus.parquet", items)

    about = [name, dumped(mix)]
    pinned = [sha256(path) for path in (PINS, *sorted(SAMPLE.parent.iterdir()))]
    code, make = _modules("archives", "hub"), partial(fetch, mix, raw)
    fetched = Step("fetch", home, (raw,), [*about, pinned, _own_files(mix)], code, (), make)
    return fetched, Step("corpus", home, (corpus, items), about, _modules("corpus", "items"), (fetched,), build)


def tokenizer(plan: Plan, corpus: Step) -> Step:
    """Return the step that trains the tokenizer of a scale."""
    file, vocab = DATA / plan.name / "tokenizer.json", plan.scale.model.vocab
    make = partial(train_tokenizer, _corpus(plan), vocab, file)
    return Step("tokenizer", DATA / plan.name, (file,), vocab, _modules("tokenizer"), (corpus,), make)


def blocks(plan: Plan, corpus: Step, tokens: Step) -> list[Step]:
    """Return the steps that write token blocks, with their data card, of a scale's own text and of variants'.

    Variants read the text in other vocabularies, texts about other numbers of invented people, or a blend with others.
    """
    home, source = DATA / plan.name, DATA / plan.scale.data
    card, file = RESULTS / plan.name / "data_card.md", home / "tokenizer.json"

    def own() -> None:
        if is_large(plan.mix):
            write_large(source / "raw", _corpus(plan), file, home / "blocks")
        else:
            write_blocks(_corpus(plan), file, home / "blocks")
        data_card(source, home / "blocks", card)

    made = [Step("blocks", home, (home / "blocks", card), 0, _modules("encoding", "large", "card"), (tokens,), own)]
    code = _modules("vocabularies")
    for size in plan.vocabularies:
        out = home / "vocabularies"
        make = partial(write_vocabularies, _corpus(plan), [size], out)
        made.append(Step(f"vocabulary {size}", home, (out / str(size),), size, code, (corpus,), make))
    for count in plan.people:
        out, about = home / "people", [count, dumped(plan.mix)]
        make = partial(write_people, cast(InventedMix, plan.mix), [count], file, out)
        made.append(Step(f"people {count}", home, (out / str(count),), about, code, (tokens,), make))
    if plan.blend:
        made.append(_blend(plan, *plan.blend, tokens, made[0]))
    return made


def _blend(plan: Plan, mix: BlendMix, count: int, tokens: Step, own: Step) -> Step:
    home, card = DATA / plan.name, RESULTS / plan.name / "data_card_mid.md"
    place = (_corpus(plan).parent, home / "tokenizer.json", home / "mid", card)
    shards = home / "blocks" if is_large(plan.mix) else None
    make = partial(write_blend, str(plan.scale.mid), mix, count, *place, shards)
    about = [plan.scale.mid, dumped(mix), count, _own_files(*(part.mix for part in mix.parts.values()))]
    return Step("mid", home, (home / "mid" / "blocks", card), about, _modules("blend"), (tokens, own), make)


def counts(plan: Plan, tokens: Step) -> Step:
    """Return the step that counts distinct tokens and hits of row caches in the text alone."""
    out, settings, file = SCORES / plan.name / "text", plan.scale.counting, DATA / plan.name / "tokenizer.json"

    def make() -> None:
        from stemrepro.data.counting import write_counts  # pandas: half a second

        write_counts(_corpus(plan), file, settings, out)

    files, about = (out / "distinct.csv", out / "cache.csv"), dumped(settings)
    return Step("counts", DATA / plan.name, files, about, _modules("counting"), (tokens,), make)


def text_steps(plan: Plan) -> list[Step]:
    """Return all steps from the sources of a scale's text to token blocks."""
    fetched, corpus = text_of_mix(plan.scale.data, plan.mix)
    tokens = tokenizer(plan, corpus)
    return [fetched, corpus, tokens, *blocks(plan, corpus, tokens)]
