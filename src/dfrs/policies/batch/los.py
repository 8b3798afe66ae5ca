"""Batch scheduling of 002: sets of jobs that fill the nodes, dedicated jobs, and jobs that change.

A policy is composed of a queue discipline (EASY, LOS or Delayed-LOS), with or without a queue of dedicated jobs (`-D`;
Delayed-LOS with it is Hybrid-LOS), and with or without a processor of users' commands (`-E`); together they are the
twelve of 002 Table III. Where the document's pseudo-code has gaps, docs/explanation/elastic.md says what is done here
and why.

All of them give a job nodes of its own, at yield 1, and plan with the users' estimates, as `backfilling` does.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from dfrs.kernels import los as kernels
from dfrs.model import tolerances
from dfrs.model.decisions import RUNNING, PolicyError, Snapshot, Target, Traits
from dfrs.model.errors import InputError
from dfrs.model.instance import Ints
from dfrs.policies.batch.backfilling import Easy, MissingEstimateError
from dfrs.policies.fractional.expand import on_free_nodes

DEFAULT_SKIPS = 7
"""C_s where a name gives none: the optimum that 002 section V-A found for as many small as large jobs."""

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
    batch jobs only start where they delay none of them. `memo` of a batch job is how often it was left out, of a
    dedicated one whether it has had a reservation at its requested start, or why it is late (`dfrs.kernels.los`).

    Raises MissingEstimateError for a job without an estimate, UnequalNodesError where open nodes have several
    capacities.
    """

    name: str
    skips: int | None = DEFAULT_SKIPS
    automatic: bool = False
    small_share: float = np.inf
    """As EASY while at least this share of the jobs present is small (002 section V-A)."""
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
        reasons, memo = np.zeros(rows, np.int64), np.empty(rows, np.int64)
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
            memo,
        )
        if changed == kernels.UNEQUAL:
            raise UnequalNodesError(None, f"{self.name} counts nodes: all open ones must have the same capacity")
        if changed < 0:
            job = int(snapshot.jobs["id"][-1 - changed])
            raise MissingEstimateError(job, f"has no estimate, which {self.name} plans with")
        wake_at_s = self._wake_at(snapshot)
        if not changed:
            return Target(snapshot.task_nodes, snapshot.jobs["yield_"], wake_at_s, memo=memo)
        return Target(after, yields, wake_at_s, reasons, memo=memo)

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
            return kernels.IN_ORDER
        return kernels.AUTOMATIC if self.automatic else self.skips

    def _wake_at(self, snapshot: Snapshot) -> float | None:
        if not self.dedicated:
            return None
        start_s = kernels.next_start(snapshot.jobs, snapshot.first, snapshot.task_nodes, snapshot.now_s)
        return start_s if start_s < np.inf else None


SMALL = 0.3
"""A job that wants at most this share of the nodes is small (002 section IV-D: at most 96 of 320 processors)."""


def small_share(snapshot: Snapshot) -> float:
    """Which share of the jobs present is small; 0 of none."""
    if not len(snapshot.jobs):
        return 0.0
    return float((snapshot.jobs["tasks"] <= SMALL * len(snapshot.capacity)).mean())


_FAMILY: dict[str, Los | Easy] = {
    "EASY-E": Easy(elastic=True),
    "EASY-D": Los(name="EASY-D", skips=None, dedicated=True),
    "EASY-DE": Los(name="EASY-DE", skips=None, dedicated=True, elastic=True),
    "LOS": Los(name="LOS", skips=0),
    "LOS-D": Los(name="LOS-D", skips=0, dedicated=True),
    "LOS-E": Los(name="LOS-E", skips=0, elastic=True),
    "LOS-DE": Los(name="LOS-DE", skips=0, dedicated=True, elastic=True),
    "Delayed-LOS": Los(name="Delayed-LOS"),
    "Delayed-LOS-E": Los(name="Delayed-LOS-E", elastic=True),
    "Hybrid-LOS": Los(name="Hybrid-LOS", dedicated=True),
    "Hybrid-LOS-E": Los(name="Hybrid-LOS-E", dedicated=True, elastic=True),
}
FAMILY: Mapping[str, Los | Easy] = MappingProxyType(_FAMILY)
"""002 Table III but for EASY, which is one of `dfrs.policies.batch.backfilling`."""

PARTS = ("CS", "LOOKAHEAD", "UNIT", "SWITCH")
"""What a name may have after a slash."""


def find_los(name: str) -> Los | Easy:
    """The policy of a name whose first part is in FAMILY. Raises InputError with the rule that the name breaks.

    Parts, each at most once: `CS=N` or `CS=AUTO` and `SWITCH=SHARE` for Delayed-LOS and Hybrid-LOS, `LOOKAHEAD=N` for
    those and LOS, `UNIT=N` for all but EASY-E.
    """
    head, *parts = name.split("/")
    policy = FAMILY[head]
    seen: set[str] = set()
    for part in parts:
        key, _, value = part.partition("=")
        if key not in PARTS:
            near = difflib.get_close_matches(key.upper(), PARTS, n=1)
            hint = f"did you mean {near[0]}=…?" if near else f"parts are {', '.join(f'{p}=…' for p in PARTS)}"
            raise InputError(f'policy "{name}": part "{part}": there is no such part; {hint}')
        if key in seen:
            raise InputError(f'policy "{name}": part "{part}": there is another part for {key}')
        seen.add(key)
        try:
            policy = _with_part(policy, key, value)
        except ValueError as error:
            raise InputError(f'policy "{name}": part "{part}": {error}') from None
    return policy if isinstance(policy, Easy) else replace(policy, name=name)


def _with_part(policy: Los | Easy, key: str, value: str) -> Los:
    """The policy with one part of its name put in. Raises ValueError with the rule."""
    if isinstance(policy, Easy):
        raise ValueError("EASY-E has no parts")
    if key in {"CS", "SWITCH"} and not policy.skips:
        raise ValueError(f"{key} is for Delayed-LOS and Hybrid-LOS")
    if key == "LOOKAHEAD" and policy.skips is None:
        raise ValueError("LOOKAHEAD is for LOS, Delayed-LOS and Hybrid-LOS")
    if key == "CS":
        return replace(policy, automatic=True) if value == "AUTO" else replace(policy, skips=_whole(value))
    if key == "SWITCH":
        return replace(policy, small_share=_share(value))
    return replace(policy, lookahead=_whole(value)) if key == "LOOKAHEAD" else replace(policy, unit=_whole(value))


def _whole(value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
        raise ValueError("must be a whole number of at least 1")
    return int(value)


def _share(value: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", value) or not 0.0 < float(value) <= 1.0:
        raise ValueError("must be a share above 0, at most 1")
    return float(value)
