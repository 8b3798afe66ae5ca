"""Ties at one instant: each order is that of a simulator with a heap of events, start for start, and they differ."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.simulator.clock import Order, known_order, ties_of
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.naive.orders import easy_starts
from tests.small_policies import BATCH

PROCESSORS = 4
TIED = ("submissions-first", *(order for order in get_args(Order) if order.startswith("submissions-first-")))


def workload(jobs):
    submit_s, tasks, run_s, estimate_s = (np.array(column) for column in zip(*jobs, strict=True))
    return Workload(
        job_id=np.arange(len(jobs)) + 1,
        submit_s=submit_s.astype(np.float64),
        tasks=tasks,
        need=np.ones(len(jobs)),
        memory=np.zeros(len(jobs)),
        run_s=run_s.astype(np.float64),
        estimate_s=estimate_s.astype(np.float64),
        user=np.zeros(len(jobs), np.int64),
        weight=np.ones(len(jobs)),
        nodes=PROCESSORS,
    )


def starts(jobs, order, policy="EASY"):
    run = Simulation(workload(jobs), BATCH[policy](), policy, SimulationSettings(order=order)).run()
    return run.start_s.tolist()


def twin(jobs, order):
    ties = ties_of(order)
    return easy_starts(jobs, PROCESSORS, by_start=ties.by_start, by_estimate=ties.by_estimate)


@st.composite
def tied_jobs(draw):
    """Jobs of few seconds in whole seconds: much happens at one instant, and many estimates are exact."""
    jobs = []
    for _ in range(draw(st.integers(2, 14))):
        run_s = draw(st.integers(1, 5))
        estimate_s = run_s + draw(st.sampled_from([0, 0, 1, 3]))
        jobs.append((draw(st.integers(0, 12)), draw(st.integers(1, PROCESSORS)), run_s, estimate_s))
    return sorted(jobs, key=lambda job: job[0])


@pytest.mark.parametrize("order", TIED)
@given(jobs=tied_jobs())
def test_easy_starts_every_job_when_a_simulator_with_these_ties_does(order, jobs):
    assert starts(jobs, order) == twin(jobs, order)


def random_jobs(seed):
    rng = np.random.default_rng(seed)
    run_s = rng.integers(1, 6, 60)
    columns = np.sort(rng.integers(0, 80, 60)), rng.integers(1, 5, 60), run_s, run_s + rng.choice([0, 0, 1, 3], 60)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("order", TIED)
def test_no_order_is_another_one(order):
    """Over some random workloads, each differs from the twin of every other."""
    for other in TIED:
        assert any(starts(random_jobs(seed), order) != twin(random_jobs(seed), other) for seed in range(20)) == (
            order != other
        )


def test_the_job_that_started_first_is_done_first():
    """Jobs 2 and 6 end at 8 s. After 2, its two processors are all that is free, and job 3 waits for four of them."""
    jobs = [(0, 3, 4, 4), (0, 2, 4, 6), (1, 4, 2, 2), (2, 3, 5, 5), (3, 2, 1, 1), (3, 1, 5, 5)]
    assert starts(jobs, "submissions-first") == [0.0, 4.0, 8.0, 10.0, 15.0, 3.0]
    assert starts(jobs, "submissions-first-by-start") == [0.0, 4.0, 9.0, 11.0, 8.0, 3.0]


def test_processors_whose_estimate_ends_now_are_for_who_waits_before_who_comes():
    """At 5 s job 1 ends as estimated. Job 3 has waited for 2 of its processors, but 1 of them goes to job 4."""
    jobs = [(2, 3, 3, 3), (2, 2, 5, 5), (3, 2, 2, 2), (5, 1, 2, 2)]
    assert starts(jobs, "submissions-first") == [2.0, 5.0, 7.0, 5.0]
    assert starts(jobs, "submissions-first-by-estimate") == [2.0, 5.0, 5.0, 7.0]


@pytest.mark.parametrize("policy", ["CONSERVATIVE", "FCFS"])
@pytest.mark.parametrize("order", TIED)
def test_every_job_starts_under_other_policies(policy, order):
    assert np.isfinite(starts(random_jobs(3), order, policy)).all()


def test_a_job_past_its_estimate_keeps_its_nodes():
    """By its estimate job 1 ends at 2 s; job 2 has nodes when it really ends, and job 3, which comes then, after it."""
    jobs = [(0, 4, 6, 2), (1, 4, 2, 2), (6, 1, 1, 1)]
    assert starts(jobs, "submissions-first-by-estimate") == [0.0, 6.0, 8.0]


def test_a_misspelt_order_is_refused_with_all_of_them():
    with pytest.raises(InputError) as caught:
        known_order("submission-first")
    assert str(caught.value) == (
        'order "submission-first": must be completions-first, submissions-first, submissions-first-by-start, '
        "submissions-first-by-estimate or submissions-first-by-start-and-estimate"
    )
    with pytest.raises(InputError, match='order "x": must be completions-first, '):
        Simulation(workload([(0, 1, 1, 1)]), BATCH["EASY"](), "EASY", SimulationSettings(order="x"))
