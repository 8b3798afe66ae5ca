"""Jobs that may be ended at any time: what the core makes of pauses that would keep memory."""

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dfrs.engine.codec import decode, encode
from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Progressed, Ready, Submit
from dfrs.engine.restarts import FACTOR, Restarts
from dfrs.live.protocol.resources import JobState
from dfrs.model.decisions import JOB, RUNNING, WAITING, Reason
from dfrs.model.nodes import NodeLimits
from dfrs.model.run import Action
from dfrs.policies.names import find_policy
from dfrs.testing import InMemoryCluster

POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"
GIB = 1 << 30


@given(length_s=st.floats(1.0, 1e6), parts=st.lists(st.floats(0.0, 1.0), max_size=60))
def test_all_that_is_lost_is_at_most_twice_the_length(length_s, parts):
    """Whenever somebody wants it ended: `parts` of its length after each beginning, if that is allowed by then."""
    restarts, lost_s, row = Restarts(), 0.0, np.zeros(1, JOB)
    restarts.allow(0)
    for part in parts:
        row["virtual_s"] = part * length_s
        if restarts.of(row)[0]:
            restarts.note(0, part * length_s)
            lost_s += part * length_s
    assert lost_s <= FACTOR * length_s * (1 + 1e-12)


def limited_core(keeps=True):
    limits = NodeLimits(keeps=np.array([keeps]), island=np.zeros(1, np.int64))
    return Core(find_policy(POLICY), np.ones((1, 2)), limits=limits)


def run_on(core, serial, now_s):
    core.handle(Ready(np.array([serial]), np.array([now_s])), now_s)


def acts(commands):
    return [(Action(action).name, job) for action, job in zip(commands.action, commands.job_id, strict=True)]


def test_where_memory_is_kept_it_is_ended_for_a_newcomer_and_begins_anew():
    core = limited_core()
    core.handle(Submit(1, 1, 1.0, 0.8, restartable=True), 0.0)
    run_on(core, 0, 0.0)
    came = core.handle(Submit(2, 1, 1.0, 0.8), 1000.0)
    assert acts(came) == [("LOST", 1), ("START", 2)]
    assert came.reason[0] == Reason.GAVE_WAY
    job = core.snapshot().jobs[0]
    assert (job["state"], job["virtual_s"], job["pauses"]) == (WAITING, 0.0, 0)
    run_on(core, 1, 1000.0)
    assert acts(core.handle(Complete(2), 1500.0)) == [("START", 1)]


def test_who_was_ended_once_is_left_until_it_has_got_twice_as_far():
    core = limited_core()
    core.handle(Submit(1, 1, 1.0, 0.8, restartable=True), 0.0)
    run_on(core, 0, 0.0)
    core.handle(Submit(2, 1, 1.0, 0.8), 1000.0)
    run_on(core, 1, 1000.0)
    core.handle(Complete(2), 1100.0)
    run_on(core, 0, 1100.0)
    assert acts(core.handle(Submit(3, 1, 1.0, 0.8), 3099.0)) == []
    restored = limited_core()
    restored.restore(core.state())
    for each in (core, restored):
        each.handle(Complete(3), 3099.5)
        assert acts(each.handle(Submit(4, 1, 1.0, 0.8), 3101.0)) == [("LOST", 1), ("START", 4)]


def test_others_stay_and_where_pauses_free_memory_it_is_paused():
    core = limited_core()
    core.handle(Submit(1, 1, 1.0, 0.8), 0.0)
    run_on(core, 0, 0.0)
    assert acts(core.handle(Submit(2, 1, 1.0, 0.8), 1000.0)) == []
    core = Core(find_policy(POLICY), np.ones((1, 2)))
    core.handle(Submit(1, 1, 1.0, 0.8, restartable=True), 0.0)
    run_on(core, 0, 0.0)
    assert acts(core.handle(Submit(2, 1, 1.0, 0.8), 1000.0)) == [("PAUSE", 1), ("START", 2)]


def test_what_it_has_received_counts_and_not_what_it_was_granted():
    core = limited_core()
    core.handle(Submit(1, 1, 1.0, 0.8, restartable=True), 0.0)
    run_on(core, 0, 0.0)
    core.handle(Submit(2, 1, 1.0, 0.8), 1000.0)
    core.handle(Complete(2), 1100.0)
    run_on(core, 0, 1100.0)
    core.handle(Progressed(np.array([0]), np.array([50.0])), 3200.0)
    assert acts(core.handle(Submit(3, 1, 1.0, 0.8), 3201.0)) == []
    assert core.snapshot().jobs["state"][0] == RUNNING


def test_records_of_before_say_nothing_of_it():
    document = encode(Submit(1, 1, 1.0, 0.5, restartable=True))
    assert decode(document).restartable
    del document["restartable"]
    assert not decode(document).restartable


def test_a_job_on_a_live_cluster_is_ended_and_begins_anew(tmp_path):
    async def story():
        abilities = {"pause_frees_memory": False}
        async with InMemoryCluster(
            POLICY, nodes=1, memory_bytes=4 * GIB, directory=tmp_path, abilities=abilities
        ) as live:
            wanted = {"cpu_cores": 4.0, "memory_bytes": 3 * GIB}
            again = await live.submit(restart="any-time", **wanted)
            await live.reaches(again, JobState.RUNNING)
            live.tick(1000)
            late = await live.submit(**wanted)
            await live.reaches(late, JobState.RUNNING)
            assert live.job(again).state is JobState.WAITING
            assert live.actions(again)[-1] == "requeue"
            assert "3 GiB of memory free" in live.job(again).why
            await live.controller.cancel(late, "root")
            assert (await live.reaches(again, JobState.RUNNING)).attempt == 1

    asyncio.run(story())
