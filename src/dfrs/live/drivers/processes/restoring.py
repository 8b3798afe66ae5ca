"""What a restore asks of a host: memory for CRIU, and process numbers that are free."""

import contextlib
import os
from collections.abc import Generator

from dfrs.live.drivers.processes.supervisor import read_text, write_control

MEMORY_LIMITS = ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes", "memory.max")
RESTORE_BYTES = 32 << 20
"""What CRIU may need while it restores: of a small program, 2 MiB were too little and 4 MiB enough."""
OWN_NUMBERS = 2_000
"""So many process numbers are left to CRIU in a namespace of its own."""


@contextlib.contextmanager
def room(enter: list[str], limit_bytes: int) -> Generator[None]:
    """Let a task's groups have more memory than its limit: CRIU needs some, and is in them while it restores."""
    files = [f"{os.path.dirname(path)}/{name}" for path in enter for name in MEMORY_LIMITS]
    # A limit of none is `max`; that which counts swap space as well is never the lower one.
    files = [file for file in files if limit_bytes and read_text(file).strip().isdigit()]
    for file in files:
        with contextlib.suppress(OSError):
            write_control(file, str(limit_bytes + RESTORE_BYTES))
    try:
        yield
    finally:
        for file in reversed(files):
            with contextlib.suppress(OSError):
                write_control(file, str(limit_bytes))


def taken(numbers: tuple[int, ...]) -> bool:
    """Whether one of these numbers is in use on this host."""
    return any(os.path.exists(f"/proc/{number}") for number in numbers)


def free_numbers(numbers: tuple[int, ...]) -> int:
    """From where on `OWN_NUMBERS` numbers are none of these."""
    known = set(numbers)
    first = int(read_text("/proc/sys/kernel/pid_max")) - OWN_NUMBERS
    while known & set(range(first, first + OWN_NUMBERS)):
        first -= OWN_NUMBERS
    return first
