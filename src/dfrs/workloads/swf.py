"""Traces in the Standard Workload Format, version 2.2: `;` comments, then one job a line in 18 fields, gzip or plain.

Archives hold hundreds of thousands of jobs and a few lines that are not as they should be. So a file is read in
blocks: one that is all numbers goes through NumPy in one call; only another is looked at line by line, and every line
that breaks a rule is dropped and reported with its number. Rules about a job's meaning (no run time, more processors
than the machine has) are those of `dfrs.workloads.annotate`: here a job is kept as the file has it.
"""

import gzip
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Self

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.writing import write_bytes
from dfrs.workloads.trace_warnings import SHOWN, Example, TraceReport, TraceWarning, trace_warning

BLOCK_BYTES = 2**20
SMALL_BLOCK_BYTES = 2**11
LONGEST_LINE_BYTES = 2**16
LARGEST_WHOLE = 2**53
"""Up to here a double tells whole numbers apart."""

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PLAIN = b"0123456789+-.eE \t\r\n"
_HEADER = re.compile(r"\s*([A-Za-z]\w*):(?:\s+(.*)|$)")
_WHOLE = {"job_id", "processors", "requested_processors", "status", "user", "group"} | {
    "executable",
    "queue",
    "partition",
    "preceding",
}
_PARTIAL = (2, 3, 4)
CANCELLED_STATUS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Swf:
    """J jobs by time of submission (ties in the order given); the 18 fields as read-only columns, -1 where unknown.

    Raises InputError, naming job, value and rule, where columns differ in length, a value is not finite, a
    submission time is negative or a job's number stands twice.
    """

    job_id: Ints
    submit_s: Floats
    wait_s: Floats
    run_s: Floats
    processors: Ints
    """(J,) allocated."""
    cpu_s: Floats
    """(J,) mean CPU time used, per processor."""
    used_kb: Floats
    """(J,) mean memory used, per processor."""
    requested_processors: Ints
    requested_s: Floats
    """(J,) the user's estimate of the run time."""
    requested_kb: Floats
    """(J,) memory asked for, per processor."""
    status: Ints
    """(J,) 1 completed, 0 failed, 5 cancelled; 2, 3, 4 a part of a job that was interrupted."""
    user: Ints
    group: Ints
    executable: Ints
    queue: Ints
    partition: Ints
    preceding: Ints
    """(J,) number of the job that had to end before this one was submitted."""
    think_s: Floats
    """(J,) seconds between that end and this submission."""
    comments: tuple[str, ...] = ()
    """Lines of the header, without the `;`."""
    name: str = ""
    line: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """(J,) where each job stood in its file; 0 where it was in none."""
    report: TraceReport = field(default_factory=TraceReport)

    def __post_init__(self) -> None:
        jobs = len(self.job_id)
        if not len(self.line):
            object.__setattr__(self, "line", np.zeros(jobs, np.int64))
        for label in (*COLUMNS, "line"):
            dtype = np.int64 if label in _WHOLE or label == "line" else np.float64
            column = np.array(getattr(self, label), dtype=dtype)
            if column.shape != (jobs,):
                raise InputError(f"{label}: {len(column)} values for {jobs} jobs")
            self._check(label, column, ~np.isfinite(column), "must be finite")
            object.__setattr__(self, label, column)
        self._check("submit_s", self.submit_s, self.submit_s < 0, "must be at least 0")
        self._check("job_id", self.job_id, repeated(self.job_id), "must be unique")
        if (np.diff(self.submit_s) < 0).any():
            order = np.argsort(self.submit_s, kind="stable")
            for label in (*COLUMNS, "line"):
                object.__setattr__(self, label, getattr(self, label)[order])
        for label in (*COLUMNS, "line"):
            getattr(self, label).setflags(write=False)

    def _check(self, label: str, column: np.ndarray, bad: Bools, rule: str) -> None:
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise InputError(f"job {self.job_id[k]}: {label} = {column[k]}: {rule}")

    def __len__(self) -> int:
        return len(self.job_id)

    def __eq__(self, other: object) -> bool:
        """Whether header and all 18 columns are the same; name, line numbers and report do not count."""
        if not isinstance(other, Swf):
            return NotImplemented
        return self.comments == other.comments and all(
            np.array_equal(getattr(self, label), getattr(other, label)) for label in COLUMNS
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def header(self) -> dict[str, str]:
        """Fields of the header; values of one that is repeated are joined by line ends, other text is left out."""
        found: dict[str, str] = {}
        for comment in self.comments:
            match = _HEADER.fullmatch(comment)
            if match:
                key, value = match[1], (match[2] or "").strip()
                found[key] = f"{found[key]}\n{value}" if key in found else value
        return found

    def header_number(self, key: str) -> int | None:
        """The whole number that the header's field `key` begins with, if there is one."""
        match = re.match(r"-?\d+", self.header.get(key, ""))
        return int(match[0]) if match else None

    @property
    def machine_processors(self) -> int | None:
        """Processors of the machine by the header: MaxProcs, or MaxNodes where that is absent."""
        known = (self.header_number(key) for key in ("MaxProcs", "MaxNodes"))
        return next((n for n in known if n is not None and n > 0), None)

    def select(self, keep: np.ndarray) -> Self:
        """The jobs of index or mask `keep`."""
        return self.with_columns(**{label: getattr(self, label)[keep] for label in (*COLUMNS, "line")})

    def with_columns(self, **columns: object) -> Self:
        """The same trace with some fields replaced; checked and sorted again."""
        return replace(self, **columns)  # type: ignore[arg-type]

    def with_header(self, **values: object) -> Self:
        """The same trace with these fields in its header, in place of what they were; None takes a field out."""
        left = dict(values)
        lines: list[str] = []
        for comment in self.comments:
            match = _HEADER.fullmatch(comment)
            if not match or match[1] not in values:
                lines.append(comment)
            elif (value := left.pop(match[1], None)) is not None:
                lines.append(f" {match[1]}: {value}")
        lines += [f" {key}: {value}" for key, value in left.items() if value is not None]
        return replace(self, comments=tuple(lines))


COLUMNS = tuple(f.name for f in fields(Swf))[:18]
"""The attributes of `Swf` in the order of the format's fields."""


def repeated(ids: Ints) -> Bools:
    """(J,) whether the same number stands before."""
    bad = np.ones(len(ids), np.bool_)
    bad[np.unique(ids, return_index=True)[1]] = False
    return bad


def read_swf(path: Path, *, strict: bool = False) -> Swf:
    """The trace of a file, gzip or plain. `Swf.report` says what was odd and what became of it:

    - a line without 18 fields is dropped, or with one that is not a finite number, or not a whole one where it must be;
    - so is a job with a negative time of submission;
    - of lines with the same job number one is kept: the first that is not marked as a part of an interrupted
      job (status 2, 3, 4), or else the first;
    - jobs out of order are sorted by time of submission, ties in the order of the file.

    Raises InputError where the file cannot be read, is cut short, is not text, or holds no valid job; with `strict`
    wherever any of these rules is not met.
    """
    reader = SwfReader()
    for block in blocks(path):
        reader.read(block)
    swf = reader.trace(path, reader.table())
    if strict and swf.report.warnings:
        raise swf.report.warnings[0].refusal(str(path))
    return swf


def blocks(path: Path) -> Iterator[bytes]:
    """The file in blocks of whole lines; raises InputError where it is not there, not whole or not text."""
    rest = b""
    line = 1
    try:
        with path.open("rb") as raw:
            # What is read from a pipe cannot be read again.
            magic = raw.peek(2)[:2]
            packed = magic == b"\x1f\x8b"
            if path.suffix == ".gz" and magic and not packed:
                raise InputError(f"{path}: the name ends in .gz: must be gzip, and is not")
            file = gzip.GzipFile(fileobj=raw) if packed else raw
            while data := file.read(BLOCK_BYTES):
                if b"\0" in data:
                    raise InputError(f"{path}: holds a byte of value 0: must be text")
                whole, end, after = data.rpartition(b"\n")
                if end:
                    yield rest + whole + end
                    line += rest.count(b"\n") + whole.count(b"\n") + 1
                    rest = after
                else:
                    rest += after
                if len(rest) > LONGEST_LINE_BYTES:
                    raise InputError(f"{path}:{line}: a line must have at most {LONGEST_LINE_BYTES} bytes")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: gzip data cut short or damaged: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or error}") from None
    if rest:
        yield rest


class SwfReader:
    """Takes blocks of lines one after another; keeps valid rows, comments, and what was wrong with others."""

    columns = COLUMNS
    whole = frozenset(_WHOLE)
    """The fields of a line, and those of them that must be whole numbers."""

    def __init__(self) -> None:
        self.comments: list[str] = []
        self.wrong: dict[str, tuple[int, list[Example]]] = {}
        self._line = 1
        self._pieces: dict[str, list[np.ndarray]] = {label: [] for label in ("line", *self.columns)}

    def read(self, block: bytes) -> None:
        """Keep what `block`, which follows the one read before, holds."""
        rows = self.at_once(block)
        if rows is None and len(block) > SMALL_BLOCK_BYTES:
            # Lines that are not plain are few: halve until only they and their neighbours are left.
            middle = block.find(b"\n", len(block) // 2) + 1
            if 0 < middle < len(block):
                self.read(block[:middle])
                self.read(block[middle:])
                return
        numbers, table = rows or self._line_by_line(block)
        self._line += block.count(b"\n")
        self._pieces["line"].append(numbers)
        for k, label in enumerate(self.columns):
            self._pieces[label].append(table[:, k].astype(np.int64 if label in self.whole else np.float64))

    def at_once(self, block: bytes) -> tuple[Ints, Floats] | None:
        """Line numbers (R,) and values (R, fields) of a block in which every line is as it should be; else None."""
        return _table(block, self._line)

    def _line_by_line(self, block: bytes) -> tuple[Ints, Floats]:
        numbers: list[int] = []
        rows: list[list[float]] = []
        for number, raw in enumerate(block.split(b"\n"), self._line):
            text = raw.strip().removeprefix(b"\xef\xbb\xbf" if number == 1 else b"")
            if text.startswith(b";"):
                self.comments.append(_decoded(text[1:]))
            elif text:
                row = self.row(number, text.split())
                if row:
                    numbers.append(number)
                    rows.append(row)
        return np.array(numbers, np.int64), np.array(rows, np.float64).reshape(-1, len(self.columns))

    def row(self, number: int, tokens: list[bytes]) -> list[float]:
        """The line's values, or nothing if it breaks a rule."""
        if len(tokens) != len(self.columns):
            self.refuse(number, "number of fields", str(len(tokens)), f"a line must have {len(self.columns)} fields")
            return []
        row: list[float] = []
        for k, (label, token) in enumerate(zip(self.columns, tokens, strict=True), 1):
            value = float(token) if _NUMBER.fullmatch(token) else np.nan
            rule = "" if np.isfinite(value) else "fields must be finite numbers"
            if not rule and label in self.whole and (not value.is_integer() or abs(value) > LARGEST_WHOLE):
                rule = "this field must be a whole number"
            if rule:
                self.refuse(number, f"field {k} ({label})", _decoded(token), rule)
                return []
            row.append(value)
        return row

    def refuse(self, number: int, where: str, value: str, rule: str) -> None:
        """Note that line `number` breaks `rule`."""
        count, examples = self.wrong.get(rule, (0, []))
        if count < SHOWN:
            shown = value if len(value) <= 40 else value[:37] + "..."
            examples.append(Example(line=number, field=where, value=ascii(shown)[1:-1]))
        self.wrong[rule] = count + 1, examples

    def table(self) -> dict[str, np.ndarray]:
        """The fields, and `line`, of all valid lines: (R,) each. They are kept no longer."""
        return {label: np.concatenate(self._pieces.pop(label) or [np.zeros(0)]) for label in ("line", *self.columns)}

    def trace(self, path: Path, columns: dict[str, np.ndarray]) -> Swf:
        """The jobs of some lines of the table, with what was odd. Raises InputError where there is no valid job."""
        lines = len(columns["line"]) + sum(count for count, _ in self.wrong.values())
        noticed = [
            TraceWarning(rule=rule, handled="dropped", count=count, examples=tuple(examples))
            for rule, (count, examples) in self.wrong.items()
        ]
        keep, found = _repairs(columns)
        noticed += [o for o in found if o.count]
        if not keep.any():
            first = f"; {noticed[0].refusal(str(path))}" if noticed else ""
            raise InputError(f"{path}: no valid job in {lines} lines{first}")
        name = path.name.removesuffix(".gz").removesuffix(".swf").removesuffix(".cwf")
        if not keep.all():
            columns = {label: column[keep] for label, column in columns.items()}
        report = TraceReport(source=str(path), lines=lines, warnings=tuple(noticed))
        return Swf(**columns, comments=tuple(self.comments), name=name, report=report)  # type: ignore[arg-type]


def _table(block: bytes, first_line: int) -> tuple[Ints, Floats] | None:
    """Line numbers (R,) and values (R, 18) of a block in which every line is as it should be; else None."""
    if block.translate(None, delete=_PLAIN):
        return None
    letters = np.frombuffer(block, np.uint8)
    starts = letters > ord(" ")
    starts[1:] &= letters[:-1] <= ord(" ")
    ends = np.flatnonzero(letters == ord("\n"))
    first = np.concatenate([[0], ends[ends < len(letters) - 1] + 1])
    count = np.add.reduceat(starts, first, dtype=np.int64)
    if not np.isin(count, (0, len(COLUMNS))).all() or not count.any():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            values = np.fromstring(block, np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    # NumPy documents that numbers need no blank between them: then "1-2" would be two in one field.
    if len(values) != int(count.sum()) or not np.isfinite(values).all():
        return None
    table = values.reshape(-1, len(COLUMNS))
    whole = table[:, [label in _WHOLE for label in COLUMNS]]
    if (whole != np.floor(whole)).any() or (np.abs(whole) > LARGEST_WHOLE).any():
        return None
    return np.flatnonzero(count) + first_line, table


def _repairs(columns: dict[str, np.ndarray]) -> tuple[Bools, list[TraceWarning]]:
    """Which rows to keep, and what is odd about the others and about the order."""
    ids, submit_s, line = columns["job_id"], columns["submit_s"], columns["line"]
    early = submit_s < 0
    partial = np.isin(columns["status"], _PARTIAL)
    order = np.lexsort((line, partial, early, ids))
    again = np.zeros(len(ids), np.bool_)
    again[order[1:]] = ids[order[1:]] == ids[order[:-1]]
    again &= ~early
    keep = ~early & ~again
    late = np.zeros(len(ids), np.bool_)
    late[keep] = submit_s[keep] < np.maximum.accumulate(submit_s[keep])
    return keep, [
        trace_warning("submission time must be at least 0", "dropped", early, line, "field 2 (submit_s)", submit_s),
        trace_warning(
            "job number must be unique", "dropped, one line of each kept", again, line, "field 1 (job_id)", ids
        ),
        trace_warning("jobs must be in order of submission", "sorted", late, line, "field 2 (submit_s)", submit_s),
    ]


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8").rstrip()
    except UnicodeDecodeError:
        return text.decode("latin-1").rstrip()


def write_swf(path: Path, swf: Swf) -> None:
    """Write `swf`, gzip where the name ends in `.gz`; the same trace gives the same bytes, whole or not at all."""
    data = swf_text(swf).encode("utf-8")
    write_bytes(path, gzip.compress(data, compresslevel=6, mtime=0) if path.suffix == ".gz" else data)


def swf_text(swf: Swf) -> str:
    """Comments and jobs, one a line."""
    return "".join(f"{line}\n" for line in (*(f";{comment}" for comment in swf.comments), *job_lines(swf)))


def job_lines(swf: Swf) -> Iterable[str]:
    """A line for each job, without its end."""
    return map(" ".join, zip(*(words(getattr(swf, label)) for label in COLUMNS), strict=True))


def words(column: np.ndarray) -> Iterable[str]:
    """What to write for each number: it reads back the same, and has no fraction where it is whole."""
    if column.dtype == np.float64:
        if (column == np.floor(column)).all() and (np.abs(column) < LARGEST_WHOLE).all():
            column = column.astype(np.int64)
        else:
            return [repr(int(x)) if x.is_integer() and abs(x) < LARGEST_WHOLE else repr(x) for x in column.tolist()]
    return map(str, column.tolist())
