"""Tokens a second and core, and peak memory, of writing a large text as shards; killed once and resumed.

`python -m benchmarks.shards FOLDER GIGABYTES` makes so much text from the pinned archives, repeated, each time with the
number of the repetition. It writes shards of a tenth of the text, again with a kill in between, and of all of it.
Seconds are of processors, so that what else runs on the machine counts little.
"""

import json
import multiprocessing
import os
import re
import signal
import sys
import time
from pathlib import Path

from stemrepro.common.files import read_json, sha256, write_json
from stemrepro.config.mixes import ArchiveMix, ShardsMix
from stemrepro.data.archives import fetch
from stemrepro.data.documents import read_documents
from stemrepro.data.shards import list_files, write_sample, write_shards
from stemrepro.data.tokenizer import train_tokenizer

FILES, VOCAB = 20, 8192
SOURCES = ("speeches", "bible", "glosses", "factbook")


def make_text(raw: Path, out: Path, size: float) -> None:
    """Write FILES files of JSON lines, `size` bytes of text together, from archives that are fetched into `raw`."""
    mix = ArchiveMix(kind="archives", sources=SOURCES)
    fetch(mix, raw)
    texts = [document.text for document in read_documents(mix, raw)]
    out.mkdir(parents=True)
    for number in range(FILES):
        done, repetition = 0.0, 0
        with open(out / f"{number:02d}.jsonl", "w", encoding="utf-8") as file:
            while done < size / FILES:
                for text in texts[number::FILES]:
                    file.write(json.dumps({"text": f"Copy {repetition}. {text}"}, ensure_ascii=False) + "\n")
                    done += len(text.encode())
                repetition += 1


def measured(mix: ShardsMix, home: Path, out: Path) -> dict[str, float]:
    """Write shards in this process; return seconds of processors, peak memory in MB and tokens."""
    write_shards(mix, home / "corpus/corpus.parquet", home / "tokenizer.json", out, workers=1)
    tokens = read_json(out / "index.json")["splits"]["train"]["tokens"]
    # Not getrusage's peak, which begins at that of the process that started this one.
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return {"seconds": time.process_time(), "megabytes": int(peak) * 1024 / 1e6, "tokens": tokens}


def _child(mix: ShardsMix, home: Path, out: Path, answer: Path) -> None:
    write_json(answer, measured(mix, home, out))


def prepared(text: Path, home: Path, files: str) -> ShardsMix:
    """Return a mix of the files that match, with its corpus and tokenizer written."""
    source = {"dataset": str(text), "files": files, "licence": "", "attribution": ""}
    mix = ShardsMix(kind="shards", sources={"archives": source}, held_out=1000, sample=10_000)
    list_files(mix, home / "raw")
    write_sample("measured", mix, home / "raw", home / "corpus")
    train_tokenizer(home / "corpus/corpus.parquet", VOCAB, home / "tokenizer.json")
    return mix


def run(mix: ShardsMix, home: Path, name: str, kill_after: int = 0) -> dict[str, float] | None:
    """Write shards in a process of their own, killed when so many tasks have ended."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_child, args=(mix, home, home / name, home / f"{name}.json"))
    process.start()
    marks = home / f"{name}.part/archives.log/completions"
    while process.is_alive():
        process.join(0.2)
        if kill_after and marks.exists() and len(os.listdir(marks)) >= kill_after:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            return None
    return read_json(home / f"{name}.json")


def killed(mix: ShardsMix, home: Path) -> bool:
    """Write a second time, killed when a task has ended; return whether what a resumed process wrote is the same."""
    assert run(mix, home, "again", kill_after=1) is None
    print("resumed", run(mix, home, "again"), flush=True)
    hashes = [{file.name: sha256(file) for file in (home / name).iterdir()} for name in ("blocks", "again")]
    return hashes[0] == hashes[1]


def main() -> None:
    """Measure, and print."""
    home, size = Path(sys.argv[1]), float(sys.argv[2]) * 1e9
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core
    make_text(home / "raw", home / "text", size)
    print(f"text: {sum(file.stat().st_size for file in (home / 'text').iterdir()):,} bytes", flush=True)
    mix = prepared(home / "text", home / "tenth", "0[01].jsonl")
    print("a tenth", run(mix, home / "tenth", "blocks"), flush=True)
    print("killed, the same bytes:", killed(mix, home / "tenth"), flush=True)
    row = run(prepared(home / "text", home / "all", "*"), home / "all", "blocks")
    print("all", row, f"{row['tokens'] / row['seconds']:,.0f} tokens a second and core")


if __name__ == "__main__":
    main()
