"""The data card: what text and which benchmark items a scale uses, under which licence."""

from pathlib import Path
from typing import Any

from stemrepro.common.files import atomic_write, read_json
from stemrepro.data.atlas import FILE, Atlas, read_atlas
from stemrepro.data.integrity import SPLITS
from stemrepro.data.items import BENCHMARKS, NGRAM
from stemrepro.data.near_duplicates import JACCARD, WORDS


def _items_table(items: dict[str, Any]) -> list[str]:
    lines = [
        "",
        f"Benchmark items. Held-out ones that share a run of {NGRAM} words with the training text (shorter ones: "
        "all their words) are left out, with the sources that have the words (an item can be in several); those made "
        "from the training text on purpose are marked.",
        "",
        "| benchmark | read | malformed | in the training text | kept | licence | attribution |",
        "|---|--:|--:|--:|--:|---|---|",
    ]
    for task, row in items.items():
        title, licence, attribution = task, "that of the text", "made from the text"
        if source := BENCHMARKS.get(task):
            title, licence, attribution = source.title, source.licence, source.attribution
        sources = "; ".join(f"{source}: {count:,}" for source, count in row["because_of"].items())
        left_out = f"{row['in_training_text']:,}, left out" + (f" ({sources})" if sources else "")
        overlap = left_out if row["held_out"] else "on purpose"
        counts = f"{row['read']:,} | {row['malformed']:,} | {overlap} | {row['kept']:,}"
        lines.append(f"| {title} | {counts} | {licence} | {attribution} |")
    return lines


def _facts(atlas: Atlas) -> list[str]:
    stated, entities = sum(fact.told for fact in atlas.facts), atlas.entities
    counts = {what: sum(getattr(entity, what) for entity in entities) for what in ("whole", "ambiguous", "rare")}
    return [
        "",
        f"{len(atlas.facts)} facts about {len(entities)} countries, of which the training text states {stated}. "
        f"Of their names {counts['whole']} are one token each; {counts['ambiguous']} mean something else too or share "
        f"a word, {counts['rare']} don't stand in the prose. Words that are one token because they are names or "
        f"answers: {len(atlas.words)}.",
    ]


def data_card(mix: Path, folder: Path, out: Path) -> None:
    """Write the card of a mix's folder: source, licence, and counts of the text and of benchmark items."""
    report, index = read_json(mix / "corpus" / "corpus.json"), read_json(folder / "index.json")
    listed = mix / "items" / "items.json"
    items = read_json(listed) if listed.exists() else {}
    removed = report["removed"]
    nearly = f"{removed['near_duplicates']:,} as near-duplicates"
    if (near := removed.get("near_duplicate_passages")) is not None:
        by_source = ", ".join(f"{source} {count:,}" for source, count in near.items())
        nearly = (
            f"{removed['near_duplicates']:,} because every passage left was a near-duplicate. Near-duplicate "
            f"passages dropped: {sum(near.values()):,} ({by_source}), compared "
            f"{report.get('compared', 'across all sources')} and before anything was held out; they share "
            f"{JACCARD:.0%} or more of their distinct word {WORDS}-grams with an earlier passage (Jaccard similarity)"
        )
    read = (
        f"{report['documents_read']:,} documents read; {removed['repeated_passages_only']:,} dropped because every "
        f"passage had occurred before, {nearly}."
    )
    if "shards" in index["splits"]["train"]:
        read = "Copies of a document are in one split. Nothing else was compared; duplicates are the sources' own."
    lines = [
        f"# Data card: mix `{report['mix']}`",
        "",
        f"{read} Split by whole documents. Vocabulary: {index['vocab']:,} byte-level BPE tokens.",
        "",
        "| source | split | documents | bytes | words | tokens |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for source, splits in report["kept"].items():
        for split in SPLITS:
            cell, tokens = splits[split], index["splits"][split]["tokens_by_source"].get(source, 0)
            if whole := index["splits"][split].get("text_by_source"):
                cell = whole[source]  # the corpus has a sample of it
            words = f"{cell['words']:,}" if "words" in cell else "not counted"
            lines.append(f"| {source} | {split} | {cell['documents']:,} | {cell['bytes']:,} | {words} | {tokens:,} |")
    lines += ["", "| source | what | licence | attribution |", "|---|---|---|---|"]
    for name, about in report["sources"].items():
        title = f"{about['title']} @ {about['revision']}" if about["revision"] else about["title"]
        lines.append(f"| {name} | {title} | {about['licence']} | {about['attribution']} |")
    facts = mix / "corpus" / FILE
    lines += (_items_table(items) if items else []) + (_facts(read_atlas(facts)) if facts.exists() else [])
    hashes = [f"{split}.bin {index['splits'][split]['sha256'][:16]}" for split in SPLITS]
    lines += ["", f"sha256: {', '.join(hashes)}", ""]
    atomic_write(out, "\n".join(lines))
