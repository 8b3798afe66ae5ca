"""Alibaba cluster trace 2018: rows of batch tasks and containers become jobs, with the units of the documentation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.workloads import swf
from dfrs.workloads.clouds import alibaba_2018
from dfrs.workloads.clouds.jobs import CloudOptions
from dfrs.workloads.clouds.load import load_cloud_trace
from tests.cloud_cases import alibaba, batch_instance, batch_task, container


def load(path, **options):
    return load_cloud_trace(path, CloudOptions(nodes=4, **options))


def test_a_batch_task_is_a_job_of_its_instances(tmp_path):
    rows = [batch_task("M1", 3, start=500, end=560, cpu=50.0, memory=0.25), batch_task("R2_1", start=100, end=101)]
    work, report = load(alibaba(tmp_path / "batch_task.csv", rows))
    assert work.job_id.tolist() == [2, 1]
    assert work.submit_s.tolist() == [100, 500]
    assert work.tasks.tolist() == [1, 3]
    assert work.run_s.tolist() == [1, 60]
    assert work.need.tolist() == [1 / 96, 0.5 / 96]
    assert work.memory.tolist() == [0.005, 0.0025]
    assert work.user.tolist() == [-1, -1]
    assert report.lines() == [
        f"{tmp_path / 'batch_task.csv'}: Alibaba cluster trace 2018: 2 of 2 batch tasks and containers taken, with "
        "4 tasks; a node is a machine of the trace: 96 cores and 100 % of normalised memory"
    ]


def test_what_is_left_out_and_why(tmp_path):
    rows = [
        batch_task(start=0, end=160),
        batch_task(state="Running", start=150, end=0),
        batch_task(state="Terminated", start=150, end=0),
        batch_task(state="Waiting", start=0, end=0),
        batch_task(instances=0),
        batch_task(cpu=None),
        batch_task(memory=None),
        batch_task(memory=101),
        batch_task(memory=-1),
        batch_task(cpu=9700.0),
        batch_task(state="Failed", start=100, end=250),
        batch_task(state="Cancelled", start=100, end=100),
        batch_task(instances=None),
    ]
    work, report = load(alibaba(tmp_path / "x", rows))
    assert work.job_id.tolist() == [11, 12]
    assert work.run_s.tolist() == [150, 1]
    assert report.notes == (("failed", 1), ("cancelled", 1), ("with a run time of 0, taken as 1 s", 1))
    assert report.left_out == (
        ("never started", 1),
        ("started before the trace begins", 1),
        ("cut off at its end", 2),
        ("without an instance", 2),
        ("without a CPU request", 1),
        ("without a memory request", 3),
        ("with tasks larger than a node", 1),
    )
    work, report = load(tmp_path / "x", cut_off="keep")
    assert dict(zip(work.job_id.tolist(), work.run_s.tolist(), strict=True)) == {1: 160, 2: 100, 3: 100, 11: 150, 12: 1}
    assert work.submit_s.tolist()[0] == 0


def test_instances_give_the_mean_time_that_a_task_took(tmp_path):
    alibaba(
        tmp_path / "batch_task.csv", [batch_task(instances=4), batch_task("M2", job="j_2"), batch_task("M3", end=0)]
    )
    instances = [
        batch_instance(1, start=100, end=110),
        batch_instance(2, start=110, end=140),
        batch_instance(3, state="Failed", start=100, end=1000),
        batch_instance(4, start=0, end=0),
        batch_instance(5, start=120, end=110),
        batch_instance(6, job="j_2"),
        batch_instance(7, "M3"),
    ]
    alibaba(tmp_path / "batch_instance.csv", instances)
    work, report = load(tmp_path)
    assert dict(zip(work.job_id.tolist(), work.run_s.tolist(), strict=True)) == {1: 20.0, 2: 60.0}
    assert report.notes == (("with the mean time of their instances", 1),)
    assert report.left_out == (("cut off at its end", 1),)


def test_lines_of_a_table_in_several_files_are_counted_through(tmp_path):
    alibaba(tmp_path / "batch_task-0.csv", [batch_task("M1"), batch_task("M2")])
    alibaba(tmp_path / "batch_task-1.csv", [batch_task("M3"), batch_task("M4")])
    alibaba(tmp_path / "container_meta-0.csv", [container("c_1", 100)])
    alibaba(tmp_path / "container_meta-1.csv", [container("c_2", 100), container("c_1", 200, "stopped")])
    work, _ = load(tmp_path, cut_off="keep")
    assert sorted(work.job_id.tolist()) == [1, 2, 3, 4, 1_000_000_001, 1_000_000_002]


def test_containers_run_from_their_first_row_until_they_are_stopped(tmp_path):
    rows = [
        container("c_1", 0),
        container("c_1", 300),
        container("c_2", 700, "started"),
        container("c_2", 200, "allocated", cpu=None),
        container("c_2", 900, "stopped"),
        container("c_3", 250),
    ]
    alibaba(tmp_path / "container_meta.csv", rows)
    work, report = load(tmp_path)
    assert work.job_id.tolist() == [1_000_000_003]
    assert (work.submit_s.tolist(), work.run_s.tolist()) == ([200], [700])
    assert work.need.tolist() == [4 / 96]
    assert work.memory.tolist() == pytest.approx([0.0156])
    assert report.notes == (("containers", 1),)
    assert report.left_out == (("started before the trace begins", 1), ("cut off at its end", 1))
    alibaba(tmp_path / "batch_task.csv", [batch_task()])
    work, _ = load(tmp_path, cut_off="keep")
    assert work.submit_s.tolist() == [0, 100, 200, 250]
    assert work.run_s.tolist() == [900, 60, 700, 650]
    assert work.weight.tolist() == [2, 1, 2, 2]


@given(
    rows=st.lists(
        st.builds(
            batch_task,
            name=st.sampled_from(("M1", "R2_1")),
            job=st.sampled_from(("j_1", "j_2", "j_3")),
            instances=st.integers(0, 9),
            state=st.sampled_from(alibaba_2018.STATES),
            start=st.integers(0, 50),
            end=st.integers(0, 90),
            cpu=st.sampled_from((None, 0, 50, 100.5, 9600, 9601)),
            memory=st.sampled_from((None, -1, 0, 0.5, 100, 101)),
        ),
        min_size=1,
        max_size=30,
    ),
    split=st.integers(1, 49),
    block=st.integers(30, 3_000),
)
def test_windows_divide_a_trace(tmp_path_factory, rows, split, block):
    path = alibaba(tmp_path_factory.mktemp("alibaba") / "x", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swf, "BLOCK_BYTES", block)
        parts = [taken(path, window_s=window) for window in ((0, split), (split, 1e9), (0, 1e9))]
    assert parts[0] | parts[1] == parts[2]
    assert not parts[0].keys() & parts[1].keys()
    assert parts[2] == {
        line: (start, end - start or 1, count, cpu)
        for line, (_, count, _, _, state, start, end, cpu, memory) in enumerate(rows, 1)
        if state in {"Terminated", "Failed", "Cancelled"}
        and 0 < start <= end
        and count
        and cpu is not None
        and 0 < cpu <= 9600
        and memory is not None
        and 0 <= memory <= 100
    }


def taken(path, **options):
    try:
        work, report = load(path, **options)
    except InputError as error:
        assert "can be taken" in str(error)  # noqa: PT017
        return {}
    assert report.jobs == report.taken + sum(count for _, count in report.left_out)
    begin = options["window_s"][0]
    return {
        job: (round(submit + begin), run, tasks, round(need * 9600, 6))
        for job, submit, run, tasks, need in zip(
            *(getattr(work, name).tolist() for name in ("job_id", "submit_s", "run_s", "tasks", "need")), strict=True
        )
    }


@pytest.mark.parametrize("block", [80, 2**20])
def test_instances_may_come_in_any_number_of_blocks(tmp_path, monkeypatch, block):
    alibaba(tmp_path / "batch_task.csv", [batch_task(f"M{k}") for k in range(20)])
    alibaba(tmp_path / "batch_instance.csv", [batch_instance(k, f"M{k % 20}", end=130 + k) for k in range(100)])
    monkeypatch.setattr(swf, "BLOCK_BYTES", block)
    monkeypatch.setattr(alibaba_2018, "MOST_ROWS", 3)
    work, _ = load(tmp_path)
    assert work.run_s.tolist() == [70.0 + k for k in range(20)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (batch_task(state="Done"), r'x:2: status = "Done": must be one of Ready, Waiting, Running, Terminated, Failed'),
        (batch_task(instances="many"), r'x:2: instance_num = "many": must be a whole number of at least 0'),
        (batch_task(cpu="inf"), r'x:2: plan_cpu = "inf": must be a finite number'),
        (batch_task(start="1.5"), r'x:2: start_time = "1.5": must be a whole number'),
        (batch_task(job=None), r'x:2: job_name = "": must be a text'),
        (batch_task()[:-1], r"x:2: 8 fields: must be 9"),
        ((*batch_task(), "more"), r"x:2: 10 fields: must be 9"),
    ],
)
def test_wrong_lines_are_refused(tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        load(alibaba(tmp_path / "x", [batch_task(), row]))


def test_a_header_is_refused(tmp_path):
    rows = [[column.name for column in alibaba_2018.TASKS], batch_task()]
    with pytest.raises(InputError, match=r'x:1: instance_num = "instance_num": must be a whole number'):
        load(alibaba(tmp_path / "x", rows))
