"""What must not shake the controller: clocks that are set, defects of its own parts, nodes that blink or lie."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import numpy as np
import pytest

from dfrs.engine.core import RETRY_S, Core
from dfrs.engine.events import Submit, Wake
from dfrs.live.agent.agent import host_identity
from dfrs.live.controller.records import TaskRecord
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.controller.snapshot_copy import virtual_s
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import Exit, ExitKind, TaskId, TaskState
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.resources import JobState, NodeState
from dfrs.live.protocol.wire import Hello, Output, Read, StatusMessage, from_agent
from dfrs.model.decisions import PolicyError
from dfrs.model.errors import InputError
from dfrs.model.nodes import Join
from dfrs.policies.names import find_policy
from dfrs.testing import InMemoryCluster, make_controller, run_virtually, until
from dfrs.testing.cluster import DEFAULT_POLICY
from dfrs.testing.in_memory import GIB
from tests.unit.test_live_engine import run


class Clock:
    """A wall clock that is set while steady time goes on."""

    def __init__(self):
        self.offset = 0.0

    def __call__(self):
        return time.time() + self.offset


@pytest.mark.parametrize(("before_s", "after_s"), [(2.0, 0.0), (0.0, 2.0)])
def test_a_controller_that_stands_still_between_two_clocks_takes_neither_as_set(before_s, after_s):
    machine = {"s": 0.0, "before_s": 0.0, "after_s": 0.0, "set_s": 0.0}

    def clock():
        machine["s"] += machine["before_s"]
        told_s = machine["s"] + machine["set_s"]
        machine["s"] += machine["after_s"]
        return told_s

    settings = ControllerSettings(database="", clock=clock, steady=lambda: machine["s"])
    state = State(settings, find_policy(DEFAULT_POLICY), Hello)
    state.start_clock()
    machine |= {"before_s": before_s, "after_s": after_s}
    assert state.wall(5.0) == 5.0
    machine |= {"before_s": 0.0, "after_s": 0.0, "set_s": 100.0}
    assert state.wall(5.0) == 105.0


@pytest.mark.parametrize("jump_s", [10_000.0, -10_000.0])
def test_a_wall_clock_that_is_set_changes_nothing(tmp_path, jump_s):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            clock = Clock()
            steady = live.hosts.clock
            object.__setattr__(live.controller.settings, "clock", clock)
            object.__setattr__(live.controller.settings, "steady", steady)
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            before = live.controller.state.now_s()
            clock.offset = jump_s
            live.hosts.tick(5)
            steps = live.controller.engine.steps
            await until(lambda: live.controller.engine.steps > steps + 3)
            assert [node.state for node in live.controller.nodes()] == [NodeState.UP] * 2
            assert live.controller.job(job).attempt == 0
            assert live.controller.state.now_s() == pytest.approx(before + 5)

    run(story())


@asynccontextmanager
async def one_clock(tmp_path, policy=DEFAULT_POLICY, nodes=1):
    """A cluster whose machines all have the wall clock `hosts.clock`, which may be set while steady time goes on."""
    cluster = InMemoryCluster(policy, directory=tmp_path, nodes=nodes)
    hosts = cluster.hosts
    cluster._options |= {"clock": hosts.clock, "steady": hosts.steady}
    async with cluster as live:
        hosts.stamp = hosts.clock
        # What tasks receive is measured.
        live.nodes["n1"].outside = 0.0
        yield live


async def pass_seconds(live, seconds):
    for _ in range(seconds):
        live.tick(1.0)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_jobs_get_the_time_that_they_ran_whatever_the_wall_clock_is_set_to(tmp_path, jump_s):
    async def story():
        async with one_clock(tmp_path) as live:
            ran_s = {await live.submit(cpu_cores=1.0): 60.0}
            await live.reaches(1, JobState.RUNNING)
            await pass_seconds(live, 10)
            # It goes on from what is stored just so.
            await live.restart()
            live.hosts.stamp = live.hosts.clock
            await pass_seconds(live, 20)
            live.hosts.wall_ahead += jump_s
            ran_s[await live.submit(cpu_cores=1.0)] = 30.0
            await live.reaches(2, JobState.RUNNING)
            await pass_seconds(live, 30)
            state = live.controller.state
            for job, seconds in ran_s.items():
                shown, row = live.job(job), state.picture.row(job)
                assert shown.virtual_measured
                assert (shown.virtual_s, shown.virtual_granted_s) == pytest.approx((seconds, seconds), abs=2.0)
                assert virtual_s(row, state.picture.snapshot.now_s, state.now_s()) == pytest.approx(seconds, abs=2.0)
            for job, seconds in ran_s.items():
                live.nodes["n1"].end(job)
                ended = await live.reaches(job, JobState.DONE)
                assert ended.submitted_at <= ended.started_at <= ended.ended_at
                assert ended.virtual_s == pytest.approx(seconds, abs=2.0)
            assert ended.ended_at == live.hosts.clock()
            assert ended.stretch == pytest.approx(1.0, abs=0.1)
            assert {each.time for each in live.controller.activity(job=job)} <= {
                ended.submitted_at,
                ended.started_at,
                ended.ended_at,
            }
            assert state.refused == state.mismatches == 0

    run_virtually(0, lambda _: story())


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
@pytest.mark.parametrize("policy", ["FCFS", "EASY-D"])
def test_a_requested_start_is_kept_by_the_wall_clock_as_it_is_set(tmp_path, policy, jump_s):
    async def story():
        async with one_clock(tmp_path, policy, 3) as live:
            hosts = live.hosts
            at = hosts.clock() + max(jump_s, 0.0) + 60.0
            jobs = [await live.submit(cpu_cores=1.0, start_at=at, estimate_s=10.0)]
            await settled(live)
            hosts.wall_ahead += jump_s
            jobs.append(await live.submit(cpu_cores=1.0, start_at=at, estimate_s=10.0))
            live.tick(at - hosts.clock() - 5.0)
            await settled(live)
            assert [live.job(job).started_at for job in jobs] == [None, None]
            assert all("requested start" in live.job(job).why for job in jobs)
            live.tick(6.0)
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
                assert await until(lambda job=job: live.job(job).started_at) == at + 1.0
            # One that is overtaken by the clock is due at once.
            late = await live.submit(cpu_cores=1.0, start_at=hosts.clock() + 100.0, estimate_s=10.0)
            await settled(live)
            hosts.wall_ahead += 200.0
            live.tick(1.0)
            await live.reaches(late, JobState.RUNNING)
            assert live.controller.state.refused == 0

    run_virtually(0, lambda _: story())


async def settled(live):
    steps = live.controller.engine.steps
    live.controller.engine.poke()
    await until(lambda: live.controller.engine.steps > steps + 2)


def test_nodes_are_not_blamed_for_the_controllers_own_absence(tmp_path, monkeypatch):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            away = 0.0
            loop = asyncio.get_running_loop()
            real = loop.time
            monkeypatch.setattr(loop, "time", lambda: real() + away)
            # The machine slept: its clock and that of the nodes went on, and no step was made.
            away = 1000.0
            live.hosts.now += 1000.0
            steps = live.controller.engine.steps
            await until(lambda: live.controller.engine.steps > steps + 3)
            assert [node.state for node in live.controller.nodes()] == [NodeState.UP] * 2

    run(story())


def test_a_lost_node_that_blinks_keeps_nobody_waiting(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit(cpu_cores=1.0)
            name = (await live.reaches(job, JobState.RUNNING)).nodes[0]
            live.hosts.nodes[name].die()
            live.hosts.tick(200)
            await until(lambda: live.controller.job(job).attempt == 1)
            # Back for a moment only, with what it had: that is not to be waited for for ever.
            record, placement = live.controller.engine.lifecycle.find(name), live.controller.state.placement
            old = TaskRecord(TaskId(job=job, rank=0, attempt=0), started=True)
            live.controller.state.jobs[job].old.append(old)
            placement.restore(old, [record.number])
            record.seen_at = live.hosts.clock()
            live.hosts.tick(200)
            assert (await live.reaches(job, JobState.RUNNING)).nodes[0] != name
            await until(lambda: not live.controller.state.jobs[job].old)

    run(story())


def test_a_held_job_on_a_lost_node_is_not_run_again_where_it_must_not(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit(cpu_cores=1.0, restart="never")
            await live.reaches(job, JobState.RUNNING)
            await live.controller.hold(job, "ann")
            await live.reaches(job, JobState.HELD)
            live.hosts.nodes["n1"].die()
            live.hosts.tick(200)
            assert "n1 was lost" in (await live.reaches(job, JobState.FAILED)).exit

    run(story())


def test_a_node_that_comes_back_smaller_is_not_overcommitted(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit(cpu_cores=1.0, memory_bytes=4 * GIB)
            await live.reaches(job, JobState.RUNNING)
            node = live.hosts.nodes["n1"]
            node.cut()
            node.memory = 5 * GIB
            node.attach(live.controller)
            await until(lambda: live.controller.nodes()[0].memory_bytes == 5 * GIB)
            late = await live.submit(cpu_cores=1.0, memory_bytes=2 * GIB)
            steps = live.controller.engine.steps
            await until(lambda: live.controller.engine.steps > steps + 5)
            assert live.controller.job(late).state is JobState.WAITING
            node.end(job)
            await live.reaches(late, JobState.RUNNING)
            assert live.controller.state.core.capacity[0, 1] == pytest.approx(5 / 8)

    run(story())


def test_a_node_cannot_speak_of_tasks_it_was_never_given(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, host=None) as live:
            job = await live.submit(cpu_cores=1.0)
            there = (await live.reaches(job, JobState.RUNNING)).nodes[0]
            liar = next(node for node in live.hosts.nodes.values() if node.name != there)
            task = TaskId(job=job, rank=0, attempt=0)
            ended = StatusMessage(
                task=task,
                version=1,
                state=TaskState.EXITED,
                since_s=1.0,
                exit=Exit(kind=ExitKind.CODE, code=0, time_s=1.0),
            )
            liar.attachment.receive(ended)
            record = live.controller.engine.lifecycle.find(liar.name)
            live.controller.engine.backend.steering.welcome(record, record.facts.model_copy(update={"tasks": (ended,)}))
            steps = live.controller.engine.steps
            live.controller.engine.poke()
            await until(lambda: live.controller.engine.steps > steps)
            assert live.controller.job(job).state is JobState.RUNNING
            assert len(live.hosts.running(job)) == 1

    run(story())


def test_a_job_that_cannot_be_settled_keeps_no_other_one_back(tmp_path, monkeypatch):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            jobs = [await live.submit(cpu_cores=1.0) for _ in range(2)]
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
            steering, settled = live.controller.engine.backend.steering, []

            def settle(job):
                settled.append(job.id)
                if len(settled) == 1:
                    raise ValueError(job.id)

            with monkeypatch.context() as patch:
                patch.setattr(steering, "_settle", settle)
                steering._whereabouts.unsettled.update(jobs)
                with pytest.raises(ValueError, match=r"^\d+$"):
                    steering.sync()
                steering.sync()
            assert sorted(settled) == jobs

    run(story())


def test_only_who_was_asked_answers(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            questions = live.controller.engine.backend.questions
            links = [node.link for node in live.hosts.nodes.values()]

            class Silent:
                def send(self, message):
                    questions.answer(links[0], Output(request=message.request, data="Zm9yZ2Vk"))
                    asyncio.get_running_loop().call_soon(
                        questions.answer, self, Output(request=message.request, data="dHJ1ZQ==")
                    )

            def question(number):
                return Read(request=number, task=TaskId(job=1, rank=0, attempt=0), stream="out", offset=0, limit=10)

            found = await questions.ask(Silent(), question, Output)
            assert found.data == "dHJ1ZQ=="

    run(story())


def test_a_drain_in_the_same_plan_as_another_change_is_remembered(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            live.hosts.nodes["n1"].cut()
            live.hosts.now += 20
            await live.controller.drain("n1", "root")
            await until(lambda: live.controller.engine.lifecycle.find("n1").drained)
            steps = live.controller.engine.steps
            await until(lambda: live.controller.engine.steps > steps + 2)
            path, world = live.directory, live.hosts
        again = make_controller(path, clock=world.clock)
        await again.start()
        assert again.engine.lifecycle.find("n1").drained
        await again.stop()

    run(story())


def test_a_defect_after_the_record_stops_the_controller_and_stores_nothing(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            engine = live.controller.engine

            def broken(*_, **__):
                raise IndexError("a defect")

            live.controller.state.apply = broken
            with pytest.raises((UnavailableError, TimeoutError)):
                await asyncio.wait_for(live.submit(cpu_cores=1.0), 5) and await asyncio.wait_for(
                    live.controller.cancel(job, "ann"), 5
                )
            await until(lambda: live.controller.healthy() is not None)
            assert not engine.sound
            with pytest.raises(UnavailableError):
                await live.controller.cancel(job, "ann")

    run(story())


def test_a_defect_of_discovery_stops_nothing(tmp_path):
    class Broken:
        name = "BROKEN"

        def step(self, *_):
            raise ZeroDivisionError

    async def story():
        async with InMemoryCluster(directory=tmp_path, discovery=Broken()) as live:
            job = await live.submit()
            await live.reaches(job, JobState.RUNNING)
            await live.controller.cancel(job, "ann")
            await live.reaches(job, JobState.CANCELLED)

    run(story())


def test_a_policy_that_fails_is_asked_again_but_not_at_once():
    class Fails:
        def decide(self, snapshot):
            raise RuntimeError("no")

    core = Core(Fails(), np.zeros((0, 2)))
    for event in (Join(1.0, 1.0), Submit(1, 1, 0.5, 0.1), Wake()):
        with pytest.raises(PolicyError):
            core.handle(event, 10.0)
        assert core.wake_at_s == 10.0 + RETRY_S


def test_numbers_on_the_wire_are_bounded():
    for field, value in (("memory_bytes", 10**400), ("cpus", 1e300)):
        hello = {
            "kind": "hello",
            "protocol": 1,
            "node": "n",
            "host": "h",
            "address": "a",
            "cpus": 1.0,
            "memory_bytes": 1,
            "version": "1",
            "abilities": {
                "shares": "nice",
                "caps": False,
                "memory_limits": False,
                "pause_frees_memory": False,
                "moves_on_host": False,
                "measures_waiting": False,
            },
        } | {field: value}
        with pytest.raises(InputError, match=field):
            from_agent(json.dumps(hello))


def test_hosts_are_told_apart_by_their_directories(tmp_path):
    first = host_identity(tmp_path / "a")
    assert host_identity(tmp_path / "a") == first
    assert host_identity(tmp_path / "b") != first
    (tmp_path / "a" / "host-id").write_text("no name\n")
    with pytest.raises(InputError, match="host-id"):
        host_identity(tmp_path / "a")
