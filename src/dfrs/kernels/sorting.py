"""A stable order of non-negative keys; a radix sort where there are many, which is what a yield search repeats most."""

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel

_FEW = 1500
_BITS = 11
_DIGITS = 6


@kernel
def stable_order(key: Floats, ascending: bool) -> Ints:
    """Indices of `key` (T,), all at least 0 (infinity allowed), in decreasing order unless `ascending`; ties by index.

    The bits of a non-negative double, read as an integer, are in the order of the doubles.
    """
    count = key.size
    if count <= _FEW:
        return np.argsort(key if ascending else -key, kind="mergesort")
    mask = np.uint64((1 << _BITS) - 1)
    # Adding 0 turns a negative zero, whose sign bit would sort last, into a plain one.
    bits = (key + 0.0).view(np.uint64)
    if not ascending:
        bits = ~bits
    order = np.arange(count)
    spare = np.empty_like(order)
    for digit in range(_DIGITS):
        shift = np.uint64(digit * _BITS)
        start = np.zeros((1 << _BITS) + 1, dtype=np.int64)
        for i in range(count):
            start[np.int64((bits[i] >> shift) & mask) + 1] += 1
        if start.max() == count:
            continue
        for b in range(1 << _BITS):
            start[b + 1] += start[b]
        for k in range(count):
            i = order[k]
            b = np.int64((bits[i] >> shift) & mask)
            spare[start[b]] = i
            start[b] += 1
        order, spare = spare, order
    return order
