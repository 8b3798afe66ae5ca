"""REBALANCE: what is free is used at once, by few moves, none of which costs more than it gains, and none for ever."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dfrs.bounds.snapshot import snapshot_bound
from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Ready, Submit, Wake
from dfrs.engine.executor_constraints import guard
from dfrs.kernels.rebalance import least_pressure
from dfrs.live.protocol.resources import JobState
from dfrs.model.decisions import RUNNING, Abilities, Cause, Prices, Reason
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.model.run import Penalty
from dfrs.policies.fractional.grammar import FRACTIONAL
from dfrs.policies.fractional.rebalance import LEAST_S, RESTS, THRESHOLD, TIMES, ask_again, is_repacking, late_s
from dfrs.policies.names import find_policy
from dfrs.runs.metrics.schedule import summarize
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.testing import InMemoryCluster, until
from dfrs.testing.policies import SnapshotJob, build_snapshot, check_policy, check_target, random_workload
from tests.policy_cases import drawn, placed_case, policy_case

PLAIN = "GreedyPM*/per/OPT=MIN/MVT=600"
NAME = f"{PLAIN}/REBALANCE"
ONE_HOST, TWO_HOSTS = Prices(0.05, 0.05, 0.05), Prices(1.0, 2.0, 4.0)


def hogs(*nodes, virtual_s=30.0, **more):
    return [SnapshotJob(nodes=(n,), yield_=0.01, virtual_s=virtual_s, submit_s=900.0, **more) for n in nodes]


def ended(jobs, *, prices=None, **more):
    shot = build_snapshot(jobs, cause=Cause.COMPLETION, **more)
    return shot if prices is None else replace(shot, prices=prices)


def decided(shot, name=NAME):
    target = find_policy(name).decide(shot)
    check_target(shot, target)
    return target


def least(target):
    return float(target.yields[target.yields > 0].min())


@pytest.mark.parametrize("cause", [Cause.COMPLETION, Cause.NODES, Cause.NEEDS, Cause.COMMAND, Cause.WAKE])
def test_two_jobs_on_one_node_use_the_other_at_once(cause):
    shot = replace(ended(hogs(0, 0)), cause=cause)
    assert find_policy(PLAIN).decide(replace(shot, cause=Cause.COMPLETION)).yields.tolist() == [0.5, 0.5]
    target = decided(shot)
    assert sorted(target.task_nodes.tolist()) == [0, 1]
    assert target.yields.tolist() == [1.0, 1.0]
    assert sorted(target.reasons.tolist()) == [Reason.NONE, Reason.BALANCED]


def test_no_more_jobs_move_than_must():
    target = decided(ended(hogs(0, 0, 0, 0, 1, 1), nodes=3))
    assert np.bincount(target.task_nodes).tolist() == [2, 2, 2]
    assert (target.reasons == Reason.BALANCED).sum() == 2
    near = [*hogs(0, need=1.0), *hogs(0, need=0.18)]
    assert decided(ended(near)).task_nodes.tolist() == [0, 0]
    assert decided(ended(near), f"{PLAIN}/REBALANCE=0.01").task_nodes.tolist() != [0, 0]


def test_once_jobs_move_the_minimum_comes_as_near_to_its_bound_as_it_can():
    shot = ended(hogs(*[0] * 13, *[1] * 7, need=0.2))
    target = decided(shot)
    assert least(target) >= snapshot_bound(shot) / 1.05
    assert np.bincount(target.task_nodes).tolist() == [10, 10]


def test_tasks_change_places_where_no_move_helps():
    jobs = [*hogs(0, 0, need=0.9, memory=0.5), *hogs(1, 1, need=0.1, memory=0.5)]
    target = decided(ended(jobs))
    assert target.yields.tolist() == [1.0] * 4


def test_tasks_of_a_wide_job_move_only_where_all_can():
    """Two jobs of three tasks: with two free nodes no move raises a yield, with three the moves of one job do."""
    jobs = [SnapshotJob(nodes=(0, 1, 2), yield_=0.5, virtual_s=30.0) for _ in range(2)]
    target = decided(ended(jobs, nodes=5))
    assert target.task_nodes.tolist() == [0, 1, 2, 0, 1, 2]
    assert not target.reasons.any()
    target = decided(ended(jobs, nodes=6))
    assert target.yields.tolist() == [1.0, 1.0]
    assert (target.reasons == Reason.BALANCED).sum() == 1


def test_those_that_cannot_be_helped_stop_nobody():
    """The jobs of node 0 cannot move; those of node 1 use another all the same."""
    target = decided(able(ended(hogs(0, 0, 0, 1, 1), nodes=4), island=[0] * 4, fixed=[0, 1, 2]))
    assert target.task_nodes.tolist()[:3] == [0, 0, 0]
    assert least(target) == pytest.approx(1 / 3)
    assert target.yields.tolist()[3:] == [1.0, 1.0]


def test_many_that_cannot_be_helped_stop_nobody_either():
    """Two jobs on each of 92 nodes, and 49 nodes are free: those of 43 cannot move, those of 49 use the free ones."""
    jobs = hogs(*[n for n in range(92) for _ in range(2)], memory=0.1)
    target = decided(able(ended(jobs, nodes=141), island=[0] * 141, fixed=range(98, 184)))
    assert np.bincount(target.task_nodes, minlength=141).tolist() == [1] * 49 + [2] * 43 + [1] * 49


@pytest.mark.parametrize(("price_s", "moves"), [(0.0, 1), (0.05, 1), (3.0, 1), (7.4, 1), (7.6, 0), (300.0, 0)])
def test_a_move_must_gain_twice_what_it_costs(price_s, moves):
    """From yield 0.5 to 1 over the 30 s that jobs are expected to go on: 15 s are gained."""
    target = decided(ended(hogs(0, 0), prices=Prices(move_s=price_s)))
    assert (target.reasons == Reason.BALANCED).sum() == moves
    assert TIMES == 2.0


def test_a_repacking_to_come_ends_what_a_move_gains():
    jobs = hogs(0, 0, virtual_s=100.0)
    for now_s, moves in ((1100.0, 1), (1190.0, 0)):
        target = decided(ended(jobs, now_s=now_s, prices=Prices(move_s=10.0)))
        assert (target.reasons == Reason.BALANCED).sum() == moves
        assert target.wake_at_s == 1200.0
    assert (decided(ended(jobs, now_s=1190.0, prices=Prices(move_s=10.0)), "Greedy*/REBALANCE").reasons > 0).any()


def test_it_asks_again_when_a_move_will_pay_and_moves_then():
    jobs, prices = hogs(0, 0, virtual_s=2.0), Prices(move_s=3.0)
    first = decided(ended(jobs, prices=prices))
    assert not first.reasons.any()
    # 12 s of progress are needed, at half a second in each.
    assert first.wake_at_s == pytest.approx(1020.0)
    later = ended(hogs(0, 0, virtual_s=12.0), now_s=1020.0, prices=prices)
    assert decided(replace(later, cause=Cause.WAKE)).yields.tolist() == [1.0, 1.0]


def test_a_job_that_moved_rests():
    shot = ended(hogs(0, 0, virtual_s=90.0), prices=Prices(move_s=2.0))
    jobs = shot.jobs.copy()
    jobs["since_s"] = 990.0
    shot = replace(shot, jobs=jobs)
    target = decided(shot)
    assert not target.reasons.any()
    assert target.wake_at_s == 990.0 + RESTS * 2.0
    assert (decided(replace(shot, now_s=target.wake_at_s)).reasons > 0).any()


@given(now_s=st.floats(0, 1e6), after_s=st.floats(0, 1e4), period_s=st.sampled_from([1.9, 10.0, 60.0, 121.6, 600.0]))
@example(now_s=250.0, after_s=0.0, period_s=121.6)
def test_asking_again_is_never_taken_for_a_repacking(now_s, after_s, period_s):
    at_s = ask_again(now_s, after_s, None, period_s)
    assert at_s >= now_s + min(after_s, LEAST_S)
    assert not is_repacking(at_s, period_s)
    due_s = period_s * (now_s // period_s + 1)
    assert is_repacking(due_s, period_s)
    assert is_repacking(due_s + 0.9 * late_s(period_s), period_s)
    assert ask_again(now_s, np.inf, due_s, period_s) == due_s


def test_wakes_between_repackings_repack_nothing():
    jobs = [SnapshotJob(nodes=(k,), need=0.2, memory=0.1, virtual_s=900.0, yield_=1.0) for k in range(4)]
    repacked = find_policy(PLAIN).decide(build_snapshot(jobs, nodes=4, now_s=1200.0)).task_nodes
    for now_s, same in ((1200.0, True), (1200.4, True), (1300.0, False)):
        target = decided(build_snapshot(jobs, nodes=4, now_s=now_s))
        assert (target.task_nodes.tolist() == repacked.tolist()) is same
    # 12 * 121.6 / 121.6 is less than 12.
    for now_s, same in ((12 * 121.6, True), (12 * 121.6 + 30.0, False)):
        target = decided(build_snapshot(jobs, nodes=4, now_s=now_s), NAME.replace("per", "per=121.6"))
        assert (target.task_nodes.tolist() == repacked.tolist()) is same


def test_waiting_jobs_come_before_others_move():
    jobs = [*hogs(0, 0, memory=0.1), SnapshotJob(memory=0.1, submit_s=950.0)]
    target = decided(ended(jobs, nodes=3), "Greedy/per/REBALANCE")
    assert sorted(target.task_nodes.tolist()) == [0, 1, 2]


def test_names():
    assert find_policy(NAME).rebalance.threshold == THRESHOLD
    assert find_policy(f"{NAME}=0.2").rebalance.threshold == 0.2
    assert find_policy(PLAIN).rebalance is None
    assert find_policy(f"{NAME}/BUDGET=3").rebalance.budget == 3.0
    with pytest.raises(InputError, match="does not go with /stretch-per"):
        find_policy("/stretch-per/REBALANCE")
    with pytest.raises(InputError, match="above 0"):
        find_policy("MCB*/REBALANCE=-1")
    assert "REBALANCE" in {option.key for option in FRACTIONAL.options}


def test_a_budget_limits_the_memory_that_moves():
    jobs = hogs(0, 0, 0, 0, memory=0.2)
    for budget, moves in ((1.0, 2), (0.25, 1), (0.1, 0)):
        target = decided(ended(jobs), f"{NAME}/BUDGET={budget}")
        assert (target.reasons == Reason.BALANCED).sum() == moves


def able(shot, *, island, keeps=False, fixed=()):
    rows = len(shot.jobs)
    cannot = np.zeros(rows, np.bool_)
    cannot[list(fixed)] = True
    nodes = np.full(len(island), keeps)
    homes = np.full(len(shot.task_nodes), -1)
    return replace(
        shot,
        abilities=Abilities(
            nodes,
            np.array(island),
            homes,
            np.zeros(rows, np.bool_),
            cannot,
            np.zeros(rows, np.bool_),
            np.zeros(len(island)),
        ),
    )


def test_nobody_leaves_its_island_or_moves_that_cannot():
    shot = ended(hogs(0, 0, 0), nodes=3)
    assert decided(able(shot, island=[0, 1, 2])).task_nodes.tolist() == [0, 0, 0]
    assert sorted(decided(able(shot, island=[0, 0, 1])).task_nodes.tolist()) in ([0, 0, 1], [0, 1, 1])
    assert decided(able(shot, island=[0, 0, 0], fixed=[0, 1])).task_nodes.tolist() == [0, 0, 1]


def test_nobody_changes_places_where_paused_tasks_stay_in_memory():
    jobs = [*hogs(0, 0, need=0.9, memory=0.5), *hogs(1, 1, need=0.1, memory=0.5)]
    shot = ended(jobs)
    assert decided(able(shot, island=[0, 0], keeps=True)).task_nodes.tolist() == [0, 0, 1, 1]
    assert decided(able(shot, island=[0, 0])).task_nodes.tolist() != [0, 0, 1, 1]


def test_agreed_minimum_yields_have_room_where_jobs_go():
    jobs = [*hogs(0, 0, 0, minimum=0.3), *hogs(1, minimum=0.8)]
    shot = ended(jobs)
    assert decided(shot).task_nodes.tolist() == [0, 0, 0, 1]
    relaxed = shot.jobs.copy()
    relaxed["minimum"] = 0.0
    assert np.bincount(decided(replace(shot, jobs=relaxed)).task_nodes).tolist() == [2, 2]


@given(case=drawn(placed_case), price_s=st.sampled_from([0.0, 0.05, 4.0, 300.0]), islands=st.integers(1, 3))
def test_no_yield_falls_below_the_least_and_a_second_call_moves_nobody(case, price_s, islands):
    shot = replace(case.snapshot(Cause.COMPLETION), prices=Prices(move_s=price_s))
    nodes = len(shot.open)
    if islands > 1:
        shot = able(shot, island=[n % islands for n in range(nodes)], keeps=islands == 2)
    plain, target = decided(shot, "Greedy*/OPT=MIN"), decided(shot, "Greedy*/OPT=MIN/REBALANCE")
    assert guard(shot, target, find_policy(NAME).traits) is target
    assert (target.yields > 0).sum() >= (plain.yields > 0).sum()
    if (plain.yields > 0).any():
        assert least(target) >= least(plain) - 1e-9
    first = shot.first[:-1]
    again = shot.jobs.copy()
    again["state"] = np.where(target.task_nodes[first] >= 0, 1, again["state"])
    again["yield_"] = target.yields
    again.setflags(write=False)
    after = replace(shot, jobs=again, task_nodes=target.task_nodes)
    second = decided(after, "Greedy*/OPT=MIN/REBALANCE")
    started = (target.task_nodes[first] >= 0) & (shot.jobs["state"] != 1)
    if not started.any():
        assert second.task_nodes.tolist() == target.task_nodes.tolist()


@given(case=drawn(placed_case))
def test_the_bound_is_that_of_the_snapshot(case):
    """Of what has nodes; that of the snapshot also knows which nodes' memory suffices."""
    shot = case.snapshot().select(case.before[case.first[:-1]] >= 0)
    ones = np.ones(len(shot.jobs))
    pressure = least_pressure(shot.jobs, shot.first, shot.task_nodes, ones, shot.capacity, shot.open)
    assert 1.0 / pressure >= snapshot_bound(shot) - 1e-9
    if (shot.capacity == 1.0).all() and len(shot.jobs):
        assert 1.0 / pressure == pytest.approx(snapshot_bound(shot))


@given(
    case=drawn(policy_case),
    name=st.sampled_from([NAME, "MCB*/REBALANCE", "/per/REBALANCE", "Greedy*/WEIGHT/REBALANCE"]),
)
def test_any_target_can_be_performed(case, name):
    for cause in Cause:
        decided(case.snapshot(cause), name)


@pytest.mark.parametrize("name", [NAME, "Greedy*/due/OPT=AVG/REBALANCE", "MCB*/DECAY=600/REBALANCE/BUDGET=2"])
def test_runs_stand_before_the_checker(name):
    check_policy(name, range(3))


def simulated(workload, name, penalty_s):
    return Simulation(workload, find_policy(name), name, SimulationSettings(penalty=Penalty(seconds=penalty_s))).run()


def test_a_price_above_what_can_be_gained_changes_no_run():
    workload = random_workload(3, jobs=60)
    one, other = (simulated(workload, name, 300.0) for name in (PLAIN, NAME))
    assert one.events.time_s.tolist() == other.events.time_s.tolist()
    assert np.array_equal(one.events.yield_, other.events.yield_, equal_nan=True)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), prices=st.sampled_from([ONE_HOST, TWO_HOSTS]))
def test_random_completions_move_nobody_again_and_again(seed, prices):
    """Between two moves of a job at least 30 times the price passes, and jobs move seldom."""
    rng = np.random.default_rng(seed)
    core = Core(find_policy("Greedy*/OPT=MIN/REBALANCE"), np.ones((4, 2)))
    core.handle(prices, 0.0)
    now_s, last_s, present, moves, name = 0.0, {}, [], 0, 0
    for _ in range(120):
        now_s += float(rng.exponential(3.0))
        while core.wake_at_s is not None and core.wake_at_s <= now_s:
            moves += step(core, Wake(), core.wake_at_s, last_s, prices)
        if len(present) < 4 or (len(present) < 12 and rng.random() < 0.5):
            present.append(name)
            event = Submit(name, 1, float(rng.choice([0.3, 0.6, 1.0])), 0.05)
            name += 1
        else:
            event = Complete(present.pop(int(rng.integers(len(present)))))
        moves += step(core, event, now_s, last_s, prices)
    assert moves < (2.0 if prices is ONE_HOST else 0.5) * name


def step(core, event, now_s, last_s, prices):
    shot = core.snapshot()
    before = {int(job["id"]): int(job["migrations"]) for job in shot.jobs}
    core.handle(event, now_s)
    jobs = core.snapshot().jobs
    running = jobs["serial"][jobs["state"] == RUNNING]
    core.handle(Ready(running, np.full(len(running), now_s)), now_s)
    moved = [int(job["id"]) for job in jobs if job["migrations"] > before.get(int(job["id"]), 0)]
    for job in moved:
        assert now_s - last_s.get(job, -np.inf) >= RESTS * prices.move_s - 1e-9
        last_s[job] = now_s
    return len(moved)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("price_s", [0.05, 4.0])
def test_two_hundred_short_jobs_move_less_than_once_each(seed, price_s):
    """On one host and between hosts; the worst job is hardly worse off, and on one host better."""
    rng = np.random.default_rng(seed)
    run_s, need = rng.uniform(1.0, 20.0, 200), rng.choice([0.25, 0.5, 1.0], 200)
    workload = Workload(
        job_id=np.arange(1, 201),
        submit_s=np.cumsum(rng.exponential(float((run_s * need).mean()) / 4 / 0.9, 200)),
        tasks=np.ones(200, np.int64),
        need=need,
        memory=np.full(200, 0.05),
        run_s=run_s,
        estimate_s=run_s,
        user=np.zeros(200, np.int64),
        weight=np.ones(200),
        nodes=4,
        name="short",
    )
    plain, rebalanced = (summarize(simulated(workload, name, price_s)) for name in (PLAIN, NAME))
    assert rebalanced["migrations_per_job"] < 1.0
    assert rebalanced["bounded_stretch_max"] < plain["bounded_stretch_max"] * 1.1


def test_a_live_cluster_uses_a_node_that_becomes_free_at_once():
    """Two jobs on each of two nodes; both of one node end."""

    async def story():
        async with InMemoryCluster(NAME, nodes=2, cpus=1.0) as live:
            jobs = [await live.submit(cpu_cores=1.0) for _ in range(4)]
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
            live.hosts.tick(10)
            on = {task.job: name for task, name in live.hosts.running()}
            ending = [job for job in jobs if on[job] == "n1"]
            left = set(jobs) - set(ending)
            assert len(ending) == 2
            for job in ending:
                live.nodes["n1"].end(job)
            await until(lambda: {task.job for task, _ in live.hosts.running()} == left, "the others ended")
            await until(lambda: sorted(name for _, name in live.hosts.running()) == ["n1", "n2"], "one moved")
            yields = live.controller.state.core.snapshot().jobs["yield_"]
            assert yields.tolist() == [1.0, 1.0]

    asyncio.run(story())


def test_chosen_rows_keep_what_is_known_of_their_moves():
    shot = able(ended(hogs(0, 0, 1)), island=[0, 0], fixed=[2])
    chosen = shot.select(np.array([False, True, True]))
    assert chosen.abilities.fixed.tolist() == [False, True]
