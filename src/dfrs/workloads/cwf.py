"""Traces in the Cloud Workload Format: SWF and three fields more, for dedicated jobs and users' commands.

The format of [Kumar2011] section IV-C: each line has the 18 fields of SWF, then

- field 19, when a dedicated job is to start, in seconds on the clock of the trace; -1 for a batch job;
- field 20, what the line is: `S` submits a job; `ET` and `RT` extend and reduce the time of a job submitted before,
  `EP` and `RP` its processors;
- field 21, by how much: seconds for ET and RT, processors for EP and RP; -1 for S.

Of a command's line field 1 is the job's number and field 2 the time of the command; fields 3 to 19 are not looked at
but must be numbers, and are written as -1.
"""

import gzip
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from dfrs.model.elastic import MOST, NO_COMMANDS, TIME_KINDS, CommandKind, ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.jobs import LATEST_S
from dfrs.model.writing import write_bytes
from dfrs.workloads.swf import COLUMNS, Swf, SwfReader, blocks, job_lines, words
from dfrs.workloads.trace_warnings import TraceWarning, trace_warning

REQUESTS = {"S": -1} | {kind.name: int(kind) for kind in CommandKind}
"""Field 20, and what the reader has for it."""

_SUBMIT = REQUESTS["S"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Cwf:
    """J jobs and K commands. Raises InputError, naming job or command, value and rule, for what CWF cannot hold."""

    jobs: Swf
    """With the report on the whole file."""
    requested_start_s: Floats = field(default_factory=lambda: np.zeros(0))
    """(J,) when a dedicated job is to start, at least 0; NaN for a batch job. Empty: all are batch jobs."""
    commands: ElasticCommands = NO_COMMANDS
    """With amounts in processors for EP and RP; times are at least 0."""

    def __post_init__(self) -> None:
        start_s = self.requested_start_s if len(self.requested_start_s) else np.full(len(self.jobs), np.nan)
        start_s = np.array(start_s, np.float64)
        start_s.setflags(write=False)
        if start_s.shape != (len(self.jobs),):
            raise InputError(f"requested_start_s: {len(start_s)} values for {len(self.jobs)} jobs")
        for k in np.flatnonzero((start_s < 0) | np.isinf(start_s))[:1]:
            raise InputError(
                f"job {self.jobs.job_id[k]}: requested_start_s = {start_s[k]}: must be at least 0 and finite, or NaN"
            )
        for k in np.flatnonzero(self.commands.time_s < 0)[:1]:
            time_s = self.commands.time_s[k]
            raise InputError(f"command on job {self.commands.job_id[k]}: time_s = {time_s}: must be at least 0")
        object.__setattr__(self, "requested_start_s", start_s)

    def __len__(self) -> int:
        return len(self.jobs)

    def __eq__(self, other: object) -> bool:
        """Whether header, jobs, requested starts and commands are the same; name, lines and report do not count."""
        if not isinstance(other, Cwf):
            return NotImplemented
        return (
            self.jobs == other.jobs
            and np.array_equal(self.requested_start_s, other.requested_start_s, equal_nan=True)
            and all(
                np.array_equal(getattr(self.commands, f.name), getattr(other.commands, f.name))
                for f in fields(ElasticCommands)
            )
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def dedicated(self) -> int:
        """How many jobs have a requested start."""
        return int(np.isfinite(self.requested_start_s).sum())


class _Reader(SwfReader):
    columns = (*COLUMNS, "requested_start_s", "request", "amount")
    whole = frozenset(SwfReader.whole | {"request"})

    def at_once(self, block: bytes) -> tuple[Ints, Floats] | None:
        """Nothing: every line has letters in it."""
        return None

    def row(self, number: int, tokens: list[bytes]) -> list[float]:
        """The line's values, with the number of its request; or nothing if it breaks a rule."""
        if len(tokens) == len(self.columns):
            request = tokens[19].decode("latin-1")
            if request not in REQUESTS:
                rule = f"the request must be one of {', '.join(REQUESTS)}"
                self.refuse(number, "field 20 (request)", request, rule)
                return []
            tokens[19] = str(REQUESTS[request]).encode()
        return super().row(number, tokens)


def read_cwf(path: Path, *, strict: bool = False) -> Cwf:
    """The trace of a file, gzip or plain. `Cwf.jobs.report` says what was odd and what became of it.

    For jobs it is as `read_swf` has it, but with 21 fields; a line is also dropped with an unknown request. More:

    - a requested start below 0 other than -1 is taken as -1; one before the submission is kept: the job may start at
      once; an amount other than -1 of a job is ignored;
    - a command is dropped at a time below 0, with an amount not above 0 or above MOST, or with a part of a processor;
    - commands out of order are sorted, ties in the order of the file;
    - a command on a job that no line submits, or on one submitted later, is kept: it will be answered as one on an
      unknown job.

    Raises InputError as `read_swf`.
    """
    reader = _Reader()
    for block in blocks(path):
        reader.read(block)
    table = reader.table()
    submits = table["request"] == _SUBMIT
    columns = {label: table[label][submits] for label in ("line", *COLUMNS)}
    jobs = reader.trace(path, columns)
    # Lines are in order: those of the kept jobs, which are sorted by time, are looked up in them.
    rows = np.searchsorted(table["line"], jobs.line)
    start_s, odd_starts = _starts(jobs, table["requested_start_s"][rows], table["amount"][rows])
    commands, odd_commands = _commands(jobs, {label: column[~submits] for label, column in table.items()})
    report = jobs.report.and_([*odd_starts, *odd_commands])
    if strict and report.warnings:
        raise report.warnings[0].refusal(str(path))
    return Cwf(jobs=jobs.with_columns(report=report), requested_start_s=start_s, commands=commands)


def _starts(jobs: Swf, start_s: Floats, amount: Floats) -> tuple[Floats, list[TraceWarning]]:
    negative = (start_s < 0) & (start_s != -1)
    early = (start_s >= 0) & (start_s < jobs.submit_s)
    far = start_s > LATEST_S
    label = "field 19 (requested_start_s)"
    return np.where((start_s < 0) | far, np.nan, start_s), [
        trace_warning(f"a requested start must be at most {LATEST_S:g}", "-1 taken", far, jobs.line, label, start_s),
        trace_warning("a requested start must be at least 0, or -1", "-1 taken", negative, jobs.line, label, start_s),
        trace_warning(
            "a requested start must not be before the submission",
            "kept: the job may start at once",
            early,
            jobs.line,
            label,
            start_s,
        ),
        trace_warning("a job's amount must be -1", "ignored", amount != -1, jobs.line, "field 21 (amount)", amount),
    ]


def _commands(jobs: Swf, table: dict[str, np.ndarray]) -> tuple[ElasticCommands, list[TraceWarning]]:
    """The valid commands of some lines of the table, on `jobs`, and what is odd about all of them."""
    line, ids, time_s, amount = (table[label] for label in ("line", "job_id", "submit_s", "amount"))
    early = time_s < 0
    small = ~early & (amount <= 0)
    large = ~early & (amount > MOST)
    part = ~early & ~small & ~large & ~np.isin(table["request"], TIME_KINDS) & (amount != np.floor(amount))
    keep = ~(early | small | large | part)
    late = np.zeros(len(ids), np.bool_)
    late[keep] = time_s[keep] < np.maximum.accumulate(time_s[keep])
    order = np.argsort(jobs.job_id)
    at = order[np.minimum(np.searchsorted(jobs.job_id[order], ids), len(jobs) - 1)]
    known = jobs.job_id[at] == ids
    ahead = keep & known & (time_s < jobs.submit_s[at])
    as_unknown = "kept: will be answered as on an unknown job"
    warnings = [
        trace_warning("a command's time must be at least 0", "dropped", early, line, "field 2 (submit_s)", time_s),
        trace_warning("a command's amount must be above 0", "dropped", small, line, "field 21 (amount)", amount),
        trace_warning(
            f"a command's amount must be at most {MOST:g}", "dropped", large, line, "field 21 (amount)", amount
        ),
        trace_warning("processors must be a whole number", "dropped", part, line, "field 21 (amount)", amount),
        trace_warning("commands must be in order of time", "sorted", late, line, "field 2 (submit_s)", time_s),
        trace_warning(
            "a command must be on a job of the trace", as_unknown, keep & ~known, line, "field 1 (job_id)", ids
        ),
        trace_warning("a command must not come before its job", as_unknown, ahead, line, "field 2 (submit_s)", time_s),
    ]
    commands = ElasticCommands(time_s=time_s[keep], job_id=ids[keep], kind=table["request"][keep], amount=amount[keep])
    return commands, warnings


def write_cwf(path: Path, cwf: Cwf) -> None:
    """Write `cwf`, gzip where the name ends in `.gz`; the same trace gives the same bytes, whole or not at all."""
    data = cwf_text(cwf).encode("utf-8")
    write_bytes(path, gzip.compress(data, compresslevel=6, mtime=0) if path.suffix == ".gz" else data)


def cwf_text(cwf: Cwf) -> str:
    """Comments, then jobs and commands by time, one a line; at one time jobs come first."""
    commands = cwf.commands
    starts = words(np.where(np.isnan(cwf.requested_start_s), -1.0, cwf.requested_start_s))
    unknown = " -1" * (len(COLUMNS) - 2 + 1)
    columns = (words(commands.job_id), words(commands.time_s), commands.kind.tolist(), words(commands.amount))
    lines = [f"{job} {start} S -1" for job, start in zip(job_lines(cwf.jobs), starts, strict=True)]
    lines += [f"{i} {time}{unknown} {CommandKind(k).name} {n}" for i, time, k, n in zip(*columns, strict=True)]
    order = np.argsort(np.concatenate([cwf.jobs.submit_s, commands.time_s]), kind="stable")
    head = "".join(f";{comment}\n" for comment in cwf.jobs.comments)
    return head + "".join(f"{lines[k]}\n" for k in order.tolist())
