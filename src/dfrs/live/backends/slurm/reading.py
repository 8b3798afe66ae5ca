"""What `squeue` and `sinfo` print of jobs and nodes, in forms that are asked for here.

Users choose names and comments of jobs, with any characters. So what ends a field is a secret of this process, which
squeue is told in its environment, where no other user can read it. A record that is as it was in the last answer is not
read again: of thousands of jobs few change within a second.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dfrs.live.backends.slurm.records import PLACED, SlurmJob, SlurmNode
from dfrs.live.errors import UnavailableError

MIB = 1 << 20
DOWN_FLAGS = frozenset({"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN"})
CLOSED_FLAGS = {
    "DRAIN": "is drained in Slurm",
    "DRAINED": "is drained in Slurm",
    "DRAINING": "is drained in Slurm",
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
WORDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "Partition",
    "State",
    "Reason",
    "PriorityLong",
    "NumCPUs",
    "NumNodes",
    "MinMemory",
    "tres-alloc",
    "TimeLimit",
    "RestartCnt",
    "Requeue",
    "ReqNodes",
    "NodeList",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "exit_code",
    "UserID",
    "UserName",
    "Reservation",
    "Dependency",
)
"""Fields of squeue that Slurm makes: none holds a unit separator."""
TEXTS = ("Name", "Command", "Comment", "admin_comment", "Account")
"""And those that hold whatever users like; the last of all, TimeUsed, changes all the time."""
STATES = {
    "CONFIGURING": "RUNNING",
    "RESIZING": "RUNNING",
    "SIGNALING": "RUNNING",
    "STOPPED": "RUNNING",
    "REQUEUED": "COMPLETING",
    "STAGE_OUT": "COMPLETING",
    "RESV_DEL_HOLD": "PENDING",
    "REQUEUE_HOLD": "PENDING",
    "SPECIAL_EXIT": "PENDING",
}
"""Flags that squeue prints in the place of a state, and what the job is to dfrs then."""
SPECIAL = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})
"""Of these, what says that somebody is to see to the job first."""
UNIT = "\x1f"
NONE = frozenset({"", "(null)", "N/A", "NONE", "UNLIMITED", "NOT_SET", "INVALID", "Partition_Limit"})
_NODE_WORDS = ("NodeList", "NodeAddr", "CPUs", "Memory", "StateComplete")
NODE_FORMAT = ",".join([*(f"{word}:0{UNIT}" for word in _NODE_WORDS), "Reason:0\x1e"])
"""Of sinfo: only administrators choose what it prints."""
ROUNDED_S = 3.0
"""Starts, the time used and the time of a look are whole seconds each."""
_MEMORY = re.compile(r"mem=([0-9.]+)([KMGTP]?)")
_MIB = {"K": 1.0 / 1024.0, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


class JobReader:
    """Reads answers of squeue, one after the other, for one partition."""

    def __init__(self, partition: str) -> None:
        self._partition = partition
        # What is after a field's size begins with no digit.
        self._secret = f"\x1e{secrets.token_hex(8)}"
        self._last: dict[str, list[SlurmJob]] = {}
        """By records, but for the time used."""

    @property
    def environ(self) -> dict[str, str]:
        """Variables that squeue needs."""
        fields = [f"{word}:0{UNIT}" for word in WORDS] + [f"{text}:0{self._secret};" for text in TEXTS]
        return {
            "SQUEUE_FORMAT2": ",".join([*fields, f"TimeUsed:0{self._secret}"]),
            # Else a line may stand for tasks of an array that wait for different reasons.
            "SQUEUE_ARRAY_UNIQUE": "1",
            "SLURM_TIME_FORMAT": "%s",
            # Without this, long lists of an array's tasks are cut off.
            "SLURM_BITSTR_LEN": "0",
        }

    def read(self, text: bytes, now_s: float) -> tuple[list[SlurmJob], list[SlurmJob]]:
        """(jobs of the partition, those of others that are on nodes), as of that wall time. Raises UnavailableError."""
        ours: list[SlurmJob] = []
        others: list[SlurmJob] = []
        last, self._last = self._last, {}
        *records, rest = text.decode(errors="replace").split(f"{self._secret}\n")
        if rest:
            raise UnavailableError(f"Slurm: squeue: what it printed does not end as it was asked to: {rest[:80]!r}")
        for record in records:
            key, _, used = record.rpartition(f"{self._secret};")
            found = self._last[key] = last[key] if key in last else self._record(key, used, now_s)
            if self._is_ours(key):
                ours += found
            else:
                others += [job for job in found if job.placed]
        return ours, others

    def _is_ours(self, key: str) -> bool:
        return self._partition in key.split(UNIT, 5)[4].split(",")

    def _record(self, key: str, used: str, now_s: float) -> list[SlurmJob]:
        head, *texts = key.split(f"{self._secret};")
        *words, name = head.split(UNIT, len(WORDS))
        if len(words) != len(WORDS) or len(texts) != len(TEXTS) - 1:
            raise UnavailableError(f"Slurm: squeue: a job has not the fields that were asked for: {key[:80]!r}")
        row: dict[str, str] = dict(zip((*WORDS, *TEXTS), (*words, name, *texts), strict=True))
        return list(_jobs(row, used, now_s))


def read_nodes(text: bytes) -> list[SlurmNode]:
    """Nodes in what `sinfo --Node --Format NODE_FORMAT` printed. Raises UnavailableError."""
    return [_node(record) for record in text.decode(errors="replace").split("\x1e\n")[:-1]]


def _jobs(row: Mapping[str, str], used: str, now_s: float) -> Iterator[SlurmJob]:
    array, tasks = row["ArrayJobID"], _text(row["ArrayTaskID"])
    if not tasks or tasks.isdigit():
        yield _job(row, f"{array}_{tasks}" if tasks else row["JobID"], used, now_s)
        return
    # One record stands for all tasks that nobody has touched.
    job = replace(_job(row, row["JobID"], used, now_s), number=0, window=_number(tasks.partition("%")[2]))
    for index in _indices(tasks):
        yield replace(job, id=f"{array}_{index}")


def _indices(text: str) -> Iterator[int]:
    """Of `1-5,8,10-20:5%2`."""
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _job(row: Mapping[str, str], name: str, used: str, now_s: float) -> SlurmJob:
    state, nodes = STATES.get(row["State"], row["State"]), max(1, _number(row["NumNodes"]))
    start_s = float(_number(row["StartTime"]))
    return SlurmJob(
        id=name,
        number=_number(row["JobID"]),
        state=state,
        reason=row["Reason"],
        held=_number(row["PriorityLong"]) == 0,
        user=_text(row["UserName"]) or f"uid{row['UserID']}",
        name=_text(row["Name"]),
        command=_text(row["Command"]),
        comment=_text(row["Comment"]),
        admin_comment=_text(row["admin_comment"]),
        account=_text(row["Account"]),
        cpus=max(1, _number(row["NumCPUs"])),
        memory_bytes=_memory(row, nodes),
        time_limit_s=seconds_of(row["TimeLimit"]),
        nodes=nodes,
        node=_text(row["ReqNodes" if state == "PENDING" else "NodeList"]),
        restarts=_number(row["RestartCnt"]),
        requeue=row["Requeue"] == "1",
        submit_s=float(_number(row["SubmitTime"])),
        eligible_s=float(_number(row["EligibleTime"])),
        since_s=_since(state, start_s, used, now_s) if state in PLACED else float(_number(row["EndTime"])),
        dependency=_text(row["Dependency"]),
        reservation=_text(row["Reservation"]),
        exit_status=_number(row["exit_code"]),
        parts=_number(row["HetJobID"]) != 0,
        special=row["State"] in SPECIAL,
    )


def _memory(row: Mapping[str, str], nodes: int) -> int:
    """On each node; 0: all that it has. MinMemory does not say whether it counts for each CPU, the sum does."""
    found = _MEMORY.search(row["tres-alloc"])
    if found is None or row["MinMemory"] == "0":
        return 0
    return round(float(found[1]) * _MIB[found[2]] * MIB / nodes)


def _since(state: str, start_s: float, used: str, now_s: float) -> float:
    """Since when a job runs or is suspended, as far as its start and the time that it ran say it."""
    used_s = seconds_of(used) or 0.0
    if state == "SUSPENDED":
        return start_s + used_s
    # To a second it is the start, but for one that was suspended before.
    return start_s if now_s - used_s - start_s < ROUNDED_S else now_s - used_s


def seconds_of(text: str) -> float | None:
    """Of `1-02:03:04`, `02:03:04` or `03:04`; None for no limit."""
    if text in NONE:
        return None
    days, _, clock = text.rpartition("-")
    total = 0.0
    for part in clock.split(":"):
        total = 60.0 * total + float(part)
    return total + 86400.0 * float(days or 0)


def _node(record: str) -> SlurmNode:
    fields = record.split(UNIT)
    if len(fields) != len(_NODE_WORDS) + 1:
        raise UnavailableError(f"Slurm: sinfo: a node has not the fields that were asked for: {record[:80]!r}")
    name, address, cpus, memory, state, reason = fields
    flags = set(state.upper().replace("*", "+NOT_RESPONDING").split("+"))
    said = [words for flag, words in CLOSED_FLAGS.items() if flag in flags]
    reason = "" if reason == "none" else reason
    return SlurmNode(
        name=name,
        address=address,
        cpus=_number(cpus),
        memory_bytes=MIB * _number(memory),
        down=bool(flags & DOWN_FLAGS),
        problem=f"{said[0]}{': ' if reason else ''}{reason}" if said else "",
    )


def _number(text: str) -> int:
    """The first of a range; 0 where there is none."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def _text(text: str) -> str:
    return "" if text in NONE else text
