"""How long a published model takes to read prompts and to decode, dense and with tables, on this machine's processor.

All are timed in one process, round by round. A round has tokens of its own, of held-out text, and an order of its own.
After a prompt the tokens are the text's and not the model's own, so that all arms read the same rows. The tables are
rows of a converted model (stemrepro.published.converted). An arm's name says which layers read rows, from tables in
memory. Those of `full` also lie in a file that is mapped into memory (stemrepro.published.mapped):

    warm     the page cache holds the rows, and no page of them is mapped so far
    cold     the page cache of the file is empty; both also "-ahead", with a token's rows of all layers asked for first

`product` and `bandwidth` are plain products of a vector and a matrix that no cache holds: with rows as long as the
model's width, and with rows eight times as long.
"""

import copy
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stemrepro.common.progress import track
from stemrepro.common.provenance import provenance
from stemrepro.model.cache import Cache
from stemrepro.model.config import ModelConfig, layers_of
from stemrepro.model.cost import cache_bytes, decode_bytes, parameter_counts, table_bytes_per_token
from stemrepro.model.transformer import Decoder
from stemrepro.published.converted import Rows, convert, rows_of
from stemrepro.published.mapped import Mapped, bytes_from_disk
from stemrepro.published.models import Model, fetch, load, sequences, write_parquet
from stemrepro.published.peers import Turn, Work, peers
from stemrepro.published.premise import HELD_OUT

THREADS = 2
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BATCHES, CONTEXTS = (1, 4, 16), (128, 2048)
ROUNDS, FEW = 12, 3
"""Rounds of decoding one sequence after the shortest context, which claims are about, and of all else."""
STEPS = {128: 8, 2048: 4}
"""Tokens that each sequence decodes in a round."""
LONGEST = 2048
"""Tokens of prompts that are read together at most: beyond, the time of a prefill grows with them."""
MOST = 12e9
"""Bytes that a part may take."""
IN_A_FILE = ("warm", "warm-ahead", "cold", "cold-ahead")
"""Arms whose rows lie in a file. They take part in decoding after the shortest context, as a longer one reads no more
rows, and in one sequence's prefill of it."""
MATRIX = 2**26
"""Elements of the matrix of a plain product, many times a cache."""


@dataclass(frozen=True)
class Part:
    """What is timed together."""

    phase: str
    kind: str
    batch: int
    context: int

    @property
    def name(self) -> str:
        """Its file, without an ending."""
        return f"{self.phase}-{self.kind}-{self.batch}-{self.context}"

    @property
    def rounds(self) -> range:
        """Numbers of its rounds; one below 0 is a warm-up, which a prefill has in the decoding before it."""
        most = ROUNDS if (self.phase, self.batch, self.context) == ("decode", 1, min(CONTEXTS)) else FEW
        return range(-(self.phase == "decode"), most)

    @property
    def passes(self) -> int:
        """Passes of a turn."""
        return 1 if self.phase == "prefill" else STEPS[self.context]


def parts(config: ModelConfig) -> list[Part]:
    """Return what is timed: all that fits LONGEST and, with tables in all layers but the first, MOST."""
    full = replace(config, ffn="stem", replaced_layers=layers_of("full", config.layers))
    tables, weights = parameter_counts(full)["tables"], parameter_counts(config)["active"]
    found = []
    for kind, phase, context, batch in product(TYPES, ("decode", "prefill"), CONTEXTS, BATCHES):
        number = TYPES[kind].itemsize
        cached = 3 * cache_bytes(config, context, batch, number)  # as it grows
        held = number * (tables + 2 * weights + MATRIX) + cached
        if held <= MOST and (phase == "decode" or batch * context <= LONGEST):
            found.append(Part(phase, kind, batch, context))
    return found


class Read(TorchDispatchMode):
    """Counts the bytes that passes read of a decoder's weights and tables, and of keys and values."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.own, self.count = {weight.untyped_storage().data_ptr() for weight in decoder.parameters()}, 0

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if "embedding" in func.name() or "index_select" in func.name():
            self.count += out.nbytes
        elif "attention" in func.name():
            self.count += args[1].nbytes + args[2].nbytes
        elif not func.is_view:
            tensors = [value for value in args if isinstance(value, Tensor)]
            self.count += sum(one.nbytes for one in tensors if one.untyped_storage().data_ptr() in self.own)
        return out


def nothing(_: Tensor) -> None:
    """Do nothing about tokens."""


@dataclass(frozen=True)
class Arm:
    """A decoder of ours; `before` a turn, untimed, and `ahead` of each pass something is done with the tokens."""

    decoder: Decoder
    before: Callable[[Tensor], None] = nothing
    ahead: Callable[[Tensor], None] = nothing

    def _pass(self, tokens: Tensor, cache: Cache) -> Tensor:
        self.ahead(tokens)
        return self.decoder.head(self.decoder.hidden(tokens, cache)[:, -1]).argmax(dim=-1)

    def prefill(self, prompts: Tensor) -> Work:
        """See Turn."""
        self.before(prompts)
        return lambda: self._pass(prompts, Cache(len(self.decoder.blocks)))

    def decode(self, past: Cache, tokens: Tensor) -> Work:
        """See Turn."""
        cache = self._begun(past, tokens)
        return lambda: [self._pass(new, cache) for new in tokens[:, 1:].split(1, dim=1)]

    def _begun(self, past: Cache, tokens: Tensor) -> Cache:
        cache = Cache(len(past.layers))
        assert past.tokens is not None, "the past is empty"
        cache.extend(past.tokens.repeat(len(tokens), 1))
        for mine, its in zip(cache.layers, past.layers, strict=True):
            assert its.keys is not None, "the past is empty"
            assert its.values is not None, "the past is empty"
            mine.extend(*(each.repeat(len(tokens), 1, 1, 1) for each in (its.keys, its.values)))
        self._pass(tokens[:, :1], cache)
        self.before(tokens[:, 1:])
        return cache

    def bytes_read(self, past: Cache, tokens: Tensor) -> int:
        """Return the bytes that a pass reads over the second of the tokens [batch, n]."""
        cache = self._begun(past, tokens)
        with Read(self.decoder) as read:
            self._pass(tokens[:, 1:2], cache)
        return read.count


@dataclass(frozen=True)
class Product:
    """A plain product of a matrix and a vector in a pass's place."""

    matrix: Tensor

    def prefill(self, prompts: Tensor) -> None:
        """Return None: a prefill is no product of a vector."""

    def decode(self, past: Cache, tokens: Tensor) -> Work:
        """Return as many products as passes."""
        vector = torch.ones(1, self.matrix.shape[1], dtype=self.matrix.dtype)
        return lambda: [F.linear(vector, self.matrix) for _ in range(tokens.shape[1] - 1)]


class Stored(Rows):
    """Rows of every token that were made before."""

    def __init__(self, tables: Mapping[int, Tensor]) -> None:
        self.tables = tables

    def at(self, layer: int, tokens: Tensor) -> Tensor:
        """Return the table of a layer; the tokens are all that there are."""
        return self.tables[layer]


def retyped(model: Model, dtype: torch.dtype) -> Model:
    """Return a model with weights of another type, or the same model."""
    own = model.decoder.head.weight.dtype == dtype
    return model if own else replace(model, decoder=copy.deepcopy(model.decoder).to(dtype))


def arms(model: Model, tables: Mapping[int, Tensor], mapped: Mapped) -> dict[str, Arm]:
    """Return dense and STEM by name; `tables` by layer, of all but the first, and `mapped`, the same in a file."""
    found = {"dense": Arm(model.decoder)}
    for name in ("third", "half", "full"):
        layers = layers_of(name, model.decoder.config.layers)
        found[name] = Arm(convert(model, Stored(tables), layers, model.decoder.head.weight.dtype))
    other = convert(model, Stored(dict(zip(tables, mapped.tables, strict=True))), layers, mapped.tables[0].dtype)
    for name, before in (("warm", mapped.warm), ("cold", lambda _: mapped.cool())):
        found |= {name: Arm(other, before), f"{name}-ahead": Arm(other, before, mapped.ask)}
    return found


@torch.inference_mode()
def timed(part: Part, turns: Mapping[str, Turn], model: Model, text: Tensor) -> pd.DataFrame:
    """Time a part, of a text whose first tokens are the past, and of which each round takes its own.

    Returns:
        round, arm, seconds of a pass, disk: bytes that it read from there. Of our arms in decoding, else 0: bytes that
        a pass reads in closed form, rows: those of table rows among them, and counted: what a count gives.
    """
    past = Cache(model.decoder.config.layers)
    model.decoder.hidden(text[None, : part.context], past)
    if part.context > min(CONTEXTS) or (part.phase == "prefill" and part.batch > 1):
        turns = {name: turn for name, turn in turns.items() if name not in IN_A_FILE}
    out, length = [], part.passes + 1 if part.phase == "decode" else part.context
    read = dict.fromkeys(turns, (0, 0, 0))
    for number in track(part.rounds, part.name):
        first = (number + 1) * part.batch * length
        tokens = text[torch.arange(first, first + part.batch * length) % len(text)].view(part.batch, length)
        for arm in random.Random(number).sample(list(turns), len(turns)):
            turn = turns[arm]
            work = turn.prefill(tokens) if part.phase == "prefill" else turn.decode(past, tokens)
            if work is None:
                continue
            disk, start = bytes_from_disk(), time.perf_counter()
            work()
            seconds, disk = time.perf_counter() - start, bytes_from_disk() - disk
            if number < 0 and part.phase == "decode" and isinstance(turn, Arm):
                shape, kind = turn.decoder.config, TYPES[part.kind].itemsize
                closed = decode_bytes(shape, part.context + 2, part.batch, kind)
                read[arm] = closed, part.batch * table_bytes_per_token(shape, kind), turn.bytes_read(past, tokens)
            elif isinstance(turn, Product):
                read[arm] = turn.matrix.nbytes, 0, turn.matrix.nbytes
            if number >= 0:
                out.append((number, arm, seconds / part.passes, disk / part.passes, *read[arm]))
    return pd.DataFrame(out, columns=["round", "arm", "seconds", "disk", "bytes", "rows", "counted"])


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _turns(name: str, model: Model, tables: Mapping[int, Tensor], mapped: Mapped) -> dict[str, Turn]:
    config, dtype = model.decoder.config, model.decoder.head.weight.dtype
    matrix, found = torch.ones(MATRIX, dtype=dtype), {**arms(model, tables, mapped), **peers(fetch(name), dtype)}
    for product_of, width in (("product", config.width), ("bandwidth", 8 * config.width)):
        found[product_of] = Product(matrix[: MATRIX // width * width].view(-1, width))
    return found


def make(name: str, corpus: Path, rows: Path, out: Path) -> None:
    """Write times.<part>.parquet for each part that isn't there; the mapped file lies next to `rows` meanwhile."""
    model, about = load(name), provenance()
    origin = {"machine": about["machine"], "date": about["date"], "threads": THREADS, "torch": torch.__version__}
    config = model.decoder.config
    text = torch.from_numpy(np.concatenate(sequences(model, corpus, "validation", HELD_OUT)["tokens"].tolist())).long()
    tables: dict[int, Tensor] = {}
    with _threads(THREADS), torch.no_grad():
        for kind, dtype in TYPES.items():
            files = {part: out / f"times.{part.name}.parquet" for part in parts(config) if part.kind == kind}
            todo = {part: file for part, file in files.items() if not file.exists()}
            if not todo:
                continue
            if not tables:
                means, every = rows_of(model, rows), torch.arange(config.vocab)
                tables = {layer: means.at(layer, every) for layer in track(range(1, config.layers), "tables")}
                del means
            for layer in tables:
                tables[layer] = tables[layer].to(dtype)
            typed = retyped(model, dtype)
            with (
                tempfile.TemporaryDirectory(dir=rows.parent) as aside,
                closing(Mapped(Path(aside) / "tables", list(tables.values()))) as mapped,
            ):
                turns = _turns(name, typed, tables, mapped)
                for part, file in todo.items():
                    write_parquet(file, timed(part, turns, typed, text).assign(**vars(part), **origin))
                del turns, mapped  # with the last of them the file is gone
