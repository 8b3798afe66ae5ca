"""Instances from arrays and frames."""

import numpy as np
import polars as pl
import pytest

from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Apart

HOSTS = {"name": ["h1", "h2"], "cpu": [16, 32], "memory": [64, 32], "rack": ["r1", "r2"], "gpu": [None, "a100"]}
MACHINES = {
    "name": ["a", "b", "c"],
    "service": ["x", "x", None],
    "cpu": [4, 2, 8],
    "memory": [4, 8, 16],
    "host": ["h1", None, "h2"],
}


@pytest.mark.parametrize("frame", [pl.DataFrame, dict])
def test_a_frame_of_machines_and_one_of_hosts_are_an_instance(frame) -> None:
    instance = Instance.from_frame(
        frame(MACHINES), frame(HOSTS), rules=[Apart(["x"], level="rack")], unit_bytes={"memory": 2**30}
    )
    assert instance.capacity.tolist() == [[0.5, 1.0], [1.0, 0.5]]
    assert instance.need.tolist() == [[0.125, 0.0625], [0.0625, 0.125], [0.25, 0.25]]
    assert [r.kind for r in instance.resources] == [Kind.FLUID, Kind.RIGID]
    assert (instance.services, instance.service_of.tolist()) == (("x", "c"), [0, 0, 1])
    assert instance.labels == ({"rack": "r1"}, {"rack": "r2", "gpu": "a100"})
    assert instance.task_bytes is not None
    assert instance.task_bytes.tolist() == [4 * 2**30, 8 * 2**30, 16 * 2**30]
    present = instance.placement(frame(MACHINES)["host"])
    assert present.tolist() == [0, -1, 1]
    assert instance.node_names(present) == ["h1", None, "h2"]
    assert instance.rules is not None
    assert len(instance.rules.problems(np.array([0, 0, 1]))) == 1


@pytest.mark.parametrize(
    ("machines", "hosts", "message"),
    [
        ({"name": None}, {}, 'machines: no column "name"'),
        ({"disk": [1, 1, 1]}, {}, 'machines: column "disk": hosts has no such column; must be a resource of both'),
        ({"cpu": [1, None, 1]}, {}, "machines.cpu[1] = None: must be a number"),
        (
            {"service": ["x", "y", "x"]},
            {},
            'machines.service[2] = "x": rows of one service must be adjacent; sort by it',
        ),
        ({}, {"name": ["h", "h"]}, "hosts.name[1] = 'h': must be a name that no other row has"),
        ({}, {"name": ["h"]}, "hosts: must have rows, and as many in each column"),
    ],
)
def test_frames_that_are_not_an_instance_are_refused(machines, hosts, message) -> None:
    def changed(table, by):
        return {k: v for k, v in (table | by).items() if v is not None}

    with pytest.raises(InputError) as refusal:
        Instance.from_frame(changed(MACHINES, machines), changed(HOSTS, hosts))
    assert str(refusal.value) == message


def test_a_host_that_does_not_exist_is_refused() -> None:
    instance = Instance.from_frame(MACHINES, HOSTS)
    with pytest.raises(InputError, match=r'^host\[2\] = "h3": no such node$'):
        instance.placement(["h1", "", "h3"])
    with pytest.raises(InputError, match="must be one for each of 3 tasks"):
        instance.placement(["h1"])


def test_arrays_are_an_instance_with_names_of_their_own() -> None:
    instance = Instance.from_arrays(
        np.ones((3, 2)), np.full((4, 2), 0.3), [True, False], minimum_yield=0.5, labels={"n1": {"rack": "r"}}
    )
    assert (instance.nodes, instance.services) == (("n0", "n1", "n2"), ("s0", "s1", "s2", "s3"))
    assert instance.resources == (Resource(name="r0", kind=Kind.RIGID), Resource(name="r1", kind=Kind.FLUID))
    assert instance.minimum_yield.tolist() == [0.5] * 4
    assert instance.move_cost.tolist() == [1.0] * 4
    assert instance.labels == ({}, {"rack": "r"}, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rigid": [True]}, "rigid has shape (1,): must be (2,) or (4, 2)"),
        ({"need": np.ones(3)}, "need has shape (3,): must have two dimensions"),
        ({"resources": ["cpu"]}, "resources has 1 entries: must be one for each of 2 columns of need"),
        ({"labels": {"x": {}}}, 'labels."x": no such node'),
        ({"labels": [{}]}, "labels has 1 entries: must be one for each of 3 nodes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message) -> None:
    arrays = {"capacity": np.ones((3, 2)), "need": np.full((4, 2), 0.3), "rigid": [True, False]} | change
    with pytest.raises(InputError) as refusal:
        Instance.from_arrays(**arrays)
    assert str(refusal.value) == message
