"""What may be spent on moves: their number, bytes copied, cost, time, or several of these at once."""

from dataclasses import dataclass

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.model.move_limits import MoveLimits

WITHOUT_SIZES = 'needs the size of a resource: give its reference node\'s "bytes" in the instance'


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits on what the moves of a new placement take in all; those that are None do not limit.

    `moves` is how many tasks may move, `bytes` how much they may copy (`Instance.task_bytes`), `cost` the sum of their
    `Instance.move_cost`, and `seconds` how long they may take one after another, at `bandwidth_bytes_per_s` or as the
    instance's `move_limits` say. Raises InputError where a limit is negative, or the bandwidth not positive.
    """

    moves: float | None = None
    bytes: float | None = None
    cost: float | None = None
    seconds: float | None = None
    bandwidth_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        for unit, amount in self.limits.items():
            if not amount >= 0:
                raise InputError(f"budget of {unit}: {amount}: must be at least 0")
        bandwidth = self.bandwidth_bytes_per_s
        if bandwidth is not None and not 0 < bandwidth < float("inf"):
            raise InputError(f"bandwidth {bandwidth}: must be a positive number of bytes a second")

    @property
    def limits(self) -> dict[str, float]:
        """The B limits there are, by unit: moves, bytes, cost, seconds."""
        units = {"moves": self.moves, "bytes": self.bytes, "cost": self.cost, "seconds": self.seconds}
        return {unit: float(amount) for unit, amount in units.items() if amount is not None}

    @property
    def amounts(self) -> Floats:
        """(B,) the limits, in the order of `limits`."""
        return np.array(list(self.limits.values()), dtype=np.float64)

    def costs(self, instance: Instance) -> Floats:
        """(B, T) what moving each task takes of each limit. Raises InputError where sizes in bytes are not known."""
        return np.array([self._cost(instance, unit) for unit in self.limits]).reshape(-1, len(instance.need))

    def spent(self, instance: Instance, present: Ints, place: Ints) -> dict[str, float]:
        """What going from `present` to `place` (T,) takes, by unit; tasks that were nowhere (-1) move for free."""
        moved = (present >= 0) & (present != place)
        return {unit: float(self._cost(instance, unit)[moved].sum()) for unit in self.limits}

    def _cost(self, instance: Instance, unit: str) -> Floats:
        if unit == "moves":
            return np.ones(len(instance.need))
        if unit == "cost":
            return instance.move_cost
        if unit == "seconds":
            return self._seconds(instance)
        if instance.task_bytes is None:
            raise InputError(f"a budget in bytes {WITHOUT_SIZES}")
        return instance.task_bytes

    def _seconds(self, instance: Instance) -> Floats:
        limits = instance.move_limits or MoveLimits()
        bandwidth = self.bandwidth_bytes_per_s or limits.bandwidth_bytes_per_s
        if bandwidth is None and limits.latency_s == 0:
            raise InputError("a budget in seconds needs a bandwidth: give --bandwidth, or move_limits in the instance")
        if bandwidth is None:
            return np.full(len(instance.need), limits.latency_s)
        if instance.task_bytes is None:
            raise InputError(f"a budget in seconds {WITHOUT_SIZES}")
        return limits.latency_s + instance.task_bytes / bandwidth
