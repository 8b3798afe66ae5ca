"""The state machine between events and commands."""

from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest

from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Ready, Submit, Wake
from dfrs.model.decisions import (
    PAUSED,
    RUNNING,
    WAITING,
    Cause,
    Placement,
    PolicyError,
    Reason,
    Target,
    Traits,
    traits_of,
)
from dfrs.model.errors import InputError
from dfrs.model.nodes import Condition, NodeChange
from dfrs.model.run import Action
from tests.naive.ledger import ExactIntegral
from tests.small_policies import FairShare, FromFunction, Mover, Stay

NODES = 4


def history(seed, count=120):
    """Random events with their times, each possible when it comes; completions are of jobs that came long before."""
    rng = np.random.default_rng(seed)
    time_s, serial, present, closed, events = 0.0, 0, [], set(), []
    for _ in range(count):
        time_s += float(rng.choice([0.0, 0.1, 1 / 3, 5.0, 40.0, 1000.0], p=[0.2, 0.2, 0.2, 0.2, 0.18, 0.02]))
        kind = rng.integers(10)
        if kind < 4 or not present:
            serial += 1
            present.append(1000 - serial)
            need = float(rng.choice([0.1, 0.5, 1.0]))
            event = Submit(present[-1], int(rng.integers(1, 4)), need, float(rng.choice([0.1, 0.25, 0.5])))
        elif kind < 7:
            event = Complete(present.pop(int(rng.integers(len(present)))))
        elif kind < 9 or len(closed) == NODES - 1:
            node = closed.pop() if closed else int(rng.integers(NODES))
            event = NodeChange(node, Condition.UP) if kind == 8 or closed else Wake()
        else:
            node = int(rng.integers(NODES))
            closed.add(node)
            event = NodeChange(node, Condition.DRAIN if rng.random() < 0.5 else Condition.DOWN)
        events.append((event, time_s))
    return events


def acknowledge(core, commands, now_s, penalty_s=2.0):
    """As a world would: those placed are ready after the penalty."""
    placed = np.isin(commands.action, (Action.START, Action.RESUME, Action.MIGRATE))
    if placed.any():
        cost = np.where(commands.action[placed] == Action.START, 0.0, penalty_s)
        return Ready(commands.serial[placed], now_s + cost)
    return None


def columns(commands):
    return [getattr(commands, f.name).tolist() for f in fields(commands)]


def feed(core, events):
    log = []
    for event, now_s in events:
        commands = core.handle(event, now_s)
        log.append(columns(commands))
        ready = acknowledge(core, commands, now_s)
        if ready is not None:
            assert not len(core.handle(ready, now_s))
    return log


def everything(core):
    return {
        name: (array.tolist() if array.dtype.names is None else array.tobytes()) for name, array in core.state().items()
    }


def new_core():
    return Core(Mover(), np.ones((NODES, 2)))


@pytest.mark.parametrize("seed", range(8))
def test_the_same_events_give_the_same_commands_and_the_same_journal(seed):
    events = history(seed)
    one, other = new_core(), new_core()
    assert feed(one, events) == feed(other, events)
    assert repr(everything(one)) == repr(everything(other))
    assert len(one.event_log) > 50


@pytest.mark.parametrize("seed", range(8))
def test_a_core_restored_in_the_middle_decides_the_same(seed):
    events = history(seed)
    whole = new_core()
    commands = feed(whole, events)
    for cut in (1, 17, len(events) // 2, len(events) - 1):
        before, after = new_core(), new_core()
        assert feed(before, events[:cut]) == commands[:cut]
        after.restore({name: np.array(array) for name, array in before.state().items()})
        assert repr(everything(after)) == repr(everything(before))
        assert feed(after, events[cut:]) == commands[cut:]
        assert repr(everything(after)) == repr(everything(whole))


@pytest.mark.parametrize("seed", range(8))
def test_virtual_time_is_the_exact_integral_of_the_yield_outside_penalties(seed):
    core, exact, last = new_core(), {}, {}
    for event, now_s in history(seed):
        commands = core.handle(event, now_s)
        for integral in exact.values():
            integral.up_to(now_s)
        if isinstance(event, Submit):
            exact[event.job_id] = ExactIntegral(now_s)
        elif isinstance(event, Complete):
            del exact[event.job_id]
        for c in commands:
            if c.action == Action.LOST:
                exact[c.job_id].total = Fraction(0)
            if c.action in (Action.LOST, Action.PAUSE):
                exact[c.job_id].rate = Fraction(0)
            elif c.action <= Action.SHARE:
                exact[c.job_id].rate = Fraction(c.yield_)
            if c.action in (Action.START, Action.RESUME, Action.MIGRATE):
                exact[c.job_id].ready = Fraction(now_s if c.action == Action.START else now_s + 2.0)
        ready = acknowledge(core, commands, now_s)
        if ready is not None:
            core.handle(ready, now_s)
        jobs = core.snapshot().jobs
        assert jobs["id"].tolist() == list(exact)
        for job in jobs:
            integral = exact[int(job["id"])]
            assert job["virtual_s"] == pytest.approx(float(integral.total), rel=1e-9, abs=1e-9)
            assert job["yield_"] == float(integral.rate)
            last[int(job["id"])] = float(integral.total)
    assert max(last.values()) > 10


@pytest.mark.parametrize("seed", range(4))
def test_states_placements_and_counts_agree_with_the_commands(seed):
    core, where, pauses, migrations = new_core(), {}, {}, {}
    for event, now_s in history(seed):
        if isinstance(event, Complete):
            where.pop(event.job_id, None)
        for c in core.handle(event, now_s):
            if c.nodes:
                where[c.job_id] = c.nodes
            if c.action in (Action.PAUSE, Action.LOST):
                del where[c.job_id]
            pauses[c.job_id] = pauses.get(c.job_id, 0) + (c.action == Action.PAUSE)
            migrations[c.job_id] = migrations.get(c.job_id, 0) + (c.action == Action.MIGRATE)
        snapshot = core.snapshot()
        assert {name: p.nodes for name, p in snapshot.placements.items()} == where
        for job in snapshot.jobs:
            assert (job["state"] == RUNNING) == (int(job["id"]) in where)
            assert (job["pauses"], job["migrations"]) == (pauses.get(job["id"], 0), migrations.get(job["id"], 0))
            assert (job["state"] == WAITING) <= (job["virtual_s"] == 0)


def test_memory_moved_counts_migrations_of_the_last_hour():
    core = Core(FromFunction(lambda s: _one_on(s, int(s.now_s) % 2, s.now_s + 1)), np.ones((2, 2)))
    core.handle(Submit(1, 1, 1.0, 0.25), 0.0)
    core.handle(Wake(), 1001.0)
    core.handle(Wake(), 2002.0)
    seen = []
    core.policy = FromFunction(lambda s: seen.append(s.moved) or _one_on(s, int(s.task_nodes[0])))
    for now_s in (2003.0, 4600.9, 4601.0, 5601.9, 5602.0, 9000.0):
        core.handle(Wake(), now_s)
    assert seen == [0.5, 0.5, 0.25, 0.25, 0.0, 0.0]


def _one_on(snapshot, node, wake_at_s=None):
    return Target(np.full(len(snapshot.task_nodes), node), np.ones(len(snapshot.jobs)), wake_at_s)


def test_a_start_that_nobody_acknowledged_makes_no_progress():
    core = Core(FairShare(), np.ones((1, 2)))
    core.handle(Submit(1, 1, 1.0, 0.5), 0.0)
    core.handle(Wake(), 50.0)
    job = core.snapshot().jobs[0]
    assert (job["state"], job["virtual_s"], job["ready_s"]) == (RUNNING, 0.0, np.inf)
    core.handle(Ready(np.array([0]), np.array([60.0])), 55.0)
    core.handle(Wake(), 70.0)
    assert core.snapshot().jobs["virtual_s"].tolist() == [10.0]


def test_acknowledgements_of_jobs_that_are_gone_are_passed_over():
    core = Core(FairShare(), np.ones((2, 2)))
    for name in (7, 8, 9):
        core.handle(Submit(name, 1, 0.1, 0.1), 0.0)
    core.handle(Complete(8), 1.0)
    core.handle(Ready(np.array([2, 1, 0, 5]), np.array([4.0, 3.0, 2.0, 1.0])), 1.0)
    assert core.snapshot().jobs["ready_s"].tolist() == [2.0, 4.0]


# Nodes.


def running_pair():
    """Job 1 on nodes 0 and 1, job 2 on node 1, each a while."""
    core = Core(
        FromFunction(
            lambda s: Target.of(
                s,
                {
                    name: Placement(nodes, 0.5)
                    for name, nodes in {1: (0, 1), 2: (1,)}.items()
                    if name in s.jobs["id"] and all(s.open[n] for n in nodes)
                },
            )
        ),
        np.ones((3, 2)),
    )
    core.handle(Submit(1, 2, 1.0, 0.2), 0.0)
    core.handle(Submit(2, 1, 1.0, 0.2), 0.0)
    core.handle(Ready(np.array([0, 1]), np.zeros(2)), 0.0)
    core.handle(Wake(), 100.0)
    assert core.snapshot().jobs["virtual_s"].tolist() == [50.0, 50.0]
    return core


def test_jobs_on_a_node_that_fails_start_anew_from_zero():
    core = running_pair()
    commands = core.handle(NodeChange(0, Condition.DOWN), 110.0)
    assert [(c.action, c.job_id, c.yield_) for c in commands] == [(Action.LOST, 1, 0.0)]
    jobs = core.snapshot().jobs
    assert jobs["state"].tolist() == [WAITING, RUNNING]
    assert jobs["virtual_s"].tolist() == [0.0, 55.0]
    assert jobs["start_s"].tolist() == [0.0, 0.0]
    commands = core.handle(NodeChange(0, Condition.UP), 120.0)
    assert [(c.action, c.nodes) for c in commands] == [(Action.START, (0, 1))]
    assert core.snapshot().jobs["start_s"].tolist() == [120.0, 0.0]
    core.handle(Ready(np.array([0]), np.array([120.0])), 120.0)
    core.handle(Wake(), 130.0)
    assert core.snapshot().jobs["virtual_s"].tolist() == [5.0, 65.0]
    events = core.event_log.events()
    assert [Action(a).name for a in events.action] == ["START", "START", "DOWN", "LOST", "UP", "START"]
    assert [events.reasons[k] for k in events.why[[2, 3]]] == ["", "its node failed"]
    assert events.job.tolist() == [0, 1, -1, 0, -1, 0]
    assert events.nodes_of(2).tolist() == [0]
    assert np.isnan(events.yield_[2:5]).all()


def test_losses_and_decisions_are_one_answer_in_that_order():
    core = Core(FairShare(), np.ones((2, 2)))
    core.handle(Submit(1, 2, 1.0, 0.6), 0.0)
    core.handle(Submit(2, 1, 1.0, 0.6), 0.0)
    commands = core.handle(NodeChange(1, Condition.DOWN), 5.0)
    assert [(c.action, c.job_id, c.nodes) for c in commands] == [(Action.LOST, 1, ()), (Action.START, 2, (0,))]
    assert commands.first.tolist() == [0, 0, 1]


def test_to_a_drained_node_nobody_comes_but_those_there_stay():
    core = running_pair()
    core.policy = FromFunction(lambda s: Target(s.task_nodes, s.jobs["yield_"].copy()))
    assert not len(core.handle(NodeChange(1, Condition.DRAIN), 110.0))
    assert core.snapshot().placements[1].nodes == (0, 1)
    assert core.snapshot().open.tolist() == [True, False, True]
    core.policy = FromFunction(lambda s: Target(np.ones_like(s.task_nodes), np.full(len(s.jobs), 0.1)))
    with pytest.raises(PolicyError, match="job 1 would come to node 1, which is closed"):
        core.handle(Submit(3, 1, 0.1, 0.1), 111.0)


@pytest.mark.parametrize("node", [-1, 3, 10**9])
def test_a_change_of_a_node_that_is_not_there_is_an_input_error(node):
    with pytest.raises(InputError, match=str(node)):
        running_pair().handle(NodeChange(node, Condition.DOWN), 110.0)


# What cannot be true, and what policies do wrong.


def test_time_does_not_go_back_and_unknown_jobs_are_not_done():
    core = running_pair()
    with pytest.raises(InputError, match="99"):
        core.handle(Wake(), 99.0)
    with pytest.raises(InputError, match="job 17"):
        core.handle(Complete(17), 101.0)


@pytest.mark.parametrize("event", [Submit(1, 1, 0.5, 0.5), Submit(5, 0, 0.5, 0.5), Submit(5, 1, float("nan"), 0.5)])
def test_a_submission_that_cannot_be_is_an_input_error(event):
    core = running_pair()
    before = repr(everything(core))
    with pytest.raises(InputError):
        core.handle(event, 100.0)
    assert repr(everything(core)) == before


def test_an_undefined_time_is_an_input_error():
    with pytest.raises(InputError):
        running_pair().handle(Wake(), float("nan"))


def raises(_snapshot):
    raise ZeroDivisionError("a\nb")


@pytest.mark.parametrize(
    "decide",
    [
        raises,
        lambda _: None,
        lambda s: Target(s.task_nodes.tolist(), s.jobs["yield_"].copy()),
        lambda s: Target(s.task_nodes, s.jobs["yield_"].copy(), "soon"),
        lambda s: Target(s.task_nodes, s.jobs["yield_"].copy(), reasons=[1]),
        lambda s: Target(s.task_nodes, s.jobs["yield_"].copy(), reasons=np.full(len(s.jobs), 0.5)),
        lambda s: Target(s.task_nodes, s.jobs["yield_"] / 2, reasons=np.full(len(s.jobs), 99)),
        lambda s: Target(s.task_nodes, s.jobs["yield_"] / 2, reasons=np.full(len(s.jobs), -1)),
        lambda s: Target.of(s, {99: Placement((0,), 1.0)}),
        lambda s: Target.of(s, {1: Placement((0, 0, 0), 1.0)}),
    ],
)
def test_whatever_a_policy_does_wrong_is_a_policy_error_of_one_line(decide):
    core = running_pair()
    core.policy = FromFunction(decide)
    with pytest.raises(PolicyError) as caught:
        core.handle(Wake(), 100.0)
    assert "\n" not in str(caught.value)


def test_what_a_policy_raises_is_named_and_kept_as_the_cause():
    core = running_pair()
    core.policy = FromFunction(raises)
    with pytest.raises(PolicyError, match="ZeroDivisionError") as caught:
        core.handle(Wake(), 100.0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_snapshot_cannot_be_written_to():
    core = running_pair()
    for name in ("jobs", "task_nodes", "first", "capacity", "open"):
        array = getattr(core.snapshot(), name)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]


def test_the_cause_the_subject_and_the_wake_are_what_happened():
    seen = []
    core = Core(FromFunction(lambda s: seen.append((s.now_s, s.cause, s.subject)) or Stay().decide(s)), np.ones((2, 2)))
    core.handle(Submit(5, 1, 0.5, 0.5), 1.0)
    core.handle(Submit(4, 1, 0.5, 0.5), 1.0)
    core.handle(Wake(), 2.0)
    core.handle(NodeChange(0, Condition.DRAIN), 3.0)
    core.handle(Complete(5), 4.0)
    core.handle(Submit(6, 1, 0.5, 0.5), 5.0)
    assert seen == [
        (1.0, Cause.SUBMISSION, 0),
        (1.0, Cause.SUBMISSION, 1),
        (2.0, Cause.WAKE, -1),
        (3.0, Cause.NODES, -1),
        (4.0, Cause.COMPLETION, -1),
        (5.0, Cause.SUBMISSION, 1),
    ]
    assert core.snapshot().flow_s.tolist() == [4.0, 0.0]


def test_reasons_in_words_stand_in_the_journal_and_survive_restoring():
    words = iter(["because", "", "first in the queue", "because", 'ünïcode, "quoted"'])
    core = Core(
        FromFunction(lambda s: Target.of(s, {1: Placement((len(core.event_log) % 2,), 1.0)}, why={1: next(words)})),
        np.ones((2, 2)),
    )
    core.handle(Submit(1, 1, 0.5, 0.5), 1.0)
    core.handle(Wake(), 2.0)
    other = Core(core.policy, np.ones((2, 2)))
    other.restore(core.state())
    core = other
    for now_s in (3.0, 4.0, 5.0):
        core.handle(Wake(), now_s)
    events = core.event_log.events()
    assert [events.reasons[k] for k in events.why] == [
        "because",
        "",
        "first in the queue",
        "because",
        'ünïcode, "quoted"',
    ]
    assert events.why[2] == Reason.QUEUE_HEAD


def test_a_thousand_jobs_with_many_tasks_outgrow_every_column():
    core = Core(FairShare(), np.ones((2, 2)))
    for k in range(300):
        core.handle(Submit(k, 1 + k % 7, 0.0005, 0.0), float(k))
    snapshot = core.snapshot()
    assert snapshot.jobs["serial"].tolist() == list(range(300))
    assert np.diff(snapshot.first).tolist() == [1 + k % 7 for k in range(300)]
    assert (snapshot.jobs["state"] == RUNNING).all()
    for k in range(0, 300, 2):
        core.handle(Complete(k), 400.0)
    assert core.present == 150
    assert np.diff(core.snapshot().first).tolist() == [1 + k % 7 for k in range(1, 300, 2)]
    assert len(core.event_log) == 450
    assert not (core.snapshot().jobs["state"] == PAUSED).any()


def test_a_policy_says_what_it_is_and_one_that_says_nothing_is_nothing_more():
    whole = FromFunction(lambda s: Stay().decide(s))
    whole.traits = Traits(exclusive=True)
    assert traits_of(Stay()) == Traits()
    assert traits_of(whole) == Traits(exclusive=True)
    core = Core(Stay(), np.ones((2, 2)))
    assert not core.traits.exclusive
    core.policy = whole
    assert core.traits.exclusive
    core.hand_over(Stay())
    assert not core.traits.exclusive
