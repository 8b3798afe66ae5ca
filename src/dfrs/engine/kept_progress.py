"""Jobs that make check-points, and what is left of the progress of a job that loses a node."""

from collections.abc import Mapping

import numpy as np

from dfrs.kernels.progress import checkpointed


class KeptProgress:
    """How often each of those jobs makes one, by its number in the order of submission; others keep nothing."""

    def __init__(self) -> None:
        self._every_s: dict[int, float] = {}

    def every(self, serial: int, seconds: float) -> None:
        """This one makes one whenever it has got so much further, in seconds of virtual time."""
        self._every_s[serial] = seconds

    def forget(self, serial: int) -> None:
        """The job is done."""
        self._every_s.pop(serial, None)

    def of(self, serial: int, virtual_s: float) -> float:
        """What it keeps of so much."""
        return float(checkpointed(virtual_s, self._every_s.get(serial, 0.0)))

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        return {
            "serials": np.array(list(self._every_s), np.int64),
            "every_s": np.array(list(self._every_s.values()), np.float64),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        serials = state.get("serials", np.zeros(0, np.int64))
        self._every_s = dict(zip(serials.tolist(), state.get("every_s", np.zeros(0)).tolist(), strict=True))
