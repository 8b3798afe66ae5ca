"""ARRIVE-F on the situations of [Atif2011], by hand: five scenarios, Table 18, Figure 10, and what it says of each."""

from dataclasses import replace

import numpy as np
import pytest

from dfrs.engine.check import check
from dfrs.model.decisions import Cause, Reason, Traits
from dfrs.model.errors import InputError
from dfrs.policies.heterogeneous.arrive_f import ArriveF
from dfrs.policies.heterogeneous.gains import Mover, counted_s, gain_s, saved_per_tau
from dfrs.policies.heterogeneous.rules import (
    MOST_PARTITIONS,
    Rules,
    TooManyPartitionsError,
    has_left,
    left,
    letter,
    moved,
    source,
)
from dfrs.policies.heterogeneous.search import PlanScenario
from dfrs.policies.names import find_policy
from tests.farm_policy_cases import farm_snapshot
from tests.naive import farm as naive

A, B, C, D = range(4)
TWO = [(2, 4), (2, 4)]
LONG_S = 5000.0
NOW_S = 1000.0


def job(nodes, speed, **given):
    given.setdefault("tasks", len(nodes) if nodes else None)
    return {"estimate_s": LONG_S, "nodes": nodes, "speed": speed, "required": 0.1, **given}


def waiting(tasks, estimate_s=100.0, **given):
    return {"tasks": tasks, "estimate_s": estimate_s, **given}


def decided(shot, name="ARRIVE-F"):
    """Target, the nodes of each job after it, and the plans."""
    policy = find_policy(name)
    target = policy.decide(shot)
    check(shot, target)
    nodes = [naive.slots(shot, r, target.task_nodes) for r in range(len(shot.jobs))]
    plans = policy.plans(shot)
    naive.replay(shot, target.task_nodes, [move for p in plans for move in p.moves])
    return target, nodes, plans


def said(shot, name="ARRIVE-F"):
    return find_policy(name).considered(shot)


# The five scenarios of section 5.7


def test_scenario_1_equal_nodes():
    jobs = [job([0, 1, 2, 3], [1.0, 2.0]), job([8, 9, 10, 11], [1.0, 1.0])]
    shot = farm_snapshot(TWO, jobs, closed=[*range(4, 8), *range(12, 16)])
    target, nodes, (plan,) = decided(shot)
    assert plan.trade.scenario == PlanScenario.EQUAL
    assert nodes == [[8, 9, 10, 11], [0, 1, 2, 3]]
    # The first saves half of the time, 25 s in 50: 4 processes, 20 profiles, less 0.7 s for each of 8 processes.
    gain = 4 * 25.0 * 20 - 0.7 * 8
    assert plan.trade.gain_s == pytest.approx(gain)
    assert plan.trade.threshold_s == pytest.approx(0.1 * 20 * 50 * 8)
    assert (
        target.why[100] == "moved from A to B with job 101: predicted gain 1994 s over the next 1000 s, threshold 800 s"
    )
    assert (
        target.why[101] == "moved from B to A with job 100: predicted gain 1994 s over the next 1000 s, threshold 800 s"
    )
    assert target.reasons.tolist() == [Reason.PACKED] * 2
    assert [source(m) for m in target.policy_state.tolist()] == [A, B]
    assert target.yields.tolist() == [1.0, 1.0]


def test_scenario_2_to_free_nodes():
    shot = farm_snapshot(TWO, [job([0, 1, 2, 3], [1.0, 2.0])])
    target, nodes, (plan,) = decided(shot)
    assert plan.trade.scenario == PlanScenario.FREE
    assert nodes == [[8, 9, 10, 11]]
    assert target.why[100] == "moved from A to B: predicted gain 1997 s over the next 1000 s, threshold 400 s"
    assert target.wake_at_s == 1200.0


def test_scenario_3_with_free_nodes():
    jobs = [job([0, 1, 2, 3], [1.0, 2.0]), job([4, 5], [1.0, 1.0]), job([6, 7], [1.0, 1.0], estimate_s=1500.0)]
    shot = farm_snapshot([(1, 4), (1, 6)], jobs)
    _, nodes, (plan,) = decided(shot)
    assert plan.trade.scenario == PlanScenario.WITH_FREE
    # Two nodes were free, and those of the one with 500 s left are not to be had.
    assert nodes == [[4, 5, 8, 9], [0, 1], [6, 7]]


def test_scenario_4_with_several_jobs():
    jobs = [job([0, 1, 2, 3], [1.0, 3.0]), job([4, 5], [1.0, 1.0]), job([6], [1.0, 1.0]), job([7], [2.0, 1.0])]
    shot = farm_snapshot([(1, 4), (1, 4)], jobs)
    target, nodes, (plan,) = decided(shot)
    assert plan.trade.scenario == PlanScenario.MULTIPLE
    assert nodes == [[4, 5, 6, 7], [0, 1], [2], [3]]
    # The one that gains comes first in the list, and all four are needed.
    assert plan.trade.back == (3, 2, 1)
    assert target.why[100].startswith("moved from A to B with jobs 1")
    assert plan.trade.gain_s == pytest.approx(naive.gain(shot, target.task_nodes, [0, 1, 2, 3], Rules()))


def test_scenario_4_only_takes_as_many_as_it_needs():
    jobs = [job([0, 1, 2, 3], [1.0, 3.0]), job([4, 5], [1.0, 1.0]), job([6], [1.0, 1.0]), job([7], [1.0, 1.0])]
    shot = farm_snapshot([(1, 4), (1, 5)], jobs)
    _, nodes, (plan,) = decided(shot)
    # Small losses come first in the list; of the two small jobs the second is not needed once the large one goes too.
    assert plan.trade.back == (2, 1)
    assert nodes == [[4, 5, 6, 8], [0, 1], [2], [7]]


def test_scenario_4_not_if_all_together_lose():
    jobs = [job([0, 1, 2, 3], [1.0, 1.5]), job([4, 5], [1.0, 1.0]), job([6], [0.1, 1.0]), job([7], [0.1, 1.0])]
    shot = farm_snapshot([(1, 4), (1, 4)], jobs)
    _, nodes, plans = decided(shot)
    assert not plans
    assert nodes == [naive.slots(shot, r) for r in range(4)]
    assert any("not above the threshold" in c.why_not or "nothing is gained" in c.why_not for c in said(shot))


def test_scenario_5_migration_1_of_experiment_1():
    # FT.B.4 thrashes on D; FT.A.4 runs on C, and both are too short for gains in speed.
    shape, memory = [(2, 4), (2, 4), (2, 4), (4, 2)], [1.0, 1.0, 1.0, 0.5]
    jobs = [
        job(list(range(8)), None, required=0.9),
        job(list(range(8, 16)), None, required=0.9),
        job([16, 17, 18, 19], [1.0] * 4, estimate_s=230.0, since_s=900.0, required=0.3),
        job([20, 21, 22, 23], [1.0] * 4, estimate_s=230.0, since_s=900.0, required=0.8),
        job([24, 25, 26, 27], None, estimate_s=92.0, since_s=900.0, required=0.825, swapping=True),
    ]
    shot = farm_snapshot(shape, jobs, memory=memory)
    target, nodes, (plan,) = decided(shot)
    assert plan.trade.scenario == PlanScenario.MEMORY
    assert nodes[4] == [16, 17, 18, 19]
    assert nodes[2] == [24, 25, 26, 27]
    assert target.why[104] == (
        "moved from D to C with job 102: job 104 thrashes: each process wants 0.825 of the reference node's memory, "
        "its node has 0.5"
    )
    first = said(shot)[:3]
    assert [c.why_not for c in first[:2]] == [
        f"job 104 has 4 processes, and there are 0 nodes for it on {name}" for name in "AB"
    ]
    assert first[2].chosen


def test_scenario_5_to_free_nodes_and_where_nothing_helps():
    shape = [(1, 2), (1, 2), (1, 2)]
    thrashing = job([0, 1], None, required=0.8, swapping=True, estimate_s=100.0)
    shot = farm_snapshot(shape, [thrashing], memory=[0.5, 0.6, 1.0])
    _, nodes, (plan,) = decided(shot)
    assert nodes == [[4, 5]]
    assert plan.trade.target == C
    shot = farm_snapshot(shape, [thrashing], memory=[0.5, 0.6, 0.7])
    assert not decided(shot)[2]
    assert [c.why_not for c in said(shot)][:2] == [f"nodes of {c} are too small for job 100" for c in "BC"]
    shot = farm_snapshot(shape, [{**thrashing, "required": np.nan}], memory=[0.5, 0.6, 1.0])
    assert said(shot)[0].why_not == "job 100 thrashes, but what it wants is not known"


def test_scenario_5_may_take_the_nodes_of_several_jobs():
    jobs = [
        job([0, 1], None, required=0.8, swapping=True),
        job([2], [1.0] * 2, estimate_s=1100.0),
        job([3], [1.0] * 2, estimate_s=1100.0),
    ]
    _, nodes, _ = decided(farm_snapshot([(1, 2), (1, 2)], jobs, memory=[0.5, 1.0]))
    assert nodes == [[2, 3], [0], [1]]


# Tables and figures


def test_table_18_a_2_process_job_gives_way_to_an_8_process_one():
    # Rates from the times of Table 18: LU.B.8 1947 s on A, 857 s on B; CG.B.2 1272 s on B, 1576 s on A.
    lu, cg = [1 / 1947, 1 / 857], [1 / 1576, 1 / 1272]
    jobs = [
        job([8, 9], cg, estimate_s=1952.0, since_s=880.0),
        job(list(range(8)), lu, estimate_s=2005.0, since_s=1230.0),
    ]
    jobs = [{**j, "estimate_s": 2500.0} for j in jobs]
    shot = farm_snapshot(TWO, jobs, now_s=1400.0)
    target, nodes, (plan,) = decided(shot)
    assert plan.trade.scenario == PlanScenario.WITH_FREE
    assert nodes == [[0, 1], list(range(8, 16))]
    assert plan.trade.gain_s == pytest.approx(naive.gain(shot, target.task_nodes, [0, 1], Rules()))
    assert plan.trade.gain_s > 3000.0


def figure_10(**given):
    """CG.B.2 alone on B, the fastest; six nodes of A are free; the queue begins with LU.B.8 (Table 21)."""
    shape = [(2, 4), (2, 4), (4, 2)]
    cg, small = [0.8, 1.0, 0.7], [1.0, 1.0, 1.0]
    jobs = [
        job([0, 1], small, estimate_s=LONG_S),
        job([8, 9], cg, estimate_s=2717.0, since_s=900.0),
        job(list(range(16, 24)), [1.0, 1.0, 1.0], estimate_s=4697.0),
        waiting(8, 4.0),
        waiting(8, 14.0),
        waiting(8, 12.0),
        waiting(8, 18.0),
    ]
    return farm_snapshot(shape, jobs, **given)


def test_figure_10_not_moved_without_head():
    target, nodes, plans = decided(figure_10())
    assert not plans
    assert nodes[1] == [8, 9]
    assert nodes[3] == []
    assert target.wake_at_s == 1200.0
    why_not = {(c.jobs, c.target): c.why_not for c in said(figure_10())}
    assert why_not[(101,), A].startswith("nothing is gained")


def test_figure_10_moved_with_head():
    shot = figure_10()
    target, nodes, (plan,) = decided(shot, "ARRIVE-F/HEAD")
    assert plan.trade.scenario == PlanScenario.HEAD
    moved_row = plan.trade.lead
    assert moved_row in {0, 1}
    assert nodes[3] == []
    # Which of the two makes room: the one that loses nothing.
    assert moved_row == 0
    assert "first in the queue, can start 980 s earlier" in target.why[100]
    # With the other one across, only CG.B.2 can.
    shot = figure_10(now_s=1000.0)
    jobs = shot.jobs.copy()
    policy_state = jobs["policy_state"].copy()
    policy_state[0] = 1 << B
    jobs["policy_state"] = policy_state
    jobs["since_s"][0] = 0.0
    target, nodes, (plan,) = decided(replace(shot, jobs=jobs), "ARRIVE-F/HEAD")
    assert plan.trade.lead == 1
    assert nodes[1] == [2, 3]
    assert plan.trade.gain_s == pytest.approx(8 * 980.0 + 2 * 50 * (1 - 1 / 0.8) * 20 - 1.4)
    # Once it is over, the head starts there.
    assert target.wake_at_s == 1020.0
    jobs["policy_state"] = target.policy_state
    jobs["since_s"][1] = 1000.0
    later = replace(shot, jobs=jobs, task_nodes=target.task_nodes, now_s=1020.0)
    target, nodes, _ = decided(later, "ARRIVE-F/HEAD")
    assert nodes[3] == list(range(8, 16))
    assert target.reasons[3] == Reason.QUEUE_HEAD


# Who is a candidate


def swap(**given):
    jobs = [job([0, 1, 2, 3], [1.0, 2.0], **given), job([4, 5, 6, 7], [1.0, 1.0])]
    return farm_snapshot([(1, 4), (1, 4)], jobs)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"speed": None}, "not profiled"),
        ({"speed": [np.nan, 2.0]}, "not profiled"),
        ({"speed": [1.0, np.nan]}, "nothing is predicted"),
        ({"speed": [1.0, 0.0]}, "nothing is predicted"),
        ({"estimate_s": 2000.0}, "has 1000 s left"),
        ({"required": 1.1}, "too small"),
        ({"policy_state": 1 << B}, "left B before"),
        ({"policy_state": moved(0, B, 8), "since_s": 100.0, "start_s": 0.0, "migrations": 1}, "was moved 900 s ago"),
        ({"swapping": True}, "thrashes"),
        ({"speed": [1.0, 1.1]}, "not above the threshold"),
        ({"speed": [1.0, 1.0]}, "nothing is gained"),
    ],
)
def test_who_stays_and_why(given, word):
    given = {"speed": [1.0, 2.0], **given}
    shot = farm_snapshot([(1, 4), (1, 4)], [{**job([0, 1, 2, 3], None), **given}, job([4, 5, 6, 7], [1.0, 1.0])])
    assert not decided(shot)[2]
    assert word in said(shot)[-1].why_not


def test_the_swap_that_these_would_be():
    (plan,) = decided(swap())[2]
    assert plan.trade.scenario == PlanScenario.EQUAL
    assert said(swap())[0].chosen


def test_only_at_multiples_of_4_tau_and_not_during_a_migration():
    for cause, now_s, due in [
        (Cause.WAKE, 1000.0, True),
        (Cause.WAKE, 1000.4, True),
        (Cause.WAKE, 1050.0, False),
        (Cause.COMPLETION, 1000.0, False),
        (Cause.WAKE, 999.9, False),
    ]:
        shot = replace(swap(), cause=cause, now_s=now_s)
        assert bool(ArriveF().decide(shot).why) == due
        soon = np.nextafter(1000.0, np.inf) if cause is Cause.COMPLETION else 1200.0
        assert ArriveF().decide(shot).wake_at_s == (soon if now_s >= 1000.0 else 1000.0)
    moving = job([8], [1.0] * 3, policy_state=moved(0, C, 90), since_s=500.0, start_s=0.0, migrations=1)
    jobs = [job([0, 1, 2, 3], [1.0, 2.0, 1.0]), job([4, 5, 6, 7], [1.0, 1.0, 1.0]), moving]
    for name, plans in [("ARRIVE-F", 0), ("ARRIVE-F/PARALLEL", 0), ("ARRIVE-F/COPY=5", 1)]:
        shot = farm_snapshot([(1, 4), (1, 5), (1, 1)], jobs)
        assert len(decided(shot, name)[2]) == plans
    assert said(shot)[0].why_not == "a migration is in progress until 1400 s"
    elsewhere = [*jobs[:2], {**moving, "nodes": [9]}]
    shot = farm_snapshot([(1, 4), (1, 4), (1, 1), (1, 1)], [{**j, "speed": [*j["speed"], 1.0]} for j in elsewhere])
    assert not decided(shot)[2]
    assert len(decided(shot, "ARRIVE-F/PARALLEL")[2]) == 1


def test_nobody_is_dispatched_between_locked_sub_clusters():
    mover = job([4, 5], [1.0, 1.0, 1.0], policy_state=moved(0, A, 4), since_s=990.0, start_s=0.0, migrations=1)
    jobs = [mover, waiting(2, 5000.0), waiting(1, 50.0)]
    shot = farm_snapshot([(1, 4), (1, 4), (1, 1)], jobs, now_s=1001.0, cause=Cause.COMPLETION)
    target, nodes, _ = decided(shot)
    assert nodes == [[4, 5], [], [8]]
    assert target.wake_at_s == 1030.0
    target, nodes, _ = decided(replace(shot, now_s=1030.0, cause=Cause.WAKE))
    assert nodes[1:] == [[0, 1], [2]]
    # The lock is over: what is remembered is only that A was left.
    assert target.policy_state.tolist() == [1 << A, 0, 0]


def test_co_located_speeds_count_where_the_plan_co_locates():
    # A bandwidth-bound job gains from being on one machine (Table 14), not from the sub-cluster as such.
    speed = [[1.0, 1.0], [0.9, 2.0]]
    spread = [job([0, 4, 5, 6], speed)]
    shot = farm_snapshot([(2, 4), (2, 4)], spread)
    _, nodes, _ = decided(shot)
    assert nodes == [[8, 9, 10, 11]]
    shot = farm_snapshot([(2, 4), (2, 4)], spread, closed=[8, 12])
    assert not decided(shot)[2]


def test_parallel_executes_several_plans_at_once():
    jobs = [
        job([0, 1], [1.0, 2.0, 1.0, 1.0]),
        job([2, 3], [1.0] * 4),
        job([4, 5], [1.0, 1.0, 1.0, 2.0]),
        job([6, 7], [1.0] * 4),
    ]
    shot = farm_snapshot([(1, 2), (1, 2), (1, 2), (1, 2)], jobs)
    assert len(decided(shot)[2]) == 1
    target, nodes, plans = decided(shot, "ARRIVE-F/PARALLEL")
    assert len(plans) == 2
    assert nodes == [[2, 3], [0, 1], [6, 7], [4, 5]]
    assert {Rules(copy_s=1.0).lasts_s(m) for m in target.policy_state.tolist()} == {2.0}


def test_one_job_with_a_long_time_left_is_enough_with_one():
    jobs = [job([0, 1, 2, 3], [1.0, 2.0]), job([4, 5, 6, 7], [1.0, 2.0], estimate_s=1200.0)]
    shot = farm_snapshot([(1, 4), (1, 4)], jobs)
    assert not decided(shot)[2]
    target, _, (plan,) = decided(shot, "ARRIVE-F/ONE")
    # The other one loses 50 s in each of the 4 profiles that it has left.
    assert plan.trade.gain_s == pytest.approx(4 * 25 * 20 - 4 * 50 * 4 - 5.6)
    assert target.why


# Gains


def test_equations_12_to_16():
    assert saved_per_tau(50.0, 1.0, 2.0) == 25.0
    # FT.B.8 of equation 17: 9.47 s of 50.
    assert saved_per_tau(50.0, 40.53, 50.0) == pytest.approx(9.47)
    rules = Rules()
    assert counted_s(Mover(processes=8, saved_s=9.47, left_s=98.2), 11.2, rules) == 1000.0
    assert counted_s(Mover(processes=8, saved_s=0.5, left_s=1001.0), 11.2, rules) == 0.0
    assert counted_s(Mover(processes=8, saved_s=-5.0, left_s=0.0), 11.2, rules) == 1000.0
    assert counted_s(Mover(processes=8, saved_s=0.0, left_s=2000.0), 11.2, rules) == 1000.0
    movers = [Mover(processes=8, saved_s=25.0, left_s=2e3), Mover(processes=2, saved_s=-10.0, left_s=2e3)]
    assert gain_s(movers, rules) == pytest.approx(8 * 25 * 20 - 2 * 10 * 20 - 0.7 * 10)


def test_a_job_that_all_but_stops_loses_without_limit_and_never_nan():
    slow = Mover(processes=4, saved_s=saved_per_tau(50.0, 1e300, 1e-320), left_s=0.0)
    assert gain_s([slow], Rules(one=True)) == pytest.approx(-2.8)
    assert gain_s([slow], Rules()) == -np.inf


# Names and memos


def test_memos():
    policy_state = moved(moved(0, 3, 16), MOST_PARTITIONS - 1, 70_000)
    assert left(policy_state) == 1 << 3 | 1 << MOST_PARTITIONS - 1
    assert has_left(policy_state, 3)
    assert not has_left(policy_state, 2)
    assert source(policy_state) == MOST_PARTITIONS - 1
    assert source(left(policy_state)) == source(0) == -1
    assert Rules(copy_s=2.0).lasts_s(policy_state) == 2.0 * 65_535
    assert 0 < policy_state < 2**63
    assert letter(2) == "C"
    assert letter(30) == "sub-cluster 30"
    assert letter(2, ("A", "B", "D")) == "D"


def test_names():
    policy = find_policy("ARRIVE-F/TAU=10/BETA=4/THRESH=0/STRETCH=0/COPY=2.5/EVERY=2/PARALLEL/HEAD/ONE")
    assert policy.rules == Rules(
        tau_s=10.0, beta=4.0, threshold=0.0, stretch_s=0.0, copy_s=2.5, every=2.0, parallel=True, head=True, one=True
    )
    assert policy.rules.period_s == 20.0
    assert policy.rules.horizon_s == 40.0
    assert find_policy("ARRIVE-F").rules == Rules()
    for name in ("FARM-EASY", "ARRIVE-F", "ARRIVE-F/HEAD"):
        assert find_policy(name).name == name
        assert find_policy(name).traits == Traits(exclusive=True, clustered=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ARRIVE-F/TAU", 'part "TAU": must be given as a number above 0, at most 1e+09, as in TAU=10'),
        ("ARRIVE-F/TAU=2e9", "must be given as a number above 0, at most 1e+09"),
        ("ARRIVE-F/BETA=0", "above 0"),
        ("ARRIVE-F/COPY=nan", "above 0"),
        ("ARRIVE-F/THRESH=-1", "of at least 0"),
        ("ARRIVE-F/STRETCH=1e99", "of at least 0, at most 1e+09"),
        ("ARRIVE-F/HEAD=1", "takes no value"),
        ("ARRIVE-F/HEAD/HEAD", "another part for HEAD"),
        ("ARRIVE-F/HEED", "did you mean HEAD?"),
        ("ARRIVE-F/XYZW", "parts are TAU=…"),
        ("FARM-EASY/TAU=5", "TAU is for ARRIVE-F"),
        ("ARIVE-F", "did you mean ARRIVE-F"),
        ("FARM-EAZY", "FARM-EASY"),
    ],
)
def test_names_that_are_none(name, words):
    with pytest.raises(InputError, match="policy") as caught:
        find_policy(name)
    assert words in str(caught.value)


def test_sub_clusters_can_be_called_by_their_names():
    policy = replace(find_policy("ARRIVE-F"), names=("east", "west"))
    assert policy.decide(swap()).why[100].startswith("moved from east to west with job 101")


def test_on_one_partition_jobs_run_and_none_migrates():
    target = find_policy("ARRIVE-F").decide(replace(swap(), unequal=None))
    assert target.task_nodes.tolist() == swap().task_nodes.tolist()
    assert target.yields.tolist() == [1.0, 1.0]


def test_more_partitions_than_a_policy_knows_are_refused():
    with pytest.raises(TooManyPartitionsError, match="at most 40 sub-clusters, the farm has 41"):
        find_policy("ARRIVE-F").decide(farm_snapshot([(1, 1)] * 41, []))


# What happens at the same instant, on shared nodes, and on clocks that are too coarse


def test_an_analysis_is_not_lost_to_another_event_at_its_time():
    jobs = [job([0, 1, 2, 3], [1.0, 2.0]), job([8, 9, 10, 11], [1.0, 1.0])]
    policy = find_policy("ARRIVE-F")
    for cause in (Cause.COMPLETION, Cause.NODES, Cause.SUBMISSION):
        target = policy.decide(farm_snapshot(TWO, jobs, now_s=NOW_S, cause=cause))
        assert NOW_S < target.wake_at_s < NOW_S + 1e-9
        later = farm_snapshot(TWO, jobs, now_s=target.wake_at_s)
        assert policy.due(later)
        assert policy.decide(later).wake_at_s > NOW_S + 1.0
    assert policy.decide(farm_snapshot(TWO, jobs, now_s=0.0, cause=Cause.SUBMISSION)).wake_at_s == 200.0


def test_a_node_that_others_use_too_is_not_free_when_one_leaves():
    # As another policy may leave them: jobs 0 and 2 share node 0.
    jobs = [
        job([0, 1], [1.0, 9.0], yield_=0.5),
        job([4, 5], [9.0, 1.0]),
        job([0, 2], [1.0, 1.0], yield_=0.5, estimate_s=10.0),
    ]
    target, nodes, plans = decided(farm_snapshot([(1, 4), (1, 4)], jobs, closed=[3, 6, 7]))
    assert plans == []
    assert nodes == [[0, 1], [4, 5], [0, 2]]
    assert target.wake_at_s == NOW_S + 200.0


def test_a_copy_that_takes_no_time_the_clock_can_tell():
    jobs = [job([0, 1, 2, 3], [1.0, 2.0]), job([8, 9, 10, 11], [1.0, 1.0]), waiting(8)]
    target, _, plans = decided(farm_snapshot(TWO, jobs, closed=[*range(4, 8), *range(12, 16)]), "ARRIVE-F/COPY=1e-30")
    assert plans
    assert target.wake_at_s == NOW_S + 200.0
