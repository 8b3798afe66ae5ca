"""A second policy that decides on the same snapshots and changes nothing: what it would have done otherwise."""

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from dfrs.live.protocol.resources import ShadowChoice
from dfrs.model.decisions import Expanding, Policy, Snapshot, Target, Traits, traits_of
from dfrs.model.instance import Ints

MOST = 1000
"""Differences kept."""
MOST_EACH = 20
"""Differences of one decision that are put into words."""
SAME = 0.01
"""Yields that differ by less are the same."""


class Shadowed:
    """The first policy, to the letter; the second one is asked after it."""

    def __init__(
        self, policy: Policy, shadow: Policy, name_of: Callable[[int], str], clock: Callable[[], float]
    ) -> None:
        self.differs = 0
        """Decisions in which the second would have done something else."""
        self.failures = 0
        self.seconds = 0.0
        """Time of its last decision."""
        self.awake = False
        """False while recorded events are replayed."""
        self._policy = policy
        self._shadow = shadow
        self._name_of = name_of
        self._clock = clock
        self._choices: deque[ShadowChoice] = deque(maxlen=MOST)

    @property
    def first(self) -> Policy:
        """The one that decides, for who wants to ask it of something else."""
        return self._policy

    @property
    def traits(self) -> Traits:
        """Those of the first policy."""
        return traits_of(self._policy)

    def expand(self, snapshot: Snapshot, row: int, more: int, /) -> Ints | None:
        """The first policy's nodes for more tasks of a job; None where it has none, or never has any."""
        return self._policy.expand(snapshot, row, more) if isinstance(self._policy, Expanding) else None

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The first policy's target."""
        target = self._policy.decide(snapshot)
        if self.awake:
            begin_s = time.perf_counter()
            try:
                self._compare(snapshot, target, self._shadow.decide(snapshot))
            except Exception:
                self.failures += 1
            self.seconds = time.perf_counter() - begin_s
        return target

    def _compare(self, snapshot: Snapshot, did: Target, would: Target) -> None:
        first = snapshot.first
        moved = did.task_nodes != would.task_nodes
        counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(moved)])
        other = (counts[first[1:]] > counts[first[:-1]]) | (np.abs(did.yields - would.yields) > SAME)
        rows = np.flatnonzero(other).tolist()
        self.differs += bool(rows)
        now = self._clock()
        for row in rows[:MOST_EACH]:
            self._choices.append(
                ShadowChoice(
                    time=now,
                    job=int(snapshot.jobs["id"][row]),
                    did=self._words(snapshot, did, row),
                    would=self._words(snapshot, would, row),
                )
            )

    def _words(self, snapshot: Snapshot, target: Target, row: int) -> str:
        nodes = target.task_nodes[snapshot.first[row] : snapshot.first[row + 1]]
        if nodes[0] < 0:
            return "no nodes"
        names = [self._name_of(node) for node in nodes[:8].tolist()]
        more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
        return f"{', '.join(names)}{more} at yield {target.yields[row]:.2f}"

    def choices(self, limit: int) -> Sequence[ShadowChoice]:
        """The latest first."""
        return list(self._choices)[::-1][: max(0, limit)]
