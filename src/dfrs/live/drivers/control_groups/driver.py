"""Runs tasks as processes in control groups: the driver for nodes where the agent is root."""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dfrs.live.drivers.base import (
    KEPT_OUTPUT_BYTES,
    Abilities,
    DriverError,
    ShareMode,
    TaskId,
    TaskSpec,
    TaskState,
    Usage,
)
from dfrs.live.drivers.control_groups.groups import NodeGroup, add_counters, cpu_list, detect
from dfrs.live.drivers.processes.directory import Owner
from dfrs.live.drivers.processes.driver import MOVE_S, SupervisedDriver
from dfrs.live.drivers.processes.supervisor import read_text, write_control


class ProcessDriver(SupervisedDriver):
    """Tasks of one node as processes.

    All nodes of a host share `root`, and `cluster` names their control groups: `dfrs/<cluster>/<node>`. The node has
    the CPUs of `cpus` (None: all), and of their time `cores`: where that is less than there are CPUs, all its tasks
    together are capped at it. With `shares="caps"` a task never gets more than its share; with "weights" it may use
    what others leave. Raises DriverError if the host cannot do that.
    """

    def __init__(
        self,
        root: Path,
        cluster: str,
        node: str,
        *,
        cpus: str | None = None,
        cores: float,
        memory_bytes: int,
        shares: ShareMode = "weights",
        output_bytes: int = KEPT_OUTPUT_BYTES,
        groups: NodeGroup | None = None,
    ) -> None:
        super().__init__(root, node, cores, memory_bytes, output_bytes)
        self.shares: ShareMode = shares
        self.groups = detect(cluster, node) if groups is None else groups
        self.groups.create(cpus, cores if cores < _count(cpus) else None, cores)
        self._recover()

    @property
    def abilities(self) -> Abilities:
        """What it can do here."""
        notes = self.groups.notes
        if self.groups.kind == "cgroup-v1":
            notes += ("a share below 1/32768 of the node is rounded up to it",)
        else:
            notes += ("a share below 1/10000 of the node is rounded up to it",)
        return Abilities(
            shares=self.groups.kind,
            caps=True,
            memory_limits=self.groups.limits_memory,
            pause_frees_memory=False,
            moves_on_host=True,
            measures_waiting=self.groups.measures_waiting,
            notes=(*notes, "a paused task keeps its memory"),
        )

    def _place(self, task: TaskId) -> dict[str, str]:
        return self.groups.group(str(task)).place()

    def _prepare(self, task: TaskId, spec: TaskSpec, share_cores: float) -> None:
        self.groups.group(str(task)).create(spec.memory_bytes)
        self._share(task, share_cores)

    def _extras(self, task: TaskId, spec: TaskSpec, share_cores: float) -> list[tuple[str, str]]:
        group = self.groups.group(str(task))
        entries = [("enter", path) for path in group.entries()]
        entries += [("join", path) for path in group.shared_with_supervisor()]
        if self.groups.outside:
            entries.append(("leave", self.groups.outside))
        # The agent's own affinity is not the task's; the CPU set narrows it, now and after a move.
        every = ",".join(map(str, sorted(cpu_list(read_text("/sys/devices/system/cpu/possible")))))
        return [*entries, ("affinity", every), ("memory_bytes", str(spec.memory_bytes))]

    def _move(self, task: TaskId, owner: Owner) -> dict[str, float]:
        old, new = self.groups.sibling(owner.node).group(str(task)), self.groups.group(str(task))
        new.create(self._limit(task))
        new.move_from(old, MOVE_S)
        events = old.limit_events()
        counters = replace(
            old.read(), peak_bytes=events.peak_bytes, oom_kills=events.oom_kills, refused_forks=events.refused_forks
        )
        before = add_counters(counters, owner.carried)
        counted = {name: getattr(before, name) for name in old.lost_by_move}
        return {name: value for name, value in counted.items() if value is not None}

    def _limit(self, task: TaskId) -> int:
        return int(self.files.spec(task)["memory_bytes"])

    def _leave(self, task: TaskId, node: str) -> None:
        self.groups.sibling(node).group(str(task)).remove(moved=True)

    def _clear(self, task: TaskId, node: str) -> None:
        self.groups.sibling(node).group(str(task)).remove()

    def _share(self, task: TaskId, share_cores: float) -> None:
        group = self.groups.group(str(task))
        group.set_weight(min(share_cores, self.cores), self.cores)
        if self.shares == "caps":
            group.set_cap(min(share_cores, self.cores))

    def _favour(self, pid: int) -> None:
        if self.groups.outside:
            with contextlib.suppress(OSError):
                write_control(self.groups.outside, str(pid))

    def usage(self) -> Sequence[Usage]:
        """One row for each task that has not ended."""
        rows: list[Usage] = []
        for name in self.groups.names():
            job, rank, attempt = map(int, name.split("."))
            task = TaskId(job=job, rank=rank, attempt=attempt)
            owner = self.files.owner(task)
            if owner is None or owner.node != self.node or not self._running(task):
                continue
            used = self.groups.group(name).read()
            if owner.carried:
                used = add_counters(used, owner.carried)
            rows.append(
                Usage(
                    task=task,
                    time_s=time.monotonic(),
                    cpu_s=used.cpu_s,
                    memory_bytes=used.memory_bytes,
                    swap_bytes=used.swap_bytes,
                    read_bytes=used.read_bytes,
                    written_bytes=used.written_bytes,
                    throttled_s=used.throttled_s,
                    waiting_s=used.waiting_s,
                )
            )
        return rows

    def remove_node(self) -> None:
        """Remove the node's control groups, and what is left of tasks that have ended.

        Raises DriverError that names a task which still runs, and its processes.
        """
        live = {str(status.task) for status in self.tasks() if status.state is not TaskState.EXITED}
        for name in self.groups.names():
            group = self.groups.group(name)
            pids = group.members()
            if pids or name in live:
                which = f"its processes are {', '.join(map(str, pids))}" if pids else "it is starting"
                raise DriverError(f"node {self.node}: still has task {name}: {which}: forget it first")
            group.remove()
        self.groups.remove()


def _count(cpus: str | None) -> int:
    return len(cpu_list(cpus)) if cpus is not None else os.cpu_count() or 1
