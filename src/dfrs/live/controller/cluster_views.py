"""The whole cluster as users see it: figures of all jobs and nodes, and what a bound on them is computed from."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dfrs.live.controller.best_yield import usable_cpu
from dfrs.live.controller.records import JobRecord, NodeRecord
from dfrs.live.controller.state import State
from dfrs.live.controller.views import (
    ON_NODES,
    granted_yield,
    job_state,
    left_cores,
    present_nodes,
    received_yield,
    used_by_node,
)
from dfrs.live.protocol.resources import Cluster, JobState, NodeState, Price, TimePoint
from dfrs.model.decisions import PAUSED, RUNNING, Snapshot
from dfrs.model.nodes import Condition
from dfrs.version import __version__

LEAST_YIELD, LEAST_NEED = 0.05, 1e-6
"""So that what is divided by a measured yield stays finite, and no job needs nothing."""


def summarize_yields(yields: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Minimum, median and Jain's index of yields; None where there are none."""
    if not yields:
        return None, None, None
    found = np.sort(np.array(yields))
    squares = float((found * found).sum())
    jain = 1.0 if squares == 0.0 else float(found.sum()) ** 2 / (len(found) * squares)
    return float(found.min()), float(np.median(found)), min(1.0, jain)


def present_yield(state: State, record: JobRecord) -> tuple[float, bool]:
    """What a job on nodes receives, or was granted where that is not measured yet; whether it is measured.

    The same as `resources.shown_yield` of that job.
    """
    received = received_yield(record)
    return (granted_yield(state, record), False) if received is None else (received[0], True)


def yields(state: State) -> list[float]:
    """Of the jobs that are on nodes, as `present_yield`."""
    records = (state.jobs.get(name) for name in state.picture.running)
    on = (record for record in records if record is not None and job_state(state, record) in ON_NODES)
    return [present_yield(state, record)[0] for record in on]


def wanted_cores(record: JobRecord) -> float | None:
    """What a task of it would use if all had what they can use: the most of its tasks; None where that is unknown."""
    found: list[float] = []
    for task in record.tasks:
        received = task.received.yield_now
        if received is not None:
            found.append(task.received.used_cores / max(received[0], LEAST_YIELD))
    return max(found, default=None)


def on_nodes(state: State) -> Snapshot:
    """The present without jobs that wait or are paused, for a bound on the yields received.

    Who uses less than it is taken to need is taken to need that.
    """
    snapshot = state.picture.snapshot
    running = snapshot.select(snapshot.jobs["state"] == RUNNING)
    jobs = running.jobs.copy()
    if state.reference_cores is not None:
        for row in range(len(jobs)):
            record = state.jobs.get(int(jobs["id"][row]))
            wanted = None if record is None else wanted_cores(record)
            if wanted is not None:
                jobs["need"][row] = max(LEAST_NEED, min(jobs["need"][row], wanted / state.reference_cores))
    return replace(running, jobs=jobs, subject=-1)


def bound(state: State, least: float | None) -> float | None:
    """The best minimum yield that running jobs can have; what they have is possible, whatever was last computed."""
    if state.best is None or least is None:
        return None
    return max(state.best.of_those(state.picture.running, usable_cpu(state.picture.snapshot)), least)


def abilities(nodes: Sequence[NodeRecord]) -> str:
    """What can be done with jobs that have started on these nodes, in words."""
    able = [node for node in nodes if node.condition is not Condition.DOWN]
    if not able:
        return ""
    free, groups = sum(node.facts.abilities.pause_frees_memory for node in able), Counter(node.island for node in able)
    pauses = f"on {free} of {len(able)} nodes" if 0 < free < len(able) else ""
    words = [f"pauses {'free' if free else 'keep'} memory {pauses}".rstrip()]
    if len(groups) == len(able) > 1:
        words.append("jobs that have started stay on their nodes")
    elif len(groups) > 1:
        words.append(f"jobs that have started move within each of {len(groups)} groups of nodes")
    elif len(able) > 1:
        words.append("jobs move between all nodes")
    return ", ".join(words)


def cluster(
    state: State,
    open_: Mapping[JobState, int],
    on: Iterable[JobRecord],
    nodes: Iterable[tuple[NodeRecord, NodeState]],
    *,
    used: Mapping[int, float],
    decisions: int,
    shadow_differs: int,
) -> Cluster:
    """The whole; `open_` says how many jobs that have not ended are where, `on` are those that have a yield, `nodes`
    those that are present. `used`: as `used_by_node`.
    """
    yields_, unmeasured = list[float](), 0
    # Of thousands of nodes and tens of thousands of jobs no views are made here: that would take seconds.
    for record in on:
        shown, measured = present_yield(state, record)
        yields_.append(shown)
        unmeasured += not measured
    least, median, jain = summarize_yields(yields_)
    states, there = Counter[NodeState](), list[NodeRecord]()
    for node, state_of_node in nodes:
        states[state_of_node] += 1
        if state_of_node is not NodeState.LOST:
            there.append(node)
    told = state.picture.snapshot.prices
    known = {"pause": told.pause_s, "resume": told.resume_s, "move": told.move_s}
    return Cluster(
        name=state.settings.cluster,
        version=__version__,
        policy=state.settings.policy,
        abilities=abilities(present_nodes(state)),
        discovery=state.settings.discovery,
        shadow=state.settings.shadow,
        now=state.settings.clock(),
        started_at=state.started_at,
        jobs={each: open_[each] + state.ended_counts[each] for each in JobState},
        nodes=dict(states),
        cpus=math.fsum(node.facts.cpus for node in there),
        left_cores=_cluster_left(state, there),
        used_cores=math.fsum(used.values()),
        minimum_yield=least,
        median_yield=median,
        jain=jain,
        unmeasured=unmeasured,
        bound=bound(state, least),
        decisions=decisions,
        decision_s=state.decision_s,
        shadow_differs=shadow_differs,
        standbys=state.standbys,
        notifies=bool(state.settings.notify),
        jobs_pruned_until=state.pruned.jobs_at,
        prices={verb: Price(seconds=known[verb], samples=number) for verb, number in state.prices.samples.items()},
    )


def _cluster_left(state: State, there: Sequence[NodeRecord]) -> float | None:
    left = [left_cores(state, node) for node in there]
    if all(each is None for each in left):
        return None
    return math.fsum(node.facts.cpus if each is None else each for node, each in zip(there, left, strict=True))


def _paused(state: State) -> int:
    """How many jobs hold something that they may not use."""
    seen = state.picture.jobs
    names = seen["id"][seen["state"] == PAUSED].tolist()
    return sum(1 for name in names if (record := state.jobs.get(name)) is not None and record.outcome is None)


def point(state: State, now: float, used: Mapping[int, float] | None = None) -> TimePoint:
    """This instant, as `cluster` has it. `used`: as `used_by_node`, where that is known already."""
    found = yields(state)
    least, median, jain = summarize_yields(found)
    return TimePoint(
        time=now,
        minimum_yield=least,
        median_yield=median,
        jain=jain,
        bound=bound(state, least),
        running=len(found),
        waiting=sum(1 for record in state.jobs.values() if record.outcome is None) - len(found) - _paused(state),
        used_cores=math.fsum((used_by_node(state) if used is None else used).values()),
    )
