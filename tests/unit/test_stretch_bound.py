"""The stretch bound against Theorem 1's program, against every cut in exact fractions, and by its certificate."""

import json
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dfrs.bounds import stretch_flow
from dfrs.bounds.stretch import stretch_bound
from dfrs.cli.simulate.bound import bound
from dfrs.kernels import stretch as kernels
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.workloads.load import load_workload
from tests.naive import stretch as naive
from tests.traces import TRACES, needs_traces

CLOSE = 1e-9
LAST_DIGIT = 1 + Fraction(1, 2**52)


def make_workload(jobs, nodes):
    """From (submission, run time, tasks, need)."""
    submit, run, tasks, need = (np.array(column, float) for column in zip(*jobs, strict=True))
    count = len(jobs)
    return Workload(
        job_id=np.arange(1, count + 1),
        submit_s=submit,
        tasks=tasks.astype(np.int64),
        need=need,
        memory=np.full(count, 0.1),
        run_s=run,
        estimate_s=np.full(count, np.nan),
        user=np.full(count, -1),
        weight=np.ones(count),
        nodes=nodes,
    )


def exactly(workload):
    """The jobs of the naive twins."""
    columns = (workload.submit_s, workload.run_s, workload.need * workload.tasks)
    return [tuple(map(Fraction, row)) for row in zip(*(column.tolist() for column in columns), strict=True)]


@st.composite
def workloads(draw, most=6, grid=None):
    """Small whole numbers, so that events coincide, or (half of the time, or as `grid` says) numbers on no grid."""
    whole = draw(st.booleans()) if grid is None else grid
    time = st.integers(0, 12) if whole else st.floats(0, 12, allow_subnormal=False).map(lambda t: round(t, 6))
    length = st.integers(1, 8) if whole else st.floats(0.05, 8).map(lambda t: round(t, 6))
    need = st.sampled_from([0.25, 0.5, 1.0]) if whole else st.floats(0.05, 1).map(lambda n: round(n, 6))
    job = st.tuples(time, length, st.integers(1, 4), need)
    return make_workload(draw(st.lists(job, min_size=1, max_size=most)), draw(st.integers(1, 4)))


stretches = st.integers(8, 40).map(lambda eighths: eighths / 8)


def by_priority(jobs, capacity, order):
    """The maximum stretch where CPU always goes to the first of `order` that can use it."""
    missing = [run * rate for _, run, rate in jobs]
    now, finish = Fraction(0), {}
    while len(finish) < len(jobs):
        left, rates = capacity, {}
        for j in order:
            if j not in finish and jobs[j][0] <= now and left > 0:
                rates[j] = min(jobs[j][2], left)
                left -= rates[j]
        ends = [now + missing[j] / rate for j, rate in rates.items()]
        later = min([*ends, *(release for release, _, _ in jobs if release > now)])
        for j, rate in rates.items():
            missing[j] -= rate * (later - now)
            if not missing[j]:
                finish[j] = later
        now = later
    return max((finish[j] - release) / run for j, (release, run, _) in enumerate(jobs))


def check_certificate(workload, bound, capacity):
    """Below the value the critical set fails its cut; at the value the schedule keeps every rule of Theorem 1."""
    jobs = exactly(workload)
    critical = [jobs[j] for j in bound.certificate.jobs]
    value, total = Fraction(bound.value), Fraction(capacity)
    assert naive.fails(critical, total, value * (1 - Fraction(1, 10**6)))
    assert naive.fails(critical, total, value * (1 - Fraction(1, 10**15)))
    assert not naive.fails(critical, total, value * (1 + Fraction(1, 10**9)))
    plan = bound.certificate.schedule
    length = np.diff(plan.times_s)
    rate = workload.need * workload.tasks
    assert (length > 0).all()
    assert (plan.work > 0).all()
    assert len(set(zip(plan.job.tolist(), plan.interval.tolist(), strict=True))) == len(plan.job)
    deadline = workload.submit_s + bound.value * workload.run_s
    moment = 1e-12 * np.abs(plan.times_s).max()
    assert (plan.times_s[plan.interval] >= workload.submit_s[plan.job] - moment).all()
    assert (plan.times_s[plan.interval + 1] <= deadline[plan.job] + moment).all()
    assert (plan.work <= rate[plan.job] * (length[plan.interval] + moment)).all()
    in_interval = np.bincount(plan.interval, plan.work, len(length))
    assert (in_interval <= capacity * (length + moment)).all()
    needed = rate * workload.run_s
    of_job = np.bincount(plan.job, plan.work, len(workload))
    assert of_job == pytest.approx(needed, rel=1e-7)
    assert max((1 - of_job / needed).max(), 0) <= bound.certificate.shortfall + CLOSE


@given(workloads())
def test_it_is_the_largest_root_of_a_cut(workload):
    exact = naive.by_cuts(exactly(workload), Fraction(workload.nodes))
    value = stretch_bound(workload).value
    assert Fraction(value) <= exact * LAST_DIGIT
    assert value == pytest.approx(float(exact), rel=1e-10)


@settings(max_examples=25)
@given(workloads(most=8))
def test_it_is_the_optimum_of_theorem_1s_program(workload):
    assert stretch_bound(workload).value == pytest.approx(
        naive.by_program(exactly(workload), workload.nodes), rel=1e-6, abs=0
    )


@given(workloads(most=12))
def test_the_certificate_proves_it(workload):
    check_certificate(workload, stretch_bound(workload, schedule=True), float(workload.nodes))


@given(workloads(most=8), st.randoms(use_true_random=False))
def test_no_schedule_has_a_smaller_maximum_stretch(workload, random):
    order = list(range(len(workload)))
    random.shuffle(order)
    reached = by_priority(exactly(workload), Fraction(workload.nodes), order)
    assert Fraction(stretch_bound(workload).value) <= reached * LAST_DIGIT


@given(workloads(most=8))
def test_more_capacity_does_not_raise_it_and_a_later_origin_does_not_change_it(workload):
    value = stretch_bound(workload).value
    assert stretch_bound(workload, capacity=workload.nodes * 1.5).value <= value * (1 + CLOSE)
    later = workload.with_columns(submit_s=workload.submit_s + 2.0**20)
    assert stretch_bound(later).value == pytest.approx(value, rel=1e-6)


def test_a_job_alone_has_stretch_1():
    bound = stretch_bound(make_workload([(7, 3, 2, 1.0)], nodes=4))
    assert bound.value == 1.0
    assert bound.certificate.jobs.tolist() == [0]
    assert bound.certificate.schedule is None
    assert bound.iterations == 1


def test_a_job_wider_than_the_cluster_is_stretched_by_its_excess():
    assert stretch_bound(make_workload([(0, 5, 6, 0.5), (0, 1, 1, 0.25)], nodes=1)).value >= 3.0
    assert stretch_bound(make_workload([(0, 5, 6, 0.5)], nodes=1)).value == 3.0


def test_two_equal_jobs_of_full_width_share_the_time():
    bound = stretch_bound(make_workload([(0, 10, 4, 1.0)] * 2, nodes=4))
    assert bound.value == pytest.approx(2.0, rel=1e-12)
    assert bound.certificate.jobs.tolist() == [0, 1]


def test_a_short_job_goes_before_a_long_one_of_the_same_width():
    """In the other order the short one would have 11; the long one must wait for 1 second of 10."""
    assert stretch_bound(make_workload([(0, 10, 1, 1.0), (0, 1, 1, 1.0)], nodes=1)).value == pytest.approx(1.1)


def test_jobs_that_never_meet_do_not_add_up():
    jobs = [(start, 10, 2, 1.0) for start in (0, 0, 1000, 1000, 1000)]
    bound = stretch_bound(make_workload(jobs, nodes=2))
    assert bound.value == pytest.approx(3.0)
    assert bound.certificate.jobs.tolist() == [2, 3, 4]


@pytest.mark.parametrize("count", [3, 5, 12])
def test_the_instance_that_is_bad_for_equal_shares_has_the_schedule_of_its_proof(count):
    """Theorem 4's proof: each job but the first when it comes, then the first."""
    runs = [count - 1.0] + [(count - 1) / (i - 1) for i in range(2, count + 1)]
    releases = [0.0, *accumulate(runs[1:-1], initial=0.0)]
    workload = make_workload([(r, p, 1, 1.0) for r, p in zip(releases, runs, strict=True)], nodes=1)
    bound = stretch_bound(workload, schedule=True)
    assert bound.value <= (1 + sum(1 / i for i in range(1, count))) * (1 + CLOSE)
    assert bound.value > 1.2
    check_certificate(workload, bound, 1.0)


def test_jobs_without_capacity_in_reference_nodes_are_refused():
    workload = make_workload([(0, 1, 1, 1.0)], nodes=1)
    for capacity in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match=r"^capacity = .*: must be above 0 and finite$"):
            stretch_bound(workload, capacity=capacity)


def test_a_workload_without_jobs_has_bound_1():
    workload = make_workload([(0, 1, 1, 1.0)], nodes=1).select(np.zeros(1, np.bool_))
    bound = stretch_bound(workload, schedule=True)
    assert bound.value == 1.0
    assert len(bound.certificate.jobs) == len(bound.certificate.schedule.work) == 0


def run_bound(*arguments):
    app = typer.Typer()
    app.command()(bound)
    return CliRunner().invoke(app, [*map(str, arguments)])


def swf(path, jobs):
    """(submission, run time, processors); the jobs' numbers are 11, 12, ..."""
    path.write_text(
        "".join(f"{k} {r} -1 {p} {n} -1 -1 {n} -1 -1 1 1 1 1 1 1 -1 -1\n" for k, (r, p, n) in enumerate(jobs, 11))
    )
    return path


def test_the_command_names_the_critical_jobs(tmp_path):
    busy = swf(tmp_path / "busy.swf", [(0, 10, 1), (500, 10, 2), (500, 10, 2), (900, 10, 2)])
    idle = swf(tmp_path / "idle.swf", [(0, 10, 2)])
    one = json.loads(run_bound(busy, "--nodes", 2, "--annotate", "none", "--json").stdout)
    assert one["stretch_bound"] == pytest.approx(2.0)
    assert one["critical_jobs"] == [12, 13]
    assert (one["jobs"], one["nodes"], one["capacity"]) == (4, 2, 2.0)
    both = json.loads(run_bound(busy, idle, "--nodes", 2, "--annotate", "none", "--json").stdout)
    assert [result["stretch_bound"] for result in both["results"]] == [one["stretch_bound"], 1.0]
    text = run_bound(busy, "--nodes", 2, "--annotate", "none").stdout
    assert "2.000000" in text
    assert "critical jobs: 12 13" in text


def test_the_command_takes_capacity_from_a_file_of_nodes(tmp_path):
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("cpu,memory\n1,1\n0.5,1\n")
    trace = swf(tmp_path / "one.swf", [(0, 10, 2)])
    result = json.loads(run_bound(trace, "--node-file", nodes, "--annotate", "none", "--json").stdout)
    assert (result["nodes"], result["capacity"]) == (2, 1.5)
    assert result["stretch_bound"] == pytest.approx(2 / 1.5)


@needs_traces
@pytest.mark.parametrize("seed", [2, 19, 80])
def test_the_bound_of_a_lublin_trace_is_certified(seed):
    workload, _ = load_workload(TRACES / "lublin128" / f"lublin128_s{seed:03d}.swf.gz", nodes=128, annotate="dfrs")
    bound = stretch_bound(workload, schedule=True)
    check_certificate(workload, bound, 128.0)
    again = stretch_bound(workload)
    assert (again.value, again.certificate.jobs.tolist()) == (bound.value, bound.certificate.jobs.tolist())


def columns(workload):
    return workload.submit_s, workload.run_s, workload.need * workload.tasks


def network(workload, stretch):
    """Intervals, windows and an empty flow, from the definitions."""
    submit, run, rate = columns(workload)
    deadline = submit + stretch * run
    times = np.array(sorted({*submit.tolist(), *deadline.tolist()}))
    begin = np.array([int((times < t).sum()) for t in submit])
    end = np.array([int((times < t).sum()) for t in deadline])
    rows = np.concatenate([[0], np.cumsum(end - begin)])
    made = kernels.Network(run, rate, times, begin, end, rows[:-1] - begin, float(workload.nodes))
    intervals = len(times) - 1
    flow = kernels.Flow(np.zeros(rows[-1]), np.zeros(intervals), run * rate, np.zeros(intervals, np.int64))
    return made, flow, deadline


def serve(made, deadline, flow):
    """All of the time, with all amounts."""
    kernels.serve(made, deadline, flow, 0, len(made.times) - 1, 0)


def by_interval(made, flow):
    """What each job gets in each interval."""
    return [
        {
            j: float(flow.amount[made.edge[j] + t])
            for j in range(len(made.rate))
            if made.begin[j] <= t < made.end[j] and flow.amount[made.edge[j] + t] > 0
        }
        for t in range(len(made.times) - 1)
    ]


@given(workloads(most=12), stretches, st.data())
def test_a_cuts_capacity_and_slope_are_those_of_the_integral(workload, stretch, data):
    members = np.array(sorted(data.draw(st.sets(st.integers(0, len(workload) - 1), min_size=1))))
    jobs = [exactly(workload)[j] for j in members]
    capacity, step = Fraction(workload.nodes), Fraction(1, 2**40)
    work, slope = kernels.cut_capacity(*columns(workload), members, float(capacity), stretch)
    at, after, before = (
        naive.cut_capacity(jobs, capacity, Fraction(stretch) + shift) for shift in (Fraction(0), step, -step)
    )
    assert work == pytest.approx(float(at), rel=1e-12)
    if after - at == at - before:
        assert slope == pytest.approx(float((after - at) / step), rel=1e-9, abs=1e-9)


@given(workloads(most=8), st.data())
def test_the_least_stretch_of_a_cut_is_its_root(workload, data):
    members = np.array(sorted(data.draw(st.sets(st.integers(0, len(workload) - 1), min_size=1))))
    capacity = Fraction(workload.nodes)
    exact = naive.root([exactly(workload)[j] for j in members], capacity)
    submit, run, rate = columns(workload)
    got, evaluations = kernels.least_stretch(submit, run, rate, run * rate, members, float(capacity), 1.0)
    assert Fraction(got) <= exact
    assert got == pytest.approx(float(exact), rel=1e-11)
    assert evaluations <= 30


@given(workloads(most=12, grid=True), stretches)
def test_the_first_schedule_is_greedy(workload, stretch):
    made, flow, deadline = network(workload, stretch)
    serve(made, deadline, flow)
    expected = naive.greedy(exactly(workload), Fraction(workload.nodes), Fraction(stretch))
    assert by_interval(made, flow) == expected
    spare = [
        workload.nodes * length - sum(got.values()) for length, got in zip(np.diff(made.times), expected, strict=True)
    ]
    assert flow.spare.tolist() == spare


@given(workloads(most=12), stretches)
def test_the_first_schedule_leaves_nobody_with_more_or_less_than_his_work(workload, stretch):
    made, flow, deadline = network(workload, stretch)
    serve(made, deadline, flow)
    got = by_interval(made, flow)
    total = [sum(here.get(j, 0.0) for here in got) for j in range(len(workload))]
    assert total + flow.missing == pytest.approx(made.run * made.rate)


@given(workloads(most=12), stretches, st.data())
def test_a_part_of_the_first_schedule_is_as_in_the_whole(workload, stretch, data):
    made, flow, deadline = network(workload, stretch)
    serve(made, deadline, flow)
    intervals = len(made.times) - 1
    got = by_interval(made, flow)
    for t, here in enumerate(got):
        # Whoever is served before and after has waited.
        assert flow.waiting[t] >= len(set(here) & set().union(*got[t + 1 :]))
    quiet = [0, *(t + 1 for t in range(intervals) if flow.waiting[t] == 0)]
    begin = data.draw(st.sampled_from(quiet))
    end = data.draw(st.integers(begin, intervals))
    kept = data.draw(st.integers(begin, end))
    _, part, _ = network(workload, stretch)
    kernels.serve(made, deadline, part, begin, end, kept)
    assert part.spare[begin:end].tolist() == flow.spare[begin:end].tolist()
    assert part.waiting[begin:end].tolist() == flow.waiting[begin:end].tolist()
    nothing = [{}] * intervals
    assert by_interval(made, part) == [*nothing[:kept], *by_interval(made, flow)[kept:end], *nothing[end:]]
    done = [j for j in range(len(workload)) if begin <= made.begin[j] and made.end[j] <= end]
    assert part.missing[done].tolist() == flow.missing[done].tolist()


@pytest.mark.parametrize("around", [0, 1])
@given(workload=workloads(most=12), stretch=stretches)
def test_parts_of_the_time_serve_whom_all_of_it_serves_and_find_cuts_of_all_of_it(around, workload, stretch):
    """As large as they must become, and no larger; also where several meet."""
    order = np.argsort(workload.submit_s, kind="stable")
    submit, run, rate = (column[order] for column in columns(workload))
    problem = stretch_flow.Problem(submit, run, run, rate, float(workload.nodes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretch_flow, "AROUND", around)
        patch.setattr(stretch_flow, "FEW", 0)
        timeline = stretch_flow.Timeline(problem, stretch)
        jobs = [exactly(workload)[j] for j in order]
        for job in timeline.unserved:
            members = timeline.cut(job)
            if len(members):
                assert job in members
                cut = [jobs[j] for j in members]
                assert naive.work(cut) > naive.cut_capacity(cut, Fraction(workload.nodes), Fraction(stretch))
        short = float((run * rate).sum()) - naive.served(jobs, float(workload.nodes), stretch)
        assert timeline.flow.missing.sum() == pytest.approx(short, rel=1e-6, abs=1e-8)


@given(workloads(most=12), st.sampled_from([0.0, 0.5, 3.0]), st.data())
def test_where_it_begins_to_look_makes_no_difference(workload, tau_s, data):
    near = np.array(sorted(data.draw(st.sets(st.integers(0, len(workload) - 1)))), np.int64)
    plain = stretch_bound(workload, tau_s=tau_s)
    bound = stretch_bound(workload, tau_s=tau_s, near=near)
    assert bound.value == pytest.approx(plain.value, rel=1e-10)
    again = stretch_bound(workload, tau_s=tau_s, near=bound.certificate.jobs)
    assert again.iterations == 1


@given(workloads(most=12), stretches)
def test_the_jobs_of_an_interval_are_those_whose_window_has_it(workload, stretch):
    made, _, _ = network(workload, stretch)
    intervals = len(made.times) - 1
    first, present = kernels.jobs_by_interval(made.begin, made.end, intervals)
    for t in range(intervals):
        inside = [j for j in range(len(made.rate)) if made.begin[j] <= t < made.end[j]]
        assert present[first[t] : first[t + 1]].tolist() == inside


@settings(max_examples=40)
@given(workloads(most=10), stretches, st.booleans())
def test_augmenting_every_job_serves_as_much_as_the_program_and_finds_cuts_that_are_short(workload, stretch, greedily):
    made, flow, deadline = network(workload, stretch)
    if greedily:
        serve(made, deadline, flow)
    else:
        flow.spare[:] = made.capacity * np.diff(made.times)
    vertices, intervals = len(made.rate) + len(made.times) - 1, len(made.times) - 1
    first, present = kernels.jobs_by_interval(made.begin, made.end, intervals)
    search = kernels.StretchSearch(first, present, *(np.zeros(vertices, np.int64) for _ in range(4)))
    jobs = exactly(workload)
    for j in range(len(jobs)):
        reached = kernels.augment(made, flow, search, j, 1e-12 * float(made.run[j] * made.rate[j]))
        if reached:
            cut = [jobs[v] for v in search.queue[:reached] if v < len(jobs)]
            short = naive.work(cut) - naive.cut_capacity(cut, Fraction(workload.nodes), Fraction(stretch))
            lacking = sum(flow.missing[v] for v in search.queue[:reached] if v < len(jobs))
            assert float(short) == pytest.approx(lacking, rel=1e-6, abs=1e-9)
    needed = float((made.run * made.rate).sum())
    assert needed - flow.missing.sum() == pytest.approx(naive.served(jobs, made.capacity, stretch), rel=1e-8)
    length = np.diff(made.times)
    for t, here in enumerate(by_interval(made, flow)):
        assert sum(here.values()) + flow.spare[t] == pytest.approx(made.capacity * length[t], rel=1e-9, abs=1e-9)
        assert all(amount <= made.rate[j] * length[t] * (1 + CLOSE) for j, amount in here.items())


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3), st.integers(1, 9), st.integers(0, 30)), min_size=1))
def test_a_dedicated_job_counts_from_its_requested_start(rows):
    submit_s, tasks, run_s, lead_s = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    jobs = len(rows)
    work = Workload(
        job_id=np.arange(jobs),
        submit_s=submit_s,
        tasks=tasks.astype(np.int64),
        need=np.ones(jobs),
        memory=np.zeros(jobs),
        run_s=run_s,
        estimate_s=run_s,
        user=np.zeros(jobs, np.int64),
        weight=np.ones(jobs),
        nodes=3,
        requested_start_s=np.where(lead_s % 3 == 0, np.nan, submit_s + lead_s),
    )
    later = work.with_columns(submit_s=work.release_s, requested_start_s=np.full(jobs, np.nan))
    bound, plain = stretch_bound(work, schedule=True), stretch_bound(later, schedule=True)
    assert bound.value == plain.value
    certificate = bound.certificate
    assert (np.diff(certificate.jobs) > 0).all()
    assert set(work.job_id[certificate.jobs]) == set(later.job_id[plain.certificate.jobs])
    done = certificate.schedule
    assert (np.diff(done.job) >= 0).all()
    assert np.bincount(done.job, done.work, jobs) == pytest.approx(work.run_s * work.tasks)
    assert (done.times_s[done.interval] >= work.release_s[done.job] - 1e-9).all()
