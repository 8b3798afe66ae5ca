"""Weights, decay, deadlines and budgets: what they promise, on whole runs."""

import numpy as np
import pytest

from dfrs.engine.state import HOUR_S
from dfrs.model.decisions import Cause
from dfrs.model.errors import InputError
from dfrs.model.run import Action, Penalty
from dfrs.policies.fractional.extensions import LEAST_PART, Budgeted, Deadlines, ScaledObjective
from dfrs.policies.names import find_policy
from dfrs.runs.metrics.intervals import tasks_moved
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.testing import SnapshotJob, build_snapshot, check_target
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.job_values import with_job_values
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.transform import scale_to_load
from tests import toy_runs

MAIN = "GreedyP*/per/OPT=MIN/MVT=600"


def workload(seed=3, jobs=120, load=0.9, nodes=16):
    made = to_workload(generate(Lublin.of(jobs=jobs, nodes=nodes), seed=seed), nodes=nodes, seed=seed)[0]
    return scale_to_load(made, load)


def run(work, name):
    return Simulation(work, find_policy(name), name, SimulationSettings(penalty=Penalty(seconds=300.0))).run()


class Spy:
    """Looks at every snapshot and target of a policy."""

    def __init__(self, name, look):
        self.policy, self.look = find_policy(name), look

    def decide(self, snapshot):
        target = self.policy.decide(snapshot)
        self.look(snapshot, target)
        return target


@pytest.mark.parametrize("amount", [0.5, 2.0, 4.0])
def test_a_budget_holds_in_every_hour_and_binds(amount):
    work = workload()
    moved = {}
    for name in (MAIN, f"{MAIN}/BUDGET={amount}"):
        made = run(work, name)
        migrates = made.events.action == Action.MIGRATE
        memory = (tasks_moved(made) * made.workload.memory[made.events.job])[migrates]
        times = made.events.time_s[migrates]
        moved[name] = max((memory[(times > t - HOUR_S) & (times <= t)].sum() for t in times), default=0.0)
    assert moved[f"{MAIN}/BUDGET={amount}"] <= amount + 1e-9 < moved[MAIN]


def budgeted(jobs, trial, *, amount, nodes=3, closed=()):
    """Where a repacking of `jobs` to `trial`, the node of each task, puts them within a budget."""
    shot = build_snapshot(jobs, nodes=nodes, closed=closed)

    def repack(_snapshot, slots, reasons):
        slots[:] = trial
        reasons[:] = 5

    slots, reasons = shot.task_nodes.copy(), np.zeros(len(shot.jobs), np.int64)
    Budgeted(repack=repack, budget=amount)(shot, slots, reasons)
    return slots.tolist()


def test_jobs_leave_a_closed_node_as_far_as_the_budget_goes():
    jobs = [SnapshotJob(nodes=(2,), need=0.3, memory=memory) for memory in (0.3, 0.4, 0.1)]
    after = budgeted(jobs, [0, 1, 0], amount=0.5, closed=(2,))
    assert after[0] != 2
    assert after[1] == 2, "too little is left of the budget for it"
    assert after[2] != 2
    assert budgeted(jobs, [0, 1, 0], amount=0.05, closed=(2,)) == [2, 2, 2]
    assert budgeted(jobs, [0, 1, 0], amount=0.9, closed=(2,)) == [0, 1, 0]


def test_what_leaves_a_closed_node_leaves_less_of_the_budget_to_others():
    jobs = [SnapshotJob(nodes=(2,), need=0.1, memory=0.3)]
    jobs += [SnapshotJob(nodes=(0,), need=0.5, memory=0.2, yield_=0.5) for _ in range(4)]
    after = budgeted(jobs, [1, 1, 1, 0, 0], amount=0.6, closed=(2,))
    assert after[0] != 2
    assert sorted(after[1:]) == [0, 0, 0, 1]


def test_a_job_that_only_a_closed_node_can_hold_does_not_keep_others_from_being_packed():
    jobs = [SnapshotJob(nodes=(2,), need=1.0, memory=1.5)]
    jobs += [SnapshotJob(nodes=(0,), need=0.5, memory=0.2, yield_=0.5) for _ in range(4)]
    sizes = [(1.0, 1.0), (1.0, 1.0), (1.0, 2.0)]
    after = budgeted(jobs, [2, 1, 1, 1, 0], amount=0.5, nodes=sizes, closed=(2,))
    assert after[0] == 2
    assert sorted(after[1:]) == [0, 0, 1, 1]


def test_a_job_that_keeps_a_task_on_a_closed_node_keeps_the_others_where_they_are():
    jobs = [SnapshotJob(nodes=(0, 2), need=1.0, memory=0.1, yield_=0.4)]
    jobs += [SnapshotJob(nodes=(0,), need=0.5, memory=0.3, yield_=0.5) for _ in range(2)]
    after = budgeted(jobs, [0, 2, 1, 1], amount=0.5, closed=(2,))
    assert after[:2] == [0, 2]
    assert sorted(after[2:]) == [0, 1]


def test_weights_part_the_yield_where_cpu_is_short():
    seen = []

    def look(snapshot, target):
        weight, yields = snapshot.jobs["weight"], target.yields
        placed = yields > 0
        if placed.sum() > 1 and yields[placed].max() < 1.0:
            seen.append(np.ptp(weight[placed]) > 0 and yields[placed].max() > 1.5 * yields[placed].min())

    work = workload(nodes=4, jobs=80)
    work = work.with_columns(weight=np.where(np.arange(len(work)) % 2 == 0, 4.0, 1.0))
    Simulation(work, Spy(f"{MAIN}/WEIGHT", look), "x").run()
    assert any(seen)


def test_equal_weights_and_slow_decay_change_nothing():
    work = workload()
    plain = run(work, MAIN)
    assert np.array_equal(run(work, f"{MAIN}/WEIGHT").finish_s, plain.finish_s)
    assert not np.array_equal(run(work, f"{MAIN}/DECAY=60").finish_s, plain.finish_s)


@pytest.mark.parametrize("weight", [1e-8, 1e-15, 1e-310])
@pytest.mark.parametrize("name", ["/per/WEIGHT", "/per/WEIGHT/VP_CPSUM", "MCB*/WEIGHT/DECAY=10"])
def test_the_search_ends_however_far_weights_are_apart(name, weight):
    jobs = [SnapshotJob(need=0.1), SnapshotJob(tasks=3, weight=weight)]
    shot = build_snapshot(jobs, cause=Cause.SUBMISSION if name.startswith("MCB") else Cause.WAKE)
    # Checked first: the search of a part that is too small can only be ended from outside.
    _, part = ScaledObjective(weighted=True)(shot)
    assert part.tolist() == [1.0, max(weight, LEAST_PART)]
    target = find_policy(name).decide(shot)
    check_target(shot, target)
    assert target.yields.tolist() == pytest.approx([1.0, 0.45], abs=0.06)


def test_a_job_of_almost_no_weight_does_not_overfill_its_node():
    work = toy_runs.workload([(1, 0, 1, 0.5, 0.1, 1000), (2, 0, 1, 1.0, 0.1, 1000)], nodes=1)
    made = run(work.with_columns(weight=np.array([1.0, 1e-9])), f"{MAIN}/WEIGHT")
    assert made.complete
    assert made.finish_s == pytest.approx([1000.0, 1500.0], abs=1.0)


def test_a_long_running_job_is_due_less():
    def look(snapshot, _target):
        _, part = ScaledObjective(decay_s=100.0)(snapshot)
        assert ((part > 0) & (part <= 1)).all()
        assert (np.argsort(part, kind="stable") == np.argsort(-snapshot.jobs["virtual_s"], kind="stable")).all()
        assert part == pytest.approx(100.0 / (100.0 + snapshot.jobs["virtual_s"]))

    Simulation(workload(jobs=40), Spy(MAIN, look), "x").run()


def test_it_wakes_when_a_stretch_has_doubled_and_not_much_sooner():
    checked = 0

    def look(snapshot, target):
        nonlocal checked
        wake_at_s = target.wake_at_s
        assert wake_at_s == Deadlines(60.0)(snapshot, target.yields)
        if wake_at_s is None:
            return
        assert wake_at_s > snapshot.now_s
        assert wake_at_s % 60.0 == 0.0
        virtual = snapshot.jobs["virtual_s"]
        if not (virtual > 0).all():
            return
        checked += 1
        stretch = np.maximum(snapshot.flow_s / virtual, 1.0)
        limit = np.exp2(np.floor(np.log2(stretch)) + 1.0)

        def at(seconds):
            return (snapshot.flow_s + seconds) / (virtual + target.yields * seconds)

        assert (at(wake_at_s + 60.0 - snapshot.now_s) >= limit * (1 - 1e-9)).any()
        if wake_at_s - 60.0 > snapshot.now_s:
            assert (at(wake_at_s - snapshot.now_s - 1e-6) <= limit * (1 + 1e-9)).all()

    Simulation(workload(load=6.0), Spy("GreedyP*/due=60/OPT=MIN", look), "x").run()
    assert checked


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Greedy*/BUDGET=3", "nothing here uses MCB"),
        (f"{MAIN}/BUDGET=0", "above 0"),
        (f"{MAIN}/WEIGHT=2", "takes no value"),
        ("/stretch-per/WEIGHT", "do not go with"),
        ("/per/OPT=AVG/DECAY=60", "an average knows no level"),
        ("/per/due", "another part for the period"),
    ],
)
def test_what_does_not_go_together_is_refused(name, rule):
    with pytest.raises(InputError, match=rule):
        find_policy(name)


def test_a_file_gives_weights_to_jobs_or_users(tmp_path):
    work = workload(jobs=5)
    work = work.with_columns(user=np.array([1, 1, 2, 2, 3]))
    file = tmp_path / "w.csv"
    file.write_text("user,weight\n2,4\n")
    assert with_job_values(work, file).weight.tolist() == [1, 1, 4, 4, 1]
    file.write_text(f"job_id,weight\n{work.job_id[0]},0.5\n")
    assert with_job_values(work, file).weight.tolist() == [0.5, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "columns must be"),
        ("job,weight\n1,2\n", "columns must be"),
        ("user,weight\n1\n", ":2:.*a number and"),
        ("user,weight\n1,0\n", "above 0"),
        ("user,weight\n-1,nan\n", "above 0"),
        ("user,weight\n77,2\n", "no such user"),
    ],
)
def test_a_bad_file_of_weights_is_one_line(tmp_path, text, rule):
    work = workload(jobs=5).with_columns(user=np.array([1, 1, 2, 2, 3]))
    file = tmp_path / "w.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=rule) as caught:
        with_job_values(work, file)
    assert "\n" not in str(caught.value)
