"""What the batch policies promise, on random snapshots and in random runs; small cases by hand; Theorem 4."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dfrs.model.decisions import PAUSED, RUNNING, Cause, PolicyError, Reason, Traits, traits_of
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.model.run import Action
from dfrs.policies.batch.backfilling import MissingEstimateError
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.testing import SnapshotJob, build_snapshot
from tests.naive import batch as naive
from tests.small_policies import BATCH
from tests.unit.test_kernels_batch import snapshots

WHOLE = ("FCFS", "EASY", "CONSERVATIVE")
NONE = float("nan")


def snapshot(jobs, nodes=1, *, capacity=None, closed=(), now_s=0.0, subject=-1):
    """From rows of (tasks, need, memory, estimate, nodes or None[, virtual time])."""
    return build_snapshot(
        (
            SnapshotJob(
                id=100 + r,
                tasks=tasks,
                need=need,
                memory=memory,
                estimate_s=estimate_s,
                nodes=where or (),
                yield_=0.25 * (where is not None),
                virtual_s=virtual_s[0] if virtual_s else 0.0,
            )
            for r, (tasks, need, memory, estimate_s, where, *virtual_s) in enumerate(jobs)
        ),
        nodes=nodes if capacity is None else capacity,
        closed=closed,
        now_s=now_s,
        cause=Cause.COMPLETION,
        subject=subject,
    )


def places(shot, target):
    return [target.task_nodes[b:e].tolist() for b, e in zip(shot.first[:-1], shot.first[1:], strict=True)]


def started(name, shot):
    """Rows that a policy starts, with their nodes."""
    target = BATCH[name]().decide(shot)
    return {
        r: nodes for r, nodes in enumerate(places(shot, target)) if nodes[0] >= 0 and shot.task_nodes[shot.first[r]] < 0
    }


def applied(shot, target):
    """The snapshot after the target was performed, at the same instant."""
    jobs = shot.jobs.copy()
    runs = target.task_nodes[shot.first[:-1]] >= 0
    jobs["state"][runs] = RUNNING
    jobs["yield_"] = target.yields
    if len(target.policy_state):
        jobs["policy_state"] = target.policy_state
    return replace(shot, jobs=jobs, task_nodes=target.task_nodes, subject=-1, cause=Cause.WAKE)


def only(shot, rows):
    """The snapshot with some of its jobs."""
    slots = np.concatenate([np.arange(shot.first[r], shot.first[r + 1]) for r in rows]).astype(np.int64)
    first = np.cumsum([0, *(shot.jobs["tasks"][r] for r in rows)])
    return replace(shot, jobs=shot.jobs[rows], first=first, task_nodes=shot.task_nodes[slots], subject=-1)


def alike(shot):
    """Whether open nodes are of one kind. Else it is not noted of which one a reservation is."""
    return len(np.unique(shot.capacity[shot.open], axis=0)) < 2


# Promises on any snapshot


@pytest.mark.parametrize("name", WHOLE)
@given(shot=snapshots())
def test_no_node_is_shared_with_a_job_that_starts_and_nothing_moves(name, shot):
    target = BATCH[name]().decide(shot)
    users = {n: set() for n in range(len(shot.capacity))}
    new = set()
    for r, nodes in enumerate(places(shot, target)):
        before = shot.task_nodes[shot.first[r] : shot.first[r + 1]].tolist()
        if before[0] >= 0:
            assert nodes == before
        elif nodes[0] >= 0:
            new.add(r)
            assert min(nodes) >= 0
            assert shot.open[nodes].all()
            for n in set(nodes):
                assert nodes.count(n) * shot.jobs["need"][r] <= shot.capacity[n, 0] + 1e-9
                assert nodes.count(n) * shot.jobs["memory"][r] <= shot.capacity[n, 1] + 1e-9
        else:
            assert max(nodes) == -1
        assert target.yields[r] == (nodes[0] >= 0)
        for n in set(nodes) - {-1}:
            users[n].add(r)
    assert all(len(here) == 1 for here in users.values() if here & new)


@pytest.mark.parametrize("name", WHOLE)
@given(shot=snapshots())
def test_later_jobs_make_no_difference_to_those_before_them(name, shot):
    everyone = started(name, shot)
    waiting = [r for r in range(len(shot.jobs)) if shot.task_nodes[shot.first[r]] < 0]
    for k in range(len(waiting)):
        rows = [r for r in range(len(shot.jobs)) if r not in waiting[k + 1 :]]
        fewer = {rows[r]: nodes for r, nodes in started(name, only(shot, rows)).items()}
        assert fewer == {r: nodes for r, nodes in everyone.items() if r in rows}


@pytest.mark.parametrize("name", [*WHOLE, "EQUIPARTITION"])
@given(shot=snapshots())
def test_what_was_decided_needs_no_second_decision(name, shot):
    assume(name != "CONSERVATIVE" or alike(shot))
    after = applied(shot, BATCH[name]().decide(shot))
    again = BATCH[name]().decide(after)
    assert again.task_nodes is after.task_nodes
    assert again.yields.tolist() == after.jobs["yield_"].tolist()


@given(shot=snapshots())
def test_easy_starts_all_that_fcfs_starts_and_does_not_delay_the_head(shot):
    in_order = started("FCFS", shot)
    target = BATCH["EASY"]().decide(shot)
    assert in_order.items() <= started("EASY", shot).items()
    before = naive.head_reservation(applied(shot, BATCH["FCFS"]().decide(shot)))
    assert naive.head_reservation(applied(shot, target)) == before


@given(shot=snapshots())
def test_conservative_delays_no_reservation(shot):
    assume(alike(shot))
    promised = naive.reservations(shot)
    after = applied(shot, BATCH["CONSERVATIVE"]().decide(shot))
    kept = naive.reservations(after)
    assert kept == {row: promise for row, promise in promised.items() if promise[0][1] > 0}


# Promises over whole runs


@st.composite
def workloads(draw, exact=False):
    jobs = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    run_s = rng.integers(1, 12, jobs).astype(float)
    nodes = int(rng.integers(1, 9))
    return Workload(
        job_id=np.arange(jobs),
        submit_s=rng.integers(0, 4 * jobs, jobs).astype(float),
        tasks=rng.integers(1, nodes, jobs, endpoint=True),
        need=rng.choice([1.0, 0.5], jobs),
        memory=np.zeros(jobs),
        run_s=run_s,
        estimate_s=run_s if exact else run_s + rng.integers(0, 6, jobs),
        user=np.zeros(jobs, np.int64),
        weight=np.ones(jobs),
        nodes=nodes,
    )


class Witness:
    """A policy that shows every snapshot to `look` and decides as another does."""

    traits = Traits(exclusive=True)

    def __init__(self, name, look):
        self.inner = BATCH[name]()
        self.look = look

    def decide(self, shot):
        target = self.inner.decide(shot)
        self.look(shot, target)
        return target


def start_times(workload, policy):
    run = Simulation(workload, policy, "x").run()
    assert run.complete
    starts = run.events.action == Action.START
    return dict(zip(run.events.job[starts].tolist(), run.events.time_s[starts].tolist(), strict=True))


@given(workload=workloads())
def test_fcfs_starts_jobs_in_order_of_submission(workload):
    times = start_times(workload, BATCH["FCFS"]())
    assert sorted(times.values()) == [times[j] for j in range(len(workload))]


@given(workload=workloads())
def test_the_head_starts_no_later_than_any_reservation_it_had_under_easy(workload):
    promises = {}

    def look(shot, target):
        promise = naive.head_reservation(applied(shot, target))
        if promise is not None:
            promises.setdefault(int(shot.jobs["serial"][promise[0]]), []).append(promise[1])

    times = start_times(workload, Witness("EASY", look))
    for job, promised in promises.items():
        assert promised == sorted(promised, reverse=True)
        assert times[job] <= promised[-1]


@given(workload=workloads(exact=True))
def test_with_exact_estimates_conservative_starts_each_job_when_it_first_said(workload):
    promises = {}

    def look(shot, _):
        if shot.subject >= 0:
            begin, _ = naive.reservations(shot)[shot.subject]
            promises[int(shot.jobs["serial"][shot.subject])] = begin[0]

    assert start_times(workload, Witness("CONSERVATIVE", look)) == promises


# By hand


def test_fcfs_stops_at_the_first_that_does_not_fit_easy_fills_in_and_says_so():
    shot = snapshot(
        [(2, 1, 0, 9, [0, 1]), (1, 1, 0, 9, None), (3, 1, 0, 9, None), (1, 1, 0, 10, None), (1, 1, 0, 9, None)], 4
    )
    assert started("FCFS", shot) == {1: [2]}
    target = BATCH["EASY"]().decide(shot)
    assert places(shot, target) == [[0, 1], [2], [-1] * 3, [3], [-1]]
    assert target.reasons.tolist() == [0, Reason.QUEUE_HEAD, 0, Reason.BACKFILLED, 0]
    assert target.yields.tolist() == [1, 1, 0, 1, 0]
    assert target.wake_at_s is None


def test_easy_gives_a_long_job_only_nodes_the_head_can_spare():
    spare = [(2, 1, 0, 9, [0, 1]), (3, 1, 0, 9, None), (1, 1, 0, 99, None), (1, 1, 0, 99, None)]
    assert started("EASY", snapshot(spare, 4)) == {2: [2]}
    none_spare = [(2, 1, 0, 9, [0, 1]), (4, 1, 0, 9, None), (1, 1, 0, 99, None), (1, 1, 0, 9, None)]
    assert started("EASY", snapshot(none_spare, 4)) == {3: [2]}


def test_conservative_protects_the_second_in_the_queue_and_easy_does_not():
    jobs = [(2, 1, 0, 4, [0, 1]), (4, 1, 0, 2, None), (3, 1, 0, 5, None), (1, 1, 0, 3, None), (1, 1, 0, 4, None)]
    assert started("EASY", snapshot(jobs, 4)) == started("CONSERVATIVE", snapshot(jobs, 4)) == {3: [2], 4: [3]}
    # The second in the queue is promised nodes 2 and 3 from 0 on, so that the third comes after it.
    jobs = [(2, 1, 0, 4, [0, 1]), (3, 1, 0, 2, None), (2, 1, 0, 4, None), (1, 1, 0, 6, None)]
    assert started("EASY", snapshot(jobs, 4)) == {2: [2, 3]}
    jobs = [(3, 1, 0, 4, [0, 1, 2]), (3, 1, 0, 2, None), (4, 1, 0, 4, None), (1, 1, 0, 9, None)]
    assert started("EASY", snapshot(jobs, 4)) == {3: [3]}
    assert started("CONSERVATIVE", snapshot(jobs, 4)) == {}


def test_an_overdue_job_keeps_its_nodes_and_may_end_at_any_moment():
    jobs = [(2, 1, 0, 5, [0, 1], 7.0), (3, 1, 0, 9, None), (1, 1, 0, 1, None), (1, 1, 0, 1, None)]
    for name in ("EASY", "CONSERVATIVE"):
        assert started(name, snapshot(jobs, 4, now_s=7.0)) == {2: [2]}


def test_the_time_left_counts_from_the_virtual_time():
    jobs = [(1, 1, 0, 10, [0], 6.0), (2, 1, 0, 1, None), (1, 1, 0, 4.5, None), (1, 1, 0, 4, None)]
    assert started("EASY", snapshot(jobs, 2, now_s=50.0)) == {3: [1]}


@pytest.mark.parametrize(
    ("tasks", "need", "memory", "nodes"),
    [
        (5, 0.5, 0.2, [0, 0, 1, 1, 2]),
        (3, 0.5, 0.51, [0, 1, 2]),
        (4, 0.25, 1 / 3, [0, 0, 0, 1]),
        (4, 1 / 3, 0.0, [0, 0, 0, 1]),
        (2, 1.0, 0.0, [0, 1]),
        (10, 0.1, 0.1, [0] * 10),
    ],
)
@pytest.mark.parametrize("name", WHOLE)
def test_tasks_of_one_job_share_a_node_as_far_as_they_fit(name, tasks, need, memory, nodes):
    assert started(name, snapshot([(tasks, need, memory, 1, None)], 4)) == {0: nodes}


@pytest.mark.parametrize("name", WHOLE)
def test_nodes_of_several_capacities_hold_what_each_can(name):
    capacity = [(0.4, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 0.3)]
    shot = snapshot([(4, 0.5, 0.25, 1, None), (1, 0.5, 0.25, 1, None), (1, 0.4, 1.0, 1, None)], capacity=capacity)
    assert started(name, shot) == {0: [1, 1, 2, 2], 1: [3], 2: [0]}


@pytest.mark.parametrize("name", WHOLE)
def test_closed_nodes_are_not_used_and_a_job_that_wants_them_holds_up_only_fcfs(name):
    shot = snapshot([(3, 1, 0, 1, None), (1, 1, 0, 99, None)], 3, closed=[0])
    assert started(name, shot) == ({} if name == "FCFS" else {1: [1]})


@pytest.mark.parametrize("name", WHOLE)
def test_a_paused_job_of_another_policy_starts_as_a_waiting_one(name):
    shot = snapshot([(1, 1, 0, 9, None)], 1)
    shot = replace(shot, jobs=shot.jobs.copy())
    shot.jobs["state"] = PAUSED
    assert started(name, shot) == {0: [0]}


@pytest.mark.parametrize("name", WHOLE)
def test_jobs_that_another_policy_left_sharing_get_what_is_spare_in_order(name):
    shot = snapshot([(2, 1.0, 0, 9, [0, 1]), (1, 1.0, 0, 9, [0]), (2, 0.5, 0, 9, [2, 2]), (1, 1, 0, 1, None)], 3)
    shot = replace(shot, jobs=shot.jobs.copy())
    shot.jobs["yield_"] = [0.25, 0.5, 0.7, 0.0]
    target = BATCH[name]().decide(shot)
    assert target.yields.tolist() == pytest.approx([0.5, 0.5, 1.0, 0.0], abs=1e-8)
    assert target.task_nodes.tolist() == shot.task_nodes.tolist()
    settled = BATCH[name]().decide(applied(shot, target))
    assert settled.yields.tolist() == target.yields.tolist()


@pytest.mark.parametrize("name", WHOLE)
def test_an_unchanged_cluster_is_answered_with_itself(name):
    shot = snapshot([(1, 1, 0, 9, [0]), (1, 1, 0, 9, None)], 1)
    shot = replace(shot, jobs=shot.jobs.copy())
    shot.jobs["yield_"] = [1.0, 0.0]
    target = BATCH[name]().decide(shot)
    assert target.task_nodes is shot.task_nodes
    assert target.yields.tolist() == [1.0, 0.0]


# Estimates


@pytest.mark.parametrize("name", ["EASY", "CONSERVATIVE"])
@pytest.mark.parametrize(
    ("jobs", "subject", "missing"),
    [
        ([(1, 1, 0, NONE, None)], 0, 100),
        ([(1, 1, 0, 5, [0]), (2, 1, 0, 5, None), (1, 1, 0, NONE, None)], -1, 102),
        ([(1, 1, 0, NONE, [0]), (2, 1, 0, 5, None), (1, 1, 0, 5, None)], -1, 100),
    ],
)
def test_a_missing_estimate_is_named(name, jobs, subject, missing):
    with pytest.raises(
        MissingEstimateError, match=f"^job {missing} has no estimate, which {name} plans with$"
    ) as caught:
        BATCH[name]().decide(snapshot(jobs, 2, subject=subject))
    assert isinstance(caught.value, PolicyError)
    assert isinstance(caught.value, InputError)
    assert caught.value.job == missing


@pytest.mark.parametrize("name", ["FCFS", "EQUIPARTITION"])
def test_others_need_no_estimate(name):
    shot = snapshot([(1, 1, 0, NONE, [0]), (1, 1, 0.5, NONE, None)], 2, subject=1)
    assert started(name, shot) == {1: [1]}


# EQUIPARTITION ([Stillwell2010] section 5.1.2)


def test_equipartition_gives_each_task_an_equal_part_of_its_node():
    shot = snapshot([(2, 1, 0.3, 9, [0, 1]), (1, 0.2, 0.3, 9, None), (2, 1.0, 0.5, 9, None), (1, 1, 0.4, 9, None)], 2)
    shot = replace(shot, subject=3)
    target = BATCH["EQUIPARTITION"]().decide(shot)
    assert places(shot, target) == [[0, 1], [0], [-1, -1], [1]]
    assert target.yields.tolist() == [0.5, 1.0, 0.0, 0.5]
    assert target.reasons.tolist() == [0, Reason.FREED, 0, Reason.ROOM]


def theorem_4(n):
    """The proof's instance: every job ends at r_n + n under EQUIPARTITION."""
    run_s = np.array([n - 1.0, *((n - 1) / (i - 1) for i in range(2, n + 1))])
    submit_s = np.concatenate([[0.0, 0.0], np.cumsum(run_s[1:-1])])
    return alone_on_one_node(submit_s, run_s)


def alone_on_one_node(submit_s, run_s):
    jobs = len(run_s)
    return Workload(
        job_id=np.arange(jobs),
        submit_s=submit_s,
        tasks=np.ones(jobs, np.int64),
        need=np.ones(jobs),
        memory=np.zeros(jobs),
        run_s=run_s,
        estimate_s=np.full(jobs, NONE),
        user=np.zeros(jobs, np.int64),
        weight=np.ones(jobs),
        nodes=1,
    )


def stretches(workload):
    events = Simulation(workload, BATCH["EQUIPARTITION"](), "EQUIPARTITION", SimulationSettings()).run().events
    finishes = events.action == Action.FINISH
    end_s = np.full(len(workload), np.nan)
    end_s[events.job[finishes]] = events.time_s[finishes]
    return (end_s - workload.submit_s) / workload.run_s, end_s


@pytest.mark.parametrize("n", [3, 5, 20, 100])
def test_theorem_4_on_the_instance_of_its_proof(n):
    workload = theorem_4(n)
    stretch, end_s = stretches(workload)
    assert end_s == pytest.approx(np.full(n, workload.submit_s[-1] + n), rel=1e-9)
    assert stretch.max() == pytest.approx(n, rel=1e-9)
    assert stretch.argmax() == n - 1
    # The proof's other schedule: all but the first job one after the other, the first one last.
    other = workload.submit_s[-1] + workload.run_s[-1] + workload.run_s[0]
    best = max(1.0, other / workload.run_s[0])
    ratio = workload.run_s.max() / workload.run_s.min()
    assert stretch.max() / best >= (ratio + 1) / (2 + math.log(ratio)) - 1e-9


@given(seed=st.integers(0, 2**32 - 1), jobs=st.integers(1, 12))
def test_equipartition_stretches_no_job_more_than_there_are_jobs(seed, jobs):
    rng = np.random.default_rng(seed)
    stretch, _ = stretches(alone_on_one_node(rng.random(jobs) * 20, 10 ** rng.uniform(-1, 2, jobs)))
    assert stretch.max() <= jobs * (1 + 1e-9)


def test_the_registry_names_them_all():
    assert list(BATCH) == ["FCFS", "EASY", "CONSERVATIVE", "EQUIPARTITION"]
    assert [traits_of(make()).exclusive for make in BATCH.values()] == [True, True, True, False]
