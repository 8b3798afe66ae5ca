from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from dfrs.model.allocation import Allocation, Outcome, Status
from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.model.resources import Kind, Resource
from tests import strategies
from tests.cases import make_instance

RESOURCES = (Resource(name="memory", kind=Kind.RIGID), Resource(name="cpu", kind=Kind.FLUID))


def valid_arrays():
    return {
        "resources": RESOURCES,
        "nodes": ("n0", "n1"),
        "capacity": np.ones((2, 2)),
        "services": ("s0", "s1"),
        "minimum_yield": np.array([0.0, 0.5]),
        "service_of": np.array([0, 0, 1]),
        "need": np.array([[0.25, 0.5], [0.25, 0.5], [0.5, 1.0]]),
        "rigid": np.array([[True, False]] * 3),
        "move_cost": np.ones(3),
    }


def with_value(array, index, value):
    changed = array.copy()
    changed[index] = value
    return changed


@pytest.mark.parametrize("value", [-0.5, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("label", "index"),
    [("capacity", (1, 0)), ("need", (2, 1)), ("minimum_yield", (1,)), ("move_cost", (0,))],
)
def test_a_value_out_of_range_is_refused_by_index_value_and_rule(label, index, value):
    arrays = valid_arrays()
    arrays[label] = with_value(arrays[label], index, value)
    with pytest.raises(InputError) as refusal:
        Instance(**arrays)
    assert str(refusal.value) == f"{label}{list(index)} = {value}: must be a finite number of at least 0"


def test_a_minimum_yield_above_one_is_refused_by_index_value_and_rule():
    arrays = valid_arrays() | {"minimum_yield": np.array([0.0, 1.25])}
    with pytest.raises(InputError, match=r"^minimum_yield\[1\] = 1\.25: must be at most 1$"):
        Instance(**arrays)


@pytest.mark.parametrize(
    ("label", "array", "shape"),
    [
        ("capacity", np.ones((2, 3)), "(2, 2)"),
        ("capacity", np.ones((3, 2)), "(2, 2)"),
        ("minimum_yield", np.zeros(3), "(2,)"),
        ("service_of", np.array([0, 1]), "(3,)"),
        ("rigid", np.array([[True, False]]), "(3, 2)"),
        ("move_cost", np.ones(2), "(3,)"),
    ],
)
def test_a_wrong_shape_is_refused_by_name_shape_and_rule(label, array, shape):
    with pytest.raises(InputError) as refusal:
        Instance(**(valid_arrays() | {label: array}))
    assert str(refusal.value) == f"{label} has shape {array.shape}: must be {shape}"


def test_needs_must_have_a_column_for_each_resource():
    with pytest.raises(InputError, match="need has 2 columns: must be one for each of 1 resources"):
        Instance(**(valid_arrays() | {"resources": RESOURCES[:1]}))


def test_an_instance_without_nodes_or_services_is_refused():
    with pytest.raises(InputError, match="at least one node and one service"):
        Instance(**(valid_arrays() | {"nodes": (), "capacity": np.ones((0, 2))}))
    nothing = {
        "services": (),
        "minimum_yield": np.zeros(0),
        "service_of": np.zeros(0, dtype=np.int64),
        "need": np.zeros((0, 2)),
        "rigid": np.zeros((0, 2), dtype=bool),
        "move_cost": np.zeros(0),
    }
    with pytest.raises(InputError, match="at least one node and one service"):
        Instance(**(valid_arrays() | nothing))


def test_zero_is_a_valid_need_capacity_and_cost():
    arrays = valid_arrays()
    for label in ("need", "capacity", "move_cost"):
        arrays[label] = np.zeros_like(arrays[label])
    assert (Instance(**arrays).base == 0).all()


def test_arrays_can_no_longer_be_written():
    instance = Instance(**valid_arrays())
    for label in ("capacity", "minimum_yield", "service_of", "need", "rigid", "move_cost", "base", "slope"):
        array = getattr(instance, label)
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[(0,) * array.ndim] = 0


def test_fields_can_no_longer_be_set():
    instance = Instance(**valid_arrays())
    with pytest.raises(AttributeError):
        instance.name = "other"


@given(strategies.parallel_instances)
def test_the_size_at_full_yield_is_the_need(instance):
    assert instance.base + instance.slope == pytest.approx(instance.need, abs=1e-12)


@given(strategies.parallel_instances)
def test_the_size_without_yield_is_the_requirement_and_the_constrained_need(instance):
    for i, j in enumerate(instance.service_of):
        for d in range(len(instance.resources)):
            need = instance.need[i, d]
            assert instance.base[i, d] == (need if instance.rigid[i, d] else need * instance.minimum_yield[j])
            assert instance.slope[i, d] >= 0.0


def test_the_constrained_need_of_the_worked_example():
    """[Stillwell2010] section 4.1: a CPU need of 0.6 with a QoS constraint of 0.4 is a constrained need of 0.24."""
    instance = make_instance([[0.5, 0.6]], capacity=[[1.0, 1.0]], minimum_yield=[0.4])
    assert instance.base[0].tolist() == pytest.approx([0.5, 0.24])
    assert instance.slope[0].tolist() == pytest.approx([0.0, 0.36])


def test_the_scaled_yields_of_the_worked_example():
    """[Stillwell2010] section 4.1: with minimums 0.2 and 0.4, yields 0.8 and 0.85 are both a scaled yield of 0.75."""
    instance = make_instance([[0.1, 0.5]] * 2, capacity=[[1.0, 1.0]], minimum_yield=[0.2, 0.4])
    allocation = Allocation(place=np.zeros(2, dtype=np.int64), scaled_yields=np.array([0.75, 0.75]))
    assert allocation.yields(instance).tolist() == pytest.approx([0.8, 0.85])


def test_an_allocation_adds_up_what_its_tasks_are_given():
    instance = Instance(**valid_arrays())
    allocation = Allocation(place=np.array([0, 1, 1]), scaled_yields=np.array([0.5, 0.25]))
    assert allocation.shares(instance).tolist() == [[0.25, 0.25], [0.25, 0.25], [0.5, 0.625]]
    assert allocation.loads(instance).tolist() == [[0.25, 0.25], [0.75, 0.875]]
    assert allocation.minimum_yield == 0.25
    assert allocation.average_yield == 0.375


def test_utilization_counts_only_what_is_not_purely_rigid():
    instance = Instance(**valid_arrays())
    allocation = Allocation(place=np.array([0, 1, 1]), scaled_yields=np.array([0.5, 0.25]))
    assert allocation.utilization(instance) == 1.125 / 2
    rigid = make_instance([[0.5, 0.5]], capacity=[[1.0, 1.0]], kinds=[Kind.RIGID] * 2)
    assert Allocation(place=np.zeros(1, dtype=np.int64), scaled_yields=np.ones(1)).utilization(rigid) == 0.0


def test_lexicographic_order_takes_rigid_resources_first():
    kinds = [Kind.FLUID, Kind.RIGID, Kind.FLUID, Kind.RIGID]
    instance = make_instance([[0.1] * 4], capacity=[[1.0] * 4], kinds=kinds)
    assert instance.lexicographic.tolist() == [1, 3, 0, 2]


def test_tasks_are_counted_by_service():
    assert Instance(**valid_arrays()).tasks_per_service.tolist() == [2, 1]


def test_nodes_are_equal_only_if_all_their_capacities_are():
    arrays = valid_arrays()
    assert Instance(**arrays).equal_nodes
    assert not Instance(**(arrays | {"capacity": np.array([[1.0, 1.0], [1.0, 0.5]])})).equal_nodes


def test_the_bytes_of_a_task_are_those_of_resources_that_have_a_size():
    memory = replace(RESOURCES[0], bytes_per_node=1024.0)
    instance = Instance(**(valid_arrays() | {"resources": (memory, RESOURCES[1])}))
    assert instance.task_bytes is not None
    assert instance.task_bytes.tolist() == [256.0, 256.0, 512.0]
    assert Instance(**valid_arrays()).task_bytes is None


def test_the_same_services_can_be_put_on_fewer_nodes():
    arrays = valid_arrays() | {"capacity": np.array([[1.0, 2.0], [3.0, 4.0]])}
    part = Instance(**arrays).on_nodes(np.array([1]))
    assert part.nodes == ("n1",)
    assert part.capacity.tolist() == [[3.0, 4.0]]
    assert part.services == arrays["services"]
    assert (part.need == arrays["need"]).all()


@pytest.mark.parametrize(
    ("reached", "bound", "gap"), [(0.75, 1.0, 0.25), (0.5, 0.5, 0.0), (0.0, 0.0, 0.0), (None, 1.0, None)]
)
def test_the_gap_is_the_distance_relative_to_the_bound(reached, bound, gap):
    outcome = Outcome(algorithm="X", status=Status.FEASIBLE, allocation=None, minimum_yield=reached, bound=bound)
    assert outcome.gap == gap
