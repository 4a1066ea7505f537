"""Documents from a dataset of the Hugging Face hub or from a local folder, and a record of what was read.

They go through the same corpus, tokenizer and block steps as the pinned archives. Documents are taken in the
dataset's order until there is enough text, so that with `streaming` nothing beyond that is downloaded. The corpus step
holds its documents in memory. A mix with a `sample` is written part by part instead, and goes on where it was killed.

A folder is read file by file, so that an error names the file. The library sees temporary links to its files of text:
a folder's name may then have the characters of patterns, and suffixes be in capitals. The cache is temporary, too, as
the library tells files apart by their time, not by what they hold.
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
from typing import Any

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, read_json, sha256, sync, write_json
from stemrepro.common.progress import bar
from stemrepro.common.yaml_records import dumped
from stemrepro.config.mixes import HubMix

LEADING = re.compile(r"\A\ufeff?(?:[^\S\n]*\n)*")  # A byte order mark and blank lines before a text
TEXT = re.compile(r"\.(txt|jsonl|ndjson|json|csv|tsv|parquet|arrow)(\.(gz|bz2|xz))?$", re.IGNORECASE)
"""Suffix of a file that is read."""
SETTINGS = ("README.md", ".huggingface.yaml", "dataset_infos.json")
"""Files that may say what the library reads, and how."""
PARTS = "parts"  # folder of a large text's documents, a file per part
PART = 2**26  # bytes of text of a part; its last document crosses them
KINDS = ".txt, .jsonl, .csv or .parquet files"
UNITS = {"file": "document", "line": "line"}  # what a document of text files is, in the library's words
Table = tuple[str, Callable[[], Any]]  # what rows are read from, and a function that reads them


def entries(folder: str) -> Iterator[Path]:
    """Yield the files of a folder, and each folder in it that isn't looked into: a link, or named like .git."""

    def stop(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=stop):
        shut = [name for name in folders if name.startswith((".", "__")) or os.path.islink(os.path.join(place, name))]
        folders[:] = [name for name in folders if name not in shut]
        yield from (Path(place, name) for name in (*shut, *files))


def names(folder: str, paths: Iterable[Path]) -> str:
    """Return the first names of a folder's files, hidden ones last, and how many more there are."""
    every = sorted((path.relative_to(folder).as_posix() for path in paths), key=lambda name: (name[0] == ".", name))
    return ", ".join(every[:5]) + (f" and {len(every) - 5:,} more" if every[5:] else "")


def open_folder(mix: HubMix, home: str) -> tuple[Any, dict[str, Path]]:
    """Return the library's builder of a local folder, and what is read: a file by the builder's name for it, in order.

    `home` is an empty folder, for links to the files and for the library's cache. UserError: no file of text, no such
    configuration or split, or one with files elsewhere.
    """
    from datasets import load_dataset_builder

    links, files, every = os.path.realpath(home) + "/text", {}, list(entries(mix.dataset))
    for path in every:
        name, suffix = path.relative_to(mix.dataset).as_posix(), TEXT.search(path.name)
        if name in SETTINGS or (suffix and not path.name.startswith(".")):
            files[f"{links}/{name}" + (suffix[0].lower() if suffix and not suffix[0].islower() else "")] = path
    where = f"dataset '{mix.dataset}' (config {mix.config}, split {mix.split})"
    if all(path.name in SETTINGS for path in files.values()):
        has = f", this one has {names(mix.dataset, every)}" if every else ""
        raise UserError(f"{where} has no text; a folder holds {KINDS}{has}")
    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # our own message says what failed in one sentence
    try:
        for link, path in files.items():
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.symlink(path.absolute(), link)
        builder = load_dataset_builder(links, mix.config, cache_dir=f"{home}/cache")
    except Exception as error:
        raise UserError(f"{where}: {_cause(error).replace(links, mix.dataset)}; a folder holds {KINDS}") from error
    if mix.split not in (splits := builder.config.data_files):
        raise UserError(f"dataset '{mix.dataset}' has no split '{mix.split}'; it has {', '.join(map(str, splits))}")
    if hasattr(builder.config, "sample_by"):  # text files, which the library would cut into lines
        builder.config.sample_by = UNITS[mix.document]
    once: dict[str, str] = {}
    for link in splits[mix.split]:
        if link not in files:
            raise UserError(f"{mix.dataset}/README.md names {link}, which lies elsewhere; put it into that folder")
        once.setdefault(os.path.realpath(link), link)  # a link may name a file again
    return builder, {link: files[link] for link in once.values()}


def folder_revision(mix: HubMix, files: Iterable[Path]) -> str:
    """Return a hash of a local folder's files that are read, and how; what else lies there is named."""
    read = set(files)
    if left := set(entries(mix.dataset)) - read:
        print(
            f"{mix.dataset}: files read: {len(read):,}; not read, as of another kind or split, hidden or linked: "
            f"{len(left):,} ({names(mix.dataset, left)})",
            file=sys.stderr,
        )
    read |= {path for name in SETTINGS if (path := Path(mix.dataset, name)).is_file()}
    return "local-" + digest([mix.document, {path.relative_to(mix.dataset).as_posix(): sha256(path) for path in read}])


def hub_revision(mix: HubMix) -> str:
    """Return the commit that `mix.revision` is now; UserError: the hub can't be reached or knows none."""
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(mix.dataset, revision=mix.revision).sha)
    except Exception as error:
        reason = " ".join(str(error).split())[:1000]
        raise UserError(
            f"dataset '{mix.dataset}' at revision '{mix.revision}' can't be read from the hub ({reason}); check the "
            f"name in recipes/mixes.yaml and the network, or give a folder that holds a copy"
        ) from error


def _cause(error: BaseException) -> str:
    """Return what an error comes from, in one line; the library's outer error says only that there was one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:1000] or type(error).__name__


def _broken_line(file: str) -> str:
    """Return which line of a JSONL file isn't a JSON object, and why; "" for a sound file and for other kinds."""
    if file.lower().endswith(".jsonl"):
        with open(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    if line.strip() and not isinstance(json.loads(line), dict):
                        raise ValueError("no object")
                except ValueError as error:
                    reason = getattr(error, "msg", error)
                    return f"{file}, line {number} is no JSON object in UTF-8 ({reason}); mend it or delete it"
    return ""


def folder_tables(mix: HubMix, builder: Any, files: dict[str, Path]) -> Iterator[Table]:
    """Yield each file that `open_folder` returned; UserError where one is empty."""
    features = builder.info.features
    for link, path in files.items():
        if not path.stat().st_size:
            raise UserError(f"{path} is empty; delete it")
        builder.config.data_files, builder.info.features = {mix.split: [link]}, features
        yield str(path), lambda: builder.as_streaming_dataset(split=mix.split)


def _hub_tables(mix: HubMix, revision: str) -> Iterator[Table]:
    from datasets import load_dataset_builder

    builder = load_dataset_builder(mix.dataset, mix.config, revision=revision)
    if hasattr(builder.config, "sample_by"):
        builder = load_dataset_builder(mix.dataset, mix.config, sample_by=UNITS[mix.document], revision=revision)
    if not mix.streaming:
        builder.download_and_prepare()
    read = builder.as_streaming_dataset if mix.streaming else builder.as_dataset
    yield mix.dataset, lambda: read(split=mix.split)


def text_of(mix: HubMix, row: dict[str, Any], file: str, number: int) -> str | None:
    """Return a row's text without blank lines around it, None where it has none; UserError: no column of text."""
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
    if value and "\0" in value and file.lower().endswith(".txt"):
        raise UserError(f"{file} has NUL characters, as UTF-16 or a damaged file has; save it in UTF-8")
    return value and LEADING.sub("", value).rstrip()


def texts(mix: HubMix, tables: Iterable[Table], place: dict[str, Any] | None = None) -> Iterator[str | None]:
    """Return the text of every row, in the dataset's order; None where a row has none.

    Args:
        place: where to begin, of a note of `take_parts`; {} for the beginning. It is kept at the row read last.

    UserError: no such configuration, split or column; a file or row that can't be read, or a file without text.
    """
    place = {} if place is None else place
    where = f"dataset '{mix.dataset}' (config {mix.config}, split {mix.split})"
    right = "see its page on the hub"
    try:
        for table, (file, read) in enumerate(tables):
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
        raise UserError(_broken_line(where) or f"{where}: {_cause(error)}; {right}") from error


def begin(folder: Path, request: dict[str, Any]) -> None:
    """Make a folder for what a request writes; what another request left there goes."""
    if not (folder / "request.json").exists() or read_json(folder / "request.json") != request:
        shutil.rmtree(folder, ignore_errors=True)
        write_json(folder / "request.json", request)


def take_whole(mix: HubMix, revision: str, tables: Iterable[Table], folder: Path) -> dict[str, Any]:
    """Write `folder`/documents.jsonl; return how many documents, bytes of text, and rows without text there were."""
    limit, size, count, empty = mix.megabytes * 10**6, 0, 0, 0
    unfinished = folder / "documents.jsonl.part"
    with open(unfinished, "w", encoding="utf-8") as file, bar(mix.dataset, limit) as progress:
        for number, text in enumerate(texts(mix, tables)):
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


def take_parts(mix: HubMix, revision: str, tables: Iterable[Table], folder: Path) -> dict[str, Any]:
    """Write `folder`/parts/<number>.parquet, a column "text" each; return what `take_whole` does, and "parts".

    Until all is there, <number>.json has what a part holds and where reading stood: a killed run resumes there.
    """
    import pyarrow
    from pyarrow import parquet

    begin(folder / PARTS, {"asked": dumped(mix), "revision": revision})
    notes: list[dict[str, Any]] = []
    while (note := folder / PARTS / f"{len(notes):05d}.json").exists():
        notes.append(read_json(note))
    place, limit = dict(notes[-1]["place"]) if notes else {}, mix.megabytes * 10**6
    total = sum(note["bytes"] for note in notes)
    rest = texts(mix, tables, place)
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
            stood = place | {"rows": place["rows"].state_dict()}
            notes.append({"documents": len(kept), "bytes": size, "empty": empty, "place": stood})
            write_json(path.with_suffix(".json"), notes[-1])
            total += size
            progress.update(size)
    return {key: sum(note[key] for note in notes) for key in ("documents", "bytes", "empty")} | {"parts": len(notes)}


def take(mix: HubMix, folder: Path) -> None:
    """Write `folder`/documents.jsonl ({"id", "text"}), or parts of a large text, and, last, `folder`/hub.json.

    hub.json holds the request, the commit that was read, documents and bytes. Where it holds the same request already
    nothing is done, without network; for a local folder only while its files are the same. UserError: no such dataset,
    configuration, split or column; no network; something in it can't be read; no text.
    """
    about, request = folder / "hub.json", dumped(mix)
    existing = read_json(about) if about.exists() else {}
    if existing.get("asked") == request and not mix.local:
        return
    with TemporaryDirectory() as home:
        if mix.local:
            builder, files = open_folder(mix, home)
            revision, tables = folder_revision(mix, files.values()), folder_tables(mix, builder, files)
        else:
            revision = hub_revision(mix)
            tables = _hub_tables(mix, revision)
        if revision == existing.get("revision") and existing["asked"] == request:
            return
        about.unlink(missing_ok=True)
        taken = (take_parts if mix.sample else take_whole)(mix, revision, tables, folder)
    if empty := taken.pop("empty"):
        print(f"{mix.dataset}: rows left out as they have nothing in column '{mix.text}': {empty:,}", file=sys.stderr)
    write_json(about, {"asked": request, "revision": revision} | taken)
    for note in (folder / PARTS).glob("*.json"):  # the library's own count of rows differs after a kill
        note.unlink()
