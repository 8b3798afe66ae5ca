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
from dfrs.control.elastic import AnswerLog
from dfrs.control.events import Change, Complete, Event, Ready, Submit
from dfrs.control.journal import Journal
from dfrs.control.reconcile import reconcile
from dfrs.kernels import ledger
from dfrs.kernels.columns import grown
from dfrs.kernels.reconcile import commit
from dfrs.model.decisions import JOB, RUNNING, WAITING, Cause, Policy, PolicyError, Reason, Snapshot
from dfrs.model.elastic import GRANTS, LEAST_S, MOST_TASKS, Answer, CommandKind
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.nodes import Condition, NodeChange, most_tasks
from dfrs.model.run import Action

HOUR_S = 3600.0

# An enumeration's members are slow to look up where it is done a million times.
_FINISH, _MIGRATE = int(Action.FINISH), int(Action.MIGRATE)
_FINISHED = int(Reason.FINISHED)
_SUBMISSION, _COMPLETION, _WAKE = Cause.SUBMISSION, Cause.COMPLETION, Cause.WAKE


class Core:
    """A cluster of nodes with `capacity` (N, 2) under a policy. Deterministic: same events, same commands.

    Of users' commands on one job at most `command_limit` are granted.
    """

    def __init__(self, policy: Policy, capacity: Floats, command_limit: int | None = None) -> None:
        self.policy = policy
        self.command_limit = command_limit
        self.journal = Journal()
        self.answers = AnswerLog()
        self.wake_at_s: float | None = None
        """When the policy wants to be asked again."""
        self._capacity = _frozen(np.array(capacity, dtype=np.float64))
        self._open = _frozen(np.ones(len(capacity), np.bool_))
        self._jobs = np.zeros(64, JOB)
        self._first = np.zeros(65, np.int64)
        self._nodes = np.full(256, -1, np.int64)
        self._ids = np.zeros(64, np.int64)
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

    @property
    def booked(self) -> bool:
        """Whether any job is present whose requested start is to come."""
        return bool((self._jobs["requested_start_s"][: self._rows] > self._now_s).any())

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
        if isinstance(event, Change):
            return self._decide(Cause.COMMAND, -1) if self._answer(event) in GRANTS else NOTHING
        if isinstance(event, Complete):
            self._remove(event.job_id)
            return self._decide(_COMPLETION, -1) if event.last else NOTHING
        if isinstance(event, NodeChange):
            lost = self._change_node(event)
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
        if len(target.memo):
            self._jobs["memo"][: self._rows] = target.memo
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
            event.requested_start_s, 0, 0, 0,
        )  # fmt: skip
        self._ids = grown(self._ids, self._submitted + 1)
        self._ids[self._submitted] = event.job_id
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

    def _answer(self, command: Change) -> Answer:
        """Answer a command, log the answer, and bring the job's row in line with it."""
        row = ledger.row_of(self._jobs, self._rows, command.job_id)
        answer, change_s, change_tasks = self._refusal(command, row), 0.0, 0
        if answer is None:
            if command.kind in {CommandKind.ET, CommandKind.RT}:
                answer, change_s = self._change_time(row, command)
            elif command.kind is CommandKind.EP:
                answer, change_tasks = self._enlarge(row, int(command.amount))
            else:
                answer, change_tasks = self._shrink(row, int(command.amount))
        if answer in GRANTS:
            self._jobs["changes"][row] += 1
            self._jobs["extensions"][row] += command.kind in {CommandKind.ET, CommandKind.EP}
        self.answers.add(self._now_s, command, answer, change_s, change_tasks)
        return answer

    def _refusal(self, command: Change, row: int) -> Answer | None:
        """Why a command is refused whatever it asks for; None if it is not."""
        if row < 0:
            return Answer.ENDED if (self._ids[: self._submitted] == command.job_id).any() else Answer.UNKNOWN
        if not getattr(self.policy, "elastic", False):
            return Answer.INELASTIC
        if self.command_limit is not None and self._jobs["changes"][row] >= self.command_limit:
            return Answer.LIMIT
        return None

    def _change_time(self, row: int, command: Change) -> tuple[Answer, float]:
        """By the estimate, where there is one; what becomes of the processing time is known to who runs the job."""
        estimate_s = float(self._jobs["estimate_s"][row])
        change_s = command.amount if command.kind is CommandKind.ET else -command.amount
        least_s = max(min(estimate_s, LEAST_S), float(self._jobs["virtual_s"][row]))
        self._jobs["estimate_s"][row] = after_s = max(estimate_s + change_s, min(least_s, estimate_s))
        return (Answer.CUT if after_s > estimate_s + change_s else Answer.GRANTED), change_s

    def _enlarge(self, row: int, more: int) -> tuple[Answer, int]:
        job = self._jobs[row]
        need, memory, tasks = float(job["need"]), float(job["memory"]), int(job["tasks"]) + more
        whole = getattr(self.policy, "dedicated", False) and not np.isnan(job["requested_start_s"])
        exclusive = whole or getattr(self.policy, "exclusive", False)
        if min(most_tasks(self._capacity, need, memory, exclusive=exclusive), MOST_TASKS) < tasks:
            return Answer.TOO_LARGE, 0
        nodes: Ints | None = None
        if job["state"] == RUNNING:
            expand = getattr(self.policy, "expand", None)
            nodes = expand and expand(self.snapshot(Cause.COMMAND), row, more)
            if nodes is None:
                return Answer.NO_ROOM, 0
            if len(nodes) != more or not self._open[nodes].all():
                raise PolicyError(
                    int(job["id"]), f"would grow by {more} tasks on nodes {nodes}: must be open, one each"
                )
        self._resize(row, tasks, nodes)
        return Answer.GRANTED, more

    def _shrink(self, row: int, asked: int) -> tuple[Answer, int]:
        less = min(asked, int(self._jobs["tasks"][row]) - 1)
        if less:
            self._resize(row, int(self._jobs["tasks"][row]) - less, None)
        return (Answer.CUT if less < asked else Answer.GRANTED), -less

    def _resize(self, row: int, tasks: int, new: Ints | None) -> None:
        """Another number of tasks, with nodes for `new` ones; logged where the job runs."""
        self._nodes = grown(self._nodes, int(self._first[self._rows]) + tasks)
        ledger.resize_row(self._jobs, self._first, self._nodes, self._rows, row, tasks)
        slots = self._nodes[self._first[row] : self._first[row + 1]]
        if new is not None:
            slots[tasks - len(new) :] = new
        if self._jobs["state"][row] == RUNNING:
            serial, yield_ = int(self._jobs["serial"][row]), float(self._jobs["yield_"][row])
            self.journal.note(self._now_s, Action.RESIZE, serial, Reason.RESIZED, slots, yield_)

    def _change_node(self, event: NodeChange) -> Commands:
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
            "ids": self._ids[: self._submitted], "moves": np.array(self._moves, dtype=np.float64).reshape(-1, 2),
        } | {f"journal_{name}": column for name, column in self.journal.state().items()} | {
            f"answers_{name}": column for name, column in self.answers.state().items()
        }  # fmt: skip

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self._rows = len(state["jobs"])
        self._jobs = grown(np.array(state["jobs"]), self._rows + 64)
        self._first = grown(np.array(state["first"]), len(self._jobs) + 1)
        self._nodes = grown(np.array(state["nodes"]), len(state["nodes"]) + 64)
        self._open = _frozen(np.array(state["open"]))
        self._now_s, wake_at_s, self._moved = state["clock"].tolist()
        self.wake_at_s = None if np.isnan(wake_at_s) else wake_at_s
        self._submitted = len(state["ids"])
        self._ids = np.array(state["ids"])
        self._moves = deque((time_s, amount) for time_s, amount in state["moves"].tolist())
        self.journal.restore({name[8:]: column for name, column in state.items() if name.startswith("journal_")})
        self.answers.restore({name[8:]: column for name, column in state.items() if name.startswith("answers_")})


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
