"""When a watched cluster is rebalanced: demand is smoothed, moves must pay, and nothing goes back and forth."""

import numpy as np
import pytest

from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.model.rules import Maintenance
from dfrs.placement.budget import Budget
from dfrs.rebalancing.solve import add_rules, cpu_shares, present_yield, promised_parts, rebalance
from dfrs.rebalancing.watch import Watcher, WatchSettings, task_names
from dfrs.testing.watching import simulate_decisions, staying, watching
from dfrs.workloads.demand import DemandScenario, machine_demand
from tests.naive.demand import naive_minimum_yield

HOUR_S = 3600.0


def cluster(cpu, *, memory=0.2, hosts=2, host_cpu=1.0):
    """An instance with a machine for each CPU need."""
    need = np.array([[memory, c] for c in cpu])
    return Instance.from_arrays(np.tile([1.0, host_cpu], (hosts, 1)), need, [True, False], resources=["memory", "cpu"])


def solve(instance, present, budget):
    return rebalance(instance, present, budget=budget, rounds=50)


def watcher(**settings):
    return Watcher(WatchSettings(**settings), solve)


def test_the_present_yield_is_that_of_the_worst_node():
    instance = cluster([0.8, 0.8, 0.2])
    assert present_yield(instance, np.array([0, 0, 1])) == pytest.approx(1 / 1.6)
    assert present_yield(instance, np.array([0, -1, 1])) == 1.0
    assert present_yield(cluster([0.1] * 6, memory=0.2), np.array([0] * 6)) is None
    rng = np.random.default_rng(3)
    for _ in range(50):
        some = cluster(rng.random(6), memory=float(rng.random() * 0.4), hosts=3)
        place = rng.integers(-1, 3, 6)
        assert present_yield(some, place) == pytest.approx(naive_minimum_yield(some, place))


def test_a_gain_that_pays_is_taken_and_one_that_does_not_is_left():
    present = np.array([0, 0, 1])
    verdict = watcher().decide(cluster([0.8, 0.8, 0.2]), present, 0.0)
    assert verdict.kind == "improve"
    assert verdict.rebalancing.moves == 1
    assert verdict.now_yield == pytest.approx(1 / 1.6)
    small = watcher(least_gain=0.05).decide(cluster([0.52, 0.52, 0.2]), present, 0.0)
    assert small.kind == "wait"
    assert "no placement can gain more" in small.why


def test_each_move_must_pay_its_price():
    instance, present = cluster([0.6, 0.6, 0.6, 0.2, 0.2], hosts=3), np.array([0, 0, 0, 1, 2])
    dear = watcher(price=0.45, least_gain=0.0).decide(instance, present, 0.0)
    assert dear.kind == "wait"
    cheap = watcher(price=0.1, least_gain=0.0).decide(instance, present, 0.0)
    assert cheap.rebalancing.moves == 2


def exchanging():
    """Two machines that had best exchange their hosts, and one of them has to stop on a third, which has hardly CPU."""
    capacity, need = np.array([[1.0, 0.5], [1.0, 1.0], [1.0, 0.05]]), np.array([[0.6, 1.0], [0.7, 0.4]])
    return Instance.from_arrays(capacity, need, [True, False], resources=["memory", "cpu"]), np.array([0, 1])


def test_temporary_moves_are_made_only_within_the_budget():
    instance, present = exchanging()
    found = rebalance(instance, present, budget=Budget(moves=3.0), rounds=5)
    assert (found.plan.complete, found.plan.temporary, found.migrations, found.moves) == (True, 1, 3, 2)
    found = rebalance(instance, present, budget=Budget(moves=2.0, cost=2.0), rounds=5)
    assert (found.plan.steps, found.migrations, found.moves) == ((), 0, 0)
    assert found.plan.problems[0] == (
        "s0 does not go from n0 to n1: n1 lacks 0.3 of memory, "
        "and temporary moves would pass the budget of moves and cost"
    )


def test_a_temporary_move_must_pay_its_price_too():
    instance, present = exchanging()
    assert watcher(price=0.1, budget=Budget(moves=2.0)).decide(instance, present, 0.0).kind == "wait"
    assert watcher(price=0.2).decide(instance, present, 0.0).kind == "wait"
    cheap = watcher(price=0.1).decide(instance, present, 0.0)
    assert cheap.kind == "improve"
    assert cheap.why == "gains 0.500 of minimum yield with 3 moves"


def test_a_spike_is_not_followed_at_once():
    calm, spike, present = cluster([0.3, 0.3, 0.1]), cluster([0.9, 0.9, 0.1]), np.array([0, 0, 1])
    watching = watcher(window=5, percentile=50.0)
    assert [watching.decide(c, present, t).kind for t, c in enumerate((calm, calm, calm, spike))] == ["wait"] * 4
    assert watching.decide(spike, present, 4.0).kind == "wait"
    assert watching.decide(spike, present, 5.0).kind == "improve"


def test_a_verdict_has_the_demand_that_its_promise_is_about():
    watching, present = watcher(percentile=100.0), np.array([0, 0, 1])
    watching.decide(cluster([0.9, 0.9, 0.1]), present, 0.0)
    verdict = watching.decide(cluster([0.0, 0.9, 0.1]), present, 1.0)
    assert verdict.kind == "improve"
    assert verdict.instance.need[:, 1].tolist() == [0.9, 0.9, 0.1]


def test_what_was_moved_stays_for_a_while():
    present = np.array([0, 0, 1])
    watching = watcher(window=1, hold_off_s=HOUR_S)
    first = watching.decide(cluster([0.8, 0.8, 0.2]), present, 0.0)
    after = first.rebalancing.outcome.allocation.place
    # Demand turns: the machine that moved would best go back.
    moved = int(np.flatnonzero(after != present)[0])
    cpu = [0.1, 0.1, 0.1]
    cpu[moved], cpu[2] = 0.9, 0.9
    turned = cluster(cpu)
    assert after[moved] == after[2]
    held = watching.decide(turned, after, 300.0)
    assert held.kind == "improve"
    assert held.rebalancing.outcome.allocation.place[moved] == after[moved]
    later = Watcher(WatchSettings(window=1, hold_off_s=HOUR_S), solve)
    later.decide(cluster([0.8, 0.8, 0.2]), present, 0.0)
    later.decide(turned, after, 300.0)
    assert later.decide(turned, after, 300.0 + HOUR_S).kind == "improve"


def test_a_limit_that_is_broken_is_mended_whatever_the_price():
    instance = cluster([0.1, 0.1, 0.1], memory=0.3)
    empty = add_rules(instance, [Maintenance(nodes=["n1"])])
    verdict = watcher(price=1.0, least_gain=1.0).decide(empty, np.array([0, 0, 1]), 0.0)
    assert verdict.kind == "repair"
    assert verdict.rebalancing.outcome.allocation.place.tolist() == [0, 0, 0]


def test_a_machine_goes_back_only_where_a_limit_cannot_be_kept_otherwise():
    instance = cluster([0.8, 0.8, 0.2])
    watching = watcher(window=1)
    after = watching.decide(instance, np.array([0, 0, 1]), 0.0).rebalancing.outcome.allocation.place
    assert watching.decide(instance, after, 300.0).kind == "wait"
    verdict = watching.decide(add_rules(instance, [Maintenance(nodes=["n1"])]), after, 600.0)
    assert verdict.kind == "repair"
    assert (verdict.rebalancing.outcome.allocation.place == 0).all()


def test_no_repair_is_said():
    instance = add_rules(cluster([0.1, 0.1], memory=0.6), [Maintenance(nodes=["n1"])])
    verdict = watcher().decide(instance, np.array([0, 1]), 0.0)
    assert verdict.kind == "repair"
    assert verdict.rebalancing is None
    assert "no repair" in verdict.why


def test_machines_that_come_and_go_and_hosts_that_change_are_taken():
    watching = watcher()
    watching.decide(cluster([0.3, 0.3]), np.array([0, 1]), 0.0)
    watching.decide(cluster([0.3, 0.3, 0.3], hosts=3), np.array([0, 1, 1]), 1.0)
    assert watching.decide(cluster([0.3]), np.array([0]), 2.0).kind == "wait"


def test_weights_are_in_proportion_to_what_is_promised():
    found = rebalance(cluster([0.8, 0.4, 0.0]), np.array([0, 0, 1]), budget=Budget(moves=0.0), rounds=1)
    assert found.minimum_yield == pytest.approx(1 / 1.2)
    assert promised_parts(cluster([0.8, 0.4, 0.0]), found) == pytest.approx({"s0": 2 / 3, "s1": 1 / 3, "s2": 0.0})
    assert cpu_shares(cluster([0.8, 0.4, 0.0]), found) == {"s0": 10_000, "s1": 5_000, "s2": 2}


def test_tasks_of_a_service_have_ranks():
    instance = Instance.from_arrays(np.ones((1, 1)), np.full((3, 1), 0.1), [False], service_of=[0, 0, 1])
    assert task_names(instance) == ["s0/0", "s0/1", "s1"]


@pytest.mark.parametrize(
    "settings", [{"window": 0}, {"percentile": 101.0}, {"least_gain": -0.1}, {"price": 2.0}, {"hold_off_s": -1.0}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(InputError, match=f"{next(iter(settings))} = "):
        WatchSettings(**settings)


def test_demand_has_days_and_repeats():
    scenario = DemandScenario(noise=0.0, bursts_per_day=0.0, night=0.0)
    demand = machine_demand(scenario, 20, 7 * 24, HOUR_S, 1)
    by_hour = demand[:120].reshape(5, 24, 20).mean(axis=(0, 2))
    assert 11 <= int(by_hour.argmax()) <= 17
    assert demand[120:].mean() < 0.7 * demand[:120].mean()
    again = machine_demand(DemandScenario(), 20, 50, 300.0, 5)
    assert (again == machine_demand(DemandScenario(), 20, 50, 300.0, 5)).all()
    assert again.min() >= 0.01
    assert again.max() <= 1.0
    with pytest.raises(InputError, match="night = 2"):
        DemandScenario(night=2.0)
    with pytest.raises(InputError, match="at least 1"):
        machine_demand(DemandScenario(), 0, 1, 1.0, 0)


def test_nothing_goes_back_and_forth_in_a_day_of_noisy_demand():
    day = {"machines": 30, "hosts": 3, "ticks": 96, "tick_s": 900.0, "seed": 2}
    watcher = Watcher(WatchSettings(budget=Budget(moves=4.0)), lambda i, p, b: rebalance(i, p, budget=b, rounds=2))
    report = simulate_decisions(watching(watcher), **day)
    assert report.moves > 0
    assert report.back_within_hour == 0
    assert report.mean_yield > simulate_decisions(staying, **day).mean_yield


def test_following_every_change_does_go_back_and_forth():
    """The same without patience: what the test before says could be otherwise."""
    eager = WatchSettings(window=1, least_gain=0.0, price=0.0, hold_off_s=0.0)
    watcher = Watcher(eager, lambda i, p, b: rebalance(i, p, budget=b, rounds=2))
    report = simulate_decisions(watching(watcher), machines=30, hosts=3, ticks=48, tick_s=900.0, seed=2)
    assert report.back_within_hour > 0
