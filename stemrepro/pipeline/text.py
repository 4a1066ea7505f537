"""From pinned sources to token blocks: the steps that make the text of a scale and of its variants."""

from pathlib import Path

from stemrepro.common.files import sha256
from stemrepro.common.paths import DATA, RESULTS, SCORES
from stemrepro.common.yaml_records import dumped
from stemrepro.config.mixes import BlendMix, Mix, is_large
from stemrepro.data.archives import PINS, SAMPLE
from stemrepro.pipeline.plan import Plan
from stemrepro.pipeline.steps import Step


def _modules(*names: str) -> tuple[str, ...]:
    return tuple(f"stemrepro.data.{name}" for name in names)


def _own_files(*mixes: Mix) -> list:
    """Return what decides whether files of one's own, which mixes read, are others: name, size and time of change."""
    folders = sorted({Path(mix.dataset) for mix in mixes if mix.kind == "hub" and mix.local})
    paths = [path for folder in folders for path in ([folder] if folder.is_file() else sorted(folder.rglob("*")))]
    return [[path.as_posix(), path.stat().st_size, path.stat().st_mtime_ns] for path in paths if path.is_file()]


def text_of_mix(name: str, mix: Mix, data: Path = DATA) -> tuple[Step, Step]:
    """Return the steps of a mix: `fetch` reads its sources, `corpus` cleans and splits them, with benchmark items."""
    home = data / name
    raw, corpus, items = home / "raw", home / "corpus", home / "items"

    def fetch() -> None:
        from stemrepro.data.archives import fetch

        fetch(mix, raw)

    def build() -> None:
        from stemrepro.data.corpus import build_corpus
        from stemrepro.data.items import write_items

        build_corpus(name, mix, raw, corpus)
        write_items(mix, raw, corpus / "corpus.parquet", items)

    about = [name, dumped(mix)]
    pinned = [sha256(path) for path in (PINS, *sorted(SAMPLE.parent.iterdir()))]
    fetched = Step("fetch", home, (raw,), [*about, pinned, _own_files(mix)], _modules("archives", "hub"), (), fetch)
    return fetched, Step("corpus", home, (corpus, items), about, _modules("corpus", "items"), (fetched,), build)


def tokenizer(plan: Plan, corpus: Step, data: Path = DATA) -> Step:
    """Return the step that trains the tokenizer of a scale."""
    file, vocab = data / plan.name / "tokenizer.json", plan.scale.model.vocab

    def make() -> None:
        from stemrepro.data.tokenizer import train_tokenizer

        train_tokenizer(_corpus(plan, data), vocab, file)

    return Step("tokenizer", data / plan.name, (file,), vocab, _modules("tokenizer"), (corpus,), make)


def _corpus(plan: Plan, data: Path) -> Path:
    return data / plan.scale.data / "corpus" / "corpus.parquet"


def blocks(plan: Plan, corpus: Step, tokens: Step, data: Path = DATA, results: Path = RESULTS) -> list[Step]:
    """Return the steps that write token blocks, with their data card, of a scale's own text and of variants'.

    Variants read the text in other vocabularies, texts about other numbers of invented people, or a blend with others.
    """
    home = data / plan.name
    card, file = results / plan.name / "data_card.md", home / "tokenizer.json"

    def own() -> None:
        from stemrepro.data.card import data_card
        from stemrepro.data.encoding import write_blocks
        from stemrepro.data.large import write_large

        source = data / plan.scale.data
        if is_large(plan.mix):
            write_large(source / "raw", _corpus(plan, data), file, home / "blocks")
        else:
            write_blocks(_corpus(plan, data), file, home / "blocks")
        data_card(source, home / "blocks", card)

    made = [Step("blocks", home, (home / "blocks", card), 0, _modules("encoding", "large", "card"), (tokens,), own)]
    for size in plan.vocabularies:

        def vocabulary(size: int = size) -> None:
            from stemrepro.data.vocabularies import write_vocabularies

            write_vocabularies(_corpus(plan, data), [size], home / "vocabularies")

        name, out = f"vocabulary {size}", home / "vocabularies" / str(size)
        made.append(Step(name, home, (out,), size, _modules("vocabularies"), (corpus,), vocabulary))
    for count in plan.people:

        def people(count: int = count) -> None:
            from stemrepro.data.vocabularies import write_people

            write_people(plan.mix, [count], file, home / "people")

        about = [count, dumped(plan.mix)]
        out = home / "people" / str(count)
        made.append(Step(f"people {count}", home, (out,), about, _modules("vocabularies"), (tokens,), people))
    if plan.blend:
        made.append(_blend(plan, *plan.blend, tokens, made[0], data, results))
    return made


def _blend(plan: Plan, mix: BlendMix, count: int, tokens: Step, own: Step, data: Path, results: Path) -> Step:
    home, card = data / plan.name, results / plan.name / "data_card_mid.md"

    def make() -> None:
        from stemrepro.data.blend import write_blend

        shards = home / "blocks" if is_large(plan.mix) else None
        place = (_corpus(plan, data).parent, home / "tokenizer.json", home / "mid", card)
        write_blend(plan.scale.mid, mix, count, *place, own=shards)

    about = [plan.scale.mid, dumped(mix), count, _own_files(*(part.mix for part in mix.parts.values()))]
    return Step("mid", home, (home / "mid" / "blocks", card), about, _modules("blend"), (tokens, own), make)


def counts(plan: Plan, tokens: Step, data: Path = DATA, scores: Path = SCORES) -> Step:
    """Return the step that counts distinct tokens and hits of row caches in the text alone."""
    out, settings = scores / plan.name / "text", plan.scale.counting

    def make() -> None:
        from stemrepro.data.counting import write_counts

        write_counts(_corpus(plan, data), data / plan.name / "tokenizer.json", settings, out)

    files = (out / "distinct.csv", out / "cache.csv")
    return Step(
        "counts", data / plan.name, files, dumped(settings), _modules("counting"), (tokens,), make
    )


def text_steps(plan: Plan) -> list[Step]:
    """Return all steps from the sources of a scale's text to token blocks."""
    fetched, corpus = text_of_mix(plan.scale.data, plan.mix)
    tokens = tokenizer(plan, corpus)
    return [fetched, corpus, tokens, *blocks(plan, corpus, tokens)]
