"""CPU time, memory and swap space of a process, from /proc ([Atif2011] sections 5.4 and 6)."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_AFTER_NAME = 3
"""Fields of /proc/PID/stat are numbered from 1; the third follows the name, which may have spaces in it."""
_MINOR, _MAJOR, _USER, _SYSTEM = 10, 12, 14, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What a process has used since it began, and holds now."""

    cpu_s: float
    rss_bytes: int
    swap_bytes: int
    faults: int
    switches: int


def read_process(pid: int, proc: Path = Path("/proc")) -> ProcessUse | None:
    """What /proc says; None for a process that is gone, or whose memory was given back already."""
    place = proc / str(pid)
    try:
        stat = (place / "stat").read_text()
        status = (place / "status").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    fields = stat.rpartition(")")[2].split()
    values = {key: value.split() for key, _, value in (line.partition(":") for line in status.splitlines())}
    if "VmRSS" not in values or len(fields) < _SYSTEM - 2:
        return None

    def field(number: int) -> int:
        return int(fields[number - _AFTER_NAME])

    def value(name: str) -> int:
        return int(values[name][0]) if values.get(name) else 0

    return ProcessUse(
        cpu_s=_cpu_s(place, (field(_USER) + field(_SYSTEM)) / _TICKS),
        rss_bytes=value("VmRSS") * 1024,
        swap_bytes=value("VmSwap") * 1024,
        faults=field(_MINOR) + field(_MAJOR),
        switches=value("voluntary_ctxt_switches") + value("nonvoluntary_ctxt_switches"),
    )


def _cpu_s(place: Path, coarse_s: float) -> float:
    """CPU time of all threads in nanoseconds where the kernel tells; `coarse_s` is in its clock ticks."""
    try:
        tasks = list((place / "task").iterdir())
        fine = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9
    except (OSError, ValueError, IndexError):
        return coarse_s
    # Threads that have ended are only in the coarse figure.
    return max(fine, coarse_s - 2 / _TICKS)
