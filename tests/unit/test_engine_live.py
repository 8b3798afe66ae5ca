"""Events of a live cluster: batches of submissions, needs that are found out, nodes that come, jobs that are held."""

import numpy as np
import pytest

from dfrs.engine.core import Core
from dfrs.engine.events import Change, Complete, Hold, PauseRefused, Ready, Revise, Submit, Unhold, Wake
from dfrs.model.decisions import PAUSED, RUNNING, WAITING, Cause, Prices, Target
from dfrs.model.elastic import Answer, CommandKind
from dfrs.model.errors import InputError
from dfrs.model.nodes import Capacity, Condition, Join, NodeChange, PauseAbility
from dfrs.model.run import Action
from dfrs.policies.names import find_policy
from tests.small_policies import FairShare, FromFunction, Stay

DFRS = "GreedyPM*/per/OPT=MIN/MVT=600"
NO_NODES = np.zeros((0, 2))


def told(commands):
    return [(Action(c.action).name, c.job_id, c.nodes, c.yield_) for c in commands]


def watched(capacity=((1.0, 1.0), (1.0, 1.0))):
    """A core whose policy stays, and the list of (cause, subject) it was asked with."""
    asked = []
    policy = FromFunction(lambda s: asked.append((s.cause, s.subject)) or Stay().decide(s))
    return Core(policy, np.array(capacity).reshape(-1, 2)), asked


def everything(core):
    return {name: array.tobytes() for name, array in core.state().items()}


def ids(core):
    return core.snapshot().jobs["id"].tolist()


# Submissions.


def test_of_several_submissions_the_policy_is_asked_for_the_last_and_then_for_all():
    core, asked = watched()
    assert not len(core.handle(Submit(1, 1, 0.5, 0.5, last=False), 0.0))
    assert not len(core.handle(Submit(2, 1, 0.5, 0.5, last=False), 0.0))
    assert asked == []
    core.handle(Submit(3, 1, 0.5, 0.5), 0.0)
    core.handle(Submit(4, 1, 0.5, 0.5), 0.0)
    assert asked == [(Cause.SUBMISSION, 2), (Cause.NODES, -1), (Cause.SUBMISSION, 3)]


@pytest.mark.parametrize("name", [DFRS, "GreedyPM/per/OPT=MIN", "MCB*/OPT=MIN", "EASY", "FCFS", "EQUIPARTITION"])
def test_all_of_several_submissions_start_where_they_fit(name):
    core = Core(find_policy(name), np.ones((3, 2)))
    for k in range(3):
        commands = core.handle(Submit(k, 1, 1.0, 0.9, 50.0, last=k == 2), 0.0)
    assert sorted(c.job_id for c in commands) == [0, 1, 2]
    assert (core.snapshot().jobs["yield_"] == 1.0).all()


@pytest.mark.parametrize("minimum", [-0.1, 1.1, np.nan])
def test_a_minimum_yield_is_from_0_to_1(minimum):
    core, _ = watched()
    with pytest.raises(InputError, match="job 1: minimum"):
        core.handle(Submit(1, 1, 0.5, 0.5, minimum=minimum), 0.0)


# Needs.


def test_a_revised_need_leaves_the_share_as_it_is_and_the_policy_is_asked():
    asked = []
    core = Core(FairShare(), np.ones((1, 2)))
    core.handle(Submit(1, 1, 0.5, 0.1), 0.0)
    core.policy = FromFunction(lambda s: asked.append(s.cause) or Stay().decide(s))
    commands = core.handle(Revise(1, 0.8), 10.0)
    assert told(commands) == [("SHARE", 1, (), 0.625)]
    assert asked == [Cause.NEEDS]
    assert core.snapshot().jobs[["need", "yield_"]].tolist() == [(0.8, 0.625)]
    assert not len(core.handle(Revise(1, 0.8), 10.0))
    assert told(core.handle(Revise(1, 0.25, last=False), 10.0)) == [("SHARE", 1, (), 1.0)]
    assert asked == [Cause.NEEDS] * 2
    events = core.event_log.events()
    assert [events.reasons[k] for k in events.why] == ["there was room at submission", *["needs were revised"] * 2]
    assert events.yield_.tolist() == [1.0, 0.625, 1.0]


def test_revisions_nobody_was_asked_about_come_before_the_next_submission():
    core, asked = watched()
    core.handle(Submit(1, 1, 0.5, 0.5), 0.0)
    core.handle(Revise(1, 0.6, last=False), 0.0)
    core.handle(Submit(2, 1, 0.5, 0.5, last=False), 0.0)
    core.handle(Submit(3, 1, 0.5, 0.5), 0.0)
    assert asked[1:] == [(Cause.NEEDS, -1), (Cause.SUBMISSION, 2), (Cause.NODES, -1)]
    core.handle(Revise(1, 0.7, last=False), 0.0)
    core.handle(Wake(), 0.0)
    core.handle(Submit(4, 1, 0.5, 0.5), 0.0)
    assert asked[4:] == [(Cause.WAKE, -1), (Cause.SUBMISSION, 3)]


@pytest.mark.parametrize("name", [DFRS, "EASY", "CONSERVATIVE", "Delayed-LOS", "EQUIPARTITION", "/per/OPT=AVG"])
def test_whatever_the_policy_needs_may_be_revised_to_more_than_there_is(name):
    core = Core(find_policy(name), np.ones((1, 2)))
    core.handle(Submit(1, 2, 0.5, 0.1, 50.0), 0.0)
    core.handle(Wake(), 600.0)
    core.handle(Revise(1, 0.9), 610.0)
    assert core.snapshot().jobs["yield_"] == pytest.approx([5 / 9])
    core.handle(Revise(1, 0.2), 620.0)
    assert core.snapshot().jobs["yield_"].tolist() == [1.0]


# Nodes.


def test_without_nodes_jobs_wait_and_the_first_node_lets_them_start():
    core = Core(find_policy(DFRS), NO_NODES)
    for event in (Submit(1, 1, 1.0, 0.5), Submit(2, 1, 1.0, 0.5), Wake(), Hold(2), Unhold(2), Revise(1, 0.5)):
        assert not len(core.handle(event, 5.0))
    assert (core.target, core.wake_at_s, core.decisions) == (None, None, 0)
    assert sorted(told(core.handle(Join(1.0, 1.0), 6.0)))[0][:3] == ("START", 1, (0,))
    assert core.snapshot().jobs["yield_"] == pytest.approx([2 / 3, 2 / 3])
    events = core.event_log.events()
    assert (events.action[0], events.job[0], events.nodes_of(0).tolist()) == (Action.UP, -1, [0])


def test_a_node_that_joins_is_the_last_and_open():
    core, asked = watched()
    core.handle(Join(2.0, 0.5), 1.0)
    snapshot = core.snapshot()
    assert snapshot.capacity.tolist() == [[1.0, 1.0], [1.0, 1.0], [2.0, 0.5]]
    assert snapshot.open.tolist() == [True] * 3
    assert asked == [(Cause.NODES, -1)]


def test_only_a_closed_and_empty_node_changes_its_capacity():
    core = Core(FairShare(), np.ones((2, 2)))
    core.handle(Submit(7, 1, 0.5, 0.5), 0.0)
    with pytest.raises(InputError, match="node 0: is open"):
        core.handle(Capacity(0, 1.0, 1.0), 0.0)
    core.handle(NodeChange(1, Condition.DRAIN), 0.0)
    core.policy = Stay()
    core.handle(NodeChange(0, Condition.DRAIN), 0.0)
    with pytest.raises(InputError, match="node 0: job 7 is on it"):
        core.handle(Capacity(0, 1.0, 1.0), 0.0)
    assert not len(core.handle(Capacity(1, 0.5, 0.25), 0.0))
    assert core.snapshot().capacity.tolist() == [[1.0, 1.0], [0.5, 0.25]]


@pytest.mark.parametrize(
    "event",
    [
        Join(-1.0, 1.0),
        Join(1.0, np.nan),
        Join(np.inf, 1.0),
        Capacity(2, 1.0, 1.0),
        Capacity(0, 1.0, -1.0),
        Revise(9, 0.5),
        Revise(1, 0.0),
        Revise(1, 1.5),
        Revise(1, np.nan),
        Hold(9),
        Unhold(9),
        Unhold(1),
        PauseRefused(9, np.array([0])),
        PauseRefused(1, np.array([0, 1])),
        PauseRefused(1, np.array([2])),
        PauseAbility(2, True),
        Prices(pause_s=-1.0),
        Prices(resume_s=np.nan),
        Prices(move_s=np.inf),
        Complete(9),
        NodeChange(5, Condition.UP),
        Submit(1, 1, 0.5, 0.5),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_leaves_no_trace(event):
    core = Core(FairShare(), np.ones((2, 2)))
    core.handle(Submit(1, 1, 0.5, 0.5), 0.0)
    core.handle(NodeChange(0, Condition.DOWN), 0.0)
    core.handle(Ready(np.array([0]), np.array([0.0])), 0.0)
    before = everything(core)
    with pytest.raises(InputError):
        core.handle(event, 10 / 3)
    assert everything(core) == before


# Jobs that are held.


def held_pair(keeps):
    """Jobs 1 and 2 on one node each, job 2 held at 10 s after 5 s of progress."""
    core = Core(find_policy(DFRS), NO_NODES)
    for _ in range(2):
        core.handle(Join(1.0, 1.0, 0, not keeps), 0.0)
    for name in (1, 2):
        commands = core.handle(Submit(name, 1, 1.0, 0.6), 0.0)
        core.handle(Ready(commands.serial, np.full(len(commands), 5.0)), 0.0)
    commands = core.handle(Hold(2), 10.0)
    assert told(commands) == [("PAUSE", 2, (), 0.0)]
    events = core.event_log.events()
    assert events.reasons[events.why[-1]] == "held"
    assert ids(core) == [1]
    assert core.present == 2
    return core


def test_a_held_job_keeps_its_progress_and_comes_back_to_its_place():
    core = held_pair(keeps=False)
    core.handle(Submit(3, 1, 1.0, 0.6), 20.0)
    assert core.snapshot().placements[3].nodes == (1,)
    core.handle(Complete(1), 30.0)
    assert told(core.handle(Unhold(2), 40.0)) == [("RESUME", 2, (0,), 1.0)]
    jobs = core.snapshot().jobs
    assert jobs[["id", "state", "virtual_s", "pauses"]].tolist() == [(2, RUNNING, 5.0, 1), (3, RUNNING, 0.0, 0)]


def test_where_pauses_keep_memory_nobody_is_given_that_of_a_held_job():
    core = held_pair(keeps=True)
    assert core.snapshot().capacity.tolist() == [[1.0, 1.0], [1.0, 0.4]]
    assert not len(core.handle(Submit(3, 1, 1.0, 0.6), 20.0))
    assert told(core.handle(Submit(4, 1, 1.0, 0.4), 20.0)) == [("START", 4, (1,), 1.0)]
    commands = core.handle(Unhold(2), 30.0)
    assert told(commands)[0] == ("RESUME", 2, (1,), 0.0)
    assert sorted(told(commands)[1:]) == [("SHARE", 2, (), 0.5), ("SHARE", 4, (), 0.5)]
    assert commands.moved.tolist() == [0, 0, 0]
    assert core.snapshot().jobs[["id", "virtual_s"]].tolist() == [(1, 5.0 + 20.0), (2, 5.0), (3, 0.0), (4, 0.0)]
    assert core.snapshot().capacity.tolist() == [[1.0, 1.0]] * 2


def test_where_pauses_keep_memory_nobody_is_promised_what_a_held_job_was():
    core = Core(find_policy(DFRS), NO_NODES)
    for _ in range(2):
        core.handle(Join(1.0, 1.0, 0, False), 0.0)
    core.handle(Submit(1, 1, 1.0, 0.1, minimum=0.7), 0.0)
    core.handle(Hold(1), 10.0)
    for name in (2, 3):
        core.handle(Submit(name, 1, 1.0, 0.1, minimum=0.5), 20.0)
    assert [core.snapshot().placements[name].nodes for name in (2, 3)] == [(1,), (1,)]
    core.handle(Submit(4, 1, 1.0, 0.1, minimum=0.4), 20.0)
    assert core.target is not None
    assert core.target.why == {4: "waits: its minimum yield has no room"}
    core.handle(Unhold(1), 30.0)
    assert core.snapshot().placements[1].nodes == (0,)
    jobs = core.snapshot().jobs
    assert (jobs["yield_"] >= jobs["minimum"] - 1e-9)[jobs["state"] == RUNNING].all()


def test_to_an_exclusive_policy_the_node_of_a_held_job_is_closed():
    core = Core(find_policy("Delayed-LOS"), NO_NODES)
    for _ in range(2):
        core.handle(Join(1.0, 1.0, 0, False), 0.0)
    core.handle(Submit(1, 1, 1.0, 0.6, 50.0), 0.0)
    core.handle(Hold(1), 10.0)
    core.handle(Submit(2, 2, 1.0, 0.1, 50.0), 20.0)
    snapshot = core.snapshot()
    assert snapshot.open.tolist() == [False, True]
    assert snapshot.capacity.tolist() == [[1.0, 1.0]] * 2
    assert told(core.handle(Unhold(1), 30.0)) == [("RESUME", 1, (0,), 0.0), ("SHARE", 1, (), 1.0)]
    assert core.snapshot().open.tolist() == [True, True]


def test_a_released_job_goes_on_under_an_exclusive_policy_although_another_cannot_resume():
    core = Core(find_policy("EASY"), NO_NODES)
    for island in range(3):
        core.handle(Join(1.0, 1.0, island, island != 1), 0.0)
    for job in (1, 2, 3):
        core.handle(Submit(job, 1, 1.0, 0.6, 100.0), 0.0)
    core.handle(Hold(2), 10.0)
    core.handle(Hold(3), 10.0)
    core.handle(Submit(4, 1, 1.0, 0.6, 100.0), 20.0)
    core.handle(Complete(1), 20.0)
    assert not len(core.handle(Unhold(3), 20.0))
    assert told(core.handle(Unhold(2), 30.0)) == [("RESUME", 2, (1,), 0.0), ("SHARE", 2, (), 1.0)]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_held_job_can_be_ended_and_its_memory_is_free(keeps):
    core = held_pair(keeps)
    core.handle(Complete(2), 20.0)
    assert core.present == 1
    assert core.snapshot().capacity.tolist() == [[1.0, 1.0]] * 2
    with pytest.raises(InputError, match="job 2"):
        core.handle(Unhold(2), 20.0)


def test_a_held_job_whose_node_fails_loses_its_progress_and_stays_held():
    core = held_pair(keeps=True)
    assert ("LOST", 2, (), 0.0) in told(core.handle(NodeChange(1, Condition.DOWN), 20.0))
    assert ids(core) == [1]
    assert core.snapshot().capacity.tolist() == [[1.0, 1.0]] * 2
    core.handle(NodeChange(1, Condition.UP), 30.0)
    assert told(core.handle(Unhold(2), 30.0)) == [("START", 2, (1,), 1.0)]
    assert core.snapshot().jobs["virtual_s"].tolist() == [25.0, 0.0]


def test_a_job_that_waits_may_be_held_and_revised():
    core, asked = watched()
    for name in (1, 2, 3):
        core.handle(Submit(name, 1, 0.5, 0.5), 0.0)
    core.handle(Hold(2), 1.0)
    core.handle(Revise(2, 0.25), 1.0)
    assert ids(core) == [1, 3]
    core.handle(Unhold(2), 2.0)
    assert core.snapshot().jobs[["id", "state", "need"]].tolist() == [
        (1, WAITING, 0.5),
        (2, WAITING, 0.25),
        (3, WAITING, 0.5),
    ]
    assert asked[3:] == [(Cause.COMPLETION, -1), (Cause.NEEDS, -1), (Cause.SUBMISSION, 1)]


def test_what_is_held_cannot_be_held_again_submitted_again_or_changed():
    core = Core(find_policy(DFRS), np.ones((1, 2)))
    core.handle(Submit(1, 1, 0.5, 0.5), 0.0)
    core.handle(Hold(1), 0.0)
    with pytest.raises(InputError, match="held already"):
        core.handle(Hold(1), 1.0)
    with pytest.raises(InputError, match="is in the system already"):
        core.handle(Submit(1, 1, 0.5, 0.5), 1.0)
    core.handle(Change(1, CommandKind.EP, 1.0), 1.0)
    assert core.answers.last is Answer.UNKNOWN


def test_a_paused_job_resumes_in_the_island_of_before_even_if_others_came_later():
    core = Core(FairShare(), NO_NODES)
    core.handle(Join(1.0, 1.0, 5), 0.0)
    core.handle(Submit(1, 1, 0.5, 0.6), 0.0)
    core.handle(Hold(1), 1.0)
    core.handle(Submit(2, 1, 0.5, 0.6), 2.0)
    core.handle(Join(1.0, 1.0, 6), 3.0)
    core.handle(Unhold(1), 4.0)
    assert core.target is not None
    assert core.target.why == {1: "waits: its island has no room"}
    assert core.snapshot().jobs["state"].tolist() == [PAUSED, RUNNING]
    assert told(core.handle(Complete(2), 5.0))[0][:3] == ("RESUME", 1, (0,))


@pytest.mark.parametrize("name", ["FCFS", "EASY", "CONSERVATIVE", "LOS"])
def test_under_a_batch_policy_a_paused_job_resumes_in_its_island_though_other_nodes_come_first(name):
    core = Core(find_policy(name), NO_NODES)
    for island in range(4):
        core.handle(Join(1.0, 1.0, island), 0.0)
    for job in range(1, 5):
        core.handle(Submit(job, 1, 1.0, 0.5, 100.0), 0.0)
    core.handle(Hold(4), 10.0)
    for job in (1, 2, 3):
        core.handle(Complete(job), 20.0)
    assert told(core.handle(Unhold(4), 30.0)) == [("RESUME", 4, (3,), 1.0)]


@pytest.mark.parametrize("name", ["FCFS", "EASY", "CONSERVATIVE", "LOS"])
def test_jobs_that_another_policy_paused_resume_in_their_islands_under_a_batch_policy(name):
    core = Core(find_policy("Greedy*/OPT=MIN"), NO_NODES)
    for island in range(3):
        core.handle(Join(1.0, 1.0, island), 0.0)
    for job in range(1, 4):
        core.handle(Submit(job, 1, 1.0, 0.6, 100.0), 0.0)
    where = {job: placement.nodes for job, placement in core.snapshot().placements.items()}
    core.policy = FromFunction(lambda s: Target.of(s, {}))
    core.handle(Wake(), 10.0)
    assert core.snapshot().jobs["state"].tolist() == [PAUSED] * 3
    for job in (1, 2):
        core.handle(Complete(job), 20.0)
    core.hand_over(find_policy(name))
    core.handle(Wake(), 20.0)
    assert core.snapshot().placements[3].nodes == where[3] != (0,)


def test_a_minimum_yield_is_kept_whatever_the_policy():
    core = Core(find_policy(DFRS), np.ones((1, 2)))
    core.handle(Submit(1, 1, 1.0, 0.1, minimum=0.7), 0.0)
    for name in range(2, 6):
        core.handle(Submit(name, 1, 1.0, 0.1), 0.0)
    assert core.snapshot().jobs["yield_"] == pytest.approx([0.7 + 0.3 * 0.3 / 4.3] + [0.3 / 4.3] * 4)
    core.handle(Submit(6, 1, 1.0, 0.1, minimum=0.4), 0.0)
    assert core.snapshot().jobs["state"].tolist() == [RUNNING] * 5 + [WAITING]
    assert core.target is not None
    assert core.target.why == {6: "waits: its minimum yield has no room"}
    core.handle(Complete(1), 10.0)
    assert core.snapshot().jobs["yield_"][-1] >= 0.4


def restored(core, policy):
    other = Core(policy, NO_NODES)
    other.restore({name: np.array(array) for name, array in core.state().items()})
    return other


def test_the_islands_of_paused_jobs_outlive_a_restart():
    core = Core(FairShare(), NO_NODES)
    for island in (5, 6):
        core.handle(Join(1.0, 1.0, island), 0.0)
    core.handle(Submit(1, 1, 0.5, 0.6), 0.0)
    core.handle(Hold(1), 1.0)
    core.handle(Submit(2, 1, 0.5, 0.6), 2.0)
    core = restored(core, FairShare())
    core.handle(Unhold(1), 4.0)
    assert core.snapshot().jobs["state"].tolist() == [PAUSED, RUNNING]
    assert core.target is not None
    assert core.target.why == {1: "waits: its island has no room"}


def test_what_the_policy_was_not_asked_about_yet_outlives_a_restart():
    core, asked = watched()
    core.handle(Submit(1, 1, 0.5, 0.5), 0.0)
    core.handle(Revise(1, 0.6, last=False), 0.0)
    core.handle(Submit(2, 1, 0.5, 0.5, last=False), 0.0)
    core = restored(core, core.policy)
    core.handle(Submit(3, 1, 0.5, 0.5), 0.0)
    assert asked[1:] == [(Cause.NEEDS, -1), (Cause.SUBMISSION, 2), (Cause.NODES, -1)]


# Pauses that free no memory.


def gave_way():
    """Job 1 was paused at 100 s so that job 2 could have the only node."""
    core = Core(find_policy(DFRS), np.ones((1, 2)))
    commands = core.handle(Submit(1, 1, 1.0, 0.7), 0.0)
    core.handle(Ready(commands.serial, np.zeros(1)), 0.0)
    commands = core.handle(Submit(2, 1, 1.0, 0.7), 100.0)
    assert told(commands) == [("PAUSE", 1, (), 0.0), ("START", 2, (0,), 1.0)]
    return core


def test_a_refused_pause_is_undone_and_for_some_time_nobody_pauses_the_job():
    core = gave_way()
    commands = core.handle(PauseRefused(1, np.array([0])), 101.0)
    assert told(commands)[:2] == [("PAUSE", 2, (), 0.0), ("RESUME", 1, (0,), 0.0)]
    assert told(commands)[2:] == [("SHARE", 1, (), 1.0)]
    events = core.event_log.events()
    said = [events.reasons[why] for why in events.why.tolist()]
    assert said[-3:-1] == ["the memory for it could not be freed", "its memory could not be freed: it goes on"]
    assert core.snapshot().abilities.refused.tolist() == [True, False]
    for now_s in (200.0, 500.0, 700.0):
        assert not len(core.handle(Wake(), now_s))
    assert ("PAUSE", 1, (), 0.0) in told(core.handle(Wake(), 701.0 + 600.0))
    assert core.snapshot().abilities is None


def test_a_refusal_outlives_a_restart_and_ends_with_the_job():
    core = gave_way()
    core.handle(PauseRefused(1, np.array([0])), 101.0)
    again = Core(find_policy(DFRS), np.ones((1, 2)))
    again.restore(core.state())
    assert everything(again) == everything(core)
    again.handle(Complete(1), 102.0)
    assert again.snapshot().abilities is None


def test_a_refusal_of_a_job_that_runs_again_changes_nothing():
    core = gave_way()
    core.handle(Complete(2), 101.0)
    before = everything(core)
    assert not len(core.handle(PauseRefused(1, np.array([0])), 101.0))
    assert everything(core) == before


def test_a_held_job_keeps_memory_that_could_not_be_freed():
    core = Core(find_policy(DFRS), np.ones((1, 2)))
    core.handle(Submit(1, 1, 1.0, 0.7), 0.0)
    core.handle(Hold(1), 10.0)
    core.handle(Submit(2, 1, 1.0, 0.7), 20.0)
    assert told(core.handle(PauseRefused(1, np.array([0])), 21.0)) == [("PAUSE", 2, (), 0.0)]
    assert core.snapshot().capacity[0, 1] == pytest.approx(0.3)
    assert told(core.handle(Unhold(1), 30.0))[0] == ("RESUME", 1, (0,), 0.0)


def test_nodes_may_come_to_free_memory_or_cease_to():
    core = Core(find_policy(DFRS), np.ones((2, 2)))
    assert core.snapshot().abilities is None
    core.handle(PauseAbility(1, False), 0.0)
    assert core.snapshot().abilities.keeps.tolist() == core.frees_memory.tolist()[::-1] == [False, True]
    core.handle(PauseAbility(1, True), 1.0)
    assert core.snapshot().abilities is None


def test_prices_are_seen_from_the_next_decision_on_and_outlive_a_restart():
    seen = []
    policy = FromFunction(lambda shot: seen.append(shot.prices) or FairShare().decide(shot))
    core = Core(policy, np.ones((1, 2)))
    core.handle(Submit(1, 1, 0.5, 0.1), 0.0)
    decisions = core.decisions
    assert not len(core.handle(Prices(0.5, 2.0, 7.0), 1.0))
    assert core.decisions == decisions
    assert core.snapshot().jobs["virtual_s"].tolist() == [0.0]
    core.handle(Submit(2, 1, 0.5, 0.1), 2.0)
    assert seen == [Prices(), Prices(0.5, 2.0, 7.0)]
    again = restored(core, FairShare())
    assert again.prices == core.prices == Prices(0.5, 2.0, 7.0)
    assert everything(again) == everything(core)


def test_a_state_from_before_there_were_prices_can_be_restored():
    core = Core(FairShare(), np.ones((1, 2)))
    core.handle(Prices(0.5, 2.0, 7.0), 0.0)
    before = {name: array for name, array in core.state().items() if name != "prices"}
    other = Core(FairShare(), NO_NODES)
    other.restore(before)
    assert other.prices == Prices()
