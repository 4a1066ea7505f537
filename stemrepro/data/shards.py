"""A text of any size as token blocks: files that datatrove's tasks read side by side, one shard of tokens each.

Nothing holds the text in memory. Only what is held out, and a sample of the rest, become a corpus as that of other
mixes: the vocabulary, counts and benchmarks are made of it. The first documents of up to 64 files in turn are held
out, so a task knows by a number per file where training text begins. Nothing is compared with anything: take a text
that has no duplicates, or remove them with datatrove first.

Shards are written aside, and a task that ended leaves datatrove's mark. A run that was killed repeats the tasks
without one. A task is one file or more and doesn't depend on how many run at once, so the bytes are the same.
"""

import io
import json
import math
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath

import fsspec
from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.tokens import DocumentTokenizer
from loguru import logger
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, read_json, sha256, write_json
from stemrepro.config.mixes import ShardsMix, ShardSource
from stemrepro.data.corpus import write_corpus
from stemrepro.data.encoding import write_blocks
from stemrepro.data.hub import cause, resolved_revision, text_of
from stemrepro.data.published import published_tokenizer
from stemrepro.data.shares import train_index
from stemrepro.data.tokenizer import END_TEXT, read_tokenizer
from stemrepro.model.config import END_OF_DOCUMENT

logger.disable("datatrove")  # a line per file and task; errors are raised all the same
KINDS = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst", ".txt")
CODECS = {".gz": "gzip", ".zst": "zstd"}
OPEN = 64
"""Files whose first documents are held out in turn."""
TASKS = 1024
"""Shards of a source, at most; further files share a task."""
BATCH = 64
"""Documents that are encoded at once: all that they hold meanwhile is in memory, some hundred bytes a token."""
FILES, PUBLISHED = "files.json", "published.json"


def root(source: ShardSource, revision: str) -> str:
    """Return the folder of a source, or its address at the hub."""
    return source.dataset if source.local else f"hf://datasets/{source.dataset}@{revision}"


def list_files(mix: ShardsMix, folder: Path) -> None:
    """Write `folder`/files.json, for each source its revision and files with sizes; and the published tokenizer.

    Raises:
        UserError: a dataset can't be read, or has no file that can be.
    """
    found = {}
    for name, source in mix.sources.items():
        revision = "local" if source.local else resolved_revision(source)
        where = root(source, revision)
        system, path = fsspec.url_to_fs(where)
        every = system.find(path, detail=True)
        chosen = {str(PurePosixPath(file).relative_to(path)): about["size"] for file, about in every.items()}
        files = [
            [file, size]
            for file, size in sorted(chosen.items())
            if file.endswith(KINDS) and PurePosixPath(file).match(source.files)
        ]
        if not files:
            raise UserError(f"{where} has no {', '.join(KINDS[:-1])} or {KINDS[-1]} file that matches '{source.files}'")
        found[name] = {"revision": revision, "files": files}
    if mix.tokenizer:
        text, number = published_tokenizer(mix.tokenizer, mix.end_mark)
        write_json(folder / PUBLISHED, {"name": mix.tokenizer, "mark": mix.end_mark, "id": number, "tokenizer": text})
    write_json(folder / FILES, found)


def texts(source: ShardSource, file: str) -> Iterator[str]:
    """Return the documents of a file that have text; a .txt file is one, in others a row is.

    Raises:
        UserError: the file can't be read, or its column isn't there or holds something else than text.
    """
    from pyarrow import CompressedInputStream
    from pyarrow.parquet import ParquetFile

    def rows(opened: Iterable, number: int = 0) -> Iterator[dict]:
        if file.endswith(".parquet"):
            parquet = ParquetFile(opened)
            columns = [source.text] if source.text in parquet.schema_arrow.names else None
            for batch in parquet.iter_batches(1000, columns=columns):
                yield from batch.to_pylist()
        elif file.endswith(".txt"):
            yield {source.text: opened.read().decode()}
        else:
            for number, line in enumerate(opened, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError(f"line {number} is no JSON object")
                    yield row

    try:
        with fsspec.open(file, "rb") as opened:
            if codec := CODECS.get(PurePosixPath(file).suffix):  # fsspec's zstd would end with a file's first frame
                opened = io.BufferedReader(CompressedInputStream(opened, codec))
            for number, row in enumerate(rows(opened), 1):
                if text := text_of(source, row, file, number):
                    yield text
    except UserError:
        raise
    except Exception as error:  # each kind of file and of address has errors of its own
        raise UserError(f"{file}: {cause(error)}; mend it or take it out") from error


def in_turn(source: ShardSource, where: str, files: list[str]) -> Iterator[tuple[str, str]]:
    """Return (file, text) of the first document of up to 64 files, then of their second, and so on."""
    waiting, readers = deque(sorted(files, key=digest)), deque()
    while waiting or readers:
        while waiting and len(readers) < OPEN:
            file = waiting.popleft()
            readers.append((file, texts(source, f"{where}/{file}")))
        file, reader = readers.popleft()
        if (text := next(reader, None)) is not None:
            readers.append((file, reader))
            yield file, text


def hold_out(mix: ShardsMix, name: str, where: str, files: list[str]) -> tuple[list[dict], dict[str, int]]:
    """Return documents of a source for validation and tune, then a sample of its training text.

    Returns:
        Rows of a corpus, and how many documents of each file are held out.

    Raises:
        UserError: the source has too little text.
    """
    wanted = {"validation": 1000 * mix.held_out, "tune": 500 * mix.held_out, "train": 1000 * mix.sample}
    rows, done, taken = [], dict.fromkeys(wanted, 0), dict.fromkeys(files, 0)
    wanted["train"] //= len(mix.sources)
    for number, (file, text) in enumerate(in_turn(mix.sources[name], where, files)):
        # The split with the smallest part of what it wants; both fill evenly from all files.
        split = min(("validation", "tune"), key=lambda split: done[split] / wanted[split])
        if done[split] >= wanted[split]:
            split = "train"
        else:
            taken[file] += 1
        rows.append({"source": name, "id": f"{number:09d}", "split": split, "text": text})
        done[split] += len(text.encode())
        if done["train"] >= wanted["train"]:
            break
    if not done["train"]:
        raise UserError(
            f"{where} has no training text apart from {1.5 * mix.held_out:,.0f} kB that are held out; lower held_out "
            "in recipes/mixes.yaml, or use a mix of kind hub"
        )
    return rows, {file: count for file, count in taken.items() if count}


def write_sample(name: str, mix: ShardsMix, raw: Path, out: Path) -> None:
    """Write `out`/corpus.parquet and corpus.json, and what `write_shards` reads besides.

    The corpus is what is held out, and a sample of the rest.

    Raises:
        UserError: a file can't be read, or a source has too little text.
    """
    found, rows = read_json(raw / FILES), []
    for source, about in found.items():
        where = root(mix.sources[source], about["revision"])
        more, about["held_out"] = hold_out(mix, source, where, [file for file, _ in about["files"]])
        rows += more
    sources = {
        key: {"title": f"{source.dataset}, {source.files}", "licence": source.licence,
              "attribution": source.attribution, "revision": found[key]["revision"]}
        for key, source in mix.sources.items()
    }  # fmt: skip
    removed = {"repeated_passages_only": 0, "near_duplicates": 0}
    write_corpus(rows, out, {"mix": name, "sources": sources, "documents_read": len(rows), "removed": removed})
    if mix.tokenizer:
        shutil.copyfile(raw / PUBLISHED, out / PUBLISHED)
    write_json(out / FILES, found)


def write_published(corpus: Path, vocab: int, out: Path) -> None:
    """Write the published tokenizer of a mix.

    Raises:
        UserError: the scale has another vocabulary.
    """
    published = read_json(corpus.with_name(PUBLISHED))
    size = Tokenizer.from_str(published["tokenizer"]).get_vocab_size()
    if size != vocab:
        raise UserError(f"tokenizer '{published['name']}' has {size:,} entries; give the scale vocab: {size}")
    atomic_write(out, published["tokenizer"])


def end_mark(corpus: Path) -> dict:
    """Return which token ends a document: the published tokenizer's name, its mark and that token's number there."""
    published = corpus / PUBLISHED
    about = read_json(published) if published.exists() else {"name": "", "mark": END_TEXT, "id": END_OF_DOCUMENT}
    return {key: about[key] for key in ("name", "mark", "id")}


class ReadTexts(PipelineStep):
    """A task's files of a source, from where training text begins."""

    name, type = "texts", "reader"

    def __init__(self, source: ShardSource, where: str, files: list[str], held_out: dict[str, int]) -> None:
        super().__init__()
        self.source, self.where, self.files, self.held_out = source, where, files, held_out

    def run(self, data: None, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Yield the documents of every `world_size`-th file."""
        for file in self.files[rank::world_size]:
            for text in islice(texts(self.source, f"{self.where}/{file}"), self.held_out.get(file, 0), None):
                yield Document(text, file)


class WriteShard(DocumentTokenizer):
    """A shard per task: tokens, ends of documents next to them, and, last, what it holds and its hash.

    Args:
        limits: bytes of text, by task; it ends with the document that reaches them.
    """

    def __init__(self, folder: Path, source: str, tokenizer: Path, limits: list[float]) -> None:
        super().__init__(
            str(folder), str(tokenizer), shuffle_documents=False, save_final_metadata=False, batch_size=BATCH
        )
        self.folder, self.source, self.limits = folder, source, limits

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The scale's, with an end mark after each document."""
        tokenizer = read_tokenizer(self.tokenizer_name_or_path)
        tokenizer.post_processor = TemplateProcessing("$A <END>", None, [("<END>", END_OF_DOCUMENT)])
        return tokenizer

    def run(self, data: Iterable[Document], rank: int = 0, world_size: int = 1) -> None:
        """Write `source`-`rank`.bin, .bin.index and .json."""
        path, size = self.folder / f"{self.source}-{rank:05d}.bin", 0

        def counted() -> Iterator[Document]:
            nonlocal size
            for document in data:
                size += len(document.text.encode())
                yield document
                if size >= self.limits[rank]:
                    return

        written = self.write_unshuffled(counted(), path.name)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        about = {"name": path.name, "tokens": len(written), "sha256": sha256(path)}
        write_json(path.with_suffix(".json"), {"shard": about, "documents": len(written.doc_ends), "bytes": size})


def encode_texts(
    mix: ShardsMix, found: dict, tokenizer_file: Path, aside: Path, workers: int | None = None, most: int | None = None
) -> list[dict]:
    """Write the training text as shards into a folder, where the same call goes on with what it left.

    Args:
        found: what `write_sample` wrote into files.json.
        workers: tasks at a time; as many as this process has cores where left out.
        most: bytes of text, at most; each task reads as much of them as its files have of all files' bytes.

    Returns:
        Source, shard, documents and bytes of text of each that has tokens.

    Raises:
        UserError: a file can't be read.
    """
    request = {"mix": mix.model_dump(mode="json"), "files": found, "tokenizer": sha256(tokenizer_file), "most": most}
    if not (aside / "request.json").exists() or read_json(aside / "request.json") != request:
        shutil.rmtree(aside, ignore_errors=True)
        write_json(aside / "request.json", request)
    whole = sum(size for about in found.values() for _, size in about["files"])
    parts = []
    for name, about in found.items():
        files = [file for file, _ in about["files"]]
        tasks = min(len(files), TASKS)
        limits = [
            math.inf if most is None else most * sum(size for _, size in about["files"][rank::tasks]) / whole
            for rank in range(tasks)
        ]
        source = mix.sources[name]
        LocalPipelineExecutor(
            [
                ReadTexts(source, root(source, about["revision"]), files, about["held_out"]),
                WriteShard(aside, name, tokenizer_file, limits),
            ],
            tasks=tasks, workers=min(tasks, workers or len(os.sched_getaffinity(0))),
            logging_dir=str(aside / f"{name}.log"),
        ).run()  # fmt: skip
        parts += [{"source": name} | read_json(aside / f"{name}-{rank:05d}.json") for rank in range(tasks)]
    return [part for part in parts if part["shard"]["tokens"]]


def write_shards(mix: ShardsMix, corpus: Path, tokenizer_file: Path, out: Path, workers: int | None = None) -> None:
    """Write token blocks: held-out splits of `corpus`, and the training text in shards.

    What is unfinished lies in `out`.part, and is gone on with where mix, files and tokenizer are the same.

    Args:
        workers: as of `encode_texts`.

    Raises:
        UserError: a file can't be read.
    """
    aside = out.with_name(f"{out.name}.part")
    train = train_index(encode_texts(mix, read_json(corpus.with_name(FILES)), tokenizer_file, aside, workers))
    out.mkdir(parents=True, exist_ok=True)
    for shard in train["shards"]:
        for file in (shard["name"], f"{shard['name']}.index"):
            (out / file).unlink(missing_ok=True)
            os.link(aside / file, out / file)  # what lies aside stays until the index is written
    write_blocks(corpus, tokenizer_file, out, train, {"end_mark": end_mark(corpus.parent)})
    shutil.rmtree(aside)
