"""What the core knows: one state, which the handlers of events change and of which policies see frozen snapshots."""

from collections import deque
from collections.abc import Mapping
from dataclasses import astuple

import numpy as np

from dfrs.engine.cluster import NodeTable
from dfrs.engine.event_log import EventLog
from dfrs.engine.held_jobs import Held, LastIslands
from dfrs.engine.job_changes import AnswerLog
from dfrs.engine.kept_progress import KeptProgress
from dfrs.engine.node_constraints import NodeConstraints
from dfrs.engine.refusals import Refusals
from dfrs.engine.resource_table import ResourceTable
from dfrs.engine.restarts import Restarts
from dfrs.engine.rows import Rows
from dfrs.engine.speeds import SpeedsKept
from dfrs.kernels import ledger
from dfrs.kernels.columns import grown
from dfrs.model.decisions import (
    MEMORY,
    PAUSED,
    RUNNING,
    UNKNOWN_PRICES,
    Abilities,
    Cause,
    Jobs,
    Policy,
    Prices,
    Snapshot,
    traits_of,
)
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.nodes import NodeLimits

HOUR_S = 3600.0


class State:
    """Jobs, nodes, what is held, what is predicted, and what was done; as `dfrs.engine.core.Core` is made of it."""

    def __init__(
        self,
        policy: Policy,
        capacity: Floats,
        command_limit: int | None,
        speeds: SpeedsKept,
        limits: NodeLimits | None = None,
    ) -> None:
        self._policy = policy
        self.traits = traits_of(policy)
        """Of the policy that decides."""
        self.command_limit = command_limit
        self.rows = Rows()
        self.cluster = NodeTable(capacity, limits)
        self.held = Held()
        self.last_islands = LastIslands()
        self.refusals = Refusals()
        """Of pauses."""
        self.unmovable = Refusals()
        """Refusals of moves."""
        self.restarts = Restarts()
        self.kept_progress = KeptProgress()
        self.constraints = NodeConstraints()
        self.resources = ResourceTable()
        self.prices = UNKNOWN_PRICES
        """Of pauses, resumes and moves."""
        self.event_log = EventLog()
        self.answers = AnswerLog()
        self.speeds = speeds
        if len(self.cluster) > speeds.most_nodes:
            raise InputError(f"capacity: {len(self.cluster)} nodes, but the farm has {speeds.most_nodes}")
        self.now_s = -np.inf
        self.wake_at_s: float | None = None
        """When the policy wants to be asked again."""
        self.decisions = 0
        """How many targets were taken."""
        self.undecided = 0
        """Jobs submitted at this instant of which the policy was not told yet."""
        self.unsettled = False
        """Whether needs were revised since the policy was last asked."""
        self.demanding = 0
        """Jobs present with a minimum yield."""
        self.submitted = 0
        self._ids = np.zeros(64, np.int64)
        self._moves: deque[tuple[float, float]] = deque()
        self._moved = 0.0

    @property
    def policy(self) -> Policy:
        """Who decides."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        self.traits = traits_of(policy)

    @property
    def all_fit(self) -> bool:
        """Whether it is certain that each job could run if it were alone."""
        return self.cluster.whole and not (self.held.resident or self.constraints or self.resources)

    @property
    def plain(self) -> bool:
        """Whether submissions, completions and wakes are all that can matter now.

        All nodes are open, every job can be paused and moved, nothing is held, agreed, or still to be decided.
        """
        pending = bool(self.undecided or self.unsettled or self.demanding or self.held)
        return self.all_fit and not (self.cluster.empty or self.limited or self.restarts or pending)

    @property
    def usable(self) -> tuple[Floats, Bools]:
        """(N, 2) CPU and memory of each node as the policy sees them, and (N,) whether it is open; nothing is held.

        CPU that others use is not there to be given out, unless to an exclusive policy, whose jobs have nodes for
        themselves.
        """
        return self.cluster.capacity if self.traits.exclusive else self.cluster.in_force, self.cluster.open

    @property
    def limited(self) -> bool:
        """Whether executors cannot do all that a policy may ask for."""
        refused = bool(self.refusals or self.unmovable)
        return self.cluster.limited or self.held.resident or refused or bool(self.resources)

    def snapshot(self, cause: Cause, subject: int = -1) -> Snapshot:
        """The present as the policy sees it, frozen.

        Memory that held jobs keep is not there to be given out. To an exclusive policy nodes with such memory are
        closed instead: nodes that were alike still are.
        """
        capacity, is_open = self.usable
        if self.held.resident:
            if self.traits.exclusive:
                is_open = _frozen(is_open & ~self.held.on(len(is_open)))
            else:
                capacity = capacity.copy()
                capacity[:, MEMORY] = np.maximum(capacity[:, MEMORY] - self.held.memory(len(is_open)), 0.0)
                capacity = _frozen(capacity)
        jobs, first, nodes = self.rows.views()
        unequal = self.speeds.view(jobs, self.cluster.capacity)
        abilities = self._abilities(jobs, first, nodes) if self.limited else None
        return Snapshot(
            self.now_s,
            cause,
            subject,
            capacity,
            is_open,
            jobs,
            first,
            nodes,
            self._moved,
            unequal,
            abilities,
            self.prices,
            self._permitted(jobs),
        )

    def _permitted(self, jobs: Jobs) -> Bools | None:
        """Which nodes each job may use, where not all may use all."""
        permitted = self.constraints.permitted(jobs, len(self.cluster)) if self.constraints else None
        return None if permitted is None else _frozen(permitted)

    def _abilities(self, jobs: Jobs, first: Ints, nodes: Ints) -> Abilities:
        """What executors can do, where they cannot do everything."""
        home = np.full(len(nodes), -1, np.int64)
        if self.cluster.several:
            paused = jobs["state"] == PAUSED
            which = jobs["serial"][paused].tolist(), jobs["tasks"][paused].tolist()
            home[np.repeat(paused, jobs["tasks"])] = self.last_islands.of(*which)
        refused, fixed, restarts = self.refusals.of(jobs), self.unmovable.of(jobs), self.restarts.of(jobs)
        named = None
        if self.resources:
            named = self.resources.view(jobs, self.held.residents, len(self.cluster))
            bound = named.claimed & (jobs["state"] == RUNNING)
            refused, fixed, restarts = refused | bound, fixed | bound, restarts & ~bound
        reserved = _frozen(self.held.promised(len(self.cluster)))
        return Abilities(
            self.cluster.keeps,
            self.cluster.island,
            _frozen(home),
            _frozen(refused),
            _frozen(fixed),
            _frozen(restarts),
            reserved,
            named,
        )

    def about_to_ask(self, cause: Cause, subject: int) -> Snapshot:
        """The snapshot of a decision: it sees all revisions, and the migrations of the last hour."""
        self.unsettled = False
        if self.refusals or self.unmovable:
            self.refusals.expire(self.now_s)
            self.unmovable.expire(self.now_s)
        self.forget_moves(self.now_s)
        return self.snapshot(cause, subject)

    def forget_moves(self, now_s: float) -> None:
        """Only those of the last hour are known."""
        while self._moves and self._moves[0][0] <= now_s - HOUR_S:
            self._moved -= self._moves.popleft()[1]
        if not self._moves:
            self._moved = 0.0

    def advance(self, now_s: float) -> None:
        """Bring the account of jobs up to now."""
        ledger.advance(self.rows.jobs, self.rows.count, self.now_s, now_s)
        self.now_s = now_s

    def was_submitted(self, job_id: int) -> bool:
        """Whether a job of that name was ever submitted."""
        return bool((self._ids[: self.submitted] == job_id).any())

    def count_submissions(self, job_ids: Ints) -> None:
        """So many more; the serial number of the first was the count before."""
        count = self.submitted + len(job_ids)
        self._ids = grown(self._ids, count)
        self._ids[self.submitted : count] = job_ids
        self.submitted = count

    def note_move(self, at_s: float, amount: float) -> None:
        """So much memory was migrated then; no earlier than what was noted before."""
        self.forget_moves(at_s)
        self._moves.append((at_s, amount))
        self._moved += amount

    def forget_notes(self) -> None:
        """What the policy noted of jobs that are not on nodes counts no longer."""
        jobs = self.rows.jobs[: self.rows.count]
        jobs["policy_state"][jobs["state"] != RUNNING] = 0
        for job in self.held:
            job["policy_state"] = 0

    def note_home(self, row: int) -> None:
        """A job is about to be paused: its tasks were in these islands."""
        self.last_islands.note(int(self.rows.jobs["serial"][row]), self.cluster.island[self.rows.slots(row)])

    def state(self) -> dict[str, np.ndarray]:
        """Everything but the policy, as arrays, for `restore`."""
        parts = {f"{key}_{name}": array for key, part in self._parts.items() for name, array in part.state().items()}
        return parts | {
            "clock": np.array([self.now_s, np.nan if self.wake_at_s is None else self.wake_at_s, self._moved]),
            "counts": np.array([self.undecided, self.unsettled, self.demanding, self.decisions]),
            "prices": np.array(astuple(self.prices)),
            "ids": self._ids[: self.submitted],
            "moves": np.array(self._moves, dtype=np.float64).reshape(-1, 2),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self.now_s, wake_at_s, self._moved = state["clock"].tolist()
        self.wake_at_s = None if np.isnan(wake_at_s) else wake_at_s
        self.undecided, unsettled, self.demanding, self.decisions = state["counts"].tolist()
        self.unsettled = bool(unsettled)
        self.submitted = len(state["ids"])
        self._ids = np.array(state["ids"])
        if "prices" in state:
            self.prices = Prices(*state["prices"].tolist())
        self._moves = deque((time_s, amount) for time_s, amount in state["moves"].tolist())
        for key, part in self._parts.items():
            begin = f"{key}_"
            part.restore({name[len(begin) :]: column for name, column in state.items() if name.startswith(begin)})

    @property
    def _parts(
        self,
    ) -> Mapping[
        str,
        Rows
        | NodeTable
        | Held
        | LastIslands
        | Refusals
        | Restarts
        | KeptProgress
        | NodeConstraints
        | ResourceTable
        | EventLog
        | AnswerLog
        | SpeedsKept,
    ]:
        return {
            "rows": self.rows,
            "cluster": self.cluster,
            "held": self.held,
            "last_islands": self.last_islands,
            "refusals": self.refusals,
            "unmovable": self.unmovable,
            "restarts": self.restarts,
            "kept_progress": self.kept_progress,
            "constraints": self.constraints,
            "resources": self.resources,
            "event_log": self.event_log,
            "answers": self.answers,
            "speeds": self.speeds,
        }


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
