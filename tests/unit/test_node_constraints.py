"""Jobs that may use some nodes only: what the core makes of any policy's targets for them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.engine.check import check, check_permitted
from dfrs.engine.claims import claim
from dfrs.engine.codec import decode, encode, replay
from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Hold, Permitted, Ready, Submit, Unhold
from dfrs.engine.executor_constraints import guard
from dfrs.engine.permitted_nodes import NO_ROOM, NOT_UP, TOO_SMALL, breaks, lacking
from dfrs.model.decisions import RUNNING, WAITING, PolicyError, Target, Traits
from dfrs.model.errors import InputError
from dfrs.model.nodes import Condition, Join, NodeChange, most_tasks
from dfrs.policies.names import find_policy
from dfrs.testing import SnapshotJob, build_snapshot
from tests.live_events import Site, drive
from tests.small_policies import FairShare, Mover
from tests.unit.test_executor_constraints import abilities, broken_rules, guarded_case

LEFT, RIGHT = 7, 8
"""Numbers of constraints."""


@st.composite
def masked_case(draw):
    """As `guarded_case`, with masks; some of those that run are where they may not come."""
    snapshot, target = draw(guarded_case())
    shape = len(snapshot.jobs), len(snapshot.capacity)
    mask = np.array(draw(st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])), bool)
    return replace(snapshot, permitted=mask.reshape(shape)), target


def arrivals(snapshot, slots, row):
    """Nodes that more tasks of the row are on than now, by the definition."""
    part = slice(snapshot.first[row], snapshot.first[row + 1])
    before, after = snapshot.task_nodes[part].tolist(), slots[part].tolist()
    return [node for node in set(after) if node >= 0 and after.count(node) > before.count(node)]


def forbidden(snapshot, slots):
    """Whether rule (d) is broken, by the definition."""
    rows = range(len(snapshot.jobs))
    return any(not snapshot.permitted[row, node] for row in rows for node in arrivals(snapshot, slots, row))


@settings(max_examples=60)
@given(case=masked_case())
def test_whatever_is_wanted_tasks_come_only_to_nodes_they_may_use(case):
    snapshot, target = case
    assert breaks(snapshot, target.task_nodes) == forbidden(snapshot, target.task_nodes)
    for exclusive in (False, True):
        after = guard(snapshot, target, Traits(exclusive=exclusive))
        check(snapshot, after)
        check_permitted(snapshot, after)
        assert not forbidden(snapshot, after.task_nodes)
        assert not broken_rules(snapshot, after)
    if forbidden(snapshot, target.task_nodes):
        with pytest.raises(PolicyError, match="which it may not use"):
            check_permitted(snapshot, target)


@settings(max_examples=40)
@given(case=masked_case())
def test_who_waits_though_wanted_has_no_room_left(case):
    snapshot, target = case
    after = guard(snapshot, target, Traits())
    lacks = lacking(snapshot, after, exclusive=False)
    begins, used = snapshot.first[:-1], np.zeros(len(snapshot.capacity))
    there = after.task_nodes >= 0
    np.add.at(used, after.task_nodes[there], np.repeat(snapshot.jobs["memory"], snapshot.jobs["tasks"])[there])
    left = snapshot.capacity - np.stack([np.zeros(len(used)), used], axis=1)
    plain = snapshot.jobs["minimum"] == 0
    for row in np.flatnonzero((after.task_nodes[begins] < 0) & plain & (snapshot.jobs["state"] != RUNNING)).tolist():
        job, nodes = snapshot.jobs[row], snapshot.permitted[row] & snapshot.open & (snapshot.capacity[:, 0] > 0)
        most = most_tasks(np.maximum(left[nodes], 0.0), job["need"], job["memory"], exclusive=False)
        assert lacks[row] == (most < job["tasks"] and not snapshot.permitted[row].all())
        if target.task_nodes[begins[row]] >= 0 and snapshot.jobs["state"][row] == WAITING:
            # It was found no room, so that none is left, but for what a pause made for it was taken back for.
            assert most < job["tasks"] or (snapshot.jobs["state"] == RUNNING).any()


def shot_of(jobs, permitted, nodes=2):
    shot = build_snapshot(jobs, nodes=nodes, now_s=10.0)
    return replace(shot, permitted=np.array(permitted))


def wanted(slots, yields):
    return Target(np.array(slots, np.int64), np.array(yields, float))


def test_a_job_sent_to_a_forbidden_node_starts_on_the_permitted_one_of_least_load():
    jobs = [SnapshotJob(nodes=(1,), need=0.6, memory=0.1), SnapshotJob(tasks=1, need=0.5, memory=0.1)]
    shot = shot_of(jobs, [[True] * 3, [False, True, True]], nodes=3)
    after = guard(shot, wanted([1, 0], [1.0, 1.0]), Traits())
    assert after.task_nodes.tolist() == [1, 2]
    full = [SnapshotJob(nodes=(1,), need=0.6, memory=0.95), SnapshotJob(tasks=1, need=0.5, memory=0.1)]
    shot = shot_of(full, [[True] * 3, [False, True, False]], nodes=3)
    after = guard(shot, wanted([1, 0], [1.0, 1.0]), Traits())
    assert after.task_nodes.tolist() == [1, -1]
    assert after.why == {2: NO_ROOM}


def test_a_running_job_stays_where_it_is_whatever_is_permitted():
    jobs = [SnapshotJob(nodes=(0,), need=0.6, memory=0.1)]
    shot = shot_of(jobs, [[True, False]])
    assert guard(shot, wanted([1], [1.0]), Traits()).task_nodes.tolist() == [0]
    shot = shot_of(jobs, [[False, False]])
    fine = wanted([0], [1.0])
    assert guard(shot, fine, Traits()) is fine


class Told:
    """A core whose jobs are ready at once."""

    def __init__(self, policy, nodes=2):
        self.core = Core(policy, np.ones((nodes, 2)))
        self.now_s = 0.0
        self.starts = {}

    def __call__(self, *events):
        for event in events:
            self.now_s += 1.0
            commands = self.core.handle(decode(encode(event)), self.now_s)
            for command in commands:
                if command.nodes:
                    self.starts[command.job_id] = list(command.nodes)
            if len(commands):
                self.core.handle(Ready(commands.serial, np.full(len(commands), self.now_s)), self.now_s)

    def nodes_of(self, job):
        shot = self.core.snapshot()
        row = shot.jobs["id"].tolist().index(job)
        return shot.task_nodes[shot.first[row] : shot.first[row + 1]].tolist()

    def why(self, job):
        return self.core.target.why.get(job)


def permit(constraint, *nodes):
    return Permitted(constraint, np.array(nodes, np.int64))


def submit(job, constraint=0, tasks=1, need=0.5, memory=0.4, **more):
    return Submit(job, tasks, need, memory, constraint=constraint, **more)


def test_a_job_waits_for_a_node_it_may_use_and_others_do_not_wait_for_it():
    tell = Told(FairShare())
    tell(submit(1, LEFT, memory=0.2), submit(2, memory=0.2))
    assert tell.nodes_of(1) == [-1]
    assert tell.nodes_of(2) != [-1]
    assert tell.why(1) == NOT_UP
    tell(permit(LEFT, 1))
    assert tell.nodes_of(1) == [1]
    tell(NodeChange(1, Condition.DRAIN), submit(3, LEFT), submit(4))
    assert tell.nodes_of(1) == [1]
    assert tell.nodes_of(3) == [-1]
    assert tell.nodes_of(4) == [0]
    tell(Join(0.3, 0.3), permit(LEFT, 2))
    assert tell.why(3) == TOO_SMALL
    assert tell.nodes_of(1) == [1]
    tell(Join(1.0, 1.0), permit(LEFT, 2, 3))
    assert tell.nodes_of(3) == [3]


@pytest.mark.parametrize(
    "name", ["GreedyPM*/per/OPT=MIN/MVT=600", "Greedy*/OPT=MIN", "MCB*/per/OPT=MIN", "FCFS", "EASY"]
)
def test_an_array_for_a_full_node_leaves_the_others_to_other_jobs(name):
    tell = Told(find_policy(name))
    tell(permit(LEFT, 1))
    tell(*(submit(job, LEFT, need=1.0, memory=0.6, estimate_s=100.0) for job in range(1, 30)))
    assert tell.nodes_of(1) == [1]
    assert all(tell.nodes_of(job) == [-1] for job in range(2, 30))
    tell(submit(30, need=1.0, memory=0.6, estimate_s=100.0), Complete(1))
    assert tell.nodes_of(30) == [0]
    left = set(range(2, 30))
    while left:
        (there,) = [job for job in left if tell.nodes_of(job) == [1]]
        left.remove(there)
        tell(Complete(there))


@pytest.mark.parametrize("name", ["FCFS", "EASY", "CONSERVATIVE", "LOS"])
def test_under_a_batch_policy_a_job_gets_its_nodes_although_others_keep_coming(name):
    tell = Told(find_policy(name), nodes=4)
    tell(permit(LEFT, 1, 3))
    tell(*(submit(job, need=1.0, estimate_s=100.0) for job in range(1, 5)))
    tell(submit(100, LEFT, tasks=2, need=1.0, estimate_s=100.0))
    present = [1, 2, 3, 4]
    for job in range(5, 60):
        tell(submit(job, need=1.0, estimate_s=10.0))
        present.append(job)
        if tell.nodes_of(100)[0] >= 0:
            break
        # The one that has run longest ends: a node is free, one that the job may use or not.
        done = next(job for job in present if tell.nodes_of(job)[0] >= 0)
        present.remove(done)
        tell(Complete(done))
    assert sorted(tell.nodes_of(100)) == [1, 3]


@pytest.mark.parametrize("name", ["FCFS", "EASY", "CONSERVATIVE", "LOS"])
def test_under_a_batch_policy_a_held_job_comes_back_to_the_node_it_may_use(name):
    tell = Told(find_policy(name), nodes=3)
    tell(permit(LEFT, 2), submit(1, LEFT, need=1.0, estimate_s=100.0))
    assert tell.nodes_of(1) == [2]
    tell(Hold(1), Unhold(1))
    assert tell.nodes_of(1) == [2]
    tell(Hold(1), *(submit(job, need=1.0, estimate_s=100.0) for job in range(2, 6)), Unhold(1))
    assert [tell.nodes_of(job) for job in range(1, 6)] == [[-1], [0], [1], [2], [-1]]
    tell(Complete(2))
    assert [tell.nodes_of(job) for job in (1, 5)] == [[-1], [0]]
    tell(Complete(4))
    assert tell.nodes_of(1) == [2]


def test_a_job_that_has_run_claims_nodes_of_the_island_of_each_task():
    paused, other = SnapshotJob(tasks=2, paused=True), SnapshotJob(nodes=(2,))
    able = abilities([False] * 4, [0, 0, 1, 1], [1, 0], [False])
    shot = replace(shot_of([paused], [[True] * 4], nodes=4), abilities=able)
    assert claim(shot, np.array([True])).starts[0].tolist() == [2, 0]
    able = abilities([False] * 4, [0, 0, 1, 1], [1, 1, -1], [False] * 2)
    shot = replace(shot_of([paused, other], [[True] * 4] * 2, nodes=4), abilities=able)
    claims = claim(shot, np.array([True, False]))
    assert not claims.starts
    assert claims.nodes.tolist() == [False, False, False, True]


def test_a_job_whose_node_may_no_longer_be_used_runs_on_and_does_not_come_back():
    tell = Told(find_policy("Greedy*/OPT=MIN"))
    tell(permit(LEFT, 1), submit(1, LEFT))
    tell(permit(LEFT, 0))
    assert tell.nodes_of(1) == [1]
    tell(Hold(1), Unhold(1))
    assert tell.nodes_of(1) == [0]


def test_what_was_told_outlives_a_restart_and_earlier_states_have_none():
    tell = Told(FairShare())
    tell(permit(LEFT, 1), permit(RIGHT, 0), submit(1, LEFT), submit(2, LEFT, memory=0.9))
    state = tell.core.state()
    again = Core(FairShare(), np.ones((2, 2)))
    again.restore(state)
    assert {name: nodes.tolist() for name, nodes in again.permitted.items()} == {LEFT: [1], RIGHT: [0]}
    assert again.snapshot().permitted.tolist() == [[False, True]] * 2
    for name in [name for name in state if name.startswith("constraints_")]:
        assert again.state()[name].tolist() == state[name].tolist()
    earlier = Core(FairShare(), np.ones((2, 2)))
    earlier.restore({name: array for name, array in state.items() if not name.startswith("constraints_")})
    assert earlier.snapshot().permitted is None


def test_nothing_is_kept_of_constraints_that_permit_nothing_or_jobs_that_are_done():
    tell = Told(FairShare())
    tell(permit(LEFT, 1), submit(1, LEFT), permit(LEFT))
    assert not tell.core.permitted
    assert tell.core.snapshot().permitted.tolist() == [[False, False]]
    tell(Complete(1), submit(2))
    assert tell.core.snapshot().permitted is None


SITES = (
    Site(choices=True),
    Site(choices=True, islands=2, frees=(True, False), refusals=True, moves=True, changes=False),
    Site(choices=True, outside=True, dedicated=True, frees=(False,)),
)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
@pytest.mark.parametrize("name", ["MCB*/per/OPT=MIN/MVT=600", "EASY", "Mover"])
def test_whatever_happens_no_task_comes_where_it_may_not_and_the_record_replays(name, seed, site):
    def policy():
        return Mover() if name == "Mover" else find_policy(name)

    core = Core(policy(), np.zeros((0, 2)))
    record, _ = drive(core, seed, site, steps=80)
    assert replay(Core(policy(), np.zeros((0, 2))), record) is None


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (permit(0, 1), "constraint 0: is that of jobs that may use all nodes"),
        (permit(LEFT, 0, 2), "must be some of 2 nodes, in ascending order"),
        (permit(LEFT, 1, 0), "must be some of 2 nodes, in ascending order"),
    ],
)
def test_what_cannot_be_is_refused(event, words):
    core = Core(FairShare(), np.ones((2, 2)))
    with pytest.raises(InputError, match=words):
        core.handle(event, 0.0)
    assert not core.permitted
