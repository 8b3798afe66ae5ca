"""What a node has to share: its CPUs and memory, as the kernel tells them and its control groups allow."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dfrs.model.errors import InputError

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
RESERVE_FRACTION = 0.05
"""Of the host's memory that is kept for everything but tasks …"""
LEAST_RESERVE_BYTES, MOST_RESERVE_BYTES = 128 << 20, 2 << 30
"""… within these."""
LEAST_MEMORY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCapacity:
    """What a node offers."""

    cpus: tuple[int, ...]
    """Numbers of its CPUs, ascending."""
    cores: float
    """CPU time that all its tasks together get, in cores; at most the number of CPUs."""
    memory_bytes: int

    @property
    def cpu_list(self) -> str:
        """Its CPUs as the kernel writes them: `0,2-3`."""
        runs: list[list[int]] = []
        for cpu in self.cpus:
            if runs and cpu == runs[-1][-1] + 1:
                runs[-1][1:] = [cpu]
            else:
                runs.append([cpu])
        return ",".join("-".join(map(str, run)) for run in runs)


def measure(
    *,
    cpus: str | None = None,
    cores: float | None = None,
    memory_bytes: int | None = None,
    proc: Path = PROC,
    groups: Path = GROUPS,
) -> HostCapacity:
    """What this node has, or the part of it that is asked for.

    `cpus` is a list like `0,2-3`; `cores` and `memory_bytes` may be less than there is. Without them it is what
    affinity and the agent's control group allow, memory minus a reserve. `proc` and `groups` are where the kernel's
    files are. Raises InputError for more than there is.
    """
    usable = os.sched_getaffinity(0)
    chosen = tuple(sorted(usable)) if cpus is None else parse_cpus(cpus)
    if missing := [cpu for cpu in chosen if cpu not in usable]:
        have = HostCapacity(cpus=tuple(sorted(usable)), cores=1, memory_bytes=0).cpu_list
        raise InputError(f"cpus {cpus}: CPU {missing[0]} is not among those that may be used here: {have}")
    quota = _cpu_quota(proc, groups)
    most = len(chosen) if quota is None else min(quota, float(len(chosen)))
    if cores is not None and not 0 < cores <= len(chosen):
        raise InputError(f"cores {cores:g}: must be above 0 and at most {len(chosen)}, the number of CPUs")
    host = _host_memory(proc, groups)
    reserve = min(MOST_RESERVE_BYTES, max(LEAST_RESERVE_BYTES, round(RESERVE_FRACTION * host)))
    if memory_bytes is not None and not LEAST_MEMORY_BYTES <= memory_bytes <= host:
        raise InputError(f"memory {memory_bytes}: must be from {LEAST_MEMORY_BYTES} to {host} bytes, what there is")
    return HostCapacity(
        cpus=chosen,
        cores=most if cores is None else min(cores, most),
        memory_bytes=max(LEAST_MEMORY_BYTES, host - reserve) if memory_bytes is None else memory_bytes,
    )


def parse_cpus(text: str) -> tuple[int, ...]:
    """The CPUs of a list like `0,2-3`, ascending. Raises InputError."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)) or len(part) > 16:
            raise InputError(f'cpus "{text}": must be a list of CPUs, as 0 or 0,2-3')
        begin, end = int(first), int(last or first)
        if not begin <= end < 1 << 16:
            raise InputError(f'cpus "{text}": {part.strip()} must go upwards, and stay below 65536')
        found.update(range(begin, end + 1))
    return tuple(sorted(found))


def _host_memory(proc: Path, groups: Path) -> int:
    """Bytes of the host, or what the agent's control groups allow of them."""
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) << 10
            break
    else:
        raise InputError(f"{proc / 'meminfo'}: has no MemTotal; give --memory")
    limits = [*_numbers(proc, groups, "memory", "memory.limit_in_bytes"), *_numbers(proc, groups, "", "memory.max")]
    return min([total, *(limit for limit in limits if limit >= LEAST_MEMORY_BYTES)])


def _cpu_quota(proc: Path, groups: Path) -> float | None:
    """Cores that the agent's control groups allow; None without a limit."""
    cores: list[float] = []
    for group in _groups(proc, groups, ""):
        match _words(group / "cpu.max"):
            case [quota, period] if quota.isdecimal() and period.isdecimal():
                cores.append(int(quota) / int(period))
            case _:
                pass
    for group in _groups(proc, groups, "cpu"):
        match _words(group / "cpu.cfs_quota_us"), _words(group / "cpu.cfs_period_us"):
            case [quota], [period] if quota.isdecimal() and period.isdecimal():
                cores.append(int(quota) / int(period))
            case _:
                pass
    return min(cores, default=None)


def _numbers(proc: Path, groups: Path, controller: str, name: str) -> list[int]:
    found = (_words(group / name) for group in _groups(proc, groups, controller))
    return [int(words[0]) for words in found if words and words[0].isdecimal()]


def _groups(proc: Path, groups: Path, controller: str) -> Iterator[Path]:
    """The agent's control group and all above it, of a v1 controller or, with an empty name, of v2.

    A container may see other paths than those that are mounted; what is not there limits nothing.
    """
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        mounted = groups / controllers if controller else groups
        if controller and not mounted.is_dir():
            mounted = groups / controller
        inner = Path(path.lstrip("/"))
        for part in (inner, *inner.parents):
            yield mounted / part


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    lines = _lines(path)
    return lines[0].split() if lines else []
