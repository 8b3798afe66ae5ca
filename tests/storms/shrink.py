"""From a storm that goes wrong to the fewest of its acts that still do."""

import re

from tests.storms.acts import acts_of, faults_of
from tests.storms.run import tell

MOST_TRIES = 400


def kind_of(error):
    """What went wrong, whatever the numbers: another seed or another job is the same."""
    first = str(error).splitlines()[0] if str(error) else ""
    return type(error).__name__, re.sub(r"[0-9a-f]*\d[0-9a-f.]*", "#", first)[:40]


def shrink(seed, said=lambda line: None, *, faults=None, tries=MOST_TRIES):
    """(acts, what went wrong) of the shortest story found; None where nothing goes wrong.

    Halves, quarters and so on of the acts are left out as long as what goes wrong is the same; in the end each act
    alone. Every act is drawn by itself, so that those that stay are what they were.
    """
    faults = faults_of(seed) if faults is None else faults
    told = tell(seed, faults)
    if told.error is None:
        return None
    wanted, error = kind_of(told.error), told.error
    # What was to happen later has no part in it.
    acts = acts_of(seed, faults)[: told.storm.done]
    size = max(1, len(acts) // 2)
    while tries > 0:
        begin, shorter = 0, False
        while begin < len(acts) and tries > 0:
            left = acts[:begin] + acts[begin + size :]
            tries -= 1
            told = tell(seed, faults, left)
            if told.error is not None and kind_of(told.error) == wanted:
                acts, error, shorter = left[: told.storm.done], told.error, True
                said(f"{len(acts)} acts")
            else:
                begin += size
        if size == 1 and not shorter:
            break
        size = size if shorter and size == 1 else max(1, size // 2)
    return acts, error
