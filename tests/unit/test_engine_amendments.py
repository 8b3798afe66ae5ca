"""Jobs that are changed or taken back in the core: they keep their place, and the policy sees them as they are."""

import math

import numpy as np
import pytest

from dfrs.engine.codec import decode, encode
from dfrs.engine.core import Core
from dfrs.engine.events import Amend, Complete, Hold, Submit, Unhold, Withdraw
from dfrs.model.decisions import RUNNING, WAITING
from dfrs.model.errors import InputError
from dfrs.policies.names import find_policy

NODES = np.ones((1, 2))


def core(policy="FCFS", nodes=NODES):
    return Core(find_policy(policy), nodes)


def told(commands):
    return [(c.action, c.job_id, round(c.yield_, 6)) for c in commands]


def row(made, job):
    jobs = made.snapshot().jobs
    return jobs[jobs["id"] == job][0]


def queue(*needs, policy="FCFS"):
    """Job 1 has the node; the others wait."""
    made = core(policy)
    made.handle(Submit(1, 1, 1.0, 1.0), 0.0)
    for k, need in enumerate(needs):
        made.handle(Submit(2 + k, 1, need, 0.5), 1.0)
    return made


def test_a_job_that_waits_keeps_its_place_and_is_another_one():
    made = queue(0.5, 0.5)
    made.handle(Amend(2, need=0.25, memory=0.125, estimate_s=90.0, minimum=0.5, requested_start_s=7.0), 2.0)
    found = row(made, 2)
    assert (found["need"], found["memory"], found["estimate_s"]) == (0.25, 0.125, 90.0)
    assert (found["minimum"], found["requested_start_s"], found["serial"]) == (0.5, 7.0, 1)
    made.handle(Amend(2, estimate_s=math.inf, requested_start_s=math.inf), 3.0)
    found = row(made, 2)
    assert math.isnan(found["estimate_s"])
    assert math.isnan(found["requested_start_s"])
    assert (found["need"], found["minimum"]) == (0.25, 0.5)
    assert [c.job_id for c in made.handle(Complete(1), 4.0)] == [2]


def test_one_that_fits_only_as_it_is_now_starts_at_once():
    made = core(nodes=np.array([[1.0, 1.0], [1.0, 0.5]]))
    made.handle(Submit(1, 1, 1.0, 1.0), 0.0)
    made.handle(Submit(2, 1, 1.0, 1.0), 0.0)
    assert [row(made, job)["state"] for job in (1, 2)] == [RUNNING, WAITING]
    assert [c.job_id for c in made.handle(Amend(2, memory=0.5), 1.0)] == [2]


def test_a_running_job_keeps_its_share_when_its_need_changes_and_has_its_new_minimum():
    made = core("GreedyPM*/per/OPT=MIN/MVT=600")
    made.handle(Submit(1, 1, 1.0, 0.1), 0.0)
    made.handle(Submit(2, 1, 1.0, 0.1), 0.0)
    assert row(made, 1)["yield_"] == pytest.approx(0.5)
    made.handle(Amend(1, minimum=0.8), 1.0)
    assert row(made, 1)["yield_"] >= 0.8 - 1e-9
    assert row(made, 2)["yield_"] <= 0.2 + 1e-9
    made.handle(Amend(1, minimum=0.0), 2.0)
    assert row(made, 1)["yield_"] == pytest.approx(0.5)
    first = next(iter(made.handle(Amend(1, need=0.5, last=False), 3.0)))
    assert (first.job_id, first.yield_) == (1, pytest.approx(1.0))


def test_the_policy_is_asked_after_the_last_change():
    made = queue(0.5, 0.5)
    before = made.decisions
    made.handle(Amend(2, need=0.25, last=False), 2.0)
    assert made.decisions == before
    made.handle(Amend(3, need=0.25), 2.0)
    assert made.decisions == before + 1


def test_a_held_job_is_changed_and_comes_back_so():
    made = queue(0.5)
    made.handle(Hold(2), 1.0)
    made.handle(Amend(2, need=0.75, minimum=0.5), 2.0)
    made.handle(Unhold(2), 3.0)
    assert (row(made, 2)["need"], row(made, 2)["minimum"]) == (0.75, 0.5)


@pytest.mark.parametrize("held", [False, True])
def test_a_job_that_is_taken_back_is_gone_and_may_come_again(held):
    made = queue(0.5, 0.5)
    made.handle(Amend(2, minimum=0.5), 2.0)
    if held:
        made.handle(Hold(2), 2.0)
    made.handle(Withdraw(2), 2.0)
    assert made.present == 2
    assert made._state.demanding == 0
    made.handle(Submit(2, 1, 0.5, 0.5), 3.0)
    assert next(c.job_id for c in made.handle(Complete(1), 4.0)) == 3


def test_one_that_is_taken_back_frees_the_head_of_the_queue():
    made = core(nodes=np.ones((2, 2)))
    made.handle(Submit(1, 1, 1.0, 1.0), 0.0)
    made.handle(Submit(2, 2, 1.0, 1.0), 0.0)
    made.handle(Submit(3, 1, 1.0, 1.0), 0.0)
    assert row(made, 3)["state"] == WAITING
    assert [c.job_id for c in made.handle(Withdraw(2), 1.0)] == [3]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Amend(9, need=0.5), "job 9: is not in the system"),
        (Amend(2, need=1.5), "need 1.5"),
        (Amend(2, memory=2.0), "memory 2.0"),
        (Amend(2, minimum=1.5), "minimum = 1.5"),
        (Amend(2, weight=0.0), "weight = 0.0: must be above 0"),
        (Amend(1, memory=0.5), "job 1: has begun: memory and requested_start_s must stay"),
        (Amend(1, requested_start_s=9.0), "job 1: has begun"),
        (Withdraw(1), "job 1: has begun: it cannot be taken back"),
        (Withdraw(9), "job 9: is not in the system"),
    ],
)
def test_what_cannot_be_changes_nothing(event, words):
    made = queue(0.5)
    before = {name: array.tobytes() for name, array in made.state().items()}
    with pytest.raises(InputError, match=words):
        made.handle(event, 2.0)
    assert {name: array.tobytes() for name, array in made.state().items()} == before


def test_the_document_says_what_stays():
    document = encode(Amend(2, need=0.5, estimate_s=math.inf))
    assert (document["need"], document["estimate_s"], document["memory"]) == (0.5, "inf", "nan")
    assert decode({"event": "amend", "job_id": 2, "need": 0.5}).changed == {"need": 0.5}
