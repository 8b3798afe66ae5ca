"""What `dfrs.testing` promises: its checks pass what is right, and tell what is wrong."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from dfrs.live.protocol.resources import JobState
from dfrs.model.decisions import Placement, PolicyError, Target
from dfrs.model.errors import InputError
from dfrs.testing import (
    InMemoryCluster,
    SnapshotJob,
    build_snapshot,
    check_policy,
    check_target,
    random_workload,
    run_virtually,
)
from dfrs.testing.drivers import task_id
from tests.small_policies import FairShare, FromFunction, Stay


def test_a_cluster_lives_through_restarts_without_real_time():
    async def story(_):
        async with InMemoryCluster("Greedy*/OPT=MIN", nodes=1) as cluster:
            job = await cluster.submit("sleep", "30", cpu_cores=1.0)
            await cluster.reaches(job, JobState.RUNNING)
            cluster.tick(10)
            await cluster.restart(kill=True)
            await cluster.reaches(job, JobState.RUNNING)
            await cluster.restart()
            cluster.tick(25)
            done = await cluster.reaches(job, JobState.DONE)
            return cluster.actions(job), done.cpu_s, list(map(str, cluster.hosts.history))

    (actions, cpu_s, history), steps = run_virtually(1, story)
    assert actions == ["submit", "start", "finish"]
    assert cpu_s == 35
    assert run_virtually(1, story) == ((actions, cpu_s, history), steps)


def test_a_cluster_takes_an_object_as_its_policy_and_says_what_was_not_reached():
    async def story():
        async with InMemoryCluster(Stay()) as cluster:
            assert cluster.controller.cluster().policy == "Stay"
            job = await cluster.submit(cpu_cores=1.0)
            with pytest.raises(AssertionError, match=f"job {job} running") as caught:
                await cluster.reaches(job, JobState.RUNNING, patience_s=0.2)
            assert caught.value.__notes__[0].startswith("it is waiting")

    asyncio.run(story())


def test_two_attempts_at_once_fail_the_test():
    cluster = InMemoryCluster(nodes=2)
    first, second = cluster.nodes.values()
    task = task_id()
    cluster.hosts.started(first, task)
    with pytest.raises(AssertionError, match="started on n1, and again on n2"):
        cluster.hosts.started(second, task)
    with pytest.raises(AssertionError, match="again on n2"):
        cluster.tick(1)


ONE_RUNS = (SnapshotJob(nodes=(0,), need=0.5, memory=0.6), SnapshotJob(need=0.5, memory=0.6), SnapshotJob(paused=True))


def test_a_snapshot_is_what_a_policy_sees():
    snapshot = build_snapshot((*ONE_RUNS, SnapshotJob(id=0, tasks=3, submit_s=-1.0)), closed=(1,))
    assert snapshot.jobs["id"].tolist() == [0, 1, 2, 3]
    assert snapshot.first.tolist() == [0, 3, 4, 5, 6]
    assert snapshot.task_nodes.tolist() == [-1, -1, -1, 0, -1, -1]
    assert snapshot.open.tolist() == [True, False]
    assert snapshot.placements == {1: Placement((0,), 1.0)}
    assert not snapshot.jobs.flags.writeable
    check_target(snapshot, Target(snapshot.task_nodes, np.array(snapshot.jobs["yield_"])))
    for jobs, words in (
        ([SnapshotJob(nodes=(0, 0), memory=0.6)], "job 1 is one too many: node 0 would hold more memory"),
        ([SnapshotJob(nodes=(0, 1), tasks=3)], "job 1: 2 nodes for 3 tasks"),
        ([SnapshotJob(nodes=(2,))], "job 1 would run on node 2"),
    ):
        with pytest.raises(InputError, match=words):
            build_snapshot(jobs)


@pytest.mark.parametrize(
    ("nodes", "yields", "words"),
    [
        ([0, 0, -1], [0.5, 0.5, 0.0], "job 2 is one too many: node 0 would hold more memory"),
        ([0, 1, -1], [1.0, 1.0, 0.0], "job 2 would come to node 1, which is closed"),
        ([0, -1, -1], [1.1, 0.0, 0.0], r"job 1 would have yield 1\.1"),
        ([0, -1, -1], [1.0, 0.5, 0.0], r"job 2 would have yield 0\.5 without nodes"),
        ([0, -1, 0], [1.0, 0.0, 1.0], "node 0 would give out more CPU"),
    ],
)
def test_a_target_that_cannot_be_performed_is_told(nodes, yields, words):
    snapshot = build_snapshot(ONE_RUNS, closed=(1,))
    with pytest.raises(PolicyError, match=words):
        check_target(snapshot, Target(np.array(nodes), np.array(yields)))
    with pytest.raises(PolicyError, match="must be a Target"):
        check_target(snapshot, None)


class Forgetful(FairShare):
    """Wakes later each time that it is asked."""

    asked = 0

    def decide(self, snapshot):
        self.asked += 1
        return replace(super().decide(snapshot), wake_at_s=snapshot.now_s + 10 * self.asked)


def greedy_for_cpu(snapshot):
    target = FairShare().decide(snapshot)
    return replace(target, yields=(target.task_nodes[snapshot.first[:-1]] >= 0).astype(float))


def test_a_policy_is_tried_on_random_workloads():
    check_policy(FairShare(600.0), range(3))
    check_policy("FCFS", range(3), failures=False)
    for policy, words in (
        (Stay(), "seed 0: policy Stay .* is never placed"),
        (Forgetful(), "seed 0: policy Forgetful .* another wake_at_s for the same snapshot"),
        (FromFunction(greedy_for_cpu), "seed 0: .* more CPU than it has"),
    ):
        with pytest.raises(AssertionError, match=words):
            check_policy(policy, range(1))


def test_random_workloads_repeat():
    assert random_workload(1).run_s.tolist() == random_workload(1).run_s.tolist() != random_workload(2).run_s.tolist()


def test_it_needs_no_pytest():
    script = "import sys; import dfrs.testing, dfrs.testing.drivers; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
