"""Jobs that may be ended at any time, to begin anew: what becomes of them where a pause would keep their memory.

Whoever is ended loses what it has done. So that it is done one day, nobody is ended again before it has got twice as
far as it ever was. By that, all that a job loses is less than twice its processing time.
"""

from collections.abc import Mapping

import numpy as np

from dfrs.model.decisions import Jobs
from dfrs.model.instance import Bools

FACTOR = 2.0
LEAST_S = 60.0
"""Who was ended once has at least so much virtual time before it is ended again."""


class Restarts:
    """Those jobs, by their number in the order of submission."""

    def __init__(self) -> None:
        self._until_s: dict[int, float] = {}
        """The virtual time from which on each may be ended."""

    def __bool__(self) -> bool:
        return bool(self._until_s)

    def allow(self, serial: int) -> None:
        """This one may be ended at any time."""
        self._until_s[serial] = 0.0

    def forget(self, serial: int) -> None:
        """The job is done."""
        self._until_s.pop(serial, None)

    def note(self, serial: int, virtual_s: float) -> None:
        """It is ended at that virtual time."""
        self._until_s[serial] = max(self._until_s[serial], FACTOR * virtual_s, LEAST_S)

    def of(self, jobs: Jobs) -> Bools:
        """(R,) which of the jobs may be ended now."""
        able = np.zeros(len(jobs), np.bool_)
        if self._until_s:
            for row, serial in enumerate(jobs["serial"].tolist()):
                until_s = self._until_s.get(serial)
                able[row] = until_s is not None and jobs["virtual_s"][row] >= until_s
        return able

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        return {
            "serials": np.array(list(self._until_s), np.int64),
            "until_s": np.array(list(self._until_s.values()), np.float64),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        serials = state.get("serials", np.zeros(0, np.int64))
        self._until_s = dict(zip(serials.tolist(), state.get("until_s", np.zeros(0)).tolist(), strict=True))
