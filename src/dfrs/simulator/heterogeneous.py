"""Simulated hardware: how fast jobs are where they are, what moving costs, what profiling says ([Atif2011] 5, 8).

`EqualHardware`, where a job is as fast everywhere, or `HardwareSettings` is what a user gives to
`dfrs.simulator.simulation.SimulationSettings`; the simulated world asks the `EqualHardwareWorld` or `HardwareWorld`
made of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dfrs.engine.commands import Commands
from dfrs.engine.events import Predicted
from dfrs.engine.speeds import EQUAL_NODES, PredictedSpeeds, SpeedsKept
from dfrs.kernels import progress
from dfrs.model.decisions import MEMORY, Traits
from dfrs.model.errors import InputError
from dfrs.model.hardware import Hardware
from dfrs.model.instance import Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.model.nodes import most_tasks
from dfrs.model.run import Action
from dfrs.model.true_speeds import EqualSpeeds, TrueSpeeds

PROFILE_S = 50.0
"""Seconds for which a job is profiled ([Atif2011] section 8)."""
TOLERANCE = 1.1
"""A task's memory and 10 % count as required ([Atif2011] section 6)."""

Predictor = Callable[[int, int, bool], Floats]
"""Told the job, by index in the workload, its partition and whether it is co-located there: (C, 2) speeds."""


_ALIKE: Floats = np.zeros(0)


@dataclass(frozen=True, slots=True)
class EqualHardware:
    """Nodes that are alike but for their capacity: one partition, where every job's speed is 1."""

    truth: EqualSpeeds = field(default_factory=EqualSpeeds)

    def nodes(self, workload: Workload) -> int:
        """How many nodes there are: as many as the workload says."""
        return workload.nodes

    def check(self, workload: Workload, nodes: int) -> None:
        """Any workload can be on any number of nodes."""

    def partition(self, nodes: int) -> Ints:
        """(N,) 0, the index of each node's partition."""
        return np.zeros(nodes, np.int64)

    def speeds(self) -> SpeedsKept:
        """What a core is to know of speeds."""
        return EQUAL_NODES

    def world(self, capacity: Floats, jobs: Ints) -> "EqualHardwareWorld":
        """What a simulated world is to ask."""
        return EQUAL

    def notes(self, traits: Traits) -> Mapping[str, object]:
        """What the summary is to say of it: nothing."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HardwareSettings:
    """A heterogeneous cluster's truth for each job of the workload, and what profiling a job makes of it.

    `prediction` is (J, C, 2, C, 2): the speeds (C, 2) that a profile taken on one partition, spread or co-located,
    predicts; or says them when asked; None: they are the true rates. Of a job that is thrashing, or across
    partitions, no speed is predicted.
    """

    truth: TrueSpeeds
    prediction: Floats | Predictor | None = None
    tau_s: float = PROFILE_S
    """So long after a job was placed, or its migration was over, its profile is complete."""

    def nodes(self, workload: Workload) -> int:
        """How many nodes there are, whatever the workload says."""
        return len(self.truth.partition)

    def partition(self, nodes: int) -> Ints:
        """(N,) index of each node's partition."""
        return self.truth.partition[:nodes]

    def speeds(self) -> SpeedsKept:
        """What a core is to know of speeds, at first nothing."""
        return PredictedSpeeds(self.truth)

    def world(self, capacity: Floats, jobs: Ints) -> "HardwareWorld":
        """What a simulated world of `jobs` (J,), indices in the truth, is to ask."""
        return HardwareWorld(self, capacity, jobs)

    def notes(self, traits: Traits) -> Mapping[str, object]:
        """What the summary is to say of it."""
        return {"farm": self.truth.name, "clustered": traits.clustered, "profile_s": self.tau_s}

    def check(self, workload: Workload, nodes: int) -> None:
        """Raise InputError where this is not of that workload on that many nodes."""
        truth, jobs = self.truth, len(workload)
        if len(truth) != jobs:
            raise InputError(f"farm: rate has {len(truth)} rows: the workload has {jobs} jobs")
        if len(truth.partition) != nodes:
            raise InputError(f"farm: {len(truth.partition)} nodes: the capacity is of {nodes}")
        if not (np.isfinite(self.tau_s) and self.tau_s > 0):
            raise InputError(f"farm: tau_s = {self.tau_s}: must be above 0 and finite")
        partitions = len(truth.partitions)
        if isinstance(self.prediction, np.ndarray) and self.prediction.shape != (jobs, partitions, 2, partitions, 2):
            raise InputError(
                f"farm: prediction of shape {self.prediction.shape}: must be ({jobs}, {partitions}, 2, {partitions}, 2)"
            )
        if len(workload.commands):
            raise InputError(f"farm: the workload has {len(workload.commands)} commands: must have none on a farm")

    def predicted(self, job: int, partition: int, shape: int) -> Floats:
        """(C, 2) speeds of a job by a profile taken there; NaN across partitions."""
        if partition < 0:
            return np.full((len(self.truth.partitions), 2), np.nan)
        if self.prediction is None:
            return self.truth.rate[job]
        if isinstance(self.prediction, np.ndarray):
            return self.prediction[job, partition, shape]
        return np.asarray(self.prediction(job, partition, bool(shape)), dtype=np.float64)


def hardware_capacity(hardware: Hardware, reference_bytes: float | None = None) -> Floats:
    """(N, 2) capacity of nodes: one CPU each, memory relative to `reference_bytes` (default: the largest).

    CPUs count alike, as a job's need is of one CPU wherever it is; how fast that CPU is for it is in its rates.
    """
    memory = hardware.node_memory_bytes
    reference = float(memory.max()) if reference_bytes is None else reference_bytes
    return np.column_stack([np.ones(len(memory)), memory / reference])


def fits_a_partition(workload: Workload, capacity: Floats, partition: Ints, *, exclusive: bool) -> np.ndarray:
    """(J,) whether each job could run alone within some partition; if `exclusive`, with a node for each task."""
    parts = [capacity[partition == c] for c in np.unique(partition)]
    must_have = workload.need if exclusive else workload.need * workload.minimum_yield
    shapes, shape_of = np.unique(np.column_stack([must_have, workload.memory]), axis=0, return_inverse=True)
    slots = np.zeros(len(workload))
    for k, (need, memory) in enumerate(shapes.tolist()):
        most = max(_most(part, need, memory, exclusive=exclusive) for part in parts)
        slots[shape_of.reshape(-1) == k] = most
    return slots >= workload.tasks


def _most(capacity: Floats, need: float, memory: float, *, exclusive: bool) -> float:
    if not exclusive:
        return most_tasks(capacity, need, memory, exclusive=need > 0)
    return float(sum(most_tasks(node[None], need, memory, exclusive=True) >= 1.0 for node in capacity))


class EqualHardwareWorld:
    """What holds of jobs on nodes that are alike: their speeds are 1, moves cost the penalty, nothing is profiled."""

    def perform(self, commands: Commands, now_s: float) -> Floats:
        """No speeds: those are 1 already."""
        return _ALIKE

    def begun(self, table: np.ndarray, serials: Ints, ready_s: Floats, now_s: float) -> tuple[Ints, Floats]:
        """Jobs and when they make progress: as the penalty has it."""
        return serials, ready_s

    def leave(self, job: int) -> None:
        """The job is on no node any more."""

    def news(self) -> Iterable[tuple[float, int]]:
        """No profiles are begun."""
        return ()

    def pending(self) -> Iterable[tuple[float, int]]:
        """No profiles are being taken."""
        return ()

    def profiled(self, job: int, job_id: int, now_s: float) -> Predicted | None:
        """No profile is ever complete."""
        return None

    def state(self) -> dict[str, np.ndarray]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """There is nothing to continue."""


EQUAL = EqualHardwareWorld()


class HardwareWorld:
    """What holds of the jobs on unequal nodes now. `jobs` (J,) are their indices in the settings' truth."""

    def __init__(self, settings: HardwareSettings, capacity: Floats, jobs: Ints) -> None:
        self._settings = settings
        self._jobs = jobs
        self._truth = settings.truth.select(jobs)
        self._memory: Floats = capacity[:, MEMORY]
        self._at: dict[int, tuple[int, ...]] = {}
        """Nodes of each job that runs."""
        self._speed: dict[int, float] = {}
        self.due_s: Floats = np.full(len(jobs), np.inf)
        """(J,) when each job's profile is complete; infinite where none is being taken."""
        self._news: list[int] = []
        machines = int(self._truth.machine.max(initial=-1)) + 1
        self._plan_s = -np.inf
        self._moving: dict[int, tuple[float, float]] = {}
        """Jobs of the last plan that are where it brought them: (old, new) rate."""
        self._leaving, self._arriving = np.zeros((2, machines), np.int64)
        """(machines,) tasks of the last plan."""
        self._planned = False

    def perform(self, commands: Commands, now_s: float) -> Floats:
        """Put jobs where `commands` say; (K,) the rates of those placed, 1 for other commands."""
        speeds = np.ones(len(commands))
        bounds, nodes = commands.first.tolist(), commands.nodes.tolist()
        self._planned = False
        for k, (action, job) in enumerate(zip(commands.action.tolist(), commands.serial.tolist(), strict=True)):
            if action in {Action.PAUSE, Action.LOST}:
                self.leave(job)
            elif action in {Action.START, Action.RESUME, Action.MIGRATE}:
                where = tuple(nodes[bounds[k] : bounds[k + 1]])
                speeds[k] = self._truth.rate_on(job, where, self._memory)
                if action == Action.MIGRATE:
                    self._move(job, where, speeds[k], now_s)
                self._at[job], self._speed[job] = where, float(speeds[k])
        return speeds

    def leave(self, job: int) -> None:
        """The job is on no node any more."""
        self._at.pop(job, None)
        self._speed.pop(job, None)
        self._moving.pop(job, None)
        self.due_s[job] = np.inf

    def _move(self, job: int, nodes: tuple[int, ...], rate: float, now_s: float) -> None:
        if now_s != self._plan_s:
            self._plan_s = now_s
            self._moving.clear()
            self._leaving[:] = self._arriving[:] = 0
        self._planned = True
        before, after = Counter(self._at[job]), Counter(nodes)
        for count, gone in ((self._leaving, before - after), (self._arriving, after - before)):
            for node, tasks in gone.items():
                count[self._truth.machine[node]] += tasks
        self._moving[job] = self._speed[job], float(rate)

    def _costs(self) -> tuple[float, float]:
        """(seconds that the last plan takes, by how much it stretches the wall clock of each of its jobs)."""
        truth = self._truth
        stream = int(max(self._leaving.max(), self._arriving.max()))
        tasks = stream if truth.parallel else int(self._arriving.sum())
        return truth.copy_s * tasks, truth.stretch_s * tasks

    def begun(self, table: np.ndarray, serials: Ints, ready_s: Floats, now_s: float) -> tuple[Ints, Floats]:
        """Jobs placed by the last commands, and moved earlier in this instant, and when they make progress.

        `ready_s` (K,) is what the penalty makes of it; what plans cost is brought into the world's `table`.
        """
        told = dict(zip(serials.tolist(), ready_s.tolist(), strict=True))
        delays = self.delays(now_s)
        for job, until_s in delays.items():
            progress.delay(table, job, until_s, now_s)
        told |= delays
        self.watch(told, now_s)
        return np.array(list(told), np.int64), np.array(list(told.values()))

    def delays(self, now_s: float) -> dict[int, float]:
        """When the jobs of this instant's plan make progress; none where the last commands moved nobody.

        Who was moved earlier in the same instant is of the same plan, which has become longer.
        """
        if not self._planned:
            return {}
        took_s, stretch_s = self._costs()
        return {
            job: now_s + stretch_s + took_s * (1.0 - min(old, new) / new) for job, (old, new) in self._moving.items()
        }

    def watch(self, ready_s: Mapping[int, float], now_s: float) -> None:
        """Begin to profile the jobs that were placed, each from when its migration is over."""
        over_s = now_s + sum(self._costs()) if self._planned else now_s
        for job, begin_s in ready_s.items():
            if job in self._at:
                begin_s = over_s if self._planned and job in self._moving else begin_s  # noqa: PLW2901
                self.due_s[job] = begin_s + self._settings.tau_s
                self._news.append(job)

    def news(self) -> Iterable[tuple[float, int]]:
        """(time, job) of the profiles begun since this was last asked."""
        news, self._news = self._news, []
        return [(float(self.due_s[job]), job) for job in news]

    def pending(self) -> Iterable[tuple[float, int]]:
        """(time, job) of all profiles that are being taken."""
        return [(float(self.due_s[job]), job) for job in np.flatnonzero(np.isfinite(self.due_s)).tolist()]

    def profiled(self, job: int, job_id: int, now_s: float) -> Predicted | None:
        """What the job's profile, which is complete now, says; None where the job has been placed anew, or is gone.

        It is not taken again until the job is placed anew.
        """
        if self.due_s[job] != now_s:
            return None
        self.due_s[job] = np.inf
        nodes = self._at[job]
        swapping = self._truth.thrashing(job, nodes, self._memory)
        partition, shape = self._truth.where(nodes)
        speed = self._settings.predicted(int(self._jobs[job]), -1 if swapping else partition, shape)
        return Predicted(job_id, speed, float(self._truth.memory[job]) * TOLERANCE, swapping)

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        moving = [(job, *rates) for job, rates in self._moving.items()]
        return {
            "jobs": np.array(list(self._at), np.int64),
            "speed": np.array(list(self._speed.values())),
            "widths": np.array([len(nodes) for nodes in self._at.values()], np.int64),
            "nodes": np.array([node for nodes in self._at.values() for node in nodes], np.int64),
            "due_s": self.due_s.copy(),
            "plan_s": np.array(self._plan_s),
            "moving": np.array(moving, np.float64).reshape(-1, 3),
            "machines": np.array([self._leaving, self._arriving]),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        ends = np.cumsum(state["widths"]).tolist()
        nodes, jobs = state["nodes"].tolist(), state["jobs"].tolist()
        begins = [0, *ends[:-1]]
        self._at = {job: tuple(nodes[a:b]) for job, a, b in zip(jobs, begins, ends, strict=False)}
        self._speed = dict(zip(jobs, state["speed"].tolist(), strict=True))
        self.due_s, self._plan_s = np.array(state["due_s"]), float(state["plan_s"])
        self._moving = {int(job): (old, new) for job, old, new in state["moving"].tolist()}
        self._leaving, self._arriving = np.array(state["machines"])
        self._news = []
