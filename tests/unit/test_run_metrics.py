"""Metrics that papers report beside the usual ones, each against a slow twin: trimmed runs, users, shares of the CPU,
classes of jobs, batch means, energy.
"""

import math
import statistics
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from dfrs.model.decisions import PAUSED, RUNNING, WAITING
from dfrs.model.errors import InputError
from dfrs.model.run import Action
from dfrs.runs.metrics import batch_means as batches
from dfrs.runs.metrics.classes import job_classes
from dfrs.runs.metrics.energy import PowerModel, energy
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.metrics.shares import SHARES, cpu_share_no_room
from dfrs.runs.metrics.users import user_metrics
from dfrs.runs.metrics.window import Trim, whole_run
from tests.random_runs import random_run
from tests.toy_runs import run_of, story_run, toy_run, workload
from tests.unit.test_schedule_metrics import Naive, running_yields

SEEDS = st.integers(0, 10**6)
A, NAN = Action, math.nan
approx = lambda value: pytest.approx(value, rel=1e-9, abs=1e-9)  # noqa: E731


def clipped(naive, window):
    """The twin's steps within a window, by length."""
    for begin, end, states, down in naive.steps:
        length = min(end, window.to_s) - max(begin, window.from_s)
        if length > 0:
            yield length, begin, states, down


# Warm-up and cool-down.


def naive_window(run, warm_up, cool_down):
    """Kept jobs, and from when to when; a share is a fraction, a time is a string of whole seconds."""
    submit_s = run.workload.submit_s.tolist()
    jobs = list(range(len(submit_s)))
    from_s, to_s = submit_s[0], run.end_s
    first = 0
    if isinstance(warm_up, float):
        while first + 1 <= warm_up * len(jobs) + 1e-9:
            first += 1
        from_s = submit_s[first]
    else:
        from_s += int(warm_up)
        first = sum(at < from_s for at in submit_s)
    last = len(jobs)
    if isinstance(cool_down, float):
        while len(jobs) - last + 1 <= cool_down * len(jobs) + 1e-9:
            last -= 1
        if last < len(jobs):
            to_s = min(to_s, submit_s[last])
    elif int(cool_down):
        until_s = submit_s[-1] - int(cool_down)
        last = sum(at <= until_s for at in submit_s)
        to_s = min(to_s, until_s)
    return jobs[first:last], from_s, to_s


ENDS = st.one_of(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.6]), st.sampled_from(["0", "3", "10", "40"]))


@given(SEEDS, st.booleans(), ENDS, ENDS)
def test_a_trimmed_run_is_measured_as_by_the_slow_twin(seed, partial, warm_up, cool_down):
    run = random_run(seed, partial=partial)
    text = ":".join(f"{100 * end:g}%" if isinstance(end, float) else f"{end}s" for end in (warm_up, cool_down))
    kept, from_s, to_s = naive_window(run, warm_up, cool_down)
    trim = Trim.parse(text)
    if not kept or not from_s < to_s:
        with pytest.raises(InputError, match=r"nothing remains of \d+ jobs"):
            trim.window(run)
        return
    window = trim.window(run)
    assert (np.flatnonzero(window.jobs).tolist(), window.from_s, window.to_s) == (kept, from_s, to_s)
    metrics, naive, load = summarize(run, trim=trim), Naive(run), run.workload
    done = [job for job in kept if np.isfinite(run.finish_s[job])]
    bounded = [max(run.finish_s[j] - load.submit_s[j], 10.0) / max(load.run_s[j], 10.0) for j in done]
    steps = list(clipped(naive, window))
    used = sum(
        length * load.tasks[job] * load.need[job] * state["yield"]
        for length, _, states, _ in steps
        for job, state in states.items()
    )
    offered = sum(
        length * sum(c for n, c in enumerate(run.capacity[:, 0]) if n not in down) for length, _, _, down in steps
    )
    busy = [(length, running_yields(states)[0]) for length, _, states, _ in steps if running_yields(states)]
    inside = [
        Action(run.events.action[e])
        for e, at_s in enumerate(run.events.time_s.tolist())
        if (at_s >= from_s or kept[0] == 0) and (at_s < to_s or to_s == run.end_s)
    ]
    expected = {
        "jobs": len(kept),
        "jobs_finished": len(done),
        "jobs_refused": len(set(run.refused) & set(kept)),
        "bounded_stretch_mean": statistics.fmean(bounded) if bounded else None,
        "bounded_stretch_max": max(bounded, default=None),
        "span_s": to_s - from_s,
        "cpu_utilisation": used / offered if offered > 0 else None,
        "minimum_yield_mean": math.fsum(a * b for a, b in busy) / math.fsum(a for a, _ in busy) if busy else None,
        "pauses": inside.count(A.PAUSE),
        "migrations": inside.count(A.MIGRATE),
    }
    for name, value in expected.items():
        assert metrics[name] == (None if value is None else approx(value)), name


def test_nothing_is_left_out_without_trim_nor_with_none():
    run = toy_run(nodes=8, jobs=60)
    whole = summarize(run)
    assert whole["jobs"] == 60
    assert summarize(run, trim=Trim.parse("0")) == whole


@pytest.mark.parametrize("text", ["", "10", "10%:", "100%", "-1%", "x:1h", "1h:2w", "10%:5%:1%", "1 h", "nan%", "٣%"])
def test_what_is_no_trim_is_refused_in_one_line(text):
    with pytest.raises(InputError, match=r"^trim = .*must be WARM-UP:COOL-DOWN"):
        Trim.parse(text)


def test_one_end_stands_for_both_and_times_have_units():
    assert Trim.parse("10%") == Trim.parse("10%:10%")
    assert Trim.parse("1.5h:2d").warm_up.amount == 5400.0
    assert Trim.parse("1.5h:2d").cool_down.amount == 172800.0
    assert Trim.parse("0:90s").name == "0:90s"


def test_bounds_of_all_jobs_are_not_those_of_a_trimmed_run():
    with pytest.raises(InputError, match="give trim or bounds, not both"):
        summarize(story_run(), stretch_bound=1.0, trim=Trim.parse("10%"))


# Users.


@given(st.lists(st.tuples(st.integers(-1, 4), st.floats(1.0, 1e4)), max_size=30))
def test_fairness_among_users_is_that_of_all_pairs(jobs):
    users, stretches = (np.array(column) for column in zip(*jobs, strict=True)) if jobs else (np.zeros(0), np.zeros(0))
    found = user_metrics(users.astype(np.int64), stretches.astype(np.float64))
    means = [
        statistics.fmean(stretch for user, stretch in jobs if user == each) for each in {u for u, _ in jobs if u >= 0}
    ]
    assert found["users"] == len(means)
    if not means:
        assert set(found.values()) == {0, None}
        return
    mean = statistics.fmean(means)
    gaps = statistics.fmean(abs(a - b) for a in means for b in means)
    assert found["user_bounded_stretch_mean"] == approx(mean)
    assert found["user_bounded_stretch_max"] == approx(max(means))
    jain = math.fsum(means) ** 2 / (len(means) * math.fsum(m * m for m in means))
    assert found["user_bounded_stretch_jain_index"] == approx(jain)
    assert found["user_bounded_stretch_gini"] == approx(gaps / (2 * mean))


def test_one_user_of_four_who_waits_alone():
    found = user_metrics(np.array([0, 1, 2, 3, 0]), np.array([1.0, 1.0, 1.0, 9.0, 1.0]))
    assert found["user_bounded_stretch_jain_index"] == approx(144 / (4 * 84))
    assert found["user_bounded_stretch_gini"] == approx(0.5)


# Shares of the CPU.


def naive_shares(run, window):
    naive, load = Naive(run), run.workload
    lost = dict.fromkeys(range(len(load)), -math.inf)
    for e in range(len(run.events)):
        if run.events.action[e] == A.LOST:
            lost[int(run.events.job[e])] = run.events.time_s[e]
    found, offered = dict.fromkeys(SHARES, 0.0), 0.0
    for length, begin, states, down in clipped(naive, window):
        up = sum(c for n, c in enumerate(run.capacity[:, 0]) if n not in down)
        offered += length * up
        taken, wants = 0.0, {RUNNING: 0.0, PAUSED: 0.0, WAITING: 0.0}
        for job, state in states.items():
            cpu = float(load.tasks[job] * load.need[job])
            given_ = cpu * state["yield"]
            if state["state"] is not None:
                wants[state["state"]] += cpu - given_
            if not state["running"]:
                continue
            held = sum(run.capacity[n, 0] for n in state["nodes"]) if run.configuration["exclusive"] else given_
            taken += held
            kind = "penalty" if begin < state["ready"] else "failures" if begin < lost[job] else "useful"
            found[f"cpu_share_{kind}"] += length * given_
            found["cpu_share_whole_nodes"] += length * (held - given_)
        free = max(0.0, up - taken)
        for kind, state in (("running", RUNNING), ("paused", PAUSED), ("waiting", WAITING)):
            part = min(free, wants[state])
            found[f"cpu_share_free_{kind}"] += length * part
            free -= part
        found["cpu_share_not_wanted"] += length * free
    return {name: seconds / offered if offered > 0 else None for name, seconds in found.items()}


@given(SEEDS, st.booleans(), st.booleans())
def test_shares_of_the_cpu_are_those_of_the_slow_twin_and_add_up_to_all_of_it(seed, partial, exclusive):
    run = random_run(seed, partial=partial, exclusive=exclusive)
    metrics = summarize(run)
    for name, value in naive_shares(run, whole_run(run)).items():
        assert metrics[name] == (None if value is None else approx(value)), name
    if metrics["cpu_utilisation"] is None:
        return
    parts = [metrics[name] for name in SHARES]
    assert math.fsum(parts) == pytest.approx(1.0, abs=1e-14)
    assert metrics["cpu_share_useful"] + metrics["cpu_share_failures"] == approx(metrics["useful_cpu_utilisation"])
    assert math.fsum(parts[:3]) == approx(metrics["cpu_utilisation"])


@given(SEEDS)
def test_shares_of_a_trimmed_run_are_those_of_its_window(seed):
    run = random_run(seed)
    try:
        window = Trim.parse("20%").window(run)
    except InputError:
        return
    metrics = summarize(run, trim=Trim.parse("20%"))
    for name, value in naive_shares(run, window).items():
        assert metrics[name] == (None if value is None else approx(value)), name


def naive_no_room(run, window):
    """The share of the CPU that is free for paused and waiting jobs while none of them fits."""
    naive, load, capacity = Naive(run), run.workload, run.capacity
    exclusive = run.configuration["exclusive"]
    lost = offered = 0.0
    cuts = sorted({float(at) for at in run.events.time_s[run.events.job < 0]})
    for whole, since, states, down in clipped(naive, window):
        first = max(since, window.from_s)
        edges = [first, *(at for at in cuts if first < at < first + whole), first + whole]
        for begin, end in pairwise(edges):
            length = end - begin
            up = sum(c for n, c in enumerate(capacity[:, 0]) if n not in down)
            offered += length * up
            closed = set()
            for e in naive.rows(begin):
                for n in run.events.nodes_of(e).tolist() if run.events.job[e] < 0 else ():
                    (closed.discard if run.events.action[e] == A.UP else closed.add)(n)
            running = {job: state for job, state in states.items() if state["running"]}
            busy = {n for state in running.values() for n in state["nodes"]}
            free_memory = capacity[:, 1].copy()
            taken = 0.0
            for job, state in running.items():
                for n, count in state["nodes"].items():
                    free_memory[n] -= count * load.memory[job]
                cpu = float(load.tasks[job] * load.need[job]) * state["yield"]
                taken += sum(capacity[n, 0] for n in state["nodes"]) if exclusive else cpu
            free = max(0.0, up - taken)
            free -= min(free, sum(load.tasks[j] * load.need[j] * (1 - s["yield"]) for j, s in running.items()))
            queue = [job for job, state in states.items() if state["state"] in {PAUSED, WAITING}]
            fits = False
            for job in queue:
                room = 0
                for n in set(range(len(capacity))) - closed - (busy if exclusive else set()):
                    here = load.tasks[job]
                    if load.memory[job] > 0:
                        here = math.floor((free_memory[n] + 1e-9) / load.memory[job])
                    if exclusive:
                        here = min(here, math.floor((capacity[n, 0] + 1e-9) / load.need[job]))
                    room += here
                fits = fits or room >= load.tasks[job]
            if not fits:
                lost += length * min(free, sum(load.tasks[job] * load.need[job] for job in queue))
    return lost / offered if offered > 0 else None


@given(SEEDS, st.booleans(), st.booleans())
def test_what_is_free_without_room_for_anybody_is_that_of_the_slow_twin(seed, partial, exclusive):
    run = random_run(seed, partial=partial, exclusive=exclusive)
    found, expected = cpu_share_no_room(run, whole_run(run)), naive_no_room(run, whole_run(run))
    assert found == (None if expected is None else approx(expected))
    metrics = summarize(run)
    assert found is None or found <= metrics["cpu_share_free_paused"] + metrics["cpu_share_free_waiting"] + 1e-12


def test_a_job_that_needs_more_memory_than_is_left_has_no_room():
    load = workload([(1, 0, 1, 0.5, 0.6, 10), (2, 0, 1, 0.5, 0.6, 10), (3, 5, 1, 0.5, 0.4, 5)], nodes=1)
    rows = [(0, 0, A.START, [0], 1.0, ""), (10, 0, A.FINISH, [], NAN, ""), (10, 1, A.START, [0], 1.0, "")]
    run = run_of(load, [*rows, (10, 2, A.START, [0], 1.0, ""), (15, 2, A.FINISH, [], NAN, "")], complete=False)
    metrics = summarize(run)
    # Until 5 s job 2 waits without room; then job 3 waits beside it, for which there is some.
    assert metrics["cpu_share_free_waiting"] * 15 == approx(0.5 * 10)
    assert cpu_share_no_room(run, whole_run(run)) * 15 == approx(0.5 * 5)


def test_where_the_cpu_of_the_story_goes():
    metrics = summarize(story_run())
    # CPU seconds of 3 nodes in 3,750 s, between the changes at 1000, 1500, 1875, 2100, 2225 and 3000 s.
    known = {
        "cpu_share_useful": 2 * 1000 + 2 * 500 + 2 * 375 + 225 + 125 + 600 + 2 * 450,
        "cpu_share_failures": 0,
        "cpu_share_penalty": 300 + 2 * 300,
        "cpu_share_whole_nodes": 0,
        "cpu_share_free_running": 500 + 375 + 125 + 775,
        "cpu_share_free_paused": 2 * 225,
        "cpu_share_free_waiting": 0,
        "cpu_share_not_wanted": 1000 + 775 + 750,
    }
    assert {name: metrics[name] * 3 * 3750 for name in SHARES} == pytest.approx(known)


def test_a_queue_that_asks_for_more_than_any_cluster_has_takes_all_that_is_free():
    rows = [(k, 0, 10**6, 1.0, 0.1, 10) for k in range(1, 400)]
    load = workload([(400, 0, 1, 1.0, 0.1, 10), *rows], nodes=4)
    run = run_of(load, [(0, 0, A.START, [0], 1.0, "")], complete=False, end_s=10.0)
    metrics = summarize(run)
    assert metrics["cpu_share_useful"] == approx(0.25)
    assert metrics["cpu_share_free_waiting"] == approx(0.75)
    assert metrics["cpu_share_not_wanted"] == 0.0


# Classes of jobs.


@given(SEEDS, st.booleans())
def test_classes_are_those_of_a_loop_and_have_all_jobs(seed, partial):
    run = random_run(seed, partial=partial)
    sizes, times_s = (1, 2), (10.0, 30.0)
    found = job_classes(run, whole_run(run), 10.0, sizes, times_s)
    assert len(found) == 9
    load, flow = run.workload, run.finish_s - run.workload.submit_s
    for each in found:
        own = [
            job
            for job in range(len(load))
            if np.isfinite(flow[job])
            and each.above_tasks < load.tasks[job] <= (each.most_tasks or math.inf)
            and each.above_s < load.run_s[job] <= (each.most_s or math.inf)
        ]
        stretches = [max(flow[job], 10.0) / max(load.run_s[job], 10.0) for job in own]
        assert each.jobs == len(own)
        assert each.bounded_stretch_mean == (approx(statistics.fmean(stretches)) if own else None)
        assert each.bounded_stretch_max == (approx(max(stretches)) if own else None)
        waits = [run.start_s[job] - load.submit_s[job] for job in own]
        assert each.wait_mean_s == (approx(statistics.fmean(waits)) if own else None)
    assert sum(each.jobs for each in found) == np.isfinite(flow).sum()


def test_jobs_on_a_limit_are_in_the_lower_class():
    load = workload([(1, 0, 8, 1.0, 0.1, 600), (2, 0, 9, 1.0, 0.1, 601)], nodes=9)
    rows = [(0, 0, A.START, range(8), 1.0, ""), (600, 0, A.FINISH, [], NAN, ""), (600, 1, A.START, range(9), 1.0, "")]
    run = run_of(load, [*rows, (1201, 1, A.FINISH, [], NAN, "")])
    found = {(c.most_tasks, c.most_s): c.jobs for c in job_classes(run, whole_run(run), 10.0) if c.jobs}
    assert found == {(8, 600.0): 1, (32, 3600.0): 1}


@pytest.mark.parametrize(("sizes", "times_s"), [((0, 8), (1.0,)), ((8, 8), (1.0,)), ((1,), (60.0, 10.0))])
def test_limits_of_classes_ascend_from_above_0(sizes, times_s):
    with pytest.raises(InputError, match="must be above 0 and ascending"):
        job_classes(story_run(), whole_run(story_run()), 10.0, sizes, times_s)


# Batch means.


@given(st.lists(st.floats(0.0, 1e6), min_size=150, max_size=400), st.integers(5, 8))
def test_intervals_by_batch_means_are_those_of_the_textbook(values, count):
    size = len(values) // count
    if size < 30:
        with pytest.raises(InputError, match="are too few: each batch must have at least 30 jobs"):
            batches.batch_means(np.array(values), count)
        return
    found = batches.batch_means(np.array(values), count)
    kept = values[len(values) - size * count :]
    means = [statistics.fmean(kept[k * size : (k + 1) * size]) for k in range(count)]
    half = student.ppf(0.975, count - 1) * statistics.stdev(means) / math.sqrt(count)
    assert (found.batches, found.batch_jobs, found.left_out) == (count, size, len(values) - size * count)
    assert found.mean == pytest.approx(statistics.fmean(means))
    assert found.half_width == pytest.approx(half, rel=1e-6, abs=1e-6)


def test_intervals_by_batch_means_hold_what_they_promise():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        found = batches.batch_means(rng.exponential(1.0, 1000))
        held += abs(found.mean - 1.0) <= found.half_width
    assert 0.92 <= held / 400 <= 0.98


def test_the_correlation_of_batches_tells_that_they_are_too_short():
    rng = np.random.default_rng(1)
    independent = batches.batch_means(rng.normal(size=2000))
    walk = batches.batch_means(np.cumsum(rng.normal(size=2000)))
    assert abs(independent.correlation) < 0.5 < walk.correlation
    assert batches.batch_means(np.ones(2000)).correlation is None


def test_too_few_batches_and_too_few_jobs_are_refused():
    with pytest.raises(InputError, match="batches = 4: must be at least 5"):
        batches.batch_means(np.ones(10_000), 4)
    with pytest.raises(InputError, match=r"599 finished jobs are too few.* 600 in all"):
        batches.batch_means(np.ones(599))


# Energy.


@given(SEEDS, st.booleans(), st.sampled_from(["100:250", "100:250:0", "100:250:10", "0:1"]))
def test_energy_is_that_of_each_node_at_each_instant(seed, partial, text):
    run, model = random_run(seed, partial=partial), PowerModel.parse(text)
    window = whole_run(run)
    found, load = energy(run, model, window), run.workload
    joules = idle = off = on_s = empty_s = useful_s = 0.0
    for length, _, states, down in clipped(Naive(run), window):
        for node in set(range(len(run.capacity))) - down:
            running = [(job, state["nodes"][node]) for job, state in states.items() if state["running"]]
            tasks = [(job, count) for job, count in running if count]
            used = sum(count * load.need[job] * states[job]["yield"] for job, count in tasks) / run.capacity[node, 0]
            useful_s += length * sum(count * load.need[job] * states[job]["progress"] for job, count in tasks)
            empty_s += length * (not tasks)
            if not tasks and model.empty_w is not None:
                off += length * model.empty_w
                continue
            on_s += length
            idle += length * model.idle_w
            joules += length * (model.busy_w - model.idle_w) * used
    joules += idle + off
    assert found.energy_kwh == approx(joules / 3.6e6)
    assert found.idle_kwh == approx(idle / 3.6e6)
    assert found.off_kwh == approx(off / 3.6e6)
    assert found.node_hours_on == approx(on_s / 3600)
    assert found.node_hours_empty == approx(empty_s / 3600)
    assert found.power_mean_w == (approx(joules / window.span_s) if window.span_s > 0 else None)
    assert found.kwh_per_cpu_hour == (approx(joules / 1000 / useful_s) if useful_s > 0 else None)


def test_energy_of_one_job_on_one_of_two_nodes():
    load = workload([(1, 0, 1, 0.5, 0.1, 3600)], nodes=2)
    run = run_of(load, [(0, 0, A.START, [0], 1.0, ""), (3600, 0, A.FINISH, [], NAN, "")])
    on = energy(run, PowerModel.parse("100:300"), whole_run(run))
    off = energy(run, PowerModel.parse("100:300:20"), whole_run(run))
    assert (on.energy_kwh, on.node_hours_on) == (approx(0.3), approx(2.0))
    assert (off.energy_kwh, off.off_kwh, off.node_hours_on) == (approx(0.22), approx(0.02), approx(1.0))
    assert on.kwh_per_cpu_hour == approx(0.6)


@pytest.mark.parametrize("text", ["", "100", "100:x", "100:250:0:0"])
def test_what_is_no_power_is_refused(text):
    with pytest.raises(InputError, match="must be IDLE:BUSY or IDLE:BUSY:OFF"):
        PowerModel.parse(text)


@pytest.mark.parametrize("text", ["250:100", "-1:5", "100:250:101", "nan:250", "1:inf"])
def test_watts_ascend_from_off_to_busy(text):
    with pytest.raises(InputError, match=r"^power = .*watts must be from 0"):
        PowerModel.parse(text)


def test_users_of_a_run_are_in_its_metrics():
    run = toy_run(nodes=8, jobs=60)
    metrics = summarize(run)
    assert metrics["users"] == 5
    unknown = replace(run, workload=run.workload.with_columns(user=np.full(60, -1)))
    assert summarize(unknown)["users"] == 0
    assert summarize(unknown)["user_bounded_stretch_gini"] is None
