"""The simulated cluster: progress, penalties, completions."""

import numpy as np
import pytest

from dfrs.engine.commands import DETACH, Commands
from dfrs.model.run import Action, Penalty
from dfrs.simulator.world import World
from tests import cases
from tests.naive.progress import ExactWorld
from tests.online_cases import plain_workload, random_workload


def commands(*rows):
    """From rows (action, job, yield, tasks moved)."""
    action, job, yields, moved = (np.array(column) for column in zip(*rows, strict=True))
    none = np.zeros(len(rows), np.int64)
    return Commands(
        action, job, job + 100, yields.astype(np.float64), moved, none, np.zeros(len(rows) + 1, np.int64), none[:0]
    )


def world_of(run_s, penalty=None, memory=0.5):
    return World(plain_workload([(0, 2, 1.0, memory, run) for run in run_s], nodes=2), penalty or Penalty())


def ready_after(world, now_s, *rows):
    """What the world acknowledges: {job: when it makes progress}."""
    world.perform(commands(*rows), now_s)
    told = world.acknowledgement()
    assert world.acknowledgement() is None
    return {} if told is None else dict(zip(told.serials.tolist(), told.ready_s.tolist(), strict=True))


def test_an_idle_world_completes_nothing():
    assert world_of([10.0]).next_completion() == (np.inf, -1)


def test_a_first_start_is_free_and_a_job_takes_its_run_time_over_its_yield():
    world = world_of([10.0], Penalty(seconds=300.0))
    assert ready_after(world, 7.0, (Action.START, 0, 0.25, 2)) == {0: 7.0}
    assert world.next_completion() == (47.0, 0)
    assert ready_after(world, 17.0, (Action.SHARE, 0, 1.0, 0)) == {}
    assert world.next_completion() == (24.5, 0)
    world.complete(0)
    assert world.next_completion() == (np.inf, -1)


@pytest.mark.parametrize(
    ("penalty", "resumed_s", "migrated_s"),
    [
        (Penalty(), 0.0, 0.0),
        (Penalty(seconds=300.0), 300.0, 300.0),
        (Penalty(seconds=5.0, bytes_per_s=1e9, node_bytes=8e9), 5 + 2 * 0.5 * 8, 5 + 0.5 * 8),
        (Penalty(bytes_per_s=4e9, node_bytes=16e9), 2 * 0.5 * 4, 0.5 * 4),
    ],
)
def test_resumes_and_migrations_freeze_progress_for_the_penalty(penalty, resumed_s, migrated_s):
    world = world_of([1000.0], penalty)
    world.perform(commands((Action.START, 0, 1.0, 2)), 0.0)
    world.perform(commands((Action.PAUSE, 0, 0.0, 0)), 100.0)
    assert world.next_completion() == (np.inf, -1)
    assert ready_after(world, 400.0, (Action.RESUME, 0, 0.5, 2)) == {0: 400.0 + resumed_s}
    assert world.next_completion() == (400.0 + resumed_s + 900 / 0.5, 0)
    later = 400.0 + resumed_s + 100
    assert ready_after(world, later, (Action.MIGRATE, 0, 0.5, 1)) == {0: later + migrated_s}
    assert world.next_completion() == (later + migrated_s + 850 / 0.5, 0)


def test_each_migration_starts_the_penalty_anew():
    world = world_of([100.0], Penalty(seconds=30.0))
    world.perform(commands((Action.START, 0, 1.0, 2)), 0.0)
    for now_s in (10.0, 30.0, 59.0, 88.0):
        assert ready_after(world, now_s, (Action.MIGRATE, 0, 1.0, 1)) == {0: now_s + 30.0}
    assert world.next_completion() == (88.0 + 30.0 + 90.0, 0)


def test_a_share_within_a_penalty_counts_from_its_end():
    world = world_of([100.0], Penalty(seconds=30.0))
    world.perform(commands((Action.START, 0, 1.0, 2)), 0.0)
    world.perform(commands((Action.MIGRATE, 0, 1.0, 2)), 10.0)
    world.perform(commands((Action.SHARE, 0, 0.5, 0)), 20.0)
    assert world.next_completion() == (40.0 + 90 / 0.5, 0)


def test_a_lost_job_starts_anew_for_free():
    world = world_of([100.0], Penalty(seconds=30.0))
    world.perform(commands((Action.START, 0, 1.0, 2)), 0.0)
    world.perform(commands((Action.LOST, 0, 0.0, 0)), 90.0)
    assert world.next_completion() == (np.inf, -1)
    assert ready_after(world, 95.0, (Action.START, 0, 1.0, 2)) == {0: 95.0}
    assert world.next_completion() == (195.0, 0)


def test_detaching_changes_nothing_until_the_migration():
    world = world_of([100.0], Penalty(seconds=30.0))
    world.perform(commands((Action.START, 0, 1.0, 2)), 0.0)
    assert ready_after(world, 50.0, (DETACH, 0, 0.5, 0)) == {}
    assert world.next_completion() == (100.0, 0)
    assert ready_after(world, 50.0, (DETACH, 0, 0.5, 0), (Action.MIGRATE, 0, 0.5, 1)) == {0: 80.0}
    assert world.next_completion() == (180.0, 0)


def test_a_job_paused_at_the_instant_it_is_done_is_done_as_soon_as_it_is_back():
    world = world_of([1 / 3], Penalty(seconds=2.0))
    world.perform(commands((Action.START, 0, 0.7, 2)), 0.1)
    due_s, _ = world.next_completion()
    world.perform(commands((Action.PAUSE, 0, 0.0, 0)), due_s)
    world.perform(commands((Action.RESUME, 0, 0.1, 2)), 10.0)
    assert world.next_completion() == (12.0, 0)


def test_of_jobs_done_at_once_the_one_submitted_first_is_first():
    world = world_of([5.0, 5.0, 5.0])
    world.perform(commands((Action.START, 2, 1.0, 2), (Action.START, 1, 1.0, 2), (Action.START, 0, 1.0, 2)), 0.0)
    order = []
    while (job := world.next_completion()[1]) >= 0:
        order.append(job)
        world.complete(job)
    assert order == [0, 1, 2]


def test_yield_zero_never_ends():
    world = world_of([5.0])
    world.perform(commands((Action.START, 0, 0.0, 2)), 0.0)
    assert world.next_completion() == (np.inf, -1)


@pytest.mark.parametrize("seed", range(12))
def test_completions_equal_those_of_exact_arithmetic(seed):
    """Random changes at random instants, far apart enough from completions for both to agree on the order."""
    rng, source = np.random.default_rng(seed), cases.Seeded(np.random.default_rng(seed + 1000))
    workload = random_workload(seed, jobs=25)
    penalty = source.pick((Penalty(), Penalty(seconds=7.3), Penalty(seconds=1.1, bytes_per_s=3e9, node_bytes=8e9)))
    copy_s = 0.0 if penalty.bytes_per_s is None else 8 / 3
    world = World(workload, penalty)
    twin = ExactWorld(workload.run_s.tolist(), workload.memory.tolist(), penalty.seconds, copy_s)
    now_s, left, compared, rounds = 0.0, set(range(len(workload))), 0, 0
    while left:
        rounds += 1
        now_s += float(rng.exponential(10.0 if rounds < 200 else 1000.0))
        while True:
            due, job = twin.next_completion()
            if job < 0 or float(due) > now_s:
                break
            got_s, got = world.next_completion()
            assert got == job
            assert got_s == pytest.approx(float(due), rel=1e-9)
            world.complete(job)
            twin.advance(got_s)
            twin.jobs[job].running = False
            left.discard(job)
            compared += 1
        twin.advance(now_s)
        rows = []
        for j in rng.permutation(sorted(left))[:4].tolist():
            running, begun = twin.jobs[j].running, twin.jobs[j].done > 0
            action = source.pick((1, 3, 4, 4, 6)) if running else (2 if begun else 0)
            if (action == 6 and rng.random() < 0.8) or (running and rounds > 100):
                continue
            rows.append((int(action), int(j), float(rng.choice([0.1, 1 / 3, 0.9, 1.0])), int(rng.integers(1, 4))))
            twin.perform(*rows[-1])
        if rows:
            world.perform(commands(*rows), now_s)
        if rng.random() < 0.1:
            state = {name: array.copy() for name, array in world.state().items()}
            world = World(workload, penalty)
            world.restore(state)
    assert compared == len(workload)
