"""What becomes of nodes."""

from dataclasses import dataclass
from enum import Enum


class Condition(Enum):
    """What became of a node."""

    DOWN = "down"
    """It failed: what ran there lost its progress and waits."""
    DRAIN = "drain"
    """No task may come to it; those there may stay."""
    UP = "up"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node, by index, failed, is being drained, or is back.

    Unless it is the `last` of those at its instant, the policy is not asked yet.
    """

    node: int
    condition: Condition
    last: bool = True
