"""Who was where at any instant of a run, replayed from its log alone.

A log row says what changed; an explanation needs what held: who else ran, how far each job was, how full each node.
`Replay` steps through the instants and knows that just before each of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dfrs.kernels.loads import FLOW_VIRTUAL, FLOW_VIRTUAL_SQUARED, VIRTUAL
from dfrs.kernels.progress import checkpointed
from dfrs.model.decisions import CPU, MEMORY
from dfrs.model.instance import Floats
from dfrs.model.run import PLACING, Action, Run
from dfrs.runs.metrics.intervals import penalties
from dfrs.runs.metrics.speeds import speeds

_STAGE: dict[int, int] = {
    Action.FINISH: 0,
    Action.LOST: 0,
    Action.RESIZE: 0,
    Action.PAUSE: 1,
    Action.MIGRATE: 2,
    Action.START: 3,
    Action.RESUME: 3,
}
"""The order in which the steps of one decision are performed; changes of yields come before and after."""

_PRIORITIES = {"VT": VIRTUAL, "FLOW/VT": FLOW_VIRTUAL, "FLOW/VT^2": FLOW_VIRTUAL_SQUARED}
_NAMED_PRIORITY = re.compile(r"/PRIO=(VT|FLOW/VT(?:\^2)?)(?:/|$)")
"""Where the name of a policy says by which priority it chooses: the grammar of these names lies above this package."""


@dataclass(slots=True)
class Presence:
    """A job on nodes, since its last change."""

    nodes: tuple[int, ...]
    yield_: float
    since_s: float
    """When its nodes or its yield last changed."""
    ready_s: float
    """It makes no progress before."""
    placed: int
    """Row of the log that put it here."""
    speed: float
    """Progress per second at yield 1; 1 but on a heterogeneous cluster."""


@dataclass(frozen=True, slots=True)
class Instant:
    """Rows `first` to `last` (exclusive) of the log are performed together at `time_s`.

    Several decisions at one time, for jobs submitted in the same second for instance, are instants of their own.
    """

    time_s: float
    first: int
    last: int

    @property
    def rows(self) -> range:
        """The rows."""
        return range(self.first, self.last)


def priority_kind(policy: str) -> int:
    """Which priority of `dfrs.kernels.loads` a policy of that name uses: the squared one unless it names another."""
    named = _NAMED_PRIORITY.search(policy)
    return FLOW_VIRTUAL_SQUARED if named is None else _PRIORITIES[named[1]]


class Replay:
    """Iterate once over its instants; while one is given out, the state is that just before its rows.

    `running`, `paused` (with the row that paused it), `waiting` (released, also at that instant), `finished` and
    `refused` are by job index; `takes` (N,) says which nodes take new tasks; `penalty_s[row]` are the seconds without
    progress that a row brings.
    """

    def __init__(self, run: Run) -> None:
        events = run.events
        self.run = run
        self.running: dict[int, Presence] = {}
        self.paused: dict[int, int] = {}
        self.waiting: dict[int, None] = {}
        self.finished: set[int] = set()
        self.refused = frozenset(run.refused)
        self.takes = np.ones(len(run.capacity), np.bool_)
        self.exclusive = bool(run.configuration.get("exclusive"))
        self.job: list[int] = events.job.tolist()
        self.action: list[int] = events.action.tolist()
        self.yield_: list[float] = events.yield_.tolist()
        self.penalty_s: list[float] = penalties(run).tolist()
        self._speed: list[float] = speeds(run).tolist()
        self._first: list[int] = events.first.tolist()
        self._nodes: list[int] = events.nodes.tolist()
        self._virtual_s = [0.0] * len(run.workload)
        self._release_s = run.workload.release_s
        self._weight: list[float] = run.workload.weight.tolist()
        self._priority = priority_kind(run.policy)
        self._coming = np.argsort(self._release_s, kind="stable")
        self._arrived = 0

    def nodes(self, row: int) -> tuple[int, ...]:
        """The nodes that a row names."""
        return tuple(self._nodes[self._first[row] : self._first[row + 1]])

    def __iter__(self) -> Iterator[Instant]:
        """Each instant of the log, before its rows are applied."""
        times = self.run.events.time_s.tolist()
        for first, last in pairwise([*self._begins(times), len(times)]):
            instant = Instant(times[first], first, last)
            self.arrive(instant.time_s)
            yield instant
            for row in instant.rows:
                self._apply(row, instant.time_s)

    def _begins(self, times: list[float]) -> list[int]:
        """First rows of the instants: a new time, a step that comes earlier in a decision, or a job once more."""
        begins: list[int] = []
        seen: set[int] = set()
        before_s, stage = None, 0
        for row, (time_s, job, action) in enumerate(zip(times, self.job, self.action, strict=True)):
            if time_s != before_s or _STAGE.get(action, stage) < stage or job in seen:
                begins.append(row)
                seen.clear()
                stage = 0
            before_s, stage = time_s, _STAGE.get(action, stage)
            if job >= 0:
                seen.add(job)
        return begins

    def arrive(self, time_s: float) -> None:
        """Let the jobs released until `time_s` wait; done for each instant."""
        until = int(np.searchsorted(self._release_s, time_s, side="right", sorter=self._coming))
        arrived = self._coming[self._arrived : until].tolist()
        self.waiting |= dict.fromkeys(job for job in arrived if job not in self.refused)
        self._arrived = max(until, self._arrived)

    def virtual_s(self, job: int, time_s: float) -> float:
        """Virtual time of a job at `time_s`, which lies before the next instant's rows ([Stillwell2010] 5.1)."""
        here = self.running.get(job)
        if here is None:
            return self._virtual_s[job]
        gets_on_s = max(0.0, time_s - max(here.since_s, here.ready_s))
        return self._virtual_s[job] + here.yield_ * gets_on_s * here.speed

    def priority(self, job: int, time_s: float) -> float:
        """That by which the policy chooses, times the job's weight; infinite before any progress.

        As `dfrs.kernels.loads.priority` computes it ([Stillwell2010] section 5.2.3).
        """
        virtual_s = self.virtual_s(job, time_s)
        if not virtual_s > 0:
            return np.inf
        if self._priority == VIRTUAL:
            return self._weight[job] / virtual_s
        value = self._weight[job] * (time_s - float(self._release_s[job])) / virtual_s
        return value / virtual_s if self._priority == FLOW_VIRTUAL_SQUARED else value

    def tasks(self, job: int, time_s: float) -> int:
        """How many tasks it has at that time, by the commands until then."""
        answers = self.run.answers
        changes = answers.change_tasks[(answers.job_id == self.run.workload.job_id[job]) & (answers.time_s <= time_s)]
        return int(self.run.workload.tasks[job] + changes.sum())

    def room(self, without: set[int]) -> Floats:
        """(K, 2) CPU and free memory of nodes that take new tasks, and where jobs have whole nodes have no task.

        The jobs of `without` count as if they did not run.
        """
        memory, takes = self.run.capacity[:, MEMORY].copy(), self.takes.copy()
        for job, here in self.running.items():
            if job not in without:
                nodes = list(here.nodes)
                np.subtract.at(memory, nodes, float(self.run.workload.memory[job]))
                if self.exclusive:
                    takes[nodes] = False
        return np.column_stack([self.run.capacity[takes, CPU], memory[takes].clip(0)])

    def _apply(self, row: int, now_s: float) -> None:
        job, action = self.job[row], self.action[row]
        if job < 0:
            self.takes[list(self.nodes(row))] = action == Action.UP
            return
        self._virtual_s[job] = self.virtual_s(job, now_s)
        here = self.running.get(job)
        if here is not None:
            here.since_s = now_s
        if action in PLACING:
            ready_s = now_s + self.penalty_s[row]
            if action == Action.RESIZE and here is not None:
                ready_s = here.ready_s
            self.running[job] = Presence(self.nodes(row), self.yield_[row], now_s, ready_s, row, self._speed[row])
            self.paused.pop(job, None)
            self.waiting.pop(job, None)
        elif action == Action.SHARE and here is not None:
            here.yield_ = self.yield_[row]
        elif action in {Action.PAUSE, Action.FINISH, Action.LOST}:
            self.running.pop(job, None)
            self.paused.pop(job, None)
            if action == Action.PAUSE:
                self.paused[job] = row
            elif action == Action.FINISH:
                self.finished.add(job)
            else:
                self.waiting[job] = None
                every_s = float(self.run.workload.checkpoint_s[job])
                self._virtual_s[job] = float(checkpointed(self._virtual_s[job], every_s))
