"""What simulated nodes can do with jobs that have started, as the real ones can: pause them, move them, or not."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.nodes import NodeLimits

Pauses = Literal["free", "keep"]
"""Whether the memory of a paused job is free for others."""
FREE: Pauses = "free"
ANYWHERE = "anywhere"


def node_limits(pauses: str, moves: str, nodes: int, hosts: Sequence[str] | None = None) -> NodeLimits | None:
    """Limits of so many nodes, None where there are none.

    `moves` is `anywhere`; `none`; `host`, between nodes with equal names in `hosts` (N,); or `host:K`, between each K
    consecutive nodes. Raises InputError.
    """
    if pauses not in ("free", "keep"):
        raise InputError(f'pauses "{pauses}": must be free or keep')
    if moves == ANYWHERE:
        island = np.zeros(nodes, np.int64)
    elif moves == "none":
        island = np.arange(nodes)
    elif moves == "host":
        if hosts is None:
            raise InputError(
                "moves host: which nodes does a host have? Give a node file with a column host, or say host:K"
            )
        island = np.unique(np.array(hosts), return_inverse=True)[1].reshape(-1)
    else:
        each = moves.removeprefix("host:")
        if each == moves or not (each.isascii() and each.isdigit() and int(each) >= 1):
            raise InputError(f'moves "{moves}": must be anywhere, none, host, or host:K with K nodes on each host')
        island = np.arange(nodes) // int(each)
    if pauses == FREE and not island.any():
        return None
    return NodeLimits(np.full(nodes, pauses != FREE), island.astype(np.int64))
