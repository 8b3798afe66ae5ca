"""CONSERVATIVE keeps its reservations: against twins, over whole runs, and where they cannot be kept."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Hold, Ready, Submit, Unhold, Wake
from dfrs.kernels import conservative as kernels
from dfrs.kernels import profile, whole_nodes
from dfrs.model import tolerances
from dfrs.model.decisions import WAITING, Cause, Reason, Traits
from dfrs.model.jobs import Workload
from dfrs.model.nodes import Condition, NodeChange
from dfrs.model.run import Action
from dfrs.policies.names import find_policy
from dfrs.simulator import simulation as simulator
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests import cases
from tests.frozen import frozen
from tests.naive import batch as naive
from tests.naive.conservative import schedule
from tests.strategies import Drawn
from tests.unit.test_kernels_batch import NOW_S, as_python, records, snapshot_case

CASES = 2_000


def noted_s(jobs):
    """What `policy_state` says: when reservations begin, 0 where there is none."""
    return jobs["policy_state"].copy().view(np.float64)


# One decision


def noted_case(source):
    """A snapshot in which some jobs have reservations, whether or not they can be kept."""
    shot = snapshot_case(source)
    jobs = shot.jobs.copy()
    begins = [source.pick((0, 0, *range(-2, 16))) for _ in range(len(jobs))]
    jobs["policy_state"] = np.array([NOW_S + k if k else 0.0 for k in begins]).view(np.int64)
    asleep = shot.cause == Cause.COMPLETION and source.integer(0, 2) == 0
    return frozen(replace(shot, jobs=jobs, cause=Cause.WAKE if asleep else shot.cause))


@st.composite
def noted_snapshots(draw):
    return noted_case(Drawn(draw))


def decided(kernel, shot):
    """The nodes of jobs that start, and when the reservations of the others begin."""
    rows = len(shot.jobs)
    after, yields, reasons = np.full_like(shot.task_nodes, -9), np.full(rows, np.nan), np.zeros(rows, np.int64)
    reserved_s = noted_s(shot.jobs)
    changed = kernel(
        records(kernel, shot),
        shot.first,
        shot.task_nodes,
        shot.capacity,
        shot.open,
        tolerances.CAPACITY,
        shot.now_s,
        shot.subject,
        shot.cause not in {Cause.SUBMISSION, Cause.WAKE},
        reserved_s,
        after,
        yields,
        reasons,
    )
    started = {}
    for r, job in enumerate(shot.jobs):
        begin, end = shot.first[r], shot.first[r + 1]
        if changed and job["state"] == WAITING and after[begin] >= 0:
            started[r] = after[begin:end].tolist()
            assert (yields[r], reasons[r]) == (1.0, Reason.RESERVED)
        elif changed:
            assert after[begin:end].tolist() == shot.task_nodes[begin:end].tolist()
            assert (yields[r], reasons[r]) == (job["yield_"], Reason.NONE)
    assert changed == len(started)
    return started, {r: begin_s for r, begin_s in enumerate(reserved_s.tolist()) if begin_s}


def by_definition(shot):
    found = naive.reservations(shot)
    return (
        {r: nodes for r, (begin, nodes) in found.items() if begin[1] == 0},
        {r: begin[0] for r, (begin, _) in found.items() if begin[1] == 1},
    )


@given(shot=noted_snapshots())
def test_a_decision_is_the_twins(shot):
    assert decided(kernels.start_reserved, shot) == by_definition(shot)


def test_the_kernel_speaks_of_reasons_as_the_model_does():
    assert kernels.RESERVED == Reason.RESERVED


@cache
def seeded():
    shots = [noted_case(cases.Seeded(np.random.default_rng(seed))) for seed in range(CASES)]
    return [(shot, by_definition(shot)) for shot in shots]


def differs(module):
    try:
        return any(decided(module.start_reserved, shot) != expected for shot, expected in seeded())
    except (AssertionError, IndexError, UnboundLocalError):
        return True


MUTATIONS = (
    ("reserved_s[subject] = 0.0", "pass"),
    ("            reserved_s[r] = 0.0\n    head", "            pass\n    head"),
    ("reserved_s[r] = 0.0\n                started", "started"),
    ("reserved_s[r] = 0.0\n        return", "return"),
    ("begin_s = max(reserved_s[r], now_s)", "begin_s = reserved_s[r]"),
    ('np.argsort(reserved_s, kind="mergesort")', "np.arange(len(reserved_s))"),
    ("begin_s)\n            length = _place(r, begin,", "begin_s)\n            length = _place(r, 0,"),
    ("length = cut(times, profile, length, begin, begin_s)", "pass"),
    ("if not moving:", "if moving:"),
    ("or reasons[r] > 0:\n            continue", "or False:\n            continue"),
    ("times[m] < times[own] + estimate_s[r]", "times[m] <= times[own] + estimate_s[r]"),
    ("profile[m] += takes[r]", "profile[m] += 0"),
    ("        begin = 0\n", "        begin = 1\n"),
    ("if begin == own:", "if begin == own - 1:"),
    ("profile[m, 0] * per[r, 0] < tasks[r]", "profile[m, 0] * per[r, 0] <= tasks[r]"),
    ("times[m + 1] >= times[at]", "times[m + 1] > times[at]"),
    ("wanted(tasks[r], least, per[r], takes[r])", "wanted(tasks[r], profile[at], per[r], takes[r])"),
    ("reserved_s[r] = times[at]", "reserved_s[r] = times[stop - 1]"),
    ("if at == 0:\n        reasons", "if times[at] == times[0]:\n        reasons"),
    ("jobs[r].estimate_s - jobs[r].virtual_s, 0.0", "jobs[r].estimate_s - jobs[r].virtual_s, -9.0"),
    ("profile[length] = profile[length - 1]", "profile[length] = profile[0]"),
    ("m == 0 or ends[m] > ends[m - 1]", "True"),
    ("times[at] == time_s:\n        return length", "False:\n        return length"),
    ("profile[at] = profile[at - 1]", "profile[at] = profile[0]"),
    ("for m in range(at, stop):", "for m in range(at, length):"),
    ("times[m] < times[at] + estimate_s", "times[m] <= times[at] + estimate_s"),
    ("least[k] = min(least[k], profile[m, k])", "least[k] = profile[m, k]"),
    ("at = m + 1 if holds(profile[m], per) < tasks else at + 1", "at = m + 1"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("", ""), *MUTATIONS])
def test_a_changed_kernel_is_noticed(old, new):
    assert differs(as_python(whole_nodes, profile, kernels, old=old, new=new)) == (old != new)


# Whole runs


@st.composite
def workloads(draw, nodes=None):
    """Jobs that come fast, with estimates from right to five times too long; whole seconds."""
    jobs = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes = nodes or int(rng.integers(1, 9))
    run_s = rng.integers(1, 12, jobs).astype(float)
    return Workload(
        job_id=np.arange(jobs),
        submit_s=np.sort(rng.integers(0, 2 * jobs, jobs)).astype(float),
        tasks=rng.integers(1, nodes, jobs, endpoint=True),
        need=rng.choice([1.0, 0.5], jobs),
        memory=np.zeros(jobs),
        run_s=run_s,
        estimate_s=run_s * rng.integers(1, 5, jobs, endpoint=True),
        user=np.zeros(jobs, np.int64),
        weight=np.ones(jobs),
        nodes=nodes,
    )


class Witness:
    """CONSERVATIVE, which shows every snapshot and target to `look`."""

    traits = Traits(exclusive=True)

    def __init__(self, look):
        self.inner, self.look = find_policy("CONSERVATIVE"), look

    def decide(self, shot):
        target = self.inner.decide(shot)
        self.look(shot, target)
        return target


def reservations_after(shot, target):
    """By serial number: when each waiting or just started job starts as it is now planned."""
    begins = target.policy_state.view(np.float64)
    started = (target.task_nodes[shot.first[:-1]] >= 0) & (shot.task_nodes[shot.first[:-1]] < 0)
    planned = {int(shot.jobs["serial"][r]): float(begins[r]) for r in np.flatnonzero(begins)}
    return planned | dict.fromkeys(shot.jobs["serial"][started].tolist(), shot.now_s)


def starts(workload, look=lambda *_: None, **settings):
    """When each job starts, by its number."""
    run = Simulation(workload, Witness(look), "CONSERVATIVE", SimulationSettings(**settings)).run()
    assert run.complete
    rows = run.events.action == Action.START
    return dict(zip(run.events.job[rows].tolist(), run.events.time_s[rows].tolist(), strict=True))


@given(workload=workloads())
def test_all_jobs_start_when_they_do_in_the_plain_way(workload):
    promised = {}

    def look(shot, target):
        if shot.subject >= 0:
            serial = int(shot.jobs["serial"][shot.subject])
            promised[serial] = reservations_after(shot, target)[serial]

    found = starts(workload, look, order="submissions-first")
    expected, first_said = schedule(
        workload.submit_s.astype(int),
        np.ceil(workload.tasks * workload.need).astype(int).tolist(),
        workload.run_s.astype(int).tolist(),
        workload.estimate_s.astype(int).tolist(),
        workload.nodes,
    )
    assert found == expected
    assert promised == first_said


@given(
    workload=workloads(),
    stretch=st.sampled_from([1.0, 1 / 3, 0.1]),
    order=st.sampled_from(["completions-first", "submissions-first"]),
)
def test_no_job_starts_later_than_it_was_ever_promised(workload, stretch, order):
    """Also with times that are no whole numbers, but for rounding."""
    columns = {name: getattr(workload, name) * stretch for name in ("submit_s", "run_s", "estimate_s")}
    promised = {}

    def look(shot, target):
        for serial, begin_s in reservations_after(shot, target).items():
            assert begin_s <= promised.get(serial, np.inf) + 1e-9
            promised[serial] = begin_s

    found = starts(workload.with_columns(**columns), look, order=order)
    assert found.keys() == promised.keys()
    assert all(found[job] <= promised[job] + 1e-9 for job in found)


@given(workload=workloads(nodes=4), changes=st.dictionaries(st.integers(0, 60), st.integers(0, 3), max_size=6))
def test_a_reservation_moves_to_a_later_time_only_when_a_node_closes(workload, changes):
    shut, events, planned, were_open = set(), [], {}, [np.ones(4, np.bool_)]
    for time_s, node in sorted(changes.items()):
        shut ^= {node}
        condition = Condition.UP if node not in shut else (Condition.DRAIN, Condition.DOWN)[time_s % 2]
        events.append((float(time_s), NodeChange(node, condition)))
    events += [(100.0, NodeChange(node, Condition.UP)) for node in sorted(shut)]

    def look(shot, target):
        now = reservations_after(shot, target)
        if (shot.open >= were_open[0]).all():
            assert all(begin_s <= planned.get(serial, np.inf) + 1e-9 for serial, begin_s in now.items())
        were_open[0] = shot.open.copy()
        planned.clear()
        planned.update(now)

    assert len(starts(workload, look, node_events=events)) == len(workload)


@given(workload=workloads(), seed=st.integers(0, 2**32 - 1))
def test_no_reservation_moves_by_more_than_a_running_job_is_late(workload, seed):
    late_s = np.random.default_rng(seed).integers(0, 4, len(workload))
    workload = workload.with_columns(estimate_s=np.maximum(workload.run_s - late_s, 1.0))
    ends, planned = {}, {}

    def look(shot, target):
        serials, running = shot.jobs["serial"].tolist(), shot.task_nodes[shot.first[:-1]] >= 0
        left_s = np.maximum(shot.jobs["estimate_s"] - shot.jobs["virtual_s"], 0.0).tolist()
        later_s = [shot.now_s + left_s[r] - ends[serials[r]] for r in np.flatnonzero(running)]
        later_s += [shot.now_s - ends.pop(serial) for serial in ends.keys() - set(serials)]
        now = reservations_after(shot, target)
        most_s = max(later_s, default=0.0)
        assert all(begin_s <= planned.get(serial, np.inf) + max(most_s, 0.0) for serial, begin_s in now.items())
        planned.clear()
        planned.update(now)
        running = target.task_nodes[shot.first[:-1]] >= 0
        ends.update({serials[r]: shot.now_s + left_s[r] for r in np.flatnonzero(running)})

    assert len(starts(workload, look)) == len(workload)


@given(workload=workloads(), stops=st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_a_run_that_is_saved_and_continued_keeps_the_promises_too(workload, stops):
    whole = starts(workload)
    simulation, found = Simulation(workload, find_policy("CONSERVATIVE"), "c"), None
    for left in stops:
        asked = iter(range(left))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulator, "WATCHED", 1)
            found = simulation.run(lambda _, asked=asked: next(asked, None) is not None)
        if found.complete:
            break
        state = simulation.state()
        simulation = Simulation(workload, find_policy("CONSERVATIVE"), "c")
        simulation.restore(state)
    else:
        found = simulation.run()
    rows = found.events.action == Action.START
    assert dict(zip(found.events.job[rows].tolist(), found.events.time_s[rows].tolist(), strict=True)) == whole


# By hand


def cluster(nodes):
    """A cluster, and how to tell it of events: which jobs start."""
    core = Core(find_policy("CONSERVATIVE"), np.ones((nodes, 2)))

    def tell(event, now_s):
        commands = core.handle(event, now_s)
        if len(commands):
            core.handle(Ready(commands.serial, np.full(len(commands), now_s)), now_s)
        return commands.job_id[commands.action == Action.START].tolist()

    def planned():
        jobs = core.snapshot().jobs
        return {int(job): begin_s for job, begin_s in zip(jobs["id"], noted_s(jobs).tolist(), strict=True) if begin_s}

    return core, tell, planned


def whole(job_id, tasks, estimate_s):
    return Submit(job_id, tasks, 1.0, 0.0, estimate_s)


def test_when_a_job_ends_early_the_others_move_up_and_none_falls_back():
    core, tell, planned = cluster(4)
    assert tell(whole(1, 3, 100.0), 0.0) == [1]
    assert tell(whole(2, 1, 40.0), 0.0) == [2]
    tell(whole(3, 2, 50.0), 1.0)
    tell(whole(4, 4, 10.0), 2.0)
    tell(whole(5, 1, 60.0), 3.0)
    assert planned() == {3: 100.0, 4: 150.0, 5: 40.0}
    assert core.wake_at_s == 40.0
    # Made anew, the reservation of job 4 would begin at 70, and job 5, to which 40 was promised, would wait until 80.
    assert tell(Complete(1), 20.0) == [3, 5]
    # Job 4 moved up to the end of job 5 before that moved, and goes on from there when the next job ends.
    assert planned() == {4: 100.0}
    assert tell(Complete(2), 30.0) == []
    assert planned() == {4: 80.0}


def test_a_submission_moves_no_reservation_nor_does_a_wake():
    _, tell, planned = cluster(2)
    tell(whole(1, 1, 100.0), 0.0)
    tell(whole(2, 2, 10.0), 0.0)
    tell(whole(3, 1, 120.0), 0.0)
    tell(whole(4, 2, 10.0), 0.0)
    assert planned() == {2: 100.0, 3: 110.0, 4: 230.0}
    assert tell(Complete(1), 5.0) == [2]
    assert planned() == {3: 15.0, 4: 135.0}
    assert tell(Wake(), 15.0) == []
    assert tell(Complete(2), 15.5) == [3]
    assert planned() == {4: 135.5}


def test_a_job_past_its_estimate_lets_the_reservations_begin_later_in_their_order():
    _, tell, planned = cluster(2)
    tell(whole(1, 1, 10.0), 0.0)
    tell(whole(2, 2, 10.0), 0.0)
    tell(whole(3, 2, 5.0), 0.0)
    assert planned() == {2: 10.0, 3: 20.0}
    assert tell(Wake(), 13.0) == []
    assert planned() == {2: 13.0, 3: 23.0}
    assert tell(whole(4, 1, 1.0), 14.0) == []
    assert planned() == {2: 14.0, 3: 24.0, 4: 29.0}
    assert tell(Complete(1), 16.0) == [2]
    assert planned() == {3: 26.0, 4: 31.0}


def test_reservations_that_a_lost_node_makes_impossible_are_made_again():
    _, tell, planned = cluster(3)
    tell(whole(1, 1, 10.0), 0.0)
    tell(whole(2, 3, 10.0), 0.0)
    tell(whole(3, 2, 10.0), 0.0)
    assert planned() == {2: 10.0}
    assert tell(NodeChange(2, Condition.DOWN), 4.0) == []
    # Job 3 lost a node, and no two are free now; nothing is promised to job 2, which wants three.
    assert planned() == {3: 10.0}
    assert tell(whole(4, 2, 7.0), 5.0) == []
    assert planned() == {3: 10.0, 4: 20.0}
    assert tell(NodeChange(2, Condition.UP), 6.0) == [3]
    # Job 2 gets what those leave that have reservations: at that moment job 4 had one from 20 to 27.
    assert planned() == {4: 16.0, 2: 27.0}


def test_a_held_job_gives_its_reservation_up():
    _, tell, planned = cluster(1)
    tell(whole(1, 1, 10.0), 0.0)
    tell(whole(2, 1, 10.0), 0.0)
    tell(whole(3, 1, 10.0), 0.0)
    tell(Hold(2), 1.0)
    assert planned() == {3: 10.0}
    tell(Unhold(2), 2.0)
    assert planned() == {3: 10.0, 2: 20.0}


@pytest.mark.parametrize("other", ["Delayed-LOS", "GreedyPM*/per/OPT=MIN/MVT=600"])
def test_what_another_policy_noted_is_no_reservation_and_the_other_way_round(other):
    core, tell, planned = cluster(2)
    tell(whole(1, 1, 50.0), 0.0)
    tell(whole(2, 2, 10.0), 0.0)
    assert planned() == {2: 50.0}
    tell(Hold(2), 1.0)
    core.hand_over(find_policy(other))
    assert not core.snapshot().jobs["policy_state"].any()
    tell(Unhold(2), 2.0)
    tell(Wake(), 2.0)
    tell(whole(3, 1, 10.0), 3.0)
    assert (core.snapshot().jobs["policy_state"] < 100).all()
    core.hand_over(find_policy("CONSERVATIVE"))
    waiting = core.snapshot().jobs["state"] == WAITING
    assert not core.snapshot().jobs["policy_state"][waiting].any()
