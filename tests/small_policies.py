"""Policies small enough to see that they are right, or how they are wrong."""

import hashlib
from collections.abc import Callable
from functools import partial

import numpy as np

from dfrs.model.decisions import RUNNING, Cause, Placement, Snapshot, Target
from dfrs.policies.names import find_policy


class Stay:
    """Changes nothing, ever: no job is placed."""

    def decide(self, snapshot: Snapshot, /) -> Target:
        return Target(snapshot.task_nodes, snapshot.jobs["yield_"].copy())


BATCH = {name: partial(find_policy, name) for name in ("FCFS", "EASY", "CONSERVATIVE", "EQUIPARTITION")}
"""How to make each of these."""


class FromFunction:
    """The policy that a function is."""

    def __init__(self, function: Callable[[Snapshot], Target]) -> None:
        self.decide = function


def _placed(snapshot: Snapshot, order: list[int], start: int = 0) -> dict[int, tuple[int, ...]]:
    """Row by row in that order: the open nodes with memory, from node `start` on; without CPU in mind."""
    room = snapshot.capacity[:, 1].copy()
    nodes = len(room)
    found: dict[int, tuple[int, ...]] = {}
    for r in order:
        job, left, chosen = snapshot.jobs[r], room.copy(), []
        for _ in range(int(job["tasks"])):
            fits = [
                n
                for n in ((start + k) % nodes for k in range(nodes))
                if snapshot.open[n] and left[n] >= job["memory"] - 1e-9
            ]
            if not fits:
                break
            chosen.append(fits[0])
            left[fits[0]] -= job["memory"]
        if len(chosen) == job["tasks"]:
            found[r], room = tuple(chosen), left
    return found


def _shared(snapshot: Snapshot, where: dict[int, tuple[int, ...]], wake_at_s: float | None) -> Target:
    """The largest equal yield for all placed jobs."""
    load = np.zeros(len(snapshot.capacity))
    for r, nodes in where.items():
        np.add.at(load, list(nodes), snapshot.jobs["need"][r])
    fair = min([1.0, *(c / u for c, u in zip(snapshot.capacity[:, 0].tolist(), load.tolist(), strict=True) if u > 0)])
    return Target.of(
        snapshot,
        {int(snapshot.jobs["id"][r]): Placement(nodes, fair) for r, nodes in where.items()},
        wake_at_s,
    )


class FairShare:
    """All jobs in order of submission, placed anew each time, at one yield; asked again every `period_s`."""

    def __init__(self, period_s: float | None = None) -> None:
        self.period_s = period_s

    def decide(self, snapshot: Snapshot, /) -> Target:
        where = _placed(snapshot, list(range(len(snapshot.jobs))))
        return _shared(snapshot, where, None if self.period_s is None else snapshot.now_s + self.period_s)


class Mover:
    """Deterministic, but as erratic as can be: order and nodes come from a digest of the whole snapshot."""

    def __init__(self, period_s: float = 97.0) -> None:
        self.period_s = period_s

    def decide(self, snapshot: Snapshot, /) -> Target:
        digest = hashlib.sha256(snapshot.jobs.tobytes() + snapshot.task_nodes.tobytes())
        digest.update(np.array([snapshot.now_s, snapshot.moved]).tobytes())
        rng = np.random.default_rng(int.from_bytes(digest.digest()[:8], "big"))
        rows = len(snapshot.jobs)
        if snapshot.cause != Cause.WAKE and rng.random() < 0.3:
            where = {
                r: tuple(snapshot.task_nodes[snapshot.first[r] : snapshot.first[r + 1]].tolist())
                for r in range(rows)
                if snapshot.jobs["state"][r] == RUNNING
            }
        else:
            where = _placed(snapshot, rng.permutation(rows).tolist(), int(rng.integers(len(snapshot.capacity))))
        why = {int(snapshot.jobs["id"][r]): f"draw {rng.integers(3)}" for r in range(0, rows, 2)}
        target = _shared(snapshot, where, snapshot.now_s + self.period_s * float(rng.integers(1, 4)))
        return Target(target.task_nodes, target.yields, target.wake_at_s, why=why)


class Swapper:
    """Every job as long as it is there on a node of its own; at each wake all go one node further."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s

    def decide(self, snapshot: Snapshot, /) -> Target:
        nodes = len(snapshot.capacity)
        after = snapshot.task_nodes.copy()
        if snapshot.cause == Cause.WAKE:
            after[after >= 0] = (after[after >= 0] + 1) % nodes
        for slot in np.flatnonzero(after < 0):
            free = np.setdiff1d(np.arange(nodes), after)
            if len(free):
                after[slot] = free[0]
        return Target(after, (after >= 0).astype(np.float64), snapshot.now_s + self.period_s)


class Turn:
    """All jobs on one node; at each wake, on the next one, while less than `most` memory has moved in the last hour."""

    def __init__(self, period_s: float, most: float) -> None:
        self.period_s, self.most = period_s, most

    def decide(self, snapshot: Snapshot, /) -> Target:
        here = snapshot.task_nodes[snapshot.task_nodes >= 0]
        node = int(here[0]) if len(here) else 0
        node = (node + (snapshot.cause == Cause.WAKE and snapshot.moved < self.most)) % len(snapshot.capacity)
        needs = float((snapshot.jobs["need"] * snapshot.jobs["tasks"]).sum())
        yields = np.full(len(snapshot.jobs), min(1.0, float(snapshot.capacity[node, 0]) / max(needs, 1e-9)))
        return Target(np.full(len(snapshot.task_nodes), node), yields, snapshot.now_s + self.period_s)
