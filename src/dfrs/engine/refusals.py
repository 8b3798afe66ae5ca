"""Jobs whose pause was refused, because their nodes could not free their memory: for some time nobody pauses them."""

from collections.abc import Mapping

import numpy as np

from dfrs.model.decisions import Jobs
from dfrs.model.instance import Bools

REFUSED_S = 600.0
"""So long a refusal holds. What stood in the way may be gone by then: a full swap space empties as jobs end."""


class Refusals:
    """By the job's number in the order of submission: when it was last refused."""

    def __init__(self) -> None:
        self._at_s: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._at_s)

    def __contains__(self, serial: object) -> bool:
        return serial in self._at_s

    def note(self, serial: int, now_s: float) -> None:
        """Its pause was refused now."""
        self._at_s[serial] = now_s

    def forget(self, serial: int) -> None:
        """The job is gone."""
        self._at_s.pop(serial, None)

    def expire(self, now_s: float) -> None:
        """Forget what was refused long ago."""
        if self._at_s:
            self._at_s = {serial: at_s for serial, at_s in self._at_s.items() if now_s - at_s < REFUSED_S}

    def of(self, jobs: Jobs) -> Bools:
        """(R,) which of the jobs are not to be paused."""
        return np.isin(jobs["serial"], np.array(list(self._at_s), np.int64))

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        return {"serials": np.array(list(self._at_s), np.int64), "at_s": np.array(list(self._at_s.values()))}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        serials = state.get("serials", np.zeros(0, np.int64))
        self._at_s = dict(zip(serials.tolist(), state.get("at_s", np.zeros(0)).tolist(), strict=True))
