"""Processes that have left their task's control groups: no share, limit, pause or end reaches them there.

A task of root can move its processes to other groups. They stay below its supervisor, by which they are found.
"""

import os
import time
from collections.abc import Callable, Iterable

from dfrs.live.drivers.base import TaskId
from dfrs.live.drivers.control_groups.groups import NodeGroup
from dfrs.live.drivers.processes.supervisor import parents, read_text

LOOK_S = 5.0
"""All processes of the host are looked through so often, if there are tasks."""


class Strays:
    """What was found of each task. One that was away at two looks in a row has left: at one it may just be starting."""

    def __init__(self, groups: NodeGroup, clock: Callable[[], float] = time.monotonic) -> None:
        self._groups = groups
        self._clock = clock
        self._next_s = 0.0
        self._away: dict[TaskId, set[int]] = {}
        self._notes: dict[TaskId, str] = {}

    def note(self, task: TaskId) -> str:
        """In a sentence; empty for a task all of whose processes are where they belong."""
        return self._notes.get(task, "")

    def look(self, supervisors: Callable[[], Iterable[tuple[TaskId, int]]]) -> None:
        """Look again if it is time to, at running tasks with the number of each one's supervisor."""
        if self._clock() < self._next_s:
            return
        self._next_s = self._clock() + LOOK_S
        tasks = dict(supervisors())
        children: dict[int, list[int]] = {}
        for pid, parent in parents().items() if tasks else ():
            children.setdefault(parent, []).append(pid)
        away = {task: self._outside(task, _below(number, children)) for task, number in tasks.items()}
        both = {task: sorted(pids & self._away.get(task, set())) for task, pids in away.items()}
        self._away = away
        self._notes = {task: _words(pids) for task, pids in both.items() if pids}

    def _outside(self, task: TaskId, pids: list[int]) -> set[int]:
        files = [path for path in self._groups.group(str(task)).entries() if f"/{task}/" in path]
        groups = {os.path.dirname(path) for path in files}
        inside = [{int(pid) for pid in read_text(path).split()} for path in files]
        doubtful = [pid for pid in pids if not all(pid in members for members in inside)]
        return {pid for pid in doubtful if _is_outside(pid, task, len(groups))}


def _below(root: int, children: dict[int, list[int]]) -> list[int]:
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _is_outside(pid: int, task: TaskId, groups: int) -> bool:
    """Whether it lives, and is not in all of the task's groups, or in groups that a program has made below them."""
    lines = read_text(f"/proc/{pid}/cgroup").splitlines()
    return bool(lines) and sum(str(task) in line.split(":", 2)[2].split("/") for line in lines) < groups


def _words(pids: list[int]) -> str:
    who = f"process {pids[0]} has" if len(pids) == 1 else f"{len(pids)} processes, such as {pids[0]}, have"
    return (
        f"{who} left its control groups: its share, its memory limit, pauses and its end do not reach what is outside"
    )
