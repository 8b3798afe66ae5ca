"""What every DFRS policy promises, on random snapshots and in random runs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.engine.check import check
from dfrs.engine.reconcile import reconcile
from dfrs.model.decisions import Cause, Reason, Target
from dfrs.model.errors import InputError
from dfrs.model.run import Penalty
from dfrs.policies.names import TABLE_5_1, all_published, find_policy
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.testing import SnapshotJob, build_snapshot
from tests.online_cases import random_workload
from tests.policy_cases import drawn, policy_case

SETTINGS = (
    *all_published(),
    "GreedyPM*/per/OPT=NONE",
    "/stretch-per/OPT=NONE",
    "GreedyP*/per=900/PRIO=VT",
    "MCB*/PRIO=FLOW/VT/MVT=600",
    "/per/VP_CPSUM/MVT=600",
    "MCB*/per/VP_BFLEX",
    "/stretch-per/MCB8/MFT=600",
    "Greedy*/stretch-per",
    "MCB*/stretch-per=300/OPT=AVG",
    "GreedyP*/per/VP_CPMAX/WINDOW=2",
)
CAUSES = tuple(Cause)
names = st.sampled_from(SETTINGS)


def places(shot, target):
    """Sorted nodes of each row."""
    slots = target.task_nodes
    return [sorted(slots[b:e].tolist()) for b, e in zip(shot.first[:-1], shot.first[1:], strict=True)]


@given(name=names, case=drawn(policy_case), cause=st.sampled_from(CAUSES))
def test_every_target_can_be_performed_and_is_the_same_again(name, case, cause):
    shot = case.snapshot(cause)
    target = find_policy(name).decide(shot)
    check(shot, target)
    commands, *_ = reconcile(shot, target)
    assert (commands.reason[commands.action < 4] > 0).all()
    again = find_policy(name).decide(case.snapshot(cause))
    assert target.task_nodes.tolist() == again.task_nodes.tolist()
    assert target.yields.tobytes() == again.yields.tobytes()
    assert (target.wake_at_s, target.reasons.tolist()) == (again.wake_at_s, again.reasons.tolist())


@given(name=names, case=drawn(policy_case), cause=st.sampled_from(CAUSES))
def test_tasks_that_stay_keep_their_slots(name, case, cause):
    shot = case.snapshot(cause)
    target = find_policy(name).decide(shot)
    for r, (old, new) in enumerate(zip(places(shot, present(shot)), places(shot, target), strict=True)):
        if old[0] >= 0 and new[0] >= 0:
            slots = case.slots(r)
            stays = int((shot.task_nodes[slots] == target.task_nodes[slots]).sum())
            common = sum(min(old.count(n), new.count(n)) for n in set(old))
            assert stays == common


def present(shot):
    """What runs as a target."""
    return Target(shot.task_nodes, shot.jobs["yield_"])


AGED = [name for name in SETTINGS if "MFT" in name or "MVT" in name]


@given(name=st.sampled_from(AGED), case=drawn(policy_case), cause=st.sampled_from(CAUSES))
def test_young_jobs_stay_or_are_paused(name, case, cause):
    """But GreedyPM may move them ([Stillwell2010] section 5.2.4)."""
    if cause is Cause.SUBMISSION and name.startswith("GreedyPM"):
        return
    shot = case.snapshot(cause)
    target = find_policy(name).decide(shot)
    limit = float(name.split("=")[-1])
    for r, nodes in case.where().items():
        job = case.jobs[r]
        age = case.now_s - job["submit_s"] if "MFT" in name else job["virtual_s"]
        if age < limit:
            assert places(shot, target)[r] in (nodes, [-1] * len(nodes))


@given(name=st.sampled_from(["GreedyP*", "GreedyPM*"]), case=drawn(policy_case))
def test_nobody_gives_way_who_could_have_stayed(name, case):
    shot = case.snapshot(Cause.SUBMISSION)
    target = find_policy(name).decide(shot)
    before = case.where()
    after = {r: nodes for r, nodes in enumerate(places(shot, target)) if nodes[0] >= 0}
    gave_way = {r for r in before if after.get(r) != before[r]}
    if not gave_way:
        return
    assert case.subject in after
    for r in gave_way:
        room = case.capacity[:, 1].copy()
        for q in (before.keys() - gave_way) | {r}:
            np.subtract.at(room, before[q], case.jobs["memory"][q])
        usable = case.open & (case.capacity[:, 0] > 0)
        memory = case.jobs["memory"][case.subject]
        fitting = np.floor((room[usable] + 1e-9) / memory).clip(0).sum() if memory > 0 else np.inf
        assert fitting < case.jobs["tasks"][case.subject]


@given(case=drawn(policy_case))
def test_greedy_leaves_everyone_in_place(case):
    for cause in (Cause.SUBMISSION, Cause.COMPLETION):
        shot = case.snapshot(cause)
        after = places(shot, find_policy("Greedy*").decide(shot))
        assert all(after[r] == nodes for r, nodes in case.where().items())


@given(case=drawn(policy_case), share=st.sampled_from(["MIN", "AVG", "NONE"]))
def test_the_least_yield_is_one_over_the_largest_load(case, share):
    """[Stillwell2010] section 5.2.5: what is left over is shared on top of that."""
    shot = case.snapshot(Cause.COMPLETION)
    target = find_policy(f"/per/OPT={share}").decide(shot)
    load = np.zeros(len(case.capacity))
    for r, nodes in case.where().items():
        np.add.at(load, nodes, case.jobs["need"][r])
    cpu = case.capacity[:, 0]
    fair = min([1.0, *(c / n for c, n in zip(cpu.tolist(), load.tolist(), strict=True) if n > 0)])
    given_out = [target.yields[r] for r in case.where()]
    assert min(given_out, default=fair) == pytest.approx(fair, abs=1e-9)
    if share == "NONE":
        assert max(given_out, default=fair) == pytest.approx(fair, abs=1e-9)


@given(case=drawn(policy_case), name=st.sampled_from(["/per", "/stretch-per/OPT=AVG"]))
def test_without_an_action_a_submission_changes_nothing(case, name):
    shot = case.snapshot(Cause.SUBMISSION)
    target = find_policy(name).decide(shot)
    assert target.task_nodes.tolist() == case.before.tolist()
    assert target.yields.tobytes() == np.ascontiguousarray(case.jobs["yield_"]).tobytes()


@given(case=drawn(policy_case), now_s=st.floats(0, 1e7), period_s=st.sampled_from([600.0, 0.1, 1200.0, 1 / 3, 7e5]))
def test_wakes_are_at_the_multiples_of_the_period(case, now_s, period_s):
    jobs = case.jobs.copy()
    jobs["submit_s"] = np.minimum(jobs["submit_s"], now_s)
    for cause in CAUSES:
        shot = replace(case, now_s=now_s, jobs=jobs).snapshot(cause)
        wake_at_s = find_policy(f"Greedy*/per={period_s}").decide(shot).wake_at_s
        assert now_s < wake_at_s <= now_s + period_s * (1 + 1e-6)
        assert wake_at_s / period_s == pytest.approx(round(wake_at_s / period_s), rel=1e-12)
        assert find_policy("Greedy*").decide(shot).wake_at_s is None


@pytest.mark.parametrize("name", [*TABLE_5_1, "/per/VP_CPSUM"])
def test_without_jobs_there_is_nothing_to_wake_for(name):
    for cause in (Cause.COMPLETION, Cause.WAKE, Cause.NODES):
        shot = build_snapshot(now_s=10.0, cause=cause)
        target = find_policy(name).decide(shot)
        assert (target.wake_at_s, len(target.yields), len(target.task_nodes)) == (None, 0, 0)


def state(jobs, *, nodes=2, now_s=1000.0, cause=Cause.COMPLETION, subject=-1, closed=()):
    """From rows (tasks, need, memory, nodes or None, virtual time, submission)."""
    return build_snapshot(
        (
            SnapshotJob(
                id=r,
                tasks=tasks,
                need=need,
                memory=memory,
                nodes=where or (),
                paused=where is None and virtual_s > 0,
                yield_=0.1 * (where is not None),
                virtual_s=virtual_s,
                submit_s=submit_s,
            )
            for r, (tasks, need, memory, where, virtual_s, submit_s) in enumerate(jobs)
        ),
        nodes=nodes,
        closed=closed,
        now_s=now_s,
        cause=cause,
        subject=subject,
    )


def decided(name, rows, **settings):
    shot = state(rows, **settings)
    return places(shot, find_policy(name).decide(shot))


def test_priority_is_flow_time_over_virtual_time_squared():
    """One place for two paused jobs; the first has virtual time 110 after 990 s, the second 100."""

    def winner(name, submit_s):
        rows = [(1, 1.0, 1.0, None, 110.0, 10.0), (1, 1.0, 1.0, None, 100.0, submit_s)]
        return decided(name, rows, nodes=1).index([0])

    assert [winner("Greedy*", submit_s) for submit_s in (105.0, 250.0)] == [1, 0]
    assert [winner("Greedy*/PRIO=VT", submit_s) for submit_s in (105.0, 250.0)] == [1, 1]
    assert [winner("Greedy*/PRIO=FLOW/VT", submit_s) for submit_s in (95.0, 105.0)] == [1, 0]


def test_jobs_that_never_ran_come_first_and_among_them_the_earlier():
    rows = [(1, 1.0, 1.0, None, 1.0, 0.0), (1, 1.0, 1.0, None, 0.0, 5.0), (1, 1.0, 1.0, None, 0.0, 6.0)]
    assert decided("Greedy*", rows, nodes=1) == [[-1], [0], [-1]]


def test_mcb_leaves_out_the_lowest_priority():
    rows = [(2, 1.0, 0.6, [0, 1], 500.0, 0.0), (1, 1.0, 0.6, None, 0.0, 900.0), (1, 1.0, 0.3, None, 0.0, 990.0)]
    shot = state(rows, cause=Cause.WAKE)
    target = find_policy("/per").decide(shot)
    assert places(shot, target) == [[-1, -1], [0], [1]] or places(shot, target) == [[-1, -1], [0], [0]]
    assert target.reasons[0] == Reason.LEFT_OUT
    assert target.reasons[1] == Reason.PACKED


def test_a_draining_node_keeps_what_it_has_and_gets_nothing_new():
    rows = [(1, 1.0, 0.2, [1], 50.0, 0.0), (2, 0.5, 0.2, None, 0.0, 900.0)]
    shot = state(rows, closed=(1,), cause=Cause.NODES)
    for name in ("Greedy*", "Greedy/per", "GreedyPM*"):
        assert places(shot, find_policy(name).decide(shot)) == [[1], [0, 0]]
    assert places(shot, find_policy("MCB*").decide(shot)) == [[0], [0, 0]]
    assert places(shot, find_policy("MCB*/MVT=60").decide(shot)) == [[1], [0, 0]]


def test_after_a_node_event_waiting_jobs_are_placed_also_without_star():
    rows = [(1, 1.0, 0.2, None, 0.0, 0.0)]
    shot = state(rows, cause=Cause.NODES)
    assert places(shot, find_policy("Greedy/per").decide(shot)) == [[0]]
    assert places(shot, find_policy("MCB/per").decide(shot)) == [[0]]
    assert places(shot, find_policy("/per").decide(shot)) == [[-1]]
    shot = state(rows, cause=Cause.COMPLETION)
    assert places(shot, find_policy("Greedy/per").decide(shot)) == [[-1]]


def test_stretch_shares_equalise_the_estimated_stretch_at_the_next_wake():
    """Two jobs on one node at 600 s before the wake: virtual times 100 and 400 after flow times of 1000."""
    rows = [(1, 1.0, 0.2, [0], 100.0, 200.0), (1, 1.0, 0.2, [0], 400.0, 200.0)]
    shot = state(rows, nodes=1, now_s=1200.0)
    yields = find_policy("/stretch-per").decide(shot).yields
    assert 100 + 600 * yields[0] == pytest.approx(400 + 600 * yields[1])
    assert yields.sum() == pytest.approx(1)
    best = find_policy("/stretch-per/OPT=AVG").decide(shot).yields
    assert best == pytest.approx(yields, abs=1e-3)


@pytest.mark.parametrize("name", SETTINGS)
def test_random_workloads_are_worked_off(name):
    """The simulator checks every target."""
    workload = random_workload(11, jobs=25)
    settings = SimulationSettings(penalty=Penalty(seconds=20.0))
    if name.startswith("MCB") and "per" in name:
        settings = SimulationSettings()
    run = Simulation(workload, find_policy(name), name, settings).run()
    assert run.complete
    assert not np.isnan(run.stretch).any()


def test_one_name_one_policy():
    assert find_policy("/per").name == "/per"
    with pytest.raises(InputError):
        find_policy("/pre")
