"""Parts, mixtures and other loads of traces and workloads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.elastic import ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.workloads import transform
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.lublin import Lublin, generate
from tests.traces import TRACES, needs_traces
from tests.unit.test_annotate import trace

WEEK = 604_800


@given(st.lists(st.floats(0, 20 * WEEK), min_size=1, max_size=30))
def test_weeks_divide_the_trace(times):
    swf = trace(submit_s=times)
    for whole in (swf, to_workload(swf)[0]):
        parts = transform.weeks(whole)
        assert sorted(np.concatenate([part.job_id for part in parts]).tolist()) == sorted(whole.job_id.tolist())
        for part in parts:
            assert (part.submit_s >= 0).all()
            assert (part.submit_s < WEEK).all()
            number = int(part.name.rpartition("-")[2])
            again = transform.week(whole, number)
            assert again.job_id.tolist() == part.job_id.tolist()
            start = dict(zip(whole.job_id.tolist(), whole.submit_s.tolist(), strict=True))
            assert part.submit_s.tolist() == [start[j] - (number - 1) * WEEK for j in part.job_id.tolist()]


@needs_traces
def test_hpc2n_has_182_weeks():
    workload, _ = load_workload(TRACES / "HPC2N-2002-2.2-cln.swf.gz", annotate="hpc2n")
    parts = transform.weeks(workload)
    jobs = np.sort([len(part) for part in parts])
    assert len(jobs) == 182
    assert jobs.sum() == 202_871
    # The published median is the upper one of an even number.
    assert (jobs[0], jobs[91], jobs[-1]) == (43, 856, 4_507)
    assert parts[6].name == "HPC2N-2002-2.2-cln-week-7"


@given(st.floats(0.01, 10.0), st.integers(0, 50))
def test_scaling_reaches_the_load_and_changes_gaps_alone(load, seed):
    workload, _ = to_workload(generate(Lublin(jobs=50), seed=seed))
    scaled = transform.scale_to_load(workload, load)
    assert scaled.load == pytest.approx(load, rel=1e-9)
    assert scaled.submit_s[0] == workload.submit_s[0]
    for label in ("job_id", "tasks", "run_s", "memory"):
        assert np.array_equal(getattr(scaled, label), getattr(workload, label))
    ratio = (
        np.diff(scaled.submit_s)[np.diff(workload.submit_s) > 0]
        / np.diff(workload.submit_s)[np.diff(workload.submit_s) > 0]
    )
    assert ratio == pytest.approx(workload.load / load, rel=1e-5)


def test_scaling_needs_gaps_and_a_load():
    workload, _ = to_workload(trace(submit_s=[5, 5]))
    with pytest.raises(InputError, match="no gaps to scale"):
        transform.scale_to_load(workload, 0.5)
    for load in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=r"load = .*must be above 0 and finite"):
            transform.scale_to_load(to_workload(trace(3))[0], load)
    with pytest.raises(InputError, match="factor"):
        transform.scale_gaps(trace(3), 0.0)


def test_slices_by_jobs_and_by_time():
    swf = trace(
        submit_s=[10, 20, 30, 40], header=(" MaxProcs: 4", " UnixStartTime: 1000", " StartTime: Mon", " MaxJobs: 9")
    )
    part = transform.slice_jobs(swf, 1, 3)
    assert part.job_id.tolist() == [2, 3]
    assert part.submit_s.tolist() == [20, 30]
    assert part.header == {
        "MaxProcs": "4",
        "UnixStartTime": "1000",
        "MaxJobs": "2",
        "MaxRecords": "2",
        "Note": "jobs 1 to 2 of t",
    }
    assert transform.slice_jobs(swf, 3, 99).job_id.tolist() == [4]
    part = transform.slice_time(swf, 20, 40)
    assert part.job_id.tolist() == [2, 3]
    assert part.submit_s.tolist() == [0, 10]
    assert part.header["UnixStartTime"] == "1020"
    assert transform.slice_time(to_workload(swf)[0], 35, np.inf).submit_s.tolist() == [5]
    for first, end in ((2, 2), (4, 9), (-1, 2), (3, 1)):
        with pytest.raises(InputError, match="must hold some of 0:4"):
            transform.slice_jobs(swf, first, end)
    with pytest.raises(InputError, match="no job is submitted then; they are from 10 to 40 s"):
        transform.slice_time(swf, 41, 50)
    for number in (0, 2):
        with pytest.raises(InputError, match=f"week {number}: must be from 1 to 1"):
            transform.week(swf, number)


def test_merging_interleaves_and_renumbers_only_where_it_must():
    one = trace(submit_s=[0, 10], user=[1, 2], preceding=[-1, 1], header=(" MaxProcs: 4",))
    two = trace(submit_s=[5, 10, 20], user=[3, 4, 5], preceding=[7, 1, 2], header=(" MaxProcs: 9",))
    both = transform.merge([one, two])
    assert both.job_id.tolist() == [1, 2, 3, 4, 5]
    assert both.user.tolist() == [1, 3, 2, 4, 5]
    assert both.preceding.tolist() == [-1, -1, 1, 2, 4]
    assert both.machine_processors == 9
    assert both.header["MaxJobs"] == "5"
    # A header with another name for it counts as much.
    large = trace(submit_s=[0], user=[1], header=(" MaxNodes: 128",))
    assert transform.merge([large, two]).machine_processors == 128
    other = two.with_columns(job_id=two.job_id + 10)
    assert sorted(transform.merge([one, other]).job_id.tolist()) == [1, 2, 11, 12, 13]
    mixed = transform.merge([to_workload(one, nodes=9)[0], to_workload(two)[0]])
    assert mixed.submit_s.tolist() == [0, 5, 10, 10, 20]
    assert mixed.nodes == 9
    assert mixed.name == "t+t"
    with pytest.raises(InputError, match="nodes = 4, 9: must be the same"):
        transform.merge([to_workload(one)[0], to_workload(two)[0]])
    with pytest.raises(InputError, match="at least one"):
        transform.merge([])


def test_statistics_are_those_of_the_columns():
    swf = trace(
        submit_s=[0, 10, 40], processors=[1, 2, 3], run_s=[10, 20, 30], user=[1, 1, -1], header=(" MaxProcs: 4",)
    )
    d = transform.describe(to_workload(swf, annotate="none", estimates="none")[0])
    assert (d["jobs"], d["nodes"], d["users"], d["span_s"]) == (3, 4, 1, 40)
    assert d["load"] == pytest.approx((10 + 40 + 90) / (4 * 40))
    assert d["work_node_s"] == 140
    assert d["one_task_fraction"] == pytest.approx(1 / 3)
    assert d["estimated_fraction"] == 0
    assert d["tasks"] == {"min": 1, "p25": 1.5, "median": 2, "mean": 2, "p75": 2.5, "max": 3}
    assert d["gap_s"] == {"min": 10, "p25": 15, "median": 20, "mean": 20, "p75": 25, "max": 30}
    lonely = transform.describe(to_workload(trace(1))[0])
    assert lonely["load"] is None
    assert lonely["gap_s"] is None


def elastic_workload():
    """Jobs 7 and 8, one of them dedicated, with a command on each and one on a job that is not there."""
    return Workload(
        job_id=np.array([7, 8]),
        submit_s=np.array([100.0, 300.0]),
        tasks=np.array([1, 2]),
        need=np.ones(2),
        memory=np.zeros(2),
        run_s=np.array([50.0, 60.0]),
        estimate_s=np.array([50.0, 60.0]),
        user=np.array([1, 1]),
        weight=np.ones(2),
        nodes=4,
        name="w",
        requested_start_s=np.array([np.nan, 350.0]),
        commands=ElasticCommands(
            time_s=np.array([110.0, 120.0, 320.0]),
            job_id=np.array([7, 99, 8]),
            kind=np.array([0, 1, 2]),
            amount=np.array([5.0, 6.0, 1.0]),
        ),
    )


def test_requested_starts_and_commands_keep_their_distance_from_the_submission():
    part = transform.slice_time(elastic_workload(), 90.0, 400.0)
    assert (part.submit_s.tolist(), part.requested_start_s[1]) == ([10.0, 210.0], 260.0)
    assert (part.commands.time_s.tolist(), part.commands.job_id.tolist()) == ([20.0, 230.0], [7, 8])
    wide = transform.scale_gaps(elastic_workload(), 3.0)
    assert (wide.submit_s.tolist(), wide.requested_start_s[1]) == ([100.0, 700.0], 750.0)
    assert wide.commands.time_s.tolist() == [110.0, 720.0]
    assert transform.slice_jobs(elastic_workload(), 1, 2).commands.job_id.tolist() == [8]


def test_merging_renumbers_jobs_and_the_commands_on_them():
    merged = transform.merge([elastic_workload(), elastic_workload()])
    assert merged.job_id.tolist() == [1, 2, 3, 4]
    assert merged.commands.job_id.tolist() == [1, 2, 3, 4]
    assert merged.requested_start_s[2:].tolist() == [350.0, 350.0]
