"""The score tables: scores/<scale>/<table>.parquet, with a row of protocol.parquet for each arm and kind that is whole.

Anybody can read a table by `pandas.read_parquet`. Every table has the columns `variant` and `arm`, then those that
stemrepro.config.scores.SCORE_KINDS names. An arm's row of protocol goes before its lines change, and comes back after
the last of them is written. So whatever was killed in between, an arm with a row of protocol has all its lines.
"""

from __future__ import annotations

import io
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, damaged
from stemrepro.config.address import Address
from stemrepro.config.scores import SCORE_KINDS, Column, Table

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("variant", "arm")
PROTOCOL = "protocol"
PROTOCOL_TABLE: Table = {"kind": Column("text", key=True), "key": Column("text"), "about": Column("text")}
"""`key` is a hash of all that the lines follow from; `about` is JSON: hashes, seeds, costs, and how many lines there
are."""
TABLES = {PROTOCOL: PROTOCOL_TABLE} | {
    name: table for kind in SCORE_KINDS.values() for name, table in kind.tables.items()
}
KINDS_OF_NUMBERS = {"text": "OSU", "whole": "iu", "number": "fiu", "flag": "b"}
"""numpy's kinds of a column."""


def _rows(frame: pd.DataFrame, wrong: pd.Series) -> str:
    """Name the first row that is wrong: its number in the file, variant, arm and seed."""
    number = int(np.flatnonzero(wrong)[0])
    row = frame.iloc[number]
    seed = f", seed {row['seed']}" if "seed" in frame else ""
    return f"row {number} ({Address(row['variant'], row['arm'])}{seed})"


def _fault(frame: pd.DataFrame, table: Table) -> str:
    """Return why a frame isn't what a table may hold, or ""."""
    if missing := [name for name in (*PLACE, *table) if name not in frame]:
        return f"no column '{missing[0]}'"
    if frame.empty:  # its columns may have no kind yet
        return ""
    for name, column in table.items():
        values = frame[name]
        if values.dtype.kind not in KINDS_OF_NUMBERS[column.kind]:
            return f"column '{name}' holds no {column.kind}s but {values.dtype}"
        if (gaps := values.isna()).any():
            return f"{_rows(frame, gaps)}: '{name}' is empty or NaN"
        if column.kind not in ("whole", "number"):
            continue
        most = frame[column.most] if isinstance(column.most, str) else column.most
        if (wrong := ~((values >= column.least) & (values <= most) & np.isfinite(values))).any():
            bound = f"'{column.most}'" if isinstance(column.most, str) else f"{column.most:g}"
            value = values[wrong].iloc[0]
            return f"{_rows(frame, wrong)}: '{name}' is {value:g}; it goes from {column.least:g} up to {bound}"
    keys = [*PLACE, *(name for name, column in table.items() if column.key)]
    twice = frame.duplicated(keys)
    return f"{_rows(frame, twice)} stands there twice" if twice.any() else ""


def checked(path: Path, frame: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Return the columns of a table, in order.

    UserError, with file, row and reason, where a column is missing or of another kind, a number can't be what it should
    count, or a line stands there twice.
    """
    if fault := _fault(frame, table):
        raise damaged(path, fault)
    return frame[[*PLACE, *table]]


def _load(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read a table, or some columns of it, unchecked."""
    import pandas as pd  # a third of a second that reading recipes can do without

    try:
        return pd.read_parquet(path, columns=columns)
    except Exception as error:  # pyarrow and the system have many of their own
        raise damaged(path, error) from error


def _stamped(path: Path) -> tuple[Path, int, int]:
    """Return what tells a file's content from that of another time."""
    try:
        stat = path.stat()
    except OSError as error:
        raise damaged(path, error) from error
    return path.resolve(), stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=128)
def _read(stamped: tuple[Path, int, int]) -> tuple[pd.DataFrame, dict[tuple[str, str], np.ndarray]]:
    """Return a table, and the numbers of the rows of each variant and arm."""
    path = stamped[0]
    frame = checked(path, _load(path), TABLES[path.stem])
    return frame, {place: np.asarray(rows) for place, rows in frame.groupby(list(PLACE), sort=False).indices.items()}


Known = dict[tuple[str, str, str], tuple[str, dict[str, Any]]]


@lru_cache(maxsize=128)
def _protocol(stamped: tuple[Path, int, int]) -> Known:
    frame, _ = _read(stamped)
    try:
        rows = zip(frame["kind"], frame["variant"], frame["arm"], frame["key"], frame["about"], strict=True)
        return {(kind, variant, arm): (key, {**json.loads(about)}) for kind, variant, arm, key, about in rows}
    except (ValueError, TypeError) as error:
        raise damaged(stamped[0], f"an 'about' is no JSON object: {error}") from error


def protocol(folder: Path) -> Known:
    """Return the key and what else is known of all scores in scores/<scale>, by kind, variant and arm."""
    path = folder / f"{PROTOCOL}.parquet"
    return _protocol(_stamped(path)) if path.exists() else {}


def key_of(folder: Path, kind: str, address: Address) -> str | None:
    """Return the key of an arm's scores; None where it has none, or a file of its lines is gone."""
    key, about = protocol(folder).get((kind, address.variant, address.arm), (None, {}))
    files = [folder / f"{name}.parquet" for name, count in about.get("lines", {}).items() if count]
    return key if all(file.exists() for file in files) else None


def scored(folder: Path, kind: str) -> list[Address]:
    """Return the arms that have scores of a kind."""
    return [Address(variant, arm) for of, variant, arm in protocol(folder) if of == kind]


def with_losses(folder: Path) -> list[Address]:
    """Return the arms with validation losses: others have losses by step alone, or all their runs diverged."""
    return [at for at in scored(folder, "losses") if about(folder, "losses", at)["lines"].get("losses")]


def about(folder: Path, kind: str, address: Address) -> dict[str, Any]:
    """Return what is known of an arm's scores: hashes, seeds, costs, means; UserError where it has none."""
    known = protocol(folder)
    if (kind, address.variant, address.arm) not in known:
        if not known:
            raise damaged(folder / f"{PROTOCOL}.parquet", f"no {kind} of {address}")
        remedy = f"'make reproduce SCALE={folder.name}' trains and scores what lacks"
        raise UserError(f"{folder / PROTOCOL}.parquet has no {kind} of {address}; {remedy}")
    return known[kind, address.variant, address.arm][1]


def lines(folder: Path, kind: str, address: Address, name: str) -> pd.DataFrame:
    """Return an arm's lines of a table, without variant and arm; UserError unless they are those that were written."""
    written = about(folder, kind, address).get("lines", {}).get(name, 0)
    path = folder / f"{name}.parquet"
    if not written:
        raise UserError(f"{path} has nothing of {address}; no recipe asked for it, or all its runs diverged")
    frame, places = _read(_stamped(path))
    rows = places.get((address.variant, address.arm), ())
    if len(rows) != written:
        raise damaged(path, f"of {address} {len(rows)} lines are there, and {written} were written")
    return frame.iloc[rows].drop(columns=list(PLACE)).reset_index(drop=True)


def _replace(path: Path, address: Address, new: pd.DataFrame | None, kind: str = "") -> None:
    """Write a table with new lines, or none, in place of an arm's; of the protocol in place of its row of a kind.

    The new ones are checked already, and the others before they are written again. Nothing is remembered: a version per
    arm would fill the memory.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [] if new is None else [new]
    if path.exists():
        places = _load(path, [*PLACE, "kind"] if kind else [*PLACE])
        gone = (places["variant"] == address.variant) & (places["arm"] == address.arm)
        if kind:
            gone &= places["kind"] == kind
        if new is None and not gone.any():
            return
        parts.insert(0, checked(path, _load(path), TABLES[path.stem])[~gone])
    if not parts:
        return
    filled = [frame[[*PLACE, *TABLES[path.stem]]] for frame in parts if len(frame)] or parts[:1]
    order = [*PLACE, "kind"] if kind else [*PLACE]
    whole = pd.concat(filled).sort_values(order, kind="stable", ignore_index=True)
    texts = [name for name in whole if whole[name].dtype.kind == "O"]
    # The bytes of numbers side by side make a file a tenth smaller, at a quarter of the time of a higher level.
    numbers = {name: "BYTE_STREAM_SPLIT" for name in whole if whole[name].dtype.kind == "f"}
    table, buffer = pa.Table.from_pandas(whole, preserve_index=False).replace_schema_metadata(None), io.BytesIO()
    pq.write_table(
        table, buffer, compression="zstd", compression_level=3, use_dictionary=texts, column_encoding=numbers
    )
    atomic_write(path, buffer.getvalue())


def write(
    folder: Path, kind: str, address: Address, key: str, about: dict[str, Any], tables: dict[str, pd.DataFrame]
) -> None:
    """Replace an arm's lines of a kind, all or nothing: its row of protocol goes first and comes last.

    The caller holds the lock of the folder, scores/<scale>. Equal scores give equal bytes, in whichever order arms are
    written. Protocol.parquet says `about`, and the numbers of lines. `tables` are some or all of the kind's, with its
    columns or more. UserError, and nothing is written, where a number can't be a score.
    """
    import pandas as pd

    place, schema = dict(zip(PLACE, (address.variant, address.arm), strict=True)), SCORE_KINDS[kind].tables
    new = {name: frame.assign(**place) for name, frame in tables.items()}
    for name, frame in new.items():
        if fault := _fault(frame, schema[name]):
            raise UserError(f"{folder / name}.parquet gets no such line: {fault}; the weights or the text are damaged")
    top = folder / f"{PROTOCOL}.parquet"
    _replace(top, address, None, kind)
    for name in schema:
        _replace(folder / f"{name}.parquet", address, new.get(name))
    told = about | {"lines": {name: len(frame) for name, frame in new.items()}}
    row = place | {"kind": kind, "key": key, "about": json.dumps(told, sort_keys=True)}
    _replace(top, address, pd.DataFrame([row]), kind)
