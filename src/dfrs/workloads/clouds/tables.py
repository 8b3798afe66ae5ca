"""Tables of text, block by block as typed columns: CSV, and JSON lines as BigQuery exports them.

Whole files of these traces have hundreds of millions of lines. So a file is read in blocks, and whoever reads it keeps
of each block only what it needs, in columns. A value that breaks its rule is an error that names file, line, field,
value and rule: these files are written by programs, so a wrong one is another file, or only a part of one.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from dfrs.model.errors import InputError
from dfrs.model.instance import Ints
from dfrs.workloads.swf import blocks

SHOWN = 40
"""Characters of a wrong value that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A field of a table, and what is allowed in it."""

    name: str
    """In JSON, a.b is field b of the object a."""
    dtype: type[pl.DataType] = pl.Int64
    needed: bool = False
    """Whether it must have a value."""
    least: float = -np.inf
    most: float = np.inf
    values: tuple[str, ...] = ()
    """The only texts that are allowed, if any."""
    also: tuple[str, ...] = ()
    """Other names that it may have, as columns of a query's result have them."""

    @property
    def names(self) -> tuple[str, ...]:
        """All that it may be called."""
        return self.name, *self.also

    @property
    def rule(self) -> str:
        """What a value must be."""
        if self.values:
            return f"one of {', '.join(self.values)}"
        kinds: dict[type[pl.DataType], str] = {pl.Int64: "a whole number", pl.Float64: "a finite number"}
        kind = kinds.get(self.dtype, "a text")
        if self.most < np.inf:
            return f"{kind} from {self.least:g} to {self.most:g}"
        return kind if self.least == -np.inf else f"{kind} of at least {self.least:g}"


def first_line(path: Path) -> str:
    """What a file, gzip or plain, begins with, up to the first end of a line. Raises InputError where it is no text."""
    for block, numbers in _lines(path):
        return _decoded(f"{path}:{numbers[0]}", block.partition(b"\n")[0])
    return ""


def csv_frames(path: Path, columns: Sequence[Column], *, header: bool) -> Iterator[pl.DataFrame]:
    """Blocks of a CSV file, gzip or plain: `columns`, null where a field is empty, and `line`.

    With `header` columns are found by their names, and columns that are not needed may be missing; without, the file
    has exactly `columns`. Raises InputError naming file, line, field, value and rule.
    """
    places = {} if header else {column.name: k for k, column in enumerate(columns)}
    fields = len(places)
    for block, lines in _lines(path):
        rest, numbers = block, lines
        if not places:
            first, _, rest = block.partition(b"\n")
            places, fields = _header(f"{path}:{lines[0]}", first, columns)
            numbers = lines[1:]
        if len(numbers):
            texts = _csv(path, rest, numbers, fields)
            yield _typed(path, texts.select(pl.nth(k).alias(name) for name, k in places.items()), numbers, columns)


def json_frames(path: Path, columns: Sequence[Column]) -> Iterator[pl.DataFrame]:
    """Blocks of a file of JSON lines, gzip or plain, as `csv_frames` of a CSV file; fields may be missing."""
    for block, numbers in _lines(path):
        yield _typed(path, _json(path, block, numbers, columns), numbers, columns)


def _lines(path: Path) -> Iterator[tuple[bytes, Ints]]:
    """Lines that are not blank, without the last one's end, and their numbers."""
    line = 1
    for read in blocks(path):
        block = read.replace(b"\r\n", b"\n").removesuffix(b"\n")
        if line == 1:
            block = block.removeprefix(b"\xef\xbb\xbf")
        pieces = block.count(b"\n") + 1
        numbers = np.arange(line, line + pieces)
        line += pieces
        if not block or b"\n\n" in block or block.startswith(b"\n") or block.endswith(b"\n"):
            whole = block.split(b"\n")
            kept = [k for k, piece in enumerate(whole) if piece]
            block, numbers = b"\n".join(whole[k] for k in kept), numbers[kept]
        if len(numbers):
            yield block, numbers


def _header(where: str, line: bytes, columns: Iterable[Column]) -> tuple[dict[str, int], int]:
    """Where in a line each of `columns` that the header names is, and how many fields a line has."""
    names = [name.strip() for name in next(csv.reader([_decoded(where, line)]))]
    places: dict[str, int] = {}
    for column in columns:
        at = [k for k, name in enumerate(names) if name in column.names]
        if len(at) > 1:
            raise InputError(f"{where}: columns {names[at[0]]} and {names[at[1]]}: must be one of them")
        if at:
            places[column.name] = at[0]
        elif column.needed:
            raise InputError(f"{where}: no column {' or '.join(column.names)}: must have one")
    return places, len(names)


def _csv(path: Path, block: bytes, numbers: Ints, fields: int) -> pl.DataFrame:
    """The fields of a block, all texts. Raises InputError where a line has another number of them."""
    quoted = b'"' in block
    for number, line in zip(numbers, block.split(b"\n"), strict=True):
        found = len(next(csv.reader([_decoded(f"{path}:{number}", line)]))) if quoted else line.count(b",") + 1
        if found != fields:
            raise InputError(f"{path}:{number}: {found} fields: must be {fields}")
    try:
        frame = pl.read_csv(
            io.BytesIO(block),
            has_header=False,
            schema={str(k): pl.String for k in range(fields)},
            quote_char='"' if quoted else None,
        )
    except pl.exceptions.PolarsError:
        frame = None
    if frame is None or frame.height != len(numbers):
        for number, line in zip(numbers, block.split(b"\n"), strict=True):
            _decoded(f"{path}:{number}", line)
        raise InputError(f"{path}:{numbers[0]}: a quote that is not closed in its line, from here on: must be CSV")
    return frame


def _decoded(where: str, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte {error.start}: not UTF-8 text") from None


def _object(where: str, line: bytes) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: {_decoded(where, line)[:SHOWN]!r}: is no JSON: must be an object") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: {_decoded(where, line)[:SHOWN]!r}: must be a JSON object")
    return value


def _json(path: Path, block: bytes, numbers: Ints, columns: Sequence[Column]) -> pl.DataFrame:
    """The fields of a block, all texts. Raises InputError where a line is no JSON object."""
    schema: dict[str, pl.DataType] = {name: pl.String() for column in columns for name in column.names}
    inside = [column.name.split(".") for column in columns if "." in column.name]
    for outer in {outer for outer, _ in inside}:
        schema[outer] = pl.Struct({inner: pl.String for of, inner in inside if of == outer})
    try:
        frame = pl.read_ndjson(io.BytesIO(block), schema=schema)
    except pl.exceptions.PolarsError:
        frame = None
    if frame is not None and frame.height == len(numbers):
        return frame.select(
            pl.coalesce(
                *(pl.col(name) for name in column.names),
                *(pl.col(outer).struct.field(inner) for outer, inner in inside if f"{outer}.{inner}" == column.name),
            ).alias(column.name)
            for column in columns
        )
    # Slowly, line by line, to name the one that is wrong.
    rows = [_object(f"{path}:{number}", line) for number, line in zip(numbers, block.split(b"\n"), strict=True)]
    return pl.DataFrame(
        {column.name: [_text(row, column) for row in rows] for column in columns},
        schema={column.name: pl.String for column in columns},
    )


def _text(row: dict[str, object], column: Column) -> str | None:
    """The field as a text, whether it was a number or, as BigQuery writes whole numbers, a text already."""
    outer, _, inner = column.name.partition(".")
    nested = row.get(outer)
    values = [row.get(name) for name in column.names]
    values.append(nested.get(inner) if inner and isinstance(nested, dict) else None)
    value = next((value for value in values if value is not None), None)
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _typed(path: Path, frame: pl.DataFrame, numbers: Ints, columns: Iterable[Column]) -> pl.DataFrame:
    found = {"line": pl.Series("line", numbers, dtype=pl.Int64)}
    for column in columns:
        if column.name not in frame.columns:
            found[column.name] = pl.Series(column.name, [None], dtype=column.dtype).new_from_index(0, frame.height)
            continue
        texts = frame[column.name]
        texts = texts.set(texts == "", None)
        values = texts.cast(column.dtype, strict=False)
        bad = values.is_null() & (texts.is_not_null() | column.needed)
        if column.values:
            bad |= ~texts.is_in(column.values).fill_null(True)
        elif column.least > -np.inf:
            bad |= ~values.is_between(column.least, column.most).fill_null(True)
        if column.dtype == pl.Float64:
            bad |= ~values.is_finite().fill_null(True)
        if bad.any():
            k = int(bad.arg_true()[0])
            shown = "" if texts[k] is None else ascii(texts[k][:SHOWN])[1:-1]
            raise InputError(f'{path}:{numbers[k]}: {column.name} = "{shown}": must be {column.rule}')
        found[column.name] = values
    return pl.DataFrame(found)
