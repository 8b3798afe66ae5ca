"""No plan is shorter: the longest move, the busiest node, link or cluster, and moves that wait for room."""

from collections import defaultdict
from collections.abc import Iterable

from dfrs.placement.plan_state import Leg, PlanState
from dfrs.placement.plan_traffic import Traffic


def makespan_bound(state: PlanState, legs: Iterable[Leg], traffic: Traffic) -> float:
    """Lower bound on the time in which tasks go from where they are in `state` to other nodes, temporary moves or not.

    A task leaves its node once and enters its target once at least, whatever it does in between.
    """
    legs = [leg for leg in legs if leg[1] >= 0]
    limits, duration = traffic.limits, traffic.duration
    bound = max((duration[i] for i, _, _ in legs), default=0.0)
    if limits.at_once is not None:
        bound = max(bound, share([duration[i] for i, _, _ in legs], limits.at_once))
    for limit, use in ((limits.per_node, traffic.nodes), (limits.per_link, traffic.links)):
        if limit is not None:
            work: dict[int, list[float]] = defaultdict(list)
            for leg in legs:
                for n in use((leg,)):
                    work[n].append(duration[leg[0]])
            bound = max(bound, *(share(durations, limit) for durations in work.values()), bound)
    return max(bound, *(_entering(state, leg, traffic) for leg in legs), bound)


def share(durations: list[float], slots: int) -> float:
    """Least time for moves of which at most `slots` are made at once."""
    longest = sorted(durations, reverse=True)
    if len(longest) <= slots:
        return longest[0] if longest else 0.0
    rounds = -(-len(longest) // slots)
    return max(longest[0], sum(longest) / slots, longest[slots - 1] + longest[slots], rounds * longest[-1])


def _entering(state: PlanState, leg: Leg, traffic: Traffic) -> float:
    """A task that lacks room on its target enters it after another one has left."""
    i, _, b = leg
    lacking = state.lacks(b, state.base[i])
    if lacking is None:
        return 0.0
    others = (traffic.duration[j] for j in state.tasks_on(b) if state.base[j][lacking[0]] > 0.0)
    return traffic.duration[i] + min(others, default=0.0)
