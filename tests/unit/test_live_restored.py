"""A controller goes on from an older copy of its database: numbers come again, tasks are not mistaken for others."""

import asyncio
import io
import json
from types import SimpleNamespace

import numpy as np
from sqlalchemy import create_engine, text

from dfrs.live.controller import service
from dfrs.live.controller.backups import back_up, restore
from dfrs.live.drivers.base import TaskId, TaskState
from dfrs.live.drivers.processes.directory import TaskDirectory
from dfrs.live.protocol.ports import Piece
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.testing import InMemoryHosts, abandon, make_controller, until
from dfrs.testing.in_memory import GIB

OUTPUT = Piece(stream="out", offset=0, limit=100)


def run(coroutine):
    return asyncio.run(coroutine)


async def submit(controller, *command, **more):
    request = JobRequest(command=command or ("forever",), **{"cpu_cores": 1.0, **more})
    return (await controller.submit(request, "ann", "ann"))[0]


async def started(path, hosts, **settings):
    controller = make_controller(path, clock=hosts.clock, **settings)
    await controller.start()
    return controller


async def cluster(path, *names, apart=False, **settings):
    """Nodes, of one host or each of its own, and a controller that has them all."""
    hosts = InMemoryHosts()
    for k, name in enumerate(names):
        hosts.node(name, host=f"h{k}" if apart else "h")
    controller = await started(path, hosts, **settings)
    hosts.attach_all(controller)
    await until(lambda: len(controller.nodes()) == len(names))
    return hosts, controller


def copy(path):
    """What a backup made now has."""
    back_up(path / "live.db", path / "copy.db")


async def restored(path, hosts, controller):
    """The controller is killed, its database is that of the copy, and another one goes on from it, without nodes."""
    await abandon(controller)
    return await put_back(path, hosts)


async def put_back(path, hosts):
    """As there, after the kill."""
    for node in hosts.nodes.values():
        node.cut()
    hosts.tick(1)
    restore(path / "copy.db", path / "live.db")
    return await started(path, hosts)


async def looks(controller, times=5):
    """It has looked around some times more."""
    steps = controller.engine.steps
    await until(lambda: controller.engine.steps > steps + times)


def runs(controller, *jobs):
    return all(controller.job(job).state is JobState.RUNNING for job in jobs)


def test_a_number_that_is_given_out_again_is_that_of_another_job(tmp_path):
    async def story():
        hosts, first = await cluster(tmp_path, "n1")
        early = await submit(first)
        await until(lambda: runs(first, early))
        copy(tmp_path)
        late = await submit(first)
        await until(lambda: runs(first, late))
        ((old, _),) = hosts.running(late)
        kept = hosts.running(early)

        second = await restored(tmp_path, hosts, first)
        assert await submit(second) == late
        hosts.attach_all(second)
        await until(lambda: runs(second, late))
        ((new, _),) = hosts.running(late)
        assert (new.job, new.rank, new.attempt) == (old.job, old.rank, old.attempt)
        assert new != old
        assert second.job(late).generation == new.generation
        assert (await second.output(late, 0, OUTPUT)).text == f"output of {new}"
        assert hosts.nodes["n1"].tasks[old].state is TaskState.ABSENT
        assert hosts.starts.keys() == {kept[0][0], old, new}
        assert hosts.running(early) == kept
        hosts.nodes["n1"].end(late)
        await until(lambda: second.job(late).state is JobState.DONE)
        # Also of a job that has ended, and by a controller that has only read of it.
        await second.stop()
        third = await started(tmp_path, hosts)
        hosts.attach_all(third)
        await until(lambda: hosts.nodes["n1"].welcomes == 3)
        assert (await third.output(late, 0, OUTPUT)).text == f"output of {new}"
        assert runs(third, early)
        assert hosts.running(early) == kept
        await third.stop()

    run(story())


def test_the_end_of_a_job_that_had_the_number_before_is_not_that_of_the_new_one(tmp_path):
    async def story():
        hosts, first = await cluster(tmp_path, "n1")
        copy(tmp_path)
        late = await submit(first)
        await until(lambda: runs(first, late))
        await abandon(first)
        hosts.nodes["n1"].cut()
        hosts.nodes["n1"].end(late, code=9)
        second = await put_back(tmp_path, hosts)
        assert await submit(second) == late
        hosts.attach_all(second)
        await until(lambda: runs(second, late))
        assert len(hosts.starts) == 2
        await second.stop()

    run(story())


def test_what_is_wanted_of_a_job_that_the_copy_knows_is_done(tmp_path):
    """Though its node has heard higher versions of what it shall be."""

    async def story():
        hosts, first = await cluster(tmp_path, "n1")
        early = await submit(first)
        await until(lambda: runs(first, early))
        await until(lambda: first.job(early).started_at)
        copy(tmp_path)
        for _ in range(5):
            await first.hold(early, "ann")
            await until(lambda: first.job(early).state is JobState.HELD)
            await first.release(early, "ann")
            await until(lambda: runs(first, early))
        (task,) = hosts.starts
        second = await restored(tmp_path, hosts, first)
        hosts.attach_all(second)
        node = hosts.nodes["n1"]
        await until(lambda: node.welcomes == 2)
        await second.hold(early, "ann")
        await until(lambda: node.tasks[task].state is TaskState.PAUSED)
        assert second.job(early).state is JobState.HELD
        await second.release(early, "ann")
        await until(lambda: node.tasks[task].state is TaskState.RUNNING)
        await second.cancel(early, "ann")
        await until(lambda: second.job(early).state is JobState.CANCELLED)
        assert node.tasks[task].state is TaskState.ABSENT
        assert hosts.starts.keys() == {task}
        await second.stop()

    run(story())


def test_a_task_that_was_moved_since_is_found_whoever_comes_first(tmp_path):
    async def story():
        hosts, first = await cluster(tmp_path, "n1", "n2")
        small = [await submit(first, memory_bytes=3 * GIB, restart="never") for _ in range(2)]
        await until(lambda: runs(first, *small))
        await until(lambda: all(first.job(job).started_at for job in small))
        at = {job: node for job in small for _, node in hosts.running(job)}
        copy(tmp_path)
        hosts.tick(1)
        large = await submit(first, memory_bytes=8 * GIB)
        await until(lambda: runs(first, large))
        (moved,) = await until(lambda: [job for job in small for _, n in hosts.running(job) if n != at[job]])

        second = await restored(tmp_path, hosts, first)
        hosts.nodes[at[moved]].attach(second)
        await looks(second)
        hosts.attach_all(second)
        await until(lambda: hosts.running(moved)[0][1] == at[moved])
        await until(lambda: not hosts.running(large))
        assert runs(second, *small)
        assert [second.job(job).attempt for job in small] == [0, 0]
        assert len(hosts.starts) == 3
        await second.stop()

    run(story())


def test_a_task_that_no_node_has_any_more_is_lost_when_all_have_said_so(tmp_path):
    async def story():
        hosts, first = await cluster(tmp_path, "n1", "n2")
        job = await submit(first, restart="never")
        await until(lambda: runs(first, job))
        await until(lambda: first.job(job).started_at)
        ((_, name),) = hosts.running(job)
        copy(tmp_path)
        hosts.nodes[name].end(job)
        await until(lambda: first.job(job).state is JobState.DONE)
        await until(lambda: not any(t.exit for t in hosts.nodes[name].tasks.values()))
        second = await restored(tmp_path, hosts, first)
        hosts.nodes[name].attach(second)
        await looks(second)
        assert runs(second, job)
        # The other one does not come back: after a time it is given up.
        for _ in range(20):
            hosts.tick(10)
            await looks(second, 1)
        await until(lambda: second.job(job).state is JobState.FAILED)
        assert len(hosts.starts) == 1
        await second.stop()

    run(story())


def test_a_job_that_waited_in_the_copy_is_started_when_what_ran_of_it_has_ended(tmp_path):
    async def story():
        hosts, first = await cluster(tmp_path, "n1", "n2", apart=True)
        job = await submit(first, held=True)
        copy(tmp_path)
        pair = await submit(first, tasks=2)
        await first.release(job, "ann")
        await until(lambda: runs(first, job, pair))
        ((old, name),) = hosts.running(job)
        (other,) = hosts.nodes.keys() - {name}

        second = await restored(tmp_path, hosts, first)
        await second.drain(name, "root")
        hosts.nodes[other].attach(second)
        await second.release(job, "ann")
        await until(lambda: second.job(job).nodes == (other,))
        await looks(second)
        # Nobody knows yet what runs on the other one; then it is known, and has not ended.
        assert hosts.running(job) == [(old, name)]
        hosts.nodes[name].attach(second)
        hosts.nodes[name].deaf = True
        await until(lambda: second.job(job).why == f"waits until its last attempt has ended on {name}")
        await looks(second)
        assert hosts.running(job) == [(old, name)]
        hosts.nodes[name].deaf = False
        hosts.nodes[name].attach(second)
        await until(lambda: runs(second, job))
        assert len(hosts.running(job)) == 1
        assert not hosts.running(pair)
        assert hosts.nodes[name].tasks[old].state is TaskState.ABSENT
        assert second.job(job).attempt == 0
        await second.stop()

    run(story())


def test_a_later_attempt_than_the_copy_knows_is_ended_before_the_next(tmp_path):
    async def story():
        hosts, first = await cluster(tmp_path, "n1", "n2", apart=True)
        job = await submit(first)
        await until(lambda: runs(first, job))
        await until(lambda: first.job(job).started_at)
        ((_, name),) = hosts.running(job)
        copy(tmp_path)
        hosts.nodes[name].reboot()
        hosts.nodes[name].attach(first)
        await until(lambda: first.job(job).attempt == 1 and runs(first, job))
        ((old, _),) = hosts.running(job)
        second = await restored(tmp_path, hosts, first)
        hosts.attach_all(second)
        await until(lambda: hosts.running(job) and hosts.running(job)[0][0] != old)
        await until(lambda: runs(second, job))
        assert second.job(job).attempt == 1
        assert len(hosts.starts) == 3
        await second.stop()

    run(story())


async def stored(controller):
    """Store a checkpoint, where no step is in the middle of anything: the loop does so at their ends."""
    steps = controller.engine.steps
    await until(lambda: controller.engine.steps > steps + 2)
    await controller.engine.store()


def test_generations_stay_with_attempts_through_checkpoints_and_kills(tmp_path):
    async def story():
        hosts, controller = await cluster(tmp_path, "n1")
        jobs = []
        for k in range(4):
            if k % 2 == 0:
                await stored(controller)
            jobs.append(await submit(controller))
            await until(lambda controller=controller: runs(controller, *jobs))
            if k == 3:
                await stored(controller)
            await abandon(controller)
            hosts.tick(1)
            controller = await started(tmp_path, hosts)
            hosts.attach_all(controller)
            await until(lambda: hosts.nodes["n1"].welcomes == len(jobs) + 1)
        assert runs(controller, *jobs)
        assert len(hosts.starts) == len(jobs)
        assert {(task, "n1") for task in hosts.starts} == set(hosts.running())
        assert len({task.generation for task in hosts.starts}) == len(jobs)
        await controller.stop()

    run(story())


def test_tasks_from_before_there_were_generations_go_on(tmp_path, monkeypatch):
    async def story():
        with monkeypatch.context() as patch:
            patch.setattr(service.hashlib, "sha256", lambda _: SimpleNamespace(hexdigest=lambda: ""))
            hosts, first = await cluster(tmp_path, "n1")
            job = await submit(first)
            await until(lambda: runs(first, job))
            await first.stop()
        engine = create_engine(f"sqlite:///{tmp_path}/live.db")
        with engine.begin() as connection:
            for table, key, column in (("events", "sequence", "event"), ("checkpoints", "sequence", "shell")):
                for number, body in connection.execute(text(f"select {key}, {column} from {table}")).all():
                    bare = json.loads(body)
                    bare.pop("generation", None)
                    for each in bare.get("jobs", {}).values():
                        each.pop("generation")
                    change = text(f"update {table} set {column} = :body where {key} = :number")
                    connection.execute(change, {"body": json.dumps(bare), "number": number})
            for number, arrays in connection.execute(text("select sequence, arrays from checkpoints")).all():
                # Nor were there digests of the text.
                found, bare = np.load(io.BytesIO(arrays)), io.BytesIO()
                np.savez(bare, **{name: found[name] for name in found.files if name != "shell_digest"})
                change = text("update checkpoints set arrays = :arrays where sequence = :number")
                connection.execute(change, {"arrays": bare.getvalue(), "number": number})
        engine.dispose()
        second = await started(tmp_path, hosts)
        hosts.attach_all(second)
        await until(lambda: hosts.nodes["n1"].welcomes == 2)
        late = await submit(second)
        await until(lambda: runs(second, job, late))
        old, new = hosts.starts
        assert str(old) == f"{job}.0.0"
        assert str(new) == f"{late}.0.0.{new.generation}"
        assert (await second.output(job, 0, OUTPUT)).text == f"output of {old}"
        await second.stop()

    run(story())


def test_names_of_tasks_are_read_back(tmp_path):
    names = ["1.0.0", "1.0.0.00c0ffee", "10.2.3.12345678", "2.0.11"]
    files = TaskDirectory(tmp_path)
    for name in (*names, ".new.1.0.0.ab", "0.0.0", "1.0", "1.0.0.xyz", "1.0.0.00c0ffee.out"):
        (files.tasks / name).mkdir()
    assert [str(task) for task in files.ids()] == ["1.0.0", "1.0.0.00c0ffee", "2.0.11", "10.2.3.12345678"]
    assert TaskId.parse("1.0.0.00c0ffee") == TaskId(job=1, rank=0, attempt=0, generation="00c0ffee")
