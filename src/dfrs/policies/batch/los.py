"""Batch scheduling of [Kumar2011]: sets of jobs that fill the nodes, dedicated jobs, and jobs that change.

A policy is composed of a queue discipline (EASY, LOS or Delayed-LOS), with or without a queue of dedicated jobs (`-D`;
Delayed-LOS with it is Hybrid-LOS), and with or without a processor of users' commands (`-E`); together they are the
twelve of [Kumar2011] Table III. Where the document's pseudo-code has gaps, docs/explanation/elastic.md says what is
done here and why.

All of them give a job nodes of its own, at yield 1, and plan with the users' estimates, as `backfilling` does.
"""

from dataclasses import dataclass, replace

import numpy as np

from dfrs.kernels import los as kernels
from dfrs.kernels.batch_queue import IN_ORDER
from dfrs.model import tolerances
from dfrs.model.decisions import RUNNING, PolicyError, Snapshot, Target, Traits
from dfrs.model.errors import InputError
from dfrs.model.instance import Ints
from dfrs.policies.batch.backfilling import Easy, MissingEstimateError
from dfrs.policies.declaration import Family, Name, Option, Share, Whole
from dfrs.policies.fractional.expand import on_free_nodes

DEFAULT_SKIPS = 7
"""C_s where a name gives none: the optimum that [Kumar2011] section V-A found for as many small as large jobs."""

UNLIMITED = 2**31
"""Jobs looked at for a set, where there is no limit."""


class UnequalNodesError(PolicyError, InputError):
    """The policy counts nodes, and these are of several capacities: choose one that does not, such as EASY or FCFS.

    Exit status 2.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Los:
    """A queue of batch jobs, and perhaps one of dedicated jobs.

    Batch jobs: with `skips` None, as EASY. Else by sets: if the first of the queue could start, the best set of waiting
    jobs starts, with or without it; when it has been left out `skips` times, it starts at once. If it cannot start, it
    has a reservation as under EASY, and the best set of the others around that starts. No skips is LOS; `automatic`
    finds at each decision how many would serve the first 64 waiting jobs best if nobody else came.

    Dedicated jobs have reservations at their requested starts, those submitted first before those submitted later, and
    batch jobs only start where they delay none of them. `policy_state` of a batch job is how often it was left out,
    of a dedicated one whether it has had a reservation at its requested start, or why it is late (`dfrs.kernels.los`).

    Raises MissingEstimateError for a job without an estimate, UnequalNodesError where open nodes have several
    capacities.
    """

    name: str
    skips: int | None = DEFAULT_SKIPS
    automatic: bool = False
    small_share: float = np.inf
    """As EASY while at least this share of the jobs present is small ([Kumar2011] section V-A)."""
    dedicated: bool = False
    elastic: bool = False
    lookahead: int = UNLIMITED
    unit: int = 1
    """Nodes are given out in multiples of this."""

    @property
    def traits(self) -> Traits:
        """Whole nodes."""
        return Traits(exclusive=True, dedicated=self.dedicated, elastic=self.elastic)

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot; reasons QUEUE_HEAD, FILLED, BACKFILLED, ON_TIME and the LATE ones."""
        rows = len(snapshot.jobs)
        after, yields = np.empty(len(snapshot.task_nodes), np.int64), np.empty(rows)
        reasons, policy_state = np.zeros(rows, np.int64), np.empty(rows, np.int64)
        changed = kernels.plan(
            self._skips(snapshot),
            self.lookahead,
            self.unit,
            self.dedicated,
            snapshot.jobs,
            snapshot.first,
            snapshot.task_nodes,
            snapshot.capacity,
            snapshot.open,
            tolerances.CAPACITY,
            snapshot.now_s,
            after,
            yields,
            reasons,
            policy_state,
        )
        if changed == kernels.UNEQUAL:
            raise UnequalNodesError(None, f"{self.name} counts nodes: all open ones must have the same capacity")
        if changed < 0:
            job = int(snapshot.jobs["id"][-1 - changed])
            raise MissingEstimateError(job, f"has no estimate, which {self.name} plans with")
        wake_at_s = self._wake_at(snapshot)
        if not changed:
            return Target(snapshot.task_nodes, snapshot.jobs["yield_"], wake_at_s, policy_state=policy_state)
        return Target(after, yields, wake_at_s, reasons, policy_state=policy_state)

    def expand(self, snapshot: Snapshot, row: int, more: int, /) -> Ints | None:
        """Free nodes for more tasks of a running job, in units of its own, before any waiting job has them."""
        nodes = on_free_nodes(snapshot, row, more)
        if nodes is None or self.unit == 1:
            return nodes
        units = 0
        for r in np.flatnonzero(snapshot.jobs["state"] == RUNNING).tolist():
            own = snapshot.task_nodes[snapshot.first[r] : snapshot.first[r + 1]]
            units += -(-len(np.unique(np.append(own, nodes) if r == row else own)) // self.unit)
        return nodes if units <= max(int(snapshot.open.sum()) // self.unit, 1) else None

    def _skips(self, snapshot: Snapshot) -> int:
        if self.skips is None or small_share(snapshot) >= self.small_share:
            return IN_ORDER
        return kernels.AUTOMATIC if self.automatic else self.skips

    def _wake_at(self, snapshot: Snapshot) -> float | None:
        if not self.dedicated:
            return None
        start_s = kernels.next_start(snapshot.jobs, snapshot.first, snapshot.task_nodes, snapshot.now_s)
        return start_s if start_s < np.inf else None


SMALL = 0.3
"""A job that wants at most this share of the nodes is small ([Kumar2011] IV-D: at most 96 of 320 processors)."""


def small_share(snapshot: Snapshot) -> float:
    """Which share of the jobs present is small; 0 of none."""
    if not len(snapshot.jobs):
        return 0.0
    return float((snapshot.jobs["tasks"] <= SMALL * len(snapshot.capacity)).mean())


def _variant(name: str, kind: str, meaning: str, start: Los | Easy, section: str = "III-C") -> Name[Los | Easy]:
    return Name(name=name, kind=kind, meaning=meaning, start=start, source=f"[Kumar2011] {section}")


_DELAYED = ("Delayed-LOS", "Hybrid-LOS")

LOS: Family[Los | Easy] = Family(
    group="batch, by sets",
    names=(
        _variant("EASY-E", "", "EASY that processes users' commands on jobs", Easy(elastic=True)),
        _variant(
            "EASY-D",
            "",
            "EASY with reservations for dedicated jobs",
            Los(name="EASY-D", skips=None, dedicated=True),
            "V",
        ),
        _variant(
            "EASY-DE",
            "EASY-D",
            "EASY for dedicated jobs and users' commands",
            Los(name="EASY-DE", skips=None, dedicated=True, elastic=True),
        ),
        _variant(
            "LOS",
            "",
            "starts the set of waiting jobs that fills the nodes best; needs estimates",
            Los(name="LOS", skips=0),
            "III",
        ),
        _variant(
            "LOS-D", "LOS", "LOS with reservations for dedicated jobs", Los(name="LOS-D", skips=0, dedicated=True), "V"
        ),
        _variant(
            "LOS-E", "LOS", "LOS that processes users' commands on jobs", Los(name="LOS-E", skips=0, elastic=True)
        ),
        _variant(
            "LOS-DE",
            "LOS",
            "LOS for dedicated jobs and users' commands",
            Los(name="LOS-DE", skips=0, dedicated=True, elastic=True),
        ),
        _variant(
            "Delayed-LOS",
            "",
            "LOS, but the set may leave out the first job of the queue a limited number of times",
            Los(name="Delayed-LOS"),
            "Algorithm 1",
        ),
        _variant(
            "Delayed-LOS-E",
            "Delayed-LOS",
            "Delayed-LOS that processes users' commands on jobs",
            Los(name="Delayed-LOS-E", elastic=True),
        ),
        _variant(
            "Hybrid-LOS",
            "",
            "Delayed-LOS with reservations for dedicated jobs",
            Los(name="Hybrid-LOS", dedicated=True),
            "Algorithm 2",
        ),
        _variant(
            "Hybrid-LOS-E",
            "Hybrid-LOS",
            "Hybrid-LOS that processes users' commands on jobs",
            Los(name="Hybrid-LOS-E", dedicated=True, elastic=True),
        ),
    ),
    options=(
        Option(
            key="CS",
            values=Whole(field="skips", words={"AUTO": {"automatic": True}}),
            of=_DELAYED,
            default=str(DEFAULT_SKIPS),
            source="[Kumar2011] III-A",
            meaning="how often the first job may be left out; AUTO: chosen anew at each decision",
        ),
        Option(
            key="LOOKAHEAD",
            values=Whole(field="lookahead"),
            of=("LOS", *_DELAYED),
            default="no limit",
            source="[Kumar2011] II-B",
            meaning="sets are chosen from the first N waiting jobs",
        ),
        Option(
            key="UNIT",
            values=Whole(field="unit"),
            of=("LOS", *_DELAYED, "EASY-D"),
            default="1",
            source="[Kumar2011] IV-A",
            meaning="nodes are allocated in multiples of N",
        ),
        Option(
            key="SWITCH",
            values=Share(field="small_share"),
            of=_DELAYED,
            default="never",
            source="[Kumar2011] V-A",
            meaning="decides as EASY while at least the share X of the jobs present is small",
        ),
    ),
    build=lambda name, policy: policy if isinstance(policy, Easy) else replace(policy, name=name),
)
"""The policies of [Kumar2011] Table III but for EASY, which is one of `dfrs.policies.batch.backfilling`."""
