"""Changes that are made to their end, also if whoever asked for one goes away meanwhile."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ShieldedTasks:
    """Runs work as tasks of their own, which the end of the request that asked for one does not cancel."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        """Those that are not done."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Go on with it even if nobody waits for it any more."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return await asyncio.shield(task)
