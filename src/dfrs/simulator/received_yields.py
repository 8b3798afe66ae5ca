"""The yields of a recorded run as they were received, where only their integrals are known.

A live cluster's log has what its policy granted at each moment, and what each job received on the whole. Here the
granted yields of each job are scaled until they integrate to what it received, and made to fit the nodes: where they
exceed a node's CPU for some time they are lowered there, and those of the same jobs raised where there is room.
Scaling and lowering take turns, and the last step lowers: what is left over could not be fitted. A job that needs less
than it declared is such a case: beside others it may have received more than the node has in declared needs.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.run import PLACING, Action, Events

ROUNDS = 60
"""Of scaling and lowering, at most."""
CLOSE = 1e-6
"""Integrals within this part of what was received are that."""
LEAST_YIELD = 1e-3
"""From which yields are scaled up: a product with nothing stays nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spans:
    """S times in which a job has the same yield and nodes, and the moments between which nodes' loads are constant."""

    row: Ints
    """(S,) the event with which each begins."""
    job: Ints
    length_s: Floats
    part: Ints
    """(P,) the span of each of its tasks on a node, ascending; those that last no time are left out."""
    part_need: Floats
    """(P,) CPU of those tasks at yield 1."""
    begin: Ints
    """(P,) index of the moment at which it begins."""
    end: Ints
    room: Floats
    """(M,) CPU of the node of each moment."""


def received_yields(events: Events, need: Floats, capacity: Floats, received_s: Floats) -> Floats:
    """(E,) yields of the events, which integrate to `received_s` (J,) or, where they cannot, to less.

    `need` (J,) is that of a task, `capacity` (N,) the CPU of nodes. All jobs of the events have ended; a task of a job
    that is on a node uses its need times its yield, and no node gives out more than it has.
    """
    spans = _spans(events, need, capacity)
    count = len(need)
    longest_s = np.bincount(spans.job, spans.length_s, count)
    wanted_s = np.minimum(received_s, longest_s)
    yields = events.yield_[spans.row]
    if (np.abs(_integral(spans, yields, count) - wanted_s) <= CLOSE * wanted_s).all():
        return events.yield_
    yields = np.clip(yields, LEAST_YIELD, 1.0)
    for _ in range(ROUNDS):
        yields = _lowered(spans, _scaled(spans, yields, wanted_s))
        if (_integral(spans, yields, count) >= (1.0 - CLOSE) * wanted_s).all():
            break
    found = events.yield_.copy()
    found[spans.row] = yields
    return found


def _spans(events: Events, need: Floats, capacity: Floats) -> _Spans:
    following, nodes = _following(events)
    row = np.flatnonzero(following >= 0)
    job, begin_s, end_s = events.job[row], events.time_s[row], events.time_s[following[row]]
    lasting = np.flatnonzero(end_s > begin_s)
    parts = [np.unique(nodes[k], return_counts=True) for k in row[lasting].tolist()]
    part = np.repeat(lasting, [len(names) for names, _ in parts])
    empty = np.zeros(0, np.int64)
    node = np.concatenate([empty, *(names for names, _ in parts)])
    tasks = np.concatenate([empty, *(counts for _, counts in parts)])
    moments = np.stack([np.tile(node, 2).astype(np.float64), np.concatenate([begin_s[part], end_s[part]])])
    moment, index = np.unique(moments, axis=1, return_inverse=True)
    index = index.reshape(-1)
    return _Spans(
        row=row,
        job=job,
        length_s=end_s - begin_s,
        part=part,
        part_need=need[job[part]] * tasks,
        begin=index[: len(part)],
        end=index[len(part) :],
        room=capacity[moment[0].astype(np.int64)],
    )


def _following(events: Events) -> tuple[Ints, dict[int, Ints]]:
    """(E,) the next event of the job that an event leaves on nodes, else -1; the nodes of its tasks by such event."""
    following = np.full(len(events), -1)
    nodes: dict[int, Ints] = {}
    last: dict[int, int] = {}
    for row in np.flatnonzero(events.job >= 0).tolist():
        job, action = int(events.job[row]), events.action[row]
        before = last.pop(job, None)
        if before is not None:
            following[before] = row
        if action in PLACING:
            nodes[row] = events.nodes_of(row)
        elif action == Action.SHARE and before is not None:
            nodes[row] = nodes[before]
        if row in nodes:
            last[job] = row
    return following, nodes


def _integral(spans: _Spans, yields: Floats, jobs: int) -> Floats:
    return np.bincount(spans.job, yields * spans.length_s, jobs).astype(np.float64)


def _scaled(spans: _Spans, yields: Floats, wanted_s: Floats) -> Floats:
    """Yields times one factor a job, at most 1, so that they integrate to what is wanted, or to less where that caps.

    Bisection: what a job gets grows with its factor.
    """
    jobs = len(wanted_s)
    least = np.ones(jobs)
    np.minimum.at(least, spans.job, yields)
    low, high = np.zeros(jobs), 1.0 / least
    for _ in range(50):
        middle = 0.5 * (low + high)
        less = _integral(spans, np.minimum(yields * middle[spans.job], 1.0), jobs) < wanted_s
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.minimum(yields * high[spans.job], 1.0)


def _lowered(spans: _Spans, yields: Floats) -> Floats:
    """Yields of those that are on overcommitted nodes times the part of the load that these can give."""
    load = np.zeros(len(spans.room) + 1)
    used = spans.part_need * yields[spans.part]
    load[:-1] = np.cumsum(
        np.bincount(spans.begin, used, len(spans.room)) - np.bincount(spans.end, used, len(spans.room))
    )
    given = np.ones(len(load))
    over: Bools = load[:-1] > spans.room
    given[:-1][over] = spans.room[over] / load[:-1][over]
    if not len(spans.part):
        return yields
    worst = np.minimum.reduceat(given, np.stack([spans.begin, spans.end], axis=1).reshape(-1))[::2]
    factor = np.ones(len(yields))
    np.minimum.at(factor, spans.part, worst)
    return yields * factor
