"""Jobs whose pause was refused, because their nodes could not free their memory: for some time nobody pauses them."""

from collections.abc import Mapping

import numpy as np

from dfrs.model.decisions import Jobs
from dfrs.model.instance import Bools

REFUSED_S = 600.0
"""So long a refusal holds. What stood in the way may be gone by then: a full swap space empties as jobs end."""


class Refusals(dict[int, float]):
    """By the job's number in the order of submission: when it was last refused."""

    def expire(self, now_s: float) -> None:
        """Forget what was refused long ago."""
        for serial in [serial for serial, at_s in self.items() if now_s - at_s >= REFUSED_S]:
            del self[serial]

    def of(self, jobs: Jobs) -> Bools:
        """(R,) which of the jobs are not to be paused."""
        return np.isin(jobs["serial"], np.array(list(self), np.int64))

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        return {"serials": np.array(list(self), np.int64), "at_s": np.array(list(self.values()))}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        serials = state.get("serials", np.zeros(0, np.int64))
        self.clear()
        self.update(zip(serials.tolist(), state.get("at_s", np.zeros(0)).tolist(), strict=True))
