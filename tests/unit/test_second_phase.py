import numpy as np
import pytest
from hypothesis import assume, given

from dfrs.placement.packing import VECTOR_PACKINGS
from dfrs.placement.second_phase import equal_yields, maximize
from tests import strategies
from tests.cases import make_instance
from tests.checks import SLACK, assert_within_capacity, outcome_or_none
from tests.naive import yields as naive

PHASES = ("none", "average", "average-lp", "max-min")


def packed(instance):
    """The equal yields of some packing of the instance; an instance without one is no example."""
    outcome = outcome_or_none(VECTOR_PACKINGS["VP_FFSUM"], instance)
    assume(outcome is not None and outcome.allocation is not None)
    return outcome.allocation


def free_room(instance, allocation):
    return (instance.capacity - allocation.loads(instance)).tolist()


def lexicographically_at_least(better, worse):
    """Whether sorted `better` is ahead of sorted `worse` at the first place where they differ."""
    for high, low in zip(sorted(better), sorted(worse), strict=True):
        if abs(high - low) > SLACK:
            return high > low
    return True


@given(strategies.parallel_instances)
def test_no_phase_overloads_a_node_moves_a_task_or_takes_from_a_service(instance):
    equal = packed(instance)
    for phase in PHASES:
        raised = maximize(instance, equal, phase)
        assert_within_capacity(instance, raised)
        assert (raised.place == equal.place).all()
        assert (raised.scaled_yields >= equal.scaled_yields - SLACK).all()
        assert (raised.scaled_yields <= 1.0).all()


@given(strategies.parallel_instances)
def test_equal_yields_are_equal_but_for_services_that_want_all_or_nothing(instance):
    place = np.zeros(len(instance.need), dtype=np.int64)
    allocation = equal_yields(instance, place, 0.25)
    assert allocation.scaled_yields.tolist() == [1.0 if low >= 1.0 else 0.25 for low in instance.minimum_yield]


@given(strategies.instances)
def test_raising_the_average_never_lowers_it(instance):
    equal = packed(instance)
    assert maximize(instance, equal, "average").average_yield >= equal.average_yield


@given(strategies.instances)
def test_with_one_fluid_resource_the_greedy_rule_has_the_average_of_the_program(instance):
    """[Stillwell2008] section 3.5 and [Stillwell2010] section 4.4.7 say that the rule is optimal."""
    rigid = np.ones_like(instance.rigid)
    rigid[:, -1] = False
    minimum = instance.minimum_yield
    instance = make_instance(instance.need, capacity=instance.capacity, rigid=rigid, minimum_yield=minimum)
    equal = packed(instance)
    greedy, program = (maximize(instance, equal, phase).average_yield for phase in ("average", "average-lp"))
    assert greedy == pytest.approx(program, abs=1e-5)


def test_of_two_tasks_that_could_have_all_they_need_the_smaller_one_does():
    """Half a CPU: 1 and half for the tasks of 0.25 and 0.5, not 0 and 1."""
    instance = make_instance([[0.1, 0.5], [0.1, 0.25]], capacity=[[1.0, 0.5]])
    equal = equal_yields(instance, np.zeros(2, dtype=np.int64), 0.0)
    for phase in ("average", "average-lp"):
        assert maximize(instance, equal, phase).scaled_yields.tolist() == pytest.approx([0.5, 1.0])


@given(strategies.parallel_instances)
def test_max_min_is_what_exact_water_filling_gives(instance):
    equal = packed(instance)
    raised = maximize(instance, equal, "max-min")
    expected = naive.fill_max_min(
        instance.slope.tolist(),
        free_room(instance, equal),
        equal.place.tolist(),
        instance.service_of.tolist(),
        equal.scaled_yields.tolist(),
    )
    assert raised.scaled_yields == pytest.approx([float(y) for y in expected], abs=1e-5)


@given(strategies.instances)
def test_max_min_is_lexicographically_as_good_as_any_other_phase(instance):
    equal = packed(instance)
    fair = maximize(instance, equal, "max-min").scaled_yields
    for phase in ("none", "average", "average-lp"):
        assert lexicographically_at_least(fair, maximize(instance, equal, phase).scaled_yields)


@given(strategies.parallel_instances)
def test_under_max_min_who_has_less_than_all_is_held_back_by_a_full_resource_nobody_takes_more_of(instance):
    raised = maximize(instance, packed(instance), "max-min")
    free = instance.capacity - raised.loads(instance)
    level = raised.scaled_yields[instance.service_of]
    for j, reached in enumerate(raised.scaled_yields):
        if reached >= 1.0 - SLACK:
            continue
        held_back = False
        for i in np.flatnonzero(instance.service_of == j):
            for d in np.flatnonzero(instance.slope[i] > 0):
                beside = (raised.place == raised.place[i]) & (instance.slope[:, d] > 0)
                held_back |= free[raised.place[i], d] <= SLACK and level[beside].max() <= reached + SLACK
        assert held_back


@given(strategies.parallel_instances)
def test_the_program_gives_at_least_the_average_of_any_other_phase(instance):
    equal = packed(instance)
    best = maximize(instance, equal, "average-lp").average_yield
    for phase in ("none", "average", "max-min"):
        assert best >= maximize(instance, equal, phase).average_yield - SLACK


def test_the_three_phases_by_hand():
    """CPU needs of 1, 0.5 and 0.25 at an equal yield of 0.2 share 0.7 of a CPU; then 2, more than they need."""
    needs = [[0.1, 1.0], [0.1, 0.5], [0.1, 0.25]]
    tight = make_instance(needs, capacity=[[1.0, 0.7]])
    equal = equal_yields(tight, np.zeros(3, dtype=np.int64), 0.2)
    assert maximize(tight, equal, "none").scaled_yields.tolist() == [0.2, 0.2, 0.2]
    assert maximize(tight, equal, "average").scaled_yields.tolist() == pytest.approx([0.2, 0.5, 1.0])
    assert maximize(tight, equal, "max-min").scaled_yields.tolist() == pytest.approx([0.4, 0.4, 0.4])
    roomy = make_instance(needs, capacity=[[1.0, 2.0]])
    for phase in PHASES[1:]:
        assert maximize(roomy, equal, phase).scaled_yields.tolist() == [1.0, 1.0, 1.0]


def test_all_tasks_of_a_service_share_the_yield_of_the_most_crowded_one():
    """Service 0 has a task beside service 1 and one alone; both stop at the yield the first one reaches."""
    instance = make_instance([[0.1, 1.0], [0.1, 1.0], [0.1, 1.0]], capacity=[[1.0, 1.0]] * 2, service_of=[0, 0, 1])
    equal = equal_yields(instance, np.array([0, 1, 0]), 0.25)
    raised = maximize(instance, equal, "max-min")
    assert raised.scaled_yields.tolist() == pytest.approx([0.5, 0.5])
