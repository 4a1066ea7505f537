"""Speed against peers and limits: one table, docs/performance.csv, which docs/performance.md explains.

    python -m benchmarks.peers [--out docs/performance.csv]
    python -m benchmarks.peers --quick

What is compared is timed in turns in one process with two threads. Weights are random and text is the vendored sample,
so that nothing need be prepared. A row has medians over rounds and a 95% interval of their ratio. litgpt and FBGEMM are
peers where they are installed (pip install --no-deps litgpt fbgemm-gpu-cpu==1.8.0).

--quick takes few rounds of small models, compiles none and writes nothing unless --out says where: does it run? What a
GPU sustains is benchmarks/gpu_speed.py's.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import peer_embedding, peer_gather, peer_host_tables, peer_scoring, peer_update, peer_vocabulary
from benchmarks.interleaved import Row
from benchmarks.peer_training import Steps
from benchmarks.runs import as_a_worker
from stemrepro.common.files import atomic_write
from stemrepro.common.progress import bar, duration
from stemrepro.common.provenance import provenance
from stemrepro.config.catalog import Catalog
from stemrepro.config.mixes import SampleMix
from stemrepro.data.archives import fetch
from stemrepro.data.corpus import build_corpus
from stemrepro.data.encoding import write_blocks
from stemrepro.data.tokenizer import train_tokenizer
from stemrepro.measures.catalog import load
from stemrepro.training.compiling import compiler_works

THREADS = 2
OUT = Path("docs/performance.csv")
PACKAGES = ("torch", "transformers", "litgpt", "lm-eval", "fbgemm-gpu-cpu")
WIDE = {"layers": 8}
"""What the models of width 256 have other than the scale gpu."""
VOCAB = 512
"""Of the sample's tokenizer."""
ROUNDS_LEAST = 6
"""Of --quick."""


@dataclass(frozen=True)
class Part:
    """One measurement.

    Attributes:
        rounds: its length.
        seconds: about how many it takes; the estimate adds them up.
        rows: makes its rows; called with what is to be called after every round.
    """

    name: str
    rounds: int
    seconds: float
    rows: Callable[[Callable[[], None]], list[Row]]


@contextmanager
def prepared() -> Iterator[Path]:
    """Give a temporary folder with corpus/ and blocks/ of the vendored sample.

    It also has what an export of a run reads.
    """
    with tempfile.TemporaryDirectory() as name:
        home, mix = Path(name), SampleMix(kind="sample")
        for folder in (home / "data/tiny", home / "results/tiny"):
            folder.mkdir(parents=True)
        fetch(mix, home / "raw")
        build_corpus("sample", mix, home / "raw", home / "corpus")
        train_tokenizer(home / "corpus/corpus.parquet", VOCAB, home / "data/tiny/tokenizer.json")
        write_blocks(home / "corpus/corpus.parquet", home / "data/tiny/tokenizer.json", home / "blocks")
        (home / "results/tiny/data_card.md").write_text("The vendored sample.\n", encoding="utf-8")
        yield home


def shaped(catalog: Catalog, scale: str, home: Path, size: tuple[int, int], device: str = "cpu", **model: int) -> Steps:
    """Return steps at a scale, with other fields of its shape, on batches of `size` sequences and tokens."""
    settings = catalog.scale(scale)
    name = f"width {model.get('width', settings.model.width)}"
    settings = settings.model_copy(update={"model": settings.model.model_copy(update=model | {"sequence": size[1]})})
    return Steps(catalog, settings, name, home / "blocks", *size, device)


def on_cpu(catalog: Catalog, home: Path, quick: bool) -> list[Part]:
    """Return all measurements."""
    small = {"vocab": VOCAB, "width": 32, "layers": 3, "heads": 2, "kv_heads": 1, "ffn_width": 48}
    laptop = shaped(catalog, "laptop", home, (2, 32) if quick else (8, 128), **small if quick else {})
    larger = shaped(catalog, "gpu", home, (2, 32) if quick else (4, 256), **small | {"width": 64} if quick else WIDE)
    tables = {"vocab": 8192, "width": 128, "layers": 6, "heads": 4, "kv_heads": 2, "ffn_width": 352}
    tall = shaped(catalog, "laptop", home, (2, 32) if quick else (4, 128), **small if quick else tables)
    scored = shaped(catalog, "laptop", home, (8, 128), **small if quick else {"vocab": VOCAB})
    read = shaped(catalog, "gpu", home, (4, 256), **small if quick else WIDE | {"vocab": VOCAB})
    sizes = tuple(tall.scale.model.vocab * 2**doubling for doubling in range(5))
    gather = (4096, 64, 512) if quick else (32000, 2560, 16384)  # a table of the paper's 350M
    often = (lambda _: ROUNDS_LEAST) if quick else (lambda rounds: rounds)

    def steps(at: Steps, compile: bool, rounds: int, seconds: float) -> Part:
        kind = "compiled" if compile else "eager"
        return Part(
            f"steps at {at.name}, {kind}", often(rounds), seconds, lambda tick: at.rows(compile, often(rounds), tick)
        )

    parts = [steps(laptop, False, 60, 12), steps(larger, False, 12, 45)]
    if compiles := not quick and compiler_works("cpu"):
        parts.append(steps(laptop, True, 60, 100))
    rounds = {
        "products": often(9),
        "vocabulary": often(15),
        "scoring": often(9),
        "gather": often(30),
        "moved": often(20),
        "looked up": often(20),
        "host": often(30),
    }
    parts += [
        Part("products in a step", 2 * rounds["products"], 10,
             lambda tick: [at.products(rounds["products"], tick) for at in (laptop, larger)]),
        Part("rows of the tables", rounds["vocabulary"], 60,
             lambda tick: peer_vocabulary.measure(tall, sizes, rounds["vocabulary"], tick)),
        Part("scoring", 2 * rounds["scoring"], 40,
             lambda tick: peer_scoring.measure(scored, home, 16 if quick else 512, 64, rounds["scoring"], tick)),
        Part("gather", 2 * rounds["gather"], 15,
             lambda tick: peer_gather.measure(*gather, rounds["gather"], tick, "cpu")),
        Part("rows moved", rounds["moved"], 20,
             lambda tick: peer_update.measure(gather[0], gather[1], gather[2] // 4, rounds["moved"], tick)),
        Part("rows looked up", 2 * rounds["looked up"], 20,
             lambda tick: peer_embedding.measure(gather[0], gather[1], gather[2] // 4, rounds["looked up"], tick)),
        Part("tables in host memory", 2 * rounds["host"], 60,
             lambda tick: peer_host_tables.measure(read, 128, rounds["host"], tick)),
    ]  # fmt: skip
    if not compiles:
        why = "--quick compiles nothing" if quick else "no compiler works here"
        parts.append(Part("compiled", 1, 0, lambda tick: laptop.left_out(why)))
    return parts


def measured(parts: list[Part]) -> list[Row]:
    """Return the rows of all parts, shown while they come."""
    rows: list[Row] = []
    with bar("measured", sum(part.seconds for part in parts)) as shown:
        for part in parts:
            rows += part.rows(lambda part=part: shown.update(part.seconds / part.rounds))
    return rows


def origin() -> dict[str, str | int | float]:
    """Return the columns of every row about its origin."""
    about, versions = provenance(), {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "command": " ".join(["python -m benchmarks.peers", *sys.argv[1:]]),
        "machine": about["machine"],
        "threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": ", ".join(f"{package} {number}" for package, number in versions.items()),
        "commit": about["commit"],
        "date": about["date"],
    }


def written(rows: list[Row], about: dict[str, str | int | float]) -> pd.DataFrame:
    """Return the table that is committed."""
    return pd.DataFrame([asdict(row) | about for row in rows])


def printed(rows: list[Row]) -> Table:
    """Return the table that is shown."""
    names = [field.name for field in fields(Row) if field.name != "note"]
    table = Table(*(name.replace("_", " ") for name in names))
    for row in rows:
        values = asdict(row)
        table.add_row(
            *(
                "" if values[n] is None else f"{values[n]:.4g}" if isinstance(values[n], float) else str(values[n])
                for n in names
            )
        )
    return table


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or (None if options.quick else OUT)
    as_a_worker()
    warnings.simplefilter("ignore")
    torch.set_num_threads(THREADS)
    catalog, about = load(), origin()
    with prepared() as home:
        parts = on_cpu(catalog, home, options.quick)
        print(
            f"about {duration(sum(part.seconds for part in parts))} on two cores of an AMD EPYC, "
            "longer when other work runs"
        )
        rows = measured(parts)
    Console(width=200).print(printed(rows))
    if out:
        atomic_write(out, written(rows, about).to_csv(index=False, float_format="%.6g"))
        print(f"written: {out}")


if __name__ == "__main__":
    main()
