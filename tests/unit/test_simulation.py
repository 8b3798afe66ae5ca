"""Whole runs: everybody finishes, work is conserved, and stopping and continuing leaves no trace."""

import io
from dataclasses import fields
from itertools import count

import numpy as np
import pytest

from dfrs.experiments.simulations import measured
from dfrs.model.decisions import Cause, Target
from dfrs.model.errors import InputError
from dfrs.model.nodes import Condition, NodeChange
from dfrs.model.run import Action, Penalty
from dfrs.policies.names import find_policy
from dfrs.runs.directory import FILES, write_run
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator import simulation as simulator
from dfrs.simulator.simulation import PolicyStoppedError, Simulation, SimulationSettings
from tests.naive.progress import replayed
from tests.online_cases import empty_workload, plain_workload, random_workload
from tests.small_policies import BATCH, FairShare, FromFunction, Mover, Stay, Swapper

POLICIES = {
    "FCFS": BATCH["FCFS"],
    "EASY": BATCH["EASY"],
    "fair": FairShare,
    "fair/per": lambda: FairShare(60.0),
    "mover": Mover,
}
NODE_EVENTS = (
    (50.0, NodeChange(1, Condition.DOWN)),
    (50.0, NodeChange(2, Condition.DRAIN)),
    (230.5, NodeChange(1, Condition.UP)),
    (300.0, NodeChange(2, Condition.UP)),
    (400.0, NodeChange(0, Condition.DOWN)),
    (401.0, NodeChange(0, Condition.UP)),
)
SETTINGS = {
    "plain": SimulationSettings(),
    "penalty": SimulationSettings(penalty=Penalty(seconds=13.7)),
    "size": SimulationSettings(penalty=Penalty(seconds=1.0, bytes_per_s=2e9), seed=3),
    "submissions-first": SimulationSettings(order="submissions-first", penalty=Penalty(seconds=5.0)),
    "by start and estimate": SimulationSettings(
        order="submissions-first-by-start-and-estimate", penalty=Penalty(seconds=5.0)
    ),
    "unequal": SimulationSettings(capacity=np.array([[2.0, 1.5], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.5, 1.0]])),
    "nodes": SimulationSettings(node_events=NODE_EVENTS, penalty=Penalty(seconds=5.0)),
}


def simulate(workload, policy, settings="plain", watch=None):
    return Simulation(workload, POLICIES[policy](), policy, SETTINGS[settings]).run(watch)


def same_events(one, other):
    for f in fields(one.events):
        a, b = getattr(one.events, f.name), getattr(other.events, f.name)
        assert (a == b) if isinstance(a, tuple) else np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), f.name
    assert (one.complete, one.end_s, one.refused) == (other.complete, other.end_s, other.refused)


def files(run, directory):
    write_run(run, directory, {}, "0")
    return [(directory / name).read_bytes() for name in FILES]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("policy", POLICIES)
def test_all_jobs_finish_with_exactly_their_work_and_the_log_obeys_all_rules(policy, settings):
    for seed in range(3):
        workload = random_workload(seed)
        run = simulate(workload, policy, settings)
        assert run.complete
        assert run.refused == ()
        virtual = replayed(run)
        assert [float(v) for v in virtual] == pytest.approx(workload.run_s.tolist(), rel=1e-9, abs=1e-6)
        assert np.isfinite(run.finish_s).all()
        assert (run.count(Action.FINISH) == 1).all()
        assert run.end_s == run.events.time_s[-1] >= run.finish_s.max()
        assert (run.start_s >= workload.submit_s).all()
        assert (run.finish_s - run.start_s >= workload.run_s * (1 - 1e-9)).all()


def test_the_workloads_make_every_action_happen():
    runs = [simulate(random_workload(seed), "mover", "nodes") for seed in range(1, 4)]
    assert {action for run in runs for action in run.events.action.tolist()} == {*map(int, Action)} - {Action.RESIZE}


@pytest.mark.parametrize("settings", ["penalty", "nodes", "submissions-first"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_input_gives_the_same_bytes(policy, settings, tmp_path):
    one, other = (simulate(random_workload(5), policy, settings) for _ in range(2))
    same_events(one, other)
    assert files(one, tmp_path / "a") == files(other, tmp_path / "b")


def saved(simulation):
    """The state as it would be on disk."""
    buffer = io.BytesIO()
    np.savez(buffer, **simulation.state())
    buffer.seek(0)
    return np.load(buffer, allow_pickle=False)


@pytest.mark.parametrize("settings", ["penalty", "nodes", "submissions-first", "by start and estimate", "size"])
@pytest.mark.parametrize("policy", ["EASY", "fair/per", "mover"])
def test_a_run_stopped_anywhere_saved_and_continued_is_the_uninterrupted_one(policy, settings, monkeypatch, tmp_path):
    monkeypatch.setattr(simulator, "WATCHED", 1)
    workload = random_workload(11, jobs=20)
    whole = simulate(workload, policy, settings)
    wanted = files(whole, tmp_path / "whole")
    for stops in ([1], [2, 3, 5, 7], [40], [1] * 400):
        simulation = Simulation(workload, POLICIES[policy](), policy, SETTINGS[settings])
        run, pending = None, list(stops)
        while run is None or not run.complete:
            left = pending.pop(0) if pending else 10**9

            seen = count(1)

            def watch(_done, seen=seen, left=left):
                return next(seen) < left

            run = simulation.run(watch)
            if not run.complete:
                assert len(run.events) <= len(whole.events)
                assert run.end_s <= whole.end_s
                replayed(run)
                state = saved(simulation)
                simulation = Simulation(workload, POLICIES[policy](), policy, SETTINGS[settings])
                simulation.restore(state)
        same_events(run, whole)
        assert files(run, tmp_path / "parts") == wanted


def test_watch_is_told_how_many_jobs_are_done_and_can_just_go_on(monkeypatch):
    monkeypatch.setattr(simulator, "WATCHED", 1)
    seen = []
    run = simulate(random_workload(2), "fair", watch=lambda done: seen.append(done) or True)
    assert seen == sorted(seen)
    assert seen[-1] == len(run.workload)


def test_a_partial_run_ends_when_it_was_stopped_even_if_nothing_was_logged_then(monkeypatch):
    monkeypatch.setattr(simulator, "WATCHED", 1)
    workload = plain_workload([(100, 1, 1.0, 0.1, 50)])
    policy = FromFunction(lambda s: Target(s.task_nodes, s.jobs["yield_"].copy(), s.now_s + 1))
    run = Simulation(workload, policy, "idle").run(lambda _: False)
    assert not run.complete
    assert run.end_s == 100.0


# Small worlds whose outcome is known.


def rows(run):
    """(time, job, action) of each row."""
    e = run.events
    return [
        (t, j, Action(a).name) for t, j, a in zip(e.time_s.tolist(), e.job.tolist(), e.action.tolist(), strict=True)
    ]


def test_an_empty_workload_is_a_complete_run_without_events(tmp_path):
    run = Simulation(empty_workload(), FairShare(10.0), "fair/per").run()
    assert (run.complete, len(run.events), run.end_s) == (True, 0, 0.0)
    files(run, tmp_path)


def test_jobs_that_can_never_run_are_refused_and_the_others_run(tmp_path):
    workload = plain_workload(
        [(0, 3, 0.1, 0.7, 5), (1, 2, 0.1, 0.7, 5), (2, 5, 0.1, 0.5, 5), (3, 4, 0.1, 0.5, 5)], nodes=2
    )
    run = Simulation(workload, FairShare(), "fair").run()
    assert run.refused == (0, 2)
    assert run.complete
    assert np.isnan(run.finish_s).tolist() == [True, False, True, False]
    assert set(run.events.job.tolist()) == {1, 3}
    files(run, tmp_path)


def test_batch_policies_refuse_also_what_has_too_much_cpu():
    workload = plain_workload([(0, 2, 0.6, 0.1, 5), (0, 3, 0.6, 0.1, 5), (0, 4, 0.5, 0.1, 5)], nodes=2)
    assert Simulation(workload, BATCH["FCFS"](), "FCFS").run().refused == (1,)
    assert Simulation(workload, FairShare(), "fair").run().refused == ()


@pytest.mark.parametrize("name", ["Greedy*", "/per", "GreedyPM*/per/OPT=MIN/MVT=600", "EASY"])
@pytest.mark.parametrize("memory", [0.0, 0.6])
def test_nodes_without_cpu_hold_no_job(tmp_path, name, memory):
    """The first job needs two nodes and the only one with CPU has memory for one of its tasks, or for both."""
    capacity = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    workload = plain_workload([(0, 2, 0.5, memory, 50), (1, 1, 0.5, 0.1, 5)], nodes=3)
    run = Simulation(workload, find_policy(name), name, SimulationSettings(capacity=capacity)).run()
    assert (run.complete, run.refused) == (True, (0,) if memory else ())
    assert {node for row in range(len(run.events)) for node in run.events.nodes_of(row)} == {0}
    write_run(run, tmp_path, measured(run, bound=False), "0")
    assert validate_run(tmp_path).problems == []
    nowhere = Simulation(workload, find_policy(name), name, SimulationSettings(capacity=capacity[1:])).run()
    assert (nowhere.complete, nowhere.refused) == (True, (0, 1))


def test_refusing_everything_is_a_complete_run(tmp_path):
    run = Simulation(plain_workload([(0, 3, 0.1, 0.7, 5)], nodes=2), FairShare(1.0), "fair").run()
    assert (run.complete, run.refused, len(run.events)) == (True, (0,), 0)
    files(run, tmp_path)


def test_submissions_at_one_instant_are_seen_one_by_one_in_order():
    seen = []

    def decide(snapshot):
        seen.append((snapshot.cause, snapshot.jobs["id"].tolist()))
        return FairShare().decide(snapshot)

    run = Simulation(plain_workload([(7, 1, 0.2, 0.1, 10)] * 4), FromFunction(decide), "x").run()
    assert seen[:4] == [(Cause.SUBMISSION, list(range(1, k + 2))) for k in range(4)]
    assert run.finish_s.tolist() == [17.0] * 4


@pytest.mark.parametrize(("order", "seen"), [("completions-first", [1, 0, 1]), ("submissions-first", [1, 2, 1])])
def test_order_decides_who_comes_first_at_one_instant(order, seen):
    counts = []

    def decide(snapshot):
        counts.append(len(snapshot.jobs))
        return FairShare().decide(snapshot)

    workload = plain_workload([(0, 1, 1.0, 0.1, 10), (10, 1, 1.0, 0.1, 10)])
    Simulation(workload, FromFunction(decide), "x", SimulationSettings(order=order)).run()
    assert counts[:3] == seen


def test_swapping_full_nodes_is_logged_as_migrations_alone():
    workload = plain_workload([(0, 1, 1.0, 1.0, 35)] * 3, nodes=3)
    run = Simulation(workload, Swapper(10.0), "swap", SimulationSettings(penalty=Penalty(seconds=2.0))).run()
    assert run.count(Action.MIGRATE).tolist() == [4] * 3
    assert run.count(Action.PAUSE).tolist() == [0] * 3
    assert run.finish_s.tolist() == [43.0] * 3
    replayed(run)


def test_jobs_done_at_the_same_instant_finish_then_whatever_the_policy_wants():
    """The first completion makes the policy move the other job, which is done too."""
    workload = plain_workload([(0, 1, 0.5, 0.1, 50)] * 2, nodes=2)
    policy = FromFunction(
        lambda s: Target(np.full(len(s.task_nodes), int(s.cause == Cause.COMPLETION)), np.ones(len(s.jobs)))
    )
    run = Simulation(workload, policy, "x", SimulationSettings(penalty=Penalty(seconds=300.0))).run()
    assert run.finish_s.tolist() == [50.0, 50.0]


def test_a_periodic_policy_is_not_asked_after_the_last_job():
    asked = []

    def decide(snapshot):
        asked.append(snapshot.now_s)
        return FairShare(10.0).decide(snapshot)

    run = Simulation(plain_workload([(0, 1, 1.0, 0.1, 25)]), FromFunction(decide), "x").run()
    assert asked == [0.0, 10.0, 20.0, 25.0]
    assert run.end_s == 25.0


def test_wakes_that_were_overtaken_are_not_answered():
    asked = []

    def decide(snapshot):
        asked.append((snapshot.now_s, snapshot.cause))
        wake = {0.0: 30.0, 5.0: 20.0, 6.0: 30.0, 30.0: 31.0}.get(snapshot.now_s)
        target = FairShare().decide(snapshot)
        return Target(target.task_nodes, target.yields, wake)

    workload = plain_workload([(0, 1, 0.1, 0.1, 100), (5, 1, 0.1, 0.1, 100), (6, 1, 0.1, 0.1, 100)])
    Simulation(workload, FromFunction(decide), "x").run()
    assert [at for at, cause in asked if cause == Cause.WAKE] == [30.0, 31.0]


def test_a_failed_node_costs_all_work_and_a_drained_one_none():
    workload = plain_workload([(0, 1, 1.0, 0.1, 100), (0, 1, 1.0, 0.1, 100)], nodes=2)
    changes = (
        (60.0, NodeChange(0, Condition.DOWN)),
        (60.0, NodeChange(1, Condition.DRAIN)),
        (80.0, NodeChange(0, Condition.UP)),
    )
    run = Simulation(workload, BATCH["FCFS"](), "FCFS", SimulationSettings(node_events=changes)).run()
    assert rows(run) == [
        (0.0, 0, "START"),
        (0.0, 1, "START"),
        (60.0, -1, "DOWN"),
        (60.0, 0, "LOST"),
        (60.0, -1, "DRAIN"),
        (80.0, -1, "UP"),
        (80.0, 0, "START"),
        (100.0, 1, "FINISH"),
        (180.0, 0, "FINISH"),
    ]


def test_a_node_event_for_a_node_that_is_not_there_is_refused_before_the_run():
    settings = SimulationSettings(node_events=((10.0, NodeChange(2, Condition.DOWN)),))
    with pytest.raises(InputError, match="2"):
        Simulation(plain_workload([(0, 1, 1.0, 0.1, 25)], nodes=2), FairShare(), "fair", settings)


@pytest.mark.parametrize(
    "capacity", [np.ones((0, 2)), np.ones((3, 1)), np.ones(3), np.full((2, 2), np.nan), np.full((2, 2), -1.0)]
)
def test_a_capacity_that_is_none_is_refused(capacity):
    with pytest.raises(InputError, match="capacity"):
        Simulation(plain_workload([(0, 1, 1.0, 0.1, 25)]), FairShare(), "fair", SimulationSettings(capacity=capacity))


@pytest.mark.parametrize(
    "values",
    [
        *({name: value} for name in ("seconds", "node_bytes", "bytes_per_s") for value in (np.inf, np.nan, -1.0)),
        {"bytes_per_s": 0.0},
    ],
)
def test_a_penalty_that_is_none_is_refused(values):
    with pytest.raises(InputError, match=next(iter(values))):
        Penalty(**values)


# Policies that end their run.


def changed(**changes):
    """FairShare until the third job is there; then its target with a change."""

    def decide(snapshot):
        target = FairShare(5.0).decide(snapshot)
        if len(snapshot.jobs) < 3:
            return target
        values = {"task_nodes": target.task_nodes, "yields": target.yields, "wake_at_s": target.wake_at_s}
        return Target(**{**values, **{name: change(values[name]) for name, change in changes.items()}})

    return decide


def fails(snapshot):
    if len(snapshot.jobs) == 3:
        raise RuntimeError("no idea\nat all")
    return FairShare().decide(snapshot)


THREE = [(0, 1, 0.5, 0.1, 100), (10, 1, 0.5, 0.1, 100), (20, 1, 0.5, 0.1, 100)]


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (fails, ["RuntimeError", "20 s"]),
        (changed(yields=lambda y: y * np.nan), ["job 1", "nan", "20 s"]),
        (changed(yields=np.ones_like), ["job 3", "CPU", "20 s"]),
        (changed(task_nodes=lambda n: n + 1), ["job 1", "node 1", "20 s"]),
        (changed(wake_at_s=lambda _: 20.0), ["woken", "20 s"]),
    ],
)
def test_what_a_policy_does_wrong_ends_the_run_and_leaves_its_log(decide, words, tmp_path):
    with pytest.raises(PolicyStoppedError) as caught:
        Simulation(plain_workload(THREE), FromFunction(decide), "the policy").run()
    message, run = str(caught.value), caught.value.run
    assert "\n" not in message
    for word in ["policy the policy", *words]:
        assert word in message
    assert not run.complete
    assert rows(run)[:2] == [(0.0, 0, "START"), (10.0, 1, "START")]
    assert run.end_s == 20.0
    files(run, tmp_path)


def test_a_policy_that_fails_at_a_completion_leaves_a_log_that_ends_there():
    def decide(snapshot):
        if snapshot.cause == Cause.COMPLETION:
            raise RuntimeError("no idea")
        return FairShare().decide(snapshot)

    with pytest.raises(PolicyStoppedError, match="at 100 s") as caught:
        Simulation(plain_workload([(0, 1, 1.0, 0.1, 100), (1, 1, 0.1, 1.0, 5)]), FromFunction(decide), "x").run()
    run = caught.value.run
    assert rows(run)[-1] == (100.0, 0, "FINISH")
    assert run.end_s == 100.0
    replayed(run)


def waking(decide):
    def decided(snapshot):
        target = decide(snapshot)
        return Target(target.task_nodes, target.yields, snapshot.now_s + 10.0)

    return decided


def at_yield_zero(snapshot):
    return Target(np.zeros_like(snapshot.task_nodes), np.zeros(len(snapshot.jobs)))


@pytest.mark.parametrize("decide", [Stay().decide, waking(Stay().decide), at_yield_zero, waking(at_yield_zero)])
def test_a_policy_under_which_no_job_gets_on_is_stopped_and_names_one(decide, tmp_path):
    with pytest.raises(PolicyStoppedError, match=r"policy idle at \d+ s: job 1 ") as caught:
        Simulation(plain_workload(THREE), FromFunction(decide), "idle").run()
    assert not caught.value.run.complete
    assert caught.value.run.end_s >= 20.0
    files(caught.value.run, tmp_path)


def test_a_policy_that_waits_before_it_places_jobs_is_not_stopped():
    def decide(snapshot):
        return FairShare(10.0).decide(snapshot) if snapshot.now_s >= 500 else waking(Stay().decide)(snapshot)

    assert Simulation(plain_workload(THREE), FromFunction(decide), "late").run().complete


def test_a_policy_that_moves_jobs_more_often_than_a_penalty_lasts_is_stopped(monkeypatch, tmp_path):
    monkeypatch.setattr(simulator, "FRUITLESS_WAKES", 2000)
    workload = plain_workload([(0, 1, 1.0, 1.0, 35)] * 2, nodes=2)
    with pytest.raises(PolicyStoppedError, match=r"policy swap at .*job 1 ") as caught:
        Simulation(workload, Swapper(10.0), "swap", SimulationSettings(penalty=Penalty(seconds=11.0))).run()
    assert caught.value.run.count(Action.MIGRATE).min() > 10
    files(caught.value.run, tmp_path)


def test_a_long_job_under_a_policy_that_wakes_often_is_not_taken_for_one_without_headway(monkeypatch):
    monkeypatch.setattr(simulator, "FRUITLESS_WAKES", 200)
    run = Simulation(plain_workload([(0, 1, 1.0, 0.1, 3000)]), FairShare(10.0), "fair/per").run()
    assert run.complete


def test_a_policy_that_pauses_jobs_within_their_penalty_is_stopped(monkeypatch):
    monkeypatch.setattr(simulator, "FRUITLESS_WAKES", 200)

    def decide(snapshot):
        on = (snapshot.task_nodes < 0).astype(np.int64)
        return Target(on - 1, on.astype(np.float64), snapshot.now_s + 10.0)

    with pytest.raises(PolicyStoppedError, match=r"policy x at .*job 1 makes no headway"):
        Simulation(
            plain_workload([(0, 1, 1.0, 0.1, 35)]),
            FromFunction(decide),
            "x",
            SimulationSettings(penalty=Penalty(seconds=11.0)),
        ).run()


@pytest.mark.parametrize(
    ("jobs", "node_events"),
    [
        ([(0, 1, 1.0, 0.1, 20), (5000, 1, 1.0, 0.1, 20)], ()),
        ([(0, 1, 1.0, 0.1, 20)], ((1.0, NodeChange(0, Condition.DOWN)), (5000.0, NodeChange(0, Condition.UP)))),
    ],
)
def test_a_policy_that_wakes_often_may_wait_long_for_jobs_and_for_nodes(monkeypatch, jobs, node_events):
    monkeypatch.setattr(simulator, "FRUITLESS_WAKES", 200)
    settings = SimulationSettings(node_events=node_events)
    run = Simulation(plain_workload(jobs), FairShare(10.0), "fair/per", settings).run()
    assert run.complete
    assert run.end_s == 5020.0
