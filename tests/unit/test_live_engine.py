"""The life of jobs under the controller, with agents that live in memory."""

import asyncio
import time

import numpy as np
import pytest

from dfrs.live.controller.backend import Output
from dfrs.live.drivers.base import Exit, ExitKind, TaskState
from dfrs.live.errors import ConflictError, NotFoundError
from dfrs.live.protocol.ports import Piece
from dfrs.live.protocol.resources import JobRequest, JobState, NodeState
from dfrs.live.protocol.wire import Desire, Welcome
from dfrs.model.errors import InputError
from dfrs.policies.discovery.methods import find_discovery
from dfrs.policies.names import find_policy
from dfrs.testing import InMemoryCluster, InMemoryHosts, until
from dfrs.testing.in_memory import GIB


def run(coroutine):
    return asyncio.run(coroutine)


def request(*command, **more):
    return JobRequest(command=command or ("forever",), **more)


def test_a_job_starts_runs_and_ends(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            world, controller = live.hosts, live.controller
            job = await live.submit("sleep", "1", cpu_cores=2.0, tasks=2)
            seen = await live.reaches(job, JobState.RUNNING)
            assert sorted(seen.nodes) == ["n1", "n2"]
            assert seen.yield_granted == 1.0
            assert len(world.running(job)) == 2
            await until(lambda: controller.job(job).started_at is not None)
            world.tick(0.5)
            world.tick(0.6)
            ended = await live.reaches(job, JobState.DONE)
            await until(lambda: all(t.state == "absent" for n in world.nodes.values() for t in n.tasks.values()))
            assert ended.exit_code == 0
            assert ended.cpu_s == pytest.approx(2.2)
            assert ended.virtual_s == pytest.approx(1.1)
            assert live.actions(job) == ["submit", "start", "finish"]

    run(story())


@pytest.mark.parametrize(
    ("command", "words", "code"),
    [
        (("fail", "3"), "ended with status 3", 3),
        (("oom",), "ran out of memory: its requirement is 256 MiB; submit with more --memory", None),
        (("missing",), "could not be started: no such file", None),
        (("fail", "3", "output was dropped"), "ended with status 3; output was dropped", 3),
    ],
)
def test_a_failed_job_says_how(tmp_path, command, words, code):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit(*command, cpu_cores=1.0)
            ended = await live.reaches(job, JobState.FAILED)
            assert (ended.exit, ended.exit_code) == (words, code)

    run(story())


@pytest.mark.parametrize(("tasks", "words"), [(1, "done; output was dropped"), (2, "done; task 0: output was dropped")])
def test_what_a_node_has_to_say_of_a_job_that_is_done_is_told(tmp_path, tasks, words):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit("fail", "0", "output", "was", "dropped", cpu_cores=1.0, tasks=tasks)
            ended = await live.reaches(job, JobState.DONE)
            assert (ended.exit, ended.exit_code) == (words, 0)

    run(story())


def test_one_failed_task_ends_the_others(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit(cpu_cores=1.0, tasks=3)
            await live.reaches(job, JobState.RUNNING)
            for node in live.hosts.nodes.values():
                node.end(job, rank=1, code=7)
            ended = await live.reaches(job, JobState.FAILED)
            assert ended.exit == "task 1 ended with status 7"
            assert not live.hosts.running(job)

    run(story())


def test_an_ended_job_tells_the_most_memory_of_a_task(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit(cpu_cores=2.0, tasks=2)
            await live.reaches(job, JobState.RUNNING)
            assert live.controller.job(job).peak_bytes is None
            for rank, size in enumerate((300, 200)):
                for node in live.hosts.nodes.values():
                    node.end(job, rank=rank, peak_bytes=size << 20)
            assert (await live.reaches(job, JobState.DONE)).peak_bytes == 300 << 20

    run(story())


def test_cancelling(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            controller = live.controller
            running = await live.submit(memory_bytes=5 * GIB, cpu_cores=1.0)
            await live.reaches(running, JobState.RUNNING)
            live.hosts.nodes["n1"].deaf = True
            await controller.cancel(running, "bob")
            assert controller.job(running).state is JobState.ENDING
            with pytest.raises(ConflictError, match="is ending"):
                await controller.cancel(running, "bob")
            live.hosts.nodes["n1"].attach(controller)
            live.hosts.nodes["n1"].deaf = False
            live.hosts.nodes["n1"].attach(controller)
            ended = await live.reaches(running, JobState.CANCELLED)
            assert ended.exit == "cancelled by bob"
            with pytest.raises(ConflictError, match="has ended"):
                await controller.cancel(running, "bob")
            with pytest.raises(NotFoundError):
                await controller.cancel(99, "bob")
            held = await live.submit(held=True)
            assert controller.job(held).state is JobState.HELD
            await controller.cancel(held, "bob")
            assert controller.job(held).state is JobState.CANCELLED

    run(story())


def test_hold_and_release(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            controller = live.controller
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            await controller.hold(job, "ann")
            assert (await live.reaches(job, JobState.HELD)).why == "held by ann"
            node = live.hosts.nodes[controller.job(job).nodes[0]]
            await until(lambda: [t.state for t in node.tasks.values()] == ["paused"])
            with pytest.raises(ConflictError, match="held already"):
                await controller.hold(job, "ann")
            await controller.release(job, "ann")
            await live.reaches(job, JobState.RUNNING)
            await until(lambda: [t.state for t in node.tasks.values()] == ["running"])
            with pytest.raises(ConflictError, match="not held"):
                await controller.release(job, "ann")
            waiting = await live.submit(held=True)
            await controller.release(waiting, "ann")
            await live.reaches(waiting, JobState.RUNNING)

    run(story())


def test_a_pause_that_frees_no_memory_is_undone(tmp_path):
    async def story():
        async with InMemoryCluster(nodes=1, cpus=1.0, memory_bytes=2 * GIB, directory=tmp_path) as live:
            hosts, node = live.hosts, live.nodes["n1"]
            first = await live.submit("forever", cpu_cores=1.0, memory_bytes=2 * GIB)
            await live.reaches(first, JobState.RUNNING)
            hosts.tick(60.0)
            node.full = 1.0
            second = await live.submit("sleep", "1", cpu_cores=1.0, memory_bytes=2 * GIB)
            await until(lambda: "kept" in live.actions(first))
            await live.reaches(first, JobState.RUNNING)
            assert [name for name, _ in hosts.running()] == [name for name, _ in hosts.running(first)]
            kept = next(each for each in live.controller.activity(job=first) if each.action == "kept")
            assert (kept.node, kept.why) == ("n1", "no swap space left")
            await until(lambda: live.actions(first)[-1] == "resume")
            node.full = 0.0
            hosts.tick(700.0)
            await until(lambda: hosts.running(second))
            hosts.tick(2.0)
            await live.reaches(second, JobState.DONE)

    run(story())


def test_a_job_that_is_held_keeps_its_memory_where_it_cannot_be_freed(tmp_path):
    async def story():
        async with InMemoryCluster(nodes=1, cpus=1.0, memory_bytes=2 * GIB, directory=tmp_path) as live:
            node = live.nodes["n1"]
            first = await live.submit("forever", cpu_cores=1.0, memory_bytes=2 * GIB)
            await live.reaches(first, JobState.RUNNING)
            node.full = 1.0
            await live.controller.hold(first, "ann")
            await until(lambda: "kept" in live.actions(first))
            second = await live.submit("sleep", "1", cpu_cores=1.0, memory_bytes=2 * GIB)
            await until(lambda: live.controller.job(second).state is JobState.WAITING)
            assert [task.state for task in node.tasks.values()] == [TaskState.PAUSED]
            assert live.controller.job(first).state is JobState.HELD
            await live.controller.release(first, "ann")
            await live.reaches(first, JobState.RUNNING)

    run(story())


def test_a_requeued_job_begins_anew_once_nothing_is_left_of_it(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            controller, node = live.controller, live.hosts.nodes["n1"]
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            node.deaf = True
            await controller.requeue(job, "ann")
            await until(lambda: controller.job(job).attempt == 1)
            assert [task.attempt for task, _ in live.hosts.running(job)] == [0]
            node.attach(controller)
            node.deaf = False
            node.attach(controller)
            await until(lambda: [task.attempt for task, _ in live.hosts.running(job)] == [1])
            await live.reaches(job, JobState.RUNNING)
            assert live.actions(job)[:3] == ["submit", "start", "requeue"]
            (asked,) = [each for each in controller.activity(job=job) if each.action == "requeue"]
            assert (asked.by, asked.why) == ("ann", "requeued by ann")
            node.end(job)
            await live.reaches(job, JobState.DONE)
            with pytest.raises(ConflictError, match="has ended"):
                await controller.requeue(job, "ann")
            held = await live.submit(held=True)
            with pytest.raises(ConflictError, match="has not begun"):
                await controller.requeue(held, "ann")

    run(story())


def test_where_a_requeued_job_was_ends_also_if_it_never_runs_again(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            controller = live.controller
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            assert [(bar.job, bar.end) for bar in controller.gantt(0.0)] == [(job, None)]
            live.tick(5.0)
            await controller.drain("n1", "ann")
            await controller.requeue(job, "ann")
            await until(lambda: controller.job(job).state is JobState.WAITING and not live.hosts.running(job))
            (bar,) = controller.gantt(0.0)
            assert bar.end is not None
            live.tick(5.0)
            await controller.cancel(job, "ann")
            await live.reaches(job, JobState.CANCELLED)
            assert list(controller.gantt(0.0)) == [bar]

    run(story())


def test_a_held_job_that_is_requeued_stays_held(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            await live.controller.hold(job, "ann")
            await live.reaches(job, JobState.HELD)
            await live.controller.requeue(job, "ann")
            await until(lambda: live.controller.job(job).attempt == 1 and not live.hosts.running(job))
            assert live.controller.job(job).state is JobState.HELD
            await live.controller.release(job, "ann")
            await live.reaches(job, JobState.RUNNING)
            assert [task.attempt for task, _ in live.hosts.running(job)] == [1]

    run(story())


def test_what_a_job_received_beyond_its_grants_is_forgotten_with_its_attempt(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            live.controller.state.jobs[job].ungranted_s = 42.0
            await live.controller.requeue(job, "ann")
            await until(lambda: live.controller.job(job).attempt == 1)
            assert live.controller.job(job).virtual_granted_s >= 0.0

    run(story())


def test_jobs_wait_for_others(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            first = await live.submit("sleep", "1", cpu_cores=1.0)
            second = await live.submit("sleep", "1", cpu_cores=1.0, after=(first,))
            bad = await live.submit(cpu_cores=1.0)
            third = await live.submit(after=(bad,))
            fourth = await live.submit(after=(third,))
            assert live.controller.job(second).state is JobState.PENDING
            assert live.controller.job(second).why == f"waits for job {first} to end"
            await live.reaches(first, JobState.RUNNING)
            live.hosts.tick(1.1)
            await live.reaches(second, JobState.RUNNING)
            await live.reaches(bad, JobState.RUNNING)
            for node in live.hosts.nodes.values():
                node.end(bad, code=1)
            assert (await live.reaches(third, JobState.CANCELLED)).exit == f"after job {bad}, which failed"
            assert (await live.reaches(fourth, JobState.CANCELLED)).exit == f"after job {third}, which was cancelled"
            with pytest.raises(InputError, match="after: 77"):
                await live.submit(after=(77,))
            late = await live.submit("sleep", "1", after=(bad,))
            assert (await live.reaches(late, JobState.CANCELLED)).exit == f"after job {bad}, which failed"

    run(story())


def test_jobs_wait_for_a_start_a_failure_or_any_end(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = live.controller.job
            good, bad = [await live.submit(cpu_cores=0.1, held=True) for _ in range(2)]
            started = await live.submit(cpu_cores=0.1, after_start=(good,))
            both = await live.submit(cpu_cores=0.1, after_start=(good,), after=(good,))
            any_end = await live.submit(cpu_cores=0.1, after_any=(good, bad))
            failure = await live.submit(cpu_cores=0.1, after_failed=(bad,))
            no_failure = await live.submit(cpu_cores=0.1, after_failed=(good,))
            assert {job(each).state for each in (started, both, any_end, failure, no_failure)} == {JobState.PENDING}
            assert job(started).why == f"waits for job {good} to start"
            assert job(both).why == f"waits for job {good} to end"
            for held in (good, bad):
                await live.controller.release(held, "ann")
                await live.reaches(held, JobState.RUNNING)
            await live.reaches(started, JobState.RUNNING)
            late = await live.submit(cpu_cores=0.1, after_start=(good,))
            await live.reaches(late, JobState.RUNNING)
            assert job(both).state is JobState.PENDING
            for node in live.hosts.nodes.values():
                node.end(good)
            ended = await live.reaches(no_failure, JobState.CANCELLED)
            assert ended.exit == f"after the failure of job {good}, which ended well"
            await live.reaches(both, JobState.RUNNING)
            assert job(any_end).state is job(failure).state is JobState.PENDING
            for node in live.hosts.nodes.values():
                node.end(bad, code=1)
            for each in (any_end, failure):
                await live.reaches(each, JobState.RUNNING)
            later = [await live.submit(cpu_cores=0.1, **{kind: (bad,)}) for kind in ("after_any", "after_start")]
            for each in later:
                await live.reaches(each, JobState.RUNNING)
            with pytest.raises(InputError, match="after: 77"):
                await live.submit(after_any=(77,))

    run(story())


def test_a_job_that_never_started_frees_those_that_wait_for_its_start(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            never = await live.submit(cpu_cores=0.1, held=True)
            waiting = await live.submit(cpu_cores=0.1, after_start=(never,))
            gone = await live.submit(cpu_cores=0.1, after_start=(never,))
            await live.controller.cancel(gone, "ann")
            await live.controller.cancel(never, "ann")
            await live.reaches(waiting, JobState.RUNNING)

    run(story())


def test_an_array_is_many_jobs(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            jobs = await live.controller.submit(request(cpu_cores=0.1, array=5), "ann", "ann")
            assert len(jobs) == 5
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
            found = {}
            for node in live.hosts.nodes.values():
                for message in node.link.sent:
                    if isinstance(message, Desire):
                        found |= {d.task.job: d.spec.environment for d in message.tasks if d.spec is not None}
            assert {name: env["DFRS_ARRAY_INDEX"] for name, env in found.items()} == {
                name: str(k) for k, name in enumerate(jobs)
            }

    run(story())


def test_what_can_never_run_is_refused(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            for more, words in (
                ({"cpu_cores": 9.0}, "cpu_cores: 9: a task can need at most 4 cores"),
                ({"memory_bytes": 9 * GIB}, "memory_bytes: 9663676416: a task can have at most 8589934592 bytes"),
                ({"memory_bytes": 5 * GIB, "tasks": 3}, "tasks: 3: all nodes together hold at most 2"),
            ):
                with pytest.raises(InputError, match=words):
                    await live.submit(**more)

    run(story())


def test_nodes_that_will_not_be_back_hold_no_job(tmp_path):
    """And after a day nobody is shown them any more."""

    async def story():
        async with InMemoryCluster(directory=tmp_path, host=None) as live:
            controller, large = live.controller, {"memory_bytes": 5 * GIB, "tasks": 2}
            await controller.cancel(await live.submit(**large), "ann")
            live.hosts.nodes["n2"].die()
            live.hosts.tick(20)
            await until(lambda: controller.nodes()[1].state is NodeState.SILENT)
            await controller.cancel(await live.submit(**large), "ann")
            await controller.drain("n2", "root")
            with pytest.raises(InputError, match="all nodes together hold at most 1 such"):
                await live.submit(**large)
            await controller.undrain("n2", "root")
            live.hosts.tick(200)
            await until(lambda: controller.nodes()[1].state is NodeState.LOST)
            with pytest.raises(InputError, match="all nodes together hold at most 1 such"):
                await live.submit(**large)
            live.hosts.tick(86400)
            await until(lambda: [node.name for node in controller.nodes()] == ["n1"])
            with pytest.raises(NotFoundError):
                await controller.drain("n2", "root")

    run(story())


def test_a_start_is_at_most_some_years_ahead(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            with pytest.raises(InputError, match="start_at: 88170000000: must be at most 10 years ahead"):
                await live.submit(start_at=88170000000.0)
            await live.submit(start_at=live.hosts.now + 9 * 365 * 86400.0)

    run(story())


async def explained(live, job, words):
    await until(lambda: words in live.controller.explain(job).now, f"{words}, not {live.controller.explain(job).now}")


def test_what_a_job_waits_for_is_said(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, policy="Greedy*/OPT=MIN") as live:
            controller = live.controller
            held = await live.submit(held=True)
            assert controller.explain(held).now == "held since its submission"
            for node, size in (("n1", 8 * GIB), ("n2", int(2.5 * GIB))):
                job = await live.submit(cpu_cores=1.0, memory_bytes=size)
                await live.reaches(job, JobState.RUNNING)
                assert controller.job(job).nodes == (node,)
            await live.submit(cpu_cores=1.0, memory_bytes=9 * GIB // 2, tasks=1)
            large = await live.submit(cpu_cores=1.0, memory_bytes=7 * GIB)
            await explained(live, large, "waits: no node has 7 GiB of memory free; the most is 1 GiB on n2")
            two = await live.submit(cpu_cores=1.0, memory_bytes=GIB, tasks=2)
            await explained(live, two, "waits: only 1 of its 2 tasks fits now")
            for node in ("n1", "n2"):
                await controller.drain(node, "root")
            await explained(live, two, "waits: no node takes new tasks now (2 draining)")

    run(story())


def test_what_a_job_waits_for_in_a_batch_queue_is_said(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, policy="EASY-D") as live:
            controller = live.controller
            first = await live.submit(cpu_cores=4.0, estimate_s=100)
            await live.reaches(first, JobState.RUNNING)
            head, behind = [await live.submit(cpu_cores=4.0, tasks=2, estimate_s=1000) for _ in range(2)]
            await explained(live, head, "waits: only 1 of its 2 tasks fits now")
            await explained(live, behind, f"waits behind job {head}")
            await controller.drain("n2", "root")
            await explained(live, head, "waits: the nodes that are up can hold only 1 of its 2 tasks")
            alone = await live.submit(cpu_cores=4.0, estimate_s=1000)
            await explained(live, alone, "waits: no node is free")
            await controller.undrain("n2", "root")
            await explained(live, behind, f"waits behind job {head}")
            at = live.hosts.now + 7200
            dedicated = await live.submit(cpu_cores=1.0, start_at=at, estimate_s=10)
            await until(lambda: dedicated in controller.state.picture.rows)
            await explained(live, dedicated, "waits for its requested start at ")
            assert time.strftime("%H:%M:%S", time.localtime(at)) in controller.explain(dedicated).now

    run(story())


def test_a_minimum_yield_without_room_is_said_of_jobs_that_have_one(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            first = await live.submit(cpu_cores=4.0, minimum_yield=0.7)
            await live.reaches(first, JobState.RUNNING)
            second = await live.submit(cpu_cores=4.0, minimum_yield=0.5)
            await explained(live, second, "waits: its minimum yield has no room")

    run(story())


def test_a_job_that_is_being_started_says_where(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            live.hosts.nodes["n1"].deaf = True
            job = await live.submit(cpu_cores=1.0)
            assert (await live.reaches(job, JobState.STARTING)).why == "is being started on n1"

    run(story())


def test_a_job_counts_from_its_requested_start(tmp_path):
    """Before, it lowers nobody's yield; its flow time begins then."""

    async def story():
        async with InMemoryCluster(directory=tmp_path, policy="EASY-D") as live:
            controller = live.controller
            first = await live.submit(cpu_cores=1.0, estimate_s=1e6)
            await live.reaches(first, JobState.RUNNING)
            job = await live.submit(cpu_cores=1.0, start_at=live.hosts.now + 600, estimate_s=10)
            await until(lambda: job in controller.state.picture.rows)
            live.hosts.tick(10)
            assert (controller.cluster().minimum_yield, controller.cluster().median_yield) == (1.0, 1.0)
            live.hosts.tick(290)
            assert controller.job(job).stretch == 1.0
            live.hosts.tick(300)
            await live.reaches(job, JobState.RUNNING)
            # A job is shown as running a moment before the core's next picture counts it.
            await until(lambda: np.isfinite(controller.state.picture.row(job)["ready_s"]))
            live.hosts.tick(100)
            assert controller.job(job).stretch == pytest.approx(1.0, abs=0.01)

    run(story())


def test_a_job_one_of_whose_tasks_cannot_be_started_fails(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            job = await live.submit("missing", cpu_cores=4.0, tasks=2)
            assert "could not be started: no such file" in (await live.reaches(job, JobState.FAILED)).exit

    run(story())


def test_before_there_are_nodes_jobs_wait(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            fits, too_large = await live.submit(cpu_cores=2.0), await live.submit(cpu_cores=5.0)
            assert live.controller.job(fits).state is JobState.WAITING
            assert "no node" in live.controller.job(fits).why
            live.hosts.node("n1").attach(live.controller)
            await live.reaches(fits, JobState.RUNNING)
            assert "at most 4 cores" in (await live.reaches(too_large, JobState.FAILED)).exit

    run(story())


def test_a_job_moves_between_nodes_of_a_host(tmp_path):
    """Draining does not move, so the policy is made to: a large job comes, and a small one has to make room."""

    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            small = [await live.submit(cpu_cores=1.0, memory_bytes=3 * GIB) for _ in range(2)]
            for job in small:
                await live.reaches(job, JobState.RUNNING)
            assert sorted(live.controller.job(job).nodes[0] for job in small) == ["n1", "n2"]
            await until(lambda: all(live.controller.job(job).started_at for job in small))
            live.hosts.tick(1)
            large = await live.submit(cpu_cores=1.0, memory_bytes=8 * GIB)
            await live.reaches(large, JobState.RUNNING)
            await until(lambda: sum(live.controller.job(job).migrations for job in small) == 1)
            await until(lambda: len({n for t, n in live.hosts.running() if t.job in small}) == 1)
            assert any(verb == "hand" for verb, *_ in live.hosts.history)
            assert len(live.hosts.running()) == 3
            live.hosts.tick(1)
            rows = [agent.desired for agent in live.controller.engine.backend.agents.values()]
            await until(lambda: not [d for row in rows for d in row.values() if d.state in {"handed", "absent"}])

    run(story())


def test_draining_and_coming_back(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            controller = live.controller
            await controller.drain("n1", "root")
            await until(lambda: controller.nodes()[0].state is NodeState.DRAINING)
            jobs = [await live.submit(cpu_cores=1.0) for _ in range(3)]
            for job in jobs:
                assert (await live.reaches(job, JobState.RUNNING)).nodes == ("n2",)
            live.hosts.nodes["n1"].deaf = True
            live.hosts.tick(20)
            await until(lambda: controller.nodes()[0].state is NodeState.SILENT)
            assert [node.drained for node in controller.nodes()] == [True, False]
            live.hosts.nodes["n1"].deaf = False
            live.hosts.tick(1)
            await until(lambda: controller.nodes()[0].state is NodeState.DRAINING)
            await controller.undrain("n1", "root")
            await until(lambda: controller.nodes()[0].state is NodeState.UP)
            assert not controller.nodes()[0].drained
            with pytest.raises(NotFoundError):
                await controller.drain("n9", "root")

    run(story())


def test_why_a_node_is_drained_is_kept_and_may_change(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            for reason in ("", "a new disk", "another disk"):
                await live.controller.drain("n1", "root", reason)
                await until(lambda reason=reason: live.controller.nodes()[0].drain_reason == reason)
                assert (await live.controller.latest()).nodes[0].drain_reason == reason
            assert live.controller.activity()[-1].why == "another disk"
        async with InMemoryCluster(directory=tmp_path) as live:
            assert [node.drain_reason for node in live.controller.nodes()] == ["another disk", ""]
            await live.controller.undrain("n1", "root")
            await until(lambda: live.controller.nodes()[0].drain_reason == "")

    run(story())


def test_a_lost_node(tmp_path):
    """Its jobs are queued again once; those that may not be, and those that were before, fail."""

    async def story():
        async with InMemoryCluster(directory=tmp_path, host=None) as live:
            controller, world = live.controller, live.hosts
            await controller.drain("n2", "root")
            await until(lambda: controller.nodes()[1].state is NodeState.DRAINING)
            again = await live.submit(cpu_cores=1.0)
            never = await live.submit(cpu_cores=1.0, restart="never")
            for job in (again, never):
                await live.reaches(job, JobState.RUNNING)
            await controller.undrain("n2", "root")
            await until(lambda: controller.nodes()[1].state is NodeState.UP)
            parallel = await live.submit(cpu_cores=3.0, tasks=2)
            assert set((await live.reaches(parallel, JobState.RUNNING)).nodes) == {"n1", "n2"}
            world.nodes["n1"].die()
            world.tick(100)
            await until(lambda: controller.nodes()[0].state is NodeState.SILENT)
            assert controller.job(again).state is JobState.RUNNING
            world.tick(100)
            await until(lambda: controller.nodes()[0].state is NodeState.LOST)
            assert (await live.reaches(never, JobState.FAILED)).exit == "its node n1 was lost"
            for job in (again, parallel):
                await until(lambda job=job: controller.job(job).attempt == 1)
                assert set((await live.reaches(job, JobState.RUNNING)).nodes) == {"n2"}
            assert "lost" in live.actions(again)
            world.nodes["n2"].die()
            world.tick(200)
            assert (await live.reaches(again, JobState.FAILED)).exit == "its node n2 was lost"

    run(story())


def test_only_a_lost_node_counts_for_the_one_restart_after_one(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=3, host=None) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            await live.controller.requeue(job, "root")
            await until(lambda: live.job(job).attempt == 1)
            for _ in range(2):
                (where,) = (await live.reaches(job, JobState.RUNNING)).nodes
                live.nodes[where].die()
                live.tick(200)
                lost = (where, NodeState.LOST)
                await until(lambda lost=lost: lost in [(node.name, node.state) for node in live.controller.nodes()])
                # The next controller knows of the loss, too.
                await live.restart(kill=True)
            assert (await live.reaches(job, JobState.FAILED)).exit == f"its node {where} was lost"
            assert live.controller.state.mismatches == 0

    run(story())


def test_a_lost_node_that_comes_back_ends_what_it_has(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            node = live.hosts.nodes["n1"]
            node.cut()
            live.hosts.tick(200)
            await until(lambda: live.controller.nodes()[0].state is NodeState.LOST)
            await until(lambda: live.controller.job(job).attempt == 1)
            node.attach(live.controller)
            await live.reaches(job, JobState.RUNNING)
            assert [task.attempt for task, _ in live.hosts.running(job)] == [1]

    run(story())


def test_what_a_fence_ended_on_a_node_that_is_back_soon_begins_anew(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            node = live.hosts.nodes["n1"]
            node.fence_s = 20.0
            job = await live.submit(cpu_cores=1.0)
            never = await live.submit(cpu_cores=1.0, restart="never")
            for each in (job, never):
                await live.reaches(each, JobState.RUNNING)
            node.cut()
            live.hosts.tick(30)
            assert not live.hosts.running(job)
            node.attach(live.controller)
            await until(lambda: live.controller.job(job).attempt == 1)
            await live.reaches(job, JobState.RUNNING)
            assert "the agent ended it" in (await live.reaches(never, JobState.FAILED)).exit

    run(story())


def test_a_rebooted_node_lost_what_it_had(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            held = await live.submit(cpu_cores=1.0)
            await live.reaches(held, JobState.RUNNING)
            await live.controller.hold(held, "ann")
            live.hosts.nodes["n1"].reboot()
            live.hosts.nodes["n1"].attach(live.controller)
            await until(lambda: live.controller.job(job).attempt == 1)
            await live.reaches(job, JobState.RUNNING)
            await until(lambda: live.controller.job(held).attempt == 1)
            assert live.controller.job(held).state is JobState.HELD
            await live.controller.release(held, "ann")
            await live.reaches(held, JobState.RUNNING)

    run(story())


def test_another_agent_of_that_name(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            node = live.hosts.nodes["n1"]
            first = node.link
            twin = InMemoryHosts().node("n1", host="elsewhere")
            with pytest.raises(ConflictError, match="is connected under this name"):
                twin.attach(live.controller)
            restarted = InMemoryHosts().node("n1", host="h")
            restarted.attach(live.controller)
            await until(lambda: restarted.welcomes == 1)
            assert not first.open
            node.attachment = None

    run(story())


def test_dedicated_and_delayed_starts(tmp_path):
    async def story():
        for policy, before in (("EASY-D", JobState.WAITING), ("FCFS", JobState.PENDING)):
            path = tmp_path / policy
            path.mkdir()
            async with InMemoryCluster(directory=path, policy=policy) as live:
                job = await live.submit(cpu_cores=1.0, start_at=live.hosts.now + 60, estimate_s=10)
                await asyncio.sleep(0.2)
                assert live.controller.job(job).state is before
                live.hosts.tick(30)
                live.hosts.tick(31)
                await live.reaches(job, JobState.RUNNING)

    run(story())


def test_output_is_fetched_from_the_node(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            part = await live.controller.output(job, 0, Piece(stream="out", offset=0, limit=6))
            assert (part.text, part.next_offset, part.ended) == ("output", 6, False)
            await live.controller.requeue(job, "ann")
            await until(lambda: live.controller.job(job).attempt == 1)
            part = await live.controller.output(job, 0, Piece(stream="out", offset=6, limit=6))
            assert (part.attempt, part.ended) == (1, False)
            with pytest.raises(NotFoundError):
                await live.controller.output(job, 1, Piece(stream="out", offset=0, limit=6))

    run(story())


def test_characters_of_several_bytes_come_whole(tmp_path, monkeypatch):
    written = "a€b".encode()

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            there = len(written)

            async def read(_node, _task, piece):
                data = written[piece.offset : min(there, piece.offset + piece.limit)]
                return Output(data=data, offset=piece.offset, end=there)

            monkeypatch.setattr(live.controller.engine.backend, "read", read)

            async def ask(offset, limit=100, **more):
                part = await live.controller.output(job, 0, Piece(stream="out", offset=offset, limit=limit, **more))
                return part.text, part.next_offset, part.ended

            assert await ask(0) == ("a€b", 5, False)
            # Cut at a limit: what is cut off comes next, unless less than a character is asked for.
            assert await ask(0, 3) == ("a", 1, False)
            assert await ask(1, 3) == ("€", 4, False)
            assert await ask(1, 2) == ("\ufffd", 3, False)
            # Written in part so far.
            there = 3
            assert await ask(0) == ("a", 1, False)
            assert await ask(1) == ("", 1, False)
            assert await ask(1, wait_s=1.0) == ("\ufffd", 3, False)
            assert await ask(0, raw=True) == ("", 3, False)
            # There is no more to come.
            live.controller.state.jobs[job].tasks[0].exit = Exit(kind=ExitKind.CODE, code=0, time_s=1.0)
            assert await ask(0) == ("a\ufffd", 3, True)

    run(story())


def test_a_burst_is_one_or_two_decisions(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            await asyncio.gather(*(live.submit(cpu_cores=0.01, memory_bytes=1 << 20) for _ in range(300)))
            await until(lambda: live.controller.cluster().jobs[JobState.RUNNING] == 300)
            assert live.controller.cluster().decisions < 150
            assert len(live.hosts.running()) == 300

    run(story())


def test_a_policy_that_fails_stops_nothing(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            controller = live.controller
            first = await live.submit(cpu_cores=1.0)
            await live.reaches(first, JobState.RUNNING)
            whole, controller.state.core.policy = controller.state.core.policy, Broken()
            second = await live.submit(cpu_cores=1.0)
            await until(lambda: "broken today" in (controller.healthy() or ""))
            assert controller.job(first).state is JobState.RUNNING
            assert controller.job(second).state is JobState.WAITING
            controller.state.core.policy = whole
            third = await live.submit(cpu_cores=1.0)
            await live.reaches(third, JobState.RUNNING)
            assert controller.healthy() is None

    run(story())


class Broken:
    def decide(self, snapshot):
        raise ValueError("broken today")


def test_the_shadow_says_what_it_would_do(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1, shadow=find_policy("FCFS")) as live:
            jobs = [await live.submit(cpu_cores=3.0) for _ in range(2)]
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
            await until(lambda: live.controller.cluster().shadow_differs)
            choice = [each for each in live.controller.shadow() if each.job == jobs[1]][-1]
            assert (choice.did, choice.would) == ("n1 at yield 0.67", "no nodes")

    run(story())


def test_welcome_names_all_that_a_node_has(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            jobs = [await live.submit(cpu_cores=1.0) for _ in range(3)]
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
            node = live.hosts.nodes["n1"]
            node.attach(live.controller)
            await until(lambda: node.welcomes == 2)
            (welcome,) = (m for m in node.link.sent if isinstance(m, Welcome))
            assert {d.task.job for d in welcome.desired} == set(jobs)
            assert len(live.hosts.running()) == 3
            versions = [
                d.version
                for m in node.link.sent
                if isinstance(m, Welcome | Desire)
                for d in (m.desired if isinstance(m, Welcome) else m.tasks)
            ]
            assert len(set(versions)) == len(versions)

    run(story())


@pytest.mark.parametrize("discovery", ["OBSERVE", "DYNAMIC"])
def test_needs_that_nobody_declared_are_found_out(tmp_path, discovery):
    async def story():
        found = find_discovery(discovery)
        async with InMemoryCluster(directory=tmp_path, nodes=1, discovery=found) as live:
            declared = await live.submit(cpu_cores=1.0)
            unknown = await live.submit()
            for job in (declared, unknown):
                await live.reaches(job, JobState.RUNNING)
            assert live.controller.job(unknown).need_cores == 4.0
            # On a busy machine, many of these seconds pass between two looks of the controller.
            deadline = time.monotonic() + 60.0
            while live.controller.job(unknown).need_cores >= 1.5 and time.monotonic() < deadline:
                live.hosts.tick(1.0)
                await asyncio.sleep(0.004)
            assert live.controller.job(unknown).need_cores == pytest.approx(1.0, abs=0.5)
            assert live.controller.job(unknown).need_error_cores is not None
            live.controller.state.jobs[unknown].need_error = 0.0
            assert live.controller.job(unknown).need_error_cores == 0.01
            assert live.controller.job(declared).need_cores == 1.0
            assert live.controller.job(declared).need_error_cores is None
            again = live.controller.state
            assert any(key[0] == unknown for key in again.placement.overrides)

    run(story())
