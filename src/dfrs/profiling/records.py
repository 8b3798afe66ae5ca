"""Reads the file in which a rank counts its messages, while it counts (layout: native/recorder.h).

Words that belong together stand between two counters, of which the writer raises the first before it changes them and
the second after. An entry is copied three times: if the second counter of the first copy equals the first counter of
the third, nothing was being changed when the second was copied, and that one is taken.
"""

import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

MAGIC = 0x31304D4649524644
KINDS = ("", "alltoall", "bcast", "allreduce", "barrier", "reduce", "allgather")
"""Kinds of collective calls by their number."""

_WORDS = (
    "magic",
    "rank",
    "size",
    "pid",
    "state",
    "start_ns",
    "start_ticks",
    "end_ns",
    "end_ticks",
    "start_cpu_ns",
    "cpu_ns",
    "minor_faults",
    "major_faults",
    "voluntary",
    "involuntary",
    "peak_rss_kb",
    "untracked",
    "mpi_ticks",
    "network_namespace",
)
_HEADER = np.dtype(
    {
        "names": [*_WORDS, "tick_ns", "host"],
        "formats": [*["<u8"] * len(_WORDS), "<f8", "S256"],
        "offsets": [*range(0, 8 * len(_WORDS), 8), 8 * len(_WORDS), 2048],
        "itemsize": 4096,
    }
)
_ENTRY_WORDS = 8
_KEY, _BEGUN, _ENDED = 0, 1, 2
_SENT, _RECEIVED, _ISENT, _IRECEIVED, _WAITED = 3, 4, 5, 6, 7
_COUNT, _TICKS, _PROCESSES = 3, 4, 5
_MESSAGES, _MORE_MESSAGES, _CALLS, _MORE_CALLS = 1024, 64, 256, 16
_ENTRIES = _MESSAGES + _MORE_MESSAGES + _CALLS + _MORE_CALLS
FILE_BYTES = 4096 + 8 * _ENTRY_WORDS * _ENTRIES
_TRIES = 200
"""For an entry that is written just then; one that no writer finished, as it was killed, is taken as it is."""
_MOST_TRIES = 20 * _TRIES
"""For all entries: no program is killed while it writes so many."""
_RUNNING, _FINISHED = 1, 2

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Messages of one size: how many, and the seconds waited for the non-blocking ones."""

    sent: int = 0
    received: int = 0
    isent: int = 0
    ireceived: int = 0
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Collective calls of one kind, size and number of processes: how many, and the seconds in them."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """What one rank had counted at one moment."""

    rank: int
    size: int
    """Ranks of its MPI_COMM_WORLD."""
    pid: int
    host: str
    network_namespace: int
    finished: bool
    """It has called MPI_Finalize."""
    elapsed_s: float
    """Since MPI_Init, until MPI_Finalize or now."""
    start_s: float
    """Monotonic clock at MPI_Init."""
    mpi_s: float
    """In MPI calls; that of short blocking messages is estimated from a sample."""
    cpu_s: float | None
    """CPU since MPI_Init; None while it runs."""
    faults: int
    switches: int
    peak_rss_bytes: int
    untracked: int
    """Non-blocking messages counted without their waiting time: too many were open at once."""
    messages: dict[int, Sizes]
    """By size in bytes; sizes beyond what the table holds are added up by powers of two, under their mean."""
    calls: dict[tuple[str, int, int], Calls]
    """By kind, bytes (of the message to one other process) and processes."""


class RankFile:
    """One rank's file. Raises ValueError for what is none (yet), also in `read` when it has been made shorter; OSError.

    It is read, not mapped: who counts may also cut it short, and that must not end its reader.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Neither a link to elsewhere nor a pipe that nobody writes.
        self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode) or self._header()["magic"] != MAGIC:
                raise ValueError(f"{path}: not the file of a rank")
        except (ValueError, OSError):
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)

    def read(self, now_ns: int) -> RankFigures:
        """The figures now; `now_ns` is the monotonic clock. Raises ValueError, OSError."""
        words = self._entries()
        header = self._header()
        tick_s = float(header["tick_ns"]) * 1e-9
        if not (math.isfinite(tick_s) and tick_s >= 0):
            raise ValueError(f"{self.path}: a tick of {tick_s:g} s")
        finished = int(header["state"]) == _FINISHED
        until_ns = int(header["end_ns"]) if finished else now_ns
        cpu_s = (int(header["cpu_ns"]) - int(header["start_cpu_ns"])) * 1e-9 if finished else None
        return RankFigures(
            rank=int(header["rank"]),
            size=int(header["size"]),
            pid=int(header["pid"]),
            host=bytes(header["host"]).decode(errors="replace"),
            network_namespace=int(header["network_namespace"]),
            finished=finished,
            elapsed_s=max(0.0, (until_ns - int(header["start_ns"])) * 1e-9),
            start_s=int(header["start_ns"]) * 1e-9,
            mpi_s=int(header["mpi_ticks"]) * tick_s,
            cpu_s=cpu_s,
            faults=int(header["minor_faults"]) + int(header["major_faults"]),
            switches=int(header["voluntary"]) + int(header["involuntary"]),
            peak_rss_bytes=int(header["peak_rss_kb"]) * 1024,
            untracked=int(header["untracked"]),
            messages=_messages(words[: _MESSAGES + _MORE_MESSAGES], tick_s),
            calls=_calls(words[_MESSAGES + _MORE_MESSAGES :], tick_s),
        )

    def _header(self) -> np.void:
        return np.frombuffer(self._bytes(0, 4096), _HEADER)[0]

    def _entries(self) -> Words:
        """(entries, 8) each consistent in itself."""
        first, second, third = (self._copy() for _ in range(3))
        torn = np.flatnonzero(first[:, _ENDED] != third[:, _BEGUN])
        left = _MOST_TRIES
        for at in torn:
            second[at], tries = self._entry(int(at))
            left -= tries
            if left <= 0:
                raise ValueError(f"{self.path}: too many of its entries are torn")
        return second

    def _entry(self, at: int) -> tuple[Words, int]:
        """One that is written often: its copies must follow each other closely. And how many tries that took."""
        begin = 4096 + 8 * _ENTRY_WORDS * at
        end = begin + 8 * _ENTRY_WORDS
        middle, tries = b"", 0
        while tries < _TRIES:
            before, middle, after = (self._bytes(begin, end) for _ in range(3))
            tries += 1
            if before[8 * _ENDED : 8 * _ENDED + 8] == after[8 * _BEGUN : 8 * _BEGUN + 8]:
                break
        return np.frombuffer(middle, "<u8"), tries

    def _copy(self) -> Words:
        return np.frombuffer(self._bytes(4096, FILE_BYTES), "<u8").reshape(_ENTRIES, _ENTRY_WORDS).copy()

    def _bytes(self, begin: int, end: int) -> bytes:
        found = os.pread(self._file, end - begin, begin)
        if len(found) < end - begin:
            raise ValueError(f"{self.path}: too short")
        return found


def _messages(words: Words, tick_s: float) -> dict[int, Sizes]:
    found: dict[int, Sizes] = {}
    used = words[:, [_SENT, _RECEIVED, _ISENT, _IRECEIVED]].sum(axis=1) > 0
    for at in np.flatnonzero(used):
        entry = [int(word) for word in words[at]]
        number = sum(entry[_SENT:_WAITED])
        size = entry[_KEY] - 1 if at < _MESSAGES else round(entry[_KEY] / number)
        before = found.get(size, Sizes())
        found[size] = Sizes(
            sent=before.sent + entry[_SENT],
            received=before.received + entry[_RECEIVED],
            isent=before.isent + entry[_ISENT],
            ireceived=before.ireceived + entry[_IRECEIVED],
            waited_s=before.waited_s + entry[_WAITED] * tick_s,
        )
    return found


def _calls(words: Words, tick_s: float) -> dict[tuple[str, int, int], Calls]:
    found: dict[tuple[str, int, int], Calls] = {}
    for at in np.flatnonzero(words[:, _COUNT] > 0):
        entry = [int(word) for word in words[at]]
        key = entry[_KEY]
        kind = key >> 60 if at < _CALLS else int(at) - _CALLS
        if kind >= len(KINDS):
            raise ValueError(f"kind of call {kind}: there is no such")
        if at < _CALLS:
            name = (KINDS[kind], key & (1 << 40) - 1, key >> 40 & 0xFFFFF)
        else:
            name = (KINDS[kind], round(key / entry[_COUNT]), max(1, round(entry[_PROCESSES] / entry[_COUNT])))
        before = found.get(name, Calls(count=0, seconds=0.0))
        found[name] = Calls(count=before.count + entry[_COUNT], seconds=before.seconds + entry[_TICKS] * tick_s)
    return found
