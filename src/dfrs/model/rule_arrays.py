"""Placement rules as arrays: what the kernels that place tasks read, and `dfrs.model.rules` writes."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class RuleArrays(NamedTuple):
    """Rules on N nodes and T tasks: K kinds of tasks, L levels of failure domains, G groups of tasks.

    A group says how its members spread over the domains of its level. Limits that do not bind are T for `most`, the
    number of domains for `most_domains` and 0 for `fewest_domains`. All arrays are read-only: kernels are compiled
    once for that type.
    """

    kind_of: Ints
    """(T,) tasks of the same kind may be on the same nodes."""
    allowed: Bools
    """(K, N) on which nodes."""
    domain: Ints
    """(L, N) number (0..) of each node's domain at each level; level 0 is the node itself."""
    level: Ints
    """(G,) at which level the group counts."""
    most: Ints
    """(G,) most members in one domain."""
    most_domains: Ints
    """(G,) most domains with members."""
    fewest_domains: Ints
    """(G,) fewest domains with members."""
    host: Ints
    """(G,) the group that must have a member in every domain where this one has; -1 none."""
    guest: Ints
    """(G,) the reverse: the group that depends on this one; -1 none."""
    first: Ints
    """(T+1,) the groups of task i are group[first[i]:first[i+1]], in increasing order."""
    group: Ints
    offset: Ints
    """(G+1,) the counts of group g are count[offset[g]:offset[g+1]], one for each domain of its level."""


def frozen(arrays: RuleArrays) -> RuleArrays:
    """The same rules as read-only contiguous arrays."""
    fixed: list[Any] = [np.array(array, order="C", copy=True) for array in arrays]
    for array in fixed:
        array.setflags(write=False)
    return RuleArrays(*fixed)


def no_rules(tasks: int, nodes: int) -> RuleArrays:
    """Arrays without any rule: every task may be anywhere, and there is no group to look at."""
    none = np.zeros(0, dtype=np.int64)
    return frozen(
        RuleArrays(
            kind_of=np.zeros(tasks, dtype=np.int64),
            allowed=np.ones((1, nodes), dtype=np.bool_),
            domain=np.arange(nodes, dtype=np.int64)[None, :],
            level=none,
            most=none,
            most_domains=none,
            fewest_domains=none,
            host=none,
            guest=none,
            first=np.zeros(tasks + 1, dtype=np.int64),
            group=none,
            offset=np.zeros(1, dtype=np.int64),
        )
    )
