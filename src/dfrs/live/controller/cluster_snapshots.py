"""Snapshots of the cluster: what all who look at it are shown, so that no two displays of one instant differ."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from dfrs.live.controller import cluster_views
from dfrs.live.controller.node_views import PresentNodes, TaskViews
from dfrs.live.controller.open_jobs import JobViews, OpenJobs
from dfrs.live.controller.state import State
from dfrs.live.controller.views import Present
from dfrs.live.protocol.resources import Cluster, Job, Node

REST = 2.0
"""After a snapshot so many times the time that it took must pass without one: they take a third of all time at most."""
AT_ONCE_S = 1.0
"""So much of that rest may be taken later: who asks a few things one after the other does not wait for it."""
FRESH_S = 0.25
"""A snapshot older than this is made anew, though nothing happened: virtual times grow, and nodes fall silent."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterInstant:
    """As `ports.Instant`, with all jobs that have not ended."""

    sequence: int
    activity: int
    cluster: Cluster
    present: PresentNodes
    open: OpenJobs

    @property
    def nodes(self) -> tuple[Node, ...]:
        """By name. Making them all takes tens of microseconds a node."""
        return self.present.all

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The latest first. Making them all takes tens of microseconds a job."""
        return self.open.all


class ClusterSnapshots:
    """Makes them when somebody asks and something has changed, and keeps the last one.

    `counters` gives how many decisions there were, and how many the shadow policy would have made otherwise.
    """

    def __init__(self, state: State, counters: Callable[[], tuple[int, int]]) -> None:
        self.made = 0
        self._state = state
        self._counters = counters
        self._job_views = JobViews(state)
        self._task_views = TaskViews(state)
        self._kept: ClusterInstant | None = None
        self._version = -1
        self._at = self._rested_at = 0.0
        self._rested = asyncio.Event()
        self._rested.set()

    def make(self) -> ClusterInstant:
        """The present."""
        began, state = time.monotonic(), self._state
        decisions, differs = self._counters()
        present = Present(state)
        jobs = OpenJobs(state, self._job_views, present)
        nodes = PresentNodes(state, present, self._task_views)
        cluster = cluster_views.cluster(
            state,
            jobs.counts(),
            jobs.on_nodes(),
            nodes.states(),
            used=present.used,
            decisions=decisions,
            shadow_differs=differs,
        )
        # Milliseconds since 1970 are more than the last controller can have counted, at that pace.
        last = 0 if self._kept is None else self._kept.sequence
        sequence = max(last + 1, int(cluster.now * 1000))
        self._kept = ClusterInstant(sequence, state.activity.shown, cluster, nodes, jobs)
        self._version, self._at, self.made = state.version, time.monotonic(), self.made + 1
        # Also the time that it takes to make one is no rest from those before.
        self._rested_at = max(self._rested_at, began) + (1.0 + REST) * (self._at - began)
        return self._kept

    async def latest(self) -> ClusterInstant:
        """A snapshot with all that happened before this call; it may have to rest a little before."""
        while True:
            now = time.monotonic()
            if self._kept is not None and self._version == self._state.version and now - self._at < FRESH_S:
                return self._kept
            left_s = self._rested_at - AT_ONCE_S - now
            if left_s <= 0.0:
                return self.make()
            if self._rested.is_set():
                self._rested = asyncio.Event()
                asyncio.get_running_loop().call_later(left_s, self._rested.set)
            # All who wait go on in one turn of the loop, in which nothing changes: one snapshot is enough for them.
            await self._rested.wait()
