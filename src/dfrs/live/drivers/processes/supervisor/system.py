"""Processes as the kernel knows them, and what it is asked to do with them."""

import contextlib
import ctypes
import math
import os
import time
from collections.abc import Iterable, Iterator

from .files import read_text, write_control

NO_START = "-"
LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")
"""Whether the kernel tells the children of a process, or only the parent of each."""
SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36


def stat_fields(pid: int) -> list[str]:
    """/proc/<pid>/stat from the state on (field 3 of its manual is index 0); empty if there is no such process."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


BOOT = read_text("/proc/sys/kernel/random/boot_id").strip()


def shutting_down(proc: str = "/proc", run: str = "/run") -> bool:
    """Whether this machine is: it lets nobody log in, or its first process does nothing else any more."""
    return os.path.exists(f"{run}/nologin") or read_text(f"{proc}/1/comm").startswith("systemd-shutdow")


def identity(pid: int) -> str:
    """What tells a process from all others, before and after it: number, start time, boot."""
    return f"{pid} {(stat_fields(pid) or [NO_START] * 20)[19]} {BOOT}"


def age_s(pid: int) -> float:
    """Seconds since the process began; inf if there is no such process."""
    fields = stat_fields(pid)
    if not fields:
        return math.inf
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def living(name: str) -> int | None:
    """The process number if the process of that identity lives, None if not."""
    pid = name.partition(" ")[0]
    if not pid.isdigit():
        return None
    fields = stat_fields(int(pid))
    same = fields and fields[0] not in "ZX" and name == f"{pid} {fields[19]} {BOOT}"
    return int(pid) if same else None


def parents() -> dict[int, int]:
    """The parent of each process that is not a zombie."""
    known: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat_fields(int(entry))) and fields[0] not in "ZX":
            known[int(entry)] = int(fields[1])
    return known


def session(pid: int) -> int | None:
    """The number of a process's session; None if there is no such process."""
    fields = stat_fields(pid)
    return int(fields[3]) if fields else None


def descendants(root: int, known: dict[int, int] | None = None) -> list[int]:
    """All processes below `root`, in no order."""
    children: dict[int, list[int]] = {}
    for pid, parent in (parents() if known is None else known).items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def walk(root: int) -> Iterator[int]:
    """All processes below `root`, parents first. Cheap: the more so the sooner the caller has seen enough.

    While some of them end, others may be passed over, which are not in `descendants`.
    """
    if not LISTS_CHILDREN:
        yield from descendants(root)
        return
    found = [root]
    for pid in found:
        for thread in threads(pid):
            children = [int(child) for child in read_text(f"/proc/{pid}/task/{thread}/children").split()]
            found += children
            yield from children


def threads(pid: int) -> list[int]:
    """The threads of a process; none if there is no such process."""
    with contextlib.suppress(OSError):
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    return []


def send(pids: Iterable[int], number: int) -> None:
    """A signal to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def control_process(option: int, value: int) -> None:
    """The system call prctl."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def call(name: str, *arguments: object) -> None:
    """A function of the C library. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def set_session_level(pid: int, level: int) -> bool:
    """The nice level of a process's session, where the kernel groups by session; False if it must be tried again."""
    for _ in range(3):
        try:
            write_control(f"/proc/{pid}/autogroup", str(level))
        except BlockingIOError:
            # Without privileges, once in a tenth of a second on the whole host.
            time.sleep(0.11)
        except OSError:
            break
        else:
            break
    else:
        return False
    return True
