"""Snapshots of the cluster: what all who look at it are shown, so that no two displays of one instant differ."""

import asyncio
import time
from collections.abc import Callable

from dfrs.live.controller import cluster_views, views
from dfrs.live.controller.queued_views import JobViews
from dfrs.live.controller.state import State
from dfrs.live.protocol.resources import ClusterSnapshot

REST = 4.0
"""After a snapshot the next one is made only after so many times the time that it took: a fifth of all time at most."""
FRESH_S = 0.25
"""A snapshot older than this is made anew, though nothing happened: virtual times grow, and nodes fall silent."""


class ClusterSnapshots:
    """Makes them when somebody asks and something has changed, and keeps the last one.

    `counters` gives how many decisions there were, and how many the shadow policy would have made otherwise.
    """

    def __init__(self, state: State, counters: Callable[[], tuple[int, int]]) -> None:
        self.made = 0
        self._state = state
        self._counters = counters
        self._views = JobViews(state)
        self._kept: ClusterSnapshot | None = None
        self._version = -1
        self._at = self._next_at = 0.0

    def make(self) -> ClusterSnapshot:
        """The present."""
        began, state = time.perf_counter(), self._state
        decisions, differs = self._counters()
        present = views.Present(state)
        records = (state.jobs[name] for name in sorted(state.jobs, reverse=True))
        jobs = self._views.make(records, present, state.settings.clock())
        nodes = tuple(views.node(state, node, present) for node in views.present_nodes(state))
        cluster = cluster_views.cluster(state, jobs, nodes, decisions=decisions, shadow_differs=differs)
        # Milliseconds since 1970 are more than the last controller can have counted, at that pace.
        last = 0 if self._kept is None else self._kept.sequence
        sequence = max(last + 1, int(cluster.now * 1000))
        self._kept = ClusterSnapshot.model_construct(
            sequence=sequence, activity=state.activity.shown, cluster=cluster, nodes=nodes, jobs=jobs
        )
        self._version, self._at, self.made = state.version, time.monotonic(), self.made + 1
        self._next_at = self._at + REST * (time.perf_counter() - began)
        return self._kept

    async def latest(self) -> ClusterSnapshot:
        """A snapshot with all that happened before this call; it may have to rest a little before."""
        while True:
            now = time.monotonic()
            if self._kept is not None and self._version == self._state.version and now - self._at < FRESH_S:
                return self._kept
            if now >= self._next_at:
                return self.make()
            await asyncio.sleep(self._next_at - now)
