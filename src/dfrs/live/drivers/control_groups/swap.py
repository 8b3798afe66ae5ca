"""The host's swap space, to which the memory of paused tasks goes."""

from dataclasses import dataclass

from dfrs.live.drivers.processes.supervisor import read_text

MEMINFO = "/proc/meminfo"


@dataclass(frozen=True, slots=True)
class SwapSpace:
    """All of it, and what is free."""

    total_bytes: int
    free_bytes: int


def swap_space(path: str = MEMINFO) -> SwapSpace:
    """As the kernel tells it now; none where it does not."""
    found = dict.fromkeys(("SwapTotal", "SwapFree"), 0)
    for line in read_text(path).splitlines():
        name, _, rest = line.partition(":")
        if name in found:
            found[name] = int(rest.split()[0]) << 10
    return SwapSpace(found["SwapTotal"], found["SwapFree"])
