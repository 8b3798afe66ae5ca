"""A core run ahead of time: when jobs that wait would have nodes, if those that run ended as was said of them."""

from collections.abc import Callable, Mapping

import numpy as np

from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Ready, Wake
from dfrs.model.decisions import RUNNING, Jobs
from dfrs.model.instance import Floats, Ints


def next_turns(core: Core, lengths_s: Mapping[int, float], enough: Callable[[], bool]) -> tuple[dict[int, float], bool]:
    """When each job without nodes has some for the first time, by its id; and whether all was looked at.

    `core` is one that nobody else uses: it is told of what has not happened. `lengths_s` is the virtual time, in
    seconds, at which a job ends; those that are not in there never do. No other job comes, starts and moves take no
    time, and nodes stay as they are. Ends when no job waits or nothing more can happen, or at `enough`, which is asked
    before each event. Raises PolicyError.
    """
    names = np.array(sorted(lengths_s), np.int64)
    lengths = np.array([lengths_s[name] for name in names.tolist()])
    snapshot, found = core.snapshot(), dict[int, float]()
    now_s, left = snapshot.now_s, snapshot.jobs["id"][snapshot.jobs["state"] != RUNNING].copy()
    while True:
        jobs = core.snapshot().jobs
        begun = np.isin(left, jobs["id"][jobs["state"] == RUNNING])
        found |= dict.fromkeys(left[begun].tolist(), now_s)
        left = left[~begun]
        if not len(left):
            return found, True
        if enough():
            return found, False
        _make_ready(core, jobs, now_s)
        ends = _ends(jobs, names, lengths, now_s)
        row = int(ends.argmin())
        end_s, wake_s = float(ends[row]), np.inf if core.wake_at_s is None else core.wake_at_s
        if min(end_s, wake_s) == np.inf:
            return found, True
        now_s = max(now_s, min(end_s, wake_s))
        core.handle(Wake() if wake_s < end_s else Complete(int(jobs["id"][row])), now_s)


def _make_ready(core: Core, jobs: Jobs, now_s: float) -> None:
    """What was begun makes progress at once."""
    serials: Ints = jobs["serial"][(jobs["state"] == RUNNING) & (jobs["ready_s"] == np.inf)].copy()
    if len(serials):
        core.handle(Ready(serials, np.full(len(serials), now_s)), now_s)


def _ends(jobs: Jobs, names: Ints, lengths: Floats, now_s: float) -> Floats:
    """(R,) when each row ends, with the yield it has; infinite where nobody knows."""
    ends = np.full(len(jobs), np.inf)
    rows = np.flatnonzero((jobs["state"] == RUNNING) & (jobs["yield_"] > 0.0) & np.isin(jobs["id"], names))
    left = lengths[np.searchsorted(names, jobs["id"][rows])] - jobs["virtual_s"][rows]
    ready = np.where(jobs["ready_s"][rows] < np.inf, jobs["ready_s"][rows], now_s)
    ends[rows] = np.maximum(ready, now_s) + np.maximum(left, 0.0) / jobs["yield_"][rows]
    return ends
