"""The state machine between events and commands, without clock or I/O: simulator and live shell share it.

`Core.handle(event, now_s)` brings the account of jobs up to now, lets the policy decide on a frozen snapshot, checks
its target, turns it into commands, and takes the target as the present. Whoever performs the commands answers with
`Ready`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dfrs.engine.check import check
from dfrs.engine.cluster import Cluster
from dfrs.engine.commands import DETACH, NOTHING, Commands, joined, one, without_nodes
from dfrs.engine.event_log import Journal
from dfrs.engine.events import Change, Complete, Event, Hold, Predicted, Ready, Revise, Submit, Unhold
from dfrs.engine.executor_constraints import Limits, guard
from dfrs.engine.held_jobs import Held, Homes
from dfrs.engine.job_changes import AnswerLog, change_time
from dfrs.engine.predictions import Layout, Predictions
from dfrs.engine.reconcile import reconcile
from dfrs.engine.rows import Rows
from dfrs.engine.validate_event import refuse
from dfrs.kernels import ledger
from dfrs.kernels.columns import grown
from dfrs.kernels.reconcile import commit
from dfrs.model.decisions import (
    MEMORY,
    PAUSED,
    RUNNING,
    WAITING,
    Cause,
    Expanding,
    Policy,
    PolicyError,
    Reason,
    Snapshot,
    Target,
    traits_of,
)
from dfrs.model.elastic import GRANTS, MOST_TASKS, Answer, CommandKind
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.nodes import Capacity, Condition, Join, NodeChange, most_tasks
from dfrs.model.run import Action

HOUR_S = 3600.0
RETRY_S = 60.0

# An enumeration's members are slow to look up where it is done a million times.
_FINISH, _MIGRATE = int(Action.FINISH), int(Action.MIGRATE)
_PAUSE, _SHARE = int(Action.PAUSE), int(Action.SHARE)
_FINISHED = int(Reason.FINISHED)
_SUBMISSION, _COMPLETION, _WAKE = Cause.SUBMISSION, Cause.COMPLETION, Cause.WAKE
_ACTION_OF = {Condition.DOWN: Action.DOWN, Condition.DRAIN: Action.DRAIN, Condition.UP: Action.UP}


class Core:
    """A cluster of nodes with `capacity` (N, 2) under a policy. Deterministic: same events, same commands.

    There may be no nodes at first: then jobs wait, and the policy is not asked. Of users' commands on one job at most
    `command_limit` are granted; a command on a job that is held is answered as if nobody had told of it. Where nodes
    are those of a `farm`, policies see it and what is predicted of jobs; nodes that join are its next ones.
    """

    def __init__(
        self, policy: Policy, capacity: Floats, command_limit: int | None = None, farm: Layout | None = None
    ) -> None:
        self._policy = policy
        self.traits = traits_of(policy)
        """Of the policy that decides."""
        self.command_limit = command_limit
        self.journal = Journal()
        self.answers = AnswerLog()
        self.wake_at_s: float | None = None
        """When the policy wants to be asked again."""
        self.decisions = 0
        """How many targets were taken."""
        self._target: Target | None = None
        self._rows = Rows()
        self._cluster = Cluster(capacity)
        self._held = Held()
        self._homes = Homes()
        self._predictions = None if farm is None else Predictions(farm)
        if self._predictions is not None and len(self._cluster) > len(self._predictions):
            raise InputError(f"capacity: {len(self._cluster)} nodes, but the farm has {len(self._predictions)}")
        self._ids = np.zeros(64, np.int64)
        self._submitted = 0
        self._undecided = 0
        self._unsettled = False
        self._demanding = 0
        self._now_s = -np.inf
        self._moves: deque[tuple[float, float]] = deque()
        self._moved = 0.0

    @property
    def policy(self) -> Policy:
        """Who decides. Another one may be set, which is then asked when this one would have been; see `hand_over`."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        self.traits = traits_of(policy)

    @property
    def target(self) -> Target | None:
        """The last target as it was taken, to be recorded; None before the first one, also after `restore`.

        It is to be read before the next event: until then a target may be a view of the present.
        """
        if self._target is not None:
            self._target = _own(self._target)
        return self._target

    @property
    def present(self) -> int:
        """How many jobs have been submitted and are not done."""
        return self._rows.count + len(self._held)

    @property
    def running(self) -> bool:
        """Whether any job has a yield above 0."""
        return bool((self._rows.views()[0]["yield_"] > 0).any())

    @property
    def booked(self) -> bool:
        """Whether any job is present whose requested start is to come."""
        return bool((self._rows.views()[0]["requested_start_s"] > self._now_s).any())

    def gets_on(self, now_s: float) -> bool:
        """Whether any job makes progress before `now_s`, if nothing changes until then."""
        jobs = self._rows.views()[0]
        return bool(((jobs["yield_"] > 0) & (jobs["ready_s"] < now_s)).any())

    def hand_over(self, policy: Policy) -> None:
        """Let another policy decide from here on. It is to be asked at once, not when the one before wanted to be."""
        self.policy = policy
        self.wake_at_s = self._now_s if np.isfinite(self._now_s) else None

    def snapshot(self, cause: Cause = Cause.WAKE, subject: int = -1) -> Snapshot:
        """The present as the policy sees it, frozen.

        Memory that held jobs keep is not there to be given out. To an exclusive policy, whose jobs have nodes for
        themselves, the nodes with such memory are closed instead, and nodes that were alike still are.
        """
        capacity, is_open = self._cluster.capacity, self._cluster.open
        if self._held.resident:
            if self.traits.exclusive:
                is_open = _frozen(is_open & ~self._held.on(len(is_open)))
            else:
                capacity = capacity.copy()
                capacity[:, MEMORY] = np.maximum(capacity[:, MEMORY] - self._held.memory(len(is_open)), 0.0)
                capacity = _frozen(capacity)
        rows, predictions = self._rows.views(), self._predictions
        farm = None if predictions is None else predictions.view(rows[0]["serial"], self._cluster.capacity)
        return Snapshot(self._now_s, cause, subject, capacity, is_open, *rows, self._moved, farm)

    def handle(self, event: Event, now_s: float) -> Commands:
        """What is to be done because of `event`, which became true at `now_s` (never before the last one).

        Raises InputError for an event that cannot be true, and then nothing has changed; PolicyError where the policy's
        answer cannot be performed.
        """
        if not now_s >= self._now_s:
            raise InputError(f"event at {now_s} s after one at {self._now_s} s: time does not go back")
        row = refuse(event, self._rows, self._held, self._cluster, self._predictions)
        ledger.advance(self._rows.jobs, self._rows.count, self._now_s, now_s)
        self._now_s = now_s
        if isinstance(event, Ready):
            ledger.set_ready(self._rows.jobs, self._rows.count, event.serials, event.ready_s)
            return NOTHING
        if isinstance(event, Submit):
            return self._submit(event)
        if isinstance(event, Predicted):
            self._predict(event, row)
            return NOTHING
        if isinstance(event, Change):
            return self._decide(Cause.COMMAND, -1) if self._answer(event) in GRANTS else NOTHING
        if isinstance(event, Complete):
            self._remove(event.job_id, row)
            return self._decide(_COMPLETION, -1) if event.last else NOTHING
        if isinstance(event, NodeChange):
            lost = self._change_node(event)
            return joined(lost, self._decide(Cause.NODES, -1)) if event.last else lost
        if isinstance(event, Revise):
            kept = self._revise(event, row)
            self._unsettled = True
            return joined(kept, self._decide(Cause.NEEDS, -1)) if event.last else kept
        if isinstance(event, Hold):
            return joined(self._hold(row), self._decide(_COMPLETION, -1))
        if isinstance(event, Unhold):
            settled = self._settle()
            back, cause, subject = self._release(event.job_id)
            return joined(joined(settled, back), self._decide(cause, subject))
        if isinstance(event, Join):
            self._join(event)
            return self._decide(Cause.NODES, -1)
        if isinstance(event, Capacity):
            self._cluster.resize(event)
            return NOTHING
        return self._decide(_WAKE, -1)

    @property
    def capacity(self) -> Floats:
        """(N, 2) CPU and memory of each node, held jobs or not."""
        return self._cluster.capacity

    def _decide(self, cause: Cause, subject: int) -> Commands:
        if self._cluster.empty:
            self.wake_at_s = None
            return NOTHING
        try:
            return self._ask(cause, subject)
        except PolicyError:
            # Who goes on in spite of it asks again, but not at once.
            self.wake_at_s = self._now_s + RETRY_S
            raise

    def _ask(self, cause: Cause, subject: int) -> Commands:
        self._unsettled = False
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
        if self._cluster.limited or self._demanding:
            target = guard(snapshot, target, self._limits())
            check(snapshot, target)
        commands, after, order, steps = reconcile(snapshot, target)
        self.wake_at_s = target.wake_at_s
        self.decisions += 1
        self._target = target
        rows = self._rows
        if len(target.memo):
            rows.jobs["memo"][: rows.count] = target.memo
        if not len(commands):
            return commands
        if target.why:
            for k, name in enumerate(commands.job_id.tolist()):
                if name in target.why:
                    commands.reason[k] = self.journal.reason(target.why[name])
        if self._cluster.several:
            for row in order[steps == _PAUSE].tolist():
                self._note_home(row)
        commit(rows.jobs, rows.first, rows.nodes, after, target.yields, self._now_s, order, steps)
        if self._predictions is not None:
            self._rate(order, steps)
        migrates = commands.action == _MIGRATE
        if migrates.any():
            amount = float((commands.moved[migrates] * rows.jobs["memory"][order[migrates]]).sum())
            self._moves.append((self._now_s, amount))
            self._moved += amount
        self.journal.append(self._now_s, commands)
        return commands

    def _limits(self) -> Limits:
        return Limits(self._cluster, self._homes, self.traits.exclusive, self.traits.dedicated)

    def _submit(self, event: Submit) -> Commands:
        if not event.last:
            self._undecided += 1
            self._admit(event)
            return NOTHING
        several, self._undecided = self._undecided > 0, 0
        commands = self._settle()
        commands = joined(commands, self._decide(_SUBMISSION, self._admit(event)))
        return joined(commands, self._decide(Cause.NODES, -1)) if several else commands

    def _settle(self) -> Commands:
        """What revisions come to that the policy was not asked about: it may leave all yields at a submission."""
        return self._decide(Cause.NEEDS, -1) if self._unsettled else NOTHING

    def _admit(self, event: Submit) -> int:
        row = self._rows.add(
            (
                event.job_id,
                self._submitted,
                event.user,
                WAITING,
                event.tasks,
                event.need,
                event.memory,
                event.weight,
                event.estimate_s,
                self._now_s,
                0.0,
                0.0,
                np.nan,
                self._now_s,
                np.inf,
                0,
                0,
                event.requested_start_s,
                0,
                0,
                0,
                event.minimum,
                1.0,
            ),
            event.tasks,
        )
        self._demanding += event.minimum > 0
        self._ids = grown(self._ids, self._submitted + 1)
        self._ids[self._submitted] = event.job_id
        self._submitted += 1
        return row

    def _remove(self, job_id: int, row: int) -> None:
        if row >= 0:
            job = self._rows.jobs[row]
            serial, minimum = int(job["serial"]), float(job["minimum"])
            self._rows.remove(row)
        else:
            job, _ = self._held.take(job_id)
            serial, minimum = int(job["serial"]), float(job["minimum"])
        self.journal.note(self._now_s, _FINISH, serial, _FINISHED)
        self._homes.forget(serial)
        if self._predictions is not None:
            self._predictions.forget(serial)
        self._demanding -= minimum > 0

    def _predict(self, event: Predicted, row: int) -> None:
        predictions = self._predictions
        if predictions is None:
            return
        job = self._rows.jobs[row] if row >= 0 else self._held[event.job_id]
        predictions.note(int(job["serial"]), event)
        if row >= 0:
            predictions.settle(self._rows, row)

    def _rate(self, rows: Ints, steps: Ints) -> None:
        """Jobs were placed, moved or paused: how fast they are where they are now."""
        predictions = self._predictions
        if predictions is None:
            return
        for row in rows[(steps != _SHARE) & (steps != DETACH)].tolist():
            predictions.leaves(int(self._rows.jobs["serial"][row]))
            predictions.settle(self._rows, row)

    def _note_home(self, row: int) -> None:
        """A job is about to be paused: its tasks were in these islands."""
        self._homes.note(int(self._rows.jobs["serial"][row]), self._cluster.island[self._rows.slots(row)])

    def _revise(self, event: Revise, row: int) -> Commands:
        if row < 0:
            self._held[event.job_id]["need"] = event.need
            return NOTHING
        job = self._rows.jobs[row]
        before, share = float(job["yield_"]), float(job["yield_"] * job["need"])
        job["need"] = event.need
        after = min(1.0, share / event.need)
        if after == before:
            return NOTHING
        job["yield_"] = after
        commands = one(Action.SHARE, job, after, Reason.REVISED)
        self.journal.append(self._now_s, commands)
        return commands

    def _hold(self, row: int) -> Commands:
        rows = self._rows
        job, nodes = rows.jobs[row].copy(), rows.slots(row).copy()
        commands = NOTHING
        if job["state"] == RUNNING:
            job["state"], job["yield_"], job["speed"], job["since_s"] = PAUSED, 0.0, 1.0, self._now_s
            job["pauses"] += 1
            commands = one(Action.PAUSE, job, 0.0, Reason.HELD)
            self.journal.append(self._now_s, commands)
            if not self._cluster.keeps[nodes].any():
                if self._cluster.several:
                    self._note_home(row)
                nodes[:] = -1
        rows.remove(row)
        self._held.put(job, nodes)
        return commands

    def _release(self, job_id: int) -> tuple[Commands, Cause, int]:
        """What brings a held job back, and as what the policy is asked then."""
        job, nodes = self._held.take(job_id)
        if nodes[0] < 0:
            return NOTHING, _SUBMISSION, self._rows.insert(job, nodes)
        job["state"], job["since_s"], job["ready_s"] = RUNNING, self._now_s, np.inf
        row = self._rows.insert(job, nodes)
        if self._predictions is not None:
            self._predictions.settle(self._rows, row)
        commands = one(Action.RESUME, job, 0.0, Reason.RELEASED, nodes)
        self.journal.append(self._now_s, commands)
        return commands, _COMPLETION, -1

    def _join(self, event: Join) -> None:
        if not self._cluster.empty and not self._cluster.several and event.island != self._cluster.island[0]:
            # So far there was one island: whoever is paused was there.
            jobs = self._rows.views()[0]
            for job in (*jobs[jobs["state"] == PAUSED], *self._held):
                if job["state"] == PAUSED:
                    self._homes.note(int(job["serial"]), np.full(int(job["tasks"]), self._cluster.island[0]))
        self._cluster.join(event)
        self.journal.note(self._now_s, Action.UP, -1, nodes=np.array([len(self._cluster) - 1]))

    def _answer(self, command: Change) -> Answer:
        """Answer a command, log the answer, and bring the job's row in line with it."""
        row = self._rows.find(command.job_id)
        answer, change_s, change_tasks = self._refusal(command, row), 0.0, 0
        if answer is None:
            if command.kind in {CommandKind.ET, CommandKind.RT}:
                answer, change_s = change_time(self._rows.jobs[row], command)
            elif command.kind is CommandKind.EP:
                answer, change_tasks = self._enlarge(row, int(command.amount))
            else:
                answer, change_tasks = self._shrink(row, int(command.amount))
        if answer in GRANTS:
            self._rows.jobs["changes"][row] += 1
            self._rows.jobs["extensions"][row] += command.kind in {CommandKind.ET, CommandKind.EP}
        self.answers.add(self._now_s, command, answer, change_s, change_tasks)
        return answer

    def _refusal(self, command: Change, row: int) -> Answer | None:
        """Why a command is refused whatever it asks for; None if it is not."""
        if command.job_id in self._held:
            return Answer.UNKNOWN
        if row < 0:
            return Answer.ENDED if (self._ids[: self._submitted] == command.job_id).any() else Answer.UNKNOWN
        if not self.traits.elastic:
            return Answer.INELASTIC
        if self.command_limit is not None and self._rows.jobs["changes"][row] >= self.command_limit:
            return Answer.LIMIT
        return None

    def _enlarge(self, row: int, more: int) -> tuple[Answer, int]:
        job = self._rows.jobs[row]
        need, memory, tasks = float(job["need"]), float(job["memory"]), int(job["tasks"]) + more
        whole = self.traits.dedicated and not np.isnan(job["requested_start_s"])
        exclusive = bool(whole or self.traits.exclusive)
        if min(most_tasks(self._cluster.capacity, need, memory, exclusive=exclusive), MOST_TASKS) < tasks:
            return Answer.TOO_LARGE, 0
        nodes: Ints | None = None
        if job["state"] == RUNNING:
            snapshot = self.snapshot(Cause.COMMAND)
            nodes = self._policy.expand(snapshot, row, more) if isinstance(self._policy, Expanding) else None
            if nodes is None:
                return Answer.NO_ROOM, 0
            if len(nodes) != more or not snapshot.open[nodes].all():
                raise PolicyError(
                    int(job["id"]), f"would grow by {more} tasks on nodes {nodes}: must be open, one each"
                )
        self._resize(row, tasks, nodes)
        return Answer.GRANTED, more

    def _shrink(self, row: int, asked: int) -> tuple[Answer, int]:
        less = min(asked, int(self._rows.jobs["tasks"][row]) - 1)
        if less:
            self._resize(row, int(self._rows.jobs["tasks"][row]) - less, None)
        return (Answer.CUT if less < asked else Answer.GRANTED), -less

    def _resize(self, row: int, tasks: int, new: Ints | None) -> None:
        """Another number of tasks, with nodes for `new` ones; logged where the job runs."""
        self._rows.resize(row, tasks)
        slots = self._rows.slots(row)
        if new is not None:
            slots[tasks - len(new) :] = new
        if self._rows.jobs["state"][row] == RUNNING:
            if self._predictions is not None:
                self._predictions.settle(self._rows, row)
            serial, yield_ = int(self._rows.jobs["serial"][row]), float(self._rows.jobs["yield_"][row])
            self.journal.note(self._now_s, Action.RESIZE, serial, Reason.RESIZED, slots, yield_)

    def _change_node(self, event: NodeChange) -> Commands:
        self._cluster.change(event)
        self.journal.note(self._now_s, _ACTION_OF[event.condition], -1, nodes=np.array([event.node]))
        if event.condition != Condition.DOWN:
            return NOTHING
        rows, held = self._rows, self._held.lose_node(event.node)
        lost = np.empty(rows.count, np.int64)
        count = ledger.lose_node(rows.jobs, rows.first, rows.nodes, rows.count, event.node, lost)
        rows.jobs["since_s"][lost[:count]] = self._now_s
        gone = rows.jobs[lost[:count]]
        serials = np.concatenate([gone["serial"], np.array([job["serial"] for job in held], np.int64)])
        names = np.concatenate([gone["id"], np.array([job["id"] for job in held], np.int64)])
        if self._predictions is not None:
            rows.jobs["speed"][lost[:count]] = 1.0
            for serial in serials.tolist():
                self._predictions.leaves(serial)
        for serial in serials.tolist():
            self.journal.note(self._now_s, Action.LOST, serial, Reason.NODE_LOST)
        return without_nodes(Action.LOST, serials, names, Reason.NODE_LOST)

    def state(self) -> dict[str, np.ndarray]:
        """Everything but the policy and the last target, as arrays, for `restore`."""
        parts = {f"{key}_{name}": array for key, part in self._parts.items() for name, array in part.state().items()}
        return parts | {
            "clock": np.array([self._now_s, np.nan if self.wake_at_s is None else self.wake_at_s, self._moved]),
            "counts": np.array([self._undecided, self._unsettled, self._demanding, self.decisions]),
            "ids": self._ids[: self._submitted],
            "moves": np.array(self._moves, dtype=np.float64).reshape(-1, 2),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self._now_s, wake_at_s, self._moved = state["clock"].tolist()
        self.wake_at_s = None if np.isnan(wake_at_s) else wake_at_s
        self._undecided, unsettled, self._demanding, self.decisions = state["counts"].tolist()
        self._unsettled = bool(unsettled)
        self._target = None
        self._submitted = len(state["ids"])
        self._ids = np.array(state["ids"])
        self._moves = deque((time_s, amount) for time_s, amount in state["moves"].tolist())
        for key, part in self._parts.items():
            begin = f"{key}_"
            part.restore({name[len(begin) :]: column for name, column in state.items() if name.startswith(begin)})

    @property
    def _parts(self) -> Mapping[str, Rows | Cluster | Held | Homes | Journal | AnswerLog | Predictions]:
        always = {
            "rows": self._rows, "cluster": self._cluster, "held": self._held, "homes": self._homes,
            "journal": self.journal, "answers": self.answers,
        }  # fmt: skip
        return always if self._predictions is None else {**always, "farm": self._predictions}


def _own(target: Target) -> Target:
    """The target with arrays of its own where they are views of a snapshot, which will change."""
    if target.task_nodes.flags.writeable and target.yields.flags.writeable:
        return target
    return replace(target, task_nodes=target.task_nodes.copy(), yields=target.yields.copy())


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
