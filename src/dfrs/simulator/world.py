"""The simulated cluster: performs commands, charges the penalty, and knows when each job will be done."""

from collections.abc import Mapping

import numpy as np

from dfrs.engine.commands import Commands
from dfrs.engine.events import Ready
from dfrs.kernels import progress
from dfrs.kernels.event_loop import Progress
from dfrs.model.elastic import LEAST_S
from dfrs.model.jobs import Workload
from dfrs.model.run import Action, Penalty
from dfrs.simulator.clock import USUAL, Ties
from dfrs.simulator.heterogeneous import EQUAL, EqualHardwareWorld, HardwareWorld

JOB = np.dtype(
    [
        (name, "f8")
        for name in (
            *("run_s", "memory", "progress_s", "rate", "since_s", "ready_s", "finish_s", "speed", "turn"),
            "checkpoint_s",
        )
    ]
)
"""See `dfrs.kernels.progress`."""

_EARLY = 2.0**40
"""More than any number of starts: whose estimate goes on is done after those whose estimates end."""
_START = int(Action.START)
_HARDWARE = "hardware_"
"""Before the names of its state in the world's."""


class World:
    """Jobs are numbered in the order of submission, as in the workload. Only the world knows their processing times.

    Its `hardware` says how fast jobs are where, and what it costs to move them; `ties`, in which order jobs are done
    that are done at the same instant.
    """

    def __init__(
        self,
        workload: Workload,
        penalty: Penalty,
        hardware: EqualHardwareWorld | HardwareWorld = EQUAL,
        ties: Ties = USUAL,
    ) -> None:
        self._penalty_s = penalty.seconds
        self._copy_s = 0.0 if penalty.bytes_per_s is None else penalty.node_bytes / penalty.bytes_per_s
        self._hardware = hardware
        self._table = np.zeros(len(workload), JOB)
        self._table["run_s"] = workload.run_s
        self._table["memory"] = workload.memory
        self._table["checkpoint_s"] = workload.checkpoint_s
        self._table["finish_s"] = np.inf
        self._table["speed"] = 1.0
        self._early = np.zeros(len(workload))
        if ties.by_estimate:
            # A job without an estimate is not expected to end at any time.
            self._early[~(workload.run_s >= workload.estimate_s)] = _EARLY
        self._table["turn"] = np.arange(len(workload)) + self._early
        self._by_start = ties.by_start
        self._started = 0
        self._running = np.zeros(max(len(workload), 1), np.int64)
        self._count = 0
        self._ready: Ready | None = None

    def perform(self, commands: Commands, now_s: float, /) -> None:
        """Carry out `commands`; what became of them is in `acknowledgement`."""
        serials = np.empty(len(commands), np.int64)
        ready_s = np.empty(len(commands))
        speeds = self._hardware.perform(commands, now_s)
        self._count, placed = progress.perform(
            self._table,
            self._running,
            self._count,
            now_s,
            (commands.action, commands.serial, commands.yields, commands.moved),
            self._penalty_s,
            self._copy_s,
            speeds,
            serials,
            ready_s,
        )
        if self._by_start:
            begun = commands.serial[commands.action == _START]
            self._table["turn"][begun] = np.arange(self._started, self._started + len(begun)) + self._early[begun]
            self._started += len(begun)
        serials, ready_s = self._hardware.begun(self._table, serials[:placed], ready_s[:placed], now_s)
        self._ready = Ready(serials, ready_s) if len(serials) else None

    def acknowledgement(self) -> Ready | None:
        """From when on the jobs placed by the last commands make progress; None if there were none. Told once."""
        ready, self._ready = self._ready, None
        return ready

    def next_completion(self) -> tuple[float, int]:
        """(time, number) of the job that will be done first; (infinity, -1) if none will."""
        return progress.next_completion(self._table, self._running, self._count)

    def foremost(self, job: int) -> bool:
        """Whether a job that is done is done before the submissions of that instant; see `Ties.by_estimate`."""
        return bool(self._table[job]["turn"] < _EARLY)

    def turn(self, job: int) -> float:
        """When a job is done among all that are done at that instant, estimates apart."""
        return float(self._table[job]["turn"] - self._early[job])

    def complete(self, job: int) -> None:
        """Take a job that is done off the nodes."""
        self._count = progress.drop(self._running, self._count, job)
        self._table[job]["progress_s"] = self._table[job]["run_s"]
        self._hardware.leave(job)

    def amend(self, job: int, amount_s: float, now_s: float) -> float:
        """Give a job so much more or less to do, but never less than it has done, nor than LEAST_S; the change."""
        return progress.amend(self._table, job, amount_s, LEAST_S, now_s)

    @property
    def running(self) -> int:
        """How many jobs are on nodes."""
        return self._count

    @running.setter
    def running(self, count: int) -> None:
        self._count = count

    @property
    def columns(self) -> Progress:
        """Its own arrays, to be changed as `perform` and `complete` do, and `running` with them."""
        return Progress(self._table, self._running, self._penalty_s, self._copy_s)

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        hardware = {f"{_HARDWARE}{name}": array for name, array in self._hardware.state().items()}
        started = np.array(self._started)
        return {"table": self._table, "running": self._running[: self._count], "started": started} | hardware

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self._table = np.array(state["table"])
        self._count = len(state["running"])
        self._running[: self._count] = state["running"]
        self._started = int(state["started"])
        hardware = {name.removeprefix(_HARDWARE): a for name, a in state.items() if name.startswith(_HARDWARE)}
        self._hardware.restore(hardware)
