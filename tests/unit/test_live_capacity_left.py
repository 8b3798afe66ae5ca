"""A live cluster beside programs that are no tasks of it: its nodes count as what is left of them."""

import asyncio
import io
import json

import pytest
from rich.console import Console

from dfrs.bounds.snapshot import snapshot_bound
from dfrs.cli.views import live as shown
from dfrs.live.protocol.resources import JobState
from dfrs.policies.names import find_policy
from dfrs.simulator.recorded_log import decide_again
from dfrs.testing import InMemoryCluster, run_virtually
from dfrs.workloads.live_log import FILE, read_live_log

POLICY = "GreedyPM*/OPT=MIN/REBALANCE"


def beside(tmp_path, nodes=2, policy=POLICY, cpus=1.0, **options):
    """A cluster of which programs beside it use nothing yet."""
    live = InMemoryCluster(
        policy, nodes=nodes, cpus=cpus, directory=tmp_path, bound=snapshot_bound, report_s=1.0, **options
    )
    for number, node in enumerate(live.nodes.values()):
        node.outside, node.cpu_numbers = 0.0, (number,)
    return live


async def pass_time(live, seconds):
    for _ in range(seconds):
        live.tick(1.0)
        await asyncio.sleep(1.5)


def about(value):
    """What was found out while the load changed is not exact."""
    return pytest.approx(value, abs=0.05)


def revisions(live):
    return [(each.node, each.why) for each in live.controller.activity() if each.action == "capacity"]


def node(live, name):
    return next(each for each in live.controller.nodes() if each.name == name)


def virtually(story):
    return run_virtually(1, lambda _: story())[0]


def test_load_comes_and_goes(tmp_path):
    async def story():
        async with beside(tmp_path, nodes=1) as live:
            jobs = [await live.submit(cpu_cores=1.0) for _ in range(2)]
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
            await pass_time(live, 40)
            assert not revisions(live)
            assert node(live, "n1").left_cores is None
            live.nodes["n1"].outside = 1.0
            await pass_time(live, 60)
            seen = await live.controller.latest()
            left = f"{seen.nodes[0].left_cores:.2f}"
            assert revisions(live) == [("n1", f"{left} of 1 CPU left, programs beside the cluster's use the rest")]
            assert seen.nodes[0].left_cores == about(0.5)
            assert seen.nodes[0].granted_cores == about(0.5)
            assert (seen.cluster.cpus, seen.cluster.left_cores) == (1.0, about(0.5))
            assert [job.yield_granted for job in seen.jobs] == about([0.25, 0.25])
            # What they receive is what they were granted, and no more is possible.
            assert [job.apart for job in seen.jobs] == ["", ""]
            assert seen.cluster.bound == about(0.25)
            assert seen.cluster.bound >= seen.cluster.minimum_yield
            assert f"n1 counts as {left} of 1 cores: others use the rest" in printed(shown.node_table(seen.nodes, 100))
            live.nodes["n1"].outside = 0.0
            await pass_time(live, 60)
            assert revisions(live)[1:] == [("n1", "all of 1 CPU is left for the cluster's jobs again")]
            assert [live.job(job).yield_granted for job in jobs] == [0.5, 0.5]
            assert live.controller.state.refused == 0

    virtually(story)


def printed(part):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(part)
    return " ".join(console.export_text().split())


def test_what_other_virtual_machines_take_is_not_received(tmp_path):
    async def story():
        async with beside(tmp_path, nodes=1) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            await pass_time(live, 40)
            live.nodes["n1"].stolen = 0.4
            await pass_time(live, 15)
            assert live.job(job).yield_received == about(0.6)
            assert live.job(job).yield_granted == 1.0
            assert live.job(job).apart.startswith("n1: 0.4")
            assert live.job(job).apart.endswith(" cores are taken by other virtual machines")
            await pass_time(live, 60)
            ((name, why),) = revisions(live)
            assert name == "n1"
            assert why.endswith(" of 1 CPU left, other virtual machines take the rest")
            assert (live.job(job).yield_granted, live.job(job).yield_received) == (about(0.6), about(0.6))
            assert live.job(job).apart == ""

    virtually(story)


def test_a_burst_does_nothing(tmp_path):
    async def story():
        async with beside(tmp_path, nodes=1) as live:
            await live.reaches(await live.submit(cpu_cores=1.0), JobState.RUNNING)
            await pass_time(live, 40)
            for _ in range(3):
                live.nodes["n1"].outside = 1.0
                await pass_time(live, 5)
                live.nodes["n1"].outside = 0.0
                await pass_time(live, 25)
            assert not revisions(live)

    virtually(story)


def test_jobs_go_to_the_node_that_others_leave_alone(tmp_path):
    async def story():
        async with beside(tmp_path) as live:
            live.nodes["n1"].outside = 3.0
            await pass_time(live, 50)
            assert node(live, "n1").left_cores == about(0.5)
            jobs = [await live.submit(cpu_cores=1.0) for _ in range(3)]
            places = [(await live.reaches(job, JobState.RUNNING)).nodes[0] for job in jobs]
            assert sorted(places) == ["n1", "n2", "n2"]
            await pass_time(live, 60)
            assert min(live.job(job).yield_granted for job in jobs) == about(0.5)

    virtually(story)


def test_nodes_of_the_same_cpus_take_nothing_from_each_other(tmp_path):
    async def story():
        async with beside(tmp_path, cpus=0.5) as live:
            for each in live.nodes.values():
                each.cpu_numbers = (0,)
            jobs = [await live.submit(cpu_cores=0.5) for _ in range(2)]
            assert {(await live.reaches(job, JobState.RUNNING)).nodes for job in jobs} == {("n1",), ("n2",)}
            await pass_time(live, 60)
            assert not revisions(live)
            # Another program takes half of what they have together.
            live.nodes["n1"].outside = 1.0
            await pass_time(live, 60)
            assert sorted(name for name, _ in revisions(live)) == ["n1", "n2"]
            assert [each.left_cores for each in live.controller.nodes()] == about([0.25, 0.25])

    virtually(story)


def test_tasks_of_a_node_that_is_away_are_no_other_programs(tmp_path):
    async def story():
        async with beside(tmp_path, cpus=0.5) as live:
            for each in live.nodes.values():
                each.cpu_numbers = (0,)
            jobs = [await live.submit(cpu_cores=0.5) for _ in range(2)]
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
            await pass_time(live, 5)
            live.nodes["n1"].cut()
            await pass_time(live, 60)
            assert not revisions(live)

    virtually(story)


def test_minimum_yields_are_kept_in_part_and_that_is_said(tmp_path):
    async def story():
        async with beside(tmp_path, nodes=1) as live:
            job = await live.submit(cpu_cores=1.0, minimum_yield=0.8)
            await live.reaches(job, JobState.RUNNING)
            live.nodes["n1"].outside = 1.0
            await pass_time(live, 60)
            ((_, why),) = revisions(live)
            assert why.endswith("minimum yields of its jobs have no room: each is kept in the same part")
            found = live.job(job)
            assert found.yield_granted == about(0.5)
            assert shown.minimum_words(found) == "0.8; not kept now: its nodes have too little CPU"

    virtually(story)


@pytest.mark.parametrize("options", [{"policy": "EASY"}, {"abilities": {"shares": "nice"}}])
def test_where_it_would_do_harm_nothing_is_revised(options, tmp_path):
    async def story():
        async with beside(tmp_path, nodes=1, **options) as live:
            await live.reaches(await live.submit(cpu_cores=1.0, estimate_s=900.0), JobState.RUNNING)
            live.nodes["n1"].outside = 1.0
            await pass_time(live, 60)
            assert not revisions(live)
            assert node(live, "n1").outside_cores > 0.4
            assert node(live, "n1").left_cores is None

    virtually(story)


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_it_holds_after_a_restart(kill, stored, tmp_path):
    async def story():
        async with beside(tmp_path, nodes=1, checkpoint_events=1 if stored else 10_000) as live:
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            live.nodes["n1"].outside = 1.0
            await pass_time(live, 60)
            before = live.controller.state.core.left.tolist()
            assert before == [about(0.5)]
            await live.restart(kill=kill)
            assert live.controller.state.core.left.tolist() == before
            assert live.controller.state.mismatches == 0
            await live.reaches(job, JobState.RUNNING)
            assert live.job(job).yield_granted == before[0]
            # Nothing is told twice, and what changes later is told.
            await pass_time(live, 60)
            assert len(revisions(live)) == 1
            live.nodes["n1"].outside = 0.0
            await pass_time(live, 60)
            assert live.controller.state.core.left.tolist() == [1.0]

    virtually(story)


def test_another_policy_begins_with_whole_nodes(tmp_path):
    async def story():
        async with beside(tmp_path, nodes=1) as live:
            await live.reaches(await live.submit(cpu_cores=1.0), JobState.RUNNING)
            live.nodes["n1"].outside = 1.0
            await pass_time(live, 60)
            assert live.controller.state.core.left.tolist() == [about(0.5)]
            for policy in ("EASY", "GreedyPM*/per/OPT=MIN/MVT=600"):
                live._policy = policy
                await live.restart()
                assert live.controller.state.core.left.tolist() == [1.0]
            await pass_time(live, 60)
            assert live.controller.state.core.left.tolist() == [about(0.5)]
            await live.restart(kill=True)
            assert live.controller.state.mismatches == 0

    virtually(story)


def test_the_export_replays_and_gives_a_simulation_the_same_nodes(tmp_path):
    async def story():
        async with beside(tmp_path / "live", nodes=1) as live:
            job = await live.submit("work", "70", cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            live.nodes["n1"].outside = 1.0
            await pass_time(live, 200)
            assert live.job(job).state is JobState.DONE
            return [line async for line in live.controller.log()]

    (tmp_path / "live").mkdir()
    lines = virtually(story)
    (tmp_path / FILE).write_text("".join(f"{line}\n" for line in lines))
    events = [json.loads(line).get("event", {}) for line in lines]
    (told,) = [event for event in events if event.get("event") == "capacity_left"]
    assert told["node"] == 0
    recorded = decide_again(read_live_log(tmp_path), find_policy)
    assert recorded.mismatch is None
    assert [event.cpu for _, event in recorded.node_events if hasattr(event, "cpu")] == [told["cpu"]]
