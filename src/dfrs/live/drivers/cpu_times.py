"""What CPUs of this host have done since it started, whoever had them do it."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICKS_S = 0.01
"""The unit of /proc/stat, which the kernel has fixed for programs."""
BUSY = (0, 1, 2, 5, 6)
"""Its columns user, nice, system, irq, softirq."""
STEAL = 7


class CpuTimes(NamedTuple):
    """In CPU seconds."""

    busy_s: float
    steal_s: float
    """Wanted by this host, and given to another virtual machine."""


def cpu_times(cpus: Iterable[int], proc: Path = PROC) -> CpuTimes | None:
    """Of those CPUs together; None where the kernel does not tell."""
    wanted, busy, stolen = {f"cpu{cpu}" for cpu in cpus}, 0, 0
    if not wanted:
        return None
    try:
        lines = (proc / "stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        name, *words = line.split()
        if name in wanted and len(words) > STEAL:
            wanted.remove(name)
            busy += sum(int(words[column]) for column in BUSY)
            stolen += int(words[STEAL])
    return None if wanted else CpuTimes(busy * TICKS_S, stolen * TICKS_S)


def wanted_s(before: CpuTimes, after: CpuTimes) -> float:
    """CPU seconds that were wanted between the two counts; below 0 where the later one begins anew."""
    return after.busy_s - before.busy_s + after.steal_s - before.steal_s


def stolen_part(before: CpuTimes, after: CpuTimes) -> float:
    """Of what the CPUs were wanted for between the two counts, the part that was stolen; 0 where that is not known."""
    wanted, stolen_s = wanted_s(before, after), after.steal_s - before.steal_s
    return stolen_s / wanted if 0.0 < stolen_s <= wanted else 0.0
