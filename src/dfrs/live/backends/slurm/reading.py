"""What `squeue --json` and `sinfo --json` print.

Slurm 22.05 writes plain numbers and one state; later versions write `{"set": true, "infinite": false, "number": 7}`
and lists of states. Both are read; only 22.05 was tried.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from dfrs.live.backends.slurm.records import SlurmJob, SlurmNode
from dfrs.live.errors import UnavailableError

MIB = 1 << 20
NO_VALUES = frozenset({0xFFFFFFFE, 0xFFFFFFFF})
"""What 32 bits say where a number is not set or infinite."""
DOWN_FLAGS = frozenset({"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN"})
CLOSED_FLAGS = {
    "DRAIN": "is drained in Slurm",
    "ERROR": "has an error",
    "FAIL": "is expected to fail",
    "MAINTENANCE": "is in maintenance",
    "NOT_RESPONDING": "does not respond to Slurm",
    "REBOOT_REQUESTED": "is to reboot",
    "REBOOT_ISSUED": "reboots",
    "RESERVED": "is reserved in Slurm",
    # As long as slurmctld has just been started.
    "UNKNOWN": "has not registered with Slurm yet",
}
"""Flags of a node that gets nothing new, and what they mean."""

Row = Mapping[str, Any]


def read_jobs(text: bytes, partition: str) -> tuple[list[SlurmJob], list[SlurmJob]]:
    """(jobs of the partition, those of others that are on nodes). Raises UnavailableError."""
    ours: list[SlurmJob] = []
    others: list[SlurmJob] = []
    for row in _rows(text, "jobs"):
        if partition in str(row["partition"]).split(","):
            ours += _jobs(row)
        elif "PENDING" not in _words(row["job_state"]):
            others += _jobs(row)
    return ours, [job for job in others if job.placed]


def read_nodes(text: bytes, partition: str) -> list[SlurmNode]:
    """Nodes of the partition. Raises UnavailableError."""
    return [_node(row) for row in _rows(text, "nodes") if partition in row["partitions"]]


def _rows(text: bytes, name: str) -> list[Row]:
    try:
        document = json.loads(text)
        found, errors = document[name], document.get("errors")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnavailableError(f"Slurm: its answer has no list {name}: {text[:80]!r}") from None
    if errors:
        # Without slurmctld the commands print an empty list, and end with status 0.
        raise UnavailableError(f"Slurm: {name}: {str(errors)[:200]}")
    return cast("list[Row]", found)


def _jobs(row: Row) -> Iterator[SlurmJob]:
    array, task = _number(row["array_job_id"]), _number(row["array_task_id"], absent=-1)
    pending = str(row["array_task_string"]) if array else ""
    job = _job(row, f"{array}_{task}" if array and task >= 0 else str(_number(row["job_id"])))
    if not pending:
        yield job
        return
    # One row stands for all tasks that nobody has touched.
    for index in _indices(pending):
        yield replace(job, id=f"{array}_{index}", number=0)


def _indices(text: str) -> Iterator[int]:
    """Of `1-5,8,10-20:5%2`."""
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _job(row: Row, name: str) -> SlurmJob:
    states = _words(row["job_state"])
    state = "COMPLETING" if "COMPLETING" in states else states[0]
    nodes, cpus = max(1, _number(row["node_count"])), max(1, _number(row["cpus"]))
    limit = _number(row["time_limit"], absent=-1)
    start_s, end_s, turned_s = (float(_number(row[at])) for at in ("start_time", "end_time", "suspend_time"))
    return SlurmJob(
        id=name,
        number=_number(row["job_id"]),
        state=state,
        reason=str(row["state_reason"]),
        held=_number(row["priority"], absent=1) == 0,
        user=str(row["user_name"]) or f"uid{_number(row['user_id'])}",
        name=str(row["name"]),
        command=str(row["command"]),
        comment=str(row["comment"]),
        admin_comment=str(row["admin_comment"]),
        cpus=cpus,
        memory_bytes=MIB * (_number(row["memory_per_node"]) or _number(row["memory_per_cpu"]) * cpus),
        time_limit_s=None if limit < 0 else 60.0 * limit,
        nodes=nodes,
        node=str(row["required_nodes"] if state == "PENDING" else row["nodes"]),
        restarts=_number(row["restart_cnt"]),
        requeue=bool(row["requeue"]),
        submit_s=float(_number(row["submit_time"])),
        eligible_s=float(_number(row["eligible_time"])),
        since_s=max(start_s, turned_s) if state in {"RUNNING", "SUSPENDED"} else end_s,
        dependency=str(row["dependency"]),
        reservation=str(row["resv_name"]),
        window=_number(row["array_max_tasks"]),
        exit_status=_status(row["exit_code"]),
        parts=_number(row["het_job_id"]) != 0,
    )


def _node(row: Row) -> SlurmNode:
    flags = {word.upper() for word in (*_words(row["state"]), *_words(row["state_flags"]))}
    said = [words for flag, words in CLOSED_FLAGS.items() if flag in flags]
    reason = str(row["reason"])
    return SlurmNode(
        name=str(row["name"]),
        address=str(row["address"]),
        cpus=_number(row["cpus"]),
        memory_bytes=MIB * _number(row["real_memory"]),
        down=bool(flags & DOWN_FLAGS),
        problem=f"{said[0]}{': ' if reason else ''}{reason}" if said else "",
    )


def _status(value: object) -> int:
    """As wait(2) gives it: 22.05 has just that."""
    if isinstance(value, Mapping):
        parts = cast("Row", value)
        signal = parts.get("signal") or {}
        return _number(parts.get("return_code")) << 8 | _number(signal.get("id", signal.get("signal_id")))
    return _number(value)


def _number(value: object, *, absent: int = 0) -> int:
    if isinstance(value, Mapping):
        parts = cast("Row", value)
        value = parts.get("number") if parts.get("set") and not parts.get("infinite") else None
    return absent if value is None or value in NO_VALUES else int(cast("float", value))


def _words(value: object) -> list[str]:
    return [str(word) for word in cast("list[object]", value)] if isinstance(value, list) else [str(value)]
