"""Named dimensions of a node: what can be time-shared (fluid) and what cannot (rigid).

[Stillwell2010] section 3.1.1 calls them fluid and fixed, [Stillwell2010b] section 3.2 fluid and rigid.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Whether a resource can be shared in time."""

    RIGID = "rigid"
    FLUID = "fluid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One dimension. `bytes_per_node` is the size of the reference node, where moving a task copies it."""

    name: str
    kind: Kind
    bytes_per_node: float | None = None
