"""What a host offers to controller and agents: control groups, swap space, CRIU, limits, disks, compiled kernels."""

import os
import resource
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from dfrs.live.doctor.findings import Finding, ok, warning, wrong
from dfrs.live.drivers.base import DriverError
from dfrs.live.drivers.control_groups.groups import detect
from dfrs.live.drivers.control_groups.swap import swap_space
from dfrs.live.drivers.processes.criu import find_criu

GIB, MIB = 1 << 30, 1 << 20
LEAST_DISK_BYTES, LOW_DISK_BYTES, LOW_DISK_PART = 128 * MIB, GIB, 0.05
"""Less free is wrong; less than the second, or than that part of the disk, is a warning."""
FILES = 4 * 1024
"""Open files with which a controller has all of its connections: strangers get a quarter."""
PROCESSES = 4096
"""Fewer may be too few for an agent and its tasks."""


def control_groups() -> Iterator[Finding]:
    """Whether tasks can have control groups: mounted, and ours to change."""
    check = "control groups"
    name = f"doctor-{os.getpid()}"
    try:
        groups = detect(name, name)
    except DriverError as error:
        yield _without_groups(check, str(error))
        return
    try:
        groups.create(None, None, float(os.cpu_count() or 1))
    except DriverError as error:
        yield _without_groups(check, f"{groups.kind}: cannot be used: {error}")
        return
    finally:
        with suppress(DriverError):
            groups.remove()
    limits = "" if groups.limits_memory else "; memory is not limited"
    if groups.limits_memory:
        yield ok(check, f"{groups.kind}, mounted and delegated{limits}")
    else:
        yield warning(check, f"{groups.kind}{limits}", "have the system mount or delegate the memory controller")


def _without_groups(check: str, why: str) -> Finding:
    mend = "run dfrs agent as root; else shares are nice levels, without limits of memory"
    return warning(check, why, mend)


def swap() -> Iterator[Finding]:
    """Whether pauses can free memory by swap space."""
    space = swap_space()
    if space.total_bytes:
        yield ok("swap", f"{_size(space.free_bytes)} of {_size(space.total_bytes)} free")
    else:
        yield warning("swap", "none: pauses do not free memory by it", "add swap space (swapon), or install CRIU")


def criu() -> Iterator[Finding]:
    """Whether tasks can be check-pointed."""
    found, why = find_criu()
    if found is not None:
        yield ok("CRIU", f"{found.version} works")
    else:
        yield warning("CRIU", why, "install CRIU 3.17 or later and run the agent as root; else jobs stay on their host")


def limits() -> Iterator[Finding]:
    """Open files and processes that this account may have."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files == resource.RLIM_INFINITY or files >= FILES:
        yield ok("open files", _limit(files))
    else:
        found = f"{files}: the controller has fewer connections than it could"
        yield warning("open files", found, f"ulimit -Hn {FILES}, or LimitNOFILE= of its unit")
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if os.geteuid() == 0 or processes == resource.RLIM_INFINITY or processes >= PROCESSES:
        yield ok("processes", "no limit" if os.geteuid() == 0 else _limit(processes))
    else:
        yield warning("processes", f"{processes}", f"ulimit -Hu {PROCESSES}, or LimitNPROC= for the agent")


def _limit(number: int) -> str:
    return "no limit" if number == resource.RLIM_INFINITY else str(number)


def kernels() -> Iterator[Finding]:
    """Whether compiled kernels are kept."""
    check = "compiled kernels"
    # It imports numba, which the other checks can do without.
    from dfrs.kernels.cache import KernelCache  # noqa: PLC0415 - as above
    from dfrs.kernels.sources import sources_digest  # noqa: PLC0415 - as above

    mend = "set NUMBA_CACHE_DIR to a directory that this account can write; else each start compiles for a minute"
    try:
        path = Path(KernelCache(sources_digest).cache_path)
    except RuntimeError as error:
        yield warning(check, f"cannot be kept: {' '.join(str(error).split())[:100]}", mend)
        return
    there = next(each for each in (path, *path.parents) if each.is_dir())
    if os.access(there, os.W_OK):
        yield ok(check, f"are kept in {path}")
    else:
        yield warning(check, f"{there}: cannot be written", mend)


def disks(places: Sequence[tuple[str, Path]]) -> Iterator[Finding]:
    """Free space where each of these is, or will be."""
    for name, place in places:
        check = f"disk of the {name}"
        there = next(each for each in (place, *place.parents) if each.exists())
        usage = shutil.disk_usage(there)
        found = f"{there}: {_size(usage.free)} of {_size(usage.total)} free"
        mend = f"free space there, or put the {name} elsewhere"
        if usage.free < LEAST_DISK_BYTES:
            yield wrong(check, found, mend)
        elif usage.free < max(LOW_DISK_BYTES, LOW_DISK_PART * usage.total):
            yield warning(check, found, mend)
        else:
            yield ok(check, found)


def _size(number: int) -> str:
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / MIB:.0f} MiB"
