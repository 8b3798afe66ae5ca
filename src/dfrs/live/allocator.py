"""Has the C library give memory back that a program which runs for months needed once.

By default glibc keeps an arena for each thread that allocates at the same time, and takes larger and larger blocks from
its arenas, where what stays keeps what was freed around it.
"""

import ctypes
from contextlib import suppress

LARGE_BYTES = 128 << 10
"""Blocks from this size on have pages of their own, which go back when they are freed."""
_TRIM, _MMAP, _ARENAS = -1, -3, -8
"""Parameters of mallopt(3)."""


def give_free_pages_back() -> None:
    """Those between blocks that stay, too. Takes some milliseconds, without the interpreter's lock."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def give_memory_back() -> None:
    """To be called before there are other threads. Does nothing where the C library is another one."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    # With the interpreter's lock threads hardly ever allocate at the same time.
    for parameter, value in ((_ARENAS, 1), (_MMAP, LARGE_BYTES), (_TRIM, LARGE_BYTES)):
        mallopt(parameter, value)
