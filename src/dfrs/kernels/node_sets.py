"""Sets of nodes as text, see `dfrs.runs.node_sets`: made for a whole event log at once."""

import numpy as np
from numpy.typing import NDArray

from dfrs.kernels.jit import Ints, kernel

Bytes = NDArray[np.uint8]

_ZERO, _SPACE, _TO, _TIMES = 48, 32, 45, 42
"""ASCII codes of `0`, ` `, `-` and `*`."""


@kernel
def write_node_sets(first: Ints, nodes: Ints, text: Bytes, ends: Ints) -> None:
    """Write the set of each row, which has `nodes` first[r] to first[r + 1], one node a task, to `text`, in ASCII.

    `ends` (R,) says where each one ends. For each task `text` must have as many bytes as the largest node has digits,
    and one more.
    """
    at = 0
    for r in range(len(ends)):
        begin = at
        own = nodes[first[r] : first[r + 1]].copy()
        own.sort()
        k = 0
        while k < len(own):
            low = own[k]
            times = _count(own, k)
            high = low
            k += times
            while k < len(own) and own[k] == high + 1 and _count(own, k) == times:
                high += 1
                k += times
            if at > begin:
                at = _write(_SPACE, text, at)
            at = _write_number(low, text, at)
            if high > low:
                at = _write_number(high, text, _write(_TO, text, at))
            if times > 1:
                at = _write_number(times, text, _write(_TIMES, text, at))
        ends[r] = at


@kernel
def _count(nodes: Ints, k: int) -> int:
    """How often the node at `k` comes from there on, in order."""
    end = k + 1
    while end < len(nodes) and nodes[end] == nodes[k]:
        end += 1
    return end - k


@kernel
def _write(code: int, text: Bytes, at: int) -> int:
    text[at] = code
    return at + 1


@kernel
def _write_number(number: int, text: Bytes, at: int) -> int:
    digits = 1
    power = 10
    while number >= power:
        digits += 1
        power *= 10
    for d in range(digits - 1, -1, -1):
        text[at + d] = _ZERO + number % 10
        number //= 10
    return at + digits
