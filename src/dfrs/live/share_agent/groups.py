"""Control groups that Slurm makes for its jobs, on this node: their weights, and what is counted of them.

With version 1, Slurm has `slurm/uid_U/job_J/step_S` (or `slurm_NODE/...`, where several slurmd share a host) in the
tree of each controller that it uses: always `freezer`, and `cpuacct` and `memory` with jobacct_gather/cgroup. It gives
no weights and uses no `cpu`. Where that is mounted together with `cpuacct`, its groups are there all the same; where it
is not, this makes groups of its own in it, and moves the processes of jobs there. With version 2 (Slurm 22.05 and
later), a job is `system.slice/slurmstepd.scope/job_J`, with all controllers.
"""

import glob
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dfrs.model.errors import InputError

ROOT = Path("/sys/fs/cgroup")
SHARES = (2, 262_144)
WHOLE_NODE = 65_536
"""`cpu.shares` of a job that is to have all of its node."""
WEIGHTS = (1, 10_000)
"""`cpu.weight`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What is counted of a job."""

    cpu_s: float
    memory_bytes: int
    threads: tuple[int, ...]


class JobGroups(Protocol):
    """The groups of all jobs on a node."""

    kind: str

    def numbers(self) -> Sequence[int]:
        """Slurm's numbers of the jobs that are there."""
        ...

    def set_shares(self, cores: Mapping[int, float], node_cores: float) -> OSError | None:
        """Give jobs these parts of the node, of those that are there. Say it again and again: processes come.

        The first thing that kept a job that is there from its part.
        """
        ...

    def count(self, number: int) -> Counted | None:
        """What a job has used; None where it is gone, or nothing is counted of it."""
        ...


def find_groups(node: str, root: Path = ROOT) -> JobGroups:
    """Those of this host, by the version of control groups that it has. Raises InputError."""
    if (root / "cgroup.controllers").exists():
        groups, written = JobGroupsV2(node, root), root
    elif (root / "freezer").is_dir() and (root / "cpu").is_dir():
        groups, written = JobGroupsV1(node, root), root / "cpu"
    else:
        raise InputError(f"{root}: must have control groups of version 2, or of version 1 with cpu and freezer")
    if not os.access(written, os.W_OK):
        raise InputError(f"{written}: must be writable: shares need root, and control groups that are not read-only")
    return groups


class JobGroupsV1:
    """Of version 1."""

    kind = "cgroup-v1"

    def __init__(self, node: str, root: Path) -> None:
        self._root = root
        self._names = (f"slurm_{node}", "slurm")
        self._own = root / "cpu" / f"dfrs_{node}"

    def numbers(self) -> Sequence[int]:
        """As `JobGroups.numbers`."""
        return sorted(_numbers(self._jobs("freezer")))

    def set_shares(self, cores: Mapping[int, float], node_cores: float) -> OSError | None:
        """As `JobGroups.set_shares`."""
        joint = _numbers(self._jobs("cpu"))
        if joint:
            return self._set_joint({number: cores[number] for number in cores if number in joint}, joint, node_cores)
        jobs = _numbers(self._jobs("freezer"))
        failed: list[OSError | None] = []
        for number, job in jobs.items():
            if number in cores:
                own = self._own / job.name
                try:
                    own.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    failed.append(error)
                    continue
                failed.append(_write(own / "cpu.shares", _within(cores[number] / node_cores * WHOLE_NODE, SHARES)))
                _move(_processes(job), own)
        self._remove(f"job_{number}" for number in jobs)
        return _first(failed)

    def _set_joint(self, cores: Mapping[int, float], jobs: Mapping[int, Path], node_cores: float) -> OSError | None:
        """Jobs of a user are in a group of that user, which has as much as they have together."""
        users: dict[Path, float] = {}
        failed: list[OSError | None] = []
        for number, share in cores.items():
            value = share / node_cores * WHOLE_NODE
            failed.append(_write(jobs[number] / "cpu.shares", _within(value, SHARES)))
            users[jobs[number].parent] = users.get(jobs[number].parent, 0.0) + value
        failed += [_write(user / "cpu.shares", _within(value, SHARES)) for user, value in users.items()]
        return _first(failed)

    def _remove(self, kept: Iterable[str]) -> None:
        """Groups of jobs that are no more."""
        names = set(kept)
        for own in _below(self._own, "job_*"):
            if own.name not in names:
                with suppress(OSError):
                    own.rmdir()

    def count(self, number: int) -> Counted | None:
        """As `JobGroups.count`."""
        jobs = {name: _numbers(self._jobs(name)).get(number) for name in ("freezer", "cpuacct", "memory")}
        if jobs["freezer"] is None or jobs["cpuacct"] is None:
            return None
        cpu_ns = _read(jobs["cpuacct"] / "cpuacct.usage")
        memory = "" if jobs["memory"] is None else _read(jobs["memory"] / "memory.usage_in_bytes")
        if not cpu_ns:
            return None
        threads = _threads(_processes(jobs["freezer"]))
        return Counted(cpu_s=int(cpu_ns) / 1e9, memory_bytes=int(memory or 0), threads=threads)

    def _jobs(self, controller: str) -> Iterable[Path]:
        for name in self._names:
            yield from _below(self._root / controller / name, "uid_*/job_*")


class JobGroupsV2:
    """Of version 2."""

    kind = "cgroup-v2"

    def __init__(self, node: str, root: Path) -> None:
        self._root = root
        self._node = node

    def numbers(self) -> Sequence[int]:
        """As `JobGroups.numbers`."""
        return sorted(self._jobs())

    def set_shares(self, cores: Mapping[int, float], node_cores: float) -> OSError | None:
        """As `JobGroups.set_shares`."""
        return _first(
            [
                _write(job / "cpu.weight", _within(cores[number] / node_cores * WEIGHTS[1], WEIGHTS))
                for number, job in self._jobs().items()
                if number in cores
            ]
        )

    def count(self, number: int) -> Counted | None:
        """As `JobGroups.count`."""
        job = self._jobs().get(number)
        used = dict(line.split() for line in _read(job / "cpu.stat").splitlines()) if job is not None else {}
        if job is None or "usage_usec" not in used:
            return None
        memory = _read(job / "memory.current")
        threads = _threads(_processes(job))
        return Counted(cpu_s=int(used["usage_usec"]) / 1e6, memory_bytes=int(memory or 0), threads=threads)

    def _jobs(self) -> Mapping[int, Path]:
        scopes = ("slurmstepd.scope", f"{self._node}_slurmstepd.scope")
        return _numbers(job for scope in scopes for job in _below(self._root / "system.slice" / scope, "job_*"))


def _below(folder: Path, pattern: str) -> Sequence[Path]:
    """What is there. A group may go while its parent is read: for Path.glob that is an error."""
    return [folder / name for name in glob.iglob(pattern, root_dir=folder, recursive=True)]


def _numbers(jobs: Iterable[Path]) -> dict[int, Path]:
    found = ((job.name.removeprefix("job_"), job) for job in jobs)
    return {int(number): job for number, job in found if number.isdecimal()}


def _processes(job: Path) -> Sequence[int]:
    return [int(pid) for group in _below(job, "**/cgroup.procs") for pid in _read(group).split()]


def _threads(processes: Iterable[int]) -> tuple[int, ...]:
    found: list[int] = []
    for pid in processes:
        with suppress(OSError):
            found += map(int, os.listdir(f"/proc/{pid}/task"))
    return tuple(found)


def _move(processes: Sequence[int], group: Path) -> None:
    there = set(_read(group / "cgroup.procs").split())
    for pid in processes:
        if str(pid) not in there:
            # It may have ended since.
            with suppress(OSError):
                (group / "cgroup.procs").write_text(str(pid))


def _within(value: float, limits: tuple[int, int]) -> int:
    return min(max(round(value), limits[0]), limits[1])


def _write(file: Path, value: int) -> OSError | None:
    """What kept a group that is there from having this value.

    The kernel tells who reads what is set: a file that has it already is left alone.
    """
    if _read(file).strip() != str(value):
        try:
            file.write_text(str(value))
        except OSError as error:
            # The job may just have ended.
            return error if file.parent.is_dir() else None
    return None


def _first(failed: Sequence[OSError | None]) -> OSError | None:
    return next((error for error in failed if error is not None), None)


def _read(file: Path) -> str:
    """Empty where it is gone."""
    with suppress(OSError):
        return file.read_text()
    return ""


def now_s() -> float:
    """The host's monotonic clock."""
    return time.monotonic()
