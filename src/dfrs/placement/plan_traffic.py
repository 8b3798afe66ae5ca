"""What a step takes of the limits on moves: how long it lasts, and the moves it adds to nodes and links.

Every move has the full bandwidth; the limits say how many there are at once. A step lasts as long as its longest move,
since its tasks change over together. A task that starts copies nothing: it takes no time and counts in no limit.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from dfrs.model.instance import Floats, Instance
from dfrs.model.move_limits import MoveLimits
from dfrs.model.rule_scope import Scope
from dfrs.placement.plan_state import LIMIT, Blocker, Leg


class Traffic:
    """Durations, and use of nodes and links, of moves on one instance under limits."""

    def __init__(self, instance: Instance, limits: MoveLimits) -> None:
        self.limits = limits
        sizes = instance.task_bytes
        self.bytes: list[float] = (np.zeros(len(instance.need)) if sizes is None else sizes).tolist()
        self.timed = limits.latency_s > 0 if limits.bandwidth_bytes_per_s is None else sizes is not None
        """Whether times are seconds; otherwise each move lasts 1, as nothing says how long it takes."""
        self.duration_of: Floats = self._durations(sizes, len(instance.need))
        self.duration: list[float] = self.duration_of.tolist()
        self._link: list[int] | None = None
        if limits.per_link is not None:
            scope = Scope(instance.nodes, instance.services, instance.service_of, instance.labels)
            self._link = scope.domains(str(limits.link_level), "move_limits.link_level")[1].tolist()

    def _durations(self, sizes: Floats | None, tasks: int) -> Floats:
        limits = self.limits
        if not self.timed:
            return np.ones(tasks)
        if limits.bandwidth_bytes_per_s is None or sizes is None:
            return np.full(tasks, limits.latency_s)
        return limits.latency_s + sizes / limits.bandwidth_bytes_per_s

    def lasts(self, legs: Iterable[Leg]) -> float:
        """Duration of a step."""
        return max((self.duration[i] for i, a, _ in legs if a >= 0), default=0.0)

    def moves(self, legs: Iterable[Leg]) -> int:
        """How many of its tasks move; others start."""
        return sum(1 for _, a, _ in legs if a >= 0)

    def nodes(self, legs: Iterable[Leg]) -> Counter[int]:
        """Node to the moves from or to it."""
        return Counter(n for _, a, b in legs if a >= 0 for n in (a, b))

    def links(self, legs: Iterable[Leg]) -> Counter[int]:
        """Link to the moves over it; empty where links have no limit."""
        link = self._link
        if link is None:
            return Counter()
        return Counter(k for _, a, b in legs if a >= 0 and link[a] != link[b] for k in (link[a], link[b]))

    def too_much(self, legs: tuple[Leg, ...]) -> Blocker | None:
        """The limit that a step passes by itself, so that it can never be made; None if there is none."""
        if len(legs) == 1:
            return None
        limits = self.limits
        for label, limit, counts in (
            ("at_once", limits.at_once, [self.moves(legs)]),
            ("per_node", limits.per_node, self.nodes(legs).values()),
            ("per_link", limits.per_link, self.links(legs).values()),
        ):
            most = max(counts, default=0)
            if limit is not None and most > limit:
                return Blocker(LIMIT, len(legs), text=f"{label} is {limit}, a step of {len(legs)} tasks takes {most}")
        return None
