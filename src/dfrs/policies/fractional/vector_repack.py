"""MCB with any vector packing ([Stillwell2010] 4.2.5, [Stillwell2008] 3.4), not VP_CPMAX: for study, not for speed.

Task by task through the general kernels. Nodes are what running jobs that keep their places leave of them, so that
a packing that looks at loads sees those of the tasks it places.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.kernels import packing as kernels
from dfrs.kernels import repack
from dfrs.kernels.jit import Plan
from dfrs.model.decisions import CPU, MEMORY, Snapshot
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.placement.packing import MULTI_CAPACITY, VECTOR_PACKINGS, VectorPacking
from dfrs.policies.fractional.actions import MARGIN, MOVABLE, Pin, Priority, order_and_pinned
from dfrs.policies.fractional.objective import YIELDS, Objective

DEFAULT_PACKING = "VP_CPMAX"
PACKINGS = VECTOR_PACKINGS | MULTI_CAPACITY

_METHODS = {"FF": kernels.FIRST_FIT, "BF": kernels.BEST_FIT, "CP": kernels.BY_LISTS, "PP": kernels.BY_LISTS}
_CRITERIA = {"SUM": kernels.SUM, "MAX": kernels.MAX, "LEX": kernels.LEX, "DIFF": kernels.DIFF, "RATIO": kernels.RATIO}
_LEXICOGRAPHIC = np.arange(2)


def plan_of_two(packing: VectorPacking, window: int) -> tuple[int, Plan, Ints]:
    """(window, plan, list of each code) as `pack` takes them, for two resources: by one or both largest coordinates."""
    ordered = packing.method == "PP"
    if window == 1:
        subsets, orders = [[0], [1]], [[0], [0]]
        list_of_code = [0, 1] if ordered else [0, 0, 1]
    elif ordered:
        subsets, orders, list_of_code = [[0, 1], [0, 1]], [[0, 1], [1, 0]], [0, 1, 0]
    else:
        subsets, orders, list_of_code = [[0, 1]], [[0, 1]], [0, 0, 0, 0]
    return window, (np.array(subsets), np.array(orders), ordered, packing.by_index), np.array(list_of_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRepack:
    """`dfrs.policies.fractional.actions.Repack` by the packing of that name.

    `window` is that of Choose and Permutation Pack: with 1, lists are by the largest of the two coordinates; with 2,
    Choose Pack has one list, and Permutation Pack the same lists as with 1.
    """

    packing: str = DEFAULT_PACKING
    window: int = 1
    objective: Objective = YIELDS
    priority: Priority = Priority.FLOW_VIRTUAL_SQUARED
    pin: Pin = MOVABLE

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """Pack the most jobs by priority that can be packed at the least level, at the highest level found."""
        jobs = snapshot.jobs
        order, pinned = order_and_pinned(snapshot, self.priority, self.pin)
        base, slope = self.objective(snapshot)
        strict, least, width, relative, _ = self.objective.search
        chosen = np.ones(len(jobs), np.bool_)
        after = self._pack(snapshot, chosen, pinned, base, slope, least)
        for r in order[::-1].tolist():
            if after is not None:
                break
            chosen[r] = False
            after = self._pack(snapshot, chosen, pinned, base, slope, least)
        if after is None or not chosen.any():
            slots[:] = -1
            reasons[:] = repack.LEFT_OUT
            return
        low = least
        high = repack.upper_end(jobs, base, slope, strict, chosen, pinned, snapshot.capacity, snapshot.open)
        width = max(width, relative * high)
        target = high
        while high > low:
            better = self._pack(snapshot, chosen, pinned, base, slope, target)
            if better is None:
                high = target
            else:
                low, after = target, better
            if high - low <= width:
                break
            target = (low + high) / 2
        slots[:] = after
        repack.settle(jobs, snapshot.first, snapshot.task_nodes, chosen, pinned, len(snapshot.capacity), slots, reasons)

    def _pack(
        self, snapshot: Snapshot, chosen: Bools, pinned: Bools, base: Floats, slope: Floats, level: float
    ) -> Ints | None:
        """(slots,) of a packing of the `chosen` rows, the pinned ones where they are, or None where none was found."""
        jobs = snapshot.jobs
        yields = np.empty(len(jobs))
        if not repack.yields_at(level, base, slope, self.objective.search, chosen, yields):
            return None
        size = np.repeat(np.column_stack([jobs["memory"], jobs["need"] * yields]), jobs["tasks"], axis=0)
        stays = np.repeat(chosen & pinned, jobs["tasks"])
        moves = np.repeat(chosen & ~pinned, jobs["tasks"])
        room = snapshot.capacity[:, [MEMORY, CPU]].copy()
        np.subtract.at(room, snapshot.task_nodes[stays], size[stays])
        if (room < -MARGIN).any():
            return None
        nodes = np.flatnonzero(snapshot.open)
        after = np.where(stays, snapshot.task_nodes, -1)
        packing = PACKINGS[self.packing]
        size = size[moves]
        order = kernels.sort_order(size, _CRITERIA[packing.criterion], packing.ascending, _LEXICOGRAPHIC)
        place = np.full(len(size), -1, np.int64)
        if len(size) and not kernels.pack(
            size, order, room[nodes], MARGIN, _METHODS[packing.method], False, *plan_of_two(packing, self.window), place
        ):
            return None
        after[moves] = nodes[place]
        return after
