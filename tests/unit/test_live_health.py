"""Nodes that cannot do their work: they say so, get no jobs, keep what they have, and open by themselves."""

import asyncio

import pytest

from dfrs.live.errors import NotFoundError
from dfrs.live.protocol.resources import JobState, NodeState
from dfrs.testing import InMemoryCluster, run_virtually, until

STEP_S = 0.25
"""So much time a controller of these tests counts between two looks."""


def run(story):
    run_virtually(0, lambda _: story())


async def passes(live, seconds):
    for _ in range(round(seconds / STEP_S)):
        live.tick(STEP_S)
        await asyncio.sleep(0.1)


def node_of(live, name):
    return next(node for node in live.controller.nodes() if node.name == name)


async def is_(live, name, state):
    await until(lambda: node_of(live, name).state is state, f"{name} {state}")


def happened_to(live, name):
    return [(each.action, each.why) for each in live.controller.activity() if each.node == name]


async def joins(live, name, problem="", **more):
    node = live.hosts.node(name, **more)
    node.problem = problem
    node.attach(live.controller)
    await until(lambda: node.welcomes)
    return node


def test_a_node_joins_closed_with_its_problem_and_opens_when_it_has_none(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            await live.controller.drain("n1", "root")
            waiting = await live.submit(cpu_cores=1.0)
            node = await joins(live, "n2", "self-test failed: no pause")
            await is_(live, "n2", NodeState.UNHEALTHY)
            assert node_of(live, "n2").problem == "self-test failed: no pause"
            assert happened_to(live, "n2") == [("join", ""), ("unhealthy", "self-test failed: no pause")]
            await passes(live, 2)
            assert live.job(waiting).state is JobState.WAITING
            assert live.job(waiting).why == "waits: no node takes new tasks now (1 draining, 1 unhealthy)"
            assert not live.hosts.starts
            assert live.controller.cluster().nodes[NodeState.UNHEALTHY] == 1
            node.problem = ""
            live.tick(0.1)
            assert (await live.reaches(waiting, JobState.RUNNING)).nodes == ("n2",)
            assert node_of(live, "n2").state is NodeState.UP
            # It keeps what it has, and gets nothing more.
            node.problem = "self-test failed: again"
            live.tick(0.1)
            await is_(live, "n2", NodeState.UNHEALTHY)
            other = await live.submit(cpu_cores=0.1)
            await passes(live, 2)
            assert live.job(waiting).state is JobState.RUNNING
            assert live.job(other).state is JobState.WAITING
            await live.controller.drain("n2", "root")
            await is_(live, "n2", NodeState.DRAINING)
            assert node_of(live, "n2").problem == "self-test failed: again"
            assert [action for action, _ in happened_to(live, "n2")] == [
                "join",
                "unhealthy",
                "up",
                "unhealthy",
                "drain",
            ]

    run(story)


@pytest.mark.parametrize("kill", [False, True])
def test_a_controller_that_comes_back_knows_who_was_unhealthy(tmp_path, kill):
    """Also before its agent has said hello anew."""

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=2) as live:
            for name in ("n1", "n2"):
                live.nodes[name].problem = "broken"
            live.tick(0.1)
            await is_(live, "n1", NodeState.UNHEALTHY)
            await is_(live, "n2", NodeState.UNHEALTHY)
            job = await live.submit(cpu_cores=1.0)
            for name in ("n1", "n2"):
                live.nodes[name].deaf = True
            live.hosts.attach_all = lambda _: None
            restarted = asyncio.ensure_future(live.restart(kill=kill))
            await asyncio.sleep(2)
            assert [node.state for node in live.controller.nodes()] == [NodeState.UNHEALTHY] * 2
            assert live.job(job).state is JobState.WAITING
            restarted.cancel()
            for node in live.nodes.values():
                node.deaf, node.problem = False, ""
                node.attach(live.controller)
            await live.reaches(job, JobState.RUNNING)

    run(story)


def test_what_a_node_does_not_start_runs_elsewhere(tmp_path):
    """Once; the node gets no jobs for a while, longer each time, and says why."""

    async def story():
        async with InMemoryCluster(directory=tmp_path, host=None, start_s=3.0) as live:
            broken = live.nodes["n1"]
            broken.unable = "start: no control groups"
            jobs = [await live.submit("sleep", "30", cpu_cores=1.0) for _ in range(6)]
            await passes(live, 2)
            stuck = [job for job in jobs if live.job(job).nodes == ("n1",)]
            assert stuck
            assert {live.job(job).state for job in stuck} == {JobState.STARTING}
            assert {live.job(job).why for job in stuck} == {"start: no control groups"}
            assert node_of(live, "n1").state is NodeState.UP
            await passes(live, 2)
            found = node_of(live, "n1")
            assert found.state is NodeState.UNHEALTHY
            name = f"{stuck[0]}.0.0.{live.controller.state.placement.generation}"
            assert found.problem == f"could not start task {name} within 3 s: start: no control groups"
            await passes(live, 100)
            assert {live.job(job).state for job in jobs} == {JobState.DONE}
            assert set(live.hosts.starts.values()) == {"n2"}
            assert len(live.hosts.starts) == len(jobs)
            for job in stuck:
                assert live.job(job).attempt == 1
                why = next(each.why for each in live.controller.activity(job=job) if each.action == "lost")
                assert why == "node n1 did not start it in time: start: no control groups; queued again"
            # It has been opened since, for another try.
            assert [action for action, _ in happened_to(live, "n1")] == ["join", "unhealthy", "up"]
            await live.controller.drain("n2", "root")
            again = await live.submit(cpu_cores=1.0)
            await passes(live, 4)
            await is_(live, "n1", NodeState.UNHEALTHY)
            await passes(live, 90)
            assert node_of(live, "n1").state is NodeState.UNHEALTHY
            broken.unable = ""
            await live.controller.undrain("n1", "root")
            assert (await live.reaches(again, JobState.RUNNING)).nodes == ("n1",)

    run(story)


def test_a_task_that_starts_late_is_ended_before_its_next_attempt_begins(tmp_path):
    """The node hears nothing for a while, and starts it just before it hears that it shall not."""

    async def story():
        async with InMemoryCluster(directory=tmp_path, host=None, start_s=3.0, silent_s=1e6, lost_s=1e6) as live:
            broken = live.nodes["n1"]
            await live.controller.drain("n2", "root")
            broken.unable = "start: not now"
            job = await live.submit(cpu_cores=1.0)
            await passes(live, 1)
            broken.deaf = True
            await passes(live, 3)
            await is_(live, "n1", NodeState.UNHEALTHY)
            await live.controller.undrain("n2", "root")
            await passes(live, 3)
            assert live.job(job).why == "waits until its last attempt has ended on n1"
            assert not live.hosts.starts
            broken.unable = ""
            broken.settle()
            assert list(live.hosts.starts.values()) == ["n1"]
            await passes(live, 3)
            assert list(live.hosts.starts.values()) == ["n1"]
            broken.deaf = False
            broken.attach(live.controller)
            assert (await live.reaches(job, JobState.RUNNING)).nodes == ("n2",)
            assert [name for _, name in live.hosts.running(job)] == ["n2"]

    run(story)


def test_waiting_for_memory_is_no_fault_of_a_node(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1, start_s=3.0) as live:
            node = live.nodes["n1"]
            node.full = 1e-9
            node.driver._has_room = lambda _: False
            job = await live.submit(cpu_cores=1.0)
            await passes(live, 20)
            assert live.job(job).why == "waits until others have left the memory"
            assert (live.job(job).attempt, node_of(live, "n1").state) == (0, NodeState.UP)
            # Nor is a connection that is not there.
            node.cut()
            await passes(live, 10)
            node.attach(live.controller)
            del node.driver._has_room
            await live.reaches(job, JobState.RUNNING)
            assert live.job(job).attempt == 0

    run(story)


def test_a_controller_that_was_away_blames_no_node(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1, start_s=60.0, silent_s=1e6, lost_s=1e6) as live:
            live.nodes["n1"].unable = "not yet"
            job = await live.submit(cpu_cores=1.0)
            await passes(live, 1)
            live.tick(3600)
            await asyncio.sleep(1)
            live.nodes["n1"].unable = ""
            live.tick(0.1)
            assert (await live.reaches(job, JobState.RUNNING)).attempt == 0
            assert node_of(live, "n1").state is NodeState.UP

    run(story)


def test_a_job_that_no_node_starts_fails(tmp_path):
    """It is the job that cannot be started: it must not close the whole cluster for ever."""

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=5, host=None, start_s=3.0) as live:
            for node in live.nodes.values():
                node.unable = "start: no such volume"
            job = await live.submit(cpu_cores=1.0)
            once = await live.submit(cpu_cores=1.0, restart="never")
            await passes(live, 16)
            found = live.job(job)
            assert found.state is JobState.FAILED
            assert found.exit.startswith("3 nodes did not start it in time, the last one n")
            assert found.exit.endswith(" did not start it in time: start: no such volume")
            assert live.job(once).state is JobState.FAILED
            assert live.job(once).exit.endswith("did not start it in time: start: no such volume")
            assert [node.state for node in live.controller.nodes()].count(NodeState.UP) >= 1
            assert not live.hosts.starts
            await passes(live, 300)
            assert {node.state for node in live.controller.nodes()} == {NodeState.UP}
            with pytest.raises(NotFoundError):
                await live.controller.undrain("n9", "root")

    run(story)
