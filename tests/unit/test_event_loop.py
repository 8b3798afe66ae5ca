"""The compiled event loop: it leaves what the interpreted engine leaves, bit for bit, whatever happens in a run."""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import batch
from dfrs.kernels.batch_loop import run_batch
from dfrs.kernels.event_loop import next_question
from dfrs.model.decisions import event_loop_of, traits_of
from dfrs.model.errors import DfrsError
from dfrs.model.jobs import LATEST_S
from dfrs.model.run import Penalty
from dfrs.policies.batch.backfilling import Easy
from dfrs.policies.fractional.policy import Dfrs
from dfrs.policies.names import find_policy
from dfrs.simulator.simulation import WATCHED, Simulation, SimulationSettings
from tests.cases import Seeded
from tests.elastic_cases import random_elastic_workload, random_settings
from tests.online_cases import edge_workload, random_workload
from tests.strategies import Drawn

BATCH = ("FCFS", "EASY", "EASY/SPARE", "EASY-E", "CONSERVATIVE")
FRACTIONAL = (
    "Greedy*/OPT=MIN",
    "GreedyP/per=13/OPT=NONE/PRIO=VT",
    "GreedyPM*/per=40/OPT=MIN/MVT=20",
    "MCB*/OPT=MIN/MFT=30",
    "/per=7.3/OPT=MIN/PRIO=FLOW/VT",
)
POLICIES = (*BATCH, *FRACTIONAL)


class Interpreted:
    """The same policy without its loop."""

    def __init__(self, policy):
        self._policy = policy
        self.traits = traits_of(policy)

    def decide(self, snapshot, /):
        return self._policy.decide(snapshot)

    def expand(self, snapshot, row, more, /):
        return self._policy.expand(snapshot, row, more)


class Asking(Interpreted):
    """A policy whose loop knows which event is next, and decides nothing."""

    def decide(self, snapshot, /):
        return self._policy.decide(snapshot)

    def event_loop(self, run, before_s, submissions_first, steps, /):
        return next_question(run, before_s, submissions_first, steps)


class OnlyCompiled(Easy):
    """EASY of which nothing but the loop works."""

    def decide(self, snapshot, /):
        raise AssertionError("asked")

    def event_loop(self, run, before_s, submissions_first, steps, /):
        return run_batch(batch.EASY, run, before_s, submissions_first, steps)


class Other(Easy):
    """Its loop is that of another policy."""

    def decide(self, snapshot, /):
        return super().decide(snapshot)

    def event_loop(self, run, before_s, submissions_first, steps, /):
        return run_batch(batch.FCFS, run, before_s, submissions_first, steps)


class DifferentError(AssertionError):
    """The two ways do not leave the same."""


def columns(table):
    return {f.name: getattr(table, f.name) for f in fields(table)}


def left(workload, policy, settings, looks=None):
    """All that a run leaves: how it ended, its log, answers and state; stopped after so many looks at it, if it is."""
    simulation = Simulation(workload, policy, "policy", settings)
    seen = []

    def watch(done):
        seen.append((done, simulation.now_s))
        return looks is None or len(seen) < looks

    try:
        run, error = simulation.run(watch), ""
    except DfrsError as failure:
        run, error = getattr(failure, "run", None), f"{type(failure).__name__}: {failure}"
    parts = {"error": error, "seen": seen, "decisions": simulation._core.decisions, **simulation.state()}
    if run is not None:
        parts |= {"complete": run.complete, "end_s": run.end_s, "refused": run.refused}
        parts |= columns(run.events) | {f"answer_{name}": column for name, column in columns(run.answers).items()}
    return parts


def compare(workload, policy, settings=None, interpreted=None):
    """Raises DifferentError where the two ways do."""
    mine = left(workload, policy, settings)
    theirs = left(workload, Interpreted(policy) if interpreted is None else interpreted, settings)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        if not np.array_equal(np.asarray(value).tobytes(), np.asarray(theirs[name]).tobytes()):
            raise DifferentError(f"{name}: {value} and {theirs[name]}")


@given(st.data(), st.sampled_from(POLICIES))
def test_what_users_and_nodes_do_in_between_comes_out_the_same(data, policy):
    source = Drawn(data.draw)
    workload = random_elastic_workload(source)
    compare(workload, find_policy(policy), random_settings(source, workload.nodes))


@given(st.data(), st.sampled_from(POLICIES))
def test_traces_at_the_edge_come_out_the_same(data, policy):
    source = Drawn(data.draw)
    settings = SimulationSettings(
        order=source.pick(("completions-first", "submissions-first")),
        penalty=source.pick((Penalty(), Penalty(seconds=3.0), Penalty(seconds=0.1, bytes_per_s=4e9))),
    )
    compare(edge_workload(source), find_policy(policy), settings)


@pytest.mark.parametrize("period_s", [1e-3, 1e-4, 1e-5])
def test_a_wake_that_is_not_after_the_decision_is_refused_as_ever(period_s):
    workload = random_workload(3, jobs=4, nodes=2, spread_s=0.01)
    latest = workload.with_columns(
        submit_s=LATEST_S - 1.0 + workload.submit_s, run_s=np.full(4, 0.02), estimate_s=np.full(4, 0.02)
    )
    compare(latest, find_policy(f"Greedy*/per={period_s}/OPT=MIN"))


@pytest.mark.parametrize("policy", FRACTIONAL)
def test_a_fractional_policy_has_its_loop(policy):
    assert event_loop_of(find_policy(policy)) is not None


@pytest.mark.parametrize("extension", ["/per=auto", "/due", "/per/REBALANCE"])
def test_a_policy_with_a_part_that_the_loop_does_not_know_is_asked(extension):
    assert event_loop_of(find_policy(f"Greedy*{extension}/OPT=MIN")) is None


def test_a_policy_with_a_new_part_is_asked():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Extended(Dfrs):
        part: str | None = None

    policy = find_policy("Greedy*/OPT=MIN")
    same = Extended(**{each.name: getattr(policy, each.name) for each in fields(policy)})
    assert event_loop_of(same) is not None
    assert event_loop_of(replace(same, part="any")) is None


@pytest.mark.parametrize("policy", BATCH)
@pytest.mark.parametrize("order", ["completions-first", "submissions-first"])
@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_jobs_come_out_the_same(policy, order, seed):
    compare(
        random_workload(seed, jobs=400, nodes=16, spread_s=12.0), find_policy(policy), SimulationSettings(order=order)
    )


def test_a_job_without_estimate_ends_the_run_where_it_would_have():
    workload = random_workload(1, jobs=60)
    estimate_s = np.where(np.arange(60) == 40, np.nan, workload.estimate_s)
    without = workload.with_columns(estimate_s=estimate_s)
    assert "has no estimate" in left(without, find_policy("EASY"), None)["error"]
    for policy in BATCH:
        compare(without, find_policy(policy))


@pytest.mark.parametrize("policy", ["EASY", "CONSERVATIVE", "GreedyPM*/per/OPT=MIN/MVT=20", "MCB*/per=60/OPT=MIN"])
@pytest.mark.parametrize("order", ["completions-first", "submissions-first"])
def test_what_a_loop_cannot_decide_the_engine_does(policy, order):
    workload = random_workload(6, jobs=150, nodes=8, spread_s=15.0)
    chosen, settings = find_policy(policy), SimulationSettings(order=order, penalty=Penalty(seconds=5.0))
    compare(workload, Asking(chosen), settings, Interpreted(chosen))


def test_what_cannot_be_performed_ends_the_run_with_its_rule():
    class Greedy(Asking):
        """All jobs on node 0."""

        def decide(self, snapshot, /):
            return replace(self._policy.decide(snapshot), task_nodes=np.zeros_like(snapshot.task_nodes))

        def event_loop(self, run, before_s, submissions_first, steps, /):
            return next_question(run, before_s, submissions_first, steps)

    policy = Greedy(Easy())
    assert "node 0 would give out more CPU" in left(random_workload(7), policy, None)["error"]
    compare(random_workload(7), policy, interpreted=Interpreted(policy))


def test_a_plain_run_never_leaves_the_loop():
    workload = random_workload(2, jobs=2 * WATCHED)
    assert left(workload, OnlyCompiled(), None)["complete"]


def test_the_comparison_tells_another_policys_loop():
    with pytest.raises(DifferentError):
        compare(random_workload(3, jobs=200), Other(), interpreted=Interpreted(Easy()))


def test_who_watches_sees_the_same():
    workload = random_workload(4, jobs=3 * WATCHED)
    for looks in (1, 2, 3):
        mine = left(workload, find_policy("EASY"), None, looks)
        theirs = left(workload, Interpreted(Easy()), None, looks)
        assert mine["seen"] == theirs["seen"]
        assert not mine["complete"]
        assert mine["end_s"] == theirs["end_s"]


@pytest.mark.parametrize("policy", FRACTIONAL)
def test_a_hundred_jobs_that_share_nodes_come_out_the_same(policy):
    settings = SimulationSettings(penalty=Penalty(seconds=5.0))
    compare(random_workload(11, jobs=100, nodes=8, spread_s=15.0), find_policy(policy), settings)


@pytest.mark.parametrize("policy", [*BATCH, "GreedyPM*/per=40/OPT=MIN/MVT=20"])
def test_each_goes_on_where_the_other_stopped(policy):
    workload = random_workload(5, jobs=3 * WATCHED, nodes=8)
    whole = left(workload, find_policy(policy), None)
    for first, second in (
        (find_policy(policy), Interpreted(find_policy(policy))),
        (Interpreted(find_policy(policy)), find_policy(policy)),
    ):
        stopped = Simulation(workload, first, "policy")
        stopped.run(lambda done: done < WATCHED)
        resumed = Simulation(workload, second, "policy")
        resumed.restore(stopped.state())
        events = columns(resumed.run().events)
        assert all(
            np.array_equal(column, whole[name], equal_nan=name == "yield_")
            for name, column in events.items()
            if name != "reasons"
        )


def test_a_policy_made_from_a_built_in_one_is_asked():
    class Mine(Easy):
        def decide(self, snapshot, /):
            return super().decide(snapshot)

    assert event_loop_of(Easy()) is not None
    assert event_loop_of(Mine()) is None
    assert event_loop_of(replace(Easy(), elastic=True)) is not None


def test_seeded_runs_come_out_the_same():
    for seed in range(40):
        source = Seeded(np.random.default_rng(seed))
        workload = random_elastic_workload(source)
        compare(workload, find_policy(POLICIES[seed % len(POLICIES)]), random_settings(source, workload.nodes))
