"""A placement at a fixed yield out of sets of tasks, fixed one after the other until every task has a node: a dive.

The relaxation of `set_relaxation` says of each set, in fractions, how many nodes shall have it. The set with the
largest fraction is fixed, its tasks and its node are taken out, and what is left is relaxed anew, with new sets priced
in. Where that has no solution any more, the last choices are taken back, twice as many each time, and made anew by
fractions to which chance adds something.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.model.instance import Bools, Ints
from dfrs.placement.set_bound import SetPacking
from dfrs.placement.set_relaxation import Deadline, NodeSet, Relaxation

ALMOST = 0.5
"""Sets with at least this fraction are fixed together with the first one."""
AT_ONCE = 0.3
"""Of the nodes that are left, how many get a set at once, at least one; whole fractions are all taken."""
WHOLE = 1.0 - 1e-6
CHANCE = 0.3
"""The most that is added to a fraction once choices were taken back."""
TRIALS = 200_000_000
"""Of one pricing with a minute or more left: seconds. Sets that are not found are missed more than time."""


@dataclass(kw_only=True, eq=False)
class _State:
    """What is left: `rest` (T,) of the tasks, `nodes` (K,) of each kind; and the sets fixed so far."""

    rest: Bools
    nodes: Ints
    fixed: list[NodeSet]


def dive(packing: SetPacking, target: float, rng: np.random.Generator, deadline: Deadline) -> Ints | None:
    """A placement (T,) at yield `target`, or None where none was found in time. `packing` gets to know the sets."""
    relaxation = Relaxation(packing.size(target), packing.capacity, packing.nodes, packing.fitting(target))
    place = _dive(packing, relaxation, rng, deadline)
    packing.add(relaxation.sets)
    return place


def _dive(packing: SetPacking, relaxation: Relaxation, rng: np.random.Generator, deadline: Deadline) -> Ints | None:
    stack = [_State(rest=np.ones(len(relaxation.size), dtype=np.bool_), nodes=packing.nodes, fixed=[])]
    failures = 0
    while not deadline.over:
        state = stack[-1]
        if not state.rest.any():
            return packing.place_on_nodes(state.fixed)
        relaxation.restrict(state.rest, state.nodes)
        if relaxation.solve(deadline, trials=int(TRIALS * min(1.0, (1.0 + deadline.left_s) / 60.0))):
            stack.append(_fixed(state, relaxation, rng, CHANCE if failures else 0.0))
            continue
        if len(stack) == 1:
            return None
        failures += 1
        # Back to the root in the end, and then a few steps again.
        steps = 2 ** (failures % len(stack).bit_length())
        del stack[max(1, len(stack) - steps) :]
    return None


def _fixed(state: _State, relaxation: Relaxation, rng: np.random.Generator, chance: float) -> _State:
    """With the sets of the largest fractions fixed."""
    fractions = relaxation.fractions
    order = np.argsort(-(fractions + chance * rng.random(len(fractions)) * (fractions > 0.0)))
    rest, nodes, fixed = state.rest.copy(), state.nodes.copy(), list(state.fixed)
    most = max(1, int(AT_ONCE * nodes.sum()))
    for s in order:
        taken = len(fixed) - len(state.fixed)
        if fractions[s] < (ALMOST if taken < most else WHOLE) and taken:
            break
        kind, members = relaxation.sets[s]
        left = members[state.rest[members]]
        if nodes[kind] and left.size and rest[left].all():
            fixed.append((kind, left))
            rest[left] = False
            nodes[kind] -= 1
    return _State(rest=rest, nodes=nodes, fixed=fixed)
