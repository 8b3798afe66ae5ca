"""How long NAS benchmarks take on the sub-clusters A to D, relative to A, and what ARRIVE-F would predict.

The published times are few: a job's time on A in the appendix, its actual times on one or two sub-clusters in Tables 2,
5, 7 to 9, 11 to 14, 16 and 18 to 20, and words. A factor is, in this order, a quotient of two actual times; an actual
time over the expected one, which is of A (section 8); the solution of a run that was partly here and partly there; or a
model of the missing part from these. Every factor says which (`factor`); docs/explanation/farm-models.md lists them.

The model splits the time on A at 8 processes, spread, into a part m8 in messages and the rest. Messages of an iteration
take as long at p processes as at 8, so m(p) = m8 * (seconds an iteration at 8) / (at p); the network of C multiplies
them; where a job is co-located they cost nothing. CPU time is multiplied by a factor of the CPU, `_cpu`.

The reference of up to 4 processes is A co-located, where the scheduler puts them (section 9); of more it is A spread.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs_reproduction.atif2011 import nas_data as data
from dfrs_reproduction.atif2011.nas_data import MODELLED, Factor

BENCHMARKS = ("CG", "EP", "FT", "IS", "LU", "MG")
CLASSES = ("A", "B")
CLUSTERS = ("A", "B", "C", "D")
MOST_PROCESSES = 8
CORES = 4
"""Nodes of a machine of A, B and C: so many processes can be co-located there."""

THRASH_FACTOR = data.THRASH_FACTOR
"""Time of a job that has not the memory it needs, relative to its time on A (Table 11)."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A benchmark, its class and its processes."""

    benchmark: str
    class_: str
    processes: int


@cache
def factor(benchmark: str, class_: str, processes: int, cluster: str, colocated: bool) -> Factor:
    """Time on a sub-cluster relative to A, with its provenance.

    Jobs of one process send no messages: both sides are equal. Where co-location is impossible (more processes than a
    machine has nodes) the value is what it would be without messages. Raises InputError for other names.
    """
    _check(benchmark, class_, processes, cluster)
    kind = _Kind(benchmark, class_, processes)
    if cluster == "A" and colocated == (processes <= CORES):
        return Factor(1.0, data.REFERENCE, "by definition: the expected times are of A (section 8)")
    pinned = data.pinned(benchmark, class_, processes, cluster, colocated)
    return pinned if pinned is not None else _modelled(kind, cluster, colocated)


def time_factor(benchmark: str, class_: str, processes: int, cluster: str, colocated: bool) -> float:
    """Time on a sub-cluster divided by the expected time, which is of A; see `factor`."""
    return factor(benchmark, class_, processes, cluster, colocated).value


def speeds(benchmark: str, class_: str, processes: int, clusters: tuple[str, ...] = CLUSTERS) -> Floats:
    """(C, 2) progress per second, 1 on A; axis 1 is (spread, co-located). Not of a job that thrashes."""
    return np.array(
        [[1 / time_factor(benchmark, class_, processes, name, side) for side in (False, True)] for name in clusters]
    )


def predicted_speeds(
    benchmark: str,
    class_: str,
    processes: int,
    cluster: str,
    colocated: bool,
    clusters: tuple[str, ...] = CLUSTERS,
) -> Floats:
    """(C, 2) progress per second that ARRIVE-F predicts from a profile taken on `cluster`, 1 / time_factor there.

    A predicted time is the true one times `prediction_error`; what is predicted of where the job is, is true.
    """
    here = (cluster, colocated)
    return np.array(
        [
            [
                1
                / time_factor(benchmark, class_, processes, name, side)
                / prediction_error(benchmark, processes, here, (name, side))
                for side in (False, True)
            ]
            for name in clusters
        ]
    )


def prediction_error(benchmark: str, processes: int, here: tuple[str, bool], there: tuple[str, bool]) -> float:
    """Predicted over actual time on `there` of a profile taken on `here`; each is (sub-cluster, co-located).

    CG, FT and LU between A, B and C: Table 2 has A to B and Table 5 has C to B; reversed they are the reciprocal, since
    the same events are counted and the same two costs compared, and A to C is the product. Of the network only where
    there are messages. Elsewhere the mean of the eight published accuracies, and the time is predicted too long, as six
    of the eight are. 1 where hardware and messages are the same.
    """
    hardware = {"A": "A", "B": "B", "C": "B", "D": "D"}
    slow = [name == "C" and not side and processes > 1 and benchmark != "EP" for name, side in (here, there)]
    same_network = slow[0] == slow[1]
    if here[0] == there[0] or (hardware[here[0]] == hardware[there[0]] and same_network):
        return 1.0
    if benchmark not in data.CPU_ERROR or "D" in (here[0], there[0]):
        return 1 / data.MEAN_ACCURACY
    step = (hardware[there[0]] == "B") - (hardware[here[0]] == "B")
    return data.CPU_ERROR[benchmark] ** step * data.NETWORK_ERROR[benchmark] ** (slow[0] - slow[1])


def memory_bytes(benchmark: str, class_: str, processes: int) -> int:
    """Memory of a process. FT.B.4 needs 750 MB (section 8.1); the rest is modelled from the arrays of NPB."""
    _check(benchmark, class_, processes, "A")
    shared, own = data.MEMORY_MIB[benchmark, class_]
    return math.ceil(shared / processes + own) * 2**20


def expected_s(benchmark: str, class_: str, processes: int, iterations: int) -> float:
    """Seconds on A by the appendix's seconds an iteration; NaN where it has none, and for EP, without any."""
    _check(benchmark, class_, processes, "A")
    per = data.ITERATION_S.get((benchmark, class_), {}).get(processes, math.nan)
    return per * iterations


@cache
def message_part(benchmark: str, class_: str, processes: int) -> float:
    """m(p): time in messages over GigE, relative to the reference time on A."""
    if benchmark == "EP" or processes == 1:
        return 0.0
    per = data.ITERATION_S[benchmark, class_]
    points = sorted(p for p in per if p > 1)
    parts = [data.MESSAGES_8[benchmark, class_].value * per[8] / per[p] for p in points]
    return float(np.interp(math.log2(processes), [math.log2(p) for p in points], parts))


def _cpu(kind: _Kind, cluster: str) -> Factor:
    """CPU time relative to A's: interpolated in log2 of the processes between those that are known."""
    if cluster == "A":
        return Factor(1.0, data.REFERENCE, "A")
    points = data.CPU["B" if cluster == "C" else cluster, kind.benchmark, kind.class_]
    at = sorted(points)
    if kind.processes in points:
        return points[kind.processes]
    value = float(np.interp(math.log2(kind.processes), [math.log2(p) for p in at], [points[p].value for p in at]))
    near = min(at, key=lambda p: (abs(math.log2(p) - math.log2(kind.processes)), p))
    words = "interpolated" if at[0] < kind.processes < at[-1] else "as"
    names = f"{at[0]} and {at[-1]}" if words == "interpolated" else f"{near}"
    return Factor(value, MODELLED, f"CPU {words} at {names} processes: {points[near].source}")


def _modelled(kind: _Kind, cluster: str, colocated: bool) -> Factor:
    """CPU part and messages, where no factor was published."""
    messages = message_part(kind.benchmark, kind.class_, kind.processes)
    cpu = _cpu(kind, cluster)
    weight = 1.0 if kind.processes <= CORES else 1.0 - messages
    if colocated or messages == 0:
        basis = cpu.basis if weight == 1.0 else MODELLED
        return Factor(weight * cpu.value, basis, f"CPU part: {cpu.source}")
    network = data.NETWORK_RATIO[kind.benchmark] if cluster == "C" else 1.0
    source = f"CPU part: {cpu.source}; messages {messages:.3f}" + (f" times {network:.3g}" if cluster == "C" else "")
    return Factor(weight * cpu.value + network * messages, MODELLED, source)


def _check(benchmark: str, class_: str, processes: int, cluster: str) -> None:
    if benchmark not in BENCHMARKS:
        raise InputError(f"benchmark = {benchmark}: must be one of {', '.join(BENCHMARKS)}")
    if class_ not in CLASSES:
        raise InputError(f"class = {class_}: must be A or B")
    if not 1 <= processes <= MOST_PROCESSES:
        raise InputError(f"processes = {processes}: must be from 1 to {MOST_PROCESSES}")
    if cluster not in CLUSTERS:
        raise InputError(f"cluster = {cluster}: must be one of {', '.join(CLUSTERS)}")
