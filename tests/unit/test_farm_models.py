"""Farms, latencies and profiles: what they refuse, and how a farm numbers its nodes ([Atif2011] 4, 5, 7.3.1)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.model.hardware import Hardware, HardwareView, Latency, Partition, Profile, Waits
from dfrs_reproduction.atif2011.programs import arrive_f

SIZES = st.lists(st.integers(1, 2**40), min_size=1, max_size=12, unique=True).map(sorted)


@st.composite
def latencies(draw: st.DrawFn) -> Latency:
    sizes = draw(SIZES)
    seconds = draw(st.lists(st.floats(1e-7, 100) | st.just(0.0), min_size=len(sizes), max_size=len(sizes)))
    return Latency(sizes_bytes=tuple(sizes), seconds=tuple(seconds))


def sub_cluster(**changes: object) -> Partition:
    fields: dict[str, object] = {
        "name": "A",
        "machines": 2,
        "cores": 4,
        "frequency_hz": 2.2e9,
        "cycles": {"flop": 2.5},
        "latency": None,
        "node_memory_bytes": 2**29,
        "machine_memory_bytes": 2**32,
    }
    return Partition(**(fields | changes))  # type: ignore[arg-type]


@given(latencies(), st.data())
def test_latency_is_that_of_a_nearest_size(latency: Latency, data: st.DataObject):
    size = data.draw(st.floats(0, latency.sizes_bytes[-1]))
    nearest = min(abs(s - size) for s in latency.sizes_bytes)
    at = [t for s, t in zip(latency.sizes_bytes, latency.seconds, strict=True) if abs(s - size) == nearest]
    assert latency.at(size) == at[-1]  # of two at the same distance, the larger


@given(latencies(), st.floats(0, 1e13), st.floats(0, 1e13))
def test_latency_never_falls_beyond_the_largest_size(latency: Latency, more: float, yet_more: float):
    last, value = latency.sizes_bytes[-1], latency.seconds[-1]
    first, second = latency.at(last + min(more, yet_more)), latency.at(last + max(more, yet_more))
    assert value <= first * (1 + 1e-12)
    assert first <= second * (1 + 1e-12)


@given(latencies())
def test_beyond_the_largest_size_the_last_line_goes_on(latency: Latency):
    sizes, seconds = latency.sizes_bytes, latency.seconds
    step, rise = (sizes[-1] - sizes[-2], seconds[-1] - seconds[-2]) if len(sizes) > 1 else (sizes[0], seconds[0])
    assert latency.at(sizes[-1] + step) == pytest.approx(seconds[-1] + max(rise, 0.0))
    assert latency.at(sizes[-1] + 3 * step) == pytest.approx(seconds[-1] + 3 * max(rise, 0.0))


def test_latency_halfway_is_that_of_the_larger_size():
    latency = Latency(sizes_bytes=(10, 20), seconds=(1.0, 2.0))
    assert [latency.at(s) for s in (0, 10, 14.9, 15, 20, 30)] == [1.0, 1.0, 1.0, 2.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("sizes", "seconds", "message"),
    [
        ((), (), r"sizes_bytes = \[\]: must have at least one size"),
        ((1, 1), (0.1, 0.2), r"sizes_bytes\[1\] = 1: sizes must ascend, it comes after 1"),
        ((2, 1), (0.1, 0.2), r"sizes_bytes\[1\] = 1: sizes must ascend"),
        ((0,), (0.1,), r"sizes_bytes\[0\] = 0: must be above 0"),
        ((1, 2), (0.1,), "seconds = 1 values: must be one a size, 2"),
        ((1,), (-0.1,), r"seconds\[0\] = -0.1: must be at least 0"),
        ((1,), (math.nan,), r"seconds\[0\] = nan: must be a finite number"),
        ((1,), (1e300,), r"seconds\[0\] = 1e\+300: must be at most 1e\+18"),
        ((1,), (1e-300,), r"seconds\[0\] = 1e-300: must be 0 or at least 1e-12"),
    ],
)
def test_latency_refuses(sizes: tuple[int, ...], seconds: tuple[float, ...], message: str):
    with pytest.raises(InputError, match=message):
        Latency(sizes_bytes=sizes, seconds=seconds)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name = '': must not be empty"),
        ({"machines": 0}, "machines = 0: must be at least 1"),
        ({"cores": 0}, "cores = 0: must be at least 1"),
        ({"frequency_hz": -1.0}, "frequency_hz = -1.0: must be at least 1"),
        ({"frequency_hz": math.inf}, "frequency_hz = inf: must be a finite number"),
        ({"cycles": {"flop": -2.0}}, "cycles.flop = -2.0: must be at least 0"),
        ({"node_memory_bytes": 0}, "node_memory_bytes = 0: must be above 0"),
        ({"machine_memory_bytes": 2**20}, "machine_memory_bytes = 1048576: must be at least 5.36871e"),
    ],
)
def test_sub_cluster_refuses(changes: dict[str, object], message: str):
    with pytest.raises(InputError, match=message):
        sub_cluster(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tau_s": 0.0}, "tau_s = 0.0: must be above 0"),
        ({"processes": 0}, "processes = 0: must be at least 1"),
        ({"counters": {"flop": math.nan}}, "counters.flop = nan: must be a finite number"),
        ({"blocking": {0: 1.0}}, "blocking.0 = 0: must be above 0"),
        ({"blocking": {8: -1.0}}, "blocking.8 = -1.0: must be at least 0"),
        ({"waiting": {-8: Waits(count=1, mean_s=1)}}, "waiting.-8 = -8: must be above 0"),
        ({"swap_bytes": -1}, "swap_bytes = -1: must be at least 0"),
    ],
)
def test_profile_refuses(changes: dict[str, object], message: str):
    fields: dict[str, object] = {"job": "", "cluster": "A", "tau_s": 50.0, "processes": 8, "counters": {}}
    with pytest.raises(InputError, match=message):
        Profile(**(fields | changes))  # type: ignore[arg-type]


def test_farm_refuses():
    with pytest.raises(InputError, match="must have at least one sub-cluster"):
        Hardware(name="", partitions=())
    with pytest.raises(InputError, match=r"clusters\[1\].name = A: two sub-clusters have this name"):
        Hardware(name="", partitions=(sub_cluster(), sub_cluster()))
    with pytest.raises(InputError, match="8000000 nodes: must be at most 1000000"):
        Hardware(name="", partitions=(sub_cluster(machines=2_000_000),))
    with pytest.raises(InputError, match="cluster = Z: the farm x has only A"):
        Hardware(name="x", partitions=(sub_cluster(),)).index("Z")


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=5))
def test_nodes_are_numbered_machine_by_machine(shape: list[tuple[int, int]]):
    clusters = tuple(sub_cluster(name=chr(65 + k), machines=m, cores=c) for k, (m, c) in enumerate(shape))
    farm = Hardware(name="", partitions=clusters)
    expected = [(k, f"{chr(65 + k)}{i + 1}.{j}") for k, (m, c) in enumerate(shape) for i in range(m) for j in range(c)]
    assert farm.nodes == len(expected)
    assert list(zip(farm.partition.tolist(), farm.node_names, strict=True)) == expected
    machines = [name.split(".")[0] for name in farm.node_names]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(machines))}
    assert farm.machine.tolist() == [numbers[name] for name in machines]
    assert not farm.partition.flags.writeable
    assert not farm.machine.flags.writeable


def test_the_farm_of_the_document():
    farm = arrive_f()
    assert [(c.name, c.machines, c.cores) for c in farm.partitions] == [
        ("A", 2, 4),
        ("B", 2, 4),
        ("C", 2, 4),
        ("D", 4, 2),
    ]
    assert farm.nodes == 32
    assert farm.node_names[:5] == ("A1.0", "A1.1", "A1.2", "A1.3", "A2.0")
    assert [c.name for c in arrive_f(without="C").partitions] == ["A", "B", "D"]
    assert arrive_f(without="C").nodes == 24


def test_view():
    farm = arrive_f()
    view = HardwareView(
        partition=farm.partition,
        machine=farm.machine,
        node_memory=farm.node_memory_bytes / farm.node_memory_bytes[0],
        speed=np.array([[[np.nan] * 2] * 4, [[np.nan] * 2] * 3 + [[1.0, np.nan]]]),
        required=np.array([np.nan, 0.5]),
        swapping=np.array([False, True]),
    )
    assert view.partitions == 4
    assert view.known.tolist() == [False, True]
    assert view.nodes_of(3).tolist() == list(range(24, 32))
    assert view.machines_of(3).tolist() == [6, 7, 8, 9]
    assert view.colocated(np.array([0, 3]))
    assert not view.colocated(np.array([3, 4]))
    assert view.memory_of(0) == 1.0
    assert view.memory_of(3) == pytest.approx(512 / 896)
    assert view.memory_of(9) == 0.0
