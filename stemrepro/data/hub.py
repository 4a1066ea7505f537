"""Documents from a dataset of the Hugging Face hub or from a local folder, and a record of what was read.

They go through the same corpus, tokenizer and block steps as the pinned archives. Documents are taken in the
dataset's order until there is enough text, so that with `streaming` nothing beyond that is downloaded. The corpus step
holds its documents in memory. A mix with a `sample` is written part by part instead, and goes on where it was killed.

A folder is read file by file, so that an error names the file. It is read through a temporary cache, as the library
tells files apart by their time, not by what they hold.
"""

import io
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, read_json, sha256, sync, write_json
from stemrepro.common.progress import bar
from stemrepro.config.mixes import HubMix

LEADING = re.compile(r"\A\ufeff?(?:[^\S\n]*\n)*")
"""A byte order mark and blank lines before a text."""
SUFFIXES = (".txt", ".jsonl", ".csv", ".parquet")
PARTS = "parts"
"""Folder of a large text's documents, a file per part."""
PART = 2**26
"""Bytes of text of a part; its last document crosses them."""
KINDS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} files"


def resolved_revision(mix: HubMix) -> str:
    """Return the commit that `mix.revision` is now; for a local folder a hash of its files and of what a document is.

    Raises:
        UserError: the hub can't be reached or knows no such dataset or revision.
    """
    if mix.local:
        folder = Path(mix.dataset)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return "local-" + digest([mix.document, {path.relative_to(folder).as_posix(): sha256(path) for path in files}])
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(mix.dataset, revision=mix.revision).sha
    except Exception as error:
        reason = " ".join(str(error).split())[:1000]
        raise UserError(
            f"dataset '{mix.dataset}' at revision '{mix.revision}' can't be read from the hub ({reason}); check the "
            f"name in recipes/mixes.yaml and the network, or give a folder that holds a copy"
        ) from error


def cause(error: BaseException) -> str:
    """Return what an error comes from, in one line; the library's outer error says only that there was one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:1000] or type(error).__name__


def broken_line(file: str) -> str:
    """Return which line of a JSONL file isn't a JSON object, and why; "" for a sound file and for other kinds."""
    if file.endswith(".jsonl"):
        with open(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    if line.strip() and not isinstance(json.loads(line), dict):
                        raise ValueError("no object")
                except ValueError as error:
                    reason = getattr(error, "msg", error)
                    return f"{file}, line {number} is no JSON object in UTF-8 ({reason}); mend it or delete it"
    return ""


def tables(mix: HubMix, revision: str, cache: str) -> Iterator[tuple[str, Callable[[], Iterable[dict]]]]:
    """Yield what rows are read from, and a function that reads them: each file of a local folder, or the hub's dataset.

    Raises:
        UserError: there is no such split, or a file is empty.
    """
    from datasets import load_dataset_builder

    if mix.local:
        logging.getLogger("datasets").setLevel(logging.CRITICAL)  # our own message says what failed in one sentence
    how = {"cache_dir": cache} if mix.local else {"revision": revision}
    builder = load_dataset_builder(mix.dataset, mix.config, **how)
    if hasattr(builder.config, "sample_by"):  # text files, which the library would cut into lines
        unit = {"file": "document", "line": "line"}[mix.document]
        builder = load_dataset_builder(mix.dataset, mix.config, sample_by=unit, **how)
    if not mix.local:
        if not mix.streaming:
            builder.download_and_prepare()
        read = builder.as_streaming_dataset if mix.streaming else builder.as_dataset
        yield mix.dataset, lambda: read(split=mix.split)
        return
    splits, features = builder.config.data_files, builder.info.features
    if mix.split not in splits:
        raise UserError(f"dataset '{mix.dataset}' has no split '{mix.split}'; it has {', '.join(map(str, splits))}")
    named = {os.path.realpath(file) for files in splits.values() for file in files}
    every = [path for path in Path(mix.dataset).rglob("*") if path.suffix in SUFFIXES]
    if left := sorted(str(path) for path in every if os.path.realpath(path) not in named):
        print(
            f"{mix.dataset}: files of another kind, or of no split, are not read: {', '.join(left[:5])}",
            file=sys.stderr,
        )
    for file in splits[mix.split]:
        if not os.path.getsize(file):
            raise UserError(f"{file} is empty; delete it")
        builder.config.data_files, builder.info.features = {mix.split: [file]}, features
        yield file, lambda: builder.as_streaming_dataset(split=mix.split)


def text_of(mix: HubMix, row: dict, file: str, number: int) -> str | None:
    """Return a row's text without blank lines around it; None where the row has none.

    Raises:
        UserError: no such column, or something else than text in it.
    """
    if mix.text not in row:
        raise UserError(
            f"{file} has no column '{mix.text}'; it has {', '.join(row)}: name the one with the text in "
            "recipes/mixes.yaml"
        )
    if not isinstance(value := row[mix.text], str | None):
        raise UserError(
            f"{file}, row {number}: column '{mix.text}' holds {value!r:.40} of type {type(value).__name__}, not text; "
            "write it as a string, or name another column in recipes/mixes.yaml"
        )
    return value and LEADING.sub("", value).rstrip()


def texts(mix: HubMix, revision: str, place: dict | None = None) -> Iterator[str | None]:
    """Return the text of every row, in the dataset's order; None where a row has none.

    Args:
        place: where to begin, as `saved` made it; {} for the beginning. It is kept at the row that was read last.

    Raises:
        UserError: no such configuration, split or column; a file or row that can't be read, or a file without text.
    """
    place = {} if place is None else place
    where = f"dataset '{mix.dataset}' (config {mix.config}, split {mix.split})"
    right = f"a folder holds {KINDS}" if mix.local else "see its page on the hub"
    with TemporaryDirectory() as cache:
        try:
            for table, (file, read) in enumerate(tables(mix, revision, cache)):
                if table < place.get("table", 0):
                    continue
                if mix.local:
                    where, right = file, f"mend it or take it out; a folder holds {KINDS}"
                rows, first, has_text = read(), 1, False
                if table == place.get("table"):
                    rows.load_state_dict(place["rows"])
                    first, has_text = place["number"] + 1, place["has_text"]
                for number, row in enumerate(rows, first):
                    text = text_of(mix, row, where, number)
                    has_text = has_text or bool(text)
                    place |= {"table": table, "rows": rows, "number": number, "has_text": has_text}
                    yield text
                if not has_text:
                    raise UserError(f"{where} has no text in column '{mix.text}'; {right}")
        except UserError:
            raise
        except Exception as error:  # the library has others for each kind of file
            right = "save it in UTF-8" if isinstance(error, UnicodeError) else right
            raise UserError(broken_line(where) or f"{where}: {cause(error)}; {right}") from error


def saved(place: dict) -> dict:
    """Return a place of `texts` as JSON has it."""
    return place | {"rows": place["rows"].state_dict()}


def begin(folder: Path, request: dict) -> None:
    """Make a folder for what a request writes; what another request left there goes."""
    if not (folder / "request.json").exists() or read_json(folder / "request.json") != request:
        shutil.rmtree(folder, ignore_errors=True)
        write_json(folder / "request.json", request)


def take_whole(mix: HubMix, revision: str, folder: Path) -> dict:
    """Write `folder`/documents.jsonl; return how many documents, bytes of text, and rows without text there were."""
    limit, size, count, empty = mix.megabytes * 10**6, 0, 0, 0
    unfinished = folder / "documents.jsonl.part"
    with open(unfinished, "w", encoding="utf-8") as file, bar(mix.dataset, limit) as progress:
        for number, text in enumerate(texts(mix, revision)):
            empty += text is None
            if text:
                file.write(json.dumps({"id": f"{number:09d}", "text": text}, ensure_ascii=False) + "\n")
                size, count = size + len(text.encode()), count + 1
                progress.update(len(text.encode()))
            if size >= limit:
                break
        sync(file)
    unfinished.replace(folder / "documents.jsonl")
    return {"documents": count, "bytes": size, "empty": empty}


def take_parts(mix: HubMix, revision: str, folder: Path) -> dict:
    """Write `folder`/parts/<number>.parquet, a column "text" each; return what `take_whole` does, and "parts".

    Next to each part, <number>.json says what it holds and where reading stood, from where a killed run goes on. They
    are gone once all is there.
    """
    import pyarrow
    from pyarrow import parquet

    begin(folder / PARTS, {"asked": mix.model_dump(mode="json"), "revision": revision})
    notes = []
    while (note := folder / PARTS / f"{len(notes):05d}.json").exists():
        notes.append(read_json(note))
    place, limit = dict(notes[-1]["place"]) if notes else {}, mix.megabytes * 10**6
    total = sum(note["bytes"] for note in notes)
    rest = texts(mix, revision, place)
    with bar(mix.dataset, limit, total) as progress:
        while total < limit:
            kept, size, empty = [], 0, 0
            for text in rest:
                empty += text is None
                if text:
                    kept.append(text)
                    size += len(text.encode())
                if size >= min(PART, limit - total):
                    break
            if not kept:
                break
            path, buffer = folder / PARTS / f"{len(notes):05d}.parquet", io.BytesIO()
            parquet.write_table(pyarrow.table({"text": kept}), buffer)
            atomic_write(path, buffer.getvalue())
            notes.append({"documents": len(kept), "bytes": size, "empty": empty, "place": saved(place)})
            write_json(path.with_suffix(".json"), notes[-1])
            total += size
            progress.update(size)
    return {key: sum(note[key] for note in notes) for key in ("documents", "bytes", "empty")} | {"parts": len(notes)}


def take(mix: HubMix, folder: Path) -> None:
    """Write `folder`/documents.jsonl ({"id", "text"}), or parts of a large text, and, last, `folder`/hub.json.

    hub.json holds the request, the commit that was read, documents and bytes. Where it holds the same request already
    nothing is done, without network; for a local folder only while its files are the same.

    Raises:
        UserError: no such dataset, configuration, split or column; no network; something in it can't be read; no text.
    """
    about, request = folder / "hub.json", mix.model_dump(mode="json")
    existing = read_json(about) if about.exists() else {}
    if existing.get("asked") == request and not mix.local:
        return
    revision = resolved_revision(mix)
    if revision == existing.get("revision") and existing["asked"] == request:
        return
    about.unlink(missing_ok=True)
    taken = (take_parts if mix.sample else take_whole)(mix, revision, folder)
    if empty := taken.pop("empty"):
        print(f"{mix.dataset}: rows left out as they have nothing in column '{mix.text}': {empty:,}", file=sys.stderr)
    write_json(about, {"asked": request, "revision": revision} | taken)
    for note in (folder / PARTS).glob("*.json"):  # the library's own count of rows differs after a kill
        note.unlink()
