"""Metrics of a run: a story computed by hand, and a slow twin that walks from instant to instant."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.experiments.kinds import online
from dfrs.model.decisions import PAUSED, RUNNING, WAITING
from dfrs.model.run import Action
from dfrs.runs.metrics import schedule
from dfrs.runs.metrics.intervals import UNIT, job_intervals, unit_for, virtual_time
from tests.random_runs import random_run
from tests.toy_runs import run_of, story_run, toy_run, workload

PLACING = {Action.START, Action.RESUME, Action.MIGRATE}


class Naive:
    """What holds between consecutive instants, by replaying all rows up to each; quadratic and obvious."""

    def __init__(self, run):
        self.run, self.load = run, run.workload
        self.moved_gb = Counter()
        self.virtual = np.zeros(len(self.load))
        self.steps = []
        ends = {job: self.state_of(job, run.end_s) for job in range(len(self.load))}
        times = {run.end_s, *run.events.time_s.tolist(), *self.load.submit_s.tolist()}
        times |= {state["ready"] for t in list(times) for job in ends if (state := self.state_of(job, t))["running"]}
        times = sorted(t for t in times if t <= run.end_s)
        for begin, end in pairwise(times):
            self.steps.append((begin, end, {job: self.state_of(job, begin) for job in ends}, self.down_at(begin)))
        self.count_moves()
        for job in ends:
            since = ends[job]["anew"]
            self.virtual[job] = math.fsum(
                (end - begin) * states[job]["progress"] for begin, end, states, _ in self.steps if begin >= since
            )

    def rows(self, until_s):
        events = self.run.events
        return [e for e in range(len(events)) if events.time_s[e] <= until_s]

    def delay(self, row, moved):
        penalty, memory = self.run.penalty, self.load.memory[self.run.events.job[row]]
        copying = 0.0 if penalty.bytes_per_s is None else memory * moved * penalty.node_bytes / penalty.bytes_per_s
        return penalty.seconds + copying

    def state_of(self, job, at_s):
        """Of a job, once all rows up to that time are done."""
        events = self.run.events
        here = self.load.submit_s[job] <= at_s and job not in self.run.refused
        state = {"state": WAITING if here else None, "yield": 0.0, "ready": at_s, "nodes": None, "anew": -math.inf}
        for e in self.rows(at_s):
            if events.job[e] != job:
                continue
            action = Action(events.action[e])
            if action in PLACING:
                nodes = Counter(events.nodes_of(e).tolist())
                moved = nodes if action == Action.RESUME else nodes - (state["nodes"] or Counter())
                delay = 0.0 if action == Action.START else self.delay(e, moved.total())
                state |= {"state": RUNNING, "nodes": nodes, "ready": events.time_s[e] + delay}
            if action in PLACING or action == Action.SHARE:
                state["yield"] = float(events.yield_[e])
            elif action == Action.PAUSE:
                state |= {"state": PAUSED, "yield": 0.0}
            elif action == Action.LOST:
                state |= {"state": WAITING, "yield": 0.0, "anew": events.time_s[e]}
            elif action == Action.FINISH:
                state |= {"state": None, "yield": 0.0}
        state["running"] = state["state"] == RUNNING
        state["progress"] = state["yield"] if at_s >= state["ready"] else 0.0
        return state

    def down_at(self, at_s):
        down = set()
        for e in self.rows(at_s):
            if self.run.events.action[e] == Action.DOWN:
                down |= set(self.run.events.nodes_of(e).tolist())
            elif self.run.events.action[e] == Action.UP:
                down -= set(self.run.events.nodes_of(e).tolist())
        return down

    def count_moves(self):
        events, where = self.run.events, {}
        for e in range(len(events)):
            job, action = int(events.job[e]), Action(events.action[e])
            if job < 0:
                continue
            task_gb = self.load.memory[job] * self.run.penalty.node_bytes / 1e9
            if action in {Action.PAUSE, Action.RESUME}:
                self.moved_gb[action] += self.load.tasks[job] * task_gb
            if action in PLACING:
                nodes = Counter(events.nodes_of(e).tolist())
                if action == Action.MIGRATE:
                    self.moved_gb["whole"] += self.load.tasks[job] * task_gb
                    self.moved_gb[action] += (nodes - where[job]).total() * task_gb
                where[job] = nodes

    def mean(self, value, holds):
        """Average over the time in which `holds`."""
        parts = [(end - begin, value(states)) for begin, end, states, _ in self.steps if holds(states)]
        seconds = math.fsum(length for length, _ in parts)
        return math.fsum(length * v for length, v in parts) / seconds if seconds > 0 else None

    def used(self, amount, column):
        first = float(self.load.submit_s[0])
        used = math.fsum(
            (end - begin) * amount(job, state)
            for begin, end, states, _ in self.steps
            for job, state in states.items()
            if state["running"]
        )
        up = [
            (
                max(0.0, end - max(first, begin)),
                sum(c for n, c in enumerate(self.run.capacity[:, column]) if n not in down),
            )
            for begin, end, _, down in self.steps
        ]
        offered = math.fsum(length * capacity for length, capacity in up)
        return used / offered if offered > 0 else None


def running_yields(states):
    return sorted(state["yield"] for state in states.values() if state["running"])


def jain(yields, count):
    squares = sum(y * y for y in yields)
    return (sum(yields) ** 2 / squares if squares else len(yields)) / count


def expected(run):
    """The same figures, from the twin."""
    naive, load = Naive(run), run.workload
    cpu, memory = load.tasks * load.need, load.tasks * load.memory
    present = lambda states: sum(state["state"] is not None for state in states.values())  # noqa: E731
    span_s = max(0.0, run.end_s - float(load.submit_s[0]))
    moved = naive.moved_gb
    actions = Counter(run.events.action.tolist())
    finish = {int(run.events.job[e]): run.events.time_s[e] for e in np.flatnonzero(run.events.action == Action.FINISH)}
    flows = {job: float(time - load.submit_s[job]) for job, time in finish.items()}
    starts = {}
    for e in np.flatnonzero(run.events.action == Action.START):
        starts.setdefault(int(run.events.job[e]), float(run.events.time_s[e]))
    bounded = [max(flow, 10.0) / max(load.run_s[job], 10.0) for job, flow in flows.items()]
    waits = [starts[job] - load.submit_s[job] for job in flows]
    whole = {
        "jobs_finished": len(flows),
        "jobs_unfinished": len(load) - len(flows) - len(run.refused),
        "stretch_max": max((flow / load.run_s[job] for job, flow in flows.items()), default=None),
        "bounded_stretch_mean": sum(bounded) / len(bounded) if flows else None,
        "bounded_stretch_p90": float(np.quantile(bounded, 0.9)) if flows else None,
        "wait_mean_s": sum(waits) / len(waits) if flows else None,
        "flow_max_s": max(flows.values(), default=None),
        "makespan_s": max(finish.values()) - load.submit_s[0] if flows else None,
        "cpu_utilisation": naive.used(lambda job, state: cpu[job] * state["yield"], 0),
        "useful_cpu_utilisation": naive.used(lambda job, state: cpu[job] * state["progress"], 0),
        "memory_utilisation": naive.used(lambda job, _: memory[job], 1),
        "minimum_yield_mean": naive.mean(lambda s: running_yields(s)[0], running_yields),
        "median_yield_mean": naive.mean(lambda s: float(np.median(running_yields(s))), running_yields),
        "jain_index_mean": naive.mean(lambda s: jain(running_yields(s), len(running_yields(s))), running_yields),
        "jain_index_present_mean": naive.mean(lambda s: jain(running_yields(s), present(s)), present),
        "pauses": actions[Action.PAUSE],
        "migrations": actions[Action.MIGRATE],
        "pauses_as_published": actions[Action.PAUSE] - taken_back(run),
        "migrations_as_published": actions[Action.MIGRATE] + taken_back(run),
        "pause_gb": moved[Action.PAUSE],
        "pause_and_resume_gb": moved[Action.PAUSE] + moved[Action.RESUME],
        "migration_gb": moved[Action.MIGRATE],
        "migration_of_whole_jobs_gb": moved["whole"],
    }
    if span_s > 0:
        whole |= {
            "pauses_per_hour": actions[Action.PAUSE] / (span_s / 3600),
            "migration_gb_per_s": moved[Action.MIGRATE] / span_s,
        }
    return naive, whole


def taken_back(run):
    """How many pauses end because room becomes free, job by job and row by row."""
    events, count = run.events, 0
    for job in range(len(run.workload)):
        paused = False
        for row in np.flatnonzero(events.job == job):
            if events.action[row] == Action.RESUME:
                count += paused and events.reasons[events.why[row]] == "room became free"
            if events.action[row] != Action.SHARE:
                paused = events.action[row] == Action.PAUSE
    return count


def test_a_pause_that_greedy_takes_back_is_published_as_a_migration():
    load = workload([(1, 0, 1, 1.0, 0.1, 100), (2, 0, 1, 1.0, 0.1, 100)], nodes=2)
    a, nan = Action, math.nan
    rows = [
        (0, 0, a.START, [0], 1.0, "there was room at submission"),
        (0, 1, a.START, [1], 1.0, "there was room at submission"),
        (10, 0, a.PAUSE, [], 0.0, "gave way to a submitted job"),
        (20, 0, a.RESUME, [0], 0.5, "room became free"),
        (25, 0, a.SHARE, [], 1.0, "room became free"),
        (30, 0, a.PAUSE, [], 0.0, "gave way to a submitted job"),
        (40, 1, a.MIGRATE, [0], 1.0, "all jobs were packed anew"),
        (40, 0, a.RESUME, [1], 1.0, "all jobs were packed anew"),
        (100, 1, a.FINISH, [], nan, ""),
        (120, 0, a.FINISH, [], nan, ""),
    ]
    metrics = schedule.summarize(run_of(load, rows))
    assert (metrics["pauses"], metrics["migrations"]) == (2, 1)
    assert (metrics["pauses_as_published"], metrics["migrations_as_published"]) == (1, 2)
    assert (metrics["pauses_as_published_per_job"], metrics["migrations_as_published_per_job"]) == (0.5, 1.0)
    assert metrics["migrations_as_published_per_hour"] == 2 * 30.0


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_metrics_are_those_of_the_slow_twin(seed, partial, exclusive):
    run = random_run(seed, partial=partial, exclusive=exclusive)
    metrics = schedule.summarize(run)
    naive, whole = expected(run)
    for name, value in whole.items():
        assert metrics[name] == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)), name
    np.testing.assert_allclose(virtual_time(run), naive.virtual, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 10**6), st.booleans())
def test_timelines_say_what_holds_at_every_instant(seed, partial):
    run = random_run(seed, partial=partial)
    naive = Naive(run)
    yields, use = schedule.yield_timeline(run), schedule.utilisation_timeline(run)
    cpu, memory = run.workload.tasks * run.workload.need, run.workload.tasks * run.workload.memory
    for begin, _, states, _ in naive.steps:
        running = running_yields(states)
        here = [state["state"] for state in states.values() if state["state"] is not None]
        k = int(np.searchsorted(yields.time_s, begin, side="right")) - 1
        inside = 0 <= k < len(yields.minimum)
        assert inside or not here
        if running:
            assert yields.minimum[k] == pytest.approx(running[0])
            assert yields.median[k] == pytest.approx(np.median(running))
            assert yields.maximum[k] == pytest.approx(running[-1])
            assert yields.jain[k] == pytest.approx(jain(running, len(running)))
        elif inside:
            assert np.isnan([yields.minimum[k], yields.median[k], yields.maximum[k], yields.jain[k]]).all()
        k = int(np.searchsorted(use.time_s, begin, side="right")) - 1
        if 0 <= k < len(use.cpu):
            assert (use.running[k], use.paused[k], use.waiting[k]) == tuple(map(here.count, (RUNNING, PAUSED, WAITING)))
            for found, amount, per in (
                (use.cpu, cpu, "yield"),
                (use.useful_cpu, cpu, "progress"),
                (use.memory, memory, "running"),
            ):
                total = sum(amount[job] * state[per] for job, state in states.items())
                assert found[k] == pytest.approx(total, abs=1e-9)


@given(st.integers(0, 10**6), st.booleans())
def test_intervals_tile_each_jobs_presence(seed, partial):
    run = random_run(seed, partial=partial)
    intervals = job_intervals(run)
    assert (intervals.length_s > 0).all()
    for job in range(len(run.workload)):
        own = intervals.of(job)
        assert (intervals.job[own.start : own.stop] == job).all()
        end_s = run.end_s if np.isnan(run.finish_s[job]) else run.finish_s[job]
        assert all(intervals.end_s[k] == intervals.begin_s[k + 1] for k in own[:-1])
        if job in run.refused or run.workload.submit_s[job] >= end_s:
            assert not own
        else:
            assert (intervals.begin_s[own[0]], intervals.end_s[own[-1]]) == (run.workload.submit_s[job], end_s)
        for k in own:
            running = intervals.state[k] == RUNNING
            assert (intervals.placement[k] >= 0) == running
            assert not running or len(run.events.nodes_of(intervals.placement[k])) == run.workload.tasks[job]


def test_a_story_computed_by_hand():
    metrics = schedule.summarize(story_run(), stretch_bound=1.5)
    span_s = 3750.0
    known = {
        "jobs_finished": 3,
        "makespan_s": span_s,
        "stretch_max": 1.875,
        "degradation_from_bound": 1.25,
        "stretch_mean": (1.875 + 1.75 + 725 / 600) / 3,
        "wait_max_s": 0.0,
        "flow_mean_s": (3750 + 875 + 725) / 3,
        "minimum_yield_mean": (1000 + 500 * 0.5 + 375 * 2 / 3 + 225 + 900 * 0.5 + 750) / span_s,
        "cpu_utilisation": (2 * 1000 + 2 * 500 + 2 * 375 + 225 + 2 * 125 + 775 + 2 * 750) / (3 * span_s),
        "memory_utilisation": (0.8 * (1500 + 1650) + 0.6 * 875 + 1.4 * 725) / (3 * span_s),
        "pauses": 1,
        "migrations": 1,
        "pauses_per_hour": 3600 / span_s,
        "pause_gb": 6.4,
        "pause_and_resume_gb": 12.8,
        "migration_gb": 3.2,
        "migration_of_whole_jobs_gb": 6.4,
        "migration_gb_per_s": 3.2 / span_s,
    }
    assert {name: metrics[name] for name in known} == pytest.approx(known)
    assert virtual_time(story_run()).tolist() == pytest.approx([2000, 500, 600])


def test_one_of_two_running_jobs_without_yield_halves_fairness():
    load = workload([(1, 0, 1, 1.0, 0.1, 10), (2, 0, 1, 1.0, 0.1, 10)], nodes=2)
    a, nan = Action, math.nan
    rows = [(0, 0, a.START, [0], 1.0, ""), (0, 1, a.START, [1], 0.0, ""), (10, 0, a.FINISH, [], nan, "")]
    metrics = schedule.summarize(run_of(load, rows, complete=False))
    assert (metrics["minimum_yield_mean"], metrics["median_yield_mean"]) == (0.0, 0.5)
    assert metrics["jain_index_mean"] == pytest.approx(0.5)
    assert (metrics["jobs_unfinished"], metrics["jobs_running_at_end"]) == (1, 1)


def test_nothing_finished_leaves_figures_undefined():
    load = workload([(1, 5, 1, 1.0, 0.1, 10)], nodes=1)
    empty = run_of(load, [(5, 0, Action.START, [0], 1.0, "")], complete=False, end_s=5.0)
    metrics = schedule.summarize(empty, stretch_bound=2.0)
    for name in (
        "stretch_max",
        "makespan_s",
        "wait_mean_s",
        "minimum_yield_mean",
        "cpu_utilisation",
        "pauses_per_hour",
    ):
        assert metrics[name] is None
    assert metrics["degradation_from_bound"] is None
    # It began at the very end: for no time, but it is there.
    assert (metrics["jobs_unfinished"], metrics["jobs_running_at_end"]) == (1, 1)


def test_every_figure_is_a_finite_plain_number():
    for run in (toy_run(), toy_run(batch=True), random_run(3, partial=True)):
        for name, value in schedule.summarize(run, stretch_bound=1.0).items():
            assert value is None or (type(value) in {int, float} and math.isfinite(value)), name


def test_every_metric_is_a_column_of_campaigns_unless_it_is_left_out_by_name():
    metrics = schedule.summarize(story_run(), stretch_bound=1.0, bounded_stretch_bound=1.0)
    # `jobs` is a column of the workload.
    assert set(metrics) == {*online.METRICS, *online.NOT_IN_CAMPAIGNS, "jobs"}
    assert online.NOT_IN_CAMPAIGNS.isdisjoint(online.METRICS)


def test_levels_of_very_large_clusters_do_not_wrap_round():
    # 64 bits hold 2**17 nodes in units of 2**-46.
    nodes = 200_000
    rows = [(0.0, 0, Action.START, range(nodes), 0.5, ""), (10.0, 0, Action.FINISH, (), 0.0, "")]
    run = run_of(workload([(1, 0.0, nodes, 1.0, 0.75, 5.0)], nodes), rows, penalty=0.0)
    use = schedule.utilisation_timeline(run)
    assert (use.cpu.tolist(), use.memory.tolist()) == ([nodes / 2], [nodes * 0.75])
    found = schedule.summarize(run)
    assert found["cpu_share_useful"] == found["cpu_utilisation"] == 0.5
    assert [unit_for(largest) / UNIT for largest in (0.0, 2.0**16, 2.0**16 + 1, 2.0**20)] == [1, 1, 1 / 2, 1 / 16]


def test_yields_without_a_pattern_have_exact_sums_over_a_long_log():
    run = toy_run(nodes=32, jobs=300, seed=4)
    use = schedule.utilisation_timeline(run)
    assert (use.running[-1] > 0) == (use.cpu[-1] > 0)
    assert (use.cpu <= run.capacity[:, 0].sum() + 1e-9).all()
    busy = use.running > 0
    assert (use.cpu[~busy] == 0).all()
    assert (use.memory[~busy] == 0).all()
