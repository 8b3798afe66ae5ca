"""How many tasks may move at once, and how fast."""

import math
from dataclasses import dataclass

from dfrs.model.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimits:
    """What carrying out a plan must respect; None: no limit.

    Raises InputError for a limit below 1, a bandwidth that is not positive, or a limit of links without their level.
    """

    at_once: int | None = None
    """Moves at the same time in all."""
    per_node: int | None = None
    """Moves at the same time from or to one node."""
    per_link: int | None = None
    """Moves at the same time over the link of one domain of `link_level` to the others."""
    link_level: str | None = None
    """Nodes of one domain of this level share a link to the others."""
    bandwidth_bytes_per_s: float | None = None
    """Of one move; None: moves take `latency_s` alone."""
    latency_s: float = 0.0
    """What a move takes whatever its size."""

    def __post_init__(self) -> None:
        for label in ("at_once", "per_node", "per_link"):
            value = getattr(self, label)
            if value is not None and (type(value) is not int or value < 1):
                raise InputError(f"move_limits.{label} = {value}: must be a whole number of at least 1")
        bandwidth = self.bandwidth_bytes_per_s
        if bandwidth is not None and not 0 < bandwidth < math.inf:
            raise InputError(f"move_limits.bandwidth_bytes_per_s = {bandwidth}: must be a positive number")
        if not 0 <= self.latency_s < math.inf:
            raise InputError(f"move_limits.latency_s = {self.latency_s}: must be a finite number of at least 0")
        if self.per_link is not None and self.link_level is None:
            raise InputError("move_limits.per_link: must have a link_level, whose domains have the links")
