"""What is left of CPUs that programs beside the cluster's use too: what tasks could get together if all wanted more.

While tasks want all of the CPUs and wait for them, what they get, with what idles, is what is left. While they want
less, at least what they use and what idles is left, and nothing more shows. Then what was learnt last counts, and
fades over minutes to an assumption: of what others use, tasks could get a fair half. What other virtual machines take
is gone.

Nodes may have the same CPUs: what is left of these is estimated once, and is divided as the nodes' capacities are. So
what tasks of a node next to it use takes nothing from a node.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

FAIR = 0.5
"""What tasks could get of the CPU that others use, as long as nothing shows it."""
LEAST = 0.05
"""A node always has this part of its capacity."""
FROM, FULL = 0.5, 0.9
"""Tasks that want less than this part of the CPUs show nothing; those that want that part, all."""
NOTICEABLE = 0.1
"""Others that use this part of the CPUs, or more, show how they and tasks share them."""
LEARN_S = 5.0
"""How fast something new is learnt, ..."""
FADE_S = 300.0
"""... and how fast it fades."""
WINDOW_S = 30.0
"""The median of so long counts, ..."""
LEAST_SEEN, LEAST_SPAN = 5, 0.75
"""... where there are so many estimates in that part of it: what lasts for less than half of it does nothing."""
CHANGE = 0.15
"""A node's capacity is revised where it is off by more than this part of it ..."""
AGAIN = 0.1
"""... (until then, what is off by less than that begins anew) ..."""
HOLD_S = 15.0
"""... and has been so for so long, ..."""
WHOLE, WHOLE_HOLD_S = 0.97, 60.0
"""... or where all but a rest is left, which is then taken for all of it, and has been for so long."""
APART_S = 60.0
"""Between two revisions of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Of the CPUs that one or more nodes have, in the last seconds, in cores."""

    cpus: float
    """How many there are."""
    declared: float
    """What their nodes have of them together."""
    used: float
    """By tasks of the nodes."""
    wanted: float
    """As much, and what their threads waited for; of each node no more than it has."""
    busy: float
    """By everybody."""
    steal: float = 0.0
    """Taken by other virtual machines."""

    @property
    def size(self) -> float:
        """What tasks can have at most."""
        return min(self.cpus, self.declared)

    @property
    def others(self) -> float:
        """By programs that are no tasks."""
        return max(0.0, self.busy - self.used)

    @property
    def idle(self) -> float:
        """By nobody."""
        return max(0.0, self.cpus - max(self.busy, self.used) - self.steal)


@dataclass(slots=True)
class LeftEstimate:
    """Of the CPUs of one or more nodes, as a part of what these have."""

    known: float = 1.0
    """What was learnt last."""
    sure: float = 0.0
    """How much that counts, in [0, 1]."""

    def observe(self, seconds: float, use: CpuUse) -> float:
        """Take in what was so for `seconds`; the part that is left."""
        size = use.size
        if size <= 0.0:
            return 1.0
        least = min(1.0, (use.used + use.idle) / size)
        fair = min(1.0, least + FAIR * use.others / size)
        shows = min(1.0, max(0.0, (use.wanted / size - FROM) / (FULL - FROM)))
        shows *= min(1.0, (use.others + use.steal) / size / NOTICEABLE)
        if shows > 0.0:
            # As long as they wanted any they got that; they wanted less than there is for a part of the time.
            got = min(1.0, (use.idle + use.used * max(1.0, size / use.wanted)) / size)
            step = shows * -math.expm1(-seconds / LEARN_S)
            self.known += step * (got - self.known)
            self.sure += step * (1.0 - self.sure)
        self.sure *= math.exp(-(1.0 - shows) * seconds / FADE_S)
        return max(LEAST, least, self.sure * self.known + (1.0 - self.sure) * fair)


@dataclass(slots=True)
class Revisions:
    """When the capacity of a node is revised. All parts are of what the node has."""

    told_s: float = -math.inf
    """When it was revised last."""
    seen: deque[tuple[float, float]] = field(default_factory=deque[tuple[float, float]])
    """Estimates, with their times, of the last `WINDOW_S`."""
    since_s: float | None = None
    """Since when it is off."""

    def look(self, now_s: float, part: float, in_force: float) -> float | None:
        """Take in an estimate; what is to be in force instead of `in_force`, None: that stays."""
        self.seen.append((now_s, part))
        while self.seen[0][0] <= now_s - WINDOW_S:
            self.seen.popleft()
        if len(self.seen) < LEAST_SEEN or now_s - self.seen[0][0] < LEAST_SPAN * WINDOW_S:
            self.since_s = None
            return None
        found = median(each for _, each in self.seen)
        wanted = 1.0 if found >= WHOLE else max(LEAST, round(found, 2))
        off, whole = abs(wanted - in_force), wanted == 1.0 > in_force
        if off <= AGAIN and not whole:
            self.since_s = None
            return None
        if self.since_s is None and (off > CHANGE or whole):
            self.since_s = now_s
        hold_s = HOLD_S if off > CHANGE else WHOLE_HOLD_S if whole else math.inf
        if self.since_s is None or now_s - self.since_s < hold_s or now_s - self.told_s < APART_S:
            return None
        return wanted

    def told(self, now_s: float) -> None:
        """It was revised."""
        self.told_s, self.since_s = now_s, None
