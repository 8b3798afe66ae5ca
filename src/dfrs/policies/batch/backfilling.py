"""Batch scheduling, what DFRS is compared with, and EQUIPARTITION ([Stillwell2010] 5.3.1; 5.1.2, Theorem 4).

FCFS, EASY and CONSERVATIVE give a job nodes for itself, at yield 1, until it is done. Tasks of the same job share a
node as far as their memory and full need allow, so a job whose tasks need half a node's CPU and at most half its memory
occupies half as many nodes as it has tasks. It takes the free open nodes of lowest index; on clusters with nodes of
several capacities, those of the first node's capacity first, and so on. Jobs on nodes never move; a node that holds any
task, of whatever policy, is not free. A job that another policy left with a yield below 1 gets, in order of submission,
what its nodes have to spare.

EASY and CONSERVATIVE plan with the users' estimates: a running job is expected to end when its virtual time, at yield
1, reaches its estimate. One that is past its estimate is expected to end at any moment: now, though its nodes are not
free yet. EASY makes its reservation anew at every decision; CONSERVATIVE keeps those that it made.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dfrs.kernels import batch as kernels
from dfrs.kernels.batch_loop import CONSERVATIVE, run_batch
from dfrs.kernels.conservative import start_reserved
from dfrs.kernels.equipartition import equipartition
from dfrs.kernels.event_loop import Plain
from dfrs.model import tolerances
from dfrs.model.decisions import Cause, Policy, PolicyError, Snapshot, Target, Traits
from dfrs.model.errors import InputError
from dfrs.model.instance import Ints
from dfrs.policies.declaration import Family, Flag, Name, Option
from dfrs.policies.fractional.expand import on_free_nodes


class MissingEstimateError(PolicyError, InputError):
    """A job has no estimate of its processing time, and the policy plans with one.

    Give every job an estimate (field 9 of SWF), simulate with perfect estimates, or choose a policy that needs none.
    Exit status 2.
    """


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: jobs start strictly in order of submission, each as soon as enough nodes are free."""

    traits: ClassVar[Traits] = Traits(exclusive=True)

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot; reason QUEUE_HEAD."""
        return _on_whole_nodes(snapshot, kernels.FCFS, "FCFS")

    def event_loop(self, run: Plain, before_s: float, submissions_first: bool, steps: int, /) -> int:
        """As `dfrs.kernels.batch_loop.run_batch`."""
        return run_batch(kernels.FCFS, run, before_s, submissions_first, steps)


@dataclass(frozen=True, slots=True)
class Easy:
    """FCFS with backfilling: a later job may go ahead if it does not delay the reservation of the first in the queue.

    The first job that finds too few nodes has a reservation at the earliest time at which, by the estimates, it has
    enough. Later jobs start, in order, if they end by then, or if it has enough nodes then without theirs. A job that
    wants more nodes than are open has no reservation, and holds nobody up.

    Raises MissingEstimateError for a job submitted without an estimate, or where one of a job already there is wanted.
    """

    elastic: bool = False
    """Users' commands on jobs are processed: EASY-E of [Kumar2011]."""
    spare: bool = False
    """A later job may go ahead only if the first one has enough nodes without its; that it ends by then is no reason.
    What [Stillwell2010] publishes of EASY fits this: see docs/explanation/deviations.md."""

    @property
    def traits(self) -> Traits:
        """Whole nodes."""
        return Traits(exclusive=True, elastic=self.elastic)

    def expand(self, snapshot: Snapshot, row: int, more: int, /) -> Ints | None:
        """Free nodes for more tasks of a running job, before any waiting job has them."""
        return on_free_nodes(snapshot, row, more)

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot; reasons QUEUE_HEAD and BACKFILLED."""
        return _on_whole_nodes(snapshot, self._rule, "EASY-E" if self.elastic else "EASY")

    def event_loop(self, run: Plain, before_s: float, submissions_first: bool, steps: int, /) -> int:
        """As `dfrs.kernels.batch_loop.run_batch`."""
        return run_batch(self._rule, run, before_s, submissions_first, steps)

    @property
    def _rule(self) -> int:
        return kernels.EASY_SPARE if self.spare else kernels.EASY


@dataclass(frozen=True, slots=True)
class Conservative:
    """Backfilling that delays nobody's reservation: every job has one from its submission on, and keeps it.

    At its submission a job gets the earliest reservation that delays no other one. When a job ends, waiting jobs move
    theirs, one after the other in order of submission, to the earliest place that delays no other one: never to a later
    one. Only where nodes are closed, or running jobs exceed their estimates, is a reservation made later, and then in
    the order in which they begin. The `policy_state` of a waiting job is when its reservation begins, the bits of a
    64-bit float, 0 where it has none: no open nodes could hold it.

    On nodes of several capacities, of which of them a reservation is made is found anew at each decision, by the same
    rule; it may then come out later than it was.

    Raises MissingEstimateError for a waiting or running job without an estimate.
    """

    traits: ClassVar[Traits] = Traits(exclusive=True)

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot; reason RESERVED."""
        after, yields, reasons = _blank(snapshot)
        policy_state = snapshot.jobs["policy_state"].copy()
        reserved_s = policy_state.view(np.float64)
        changed = start_reserved(
            snapshot.jobs,
            snapshot.first,
            snapshot.task_nodes,
            snapshot.capacity,
            snapshot.open,
            tolerances.CAPACITY,
            snapshot.now_s,
            snapshot.subject,
            snapshot.cause not in {Cause.SUBMISSION, Cause.WAKE},
            reserved_s,
            after,
            yields,
            reasons,
        )
        _refuse_missing(changed, snapshot, "CONSERVATIVE")
        later_s = reserved_s[reserved_s > snapshot.now_s]
        wake_at_s = float(later_s.min()) if len(later_s) else None
        if not changed:
            return Target(snapshot.task_nodes, snapshot.jobs["yield_"], wake_at_s, policy_state=policy_state)
        return Target(after, yields, wake_at_s, reasons, policy_state=policy_state)

    def event_loop(self, run: Plain, before_s: float, submissions_first: bool, steps: int, /) -> int:
        """As `dfrs.kernels.batch_loop.run_batch`."""
        return run_batch(CONSERVATIVE, run, before_s, submissions_first, steps)


@dataclass(frozen=True, slots=True)
class Equipartition:
    """Every job at once, with an equal part of its nodes' CPU: on a node, m jobs get 1/m each ([Stillwell2010] 5.1.2).

    On several nodes, a waiting job's tasks are placed one after the other on the open node with the fewest tasks among
    those whose memory has room (ties: lowest index), if all find one; else it waits, and later jobs may go ahead. A
    task's part of a node is its capacity over its number of tasks; a job has the smallest part of its tasks, and what
    it cannot use is left over. Placed jobs never move.
    """

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot; reason ROOM for the job just submitted, FREED for one that waited."""
        after, yields, reasons = _blank(snapshot)
        changed = equipartition(
            snapshot.jobs,
            snapshot.first,
            snapshot.task_nodes,
            snapshot.capacity,
            snapshot.open,
            tolerances.CAPACITY,
            snapshot.subject,
            after,
            yields,
            reasons,
        )
        return Target(after, yields, None, reasons) if changed else _unchanged(snapshot)


WHOLE_NODES: Family[Policy] = Family(
    group="batch",
    names=(
        Name(
            name="FCFS",
            start=Fcfs(),
            source="[Stillwell2010] 5.3.1",
            meaning="first come, first served: jobs get whole nodes, strictly in the order of submission",
        ),
        Name(
            name="EASY",
            start=Easy(),
            source="[Stillwell2010] 5.3.1",
            meaning="FCFS with backfilling that does not delay the first job of the queue; needs estimates",
        ),
        Name(
            name="CONSERVATIVE",
            start=Conservative(),
            source="common practice",
            meaning="FCFS with backfilling; each job has a reservation from its submission on, and keeps it; "
            "needs estimates",
        ),
        Name(
            name="EQUIPARTITION",
            start=Equipartition(),
            source="[Stillwell2010] 5.1.2",
            group="equal shares",
            meaning="all jobs run at once, with equal shares of CPU",
        ),
    ),
    options=(
        Option(
            key="SPARE",
            values=Flag(field="spare"),
            of=("EASY",),
            meaning="a later job goes ahead only on nodes that the first one does not want, however short it is",
            source="fits what [Stillwell2010] 5.4 publishes of EASY",
        ),
    ),
    build=lambda _, policy: policy,
)
"""The policies of this module."""

_Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def _blank(snapshot: Snapshot) -> _Arrays:
    """Task nodes, yields and reasons for a kernel to fill."""
    rows = len(snapshot.jobs)
    return np.empty(len(snapshot.task_nodes), np.int64), np.empty(rows), np.zeros(rows, np.int64)


def _unchanged(snapshot: Snapshot) -> Target:
    return Target(snapshot.task_nodes, snapshot.jobs["yield_"])


def _on_whole_nodes(snapshot: Snapshot, rule: int, name: str) -> Target:
    """The target by a rule of the kernel. Raises MissingEstimateError."""
    after, yields, reasons = _blank(snapshot)
    changed = kernels.whole_nodes(
        rule,
        snapshot.jobs,
        snapshot.first,
        snapshot.task_nodes,
        snapshot.capacity,
        snapshot.open,
        tolerances.CAPACITY,
        snapshot.now_s,
        snapshot.subject,
        after,
        yields,
        reasons,
    )
    _refuse_missing(changed, snapshot, name)
    return Target(after, yields, None, reasons) if changed else _unchanged(snapshot)


def _refuse_missing(changed: int, snapshot: Snapshot, name: str) -> None:
    """Raises MissingEstimateError where a kernel's answer says so."""
    if changed < 0:
        raise MissingEstimateError(int(snapshot.jobs["id"][-1 - changed]), f"has no estimate, which {name} plans with")
