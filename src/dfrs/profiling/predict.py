"""What a job would gain on another sub-cluster, from its profile where it runs ([Atif2011] 5.2 to 5.5, eqs 2 to 10).

A profile covers tau seconds. Of these, some went to events of performance counters, each of which costs a known number
of cycles, and some to messages, each of which costs what the network takes for its size. Both are known for every
sub-cluster, so the difference is what tau seconds here would save there; all other time is taken to stay as it is.

[Atif2011] calls the result of equation 10 an execution time; its worked examples (eqs 17 to 20) use it as time *saved*,
which is what `saved` gives. A co-located job's messages cost nothing (section 5.3).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.hardware import COLOCATED, SPREAD, Hardware, Latency, Partition, Profile, Waits
from dfrs.model.instance import Floats

TOLERANCE = 0.1
"""What a thrashing job is to have beyond its memory and swap space, as a fraction ([Atif2011] section 6)."""

_LEAST = 1e-6
"""Of tau: no prediction is shorter, so that speeds are finite."""


def cpu_time(counters: Mapping[str, float], cluster: Partition) -> float:
    """Seconds of CPU for these events on this sub-cluster (eqs 2, 3). Raises InputError for an event without cycles."""
    total = 0.0
    for event, count in counters.items():
        if event not in cluster.cycles:
            raise InputError(f"counters.{event}: sub-cluster {cluster.name} does not say how many cycles it costs")
        total += count * cluster.cycles[event] / cluster.frequency_hz
    return total


def blocking_time(messages: Mapping[int, float], latency: Latency | None) -> float:
    """Seconds in blocking messages, by size, on a network (eqs 5, 6); NaN where it was not measured."""
    if not messages:
        return 0.0
    if latency is None:
        return np.nan
    return sum(count * latency.at(size) for size, count in messages.items())


def waiting_time(waiting: Mapping[int, Waits]) -> float:
    """Seconds that a process waited for non-blocking messages where the profile was taken (eq 7)."""
    return sum(waits.count * waits.mean_s for waits in waiting.values())


def non_blocking_time(waiting: Mapping[int, Waits], here: Latency | None, there: Latency | None) -> float:
    """Seconds that it would wait on the network `there`, by the ratio of latencies (eq 8); NaN where one is missing.

    Where messages cost nothing here the ratio does not exist: then each is waited for as long as it takes, which is the
    most it can be. That is so of a job that is co-located here, whose `here` is to be FREE.
    """
    if not waiting:
        return 0.0
    if here is None or there is None:
        return np.nan
    total = 0.0
    for size, waits in waiting.items():
        old, new = here.at(size), there.at(size)
        total += waits.count * (waits.mean_s * new / old if old > 0 else new)
    return total


FREE = Latency(sizes_bytes=(1,), seconds=(0.0,))
"""The network of a co-located job."""


def saved_per_block(
    cpu: tuple[float, float], blocking: tuple[float, float] = (0.0, 0.0), waiting: tuple[float, float] = (0.0, 0.0)
) -> float:
    """Seconds saved in every tau seconds, below 0 if lost (eq 9); each pair is the time (here, there)."""
    return (cpu[0] - cpu[1]) + (blocking[0] - blocking[1]) + (waiting[0] - waiting[1])


def saved(per_block_s: float, actual_s: float, tau_s: float) -> float:
    """Seconds saved over a run that takes `actual_s` here (eq 10)."""
    return per_block_s * (actual_s / tau_s)


def accuracy(predicted_s: float, actual_s: float) -> float:
    """[Atif2011]'s "% Acc": the smaller of the two times in percent of the larger; both above 0."""
    return 100.0 * min(predicted_s, actual_s) / max(predicted_s, actual_s)


def required_bytes(profile: Profile, node_memory_bytes: float = 0.0) -> float:
    """Memory that a process wants: what it has, or if it thrashes on a node of that memory all of that memory and its
    swap space and a tenth ([Atif2011] section 6)."""
    if profile.swap_bytes == 0:
        return float(profile.memory_bytes)
    return (max(profile.memory_bytes, node_memory_bytes) + profile.swap_bytes) * (1 + TOLERANCE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """What a profile says of C sub-clusters. Times are seconds in tau; axis 1 is (spread over machines, co-located)."""

    job: str
    clusters: tuple[str, ...]
    here: int
    """Index of the sub-cluster where the profile was taken."""
    colocated: bool
    tau_s: float
    cpu_s: Floats
    """(C,) t^P"""
    blocking_s: Floats
    """(C, 2) t^B"""
    waiting_s: Floats
    """(C, 2) t^N"""
    saved_s: Floats
    """(C, 2) what every tau seconds save (eq 9), below 0 if they lose; 0 where it is; NaN where nothing is known."""
    time_s: Floats
    """(C, 2) seconds that what takes tau_s here would take there."""
    required_bytes: float
    """Memory that a process wants."""
    swapping: bool
    """It is thrashing: the times say little ([Atif2011] section 5.4)."""

    @property
    def speeds(self) -> Floats:
        """(C, 2) progress per second relative to that where it is, which is 1; NaN where nothing is known."""
        return self.tau_s / self.time_s

    def saved_of(self, actual_s: float) -> Floats:
        """(C, 2) seconds saved over a run that takes `actual_s` where it is (eq 10)."""
        return saved(1.0, actual_s, self.tau_s) * self.saved_s


def predict(profile: Profile, farm: Hardware) -> Prediction:
    """What the job of `profile` would save on each sub-cluster of `farm`, spread and co-located.

    NaN where a network that matters was not measured. Raises InputError where the profile's sub-cluster is not of the
    farm, or an event has no cycles. Equation 9 leaves time that is neither events nor messages as it is. A profile
    whose events and messages explain more than tau (cycles that overlap) has none of that, and its times, and what is
    saved, are in proportion to what they explain.
    """
    here = farm.index(profile.cluster)
    side = COLOCATED if profile.colocated else SPREAD
    clusters = farm.partitions
    network = FREE if profile.colocated else clusters[here].latency
    count = len(clusters)
    cpu = np.array([cpu_time(profile.counters, cluster) for cluster in clusters])
    blocking, waiting = np.zeros((count, 2)), np.zeros((count, 2))
    for c, cluster in enumerate(clusters):
        blocking[c, SPREAD] = blocking_time(profile.blocking, cluster.latency)
        waiting[c, SPREAD] = non_blocking_time(profile.waiting, network, cluster.latency)
    waiting[here, side] = 0.0 if profile.colocated else waiting_time(profile.waiting)
    base = cpu[here] + blocking[here, side] + waiting[here, side]
    saved_s = _saved(cpu, blocking, waiting, here, side)
    if base > profile.tau_s:
        saved_s *= profile.tau_s / base
    time_s = profile.tau_s - saved_s
    saved_s[here, side], time_s[here, side] = 0.0, profile.tau_s
    return Prediction(
        job=profile.job,
        clusters=tuple(cluster.name for cluster in clusters),
        here=here,
        colocated=profile.colocated,
        tau_s=profile.tau_s,
        cpu_s=cpu,
        blocking_s=blocking,
        waiting_s=waiting,
        saved_s=saved_s,
        time_s=np.maximum(time_s, _LEAST * profile.tau_s),
        required_bytes=required_bytes(profile, clusters[here].node_memory_bytes),
        swapping=profile.swap_bytes > 0,
    )


def _saved(cpu: Floats, blocking: Floats, waiting: Floats, here: int, side: int) -> Floats:
    """(C, 2) equation 9 for every sub-cluster."""
    result = np.empty_like(blocking)
    for c in range(len(result)):
        for k in (SPREAD, COLOCATED):
            result[c, k] = saved_per_block(
                (float(cpu[here]), float(cpu[c])),
                (float(blocking[here, side]), float(blocking[c, k])),
                (float(waiting[here, side]), float(waiting[c, k])),
            )
    return result
