"""The host's swap space, to which the memory of paused tasks goes, and from where it comes back."""

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from dfrs.live.drivers.processes.supervisor import read_text

MEMINFO = "/proc/meminfo"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SPAN_BYTES = 1 << 30
MOST_SPANS = 512
"""In one call, which the kernel lets have 1,024, and of them no more than 2 GiB."""
_PROCESS_MADVISE, _WILL_NEED = 440, 3
"""The system call's number, the same on all machines, and MADV_WILLNEED."""
_NO_FILES = ("[heap]", "[stack", "[anon", "/dev/shm/", "/dev/zero", "/memfd:", "/SYSV")  # noqa: S108 - compared with what /proc says
"""How areas of memory are named whose content is no file's; others have no name."""


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


class _Span(ctypes.Structure):
    """The kernel's `struct iovec`."""

    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def recall(pids: Iterable[int]) -> None:
    """Have the kernel read what processes have in swap space, in large pieces, before they fault for each small one.

    A help only: where the kernel cannot do it, or a process ends meanwhile, pages come back as they are touched.
    """
    for pid in pids:
        spans = _spans(read_text(f"/proc/{pid}/maps"))
        with suppress(OSError):
            process = os.pidfd_open(pid)
            try:
                for part in _calls(spans):
                    vector = (_Span * len(part))(*part)
                    ctypes.CDLL(None).syscall(
                        _PROCESS_MADVISE, process, vector, ctypes.c_size_t(len(part)), _WILL_NEED, 0
                    )
            finally:
                os.close(process)


def _calls(spans: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """The spans, as many in a call as it may have."""
    part, size = list[tuple[int, int]](), 0
    for span in spans:
        if part and (len(part) == MOST_SPANS or size + span[1] > 2 * SPAN_BYTES - PAGE_BYTES):
            yield part
            part, size = [], 0
        part.append(span)
        size += span[1]
    if part:
        yield part


def _spans(maps: str) -> list[tuple[int, int]]:
    """(start, bytes) of what a process can write and no file holds, by its `maps`."""
    spans: list[tuple[int, int]] = []
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if "w" not in words[1] or (len(words) > 5 and not words[5].startswith(_NO_FILES)):
            continue
        start, end = (int(word, 16) for word in words[0].split("-"))
        while start < end:
            spans.append((start, min(end - start, SPAN_BYTES)))
            start += SPAN_BYTES
    return spans
