"""What a dump asks of a task: that it is a tree, that it is frozen where CRIU can take it, that it was not harmed."""

import os
import time

from dfrs.live.drivers.base import TaskId
from dfrs.live.drivers.processes import supervisor
from dfrs.live.drivers.processes.beside import BesidePrograms
from dfrs.live.drivers.processes.criu import parent_of
from dfrs.live.drivers.processes.directory import TaskDirectory
from dfrs.live.drivers.processes.image_files import ImageError, TryAgainError
from dfrs.live.drivers.processes.supervisor import Place, living, read_text

FREEZE_S = 2.0
HARM_S = 5.0
"""At most so long it is watched whether CRIU, which was killed, has left harm."""
VFORK_WAITS = ("kernel_clone", "wait_for_vfork_done", "_do_fork")
"""Where the kernel has a parent wait after vfork, by its versions."""


def dumpable(files: TaskDirectory, task: TaskId) -> tuple[Place, int]:
    """Where a task's processes are, and the first of them. Raises ImageError if they are no tree that runs."""
    owner = files.owner(task)
    if owner is None or files.exit(task) is not None:
        raise ImageError(f"task {task}: does not run here")
    place = files.place(task, owner)
    if "freeze" not in place.entries:
        raise ImageError(f"task {task}: cannot be check-pointed: needs control groups")
    first = read_text(f"{files.path(task)}/task.pid")
    main = living(first)
    if place.supervisor is None or main is None:
        raise ImageError(f"task {task}: cannot be check-pointed: its first process has not begun, or has ended")
    # The supervisor's own child until it becomes the program.
    if os.path.samefile(f"/proc/{main}/exe", f"/proc/{place.supervisor}/exe") and _same_text(
        f"/proc/{main}/cmdline", f"/proc/{place.supervisor}/cmdline"
    ):
        raise TryAgainError(f"task {task}: is still starting: try again")
    if "input" in files.spec(task):
        raise ImageError(f"task {task}: cannot be check-pointed: its user can send it input")
    if BesidePrograms(files).runs(task):
        raise ImageError(f"task {task}: cannot be check-pointed: a user's program runs beside it")
    below = parent_of(main)
    stray = [pid for pid in _children(below) if pid != main]
    if below != place.supervisor:
        stray += [pid for pid in _children(place.supervisor) if pid != below]
    if stray:
        raise ImageError(f"task {task}: cannot be check-pointed: process {stray[0]} of it has lost its parent")
    return place, main


def freeze_between_programs(place: Place) -> bool:
    """Freeze a task when none of its threads waits for its child to begin a program, which CRIU cannot interrupt.

    Whether that was possible in time. Such a wait is short but for the freezing.
    """
    until = time.monotonic() + FREEZE_S
    while place.freeze(FREEZE_S):
        if not any(read_text(f"/proc/{thread}/wchan") in VFORK_WAITS for thread in threads_of(place)):
            return True
        if time.monotonic() > until:
            return False
        place.thaw()
        time.sleep(0.002)
    return False


def stays_frozen(place: Place) -> bool:
    """Whether it is frozen once CRIU has let go of it."""
    until = time.monotonic() + FREEZE_S
    while not place.frozen():
        if place.entries["freeze_on"] not in read_text(place.entries["freeze"]) or time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def _same_text(first: str, second: str) -> bool:
    return read_text(first) == read_text(second)


def _children(pid: int) -> list[int]:
    return [int(child) for child in read_text(f"/proc/{pid}/task/{pid}/children").split()]


def threads_of(place: Place) -> list[int]:
    """The numbers of all its threads on this host."""
    group = os.path.dirname(place.entries["procs"])
    return [int(word) for file in ("tasks", "cgroup.threads") for word in read_text(f"{group}/{file}").split()]


def at_work(mark: str) -> bool:
    """Whether a shell still waits for CRIU to let go of a task: it has this mark among its words."""
    return any(
        mark in read_text(f"/proc/{entry}/cmdline").split("\0") for entry in os.listdir("/proc") if entry.isdigit()
    )


def _slices(thread: int) -> int:
    """How often a thread was given the CPU."""
    words = read_text(f"/proc/{thread}/schedstat").split()
    return int(words[2]) if words else 0


def unharmed(place: Place, threads: list[int]) -> bool:
    """Whether all threads go on after CRIU was killed: one into which it had put code ends as soon as it runs."""
    ran = {thread: _slices(thread) for thread in threads}
    place.thaw()
    until = time.monotonic() + HARM_S
    while time.monotonic() < until:
        time.sleep(0.01)
        if all(_slices(thread) > ran[thread] or supervisor.stat_fields(thread)[:1] != ["R"] for thread in threads):
            break
    return set(threads) <= set(threads_of(place))


def numbers_of(place: Place) -> list[int]:
    """The numbers of all processes, threads, groups and sessions of a task, as it knows them."""
    found: set[int] = set()
    for thread in threads_of(place):
        for line in read_text(f"/proc/{thread}/status").splitlines():
            if line.startswith(("NSpid:", "NSpgid:", "NSsid:")):
                found.add(int(line.split()[-1]))
    return sorted(found - {0})
