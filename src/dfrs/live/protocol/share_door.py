"""Where share agents come in: what the API needs to answer them."""

from typing import Protocol

from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.shares import ShareOrders, ShareReport


class ShareDoor(Protocol):
    """Takes reports of share agents."""

    def facts(self, node: str) -> NodeFacts:
        """What is known of a node that they may come from. Raises NotFoundError."""
        ...

    async def exchange(self, report: ShareReport) -> ShareOrders:
        """Take a report, and answer when there is something new, or after a while. Raises NotFoundError."""
        ...
