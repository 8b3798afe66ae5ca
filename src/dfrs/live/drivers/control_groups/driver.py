"""Runs tasks as processes in control groups: the driver for nodes where the agent is root."""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from dfrs.live.drivers.base import (
    KEPT_OUTPUT_BYTES,
    DriverAbilities,
    DriverError,
    PauseRefusedError,
    ShareMode,
    TaskId,
    TaskSpec,
    TaskState,
    Usage,
)
from dfrs.live.drivers.control_groups.groups import (
    NodeGroup,
    TaskGroup,
    UsageCounters,
    add_counters,
    cpu_list,
    detect,
)
from dfrs.live.drivers.control_groups.strays import Strays
from dfrs.live.drivers.control_groups.swap import recall, swap_space
from dfrs.live.drivers.cpu_times import cpu_times
from dfrs.live.drivers.processes.criu import find_criu
from dfrs.live.drivers.processes.directory import Owner
from dfrs.live.drivers.processes.driver import MOVE_S, SupervisedDriver
from dfrs.live.drivers.processes.image_files import ImageError, TryAgainError
from dfrs.live.drivers.processes.images import IMAGES, Images
from dfrs.live.drivers.processes.stake import NO_RESOURCES
from dfrs.live.drivers.processes.supervisor import age_s, read_text, write_control
from dfrs.live.drivers.run_delays import RunDelays, count

STAYING_BYTES, STAYING_PART = 8 << 20, 64
"""Of a paused task so much may stay in memory, and this part of its requirement: what the kernel keeps of it."""
MOMENTARY = ("memory_bytes", "swap_bytes")
"""Of what is read of a group: what does not only grow."""
FREE_PART = 10
"""Unless told otherwise, images take this part of what is free on the disk."""
WRITING_S = 1.0
"""The kernel gives up pushing out what it is still writing: so long after it last got on, that is final."""


class ControlGroupDriver(SupervisedDriver):
    """Tasks of one node as processes in control groups.

    All nodes of a host share `root`, and `cluster` names their control groups: `dfrs/<cluster>/<node>`. The node has
    the CPUs of `cpus` (None: all), and of their time `cores`: where that is less than there are CPUs, all its tasks
    together are capped at it. With `shares="caps"` a task never gets more than its share; with "weights" it may use
    what others leave. Of the host's swap space its paused tasks may take `swap_bytes`; None: all there is. Of the disk
    images of all the host's tasks may take `images_bytes`; None: a tenth of what is free now. Raises DriverError if the
    host cannot do that.
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
        resources: Mapping[str, int] = NO_RESOURCES,
        groups: NodeGroup | None = None,
        swap_bytes: int | None = 0,
        images_bytes: int | None = 0,
    ) -> None:
        super().__init__(root, node, cores, memory_bytes, output_bytes, resources)
        self.shares: ShareMode = shares
        self.groups = detect(cluster, node) if groups is None else groups
        self._cpus = os.sched_getaffinity(0) if cpus is None else cpu_list(cpus)
        self.groups.create(cpus, cores if cores < len(self._cpus) else None, cores)
        self.swap_bytes = swap_space().total_bytes if swap_bytes is None else swap_bytes
        self._swapping = threading.Lock()
        self._leaving: dict[str, int] = {}
        """What tasks that are being paused will have of the swap space."""
        self._delays = RunDelays()
        self._strays = Strays(self.groups)
        self.images, self.why_no_images = images_of(root, images_bytes)
        self._recover()

    @property
    def abilities(self) -> DriverAbilities:
        """What it can do here."""
        notes = self.groups.notes
        if self.groups.kind == "cgroup-v1":
            notes += ("a share below 1/32768 of the node is rounded up to it",)
        else:
            notes += ("a share below 1/10000 of the node is rounded up to it",)
        return DriverAbilities(
            shares=self.groups.kind,
            caps=True,
            memory_limits=self.groups.limits_memory,
            pause_frees_memory=self.frees_memory,
            moves_on_host=True,
            measures_waiting=self.groups.measures_waiting,
            images=self.images.format if self.images is not None and self.makes_images else None,
            notes=(*notes, *self._about_pauses()),
        )

    @property
    def swaps(self) -> bool:
        """Whether the memory of paused tasks goes to the host's swap space."""
        return self.groups.swaps and self.swap_bytes > 0 and swap_space().total_bytes > 0

    @property
    def makes_images(self) -> bool:
        """Whether tasks are check-pointed: to go to other hosts, and to be paused where swap space does not suffice."""
        return self.images is not None and self.images.max_bytes > 0

    @property
    def frees_memory(self) -> bool:
        """Whether the memory of paused tasks goes to the host's swap space, or to images."""
        return self.swaps or self.makes_images

    def _about_pauses(self) -> tuple[str, ...]:
        if self.images is not None and self.makes_images:
            most = f"at most {self.images.max_bytes >> 20} MiB in {self.images.directory}"
            about_images = f"tasks can be check-pointed by CRIU {self.images.criu.version}: {most}"
        else:
            about_images = f"no check-points: {self.why_no_images}"
        if self.swaps:
            most = min(self.swap_bytes, swap_space().total_bytes)
            return (f"the memory of paused tasks goes to swap space, at most {most >> 20} MiB", about_images)
        if self.makes_images:
            return ("the memory of paused tasks goes to images", about_images)
        why = "no swap space is allowed" if self.swap_bytes == 0 and swap_space().total_bytes else "no swap space"
        why = why if self.groups.swaps else "control groups cannot swap"
        return (f"a paused task keeps its memory: {why}", about_images)

    def _free(self, task: TaskId) -> None:
        problems: list[str] = []
        if self.swaps:
            try:
                self._swap_out(task)
            except PauseRefusedError as error:
                problems.append(str(error))
            else:
                return
        if self.images is not None and self.makes_images:
            try:
                self.images.checkpoint(task)
            except ImageError as error:
                if isinstance(error, TryAgainError) or self.files.in_image(task):
                    raise
                problems.append(str(error))
            else:
                return
        first, *rest = problems
        raise PauseRefusedError("; ".join([first, *(problem.removeprefix(f"task {task}: ") for problem in rest)]))

    def _swap_out(self, task: TaskId) -> None:
        group, limit = self.groups.group(str(task)), self._limit(task)
        with self._swapping:
            needed, swapped = group.swappable_bytes(), self._swapped()
            pending = sum(max(0, all_of_it - swapped.get(other, 0)) for other, all_of_it in self._leaving.items())
            left = min(swap_space().free_bytes, self.swap_bytes - sum(swapped.values())) - pending
            if needed > left:
                raise PauseRefusedError(
                    f"task {task}: cannot be paused: {needed >> 20} MiB to swap, and {max(left, 0) >> 20} MiB of swap "
                    "space left"
                )
            self._leaving[str(task)] = needed + swapped.get(str(task), 0)
        try:
            most = STAYING_BYTES + limit // STAYING_PART
            stayed = _push_out(group, most)
        finally:
            with self._swapping:
                del self._leaving[str(task)]
        if stayed > most:
            raise PauseRefusedError(f"task {task}: cannot be paused: {stayed >> 20} MiB of it stay in memory")

    def _unfree(self, task: TaskId) -> None:
        group = self.groups.group(str(task))
        group.stay_in()
        recall(group.members())

    def _swapped(self) -> dict[str, int]:
        """Swap space that each of the node's tasks has."""
        return {name: self.groups.group(name).read().swap_bytes or 0 for name in self.groups.names()}

    def _look_after(self, mine: Sequence[tuple[TaskId, Owner]]) -> None:
        self._strays.look(lambda: self._at_work(mine))

    def _at_work(self, mine: Sequence[tuple[TaskId, Owner]]) -> Iterable[tuple[TaskId, int]]:
        """Those with all their processes in memory, and the numbers of their supervisors."""
        for task, owner in mine:
            number = self.files.place(task, owner).supervisor
            if number is not None and not self.files.in_image(task) and not self.files.parked(task):
                yield task, number

    def _note(self, task: TaskId) -> str:
        return self._strays.note(task)

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
        return [*entries, ("affinity", every)]

    def _joins(self, task: TaskId) -> list[tuple[str, str]]:
        return [("enter", path) for path in self.groups.group(str(task)).entries()]

    def _enter(self, task: TaskId) -> list[str]:
        group = self.groups.group(str(task))
        group.create(self._limit(task))
        return group.entries()

    def _counters(self, group: TaskGroup, owner: Owner) -> UsageCounters:
        """What a group and those before it have counted."""
        events = group.limit_events()
        counters = replace(
            group.read(), peak_bytes=events.peak_bytes, oom_kills=events.oom_kills, refused_forks=events.refused_forks
        )
        return add_counters(counters, owner.carried)

    def _counted(self, task: TaskId, owner: Owner) -> dict[str, float]:
        counters = self._counters(self.groups.group(str(task)), owner)
        counted = {field.name: getattr(counters, field.name) for field in fields(counters)}
        return {name: value for name, value in counted.items() if value is not None and name not in MOMENTARY}

    def _move(self, task: TaskId, owner: Owner) -> dict[str, float]:
        old, new = self.groups.sibling(owner.node).group(str(task)), self.groups.group(str(task))
        new.create(self._limit(task))
        new.move_from(old, MOVE_S)
        before = self._counters(old, owner)
        counted = {name: getattr(before, name) for name in old.lost_by_move}
        return {**owner.carried, **{name: value for name, value in counted.items() if value is not None}}

    def _leave(self, task: TaskId, node: str) -> None:
        self.groups.sibling(node).group(str(task)).remove(moved=True)

    def _clear(self, task: TaskId, node: str) -> None:
        self.groups.sibling(node).group(str(task)).remove()

    def _share(self, task: TaskId, share_cores: float) -> None:
        group = self.groups.group(str(task))
        if not group.exists():
            # It came from another host, or from before the machine was started anew, and is in its image.
            group.create(self._limit(task))
        group.set_weight(min(share_cores, self.cores), self.cores)
        if self.shares == "caps":
            group.set_cap(min(share_cores, self.cores))

    def _favour(self, pid: int) -> None:
        if self.groups.outside:
            with contextlib.suppress(OSError):
                write_control(self.groups.outside, str(pid))

    def usage(self) -> Sequence[Usage]:
        """One row for each task that has not ended."""
        rows, host = list[Usage](), cpu_times(self._cpus)
        for name in self.groups.names():
            task = TaskId.parse(name)
            owner = None if task is None else self._owner(task)
            if task is None or owner is None or owner.node != self.node or not self._running(task):
                continue
            group = self.groups.group(name)
            used = group.read()
            if owner.carried:
                used = add_counters(used, owner.carried)
            place, now = self.files.place(task, owner), time.monotonic()
            numbers = group.threads()
            threads = dict(count(numbers))
            # Its supervisor, which is charged like it, is not it.
            beside_s, _ = threads.pop(place.supervisor or 0, (0.0, 0.0))
            watched_s, delayed_s, waiting_s = self._delays.look(
                task,
                now,
                used.cpu_s - beside_s,
                threads,
                # In an image it has no processes that could be frozen.
                stopped=place.frozen() or self.files.in_image(task) or self.files.parked(task),
                there=len(numbers) - 1,
                age_s=age_s(place.supervisor or 0),
                host=host,
            )
            rows.append(
                Usage(
                    task=task,
                    time_s=now,
                    cpu_s=used.cpu_s,
                    memory_bytes=used.memory_bytes,
                    swap_bytes=used.swap_bytes,
                    read_bytes=used.read_bytes,
                    written_bytes=used.written_bytes,
                    throttled_s=used.throttled_s,
                    waiting_s=waiting_s if self.groups.measures_waiting else None,
                    watched_s=watched_s if self.groups.measures_waiting else None,
                    delayed_s=delayed_s if self.groups.measures_waiting else None,
                )
            )
        self._delays.keep(row.task for row in rows)
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
                which = f"its processes are {', '.join(map(str, pids))}" if pids else "it is starting, or in an image"
                raise DriverError(f"node {self.node}: still has task {name}: {which}: forget it first")
            group.remove()
        self.groups.remove()


def images_of(root: Path, max_bytes: int | None) -> tuple[Images | None, str]:
    """The images below a state root, or why tasks of it cannot be in images; with 0 bytes only those that are there."""
    if max_bytes == 0 and not (root / IMAGES).exists():
        return None, "none are allowed"
    criu, why = find_criu(root / "criu.json")
    if criu is None:
        return None, why
    try:
        images = Images(root, 0, criu)
    except ImageError as error:
        return None, str(error)
    if max_bytes is None:
        disk = os.statvfs(images.directory)
        max_bytes = (disk.f_bavail * disk.f_frsize + images.used_bytes()) // FREE_PART
    images.max_bytes = max_bytes
    return images, "" if max_bytes else "none are allowed"


def _push_out(group: TaskGroup, most: int) -> int:
    """Bytes that stay in memory: as soon as they are `most`, or no fewer after a while."""
    least, until = group.resident_bytes(), time.monotonic() + WRITING_S
    while True:
        group.push_out()
        stayed = group.resident_bytes()
        if stayed < least:
            least, until = stayed, time.monotonic() + WRITING_S
        if stayed <= most or time.monotonic() > until:
            return stayed
        time.sleep(WRITING_S / 50)
