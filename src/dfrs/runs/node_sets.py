"""Sets of nodes as text: `0-3*2 7` is two tasks on each of nodes 0 to 3 and one on node 7."""

import re

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Ints

_ITEM = re.compile(r"(\d+)(?:-(\d+))?(?:\*([1-9]\d*))?")


def node_set(nodes: Ints) -> str:
    """The text for one node index a task, in any order."""
    if len(nodes) == 1:
        return str(int(nodes[0]))
    counts: dict[int, int] = {}
    for node in nodes.tolist():
        counts[node] = counts.get(node, 0) + 1
    parts: list[str] = []
    begin = previous = -3
    times = 0
    for node in [*sorted(counts), -1]:
        if node == previous + 1 and counts[node] == times:
            previous = node
            continue
        if begin >= 0:
            span = str(begin) if begin == previous else f"{begin}-{previous}"
            parts.append(span if times == 1 else f"{span}*{times}")
        begin = previous = node
        times = counts.get(node, 0)
    return " ".join(parts)


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
