"""The durable log of a live cluster, as `dfrs export` writes it: JSON lines, a header, events, jobs."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dfrs.model.errors import InputError

FORMAT = "dfrs-log/1"
FILE = "log.jsonl"
"""Its name in a run directory."""
LEAST_NEED = 1e-3
"""CPU of the reference node: a job needs no less, so that yields mean something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One event as the core was told it."""

    time_s: float
    event: Mapping[str, Any]
    digest: str
    """Of the target decided because of it; "" where nothing was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWork:
    """What a job did, as its nodes measured it."""

    run_s: float
    """Seconds that it would have taken alone, with what it waited for by itself."""
    need: float | None
    """CPU of a task meanwhile, as a fraction of the reference node; None where its user declared it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLog:
    """What a live cluster did."""

    discovery: str
    command_limit: int | None
    entries: tuple[LogEntry, ...]
    policies: tuple[tuple[int, str], ...]
    """Who decided: from the entry of that index on, the policy of that name."""
    jobs: Mapping[int, Mapping[str, Any]]
    """By id, as the API shows them."""
    reference_cores: float | None = None
    """Size of the reference node."""
    gone: str = ""
    """What its controller had no more when it was exported, in words; "" for nothing: the log begins at the start."""

    @property
    def policy(self) -> str:
        """The names of all that decided."""
        return ", then ".join(name for _, name in self.policies)

    def measured(self, job_id: int) -> MeasuredWork | None:
        """The work of a job; None where its nodes could not measure it. Raises InputError where that is no number."""
        job = self.jobs.get(job_id, {})
        names = ("virtual_s", "virtual_granted_s", "cpu_s", "cpu_cores", "started_at", "ended_at")
        run_s, granted_s, cpu_s, declared, began_s, ended_s = (_amount(job, name) for name in names)
        # Where nothing was measured, what was granted is all that is known.
        if run_s is None or granted_s is None or run_s == granted_s or run_s <= 0.0:
            return None
        most_cores = declared or self.reference_cores
        if cpu_s is None or not most_cores:
            return MeasuredWork(run_s=run_s, need=None)
        cpu_s /= _field(f"job {job_id} of the log", job, "tasks", int)
        if began_s is not None and ended_s is not None:
            # A yield is measured to some hundredths, which is much of a small one: CPU time is known exactly.
            run_s = max(run_s, min(cpu_s / most_cores, ended_s - began_s))
        need = None if declared else min(max(cpu_s / run_s / most_cores, LEAST_NEED), 1.0)
        return MeasuredWork(run_s=run_s, need=need)


def read_live_log(path: Path) -> LiveLog:
    """The log in a file, or in a run directory that holds one. Raises InputError naming file, line and rule."""
    path = path / FILE if path.is_dir() else path
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is no text: must be the log.jsonl of an export") from None
    documents = [(f"{path}, line {number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    header = _object(*documents[0]) if documents else {}
    if header.get("format") != FORMAT:
        raise InputError(f'{path}, line 1: format = {header.get("format")!r}: must be "{FORMAT}"')
    entries: list[LogEntry] = []
    jobs: dict[int, Mapping[str, Any]] = {}
    policies: list[tuple[int, str]] = []
    for where, line in documents[1:]:
        document = _object(where, line)
        if "job" in document:
            job = _field(where, document, "job", dict)
            jobs[_field(where, job, "id", int)] = job
            continue
        if "restart" in document:
            policy = _field(where, _field(where, document, "restart", dict), "policy", str)
            if not policies or policies[-1][1] != policy:
                policies.append((len(entries), policy))
            continue
        time_s = float(_field(where, document, "time_s", (int, float)))
        event, digest = _field(where, document, "event", dict), _field(where, document, "digest", str)
        entries.append(LogEntry(time_s=time_s, event=event, digest=digest))
    limit = header.get("command_limit")
    last = _field(f"{path}, line 1", header, "policy", str)
    if not policies or policies[0][0] > 0:
        policies.insert(0, (0, last))
    ends = [*(index for index, _ in policies[1:]), len(entries)]
    decided: list[tuple[int, str]] = []
    for (first, name), end in zip(policies, ends, strict=True):
        if first < end and (not decided or decided[-1][1] != name):
            decided.append((first, name))
    return LiveLog(
        discovery=_field(f"{path}, line 1", header, "discovery", str),
        command_limit=limit if isinstance(limit, int) else None,
        entries=tuple(entries),
        policies=tuple(decided or policies[-1:]),
        jobs=jobs,
        reference_cores=_size(f"{path}, line 1", header),
        gone=_gone(f"{path}, line 1", header),
    )


def _gone(where: str, header: Mapping[str, Any]) -> str:
    if header.get("first_event", 1) == 1:
        return ""
    first, until = _field(where, header, "first_event", int), _field(where, header, "pruned_until", (int, float))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(until))
    return f"events 1 to {first - 1}, until {when}, were no longer kept"


def _size(where: str, header: Mapping[str, Any]) -> float | None:
    cores = header.get("reference_cores")
    if cores is None:
        return None
    found = float(_field(where, header, "reference_cores", (int, float)))
    if not 0.0 < found < math.inf:
        raise InputError(f"{where}: reference_cores = {cores!r}: must be above 0")
    return found


def _amount(job: Mapping[str, Any], name: str) -> float | None:
    if job.get(name) is None:
        return None
    where = f"job {job.get('id')} of the log"
    found = float(_field(where, job, name, (int, float)))
    if not 0.0 <= found < math.inf:
        raise InputError(f"{where}: {name} = {found!r}: must be at least 0")
    return found


def _object(where: str, line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        raise InputError(f"{where}: is no JSON: {line[:40]!r}") from None
    if not isinstance(document, dict):
        raise InputError(f"{where}: must be a JSON object")
    return document


def _field(where: str, document: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:  # noqa: ANN401
    value = document.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{where}: {name} = {value!r}: is missing or of the wrong type")
    return value
