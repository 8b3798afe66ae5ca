"""What users are shown of one instant: every number on every screen is the snapshot's, and numbers agree."""

import asyncio
import io
import json
import math
import re
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from rich.console import Console

from dfrs.cli.live.show import facts
from dfrs.cli.quantities import show_bytes, show_cores, show_seconds
from dfrs.cli.views import live as shown
from dfrs.live.api.answers import AT_ONCE, reply_all, reply_from
from dfrs.live.api.routes import SEQUENCE, create_app
from dfrs.live.controller import cluster_snapshots, cluster_views, views
from dfrs.live.controller.activity import ActivityFeed
from dfrs.live.controller.cluster_snapshots import REST
from dfrs.live.controller.job_queries import JobQueries
from dfrs.live.controller.open_jobs import JobViews, OpenJobs
from dfrs.live.protocol.resources import (
    Cluster,
    ClusterSnapshot,
    Job,
    JobRequest,
    JobState,
    Node,
    NodeState,
    shown_yield,
)
from dfrs.testing import InMemoryCluster, make_controller
from dfrs.testing.virtual_loop import run_virtually
from tests.live_states import NOW, Clock, fill, random_controller

QUICK, LONG = 200, 10_000
ON_NODES = {JobState.STARTING, JobState.RUNNING}
CLOSE = 1e-9
MAKING_S = 0.05


def close(one, other):
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=CLOSE)


def left_of(node):
    return node.cpus if node.left_cores is None else node.left_cores


def check_agreement(state, seen):
    """Numbers of one snapshot agree with each other."""
    cluster, nodes, jobs = seen.cluster, seen.nodes, seen.jobs
    assert [job.id for job in jobs] == sorted(state.jobs, reverse=True)
    yields = [shown_yield(job) for job in jobs if job.state in ON_NODES]
    assert all(shown_yield(job) is None for job in jobs if job.state not in ON_NODES)
    assert all(0.0 <= each <= 1.0 for each in yields)
    assert cluster.minimum_yield == (min(yields) if yields else None)
    assert (cluster.bound is None) or (cluster.bound >= cluster.minimum_yield)
    assert cluster.median_yield == (float(np.median(yields)) if yields else None)
    assert cluster.unmeasured == sum(job.yield_received is None for job in jobs if job.state in ON_NODES)
    for where in JobState:
        ended = state.ended_counts[where]
        assert cluster.jobs[where] == ended + sum(job.state is where for job in jobs)
    assert sum(cluster.nodes.values()) == len(nodes)
    there = [node for node in nodes if node.state is not NodeState.LOST]
    assert all(node.left_cores is None or 0.0 < node.left_cores < node.cpus for node in nodes)
    assert (cluster.left_cores is None) == all(node.left_cores is None for node in there)
    if cluster.left_cores is not None:
        assert close(cluster.left_cores, sum(left_of(node) for node in there))
    assert close(cluster.used_cores, sum(job.used_cores or 0.0 for job in jobs))
    by_job = {}
    for node in nodes:
        assert close(node.granted_cores, sum(task.share_cores for task in node.tasks))
        assert close(node.used_cores, sum(task.used_cores or 0.0 for task in node.tasks))
        for task in node.tasks:
            by_job.setdefault(task.job, []).append((task, node))
    if len(nodes) == len(state.nodes):
        assert close(cluster.used_cores, sum(node.used_cores for node in nodes))
    for job in jobs:
        here = by_job.get(job.id, [])
        if len(nodes) == len(state.nodes):
            assert close(job.used_cores or 0.0, sum(task.used_cores or 0.0 for task, _ in here))
        shares = [task.share_cores for task, _ in here]
        if job.state not in ON_NODES:
            assert not any(shares)
        elif len([share for share in shares if share]) == job.tasks:
            assert close(job.yield_granted, min(1.0, min(each for each in shares if each) / job.need_cores))
    point = cluster_views.point(state, NOW)
    same = ("minimum_yield", "median_yield", "jain", "bound")
    assert [getattr(point, name) for name in same] == [getattr(cluster, name) for name in same]
    assert close(point.used_cores, cluster.used_cores)
    assert point.running == sum(cluster.jobs[each] for each in ON_NODES)
    assert point.waiting == sum(cluster.jobs[each] for each in (JobState.WAITING, JobState.PENDING, JobState.HELD))


def printed(*parts, width):
    console = Console(width=width, record=True, highlight=False, file=io.StringIO())
    for part in parts:
        console.print(part)
    return console.export_text()


def two(value):
    return "-" if value is None else f"{value:.2f}"


def check_queue(seen, text, *, wide):
    """Rows of the job table, as `queue` and `top` print them."""
    rows = {int(row.split()[0]): row.split() for row in text.splitlines() if re.match(r"\s*\d+ job-", row)}
    for job in seen.jobs:
        row = rows[job.id]
        assert row[3] == job.state.value
        assert row[4] == str(job.tasks)
        assert row[5] == shown.need_text(job)
        assert show_bytes(job.memory_bytes) in row
        assert row[-1] == show_seconds(seen.cluster.now - job.submitted_at)
        value = shown_yield(job)
        if value is None:
            assert row[6] == "-"
        else:
            mark = "*" if job.yield_received is None else f"±{job.yield_received_error:.2f}" if wide else ""
            assert f"{value:.2f}{mark}" in row


def check_words(cluster, text):
    """The headline of `queue` and `top`."""
    words = " ".join(text.split())
    if cluster.minimum_yield is None:
        assert "no job runs" in words
        return
    least, most = re.search(r"minimum yield (\d\.\d\d)(?: of at most (\d\.\d\d))?", words).groups()
    assert (least, most or "-") == (two(cluster.minimum_yield), two(cluster.bound))
    assert most is None or least <= most
    assert (f"({cluster.unmeasured} as granted)" in words) == bool(cluster.unmeasured)


def check_nodes(seen, text):
    """The table of nodes with its tasks."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for node in seen.nodes:
        row = next(line for line in lines if line.startswith(f"{node.name} "))
        assert row.split()[1] == node.state.value
        assert f"{node.used_cores:.2f} of {show_cores(node.cpus)}" in row
        if (node.outside_cores or 0.0) > 0.05 * node.cpus:
            assert f" {node.outside_cores:.2f} " in row
        less = f"{node.name} counts as {left_of(node):.2f} of {show_cores(node.cpus)} cores: others use the rest"
        assert (less in lines) == (node.left_cores is not None)
        for task in node.tasks:
            used = "" if task.used_cores is None else f", {task.used_cores:.2f} used"
            what = "paused" if task.paused else f"{task.share_cores:.2f} cores granted{used}"
            assert f"{task.job}.{task.rank} {task.name} ({task.user}): {what}" in lines


def check_show(job):
    """The rows of `show`."""
    said = dict(facts(job))
    if job.state not in ON_NODES:
        assert not said["yield"]
    elif job.yield_received is None:
        assert said["yield"] == f"{job.yield_granted:.2f} granted, nothing is measured yet"
    else:
        received = f"{job.yield_received:.2f}±{job.yield_received_error:.2f} received"
        assert said["yield"] == f"{received}, {job.yield_granted:.2f} granted"
    assert said["not as granted"] == job.apart
    assert said["stretch"] == f"{job.stretch:.2f}"
    uses = [] if job.used_cores is None else [f"{show_cores(job.used_cores)} cores"]
    uses += [] if job.used_bytes is None else [show_bytes(job.used_bytes)]
    assert said["uses now"] == ", ".join(uses)
    assert said["CPU time"] == show_seconds(job.cpu_s)
    received = f"{show_seconds(job.virtual_s)} received" if job.virtual_measured else "not measured"
    assert said["virtual time"] == f"{received}, {show_seconds(job.virtual_granted_s)} granted"


def check_terminal(seen):
    for width in (80, 120):
        jobs = printed(shown.job_table(seen.jobs[::-1], seen.cluster.now, width), width=width)
        check_queue(seen, jobs, wide=width == 120)
        check_words(seen.cluster, printed(shown.yields_words(seen.cluster), width=width))
        check_nodes(seen, printed(shown.node_table(seen.nodes, width, tasks=True), width=width))
        screen = printed(shown.frame(seen, (), width, 1000), width=width)
        check_queue(seen, screen, wide=width == 120)
        check_words(seen.cluster, screen)
        cores = f"CPU: {seen.cluster.used_cores:.2f} of {show_cores(seen.cluster.cpus)} cores"
        left = "" if seen.cluster.left_cores is None else f", {seen.cluster.left_cores:.2f} left"
        assert f"{cores}{left}" in " ".join(screen.split())
    for job in seen.jobs:
        check_show(job)


async def check_api(controller, seen, client):
    """Every read route, and the metrics: all of this snapshot."""

    async def get(path):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        assert int(answer.headers[SEQUENCE]) == seen.sequence
        return answer

    whole = ClusterSnapshot.model_validate_json((await get("/api/v1/snapshot?queue=1000")).content)
    assert (whole.sequence, whole.cluster, whole.nodes, whole.jobs) == (
        seen.sequence,
        seen.cluster,
        seen.nodes,
        seen.jobs,
    )
    assert {job.id for job in whole.queue} == {
        job.id for job in seen.jobs if job.state in {JobState.WAITING, JobState.PENDING, JobState.HELD}
    }
    assert Cluster.model_validate_json((await get("/api/v1/cluster")).content) == seen.cluster
    assert [Node.model_validate(each) for each in (await get("/api/v1/nodes")).json()] == list(seen.nodes)
    assert [Job.model_validate(each) for each in (await get("/api/v1/jobs?limit=1000")).json()] == list(seen.jobs)
    for job in seen.jobs[:2]:
        assert Job.model_validate_json((await get(f"/api/v1/jobs/{job.id}")).content) == job
        told = (await get(f"/api/v1/jobs/{job.id}/explain")).json()
        assert Job.model_validate(told["job"]) == job
        assert told["bound"] == seen.cluster.bound
        assert Cluster.model_validate(told["cluster"]) == seen.cluster
    figures = (await get("/metrics")).text
    found = dict(re.findall(r"^(dfrs_\w+(?:{[^}]*})?) (\S+)$", figures, re.MULTILINE))
    assert float(found["dfrs_snapshot"]) == seen.sequence
    for name, value in (
        ("dfrs_minimum_yield", seen.cluster.minimum_yield),
        ("dfrs_median_yield", seen.cluster.median_yield),
        ("dfrs_jain_index", seen.cluster.jain),
        ("dfrs_minimum_yield_bound", seen.cluster.bound),
        ("dfrs_used_cores", seen.cluster.used_cores),
        ("dfrs_left_cores", seen.cluster.cpus if seen.cluster.left_cores is None else seen.cluster.left_cores),
        ("dfrs_unmeasured_yields", seen.cluster.unmeasured),
        ("dfrs_cpu_cores", seen.cluster.cpus),
    ):
        assert (float(found[name]) if name in found else None) == value
    for state, number in seen.cluster.jobs.items():
        assert float(found[f'dfrs_jobs{{state="{state.value}"}}']) == number
    for state, number in seen.cluster.nodes.items():
        assert float(found[f'dfrs_nodes{{state="{state.value}"}}']) == number
    for node in seen.nodes:
        here = f'{{node="{node.name}"'
        assert [float(found[f'dfrs_node_state{here},state="{each.value}"}}']) for each in NodeState] == [
            each is node.state for each in NodeState
        ]
        for name, value in (
            ("cpu_cores", node.cpus),
            ("used_cores", node.used_cores),
            ("granted_cores", node.granted_cores),
            ("memory_bytes", node.memory_bytes),
            ("memory_free_bytes", node.memory_free_bytes),
            ("tasks", len(node.tasks)),
        ):
            assert float(found[f"dfrs_node_{name}{here}}}"]) == value


async def check_state(controller, secret):
    app = create_app(controller, page=None)
    transport = httpx.ASGITransport(app)
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        seen = await controller.latest()
        check_agreement(controller.state, seen)
        check_terminal(seen)
        await check_api(controller, seen, client)


def check_random(seeds, directory, monkeypatch):
    # Nothing changes here but time, which a busy machine may let pass between two requests.
    monkeypatch.setattr(cluster_snapshots, "FRESH_S", 1e6)
    # States that were made up have no history, and no database that would know of one.
    monkeypatch.setattr(JobQueries, "activity", lambda *_: ())
    identify = type("Somebody", (), {"user": "ada", "role": "admin"})
    kinds = set()
    for seed in seeds:
        controller = random_controller(seed, directory)
        controller.identify = lambda secret: identify
        try:
            asyncio.run(check_state(controller, "x"))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            asyncio.run(asyncio.sleep(0))
            controller.database.close()
        kinds.update(job.state for job in controller.snapshots.make().jobs)
    return kinds


def test_all_displays_of_random_snapshots_agree(tmp_path, monkeypatch):
    kinds = check_random(range(QUICK), tmp_path, monkeypatch)
    assert kinds >= {JobState.RUNNING, JobState.STARTING, JobState.PAUSED, JobState.WAITING, JobState.HELD}
    assert kinds >= {JobState.PENDING, JobState.ENDING}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_all_displays_of_ten_thousand_random_snapshots_agree(part, tmp_path, monkeypatch):
    each = LONG // 20
    check_random(range(QUICK + part * each, QUICK + (part + 1) * each), tmp_path, monkeypatch)


def test_one_waiting_job_does_not_make_the_headline_zero(tmp_path):
    async def story():
        async with InMemoryCluster("FCFS", nodes=1, directory=tmp_path) as live:
            await live.reaches(await live.submit(), JobState.RUNNING)
            await live.reaches(await live.submit(), JobState.WAITING)
            await live.submit(held=True)
            return (await live.controller.latest()).cluster

    cluster = asyncio.run(story())
    assert (cluster.minimum_yield, cluster.unmeasured) == (1.0, 1)
    assert shown.yields_words(cluster) == "minimum yield 1.00, median 1.00 (1 as granted); 1 waits, 1 is held"


def test_a_snapshot_is_made_once_for_each_change_and_never_for_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_snapshots, "FRESH_S", 1e6)

    async def story():
        async with InMemoryCluster(nodes=1, directory=tmp_path, report_s=60.0) as live:
            snapshots, state = live.controller.snapshots, live.controller.state
            job = await live.submit(cpu_cores=1.0)
            for _ in range(1000):
                await asyncio.sleep(0)
            made = snapshots.made
            assert made == 0
            await live.reaches(job, JobState.RUNNING)
            assert snapshots.made == made, "a job alone needs no snapshot"
            await asyncio.sleep(0.05)
            version = state.version
            seen = await asyncio.gather(*(snapshots.latest() for _ in range(20)))
            assert state.version == version
            assert len({id(each) for each in seen}) == 1
            assert seen[0].open.job(job).state is JobState.RUNNING
            assert seen[0].nodes[0].tasks[0].job == job
            await live.controller.hold(job, "ann")
            after = await snapshots.latest()
            assert after.sequence > seen[0].sequence
            assert after.open.job(job).state is JobState.HELD, "what was done before is seen"
            assert seen[0].open.job(job).state is JobState.RUNNING, "what was looked at stays as it was"
            assert seen[0].nodes[0].tasks[0].job == job
            queued = await live.submit(held=True)
            before = await snapshots.latest()
            await live.controller.cancel(queued, "ann")
            for look in (lambda: before.open.job(queued), lambda: before.nodes):
                with pytest.raises(RuntimeError, match=r"^more has happened since"):
                    look()

    asyncio.run(story())


def test_readers_of_a_large_cluster_wait_for_one_snapshot(tmp_path, monkeypatch):
    """Those who ask while it changes all the time get few snapshots, each with what happened before they asked."""
    monkeypatch.setattr(cluster_snapshots, "AT_ONCE_S", 0.0)

    async def story():
        controller = make_controller(tmp_path, clock=Clock())
        fill(controller.state, np.random.default_rng(0), 60, 5)
        snapshots, state, stop = controller.snapshots, controller.state, asyncio.Event()

        async def change():
            while not stop.is_set():
                state.changed()
                await asyncio.sleep(0)

        changing = asyncio.create_task(change())
        for _ in range(5):
            await asyncio.gather(*(snapshots.latest() for _ in range(50)))
        stop.set()
        await changing
        controller.database.close()
        return snapshots.made

    assert asyncio.run(story()) <= 10


def test_a_few_snapshots_are_made_at_once_and_many_take_a_third_of_the_time(tmp_path, monkeypatch):
    controller = make_controller(tmp_path, clock=Clock())
    fill(controller.state, np.random.default_rng(0), 60, 5)
    snapshots, made_s = controller.snapshots, []

    async def story(loop):
        def now():
            return loop.time() + sum(made_s)

        # As on a large cluster: each takes long. No real time passes.
        monkeypatch.setattr(cluster_snapshots, "time", SimpleNamespace(monotonic=now))
        monkeypatch.setattr(snapshots, "_counters", lambda: made_s.append(MAKING_S) or (0, 0))

        async def ask(times):
            began = now()
            for _ in range(times):
                controller.state.changed()
                await snapshots.latest()
            return now() - began

        at_once = await ask(6)
        await ask(20)
        return at_once, await ask(10)

    (at_once, later), _ = run_virtually(0, story)
    controller.database.close()
    assert at_once == pytest.approx(6 * MAKING_S), "the rest was owed"
    assert later == pytest.approx(10 * MAKING_S * (1 + REST)), "no more is owed"


@pytest.mark.parametrize("policy", ["FCFS", "Greedy*/OPT=MIN"])
def test_a_request_that_fits_on_one_node_needs_no_list_of_all(tmp_path, monkeypatch, policy):
    """The short way says what the long one says."""
    said, short_ways = set(), 0
    lists = []
    present_nodes = views.present_nodes
    monkeypatch.setattr(views, "present_nodes", lambda state: lists.append(1) or present_nodes(state))
    for seed in range(QUICK // 2):
        rng = np.random.default_rng(seed)
        controller = make_controller(tmp_path, policy=policy, cluster=f"random {seed}", clock=Clock())
        fill(controller.state, rng, 0, int(rng.integers(6)))
        if controller.state.nodes and rng.random() < 0.3:
            # Another host has that name now.
            controller.state.numbers[controller.state.nodes[0].name] = 99
        for _ in range(5):
            request = JobRequest(
                command=("prog",),
                tasks=int(rng.choice([1, 1, 2])),
                cpu_cores=None if rng.random() < 0.2 else float(rng.choice([0.1, 1.0, 2.0, 4.0, 17.0])),
                memory_bytes=None if rng.random() < 0.2 else int(rng.choice([1, 4, 5, 8, 9])) << 30,
            )
            lists.clear()
            short = views.too_large(controller.state, request)
            short_ways += not lists and not short
            with monkeypatch.context() as patch:
                patch.setattr(views, "_holds", lambda *_: False)
                assert short == views.too_large(controller.state, request), (seed, request)
            said.add(short.partition(":")[0])
        controller.database.close()
    assert said == {"", "cpu_cores", "memory_bytes", "tasks"}
    assert short_ways > QUICK // 2


def test_it_is_numbered_on_after_a_restart(tmp_path):
    async def story():
        async with InMemoryCluster(nodes=1, directory=tmp_path) as live:
            before = (await live.controller.latest()).sequence
            live.tick(1.0)
            await live.restart()
            assert (await live.controller.latest()).sequence > before

    asyncio.run(story())


def test_what_a_job_receives_is_less_where_programs_outside_use_the_cpus(tmp_path):
    for seed in range(200):
        controller = random_controller(seed, tmp_path)
        controller.database.close()
        seen = controller.snapshots.make()
        if any("beside the cluster's use" in job.apart for job in seen.jobs):
            break
    job = next(job for job in seen.jobs if "beside the cluster's use" in job.apart)
    node = next(node for node in seen.nodes if job.apart.startswith(f"{node.name}:"))
    assert f"use {node.outside_cores:.2f} cores" in job.apart
    assert json.loads(node.model_dump_json())["outside_cores"] == node.outside_cores


def test_points_of_earlier_versions_have_no_minimum_above_their_bound(tmp_path):
    controller = random_controller(0, tmp_path)
    controller.database.close()
    point = cluster_views.point(controller.state, NOW).model_copy(update={"minimum_yield": 0.24, "bound": 0.23})
    feed = ActivityFeed()
    feed.restore((), [point, point.model_copy(update={"bound": 0.5})])
    assert [each.bound for each in feed.timeseries(0.0)] == [0.24, 0.5]


def test_who_goes_just_as_something_changes_watches_no_longer():
    async def story():
        feed = ActivityFeed()

        async def watch():
            async for _ in feed.changes():
                pass

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.01)
        feed.changed()
        watching.cancel()
        await asyncio.wait({watching}, timeout=2.0)
        assert watching.cancelled()

    asyncio.run(story())


def test_views_of_queued_jobs_that_are_copied_are_those_that_are_made_anew(tmp_path):
    """Over changes of all that they depend on: time, holds, quotas, reference, what the core knows."""
    clock = Clock()
    controller = make_controller(tmp_path, clock=clock)
    state, rng = controller.state, np.random.default_rng(1)
    fill(state, rng, 60, 5)
    made = JobViews(state)

    def compare():
        anew = [views.job(state, record) for name, record in sorted(state.jobs.items(), reverse=True)]
        assert list(OpenJobs(state, made, views.Present(state)).all) == anew

    compare()
    queued = [record for record in state.jobs.values() if not record.tasks]
    assert queued
    for record in queued * 3:
        match rng.integers(5):
            case 0:
                record.held = not record.held
            case 1:
                record.registered = not record.registered
            case 2:
                record.over_quota = "waits: over a quota" if not record.over_quota else ""
            case 3:
                record.need = float(rng.random())
            case _:
                record.attempt += 1
        compare()
    state.set_reference(2.0, 1 << 32)
    compare()
    controller.database.close()


def test_what_is_written_in_pieces_is_what_is_written_at_once(tmp_path):
    controller = random_controller(0, tmp_path)
    seen = controller.snapshots.make()
    shown = ClusterSnapshot(
        sequence=1, activity=2, cluster=seen.cluster, nodes=seen.nodes, jobs=seen.jobs * 40, queue=seen.jobs[:1]
    )
    controller.database.close()
    assert len(shown.jobs) > 2 * AT_ONCE
    assert asyncio.run(reply_from(shown)).body.decode() == shown.model_dump_json()
    jobs = [json.loads(job.model_dump_json()) for job in shown.jobs]
    assert json.loads(asyncio.run(reply_all(shown.jobs)).body) == jobs
