"""ADAPT: within its budget, below its bound, never worse than staying or than with less time, optimal where small."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs import InputError, Instance, Status, allocate, generate_machines, generate_services
from dfrs.kernels.rules import broken
from dfrs.model.move_limits import MoveLimits
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Apart, Maintenance, Never, Rules, Together
from dfrs.placement.adapt import Adapt
from dfrs.placement.bounds import upper_bound
from dfrs.placement.budget import Budget
from dfrs.placement.budget_bound import Departures
from dfrs.placement.milp import AdaptExact
from dfrs.placement.outcome import placement_yield
from dfrs.placement.registry import Options
from dfrs.placement.solver import LinearProgram
from tests.naive.brute import best_placement
from tests.rule_cases import random_instance
from tests.strategies import instances


def adapt(instance, present, rounds=4, **limits):
    options = Options(present=present, budget=Budget(**limits), rounds=rounds)
    return allocate(instance, "ADAPT", options=options, second_phase="none")


def departures(instance, present, budget):
    return Departures(
        instance=instance,
        present=present,
        leaving=np.zeros(len(present), dtype=np.bool_),
        costs=np.where(present >= 0, budget.costs(instance), 0.0),
        amounts=budget.amounts,
    )


@pytest.fixture(scope="module")
def running():
    instance = generate_services(nodes=12, services=40, slack=0.4, seed=2)
    outcome = allocate(instance, "GREEDYLIGHT")
    assert outcome.allocation is not None
    return instance, outcome.allocation.place


@pytest.fixture(scope="module")
def cluster():
    return generate_machines(nodes=30, machines=400, seed=3)


@pytest.mark.parametrize("moves", [0, 1, 3, 10, 40])
def test_never_worse_than_staying_and_never_over_budget(running, moves):
    instance, present = running
    outcome = adapt(instance, present, moves=moves)
    assert outcome.allocation is not None
    assert outcome.minimum_yield is not None
    assert placement_yield(instance, present) <= outcome.minimum_yield <= outcome.bound
    assert (outcome.allocation.place != present).sum() <= moves
    assert outcome.details["moves"] == (outcome.allocation.place != present).sum()
    assert outcome.details["moves_needed"] <= outcome.details["moves"]


def test_a_large_budget_gives_what_packings_give(running):
    instance, present = running
    packed = allocate(instance, "VP_BEST").minimum_yield
    outcome = adapt(instance, present, rounds=100, moves=1_000)
    assert packed is not None
    assert outcome.minimum_yield is not None
    assert outcome.minimum_yield >= packed


@pytest.mark.parametrize("moves", [5, 20, 60])
def test_machines_come_near_the_bound_and_no_move_is_needless(cluster, moves):
    instance, present = cluster
    outcome = adapt(instance, present, moves=moves)
    assert outcome.allocation is not None
    assert outcome.minimum_yield is not None
    assert outcome.minimum_yield >= 0.97 * outcome.bound
    place = outcome.allocation.place
    for i in np.flatnonzero(place != present):
        home = place.copy()
        home[i] = present[i]
        assert placement_yield(instance, home) < outcome.minimum_yield - 1e-12


def test_more_rounds_are_never_worse_and_repeat_to_the_bit(cluster):
    instance, present = cluster
    last = -1.0
    for rounds in (1, 2, 5, 20, 60):
        one, other = (adapt(instance, present, rounds=rounds, moves=150) for _ in range(2))
        assert one.minimum_yield == other.minimum_yield
        assert one.allocation is not None
        assert other.allocation is not None
        assert np.array_equal(one.allocation.place, other.allocation.place)
        assert one.minimum_yield is not None
        assert one.minimum_yield >= last - 1e-9
        last = one.minimum_yield


def test_several_budgets_are_kept_at_once(cluster):
    instance, present = cluster
    instance = replace(instance, move_cost=np.random.default_rng(1).integers(1, 10, 400) / 2)
    alone = {}
    for limits in (
        {"moves": 30},
        {"bytes": 200 * 2**30},
        {"cost": 40.0},
        {"seconds": 150.0, "bandwidth_bytes_per_s": 1e9},
        {"moves": 30, "bytes": 200 * 2**30, "cost": 40.0, "seconds": 150.0, "bandwidth_bytes_per_s": 1e9},
    ):
        outcome = adapt(instance, present, **limits)
        assert outcome.minimum_yield is not None
        spent = outcome.details["spent"]
        assert isinstance(spent, dict)
        for unit, amount in spent.items():
            assert amount <= limits[unit] * (1 + 1e-9)
        alone[tuple(limits)] = outcome.bound
        assert outcome.minimum_yield > placement_yield(instance, present)
    *bounds, together = alone.values()
    assert together <= min(bounds) + 1e-12


def test_time_is_latency_and_bytes_over_bandwidth():
    instance, _ = generate_machines(nodes=4, machines=60, seed=0)
    limited = replace(instance, move_limits=MoveLimits(bandwidth_bytes_per_s=2e9, latency_s=3.0))
    assert limited.task_bytes is not None
    assert Budget(seconds=1.0).costs(limited)[0] == pytest.approx(3.0 + limited.task_bytes / 2e9)
    given = Budget(seconds=1.0, bandwidth_bytes_per_s=1e9).costs(instance)[0]
    assert given == pytest.approx(limited.task_bytes / 1e9)
    with pytest.raises(InputError, match="needs a bandwidth"):
        Budget(seconds=1.0).costs(instance)
    services = generate_services(nodes=4, services=8, seed=0)
    for limits in ({"bytes": 10.0}, {"seconds": 10.0, "bandwidth_bytes_per_s": 1.0}):
        with pytest.raises(InputError, match=r"budget in \w+ needs the size of a resource"):
            Budget(**limits).costs(services)
    with pytest.raises(InputError, match="budget of moves: -1"):
        Budget(moves=-1)
    with pytest.raises(InputError, match="bandwidth 0"):
        Budget(seconds=1, bandwidth_bytes_per_s=0)


@settings(max_examples=40)
@given(instances, st.integers(0, 3), st.booleans(), st.randoms(use_true_random=False))
def test_equals_brute_force_on_tiny_instances_and_no_optimum_is_above_the_bound(instance, amount, cost, random):
    tasks, nodes = len(instance.need), len(instance.nodes)
    if nodes**tasks > 1_000:
        return
    present = np.array([random.randrange(-1, nodes) for _ in range(tasks)])
    if cost:
        instance = replace(instance, move_cost=np.array([random.randrange(4) / 2 for _ in range(tasks)]))
    outcome = adapt(instance, present, rounds=1, **{"cost" if cost else "moves": amount})
    expected = best_placement(instance, present, instance.move_cost if cost else np.ones(tasks), amount)
    bound = departures(instance, present, Budget(cost=amount) if cost else Budget(moves=amount)).highest(1.0)
    if expected is None:
        assert outcome.status == Status.INFEASIBLE
    else:
        assert outcome.status == Status.OPTIMAL
        assert outcome.minimum_yield == pytest.approx(expected, abs=1e-7)
        assert bound is not None
        assert expected <= bound + 1e-9


def test_the_exact_program_takes_several_budgets():
    instance = generate_services(nodes=3, services=9, slack=0.5, seed=5)
    instance = replace(instance, move_cost=np.arange(9) / 4)
    packed = allocate(instance, "GREEDYLIGHT").allocation
    assert packed is not None
    present = packed.place
    costs = Budget(moves=3, cost=3.0).costs(instance)
    both = AdaptExact(present=present, cost=costs, budget=np.array([3.0, 3.0]))(instance)
    outcome = adapt(instance, present, rounds=50, moves=3, cost=3.0)
    assert outcome.status == Status.OPTIMAL
    assert both.minimum_yield == pytest.approx(outcome.minimum_yield, abs=1e-6)
    assert both.allocation is not None
    moved = both.allocation.place != present
    assert moved.sum() <= 3
    assert instance.move_cost[moved].sum() <= 3.0
    with pytest.raises(InputError, match="cost has 2 rows"):
        AdaptExact(present=present, cost=costs, budget=1.0)(instance)


def test_new_services_are_placed_for_free(running):
    instance, present = running
    partly = present.copy()
    partly[::4] = -1
    outcome = adapt(instance, partly, moves=0)
    assert outcome.allocation is not None
    known = partly >= 0
    assert np.array_equal(outcome.allocation.place[known], partly[known])


@pytest.mark.parametrize("seed", range(3))
def test_a_placement_that_no_longer_fits_is_repaired_by_the_fewest_moves(seed):
    instance, present = generate_machines(nodes=30, machines=400, seed=seed)
    need = instance.need.copy()
    need[np.random.default_rng(seed).choice(400, 12, replace=False), 1] *= 2.0
    instance = replace(instance, need=need)
    assert placement_yield(instance, present) < 0
    outcome = adapt(instance, present, rounds=10, moves=400)
    fewest = departures(instance, present, Budget(moves=400)).fewest(0.0)
    assert outcome.allocation is not None
    assert outcome.details["repair_moves"] == fewest
    exactly = adapt(instance, present, rounds=10, moves=fewest)
    assert exactly.details["moves"] == fewest
    short = adapt(instance, present, rounds=10, moves=fewest - 1)
    assert short.status == Status.INFEASIBLE
    assert f"at least {fewest} tasks must move" in str(short.details["reason"])


def test_where_rounds_count_no_program_is_cut_by_the_clock(monkeypatch):
    limits, maximize = [], LinearProgram.maximize

    def noted(program, time_limit_s=None, *args, **options):
        limits.append((time_limit_s, options.get("nodes")))
        return maximize(program, time_limit_s, *args, **options)

    monkeypatch.setattr(LinearProgram, "maximize", noted)
    rng = np.random.default_rng(5)
    # Nodes full to the last bit, of sizes that no order of relief puts right in the fewest moves each time.
    for _ in range(20):
        memory = rng.choice([0.1, 0.2, 0.3, 0.4, 0.5], 24)
        present = rng.integers(6, size=24)
        need = np.column_stack([np.full(24, 0.2), memory * 6 / memory.sum()])
        instance = Instance.from_arrays(np.ones((6, 2)), need, [False, True])
        one, other = (adapt(instance, present, rounds=20, moves=24) for _ in range(2))
        assert (one.status, one.minimum_yield) == (other.status, other.minimum_yield)
    assert limits
    assert all(time_limit_s is None and nodes for time_limit_s, nodes in limits)


def two_by_two(**changes):
    """Four machines of CPU 0.5 on four nodes of 1, two on each of the first two."""
    return Instance(
        resources=(Resource(name="cpu", kind=Kind.FLUID),),
        nodes=("n0", "n1", "n2", "n3"),
        capacity=np.ones((4, 1)),
        services=("a", "b", "c", "d"),
        minimum_yield=np.zeros(4),
        service_of=np.arange(4),
        need=np.full((4, 1), 0.5),
        rigid=np.zeros((4, 1), dtype=np.bool_),
        move_cost=np.ones(4),
        **changes,
    )


def test_rules_that_are_broken_now_are_repaired_and_the_others_kept():
    present = np.array([0, 0, 1, 1])
    # Together, with three on a node, would be a repair too, but two more moves give a yield of 1.
    for rules, repair, moves in (
        ((Maintenance(("n0",)),), 2, 2),
        ((Apart(("a", "b"), level="node"),), 1, 1),
        ((Together(("a", "c"), level="node"),), 1, 2),
        ((Never(("a",), ("n0",)), Never(("a",), ("n1", "n2"))), 1, 1),
    ):
        instance = two_by_two(rules=Rules(rules))
        assert instance.rules is not None
        outcome = adapt(instance, present, moves=4)
        assert outcome.allocation is not None
        assert broken(instance.rules.arrays, outcome.allocation.place) == 0
        assert outcome.minimum_yield == 1.0
        assert outcome.details["moves"] == moves
        assert outcome.details["repair_moves"] == repair
    assert adapt(two_by_two(rules=Rules((Maintenance(("n0",)),))), present, moves=1).status == Status.INFEASIBLE


def test_a_soft_rule_is_given_up_where_that_pays():
    instance = two_by_two()
    need = np.array([[0.9], [0.9], [0.2], [0.2]])
    for price, apart in ((0.1, True), (0.9, False)):
        rules = Rules((Together(("a", "b"), level="node", price=price),))
        outcome = adapt(replace(instance, need=need, rules=rules), np.array([0, 0, 1, 1]), moves=2)
        assert outcome.allocation is not None
        assert (outcome.allocation.place[0] != outcome.allocation.place[1]) == apart
        assert bool(outcome.details["conceded"]) == apart
        assert outcome.minimum_yield == pytest.approx(1.0 if apart else 1 / 1.8)


@pytest.mark.parametrize("seed", range(25))
def test_under_random_rules_what_is_found_keeps_them_all(seed):
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, 20, 6, int(rng.integers(1, 4)), load=0.4)
    assert instance.rules is not None
    instance = replace(
        instance, rules=instance.rules.only([r for r, rule in enumerate(instance.rules.rules) if rule.price is None])
    )
    assert instance.rules is not None
    present = rng.integers(0, 6, 20)
    outcome = adapt(instance, present, moves=12)
    if outcome.allocation is not None:
        assert not instance.rules.problems(outcome.allocation.place)
        assert (outcome.allocation.place != present).sum() <= 12


def test_a_present_placement_must_be_of_this_instance(cluster):
    instance, present = cluster
    with pytest.raises(InputError, match="present has shape"):
        adapt(instance, present[1:], moves=1)
    with pytest.raises(InputError, match=r"present\[0\] = 30"):
        adapt(instance, np.where(np.arange(400) == 0, 30, present), moves=1)


def test_the_bound_says_how_many_must_leave(cluster):
    instance, present = cluster
    bound = departures(instance, present, Budget(moves=20))
    highest = bound.highest(upper_bound(instance))
    assert highest is not None
    assert bound.fewest(highest - 1e-9) <= 20 < bound.fewest(highest + 1e-9)


def test_generated_machines_fit_are_unbalanced_and_repeat():
    instance, present = generate_machines(nodes=50, machines=1_000, memory=0.7, cpu=1.1, seed=9)
    other, again = generate_machines(nodes=50, machines=1_000, memory=0.7, cpu=1.1, seed=9)
    assert np.array_equal(instance.need, other.need)
    assert np.array_equal(present, again)
    assert instance.need.sum(axis=0) / instance.capacity.sum(axis=0) == pytest.approx([1.1, 0.7], rel=1e-6)
    assert 0 < placement_yield(instance, present) < 0.7 * upper_bound(instance)
    for wrong in ({"nodes": 0}, {"memory": 0.99}, {"cpu": -1.0}, {"imbalance": 20.0}, {"nodes": 50, "machines": 3}):
        with pytest.raises(InputError, match="must be"):
            generate_machines(**wrong)


def test_the_clock_is_seen_in_long_loops():
    instance, present = generate_machines(nodes=500, machines=5_000, seed=1)
    warm = Adapt(present=present, budget=Budget(moves=50), rounds=1)
    warm(instance, np.random.default_rng(0))
    limited = Adapt(present=present, budget=Budget(moves=500), time_limit_s=1e-6)
    assert limited(instance, np.random.default_rng(0)).minimum_yield is not None
