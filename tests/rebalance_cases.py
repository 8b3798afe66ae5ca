"""Placements to rebalance, built from a source of choices as in `tests.cases`.

Sizes, slopes and capacities are of eighths, so that sums are exact and equal pressures are equal. Virtual times are
such that no gain is worth exactly what a move costs: there rounding would decide.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.model.decisions import PAUSED, RUNNING, WAITING
from dfrs.model.instance import Bools, Floats, Ints
from tests.cases import Source
from tests.naive.rebalance import Rule
from tests.online_cases import OnlineCase, job_table, random_nodes
from tests.policy_cases import present_yields

NOW_S = 5000.0
VIRTUAL_S = (0.0, 3.17, 30.67, 311.3, 311.3, 4001.3)


@dataclass(frozen=True, kw_only=True)
class RebalanceCase(OnlineCase):
    """What an action has made of the present: `after`, with a reason for each row."""

    island: Ints
    fixed: Bools
    slope: Floats
    rule: Rule

    def __post_init__(self) -> None:
        for array in (self.jobs, self.first, self.before, self.capacity, self.open):
            array.setflags(write=False)


def rebalance_case(source: Source) -> RebalanceCase:
    """Jobs anywhere on a few nodes; some come now, some were moved or paused by the action."""
    nodes, rows = source.integer(2, 6), source.integer(1, 10)
    capacity = np.ones((nodes, 2))
    if source.integer(0, 2) == 0:
        capacity = np.array([[source.pick((0.5, 1.0, 2.0)), source.pick((0.5, 1.0, 2.0))] for _ in range(nodes)])
    jobs, first = job_table(source, rows, NOW_S, 8)
    largest = source.pick((1, 2, 4))
    jobs["memory"] = [source.integer(0, largest) / 8 for _ in range(rows)]
    jobs["tasks"] = [source.pick((1, 1, 1, 2, 3)) for _ in range(rows)]
    first = np.concatenate([[0], np.cumsum(jobs["tasks"])]).astype(np.int64)
    if source.integer(0, 2) == 0:
        jobs["minimum"] = [source.integer(0, 4) / 8 for _ in range(rows)]
    crowded = [n for n in range(nodes) if source.integer(0, 1)] or [0]
    before = _crowded_nodes(source, jobs, first, capacity, crowded)
    after = before.copy()
    changed = [r for r in range(rows) if source.integer(0, 7) == 0]
    for r in changed:
        after[first[r] : first[r + 1]] = -1
    for r in changed:
        alone = random_nodes(source, jobs, first, _left(jobs, first, capacity, after), [r])
        after[first[r] : first[r + 1]] = alone[first[r] : first[r + 1]]
    on = before[first[:-1]] >= 0
    for r in range(rows):
        jobs["state"][r] = RUNNING if on[r] else source.pick((PAUSED, WAITING))
        jobs["virtual_s"][r] = source.pick(VIRTUAL_S)
        jobs["since_s"][r] = NOW_S - source.pick((800.0, 800.0, 800.0, 100.0, 5.0))
        jobs["start_s"][r] = min(NOW_S - source.pick((800.0, 800.0, 5.0)), jobs["since_s"][r])
        jobs["ready_s"][r] = source.pick((NOW_S - 1.0, NOW_S - 1.0, NOW_S + 20.0, np.inf))
    jobs["yield_"] = present_yields(jobs, first, capacity, before)
    price_s = source.pick((0.0, 0.0, 0.25, 4.0))
    islands = source.pick((1, 1, 1, 2))
    share = source.pick((0.25, 0.25, 1 / 16, 1 / 64))
    weighted = source.integer(0, 2) == 0
    return RebalanceCase(
        now_s=NOW_S,
        jobs=jobs,
        first=first,
        before=before,
        after=after,
        yields=jobs["yield_"],
        capacity=capacity,
        open=np.array([source.integer(0, 5) > 0 for _ in range(nodes)]),
        reasons=np.array([source.integer(0, 11) for _ in range(rows)], dtype=np.int64),
        island=np.array([source.integer(1, islands) for _ in range(nodes)], dtype=np.int64),
        fixed=np.array([source.integer(0, 7) == 0 for _ in range(rows)]),
        slope=np.array([source.pick((0.25, 0.5, 1.0)) if weighted else 1.0 for _ in range(rows)]),
        rule=Rule(
            share=share,
            near=min(share, 1 / 16),
            price_s=price_s,
            times=2.0,
            rest_s=source.pick((0.0, 8.0, 30.0)) * price_s,
            now_s=NOW_S,
            until_s=NOW_S + source.pick((np.inf, np.inf, 20.0, 600.0)),
            budget=source.pick((np.inf, np.inf, 0.5, 1.5)),
            swaps=source.integer(0, 3) > 0,
        ),
    )


def _left(jobs: np.ndarray, first: Ints, capacity: Floats, at: Ints) -> Floats:
    """Capacity without the memory of who is there."""
    left = capacity.copy()
    for r in range(len(jobs)):
        if at[first[r]] >= 0:
            np.subtract.at(left[:, 1], at[first[r] : first[r + 1]], jobs["memory"][r])
    return left


def _crowded_nodes(source: Source, jobs: np.ndarray, first: Ints, capacity: Floats, crowded: list[int]) -> Ints:
    """Nearly all rows, most of them on the `crowded` nodes if they fit there."""
    at = np.full(int(first[-1]), -1, np.int64)
    for r in source.permutation(len(jobs)).tolist():
        left = _left(jobs, first, capacity, at)
        if source.integer(0, 3):
            left[[n for n in range(len(left)) if n not in crowded], 1] = -1.0
        if source.integer(0, 9):
            alone = random_nodes(source, jobs, first, left, [r])
            at[first[r] : first[r + 1]] = alone[first[r] : first[r + 1]]
    return at
