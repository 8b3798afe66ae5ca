"""Sets of nodes as text: `0-3*2 7` is two tasks on each of nodes 0 to 3 and one on node 7."""

import re
from itertools import pairwise

import numpy as np

from dfrs.kernels.node_sets import write_node_sets
from dfrs.model.errors import InputError
from dfrs.model.instance import Ints

_ITEM = re.compile(r"(\d+)(?:-(\d+))?(?:\*([1-9]\d*))?")


def node_set(nodes: Ints) -> str:
    """The text for one node index a task, in any order."""
    return node_sets(np.array([0, len(nodes)]), nodes)[0]


def node_sets(first: Ints, nodes: Ints) -> list[str]:
    """The text of each of R sets, which have `nodes` first[r] to first[r + 1] (R + 1,), one index a task.

    What `nodes` has before first[0] is of other sets.
    """
    own = nodes[first[0] : first[-1]]
    digits = len(str(int(own.max(initial=0))))
    text = np.empty(len(own) * (digits + 1), np.uint8)
    bounds = np.zeros(len(first), np.int64)
    write_node_sets(first - first[0], own, text, bounds[1:])
    written = text[: bounds[-1]].tobytes().decode("ascii")
    return [written[begin:end] for begin, end in pairwise(bounds.tolist())]


def node_sets_of(first: Ints, nodes: Ints, rows: Ints) -> list[str]:
    """The texts of these rows of `node_sets`, in their order."""
    count = first[rows + 1] - first[rows]
    begins = np.concatenate([[0], np.cumsum(count)])
    return node_sets(begins, nodes[np.arange(begins[-1]) + np.repeat(first[rows] - begins[:-1], count)])


def parse_node_set(text: str) -> Ints:
    """One node index a task, sorted by node. Raises InputError."""
    nodes: list[int] = []
    for item in text.split():
        match = _ITEM.fullmatch(item)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError(f'nodes = "{text}": "{item}" must be a node, a range a-b, or either with *tasks')
        begin = int(match[1])
        for node in range(begin, int(match[2] or begin) + 1):
            nodes.extend([node] * int(match[3] or 1))
    return np.array(nodes, dtype=np.int64)
