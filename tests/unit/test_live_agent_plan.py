"""Each next step of a task, case by case; and the whole path, from every state to every other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.agent.next_action import DONE, NextAction, TaskAction, Verb, plan, plan_fenced
from dfrs.live.drivers.base import TaskState
from dfrs.live.protocol.wire import Grant, Source
from tests.live_fakes import desired

A, S, R, P, H, E = (
    TaskState.ABSENT,
    TaskState.STARTING,
    TaskState.RUNNING,
    TaskState.PAUSED,
    TaskState.HANDED,
    TaskState.EXITED,
)

SOURCE = Source(address="h2.test", port=4711, certificate="", token="5" * 64)
GRANT = Grant(token="5" * 64, certificate="")


def step(verb, **fields):
    return NextAction(action=TaskAction(verb=verb, **fields))


CASES = [
    (desired(R), A, step(Verb.START, share_cores=0.5)),
    (desired(R, take=True), A, step(Verb.TAKE, share_cores=0.5)),
    (desired(R), S, DONE),
    (desired(R), R, DONE),
    (desired(R, share=0.7), R, step(Verb.SET_SHARE, share_cores=0.7)),
    (desired(R, share=0.7), P, step(Verb.SET_SHARE, share_cores=0.7)),
    (desired(R), P, step(Verb.RESUME)),
    (desired(R), H, step(Verb.TAKE, share_cores=0.5)),
    (desired(R), E, DONE),
    (desired(P), R, step(Verb.PAUSE)),
    (desired(P), S, step(Verb.PAUSE)),
    (desired(P, share=0.7), P, DONE),
    (desired(P, take=True), A, step(Verb.TAKE, share_cores=0.5)),
    (desired(P), E, DONE),
    (desired(H), A, DONE),
    (desired(H), R, step(Verb.HAND)),
    (desired(H), P, step(Verb.HAND)),
    (desired(H), H, DONE),
    (desired(H), E, DONE),
    (desired(A), A, DONE),
    (desired(A, grace=3.0), S, step(Verb.STOP, grace_s=3.0)),
    (desired(A, grace=3.0), R, step(Verb.STOP, grace_s=3.0)),
    (desired(A, grace=3.0), P, step(Verb.STOP, grace_s=3.0)),
    (desired(A, grace=3.0), H, step(Verb.STOP, grace_s=3.0)),
    (desired(A), E, step(Verb.FORGET)),
    (desired(A), H, step(Verb.FORGET)),
    (desired(R, take=True, source=SOURCE), A, step(Verb.FETCH, share_cores=0.5)),
    (desired(P, take=True, source=SOURCE), A, step(Verb.FETCH, share_cores=0.5)),
    (desired(R, take=True, source=SOURCE), P, step(Verb.RESUME)),
    (desired(R, take=True, source=SOURCE), R, DONE),
    (desired(H, grant=GRANT), R, DONE),
    (desired(H, grant=GRANT), P, DONE),
    (desired(H, grant=GRANT), H, DONE),
]


@pytest.mark.parametrize(("wanted", "state", "expected"), CASES)
def test_the_next_step(wanted, state, expected):
    assert plan(wanted, state, share_cores=0.5, was_here=state is not A) == expected


@pytest.mark.parametrize(
    ("wanted", "was_here", "says"),
    [
        (desired(P), False, "no such task"),
        (desired(R), True, "not started a second time"),
        (desired(R).model_copy(update={"spec": None}), False, "spec"),
        (desired(E), False, "desired state exited"),
    ],
)
def test_what_no_step_solves_is_said(wanted, was_here, says):
    planned = plan(wanted, A, share_cores=None, was_here=was_here)
    assert planned.action is None
    assert says in planned.problem


def test_a_share_that_is_not_known_is_set():
    assert plan(desired(R), R, share_cores=None, was_here=True) == step(Verb.SET_SHARE, share_cores=0.5)


@pytest.mark.parametrize("state", TaskState)
def test_a_fenced_task_is_stopped_and_its_end_is_kept(state):
    planned = plan_fenced(state, 10.0)
    assert planned == (DONE if state in {A, E} else step(Verb.STOP, grace_s=10.0))


EFFECTS = {Verb.START: R, Verb.TAKE: R, Verb.HAND: H, Verb.PAUSE: P, Verb.RESUME: R, Verb.STOP: E, Verb.FORGET: A}


@given(
    state=st.sampled_from(list(TaskState)),
    wanted=st.sampled_from([R, P, H, A]),
    take=st.booleans(),
    share=st.sampled_from([None, 0.5, 0.7]),
)
def test_steps_lead_to_what_is_desired_and_end(state, wanted, take, share):
    goal = desired(wanted, take=take)
    ended = state is E
    was_here = state is not A
    for _ in range(4):
        planned = plan(goal, state, share_cores=share, was_here=was_here)
        if planned.action is None:
            break
        verb = planned.action.verb
        share = planned.action.share_cores if verb in {Verb.START, Verb.TAKE, Verb.SET_SHARE} else share
        state = EFFECTS.get(verb, state)
        was_here = was_here or state is not A
    else:
        raise AssertionError(f"no end of steps: {planned}")
    missing = wanted is P and not take and not was_here
    reached = {wanted} | ({S} if wanted is R else set()) | ({E} if ended else set()) | ({A} if wanted is H else set())
    assert planned.problem if missing else state in reached
    if wanted is R and state is R:
        assert share == goal.share_cores
