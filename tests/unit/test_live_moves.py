"""Moves between hosts: what the controller has agents do, with nodes in memory."""

import asyncio

from dfrs.live.controller import tables
from dfrs.live.drivers.base import Exit, ExitKind, ImageFormat, TaskState
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.resources import JobState
from dfrs.testing import InMemoryCluster, abandon, until
from dfrs.testing.in_memory import GIB, InMemoryTask

IMAGES = ImageFormat(machine="x86_64", cpu=("avx2",), kernel="6.1", criu="4.1")
OTHER = ImageFormat(machine="x86_64", cpu=("avx512f",), kernel="6.1", criu="4.1")


def run(coroutine):
    asyncio.run(coroutine)


def hosts(live, count=2, images=(IMAGES,)):
    for k in range(count):
        live.hosts.node(f"n{k}", host=f"h{k}", images=images[k % len(images)]).attach(live.controller)


async def crowded(live):
    """Two small jobs on two hosts, and a large one for which one of them has to make room."""
    small = [await live.submit(cpu_cores=1.0, memory_bytes=3 * GIB) for _ in range(2)]
    for job in small:
        await live.reaches(job, JobState.RUNNING)
    assert sorted(live.controller.job(job).nodes[0] for job in small) == ["n0", "n1"]
    await until(lambda: all(live.controller.job(job).started_at for job in small))
    live.hosts.tick(1)
    large = await live.submit(cpu_cores=1.0, memory_bytes=8 * GIB)
    return small, large


async def in_time(live, condition):
    """Wait for it, while time passes: agents and the controller try again."""

    def comes():
        live.hosts.tick(0.01)
        return condition()

    await until(comes)


def transferred(live):
    return sum(live.hosts.transfers.values())


def said(live, action):
    return [each for each in live.controller.activity() if each.action == action]


def test_a_job_moves_to_another_host_and_its_source_forgets_it(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            hosts(live)
            small, large = await crowded(live)
            await live.reaches(large, JobState.RUNNING)
            await in_time(live, lambda: transferred(live) == 1)
            await until(lambda: len({node for task, node in live.hosts.running() if task.job in small}) == 1)
            await until(lambda: len(live.hosts.running()) == 3)
            left = [t for node in live.hosts.nodes.values() for t in node.tasks.values() if t.state is TaskState.HANDED]
            await in_time(live, lambda: all(task.state is TaskState.ABSENT for task in left))
            live.hosts.tick(1)
            rows = [agent.desired for agent in live.controller.engine.backend.agents.values()]
            await until(lambda: not [d for row in rows for d in row.values() if d.state in {"handed", "absent"}])
            assert len(set(live.hosts.starts)) == 3

    run(story())


def test_nodes_whose_images_do_not_fit_are_islands_of_their_own(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            hosts(live, 4, (IMAGES, OTHER))
            await until(lambda: len(live.controller.state.nodes) == 4)
            assert [node.island for node in live.controller.state.nodes] == [0, 1, 0, 1]
            assert "within each of 2 groups of nodes" in live.controller.cluster().abilities

    run(story())


def test_hosts_that_learn_to_exchange_tasks_become_one_island(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            hosts(live, 3, (None,))
            await until(lambda: len(live.controller.state.nodes) == 3)
            assert [node.island for node in live.controller.state.nodes] == [0, 1, 2]
            for node in live.hosts.nodes.values():
                node.cut()
                node.abilities = node.abilities.model_copy(update={"images": IMAGES})
                node.attach(live.controller)
            await until(lambda: [node.island for node in live.controller.state.nodes] == [0, 0, 0])
            await until(lambda: not live.controller.state.core.snapshot().abilities)
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            assert [node.island for node in live.controller.state.nodes] == [0, 0, 0]

    run(story())


def test_hosts_become_one_island_also_if_that_cannot_be_written_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("dfrs.live.controller.engine.RETRY_S", 0.01)

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            hosts(live, 2, (None,))
            await until(lambda: len(live.controller.state.nodes) == 2)
            write, refused = live.controller.database.write, []

            async def refuse_once(changes):
                if not refused and any(statement is tables.SET_ISLAND for statement, _ in changes):
                    refused.append(changes)
                    raise UnavailableError("the database cannot be written: disk full")
                await write(changes)

            live.controller.database.write = refuse_once
            for node in live.hosts.nodes.values():
                node.cut()
                node.abilities = node.abilities.model_copy(update={"images": IMAGES})
                node.attach(live.controller)
            await until(lambda: [node.island for node in live.controller.state.nodes] == [0, 0])
            assert refused

    run(story())


def test_a_job_that_cannot_be_check_pointed_goes_on_where_it_is_and_is_told(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            hosts(live)
            for node in live.hosts.nodes.values():
                node.rigid = 1.0
            small, _ = await crowded(live)
            await in_time(live, lambda: said(live, "fixed"))
            assert said(live, "fixed")[0].why == "it holds a device"
            await until(lambda: len([t for t, _ in live.hosts.running() if t.job in small]) == 2)
            assert transferred(live) == 0
            for job in small:
                assert (await live.reaches(job, JobState.RUNNING)).id == job

    run(story())


def test_where_no_connection_comes_about_the_job_goes_on_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("dfrs.live.backends.agents.transfers.FIRST_RENEWAL_S", 0.01)

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            hosts(live)
            live.hosts.cuts = 1.0
            small, _ = await crowded(live)

            await in_time(live, lambda: said(live, "fixed"))
            assert "no connection" in said(live, "fixed")[0].why
            assert len([t for t, _ in live.hosts.running() if t.job in small]) == 2

    run(story())


def test_a_controller_that_comes_back_in_a_move_finishes_it(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            hosts(live)
            live.hosts.cuts = 1.0
            small, large = await crowded(live)
            nodes = live.hosts.nodes.values()
            await in_time(live, lambda: any("fetch" in t.error for node in nodes for t in node.tasks.values()))
            nodes = live.hosts
        nodes.cuts = 0.0
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            live.hosts = nodes
            nodes.attach_all(live.controller)
            await in_time(live, lambda: transferred(live) == 1)
            await live.reaches(large, JobState.RUNNING)
            assert all(live.controller.job(job).state is JobState.RUNNING for job in small)

    run(story())


def test_a_cancelled_job_leaves_no_copy(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            hosts(live)
            small, large = await crowded(live)
            await in_time(live, lambda: transferred(live) == 1)
            for job in (*small, large):
                await live.controller.cancel(job, "root")
            await asyncio.sleep(0)
            tasks = [task for node in live.hosts.nodes.values() for task in node.tasks.values()]
            await in_time(live, lambda: all(task.state is TaskState.ABSENT for task in tasks))

    run(story())


def test_a_copy_that_is_lost_is_no_end_as_long_as_the_task_may_have_gone_on(tmp_path):
    async def story():
        live = await InMemoryCluster(directory=tmp_path, nodes=0).__aenter__()
        hosts(live)
        small, large = await crowded(live)
        await in_time(live, lambda: transferred(live) == 1)
        await live.reaches(large, JobState.RUNNING)
        # As kill -9 does: what nodes have said is not stored.
        await abandon(live.controller)
        nodes = live.hosts
        (task,) = nodes.transfers
        there = next(node for node in nodes.nodes.values() if node.tasks.get(task) and node.tasks[task].transfers)
        source = next(node for node in nodes.nodes.values() if node is not there)
        lost = Exit(kind=ExitKind.LOST, time_s=1.0)
        source.tasks[task] = InMemoryTask(task, state=TaskState.EXITED, exit=lost, was_here=True)
        async with InMemoryCluster(directory=tmp_path, nodes=0) as live:
            live.hosts = nodes
            source.attach(live.controller)
            await asyncio.sleep(0.3)
            assert (live.controller.job(task.job).state, live.controller.job(task.job).attempt) == (JobState.RUNNING, 0)
            there.attach(live.controller)
            await in_time(live, lambda: source.tasks[task].state is TaskState.ABSENT)
            assert there.tasks[task].state is TaskState.RUNNING
            assert [live.controller.job(job).state for job in small] == [JobState.RUNNING] * 2

    run(story())
