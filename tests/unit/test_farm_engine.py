"""A farm in the core and in whole runs: what policies see, what jobs take, and a checker that notices lies."""

import csv
import json

import numpy as np
import pytest

from dfrs.engine.codec import decode, encode
from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Hold, Predicted, Submit, Unhold, Wake
from dfrs.engine.speeds import PredictedSpeeds
from dfrs.model.decisions import Placement, Target
from dfrs.model.errors import InputError
from dfrs.model.nodes import Condition, Join, NodeChange
from dfrs.model.run import Action, Penalty
from dfrs.model.true_speeds import EqualSpeeds
from dfrs.policies.names import find_policy
from dfrs.runs.directory import read_run, write_run
from dfrs.runs.metrics.intervals import virtual_time
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.replay import Replay
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.farm_cases import Clustered, farm_of, farm_workload, random_truth, settings_of
from tests.naive.progress import replayed
from tests.online_cases import plain_workload
from tests.small_policies import FromFunction, Mover, Stay
from tests.unit.test_simulation import same_events

FARM = farm_of()
SPEED = np.array([[0.5, 1.0], [0.25, 0.5], [2.0, 2.0]])
NODE_EVENTS = ((300.0, NodeChange(2, Condition.DOWN)), (900.0, NodeChange(2, Condition.UP)))


def simulation(seed, policy, *, jobs=30, **options):
    workload = farm_workload(seed, jobs=jobs)
    truth = random_truth(seed, jobs, FARM, parallel=seed % 2 == 1, stretch_s=options.pop("stretch_s", 0.7), copy_s=2.5)
    return Simulation(workload, policy, "p", settings_of(truth, FARM, **options))


def pinned(where):
    """A policy that puts job 1 on the nodes that `where` names."""
    return FromFunction(
        lambda s: (
            Target.of(s, {int(name): Placement(where["nodes"], 1.0) for name in s.jobs["id"] if name == 1})
            if where["nodes"]
            else Target.of(s, {})
        )
    )


def core_with_job(nodes=(0, 1)):
    where = {"nodes": nodes}
    core = Core(pinned(where), np.ones((9, 2)), speeds=PredictedSpeeds(FARM))
    core.handle(Submit(1, 2, 1.0, 0.1), 0.0)
    core._state.rows.jobs["ready_s"][0] = 0.0
    return core, where


def job_of(core):
    return core.snapshot().jobs[0]


def test_a_core_of_equal_nodes_shows_one_partition_and_refuses_predictions():
    core = Core(Stay(), np.ones((9, 2)))
    core.handle(Submit(1, 2, 1.0, 0.1), 0.0)
    view = core.snapshot().hardware
    assert (view.partition.tolist(), view.machine.tolist()) == ([0] * 9, list(range(9)))
    assert view.speed.tolist() == [[[1.0, 1.0]]]
    assert not any(name.startswith("speeds") for name in core.state())
    with pytest.raises(InputError, match="job 1: predicted on sub-clusters, but the cluster is no farm"):
        core.handle(Predicted(1, SPEED), 1.0)


def test_virtual_time_goes_on_at_the_speed_predicted_where_the_job_is():
    core, where = core_with_job()
    core.handle(Predicted(1, SPEED, 0.4, True), 10.0)
    assert (job_of(core)["virtual_s"], job_of(core)["speed"], job_of(core)["yield_"]) == (10.0, 0.5, 1.0)
    view = core.snapshot().hardware
    assert (view.speed[0] == SPEED).all()
    assert (view.required[0], view.swapping[0]) == (0.4, True)
    assert view.known.tolist() == [True]
    where["nodes"] = (2, 4)
    core.handle(Wake(), 30.0)
    assert (job_of(core)["virtual_s"], job_of(core)["speed"]) == (20.0, 0.125)
    assert not core.snapshot().hardware.swapping[0], "what it does there is not known yet"
    where["nodes"] = (6, 0)
    core.handle(Wake(), 31.0)
    assert job_of(core)["speed"] == 0.25, "the slowest of the sub-clusters it is in"
    where["nodes"] = ()
    core.handle(Wake(), 32.0)
    assert job_of(core)["speed"] == 1.0
    assert (core.snapshot().hardware.speed[0] == SPEED).all()


def test_what_a_later_profile_does_not_say_stays():
    core, _ = core_with_job()
    core.handle(Predicted(1, SPEED, 0.4), 10.0)
    later = np.full((3, 2), np.nan)
    later[1] = 4.0
    core.handle(Predicted(1, later), 20.0)
    view = core.snapshot().hardware
    assert view.speed[0].tolist() == [[0.5, 1.0], [4.0, 4.0], [2.0, 2.0]]
    assert view.required[0] == 0.4
    assert job_of(core)["speed"] == 0.25


def test_predictions_outlive_a_hold_and_a_lost_node_and_go_with_the_job():
    core, where = core_with_job()
    core.handle(Predicted(1, SPEED, 0.4, True), 10.0)
    core.handle(Hold(1), 11.0)
    assert len(core.snapshot().hardware.speed) == 0
    core.handle(Predicted(1, SPEED * 2), 11.5)
    core.handle(Unhold(1), 12.0)
    assert (core.snapshot().hardware.speed[0] == SPEED * 2).all()
    assert job_of(core)["speed"] == 0.5
    where["nodes"] = ()
    core.handle(NodeChange(0, Condition.DOWN), 13.0)
    assert (job_of(core)["speed"], job_of(core)["virtual_s"]) == (1.0, 0.0)
    assert core.snapshot().hardware.known[0]
    core.handle(Complete(1), 14.0)
    core.handle(Submit(1, 1, 1.0, 0.1), 15.0)
    assert not core.snapshot().hardware.known[0]


@pytest.mark.parametrize(
    ("event", "named"),
    [
        (Predicted(2, SPEED), "job 2: is not in the system"),
        (Predicted(1, SPEED[:2]), r"job 1: speed of shape \(2, 2\)"),
        (Predicted(1, -SPEED), "job 1: speed = "),
        (Predicted(1, SPEED * np.inf), "job 1: speed = "),
        (Predicted(1, SPEED, -0.1), "job 1: required = -0.1"),
        (Join(1.0, 1.0), "node 9: the farm has 9 nodes"),
    ],
)
def test_what_cannot_be_predicted_leaves_no_trace(event, named):
    core, _ = core_with_job()
    before = {name: array.copy() for name, array in core.state().items()}
    with pytest.raises(InputError, match=named):
        core.handle(event, 10.0)
    after = core.state()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_nodes_of_a_farm_may_join_one_by_one_but_not_more_than_it_has():
    core = Core(Stay(), np.zeros((0, 2)), speeds=PredictedSpeeds(FARM))
    for k in range(9):
        core.handle(Join(1.0, 1.0), float(k))
        assert len(core.snapshot().hardware.partition) == k + 1
    with pytest.raises(InputError, match="all have joined"):
        core.handle(Join(1.0, 1.0), 9.0)
    with pytest.raises(InputError, match="10 nodes, but the farm has 9"):
        Core(Stay(), np.ones((10, 2)), speeds=PredictedSpeeds(FARM))


def test_predictions_are_recorded_to_the_bit():
    event = Predicted(3, np.array([[0.1, np.nan], [1 / 3, 2.0]]), float("nan"), True)
    document = json.loads(json.dumps(encode(event), allow_nan=False))
    again = decode(document)
    assert isinstance(again, Predicted)
    assert again.speed.tobytes() == event.speed.tobytes()
    assert (again.job_id, again.swapping, np.isnan(again.required)) == (3, True, True)
    for wrong in ([1.0, 2.0], [[1.0]], [[1.0, "x"]], 3.0):
        with pytest.raises(InputError, match="predicted: speed"):
            decode(document | {"speed": wrong})


RUNS = {
    "clustered": (Clustered, {}),
    "clustered and lost nodes": (Clustered, {"node_events": NODE_EVENTS}),
    "everywhere": (Mover, {"penalty": Penalty(seconds=3.0)}),
    "submissions first": (Mover, {"order": "submissions-first"}),
    "slow copies": (Clustered, {"stretch_s": 4.0}),
}


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("seed", range(4))
def test_jobs_take_exactly_their_work_at_their_true_rates(kind, seed, tmp_path):
    policy, options = RUNS[kind]
    run = simulation(seed, policy(), **options).run()
    assert run.complete
    assert run.refused == ()
    done = run.workload.run_s.tolist()
    assert [float(v) for v in replayed(run)] == pytest.approx(done, rel=1e-9, abs=1e-6)
    assert virtual_time(run).tolist() == pytest.approx(done, rel=1e-9, abs=1e-6)
    replay = Replay(run)
    for _ in replay:
        pass
    assert [replay.virtual_s(j, run.end_s) for j in range(len(done))] == pytest.approx(done, rel=1e-9, abs=1e-6)
    write_run(run, tmp_path, summarize(run), "0")
    report = validate_run(tmp_path)
    assert report.problems == []


def test_the_runs_have_migrations_and_thrashing_in_them():
    runs = [simulation(seed, Clustered()).run() for seed in range(4)]
    assert sum(run.count(Action.MIGRATE).sum() for run in runs) > 30
    moves = [run.events.time_s[run.events.action == Action.MIGRATE] for run in runs]
    assert any(len(np.unique(times)) < len(times) for times in moves), "several jobs are moved at one instant"
    for run in runs[1::2]:
        assert run.speeds.parallel


def test_the_same_input_gives_the_same_bytes():
    one, other = (simulation(1, Clustered()).run() for _ in range(2))
    same_events(one, other)


@pytest.mark.parametrize("policy", [Clustered, Mover])
def test_a_run_stopped_anywhere_goes_on_alike(policy, monkeypatch):
    monkeypatch.setattr("dfrs.simulator.simulation.WATCHED", 1)
    whole = simulation(1, policy()).run()
    for stop in (1, 3, 10, 20, 25):
        first = simulation(1, policy())
        left = iter(range(stop * 4))
        first.run(lambda _, left=left: next(left, None) is not None)
        state = {name: array.copy() for name, array in first.state().items()}
        second = simulation(1, policy())
        second.restore(state)
        again = second.state()
        assert state.keys() == again.keys()
        assert all(np.asarray(state[n]).tobytes() == np.asarray(again[n]).tobytes() for n in state)
        same_events(whole, second.run())


def test_policies_are_told_what_profiling_predicts_tau_after_each_placement():
    seen = []
    rows = [(0, 2, 1.0, 0.1, 1000.0), (10, 1, 1.0, 0.1, 20.0)]
    workload = plain_workload(rows, nodes=9)
    truth = random_truth(0, 2, FARM)
    policy = Clustered(10.0, lambda s: seen.append((s.now_s, s.hardware.known.tolist())))
    policy.decide = _still(policy.decide)
    prediction = lambda job, cluster, colocated: np.full((3, 2), 1.0 + job + cluster + colocated)  # noqa: E731
    settings = settings_of(truth, FARM, prediction=prediction, tau_s=50.0)
    Simulation(workload, policy, "p", settings).run()
    known = dict(seen)
    assert known[40.0][0] is False
    assert known[50.0][0] is True, "the profile is complete before the policy wakes at that instant"


def _still(decide):
    """The same policy, but who runs stays."""

    def still(snapshot):
        target = decide(snapshot)
        run = dict(snapshot.placements)
        if snapshot.now_s > 10.0:
            return Target.of(snapshot, run, snapshot.now_s + 10.0)
        return target

    return still


def test_jobs_larger_than_any_sub_cluster_are_refused_for_policies_that_keep_to_one(tmp_path):
    workload = plain_workload([(0, 5, 1.0, 0.1, 10.0), (1, 4, 1.0, 0.5, 10.0), (2, 3, 1.0, 0.6, 10.0)], nodes=9)
    truth = random_truth(0, 3, FARM)
    run = Simulation(workload, Clustered(), "p", settings_of(truth, FARM)).run()
    assert run.refused == (0,)
    write_run(run, tmp_path, summarize(run), "0")
    assert validate_run(tmp_path).problems == []
    assert Simulation(workload, Mover(), "p", settings_of(truth, FARM)).refused == ()


@pytest.mark.parametrize(
    ("jobs", "nodes", "named"), [(2, 9, "rate has 2 rows"), (3, 8, "9 nodes: the capacity is of 8")]
)
def test_settings_that_are_not_of_the_workload_are_an_input_error(jobs, nodes, named):
    workload = plain_workload([(0, 1, 1.0, 0.1, 10.0)] * 3, nodes=9)
    settings = settings_of(random_truth(0, jobs, FARM), FARM)
    with pytest.raises(InputError, match=named):
        Simulation(
            workload, Clustered(), "p", SimulationSettings(capacity=np.ones((nodes, 2)), hardware=settings.hardware)
        )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run = simulation(2, Clustered()).run()
    write_run(run, folder, summarize(run), "0")
    assert validate_run(folder).problems == []
    return folder, run


def test_a_saved_farm_comes_back_to_the_bit(saved):
    folder, run = saved
    again = read_run(folder)
    for name in ("partition", "machine", "rate", "memory", "thrash"):
        assert (getattr(again.speeds, name) == getattr(run.speeds, name)).all(), name
    assert (again.speeds.partitions, again.speeds.copy_s) == (run.speeds.partitions, run.speeds.copy_s)
    assert virtual_time(again).tolist() == virtual_time(run).tolist()


def problems(saved, tmp_path, *, farm=None, events=None, summary=None):
    folder, _ = saved
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for name, change in (("farm.json", farm), ("summary.json", summary)):
        if change is not None:
            document = json.loads((tmp_path / name).read_text())
            change(document)
            (tmp_path / name).write_text(json.dumps(document))
    if events is not None:
        with (tmp_path / "events.csv").open() as file:
            rows = list(csv.reader(file))
        events(rows)
        with (tmp_path / "events.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    return validate_run(tmp_path).problems


def _faster(document):
    for job in document["jobs"]:
        job["rate"] = [[0.9 * rate for rate in pair] for pair in job["rate"]]


def _earlier(rows):
    """The last completion comes a second too early."""
    row = next(row for row in reversed(rows) if row[2] == "finish")
    row[0] = repr(float(row[0]) - 1.0)


def _across(rows):
    """A job of two tasks is started on the last node of A and the first of B."""
    next(row for row in rows[1:] if row[2] in ("start", "migrate") and row[3] in ("0-1", "2-3", "4-5"))[3] = "1-2"


def _within_the_move(rows):
    """A job that moved is done before it makes progress again."""
    last = max(k for k, row in enumerate(rows) if row[2] == "migrate")
    moved = rows[last]
    finish = next(row for row in rows[last:] if row[2] == "finish" and row[1] == moved[1])
    rows.remove(finish)
    rows.insert(last + 1, [moved[0], *finish[1:]])


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        ({"farm": _faster}, "finish at virtual time"),
        ({"events": _earlier}, "finish at virtual time"),
        ({"events": _across}, "across 2 sub-clusters"),
        ({"events": _within_the_move}, "finish at virtual time"),
        ({"farm": lambda d: d.update(copy_s=d["copy_s"] + 5)}, "virtual time"),
        ({"farm": lambda d: d.update(stretch_s=0.0)}, "virtual time"),
        ({"farm": lambda d: d.update(parallel=not d["parallel"])}, "virtual time"),
        ({"farm": lambda d: [job.update(thrash=1.0) for job in d["jobs"]]}, "virtual time"),
        ({"summary": lambda d: d["configuration"].update(farm=None)}, "virtual time"),
    ],
)
def test_the_checker_notices_each_lie_about_a_farm(saved, tmp_path, lie, named):
    found = problems(saved, tmp_path, **lie)
    assert any(named in problem for problem in found), found[:3]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.update(format="x"), "format"),
        (lambda d: d["cluster"].pop(), "cluster = "),
        (lambda d: d["cluster"].__setitem__(0, 9), "cluster = 9"),
        (lambda d: d["machine"].__setitem__(8, 0), "every machine must be in one sub-cluster"),
        (lambda d: d["jobs"].pop(), "is missing"),
        (lambda d: d["jobs"][0].update(rate=[[1, 1]]), r"jobs\[0\].rate"),
        (lambda d: d["jobs"][0]["rate"].__setitem__(0, [0, 1]), r"jobs\[0\].rate"),
        (lambda d: d["jobs"][0].update(thrash=0.5), r"jobs\[0\].thrash"),
        (lambda d: d.update(copy_s=-1), "copy_s"),
    ],
)
def test_a_file_that_is_not_of_its_form_is_an_input_error(saved, tmp_path, change, named):
    with pytest.raises(InputError, match=named):
        problems(saved, tmp_path, farm=change)


def test_a_run_without_a_farm_leaves_no_file_of_one(saved, tmp_path):
    folder, _ = saved
    (tmp_path / "farm.json").write_bytes((folder / "farm.json").read_bytes())
    run = Simulation(farm_workload(1), Mover(), "p", SimulationSettings(capacity=np.ones((9, 2)))).run()
    write_run(run, tmp_path, summarize(run), "0")
    assert not (tmp_path / "farm.json").exists()
    assert read_run(tmp_path).speeds == EqualSpeeds()
    assert "farm" not in json.loads((tmp_path / "summary.json").read_text())["configuration"]


@pytest.mark.parametrize("name", ["FARM-EASY", "ARRIVE-F", "ARRIVE-F/HEAD"])
@pytest.mark.parametrize("seed", range(3))
def test_on_equal_nodes_it_schedules_as_easy_and_nothing_migrates(name, seed, tmp_path):
    workload = farm_workload(seed).with_columns(need=np.ones(30))
    run, easy = (Simulation(workload, find_policy(each), each).run() for each in (name, "EASY"))
    assert run.complete
    assert run.count(Action.MIGRATE).sum() == 0
    assert run.start_s.tolist() == easy.start_s.tolist()
    write_run(run, tmp_path, summarize(run), "0")
    assert validate_run(tmp_path).problems == []
