"""Reads the files of a run for its independent checker, and says where one is not of its form.

Nothing here is shared with what writes runs or with what reads them for reports: only then does the checker see what
stands in the files.
"""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from dfrs.model.errors import InputError

JOBS = (
    "job_id",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "success",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "allocated_resources",
    "processing_time",
    "cpu_need",
    "memory",
    "weight",
    "user",
    "virtual_time",
    "pauses",
    "migrations",
    "requested_start_time",
)
MORE = ("minimum_yield", "checkpoint_s")
"""Behind them, each where there is any."""
EVENTS = ("time_s", "job_id", "action", "nodes", "yield", "why")
COMMANDS = ("time_s", "job_id", "command", "amount", "answer", "change_s", "change_tasks")
PLACING = ("start", "resume", "migrate", "resize")
KINDS = ("ET", "RT", "EP", "RP")
ANSWERS = ("granted", "cut", "unknown", "ended", "limit", "inelastic", "no_room", "too_large")
ACTIONS = (*PLACING, "pause", "share", "finish", "lost")
CONDITIONS = ("down", "drain", "up")

_INTEGERS = {
    "job_id": None,
    "requested_number_of_resources": 1,
    "success": 0,
    "user": None,
    "pauses": 0,
    "migrations": 0,
}
_OPTIONAL = (
    "requested_time",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "requested_start_time",
    *MORE,
)
_RANGES = (("processing_time", math.inf), ("cpu_need", 1.0), ("weight", math.inf))
_TOKEN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?(?:\*([1-9][0-9]{0,17}))?")
_MOST_NODES = 10_000_000
_NODE_BYTES = 8e9
"""Memory of the reference node where nothing says it ([Stillwell2010] section 6.1)."""
_TAU_S = 10.0
"""Times below count as this in bounded stretches where nothing says it."""
_MOST = 1e18
"""Larger numbers mean nothing here, and sums of them might not be finite."""

Document = dict[str, Any]
Placement = dict[int, int]
"""Tasks by node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What summary.json says."""

    complete: bool
    capacity: list[tuple[float, float]]
    left: list[tuple[float, int, float]]
    """When so much of a node's CPU was left for jobs, and no more: time, node, CPU; in order of time."""
    latency_s: float
    """The penalty of a resume or migration."""
    per_memory_s: float
    """And for each reference node's memory that moves."""
    exclusive: bool
    dedicated: bool
    """Whether the policy is told of dedicated jobs at their submission; else at their requested start."""
    command_limit: int | None
    """So many commands on one job are granted."""
    unequal: bool
    """Whether farm.json says how fast each job is where."""
    clustered: bool
    """Whether the policy leaves no job across the cluster's partitions."""
    promised: bool
    """Whether minimum yields hold: not where others took CPU of nodes, or users could change what they want."""
    keeps: bool
    """Whether the memory of paused jobs stays taken."""
    hosts: list[int] | None
    """By node: jobs that have started stay on nodes of equal numbers; None: they may go to any."""
    refused: list[int]
    tau_s: float
    node_bytes: float
    end_s: float
    workload: Document
    metrics: Document


class Row(NamedTuple):
    """A row of events.csv."""

    line: int
    time_s: float
    job: int | None
    """None for what happens to nodes."""
    action: str
    nodes: Placement | None
    """None if they are out of order or not of this cluster."""
    yield_: float


class RecordedCommand(NamedTuple):
    """A row of commands.csv."""

    line: int
    time_s: float
    job: int
    kind: str
    amount: float
    answer: str
    change_s: float
    change_tasks: int


class Fields:
    """Typed access to a JSON object by dotted names."""

    def __init__(self, path: Path, document: Document) -> None:
        self.path, self.document = path, document

    def get(self, name: str, default: object = None) -> object:
        """The value, or `default` if it is absent or null."""
        value: Any = self.document
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return default if value is None else value

    def fail(self, name: str, value: object, rule: str) -> InputError:
        """What to raise for that value."""
        return InputError(f"{self.path}: {name} = {_short(value)}: must be {rule}")

    def number(self, name: str, default: float | None = None, *, above_zero: bool = False) -> float:
        """A number, at least 0."""
        value = self.get(name, default)
        if not is_amount(value) or (above_zero and value == 0):
            raise self.fail(name, value, "a number above 0" if above_zero else "a number from 0")
        return float(value)

    def time(self, name: str) -> float:
        """A number."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST:
            raise self.fail(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.fail(name, value, "true or false")
        return value

    def items(self, name: str, default: object = None) -> list[Any]:
        """A list."""
        value = self.get(name, default)
        if not isinstance(value, list):
            raise self.fail(name, value, "a list")
        return value

    def object(self, name: str) -> Document:
        """An object."""
        value = self.get(name)
        if not isinstance(value, dict):
            raise self.fail(name, value, "an object")
        return value


def read_settings(path: Path) -> RunSettings:
    """The settings and metrics in summary.json. Raises InputError."""
    fields = Fields(path, read_json(path))
    if fields.get("format") != "dfrs-run/1":
        raise fields.fail("format", fields.get("format"), '"dfrs-run/1"')
    latency_s, per_memory_s = _penalty(fields)
    capacity, refused = _capacity(fields), fields.items("refused")
    if not all(isinstance(name, int) and not isinstance(name, bool) for name in refused):
        raise fields.fail("refused", refused, "job numbers")
    return RunSettings(
        complete=fields.flag("complete"),
        capacity=capacity,
        left=_left(fields, len(capacity)),
        latency_s=latency_s,
        per_memory_s=per_memory_s,
        exclusive=fields.flag("configuration.exclusive", False),
        dedicated=fields.flag("configuration.dedicated", False),
        command_limit=_limit(fields),
        unequal=fields.get("configuration.farm") is not None,
        clustered=fields.flag("configuration.clustered", False),
        promised=fields.get("configuration.capacity_left") is None and not fields.flag("configuration.live", False),
        keeps=fields.get("configuration.pauses") == "keep",
        hosts=_hosts(fields),
        refused=refused,
        tau_s=fields.number("metrics.tau_s", _TAU_S, above_zero=True),
        node_bytes=fields.number(
            "configuration.node_bytes", fields.number("configuration.penalty.node_bytes", _NODE_BYTES)
        ),
        end_s=fields.time("end_s"),
        workload=fields.object("workload"),
        metrics=fields.object("metrics"),
    )


def _limit(fields: Fields) -> int | None:
    limit = fields.get("configuration.command_limit")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise fields.fail("configuration.command_limit", limit, "a whole number from 0")
    return limit


def _hosts(fields: Fields) -> list[int] | None:
    if fields.get("configuration.moves") is None:
        return None
    hosts = fields.items("configuration.hosts")
    if len(hosts) != fields.get("configuration.nodes") or not all(type(host) is int for host in hosts):
        raise fields.fail("configuration.hosts", hosts, "a whole number for each node")
    return hosts


def _capacity(fields: Fields) -> list[tuple[float, float]]:
    nodes = fields.get("configuration.nodes")
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= _MOST_NODES:
        raise fields.fail("configuration.nodes", nodes, f"a whole number from 1 to {_MOST_NODES}")
    rows = fields.items("configuration.capacity", [[1.0, 1.0]] * nodes)
    if len(rows) != nodes:
        raise InputError(f"{fields.path}: configuration.capacity: {len(rows)} rows for {nodes} nodes")
    for n, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2 or not all(is_amount(value) for value in row):
            raise fields.fail(f"configuration.capacity[{n}]", row, "two numbers from 0")
    return [(float(cpu), float(memory)) for cpu, memory in rows]


def _left(fields: Fields, nodes: int) -> list[tuple[float, int, float]]:
    rows = fields.items("configuration.capacity_left", [])
    for k, row in enumerate(rows):
        whole = isinstance(row, list) and len(row) == 3 and type(row[1]) is int and 0 <= row[1] < nodes
        if not whole or not is_amount(row[2]) or isinstance(row[0], bool) or not isinstance(row[0], int | float):
            raise fields.fail(f"configuration.capacity_left[{k}]", row, f"a time, a node below {nodes}, and its CPU")
        if k and row[0] < rows[k - 1][0]:
            raise fields.fail(f"configuration.capacity_left[{k}]", row, "not before the row above it")
    return [(float(time_s), node, float(cpu)) for time_s, node, cpu in rows]


def _penalty(fields: Fields) -> tuple[float, float]:
    """Seconds of each penalty, and seconds for each reference node's memory that moves."""
    prefix = "configuration.penalty."
    model = fields.get(prefix + "model")
    if model == "fixed":
        return fields.number(prefix + "seconds"), 0.0
    if model != "size":
        raise fields.fail(prefix + "model", model, '"fixed" or "size"')
    rate = fields.number(prefix + "bytes_per_s", above_zero=True)
    return fields.number(prefix + "latency_s"), fields.number(prefix + "node_bytes") / rate


def is_amount(value: object) -> TypeGuard[float]:
    """A number, at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST


def read_json(path: Path) -> Document:
    """A JSON object. Raises InputError."""
    try:
        document = json.loads(_text(path), parse_int=lambda digits: int(digits) if len(digits) < 19 else float(digits))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: must be a JSON object")
    return document


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}") from None


def _rows(path: Path, columns: tuple[str, ...], more: tuple[str, ...] = ()) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header, each with its line number; with `more` columns, empty where there are none."""
    text = _text(path)
    if not text.endswith("\n"):
        raise InputError(f"{path}: line {text.count(chr(10)) + 1}: the last line does not end: the file is truncated")
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader)
        # Runs without dedicated jobs were once written without this column, which is the last.
        old = columns[-1:] == ("requested_start_time",) and tuple(header) == columns[:-1]
        behind = header[len(columns) :]
        known = tuple(header[: len(columns)]) == columns and behind == [name for name in more if name in behind]
        if not known and not old:
            k = next((k for k, name in enumerate(columns) if header[k : k + 1] != [name]), len(columns))
            is_ = repr(header[k]) if k < len(header) else "nothing"
            wanted = repr(columns[k]) if k < len(columns) else "nothing"
            raise InputError(f"{path}: line 1: column {k + 1} is {is_}: must be {wanted}")
        for row in reader:
            if len(row) != len(header):
                raise InputError(f"{path}: line {reader.line_num}: {len(row)} values: must be {len(header)}")
            found = dict(zip(header, row, strict=True))
            yield reader.line_num, [found.get(name, "") for name in columns + more]
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: {error}") from None


def read_jobs(path: Path, nodes: int) -> list[tuple[int, Document]]:
    """The line and the values of each job by column; nodes as Placement, None if they are not of this cluster.

    Raises InputError where a value is not of its kind or out of its range, or a job stands twice.
    """
    jobs: list[tuple[int, Document]] = []
    line_of: dict[int, int] = {}
    for line, row in _rows(path, JOBS, MORE):
        stated: Document = {}
        for column, text in zip(JOBS + MORE, row, strict=True):
            if column in _INTEGERS:
                stated[column] = _integer(path, line, column, text, _INTEGERS[column])
            elif column == "allocated_resources":
                stated[column] = _placement(path, line, text, nodes, column)
            else:
                stated[column] = None if not text and column in _OPTIONAL else _number(path, line, column, text)
        for column, high in _RANGES:
            if not 0.0 < stated[column] <= high:
                until = "" if high == math.inf else f", at most {high:g}"
                raise InputError(f"{path}: line {line}: {column} = {stated[column]!r}: must be above 0{until}")
        if not 0.0 <= stated["memory"] <= 1.0:
            raise InputError(f"{path}: line {line}: memory = {stated['memory']!r}: must be from 0 to 1")
        if not (stated["checkpoint_s"] or 0.0) >= 0.0:
            raise InputError(f"{path}: line {line}: checkpoint_s = {stated['checkpoint_s']!r}: must be at least 0")
        if not 0.0 <= (stated["minimum_yield"] or 0.0) <= 1.0:
            raise InputError(f"{path}: line {line}: minimum_yield = {stated['minimum_yield']!r}: must be from 0 to 1")
        name = stated["job_id"]
        if name in line_of:
            raise InputError(f"{path}: line {line}: job_id = {name}: already on line {line_of[name]}")
        line_of[name] = line
        jobs.append((line, stated))
    return jobs


def read_events(path: Path, nodes: int) -> Iterator[Row]:
    """The rows of the log. Raises InputError where a value is not of its kind or a row lacks one."""
    for line, (time, name, action, where, given, _) in _rows(path, EVENTS):
        if action not in ACTIONS and action not in CONDITIONS:
            raise InputError(
                f"{path}: line {line}: action = {_short(action)}: must be one of {', '.join(ACTIONS + CONDITIONS)}"
            )
        if name and action in CONDITIONS:
            raise InputError(f"{path}: line {line}: job_id = {_short(name)}: must be empty for {action}")
        job = None if action in CONDITIONS else _integer(path, line, "job_id", name, None)
        if not given and (action in PLACING or action == "share"):
            raise InputError(f"{path}: line {line}: yield = '': must be a number for {action}")
        yield_ = _number(path, line, "yield", given) if given else 0.0
        time_s = _number(path, line, "time_s", time)
        yield Row(line, time_s, job, action, _placement(path, line, where, nodes), yield_)


def read_commands(path: Path) -> list[RecordedCommand]:
    """The commands and their answers; none where there is no such file.

    Raises InputError where a value is not of its kind or out of its range.
    """
    commands: list[RecordedCommand] = []
    if not path.exists():
        return commands
    for line, (time, name, kind, amount, answer, seconds, tasks) in _rows(path, COMMANDS):
        for column, text, known in (("command", kind, KINDS), ("answer", answer, ANSWERS)):
            if text not in known:
                raise InputError(f"{path}: line {line}: {column} = {_short(text)}: must be one of {', '.join(known)}")
        size = _number(path, line, "amount", amount)
        if not size > 0 or (kind in {"EP", "RP"} and size != int(size)):
            rule = "a whole number above 0" if kind in {"EP", "RP"} else "above 0"
            raise InputError(f"{path}: line {line}: amount = {_short(amount)}: must be {rule} for {kind}")
        time_s, change_s = _number(path, line, "time_s", time), _number(path, line, "change_s", seconds)
        job, change_tasks = (
            _integer(path, line, column, text, None) for column, text in (("job_id", name), ("change_tasks", tasks))
        )
        commands.append(RecordedCommand(line, time_s, job, kind, size, answer, change_s, change_tasks))
    return commands


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= _MOST or "_" in text:
        raise InputError(f"{path}: line {line}: {column} = {_short(text)}: must be a number")
    return value


def _integer(path: Path, line: int, column: str, text: str, low: int | None) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text) or (low is not None and int(text) < low):
        rule = "a whole number" if low is None else f"a whole number from {low}"
        raise InputError(f"{path}: line {line}: {column} = {_short(text)}: must be {rule}")
    return int(text)


def _placement(path: Path, line: int, text: str, nodes: int, column: str = "nodes") -> Placement | None:
    """Tasks by node of a node string; None if nodes are out of order or not below `nodes`."""
    placement: Placement = {}
    before = -1
    for token in text.split(" ") if text else ():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise InputError(
                f"{path}: line {line}: {column} = {_short(text)}: {_short(token)} is not of the form 0-3*2"
            )
        begin = int(match[1])
        end = begin if match[2] is None else int(match[2])
        if begin <= before or end < begin or end >= nodes:
            return None
        before = end
        times = 1 if match[3] is None else int(match[3])
        for node in range(begin, end + 1):
            placement[node] = times
    return placement


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
