"""The controller is killed again and again, and messages are unreliable: nothing is lost, nothing doubled."""

import asyncio
import json
from functools import partial

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from dfrs.engine.codec import replay
from dfrs.engine.core import Core
from dfrs.live.controller import checkpoint
from dfrs.live.controller.planner import Planner
from dfrs.live.drivers.base import ImageFormat, TaskState
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.model.errors import DfrsError
from dfrs.policies.names import find_policy
from dfrs.simulator.recorded_log import decide_again
from dfrs.testing import InMemoryHosts, abandon, make_controller, until
from dfrs.testing.cluster import DEFAULT_POLICY
from dfrs.testing.in_memory import GIB
from dfrs.workloads.live_log import read_live_log
from tests.storms import read_log


def run(coroutine):
    return asyncio.run(coroutine)


def request(*command, **more):
    return JobRequest(command=command or ("forever",), **more)


async def begin(path, world, **settings):
    controller = make_controller(path, clock=world.clock, **settings)
    await controller.start()
    world.attach_all(controller)
    return controller


async def cluster(path, *names, cpus=4.0, **settings):
    """Nodes in a world of their own, and a controller that has them all in its record."""
    world = InMemoryHosts()
    nodes = [world.node(name, cpus=cpus) for name in names]
    controller = await begin(path, world, **settings)
    await until(lambda: len(controller.nodes()) == len(nodes))
    return world, nodes, controller


def test_after_a_kill_it_goes_on(tmp_path):
    async def story():
        world, _, controller = await cluster(tmp_path, "n1", "n2")
        jobs = [(await controller.submit(request(cpu_cores=1.0), "ann", "ann"))[0] for _ in range(4)]
        waiting = (await controller.submit(request(after=(jobs[0],)), "ann", "ann"))[0]
        other = (await controller.submit(request(after_any=(jobs[1],), after_start=(jobs[2],)), "ann", "ann"))[0]
        await until(lambda: all(controller.job(job).state is JobState.RUNNING for job in jobs))
        before = {job: controller.job(job).nodes for job in jobs}
        token = (await controller.first_tokens("root"))["admin"]
        await abandon(controller)

        again = await begin(tmp_path, world)
        assert again.state.mismatches == 0
        assert {job: again.job(job).nodes for job in jobs} == before
        await until(lambda: all(node.welcomes == 2 for node in world.nodes.values()))
        assert len(world.running()) == 4
        assert again.identify(token.token).role == "admin"
        assert again.identify(token.token + "x") is None
        for node in world.nodes.values():
            node.end(jobs[0])
        await until(lambda: again.job(jobs[0]).state is JobState.DONE)
        await until(lambda: again.job(waiting).state is JobState.RUNNING)
        assert again.job(jobs[0]).state is JobState.DONE
        assert again.job(other).why == f"waits for job {jobs[1]} to end"
        await again.cancel(jobs[1], "ann")
        await until(lambda: again.job(other).state is JobState.RUNNING)
        await again.stop()

    run(story())


def test_what_ended_meanwhile_is_found_ended(tmp_path):
    async def story():
        world = InMemoryHosts()
        world.node("n1")
        controller = await begin(tmp_path, world)
        good, bad = [(await controller.submit(request(cpu_cores=1.0), "ann", "ann"))[0] for _ in range(2)]
        await until(lambda: len(world.running()) == 2)
        await abandon(controller)
        node = world.nodes["n1"]
        node.cut()
        node.end(good)
        node.end(bad, code=9)
        again = await begin(tmp_path, world)
        await until(lambda: again.job(bad).state is JobState.FAILED)
        await until(lambda: again.job(good).state is JobState.DONE)
        assert len(world.starts) == 2
        await again.stop()

    run(story())


def test_a_clean_stop_leaves_nothing_to_replay(tmp_path):
    async def story():
        world = InMemoryHosts()
        world.node("n1")
        controller = await begin(tmp_path, world)
        (job,) = await controller.submit(request(cpu_cores=1.0), "ann", "ann")
        await until(lambda: len(world.running()) == 1)
        await controller.stop()
        again = await begin(tmp_path, world)
        assert again.job(job).state is JobState.RUNNING
        assert again.state.core.decisions == controller.state.core.decisions
        await until(lambda: world.nodes["n1"].welcomes == 2)
        assert len(world.starts) == 1
        await again.stop()

    run(story())


def test_a_checkpoint_of_another_version_is_passed_over_and_nothing_is_lost(tmp_path, monkeypatch):
    async def story():
        world, _, controller = await cluster(tmp_path, "n1", "n2", checkpoint_events=3)
        short = [(await controller.submit(request(cpu_cores=1.0), "ann", "ann"))[0] for _ in range(3)]
        jobs = [(await controller.submit(request(cpu_cores=1.0), "ann", "ann"))[0] for _ in range(3)]
        await until(lambda: len(world.running()) == 6)
        for job in short:
            for node in world.nodes.values():
                node.end(job)
        await until(lambda: controller.cluster().jobs[JobState.DONE] == 3)
        before = {job: controller.job(job).nodes for job in jobs}
        await controller.stop()
        engine = create_engine(f"sqlite:///{tmp_path}/live.db")
        with engine.connect() as connection:
            assert connection.execute(text("select count(*) from checkpoints")).scalar()
        engine.dispose()
        monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
        again = await begin(tmp_path, world)
        assert again.state.core.decisions == controller.state.core.decisions
        assert again.state.mismatches == 0
        assert {job: again.job(job).nodes for job in jobs} == before
        await until(lambda: world.nodes["n1"].welcomes == world.nodes["n2"].welcomes == 2)
        assert len(world.starts) == 6
        assert len(world.running()) == 3
        await again.stop()

    run(story())


def test_only_one_controller_writes(tmp_path):
    async def story():
        world, _, first = await cluster(tmp_path, "n1")
        second = await begin(tmp_path, world)
        with pytest.raises(DfrsError, match="another controller"):
            await first.submit(request(), "ann", "ann")
        await until(lambda: first.healthy() is not None)
        (job,) = await second.submit(request(), "ann", "ann")
        assert job == 1
        await first.stop()
        await second.stop()

    run(story())


def test_the_record_replays_to_the_same_decisions(tmp_path):
    """Also the other way round: a changed digest is noticed, and what runs on nodes is kept all the same."""

    async def story():
        world, _, controller = await cluster(tmp_path, "n1", "n2")
        for k in range(12):
            (job,) = await controller.submit(request("sleep", str(k % 4 + 1), cpu_cores=1.0 + k % 3), "ann", "ann")
            await until(lambda job=job: job in controller.state.picture.rows)
        await until(lambda: len(world.running()) == 12)
        for _ in range(6):
            world.tick(0.7)
            await asyncio.sleep(0.02)
        await until(lambda: controller.cluster().jobs[JobState.DONE] == 12)
        (job,) = await controller.submit(request(cpu_cores=1.0), "ann", "ann")
        await until(lambda: controller.job(job).started_at)
        lines = [json.loads(line) async for line in controller.log()]
        await abandon(controller)

        told = [(line["time_s"], line["event"], line["digest"]) for line in lines if "event" in line]
        assert told == [each for each in read_log(tmp_path) if each[1]["event"] != "restart"]
        assert lines[0]["format"] == "dfrs-log/1"
        assert {line["job"]["id"] for line in lines if "job" in line} == set(range(1, 14))
        assert sum(bool(digest) for *_, digest in told) > 5
        assert replay(Core(find_policy(DEFAULT_POLICY), np.zeros((0, 2))), told) is None

        engine = create_engine(f"sqlite:///{tmp_path}/live.db")
        with engine.begin() as connection:
            connection.execute(text("update events set digest = 'x' where digest != '' and sequence > 10"))
        engine.dispose()
        again = await begin(tmp_path, world)
        assert again.state.mismatches > 0
        await until(lambda: all(node.welcomes == 2 for node in world.nodes.values()))
        await until(lambda: again.job(job).state is JobState.RUNNING)
        assert len(world.running(job)) == 1
        await again.stop()

    run(story())


@pytest.mark.parametrize("clean", [True, False])
def test_another_policy_takes_over_and_what_was_decided_before_stays_decided(tmp_path, clean):
    async def story():
        world, _, first = await cluster(tmp_path, "n1", cpus=2.0, policy="Greedy*/OPT=MIN", checkpoint_events=4)
        jobs = [(await first.submit(request(cpu_cores=2.0), "ann", "ann"))[0] for _ in range(3)]
        await until(lambda: len(world.running()) == 3)
        await (first.stop() if clean else abandon(first))
        second = await begin(tmp_path, world, policy="FCFS")
        assert second.state.mismatches == 0
        await until(lambda: world.nodes["n1"].welcomes == 2)
        (waiting,) = await second.submit(request(cpu_cores=2.0), "ann", "ann")
        assert len(world.running()) == 3
        await until(lambda: second.state.jobs[waiting].registered)
        await (second.stop() if clean else abandon(second))
        second = await begin(tmp_path, world, policy="Greedy*/OPT=MIN")
        await until(lambda: world.nodes["n1"].welcomes == 3)
        assert second.state.mismatches == 0
        for job in jobs:
            world.nodes["n1"].end(job)
        await until(lambda: world.running(waiting))
        names = ["Greedy*/OPT=MIN", "FCFS", "Greedy*/OPT=MIN"]
        # What a decision came to is written after its event: the last one may still be on its way.
        for _ in range(100):
            lines = [json.loads(line) async for line in second.log()]
            (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            log = read_live_log(tmp_path)
            if (mismatch := decide_again(log, find_policy).mismatch) is None:
                break
            await asyncio.sleep(0.02)
        await second.stop()
        assert mismatch is None
        assert [line["restart"]["policy"] for line in lines if "restart" in line] == names
        assert [name for _, name in log.policies] == names

    run(story())


def test_until_its_agent_is_back_a_node_is_what_was_last_known(tmp_path):
    async def story():
        world, _, first = await cluster(tmp_path, "n1", cpus=2.0)
        await first.stop()
        del world.nodes["n1"]
        second = await begin(tmp_path, world)
        (node,) = second.nodes()
        assert not node.connected
        assert node.cpus == 2.0
        world.node("n1", cpus=1.0).attach(second)
        await until(lambda: second.nodes()[0].connected)
        assert second.nodes()[0].cpus == 1.0
        await second.stop()

    run(story())


def test_a_policy_that_takes_over_is_asked_at_once(tmp_path):
    async def story():
        world, _, first = await cluster(tmp_path, "n1", cpus=2.0, policy="FCFS")
        jobs = [(await first.submit(request(cpu_cores=1.0), "ann", "ann"))[0] for _ in range(5)]
        await until(lambda: len(world.running()) == 1)
        await first.stop()
        second = await begin(tmp_path, world, policy="MCB*/per/OPT=MIN")
        await until(lambda: len(world.running()) == len(jobs))
        await second.stop()

    run(story())


def test_a_policy_that_is_not_there_any_more_is_no_reason_not_to_start(tmp_path):
    async def story():
        world, _, first = await cluster(tmp_path, "n1", cpus=2.0)
        (job,) = await first.submit(request(cpu_cores=2.0), "ann", "ann")
        await until(lambda: len(world.running()) == 1)
        await abandon(first)
        engine = create_engine(f"sqlite:///{tmp_path}/live.db")
        with engine.begin() as connection:
            connection.execute(text(f"update events set event = replace(event, '{DEFAULT_POLICY}', 'gone')"))
        engine.dispose()
        again = await begin(tmp_path, world)
        await until(lambda: again.job(job).state is JobState.RUNNING)
        assert len(world.starts) == 1
        await again.stop()

    run(story())


@pytest.mark.parametrize("restart", ["never", "on-node-loss"])
def test_a_task_that_is_lost_between_two_nodes_is_not_waited_for(tmp_path, monkeypatch, restart):
    async def story():
        world, nodes, controller = await cluster(tmp_path, "n1", "n2")
        small = request(cpu_cores=1.0, memory_bytes=3 * GIB, restart=restart)
        jobs = [(await controller.submit(small, "ann", "ann"))[0] for _ in range(2)]
        await until(lambda: all(controller.job(job).started_at for job in jobs))

        def lose_what_is_handed(node, receive, message):
            # The controller has heard that it was handed; then it is gone.
            for name in [one.task for one in getattr(message, "tasks", ()) if one.take]:
                lost = world.handed(node.host, name)
                giver = next(other for other in nodes if other.tasks.get(name) is lost)
                lost.state = TaskState.ABSENT
                giver.report_state(lost)
            receive(message)

        for node in nodes:
            monkeypatch.setattr(node, "receive", partial(lose_what_is_handed, node, node.receive))
        world.tick(1)
        large = request(cpu_cores=1.0, memory_bytes=8 * GIB)
        await controller.submit(large, "ann", "ann")
        if restart == "never":
            await until(lambda: any(controller.job(job).state is JobState.FAILED for job in jobs))
        else:
            await until(lambda: any(controller.job(job).attempt == 1 for job in jobs))
        await controller.stop()

    run(story())


@pytest.mark.parametrize("hosts", [("h", "h"), ("h1", "h2")], ids=["of one host", "of two hosts"])
def test_a_task_that_comes_to_a_node_between_its_hello_and_its_welcome_goes_on(tmp_path, monkeypatch, hosts):
    """The controller was killed while it moved there, and before it could record that it had started at all."""

    async def story():
        world = InMemoryHosts(cuts=1.0)
        images = None if len(set(hosts)) == 1 else ImageFormat(machine="x", cpu=(), kernel="6.1", criu="4.1")
        nodes = [world.node(f"n{k}", host=host, images=images) for k, host in enumerate(hosts)]
        controller = await begin(tmp_path, world)
        await until(lambda: len(controller.nodes()) == 2)
        monkeypatch.setattr(Planner, "_make_ready", lambda planner, plan, jobs: None)
        for node in nodes:
            node.full = 1e-9
            monkeypatch.setattr(node.driver, "_has_room", lambda task: not task.desired.take)
        for _ in range(2):
            await controller.submit(request(cpu_cores=1.0, memory_bytes=3 * GIB, restart="never"), "ann", "ann")
        await until(lambda: len(world.running()) == 2)
        world.tick(1)
        await controller.submit(request(cpu_cores=1.0, memory_bytes=8 * GIB), "ann", "ann")
        kept = await until(lambda: [(node, task) for node in nodes for task in node.tasks.values() if task.error])
        ((to, task),) = kept
        (source,) = set(nodes) - {to}
        await abandon(controller)
        monkeypatch.undo()
        for node in nodes:
            node.cut()
        again = make_controller(tmp_path, clock=world.clock)
        await again.start()
        # As agents do, it says only after its welcome what it had not said in its hello, and of that the latest.
        late = {}
        with monkeypatch.context() as patches:
            patches.setattr(to, "send", lambda said: late.update({getattr(said, "task", None): said}))
            to.attach(again)
            world.cuts = 0.0
            to.settle()
            assert task.state is TaskState.RUNNING
            await until(lambda: to.welcomes == 2)
        for said in late.values():
            to.send(said)
        source.attach(again)
        await until(lambda: source.welcomes == 2)
        await until(lambda: world.broken or again.state.jobs[task.id.job].tasks[0].arrived)
        assert not world.broken
        assert (task.state, again.job(task.id.job).attempt) == (TaskState.RUNNING, 0)
        assert not world.exits
        await again.stop()

    run(story())


def test_an_attempt_that_a_reboot_may_have_ended_is_not_started_again(tmp_path, monkeypatch):
    """Whatever was heard of it: the controller was killed before it could record anything."""

    async def story():
        world, (node,), controller = await cluster(tmp_path, "n1")
        monkeypatch.setattr(node, "send", lambda message: None)
        (job,) = await controller.submit(request(cpu_cores=1.0, restart="never"), "ann", "ann")
        await until(lambda: world.starts)
        await abandon(controller)
        node.reboot()
        again = await begin(tmp_path, world)
        await until(lambda: again.job(job).state is JobState.FAILED)
        assert "lost" in again.job(job).exit
        assert len(world.starts) == 1
        await again.stop()

    run(story())


@pytest.mark.parametrize("restart", ["never", "on-node-loss"])
def test_an_attempt_that_a_lost_node_may_have_started_is_not_started_again(tmp_path, monkeypatch, restart):
    """Also where it was paused when its node was lost, and the controller was killed before it heard of its start."""

    async def story():
        world, nodes, controller = await cluster(tmp_path, "n1", "n2", lost_s=20.0)
        first = {node: partial(node.send) for node in nodes}
        for node in nodes:
            monkeypatch.setattr(node, "send", lambda message: None)
        (job,) = await controller.submit(request(cpu_cores=1.0, restart=restart), "ann", "ann")
        await until(lambda: world.starts)
        ran_on = world.nodes[next(iter(world.starts.values()))]
        await controller.hold(job, "ann")
        await until(lambda: not controller.state.jobs[job].placed)
        await abandon(controller)
        ran_on.die()
        for node in nodes:
            monkeypatch.setattr(node, "send", first[node])
        again = await begin(tmp_path, world, lost_s=20.0)
        for _ in range(25):
            world.tick(1.0)
            await asyncio.sleep(0.01)
        await until(lambda: any(node.state == "lost" for node in again.nodes()))
        if restart == "never":
            await until(lambda: again.job(job).state is JobState.FAILED)
        else:
            await again.release(job, "ann")
            await until(lambda: again.job(job).attempt == 1 and again.job(job).state is JobState.RUNNING)
        assert len({(task.job, task.rank, task.attempt) for task in world.starts}) == len(world.starts)
        await again.stop()

    run(story())


@pytest.mark.parametrize("reboot", [False, True])
def test_what_was_started_since_the_checkpoint_without_an_event_may_be_there(tmp_path, reboot):
    """The second attempt waits for the end of the first, and begins after the checkpoint."""

    async def story():
        world, (one, two), controller = await cluster(tmp_path, "n1", "n2")
        (job,) = await controller.submit(request(cpu_cores=4.0, tasks=2, memory_bytes=6 * GIB), "ann", "ann")
        await until(lambda: controller.job(job).state is JobState.RUNNING)
        two.cut_off = "in"
        one.reboot()
        one.attach(controller)
        await until(lambda: controller.state.jobs[job].placed and controller.state.jobs[job].attempt == 1)
        assert controller.state.jobs[job].old
        await controller.engine.store()
        two.attach(controller)
        await until(lambda: {task.attempt for task, _ in world.running()} == {1} and len(world.running()) == 2)
        await abandon(controller)
        for node in (one, two):
            node.cut()
        if reboot:
            two.reboot()
        again = make_controller(tmp_path, clock=world.clock)
        await again.start()
        one.attach(again)
        await until(lambda: one.welcomes == 3)
        two.attach(again)
        await until(lambda: again.job(job).state is (JobState.FAILED if reboot else JobState.RUNNING))
        assert len(world.starts) == 4
        await again.stop()

    run(story())


def test_what_a_node_was_never_told_is_started_after_its_reboot(tmp_path):
    async def story():
        _, (node,), controller = await cluster(tmp_path, "n1")
        node.cut()
        (job,) = await controller.submit(request(cpu_cores=1.0, restart="never"), "ann", "ann")
        await until(lambda: controller.job(job).nodes == ("n1",) and controller.state.placement.on(0))
        node.reboot()
        node.attach(controller)
        await until(lambda: controller.job(job).state is JobState.RUNNING)
        await controller.stop()

    run(story())


def test_an_exit_stays_one_though_an_older_word_comes_late_from_a_clock_that_was_set_back(tmp_path):
    async def story():
        _, (node,), controller = await cluster(tmp_path, "n1")
        (job,) = await controller.submit(request("sleep", "1", cpu_cores=1.0, tasks=2), "ann", "ann")
        await until(lambda: controller.job(job).state is JobState.RUNNING)
        late = node._status(next(iter(node.tasks.values()))).model_copy(update={"since_s": 9e9})
        node.end(job, rank=late.task.rank)
        await until(lambda: controller.state.jobs[job].tasks[late.task.rank].exit)
        node.send(late)
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert node.tasks[late.task].state is TaskState.EXITED
        await controller.stop()

    run(story())
