"""Runs tasks as plain processes, where the agent has no control groups: for a laptop, or a node without root.

What that costs. Shares are nice levels 0 to 19, each of which weighs 1.25 times the next: a ratio of two shares is met
within 12 %, between 1 and 1/69 of the node, and counts per thread, so a task of many threads gets more, and an agent
without privileges can lower a task's share but not raise it. An agent that has a nice level itself, as by
`nice dfrs agent`, counts from that, below which it could give none without privileges: it has fewer levels, and its
least share is more of the node. Where the kernel groups by session (`sched_autogroup_enabled`, and the agent is in no
CPU control group), the session has that level too: then it counts per session, of which a task has one unless it makes
more, and can be raised again by anybody.

There are no caps and no memory limits: an address space limit would hit programs that reserve and never use. A pause is
SIGSTOP to every process below the task's supervisor, repeated until all have stopped; the task's own shells may see it.
Times are those of living processes and of those that were waited for.
"""

import contextlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dfrs.live.drivers.base import (
    KEPT_OUTPUT_BYTES,
    DriverAbilities,
    DriverError,
    PauseRefusedError,
    TaskId,
    TaskSpec,
    TaskState,
    Usage,
)
from dfrs.live.drivers.control_groups.groups import cpu_list
from dfrs.live.drivers.cpu_times import cpu_times
from dfrs.live.drivers.processes import supervisor
from dfrs.live.drivers.processes.directory import Owner
from dfrs.live.drivers.processes.driver import SupervisedDriver
from dfrs.live.drivers.processes.stake import NO_RESOURCES
from dfrs.live.drivers.run_delays import RunDelays, count

STEP = 1.25
"""Ratio of the kernel's weights of neighbouring nice levels."""
LEAST_LEVEL, GREATEST_LEVEL = 0, 19
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def nice_level(share: float) -> int:
    """The nice level for a part of a node, in [0, 1]: 0 for all of it, 19 for 1/69 and less."""
    if share <= 0:
        return GREATEST_LEVEL
    return min(max(round(-math.log(share, STEP)), LEAST_LEVEL), GREATEST_LEVEL)


def own_level() -> int:
    """The nice level from which this agent's tasks have theirs: its own, unless it comes before others."""
    return max(os.getpriority(os.PRIO_PROCESS, 0), LEAST_LEVEL)


class NiceDriver(SupervisedDriver):
    """Tasks of one node as processes with nice levels. All nodes of a host share `root`."""

    def __init__(
        self,
        root: Path,
        node: str,
        *,
        cpus: str | None = None,
        cores: float,
        memory_bytes: int,
        output_bytes: int = KEPT_OUTPUT_BYTES,
        resources: Mapping[str, int] = NO_RESOURCES,
    ) -> None:
        super().__init__(root, node, cores, memory_bytes, output_bytes, resources)
        self.cpus = os.sched_getaffinity(0) if cpus is None else cpu_list(cpus)
        if not self.cpus <= os.sched_getaffinity(0):
            raise DriverError(f"cpus {cpus!r}: this agent may use {sorted(os.sched_getaffinity(0))}")
        self.by_session = _grouped_by_session()
        self.measures_waiting = os.path.exists("/proc/self/schedstat")
        self._delays = RunDelays()
        self._recover()

    @property
    def abilities(self) -> DriverAbilities:
        """What it can do here."""
        own = own_level()
        least = f"1/{STEP ** (GREATEST_LEVEL - own):.0f}"
        notes = [f"no control groups: shares are nice levels, met within 12 % and not below {least} of the node"]
        if own > LEAST_LEVEL:
            notes.append(f"the agent has nice level {own}: its tasks have that or more, and come after other programs")
        if not self.by_session:
            notes.append("shares count per thread: a task of many threads gets more")
            if os.geteuid() != 0:
                notes.append("without privileges a share can be lowered but not raised")
        notes += ["limits of memory and processes are not enforced", "a paused task keeps its memory"]
        return DriverAbilities(
            shares="nice",
            caps=False,
            memory_limits=False,
            pause_frees_memory=False,
            moves_on_host=True,
            measures_waiting=self.measures_waiting,
            notes=tuple(notes),
        )

    @property
    def frees_memory(self) -> bool:
        """Never: without control groups nobody can have the memory of some processes written to swap space."""
        return False

    def _free(self, task: TaskId) -> None:
        raise PauseRefusedError(f"task {task}: its memory stays where it is")

    def _unfree(self, task: TaskId) -> None:
        pass

    def _place(self, task: TaskId) -> dict[str, str]:
        return {}

    def _prepare(self, task: TaskId, spec: TaskSpec, share_cores: float) -> None:
        pass

    def _enter(self, task: TaskId) -> list[str]:
        return []

    def _counted(self, task: TaskId, owner: Owner) -> dict[str, float]:
        return {}

    def _extras(self, task: TaskId, spec: TaskSpec, share_cores: float) -> list[tuple[str, str]]:
        affinity = ",".join(map(str, sorted(self.cpus)))
        return [("nice", str(self._level(share_cores))), ("affinity", affinity)]

    def _joins(self, task: TaskId) -> list[tuple[str, str]]:
        pids = self.files.place(task, self._mine(task)).members()
        level = max((os.getpriority(os.PRIO_PROCESS, pid) for pid in pids), default=GREATEST_LEVEL)
        return [("nice", str(level)), ("affinity", ",".join(map(str, sorted(self.cpus))))]

    def _level(self, share_cores: float) -> int:
        return min(own_level() + nice_level(share_cores / self.cores), GREATEST_LEVEL)

    def _move(self, task: TaskId, owner: Owner) -> dict[str, float]:
        # The kernel has both by thread.
        for pid in self.files.place(task, owner).members():
            for thread in supervisor.threads(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, self.cpus)
        return {}

    def _leave(self, task: TaskId, node: str) -> None:
        pass

    def _clear(self, task: TaskId, node: str) -> None:
        pass

    def _share(self, task: TaskId, share_cores: float) -> None:
        level = self._level(share_cores)
        sessions: dict[str, int] = {}
        pids = self.files.place(task, self._mine(task)).members()
        for thread in (thread for pid in pids for thread in supervisor.threads(pid)):
            # It may have ended, or be at a lower share from which only root may raise it.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, level)
        for pid in pids:
            if fields := supervisor.stat_fields(pid):
                sessions[fields[3]] = pid
        if self.by_session and not all(supervisor.set_session_level(pid, level) for pid in sessions.values()):
            raise DriverError(f"task {task}: the kernel takes one session's share in 0.1 s: try again")

    def _favour(self, pid: int) -> None:
        pass

    def usage(self) -> Sequence[Usage]:
        """One row for each running or paused task. One look at all processes of the host serves all tasks."""
        parents = supervisor.parents()
        rows, host = list[Usage](), cpu_times(self.cpus)
        for status in self.tasks():
            root = supervisor.living(self.files.supervisor(status.task))
            if root is None or status.state is TaskState.EXITED:
                continue
            # Fields 16 and 17 of the supervisor: what it has waited for; its own use is not the task's.
            ticks, pages = sum(map(int, supervisor.stat_fields(root)[13:15])), 0
            threads: list[int] = []
            for pid in supervisor.descendants(root, parents):
                if fields := supervisor.stat_fields(pid):
                    ticks += sum(map(int, fields[11:15]))
                    pages += int(fields[21])
                    threads += supervisor.threads(pid)
            now, stopped = time.monotonic(), status.state is TaskState.PAUSED
            watched_s, delayed_s, waiting_s = self._delays.look(
                status.task,
                now,
                ticks / TICKS,
                count(threads),
                stopped=stopped,
                there=len(threads),
                age_s=supervisor.age_s(root),
                host=host,
            )
            rows.append(
                Usage(
                    task=status.task,
                    time_s=now,
                    cpu_s=ticks / TICKS,
                    memory_bytes=pages * PAGE_BYTES,
                    waiting_s=waiting_s if self.measures_waiting else None,
                    watched_s=watched_s if self.measures_waiting else None,
                    delayed_s=delayed_s if self.measures_waiting else None,
                )
            )
        self._delays.keep(row.task for row in rows)
        return rows

    def remove_node(self) -> None:
        """The host keeps nothing for it."""


def _grouped_by_session() -> bool:
    enabled = supervisor.read_text("/proc/sys/kernel/sched_autogroup_enabled").strip() == "1"
    lines = [line.split(":") for line in supervisor.read_text("/proc/self/cgroup").splitlines()]
    return enabled and all(path == "/" for _, names, path in lines if not names or "cpu" in names.split(","))
