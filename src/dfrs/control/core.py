"""The state machine between events and commands, without clock or I/O: simulator and live shell share it.

`Core.handle(event, now_s)` brings the account of jobs up to now, lets the policy decide on a frozen snapshot, checks
its target, turns it into commands, and takes the target as the present. Whoever performs the commands answers with
`Ready`.
"""

from collections import deque
from collections.abc import Mapping

import numpy as np

from dfrs.control.check import check
from dfrs.control.commands import NOTHING, Commands, joined, without_nodes
from dfrs.control.events import Complete, Event, Ready, Submit
from dfrs.control.journal import Journal
from dfrs.control.reconcile import reconcile
from dfrs.kernels import ledger
from dfrs.kernels.columns import grown
from dfrs.kernels.reconcile import commit
from dfrs.model.decisions import JOB, WAITING, Cause, Policy, PolicyError, Reason, Snapshot
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs.model.nodes import Condition, NodeChange
from dfrs.model.run import Action

HOUR_S = 3600.0

# An enumeration's members are slow to look up where it is done a million times.
_FINISH, _MIGRATE = int(Action.FINISH), int(Action.MIGRATE)
_FINISHED = int(Reason.FINISHED)
_SUBMISSION, _COMPLETION, _WAKE = Cause.SUBMISSION, Cause.COMPLETION, Cause.WAKE


class Core:
    """A cluster of nodes with `capacity` (N, 2) under a policy. Deterministic: same events, same commands."""

    def __init__(self, policy: Policy, capacity: Floats) -> None:
        self.policy = policy
        self.journal = Journal()
        self.wake_at_s: float | None = None
        """When the policy wants to be asked again."""
        self._capacity = _frozen(np.array(capacity, dtype=np.float64))
        self._open = _frozen(np.ones(len(capacity), np.bool_))
        self._jobs = np.zeros(64, JOB)
        self._first = np.zeros(65, np.int64)
        self._nodes = np.full(256, -1, np.int64)
        self._rows = 0
        self._submitted = 0
        self._now_s = -np.inf
        self._moves: deque[tuple[float, float]] = deque()
        self._moved = 0.0

    @property
    def present(self) -> int:
        """How many jobs have been submitted and are not done."""
        return self._rows

    @property
    def running(self) -> bool:
        """Whether any job has a yield above 0."""
        return bool((self._jobs["yield_"][: self._rows] > 0).any())

    def gets_on(self, now_s: float) -> bool:
        """Whether any job makes progress before `now_s`, if nothing changes until then."""
        jobs = self._jobs[: self._rows]
        return bool(((jobs["yield_"] > 0) & (jobs["ready_s"] < now_s)).any())

    def snapshot(self, cause: Cause = Cause.WAKE, subject: int = -1) -> Snapshot:
        """The present, frozen."""
        jobs = self._jobs[: self._rows]
        first = self._first[: self._rows + 1]
        nodes = self._nodes[: self._first[self._rows]]
        jobs.flags.writeable = first.flags.writeable = nodes.flags.writeable = False
        return Snapshot(self._now_s, cause, subject, self._capacity, self._open, jobs, first, nodes, self._moved)

    def handle(self, event: Event, now_s: float) -> Commands:
        """What is to be done because of `event`, which became true at `now_s` (never before the last one).

        Raises InputError for an event that cannot be true, PolicyError where the policy's answer cannot be performed.
        """
        if not now_s >= self._now_s:
            raise InputError(f"event at {now_s} s after one at {self._now_s} s: time does not go back")
        ledger.advance(self._jobs, self._rows, self._now_s, now_s)
        self._now_s = now_s
        if isinstance(event, Ready):
            ledger.set_ready(self._jobs, self._rows, event.serials, event.ready_s)
            return NOTHING
        if isinstance(event, Submit):
            return self._decide(_SUBMISSION, self._admit(event))
        if isinstance(event, Complete):
            self._remove(event.job_id)
            return self._decide(_COMPLETION, -1) if event.last else NOTHING
        if isinstance(event, NodeChange):
            lost = self._change(event)
            return joined(lost, self._decide(Cause.NODES, -1)) if event.last else lost
        return self._decide(_WAKE, -1)

    def _decide(self, cause: Cause, subject: int) -> Commands:
        while self._moves and self._moves[0][0] <= self._now_s - HOUR_S:
            self._moved -= self._moves.popleft()[1]
        if not self._moves:
            self._moved = 0.0
        snapshot = self.snapshot(cause, subject)
        try:
            target = self.policy.decide(snapshot)
        except PolicyError:
            raise
        except Exception as error:
            raise PolicyError(None, f"raised {type(error).__name__}: {' '.join(str(error).split())}") from error
        check(snapshot, target)
        commands, after, order, steps = reconcile(snapshot, target)
        self.wake_at_s = target.wake_at_s
        if not len(commands):
            return commands
        if target.why:
            for k, name in enumerate(commands.job_id.tolist()):
                if name in target.why:
                    commands.reason[k] = self.journal.reason(target.why[name])
        commit(self._jobs, self._first, self._nodes, after, target.yields, self._now_s, order, steps)
        migrates = commands.action == _MIGRATE
        if migrates.any():
            amount = float((commands.moved[migrates] * self._jobs["memory"][order[migrates]]).sum())
            self._moves.append((self._now_s, amount))
            self._moved += amount
        self.journal.append(self._now_s, commands)
        return commands

    def _admit(self, event: Submit) -> int:
        row = self._rows
        if event.tasks < 1 or not 0 < event.need <= 1 or not 0 <= event.memory <= 1:
            raise InputError(
                f"job {event.job_id}: {event.tasks} tasks of need {event.need} and memory {event.memory}: must be at "
                "least 1, above 0 and at most 1, and from 0 to 1"
            )
        if ledger.row_of(self._jobs, row, event.job_id) >= 0:
            raise InputError(f"job {event.job_id}: is in the system already")
        if row + 1 >= len(self._jobs):
            self._jobs = grown(self._jobs, row + 2)
            self._first = grown(self._first, len(self._jobs) + 1)
        begin = int(self._first[row])
        end = begin + event.tasks
        self._nodes = grown(self._nodes, end)
        self._nodes[begin:end] = -1
        self._first[row + 1] = end
        self._jobs[row] = (
            event.job_id, self._submitted, event.user, WAITING, event.tasks, event.need, event.memory, event.weight,
            event.estimate_s, self._now_s, 0.0, 0.0, np.nan, self._now_s, np.inf, 0, 0,
        )  # fmt: skip
        self._submitted += 1
        self._rows += 1
        return row

    def _remove(self, job_id: int) -> None:
        row = ledger.row_of(self._jobs, self._rows, job_id)
        if row < 0:
            raise InputError(f"job {job_id} is done, but is not in the system")
        self.journal.note(self._now_s, _FINISH, int(self._jobs["serial"][row]), _FINISHED)
        ledger.remove_row(self._jobs, self._first, self._nodes, self._rows, row)
        self._rows -= 1

    def _change(self, event: NodeChange) -> Commands:
        if not 0 <= event.node < len(self._open):
            raise InputError(f"node {event.node}: there are {len(self._open)}")
        action = {Condition.DOWN: Action.DOWN, Condition.DRAIN: Action.DRAIN, Condition.UP: Action.UP}[event.condition]
        is_open = self._open.copy()
        is_open[event.node] = event.condition == Condition.UP
        self._open = _frozen(is_open)
        self.journal.note(self._now_s, action, -1, nodes=np.array([event.node]))
        lost = np.empty(self._rows, np.int64)
        count = 0
        if event.condition == Condition.DOWN:
            count = ledger.lose_node(self._jobs, self._first, self._nodes, self._rows, event.node, lost)
        self._jobs["since_s"][lost[:count]] = self._now_s
        gone = self._jobs[lost[:count]]
        for serial in gone["serial"].tolist():
            self.journal.note(self._now_s, Action.LOST, serial, Reason.NODE_LOST)
        return without_nodes(Action.LOST, gone["serial"], gone["id"], Reason.NODE_LOST)

    def state(self) -> dict[str, np.ndarray]:
        """Everything but the policy, as arrays, for `restore`."""
        return {
            "jobs": self._jobs[: self._rows], "first": self._first[: self._rows + 1],
            "nodes": self._nodes[: self._first[self._rows]], "open": self._open,
            "clock": np.array([self._now_s, np.nan if self.wake_at_s is None else self.wake_at_s, self._moved]),
            "submitted": np.array(self._submitted), "moves": np.array(self._moves, dtype=np.float64).reshape(-1, 2),
        } | {f"journal_{name}": column for name, column in self.journal.state().items()}  # fmt: skip

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self._rows = len(state["jobs"])
        self._jobs = grown(np.array(state["jobs"]), self._rows + 64)
        self._first = grown(np.array(state["first"]), len(self._jobs) + 1)
        self._nodes = grown(np.array(state["nodes"]), len(state["nodes"]) + 64)
        self._open = _frozen(np.array(state["open"]))
        self._now_s, wake_at_s, self._moved = state["clock"].tolist()
        self.wake_at_s = None if np.isnan(wake_at_s) else wake_at_s
        self._submitted = int(state["submitted"])
        self._moves = deque((time_s, amount) for time_s, amount in state["moves"].tolist())
        self.journal.restore({name[8:]: column for name, column in state.items() if name.startswith("journal_")})


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
