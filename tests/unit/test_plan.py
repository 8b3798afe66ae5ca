"""Plans: at no instant over a limit, a valid placement wherever they stop, cycles undone by temporary moves."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.model.move_limits import MoveLimits
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Apart, Licensed, Maintenance, Requires, Spread, Together
from dfrs.placement.plan import make_plan
from dfrs.placement.plan_bound import share
from dfrs.placement.plan_document import plan_document
from dfrs.placement.plan_state import NOWHERE, PlanState
from dfrs.runs.validator.plans import check_plan
from dfrs.workloads.files import instance_document
from tests.naive import plans as naive
from tests.plan_cases import random_case

GB = 1e9
ONE_GB_PER_S = MoveLimits(bandwidth_bytes_per_s=GB)


def cluster(need, nodes, rules=(), capacity=1.0, **more):
    """Tasks with needs (memory, CPU) on nodes of 10 GB."""
    return Instance.from_arrays(
        np.full((nodes, 2), capacity),
        np.array(need, dtype=float),
        [True, False],
        resources=[
            Resource(name="memory", kind=Kind.RIGID, bytes_per_node=10 * GB),
            Resource(name="cpu", kind=Kind.FLUID),
        ],
        nodes=[f"h{n + 1}" for n in range(nodes)],
        rules=rules,
        **more,
    )


def planned(instance, present, target, limits=ONE_GB_PER_S, **more):
    """A plan that both checkers accept."""
    plan = make_plan(instance, np.array(present), np.array(target), limits, **more)
    assert naive.problems(instance, plan) == []
    document = json.loads(json.dumps(plan_document(plan, instance)))
    assert check_plan(instance_document(instance), document).problems == []
    return plan


def ways(plan):
    return [(m.task, m.source, m.target, m.temporary) for m in plan.steps]


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_instant_is_over_a_limit_and_every_prefix_is_valid(seed, best_end):
    case = random_case(seed)
    plan = make_plan(case.instance, case.present, case.target, case.limits, best_end=best_end)
    assert naive.problems(case.instance, plan) == []
    document = json.loads(json.dumps(plan_document(plan, case.instance)))
    assert check_plan(instance_document(case.instance), document).problems == []
    assert plan.makespan_bound_s <= plan.makespan_s * (1 + 1e-9)


def test_nothing_to_do():
    plan = planned(cluster([[0.5, 0.5]], 2), [1], [1])
    assert (plan.steps, plan.makespan_s, plan.makespan_bound_s, plan.complete) == ((), 0.0, 0.0, True)


def test_a_node_may_be_full_to_the_last_bit():
    """1 - 0.8 - 0.1 - 0.1 is below 0, in the arithmetic of computers."""
    state = PlanState(cluster([[0.8, 0.5], [0.1, 0.5], [0.1, 0.25]], 1), np.full(3, NOWHERE), None)
    for i in range(3):
        state.apply(((i, NOWHERE, 0),))
    assert state.room[0][0] < 0
    assert state.minimum_yield == pytest.approx(0.8)


def test_two_tasks_exchange_over_a_third_node():
    plan = planned(cluster([[0.6, 0.1], [0.7, 0.1]], 3), [0, 1], [1, 0])
    assert plan.complete
    assert ways(plan) == [(0, 0, 2, True), (1, 1, 0, False), (0, 2, 1, False)]  # the smaller one stands aside
    assert plan.steps[0].reason == "temporary: h1 and h2 exchange"
    assert (plan.bytes, plan.temporary) == (19 * GB, 1)


def test_without_temporary_moves_an_exchange_is_left_behind():
    plan = planned(cluster([[0.6, 0.1], [0.7, 0.1]], 3), [0, 1], [1, 0], not_temporary="stops cost too much")
    assert (plan.steps, plan.complete) == ((), False)
    assert plan.problems[0] == "s0 does not go from h1 to h2: h2 lacks 0.3 of memory, and stops cost too much"


def test_an_exchange_that_has_room_needs_no_temporary_move():
    plan = planned(cluster([[0.4, 0.1], [0.5, 0.1]], 2), [0, 1], [1, 0])
    assert plan.temporary == 0
    assert plan.makespan_s == plan.makespan_bound_s == 5.0


def test_three_tasks_in_a_circle():
    plan = planned(cluster([[0.6, 0.1], [0.55, 0.1], [0.7, 0.1]], 4), [0, 1, 2], [1, 2, 0])
    assert plan.complete
    assert plan.temporary == 1
    assert plan.steps[0].task == 1
    assert plan.steps[0].reason == "temporary: h2, h3 and h1 exchange"


def test_one_room_is_made_by_two_that_stand_aside():
    # s0 (0.8) and the pair s1, s2 (0.4 each) exchange; h3 and h4 have room for one of the pair each.
    instance = cluster([[0.8, 0], [0.4, 0], [0.4, 0], [0.5, 0], [0.5, 0]], 4)
    plan = planned(instance, [0, 1, 1, 2, 3], [1, 0, 0, 2, 3])
    assert plan.complete
    assert plan.temporary == 2
    assert {m.task for m in plan.steps if m.temporary} == {1, 2}


def test_a_task_of_no_concern_stands_aside_and_comes_back():
    # s0 and s1 exchange; neither fits elsewhere, but h1 has room for s1 while s4 is away.
    instance = cluster([[0.5, 0], [0.5, 0], [0.3, 0], [0.6, 0], [0.2, 0]], 3)
    plan = planned(instance, [0, 1, 1, 2, 0], [1, 0, 1, 2, 0])
    assert plan.complete
    assert [m.task for m in plan.steps if m.temporary] == [4]
    assert plan.steps[0].reason == "temporary: makes room on h1 for s1, and comes back"
    assert plan.final.tolist() == [1, 0, 1, 2, 0]


def test_what_is_impossible_is_said_and_the_rest_is_done():
    plan = planned(cluster([[0.6, 0.1], [0.7, 0.1], [0.1, 0.1]], 2), [0, 1, 0], [1, 0, 1])
    assert not plan.complete
    assert ways(plan) == [(2, 0, 1, False)]
    assert plan.problems == (
        "s0 does not go from h1 to h2: h2 lacks 0.4 of memory, and no temporary move was found that helps",
        "s1 does not go from h2 to h1: h1 lacks 0.3 of memory, and no temporary move was found that helps",
    )


# s0 and s1 exchange with s3, which has no room: s0 alone would only crowd h2.
HARMFUL = [[0.1, 0.6], [0.3, 0.01], [0.6, 0.79], [0.4, 0.4], [0.45, 0.6]]


def test_a_plan_that_leaves_tasks_behind_makes_nothing_worse():
    instance, way = cluster(HARMFUL, 2), ([0, 0, 0, 1, 1], [1, 1, 0, 0, 1])
    assert ways(planned(instance, *way)) == [(0, 0, 1, False)]
    plan = planned(instance, *way, best_end=True)
    assert (plan.steps, plan.final.tolist(), plan.complete) == ((), way[0], False)
    assert plan.problems == (
        "s0 does not go from h1 to h2: it gains nothing without the moves that are not possible",
        "s1 does not go from h1 to h2: h2 lacks 0.15 of memory, and no temporary move was found that helps",
        "s3 does not go from h2 to h1: h1 lacks 0.4 of memory, and no temporary move was found that helps",
    )


def test_a_plan_that_leaves_tasks_behind_ends_where_they_are_placed_best():
    instance = cluster([*HARMFUL, [0.9, 0.9], [0.05, 0.9], [0.9, 0.1]], 4)
    way = [0, 0, 0, 1, 1, 2, 2, 3], [1, 1, 0, 0, 1, 2, 3, 3]
    assert {m.task for m in planned(instance, *way).steps} == {0, 6}
    plan = planned(instance, *way, best_end=True)
    assert ways(plan) == [(6, 2, 3, False)]
    assert plan.steps[-1].minimum_yield_after == pytest.approx(1 / 1.4)
    assert len(plan.problems) == 3


def test_a_target_that_breaks_a_rule_is_not_reached():
    instance = cluster([[0.1, 0.1]] * 3, 3, rules=[Apart(("s0", "s1")), Maintenance(("h3",))])
    plan = planned(instance, [0, 1, 0], [1, 1, 2])
    assert plan.problems == (
        "s0 does not go from h1 to h2: apart s0,s1 would be broken, and no temporary move was found that helps",
        "s2 does not go from h1 to h3: it may not be on h3: maintenance nodes=h3",
    )


@pytest.mark.parametrize("seed", range(30))
def test_wherever_it_stops_the_placement_is_valid(seed):
    case = random_case(seed)
    plan = make_plan(case.instance, case.present, case.target, case.limits)
    rules = case.instance.rules.hard_only
    broken = rules.broken(case.present)
    before = naive.load(case.instance, case.present.tolist(), [])
    for end in sorted({m.end_s for m in plan.steps}):
        place = plan.placement_at(end)
        hard = [r for r, rule in enumerate(rules.rules) if rule.price is None]
        assert (rules.broken(place)[hard] <= broken[hard]).all()
        for n, row in enumerate(naive.load(case.instance, place.tolist(), [])):
            for d, value in enumerate(row):
                assert value <= max(case.instance.capacity[n, d], before[n][d]) + 1e-9
    assert (plan.placement_at(np.inf) == plan.final).all()


def test_a_node_over_its_capacity_is_relieved_first():
    instance = cluster([[0.5, 0.1], [0.3, 0.1], [0.4, 0.1], [0.5, 0.9], [0.2, 0.5]], 3)
    present, target = [0, 0, 0, 1, 1], [0, 2, 0, 1, 2]
    plan = planned(instance, present, target, MoveLimits(bandwidth_bytes_per_s=GB, at_once=1))
    assert [m.task for m in plan.steps] == [1, 4]
    assert plan.minimum_yield_before is None
    assert plan.steps[0].reason == "relieves h1 (memory 0.2 over capacity)"
    assert plan.steps[0].minimum_yield_after == pytest.approx(1 / 1.4)
    assert plan.steps[1].reason == "relieves h2 (yield 0.71, the lowest)"


def test_a_rule_is_mended_before_yields_rise():
    instance = cluster([[0.1, 0.1]] * 2 + [[0.1, 0.9]] * 2, 4, rules=[Apart(("s0", "s1"))])
    plan = planned(instance, [0, 0, 1, 1], [0, 2, 1, 3], MoveLimits(bandwidth_bytes_per_s=GB, at_once=1))
    assert [m.task for m in plan.steps] == [1, 3]


def test_what_brings_most_comes_first():
    need = [[0.1, 0.9], [0.1, 0.9], [0.1, 0.6], [0.1, 0.6], [0.1, 0.7], [0.1, 0.7]]
    plan = planned(
        cluster(need, 6), [0, 0, 1, 1, 2, 2], [0, 3, 1, 4, 2, 5], MoveLimits(bandwidth_bytes_per_s=GB, at_once=1)
    )
    assert [m.task for m in plan.steps] == [1, 5, 3]
    assert [m.minimum_yield_after for m in plan.steps] == pytest.approx([1 / 1.4, 1 / 1.2, 1.0])


def test_together_is_one_step_that_lasts_as_long_as_its_longest_move():
    instance = cluster([[0.2, 0.1], [0.4, 0.1]], 2, rules=[Together(("s0", "s1"))])
    plan = planned(instance, [0, 0], [1, 1])
    assert [(m.step, m.start_s, m.end_s) for m in plan.steps] == [(0, 0.0, 4.0)] * 2
    plan = planned(instance, [0, 0], [1, 1], MoveLimits(per_node=1))
    assert plan.problems[0] == "s0 does not go from h1 to h2: per_node is 1, a step of 2 tasks takes 2"


def test_together_stands_aside_as_a_whole():
    instance = cluster([[0.3, 0.1], [0.4, 0.1], [0.9, 0.1]], 3, rules=[Together(("s0", "s1"))])
    plan = planned(instance, [0, 0, 1], [1, 1, 0])
    assert plan.complete
    assert [(m.task, m.target, m.temporary) for m in plan.steps[:2]] == [(0, 2, True), (1, 2, True)]


def test_licensed_tasks_change_nodes_as_one_step():
    instance = cluster([[0.1, 0.1]] * 4, 4, rules=[Licensed(("s*",), at_most=2)])
    plan = planned(instance, [0, 0, 1, 1], [2, 2, 3, 3])
    assert plan.complete


def test_what_depends_on_a_task_moves_with_it():
    instance = cluster([[0.1, 0.1], [0.1, 0.1]], 2, rules=[Requires(("s0",), ("s1",))])
    plan = planned(instance, [0, 0], [1, 1])
    assert plan.complete
    assert [m.step for m in plan.steps] == [0, 0]


def test_tasks_that_are_kept_apart_wait_for_each_other():
    instance = cluster([[0.1, 0.1]] * 2, 3, rules=[Apart(("s0", "s1"))])
    plan = planned(instance, [0, 1], [1, 2])
    assert [(m.task, m.start_s) for m in plan.steps] == [(1, 0.0), (0, 1.0)]


def test_tasks_that_are_to_be_spread_wait_for_each_other():
    instance = cluster([[0.1, 0.1], [0.3, 0.1]], 3, rules=[Spread(("s0", "s1"), at_least=2)])
    plan = planned(instance, [0, 1], [1, 2])
    assert [(m.task, m.start_s) for m in plan.steps] == [(1, 0.0), (0, 3.0)]


def test_a_service_that_is_not_all_placed_yet_counts_whole():
    rules = [Spread(("web",), at_least=2, each=True)]
    instance = cluster([[0.1, 0.1]] * 3, 3, rules=rules, services=["web"], service_of=[0, 0, 0])
    assert planned(instance, [-1, 0, -1], [1, 0, 0]).complete


def test_reasons_of_rules():
    instance = cluster([[0.1, 0.1]] * 3, 3, rules=[Apart(("s0", "s1")), Maintenance(("h3",))])
    plan = planned(instance, [0, 0, 2], [0, 1, 0])
    reasons = {m.task: m.reason for m in plan.steps}
    assert reasons == {1: "keeps s0 and s1 apart", 2: "empties h3 for maintenance"}


def test_limits_on_nodes_and_links_and_the_bound():
    racks = [{"rack": f"r{n // 2}"} for n in range(8)]
    instance = cluster([[0.2, 0.1]] * 4, 8, labels=racks)
    free = planned(instance, [0, 0, 1, 1], [2, 3, 4, 5])
    assert free.makespan_s == free.makespan_bound_s == 2.0
    nodes = planned(instance, [0, 0, 1, 1], [2, 3, 4, 5], MoveLimits(bandwidth_bytes_per_s=GB, per_node=1))
    assert nodes.makespan_s == nodes.makespan_bound_s == 4.0
    link = MoveLimits(bandwidth_bytes_per_s=GB, per_link=1, link_level="rack")
    links = planned(instance, [0, 0, 1, 1], [2, 3, 4, 5], link)
    assert links.makespan_s == links.makespan_bound_s == 8.0
    inside = planned(instance, [0, 0, 2, 4], [1, 1, 3, 5], link)
    assert inside.makespan_s == 2.0


def test_the_bound_on_moves_that_share_slots():
    assert share([], 2) == 0.0
    assert share([3.0, 1.0], 2) == 3.0
    assert share([3.0, 3.0, 3.0], 2) == 6.0
    assert share([4.0, 1.0, 1.0], 2) == 4.0
    assert share([5.0, 4.0, 3.0, 2.0], 2) == 7.0
    assert share([1.0, 1.0, 1.0, 1.0, 1.0], 2) == 3.0


def test_without_sizes_each_move_lasts_one():
    instance = Instance.from_arrays(np.ones((2, 1)), np.full((2, 1), 0.4), [True])
    plan = planned(instance, [0, 1], [1, 0])
    assert (plan.timed, plan.makespan_s, plan.bytes) == (False, 1.0, 0.0)


def test_new_tasks_start_without_time():
    plan = planned(cluster([[0.5, 0.2], [0.5, 0.2]], 2), [-1, 0], [0, 1])
    start = next(m for m in plan.steps if m.task == 0)
    assert (start.source, start.reason, start.start_s, start.end_s, start.bytes) == (-1, "starts", 0.0, 0.0, 0.0)


def test_the_same_seed_gives_the_same_plan():
    case = random_case(9)
    plans = [
        make_plan(case.instance, case.present, case.target, case.limits, rng=np.random.default_rng(3)) for _ in range(2)
    ]
    assert plans[0].steps == plans[1].steps


@pytest.mark.parametrize(
    ("present", "target", "text"),
    [
        ([0], [0, 0], "present has shape (1,): must be (2,), a node for each task"),
        ([0, 3], [0, 0], "present[1] = 3: must be the index of a node, -1 to 1"),
        ([0, 0], [0, -1], "target[1] = -1: must be the index of a node, 0 to 1"),
    ],
)
def test_placements_that_are_none(present, target, text):
    with pytest.raises(InputError) as error:
        make_plan(cluster([[0.1, 0.1]] * 2, 2), np.array(present), np.array(target))
    assert str(error.value) == text
