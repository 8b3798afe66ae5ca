"""Nodes that are reserved for maintenance: closed from the start to the end, whoever leads then."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.controller.reservations import KEPT_S, KEY, Reservations
from dfrs.live.errors import ConflictError, NotFoundError
from dfrs.live.protocol.resources import JobState, NodeState, Reservation, ReservationRequest
from dfrs.model.errors import InputError
from dfrs.testing import InMemoryCluster, InMemoryHosts, until
from tests.old_databases import POLICY, restore

UP, DRAINING = NodeState.UP, NodeState.DRAINING


def run(coroutine):
    return asyncio.run(coroutine)


async def reserve(live, *nodes, after_s=None, duration_s=100.0, **fields):
    start_at = None if after_s is None else live.hosts.clock() + after_s
    request = ReservationRequest(nodes=nodes, start_at=start_at, duration_s=duration_s, **fields)
    return await live.controller.reserve(request, "root")


async def states(live, *wanted):
    """As users see them, and as the core was told."""
    open_ = [each is UP for each in wanted]
    await until(
        lambda: (
            [node.state for node in live.controller.nodes()] == list(wanted)
            and live.controller.state.picture.snapshot.open.tolist() == open_
        ),
        f"nodes {wanted}",
    )


async def running(live, *jobs):
    """The nodes of all of them, once all run."""
    return {name for job in jobs for name in (await live.reaches(job, JobState.RUNNING)).nodes}


def test_a_node_is_closed_from_the_start_to_the_end(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            there = [await live.submit(cpu_cores=1.0) for _ in range(2)]
            assert await running(live, *there) == {"n1", "n2"}
            made = await reserve(live, "n1", after_s=50, reason="new fans")
            assert (made.id, made.by, made.end_at - made.start_at) == (1, "root", 100.0)
            assert list(live.controller.reservations()) == [made]
            live.tick(49)
            await states(live, UP, UP)
            assert [node.reservations for node in live.controller.nodes()] == [(made,), ()]
            live.tick(2)
            await states(live, DRAINING, UP)
            assert not any(node.drained for node in live.controller.nodes())
            jobs = [await live.submit(cpu_cores=1.0) for _ in range(3)]
            assert await running(live, *jobs) == {"n2"}
            assert await running(live, *there) == {"n1", "n2"}
            assert not any(live.job(job).attempt for job in there)
            live.tick(100)
            await states(live, UP, UP)
            assert list(live.controller.reservations()) == []
            assert live.controller.nodes()[0].reservations == ()
            of_node = [(each.action, each.why) for each in live.controller.activity() if each.node == "n1"]
            assert of_node[-3:] == [("reserve", "new fans"), ("reserved", "new fans"), ("up", "")]

    run(story())


def test_evacuation_queues_again_what_may_begin_anew(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, host=None) as live:
            await live.controller.drain("n2", "root")
            await states(live, UP, DRAINING)
            jobs = [await live.submit(cpu_cores=1.0) for _ in range(3)]
            held = await live.submit(cpu_cores=1.0)
            never = await live.submit(cpu_cores=1.0, restart="never")
            assert await running(live, *jobs, held, never) == {"n1"}
            await live.controller.hold(held, "ann")
            await live.reaches(held, JobState.HELD)
            await live.controller.undrain("n2", "root")
            await states(live, UP, UP)
            await reserve(live, "n1", after_s=10, evacuate=True, reason="new fans")
            live.tick(11)
            await states(live, DRAINING, UP)
            await until(lambda: [live.job(job).attempt for job in (*jobs, held)] == [1] * 4)
            await until(lambda: {live.job(job).nodes for job in jobs} == {("n2",)})
            assert live.job(held).state is JobState.HELD
            assert (live.job(never).nodes, live.job(never).attempt) == (("n1",), 0)
            (why,) = [each.why for each in live.controller.activity(job=jobs[0]) if each.action == "requeue"]
            assert why.startswith("n1 is reserved until ")
            assert why.endswith(": new fans; queued again")
            await until(lambda: [task.job for task in live.controller.nodes()[0].tasks] == [never])
            live.tick(1)
            await running(live, *jobs)
            # Once is enough: nothing of them is there any more.
            assert [live.job(job).attempt for job in (*jobs, held)] == [1] * 4

    run(story())


@pytest.mark.parametrize("kill", [False, True])
def test_a_start_while_no_controller_was_there_takes_effect(tmp_path, kill):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            made = await reserve(live, "n1", after_s=50, reason="new fans", evacuate=True)
            job = await live.submit(cpu_cores=4.0, tasks=2, minimum_yield=1.0)
            assert await running(live, job) == {"n1", "n2"}
            live.hosts.now += 60
            await live.restart(kill=kill)
            assert list(live.controller.reservations()) == [made]
            await states(live, DRAINING, UP)
            await until(lambda: live.job(job).attempt == 1)
            live.hosts.now += 100
            await live.restart(kill=kill)
            await states(live, UP, UP)
            assert live.controller.state.mismatches == 0
            assert (await reserve(live, "n2")).id == 2
            await states(live, UP, DRAINING)

    run(story())


def test_what_was_drained_by_hand_stays_so(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            await reserve(live, "n1", "n2", after_s=10)
            live.tick(12)
            await states(live, DRAINING, DRAINING)
            with pytest.raises(ConflictError, match=r"n1: is reserved until .*, not drained: cancel reservation 1"):
                await live.controller.undrain("n1", "root")
            await live.controller.drain("n2", "root", "a new disk")
            for _ in range(10):
                live.tick(10)
                await asyncio.sleep(0.03)
            await states(live, UP, DRAINING)
            await live.controller.undrain("n2", "root")
            await states(live, UP, UP)

    run(story())


def test_windows_that_overlap_close_a_node_until_the_last_has_ended(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1, silent_s=1000.0, lost_s=2000.0) as live:
            await reserve(live, "n1", "n1", after_s=10, duration_s=50)
            await reserve(live, "n1", after_s=40, duration_s=100, reason="longer")
            live.tick(50)
            await states(live, DRAINING)
            live.tick(40)
            await states(live, DRAINING)
            job = await live.submit(cpu_cores=1.0)
            await until(lambda: "no node takes new tasks now (1 reserved until " in live.controller.explain(job).now)
            await live.controller.cancel_reservation(2, "root")
            await states(live, UP)
            await running(live, job)

    run(story())


def test_one_is_cancelled_before_and_while_it_is_on(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, silent_s=1000.0, lost_s=2000.0) as live:
            before, on = await reserve(live, "n1", after_s=50), await reserve(live, "n2")
            await states(live, UP, DRAINING)
            for each in (before, on):
                assert (await live.controller.cancel_reservation(each.id, "root")).cancelled
            await states(live, UP, UP)
            live.tick(60)
            await states(live, UP, UP)
            with pytest.raises(ConflictError, match="reservation 1: was cancelled"):
                await live.controller.cancel_reservation(1, "root")
            await live.restart()
            assert list(live.controller.reservations()) == []
            assert (await reserve(live, "n1", duration_s=10)).id == 3
            live.tick(10)
            with pytest.raises(ConflictError, match="reservation 3: has ended"):
                await live.controller.cancel_reservation(3, "root")
            with pytest.raises(NotFoundError, match="reservation 4: there is no such reservation"):
                await live.controller.cancel_reservation(4, "root")

    run(story())


def test_it_is_the_wall_clock_that_counts(tmp_path):
    async def story():
        hosts = InMemoryHosts()
        cluster = InMemoryCluster(directory=tmp_path, nodes=0, clock=hosts.clock, steady=hosts.steady)
        cluster.hosts = hosts
        hosts.node("n1")
        async with cluster as live:
            await reserve(live, "n1", after_s=3600)
            live.hosts.wall_ahead += 3650
            await states(live, DRAINING)
            live.hosts.wall_ahead -= 3650
            await states(live, UP)
            assert len(live.controller.reservations()) == 1

    run(story())


def test_a_node_that_comes_while_its_name_is_reserved_is_given_nothing(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, host=None) as live:
            await reserve(live, "n1", duration_s=1000)
            await states(live, DRAINING, UP)
            live.nodes["n1"].die()
            live.tick(200)
            await until(lambda: live.controller.nodes()[0].state is NodeState.LOST)
            live.hosts.node("n1", "another", 8.0)
            live.hosts.attach_all(live.controller)
            await until(lambda: len(live.controller.state.nodes) == 3)
            job = await live.submit(cpu_cores=1.0)
            assert await running(live, job) == {"n2"}
            assert live.controller.state.picture.snapshot.open.tolist() == [False, True, False]
            await live.controller.cancel_reservation(1, "root")
            await until(lambda: live.controller.state.picture.snapshot.open.tolist() == [False, True, True])

    run(story())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nodes": ("n9",), "duration_s": 10}, "nodes: n9: there is no such node"),
        ({"nodes": ("n1",), "duration_s": 10, "start_at": 1e9}, "start_at: 1000000000: must not be over; leave it out"),
        ({"nodes": ("n1",), "duration_s": 10, "start_at": 9e10}, "start_at: 90000000000: must be at most 10 years"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, fields, message):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            with pytest.raises(InputError, match=message):
                await live.controller.reserve(ReservationRequest(**fields), "root")
            assert list(live.controller.reservations()) == []

    run(story())


def test_a_database_from_before_has_none(tmp_path):
    restore("0004", tmp_path / "live.db")

    async def story():
        async with InMemoryCluster(POLICY, directory=tmp_path, nodes=0) as live:
            assert list(live.controller.reservations()) == []

    run(story())


def test_those_that_ended_long_ago_are_forgotten_with_the_next():
    kept = Reservations()
    for start_at in (0.0, 50.0):
        request = ReservationRequest(nodes=("n1",), start_at=start_at, duration_s=1.0)
        kept.put(kept.make(request, "root", start_at, ("n1",)))
    now = 40.0 + KEPT_S
    later = kept.make(ReservationRequest(nodes=("n1",), duration_s=1.0), "root", now, ("n1",))
    (_, dropped), (_, added) = kept.addition(later, now)
    assert dropped == [{"b_key": "reservation 1"}]
    assert [row["key"] for row in added] == ["reservation 3"]


SPANS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(1, 20), st.booleans(), st.booleans()), max_size=8
)


@given(SPANS, st.integers(0, 45))
def test_a_node_is_closed_while_any_of_its_windows_is_on(spans, now):
    """After they were recorded and read back."""
    rows = {
        f"{KEY}{number}": Reservation(
            id=number, nodes=(node,), start_at=a, end_at=a + n, evacuate=evacuate, cancelled=cancelled, by="root"
        ).model_dump_json()
        for number, (node, a, n, evacuate, cancelled) in enumerate(spans, 1)
    }
    found = Reservations()
    found.restore(rows | {"epoch": "0"})
    on = [(node, a + n, evacuate) for node, a, n, evacuate, cancelled in spans if not cancelled and a <= now < a + n]
    for name in "ab":
        longest = max((end for node, end, _ in on if node == name), default=None)
        emptied = max((end for node, end, evacuate in on if node == name and evacuate), default=None)
        assert getattr(found.on(name, now), "end_at", None) == longest
        assert getattr(found.emptied(name, now), "end_at", None) == emptied
    assert len(found.open(now)) == sum(not cancelled and a + n > now for _, a, n, _, cancelled in spans)
