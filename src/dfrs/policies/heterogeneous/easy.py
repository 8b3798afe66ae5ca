"""EASY over partitions: the scheduler of [Atif2011] section 6.1, which ARRIVE-F uses to dispatch jobs.

A job has a node a task, all in one partition with room, by default the first by index (`First` has other rules); there
all on one machine if one has room, else the nodes of lowest index. Jobs start in order of submission. The first that
finds no partition with room is the *head*; it has a reservation at the earliest time at which, by the estimates, any
one partition has enough nodes. Later jobs go ahead where they leave that as it is: they end by then, or are in another
partition, or take nodes of the reserved one that are to spare beside the head. Nothing is dispatched to a partition
while it is locked by a migration; its nodes count from the end of the lock on.

A job ends, as it is planned, when its wall clock since its start reaches its estimate ([Atif2011] equation 11), in
whichever partition it runs; past its estimate it is expected to end now, but keeps its nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isnan
from typing import ClassVar

import numpy as np

from dfrs.model.decisions import PolicyError, Reason, Snapshot, Target, Traits
from dfrs.model.errors import InputError
from dfrs.policies.batch.backfilling import MissingEstimateError
from dfrs.policies.heterogeneous.cluster_view import WAITS, Board
from dfrs.policies.heterogeneous.rules import First, Rules, left


class TooWideError(PolicyError, InputError):
    """A job wants more nodes than any one partition has: split it, or choose a policy without partitions.

    Exit status 2.
    """


@dataclass(slots=True, kw_only=True)
class Dispatch:
    """What was started, and what the first job that waits can expect."""

    started: dict[int, Reason] = field(default_factory=dict[int, Reason])
    """Rows, whose nodes are on the board."""
    head: int = -1
    """The first row that waits still, or -1."""
    shadow_s: float = inf
    """When the head can start at the latest, by the estimates; infinite where it never can."""
    reserved: int = -1
    """In which partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEasy:
    """EASY on a heterogeneous cluster, without migrations: the base runs of [Atif2011] section 8.

    Raises MissingEstimateError as EASY does, TooWideError for a job that none of several partitions could ever hold,
    and TooManyPartitionsError.
    """

    traits: ClassVar[Traits] = Traits(exclusive=True, clustered=True)
    name: str = "FARM-EASY"
    rules: Rules = field(default_factory=Rules)

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot; reasons QUEUE_HEAD and BACKFILLED."""
        board = Board.of(snapshot, self.name)
        locks = board.locks(self.rules)
        done = dispatch(board, locks, self.rules.first, self.name)
        return target(board, done, self.rules, wake_at(done, locks))


def dispatch(board: Board, locks: Mapping[int, float], first: First, name: str) -> Dispatch:
    """Start on the board what can start; `locks` are partitions with the ends of their locks, `name` the policy's.

    Raises MissingEstimateError, TooWideError.
    """
    _check_subject(board, name)
    waiting = [r for r, home in enumerate(board.home) if home == WAITS]
    done = Dispatch()
    for k, row in enumerate(waiting):
        nodes = next(_rooms(board, row, locks, first), None)
        if nodes is None:
            done.head = row
            _backfill(board, locks, first, name, waiting[k + 1 :], done)
            break
        board.start(row, nodes)
        done.started[row] = Reason.QUEUE_HEAD
    return done


def _check_subject(board: Board, name: str) -> None:
    row, snapshot = board.snapshot.subject, board.snapshot
    if row < 0:
        return
    job = int(snapshot.jobs["id"][row])
    if isnan(snapshot.jobs["estimate_s"][row]):
        raise MissingEstimateError(job, f"has no estimate, which {name} plans with")
    most = int(np.bincount(board.view.partition).max())
    # A cluster of one partition may still grow: who is too wide for it waits, as under EASY.
    if board.partitions > 1 and board.tasks[row] > most:
        raise TooWideError(job, f"has {board.tasks[row]} tasks: a sub-cluster has at most {most} nodes")


def _places(board: Board, row: int, partition: int) -> list[int] | None:
    """Free nodes of a partition for a job, or None."""
    if len(board.free[partition]) < board.tasks[row]:
        return None
    return board.choose(board.tasks[row], [n for n in board.free[partition] if board.holds(row, n)])


def _rooms(board: Board, row: int, locks: Mapping[int, float], first: First) -> Iterator[list[int]]:
    """Free nodes for a job in each partition that has them, in the order in which they are tried."""
    partitions = [c for c in range(board.partitions) if c not in locks]
    if first is First.FREE:
        partitions.sort(key=lambda c: -len(board.free[c]))
    found = (nodes for c in partitions if (nodes := _places(board, row, c)) is not None)
    return iter(sorted(found, key=lambda nodes: not board.colocated(nodes))) if first is First.MACHINE else found


def _backfill(
    board: Board, locks: Mapping[int, float], first: First, name: str, rows: list[int], done: Dispatch
) -> None:
    """Reserve for the head, and start those of `rows` that do not delay it.

    The reservation stays what it is: a job that ends by its time has gone then, one in another partition is not in
    the way, and one in the reserved partition takes of what is to spare there.
    """
    jobs, now_s = board.snapshot.jobs, board.snapshot.now_s
    spare = _reserve(board, locks, name, done)
    for row in rows:
        for nodes in _rooms(board, row, locks, first):
            estimate_s = float(jobs["estimate_s"][row])
            if isnan(estimate_s):
                raise MissingEstimateError(int(jobs["id"][row]), f"has no estimate, which {name} plans with")
            lost = 0
            c = board.partition[nodes[0]]
            if c == done.reserved and now_s + estimate_s > done.shadow_s:
                lost = sum(board.holds(done.head, n) for n in nodes)
            if lost <= spare:
                spare -= lost
                board.start(row, nodes)
                done.started[row] = Reason.BACKFILLED
                break


def _reserve(board: Board, locks: Mapping[int, float], name: str, done: Dispatch) -> int:
    """Find the head's reservation; how many of its partition's nodes are to spare beside it then.

    Of several partitions that have enough at the same time the first is reserved.
    """
    ends = _ends(board, name)
    spare = 0
    for c in range(board.partitions):
        lock_s = locks.get(c, -inf)
        mine = [n for n, k in enumerate(board.partition) if k == c and board.holds(done.head, n)]
        times = sorted(max(ends.get(n, board.snapshot.now_s), lock_s) for n in mine)
        tasks = board.tasks[done.head]
        if len(times) >= tasks and times[tasks - 1] < done.shadow_s:
            done.shadow_s, done.reserved = times[tasks - 1], c
            spare = sum(time_s <= done.shadow_s for time_s in times) - tasks
    return spare


def _ends(board: Board, name: str) -> dict[int, float]:
    """When each node in use is expected back: with the last of its jobs."""
    ends: dict[int, float] = {}
    for row, nodes in enumerate(board.nodes):
        if not nodes:
            continue
        # A job that was started by this decision has no start of its own in the snapshot yet.
        left_s = float(board.snapshot.jobs["estimate_s"][row]) if row in board.fresh else board.left_s(row)
        if isnan(left_s):
            raise MissingEstimateError(int(board.snapshot.jobs["id"][row]), f"has no estimate, which {name} plans with")
        end_s = board.snapshot.now_s + max(left_s, 0.0)
        for n in nodes:
            ends[n] = max(end_s, ends.get(n, end_s))
    return ends


def wake_at(done: Dispatch, locks: Mapping[int, float]) -> float | None:
    """The next end of a lock, while a job waits: then there may be room for it."""
    return min(locks.values()) if locks and done.head >= 0 else None


def target(board: Board, done: Dispatch, rules: Rules, wake_at_s: float | None) -> Target:
    """The board as a target. Notes of migrations that are over are cleared, but not which partitions were left."""
    snapshot = board.snapshot
    kept = [m if board.arrives_s(r, rules) > snapshot.now_s else left(m) for r, m in enumerate(board.policy_state)]
    policy_state = np.array(kept, np.int64)
    slots, yields = snapshot.task_nodes.copy(), _yields(board)
    reasons = np.zeros(len(yields), np.int64)
    for row, reason in done.started.items():
        slots[snapshot.first[row] : snapshot.first[row + 1]] = board.nodes[row]
        yields[row], reasons[row] = 1.0, reason
    return Target(slots, yields, wake_at_s, reasons, policy_state=policy_state)


def _yields(board: Board) -> np.ndarray:
    """Yields as they are, but all of the CPU for a job that another policy gave less, where its nodes are its own."""
    yields = board.snapshot.jobs["yield_"].copy()
    for row in np.flatnonzero((yields < 1.0) & (board.snapshot.task_nodes[board.snapshot.first[:-1]] >= 0)).tolist():
        nodes = board.nodes[row]
        if all(nodes.count(n) == board.users[n] == 1 and board.holds(row, n) for n in nodes):
            yields[row] = 1.0
    return yields
