"""What a host's CPUs do, whoever has them do it."""

from collections.abc import Iterable
from pathlib import Path

from dfrs.live.protocol.observed import HostUse

PROC = Path("/proc")
TICKS_S = 0.01
"""The unit of /proc/stat, which the kernel has fixed for programs."""
BUSY = (0, 1, 2, 5, 6)
"""Its columns user, nice, system, irq, softirq."""
STEAL = 7


def host_use(cpus: Iterable[int], proc: Path = PROC) -> HostUse | None:
    """CPU seconds since the host started, of those of its CPUs together; None where the kernel does not tell."""
    numbers = tuple(cpus)
    wanted, busy, stolen = {f"cpu{cpu}" for cpu in numbers}, 0, 0
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
    return None if wanted else HostUse(cpus=numbers, busy_s=busy * TICKS_S, steal_s=stolen * TICKS_S)
