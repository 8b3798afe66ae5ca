"""Hardware performance counters of a program and all its children ([Atif2011] section 5.2), by perf_event_open.

[Atif2011] read floating-point operations and cache misses from Xenoprofile. Here the kernel counts them: counters are
opened on the process that is about to become the program, inherited by everything it starts, and scaled where the CPU
has fewer counters than events. Which raw events count floating-point operations depends on the CPU: those of Intel
since Broadwell and of AMD since Zen are known. A virtual machine has often none of them: `open_counters` then says why,
and the profile has CPU seconds in their place (see `dfrs.profiling.reader`).
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dfrs.model.hardware import FLOP, L1_MISS, L2_MISS
from dfrs.profiling.cpuinfo import cpu_fields, cpuinfo

CYCLES, INSTRUCTIONS = "cycles", "instructions"
HARDWARE, SOFTWARE, CACHE, RAW = 0, 1, 3, 4
"""Types of events, as the kernel numbers them."""

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQ")
_SIZE = 112
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV, _ON_EXEC = 1 << 0, 1 << 1, 1 << 5, 1 << 6, 1 << 12
_TIMES = 1 | 2
_L1_READ_MISS = 0 | 0 << 8 | 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of the kernel; `weight` is how many of `name` each stands for (a vector operation is several)."""

    name: str
    kind: int
    config: int
    weight: float = 1.0


GENERAL = (
    Event(name=CYCLES, kind=HARDWARE, config=0),
    Event(name=INSTRUCTIONS, kind=HARDWARE, config=1),
    Event(name=L1_MISS, kind=CACHE, config=_L1_READ_MISS),
    Event(name=L2_MISS, kind=HARDWARE, config=3),
)
"""On every CPU with counters. The kernel's "cache misses" are of the last level: [Atif2011]'s machines had two."""

_INTEL_FLOPS = tuple(
    Event(name=FLOP, kind=RAW, config=umask << 8 | 0xC7, weight=weight)
    for umask, weight in ((1, 1), (2, 1), (4, 2), (8, 4), (16, 4), (32, 8), (64, 8), (128, 16))
)
_AMD_FLOPS = (Event(name=FLOP, kind=RAW, config=0xFF03),)


def flop_events(cpu: str) -> tuple[Event, ...]:
    """Raw events that count floating-point operations, by what /proc/cpuinfo says; none where it is not known."""
    values = cpu_fields(cpu)
    family = int(values.get("cpu family", "0"))
    # ADX came with Broadwell: Haswell has AVX2, and does not count these.
    if (
        values.get("vendor_id") == "GenuineIntel"
        and family == 6
        and {"avx2", "adx"} <= {*values.get("flags", "").split()}
    ):
        return _INTEL_FLOPS
    return _AMD_FLOPS if values.get("vendor_id") == "AuthenticAMD" and family >= 0x17 else ()


class CpuCounters:
    """Open counters of one process and its descendants."""

    def __init__(self, files: Sequence[tuple[Event, int]]) -> None:
        self._files = list(files)

    @property
    def names(self) -> tuple[str, ...]:
        """What is counted, each once."""
        return tuple(dict.fromkeys(event.name for event, _ in self._files))

    def read(self) -> dict[str, float]:
        """Events so far, of all processes together, by name."""
        found: dict[str, float] = {}
        for event, file in self._files:
            count, enabled, running = struct.unpack("<QQQ", os.read(file, 24))
            # Counted for a part of the time only where there are more events than counters.
            whole = count * (enabled / running) if running else 0.0
            found[event.name] = found.get(event.name, 0.0) + whole * event.weight
        return found

    def close(self) -> None:
        """Give the counters back."""
        for _, file in self._files:
            os.close(file)
        self._files.clear()


def open_counters(
    pid: int,
    events: Sequence[Event] | None = None,
    opened: Callable[[Event, int], int] | None = None,
) -> tuple[CpuCounters | None, str]:
    """CpuCounters of `pid` from its next exec on and of all it starts; None, and why, where there are none.

    An event that this CPU does not have is left out; those of a name are left out together.
    """
    wanted = (*GENERAL, *flop_events(cpuinfo())) if events is None else events
    files: list[tuple[Event, int]] = []
    missing: dict[str, str] = {}
    for event in wanted:
        try:
            files.append((event, (opened or _open)(event, pid)))
        except OSError as error:
            missing[event.name] = _reason(error)
    for event, file in files:
        if event.name in missing:
            os.close(file)
    files = [(event, file) for event, file in files if event.name not in missing]
    if not files:
        return None, next(iter(missing.values()), "no events are known for this CPU")
    return CpuCounters(files), ", ".join(f"{name}: {why}" for name, why in missing.items())


def model_events(counts: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """Those of the events that a sub-cluster has cycles for: the model adds what events cost, and cycles and
    instructions would count everything a second time. None where no floating-point operation was counted: cache misses
    alone are not the CPU's work."""
    if FLOP not in known or counts.get(FLOP, 0.0) <= 0:
        return {}
    return {name: count for name, count in counts.items() if name in known and name not in {CYCLES, INSTRUCTIONS}}


def _reason(error: OSError) -> str:
    if error.errno in {errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL}:
        return "this CPU, or virtual machine, does not count it"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "not permitted: kernel.perf_event_paranoid must be at most 2"
    return os.strerror(error.errno or 0)


def _open(event: Event, pid: int) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _DISABLED | _INHERIT | _EXCLUDE_HV | _ON_EXEC | (0 if event.kind == SOFTWARE else _EXCLUDE_KERNEL)
    packed = _ATTRIBUTES.pack(event.kind, _SIZE, event.config, 0, 0, _TIMES, flags, 0, 0, 0, 0)
    attributes = ctypes.create_string_buffer(packed.ljust(_SIZE, b"\0"), _SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    close_on_exec = 8
    file = libc.syscall(
        ctypes.c_long(number),
        attributes,
        ctypes.c_int(pid),
        ctypes.c_int(-1),
        ctypes.c_int(-1),
        ctypes.c_ulong(close_on_exec),
    )
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(file)
