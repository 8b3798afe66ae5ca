"""What fractional policies do where a pause keeps memory, or where a job that has started cannot go everywhere."""

from dataclasses import replace

import numpy as np
import pytest

from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Ready, Submit, Wake
from dfrs.model.decisions import PAUSED, RUNNING, WAITING, Abilities, Cause
from dfrs.model.nodes import Join
from dfrs.policies.fractional.resident import AGE_S
from dfrs.policies.names import find_policy
from dfrs.testing import SnapshotJob, build_snapshot

DFRS = "GreedyPM*/per/OPT=MIN/MVT=600"


def seen(jobs, *, nodes, keeps=True, islands=None, home=(), **more):
    shot = build_snapshot(jobs, nodes=nodes, **more)
    where = np.full(len(shot.task_nodes), -1)
    where[: len(home)] = home
    island = np.arange(nodes) if islands is None else np.array(islands)
    none = np.zeros(len(shot.jobs), np.bool_)
    return replace(shot, abilities=Abilities(np.full(nodes, keeps), island, where, none, none, none, np.zeros(nodes)))


def newcomer(shot, row):
    return replace(shot, cause=Cause.SUBMISSION, subject=row)


def decided(shot, name=DFRS):
    return find_policy(name).decide(shot).task_nodes.tolist()


def test_where_jobs_can_neither_be_paused_nor_moved_a_quarter_of_the_nodes_stays_empty():
    jobs = [SnapshotJob(nodes=(2,), need=1.0, memory=0.1, yield_=1.0), SnapshotJob(tasks=3, need=1.0, memory=0.1)]
    assert sorted(decided(newcomer(seen(jobs, nodes=4), 1))) == [0, 0, 2, 2]
    assert sorted(decided(newcomer(seen(jobs, nodes=4, keeps=False), 1))) == [0, 1, 2, 3]
    assert sorted(decided(newcomer(seen(jobs, nodes=3), 1))) == [0, 0, 1, 2]
    large = [jobs[0], SnapshotJob(tasks=3, need=1.0, memory=1.0)]
    assert sorted(decided(newcomer(seen(large, nodes=4), 1))) == [0, 1, 2, 3]


def test_the_others_are_loaded_eightfold_before_the_last_nodes_are_used():
    jobs = [
        SnapshotJob(nodes=(0, 1, 2) * 7, need=1.0, memory=0.01, yield_=0.1),
        SnapshotJob(tasks=1, need=1.0, memory=0.01),
    ]
    assert decided(newcomer(seen(jobs, nodes=4), 1))[-1] == 0
    jobs[0] = SnapshotJob(nodes=(0, 1, 2) * 8, need=1.0, memory=0.01, yield_=0.1)
    assert decided(newcomer(seen(jobs, nodes=4), 1))[-1] == 3


def test_nobody_is_paused_where_that_frees_no_memory():
    jobs = [SnapshotJob(nodes=(0,), need=1.0, memory=0.6, yield_=1.0), SnapshotJob(tasks=1, need=1.0, memory=0.6)]
    assert decided(newcomer(seen(jobs, nodes=1), 1)) == [0, -1]
    assert decided(newcomer(seen(jobs, nodes=1, keeps=False), 1)) == [-1, 0]


def test_jobs_of_one_host_move_closer_together_so_that_another_has_room():
    jobs = [
        SnapshotJob(nodes=(0,), need=0.2, memory=0.3, yield_=1.0),
        SnapshotJob(nodes=(1,), need=0.2, memory=0.3, yield_=1.0),
        SnapshotJob(tasks=1, need=0.2, memory=0.9),
    ]
    first, second, third = decided(newcomer(seen(jobs, nodes=2, islands=[0, 0]), 2))
    assert first == second != third
    assert decided(newcomer(seen(jobs, nodes=2), 2)) == [0, 1, -1]


def test_a_paused_job_comes_back_to_its_island_alone():
    jobs = [SnapshotJob(nodes=(0,), need=1.0, memory=0.6, yield_=1.0), SnapshotJob(tasks=1, memory=0.6, paused=True)]
    assert decided(seen(jobs, nodes=2, keeps=False, home=[-1, 0])) == [0, -1]
    assert decided(seen(jobs, nodes=2, keeps=False, home=[-1, 1])) == [0, 1]
    assert decided(seen(jobs, nodes=3, keeps=False, islands=[0, 1, 0], home=[-1, 0])) == [0, 2]


@pytest.mark.parametrize("name", [DFRS, "MCB*/per/OPT=MIN", "GreedyP*/per/VP_PPSUM"])
def test_jobs_that_share_one_nodes_memory_take_turns_where_pauses_free_it(name):
    core = Core(find_policy(name), np.zeros((0, 2)))
    for island in range(2):
        core.handle(Join(1.0, 1.0, island), 0.0)
    now_s = 0.0
    for job in range(4):
        core.handle(Submit(job, 1, 1.0, 1.0), now_s)
    ran = dict.fromkeys(range(4), 0)
    for _ in range(60):
        now_s = core.wake_at_s
        core.handle(Wake(), now_s)
        jobs = core.snapshot().jobs
        running = jobs[jobs["state"] == RUNNING]
        assert len(running) == 2
        core.handle(Ready(running["serial"].copy(), np.full(2, now_s)), now_s)
        for job in running["id"].tolist():
            ran[job] += 1
    assert all(count >= 20 for count in ran.values())


def test_memory_is_reserved_for_a_job_that_has_waited_for_long():
    wide = SnapshotJob(tasks=2, need=1.0, memory=1.0, submit_s=0.0)
    small = SnapshotJob(tasks=1, need=1.0, memory=0.1)
    running = SnapshotJob(nodes=(0,), need=1.0, memory=0.1, yield_=1.0)
    for now_s, placed in ((AGE_S - 1.0, 1), (AGE_S + 1.0, -1)):
        jobs = [running, wide, replace(small, submit_s=now_s)]
        shot = seen(jobs, nodes=2, now_s=now_s)
        assert decided(newcomer(shot, 2)) == [0, -1, -1, placed]
        assert decided(replace(shot, cause=Cause.COMPLETION)) == [0, -1, -1, placed]
        assert decided(replace(shot, cause=Cause.WAKE)) == [0, -1, -1, placed]
    shot = seen([wide, replace(small, submit_s=AGE_S)], nodes=2, now_s=AGE_S + 1.0)
    assert decided(replace(shot, cause=Cause.COMPLETION)) == [0, 1, -1]


def test_a_cluster_that_can_do_everything_decides_as_ever():
    jobs = [SnapshotJob(nodes=(0,), need=1.0, memory=0.4, yield_=1.0), SnapshotJob(tasks=2, need=1.0, memory=0.4)]
    shot = newcomer(build_snapshot(jobs, nodes=3), 1)
    none = np.zeros(2, np.bool_)
    can = Abilities(np.zeros(3, np.bool_), np.zeros(3, np.int64), np.full(3, -1), none, none, none, np.zeros(3))
    free = replace(shot, abilities=can)
    assert decided(shot) == decided(free) == [0, 1, 2]


def test_states_after_a_refusal_are_what_they_were():
    core = Core(find_policy(DFRS), np.zeros((0, 2)))
    core.handle(Join(1.0, 1.0, 0, pause_frees_memory=False), 0.0)
    for job in range(2):
        core.handle(Submit(job, 1, 1.0, 0.6), 0.0)
    core.handle(Wake(), core.wake_at_s)
    assert core.snapshot().jobs["state"].tolist() == [RUNNING, WAITING]
    core.handle(Complete(0), 700.0)
    assert core.snapshot().jobs["state"].tolist() == [RUNNING]
    assert PAUSED not in core.snapshot().jobs["state"]
