"""Azure trace for packing 2020: VMs become jobs on one kind of machine."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.workloads.clouds import azure_2020
from dfrs.workloads.clouds.jobs import CloudOptions
from dfrs.workloads.clouds.load import load_cloud_trace
from tests.cloud_cases import azure

TYPES = [(8, 16, 0.25, 0.125), (9, 16, 0.5, 0.5), (8, 17, 0.5, 0.25), (10, 17, None, 0.1)]
NAME = "packing_trace_zone_a_v1.sqlite"


def load(path, **options):
    return load_cloud_trace(path, CloudOptions(nodes=4, **options))


def test_a_vm_is_a_job_of_one_task(tmp_path):
    vms = [(5, 70, 9, 1, 0.5, 0.75), (3, 71, 8, 0, 0.25, 1.25)]
    work, report = load(azure(tmp_path / NAME, vms, TYPES))
    assert work.job_id.tolist() == [3, 5]
    assert work.submit_s.tolist() == [21_600, 43_200]
    assert work.run_s.tolist() == [86_400, 21_600]
    assert work.tasks.tolist() == [1, 1]
    assert (work.need.tolist(), work.memory.tolist()) == ([0.25, 0.5], [0.125, 0.5])
    assert (work.user.tolist(), work.weight.tolist()) == ([71, 70], [2, 1])
    assert report.lines() == [
        f"{tmp_path / NAME}: Azure trace for packing 2020: 2 of 2 VMs taken, with 2 tasks "
        "(1 of low priority, which may have been evicted); a node is machine 16 of table vmType"
    ]


def test_vms_without_a_start_or_an_end(tmp_path):
    vms = [
        (0, 0, 8, 0, -138.925486, None),
        (1, 0, 8, 0, -1.5, 2.0),
        (2, 0, 8, 0, 10.0, None),
        (3, 0, 8, 0, 10.0, 10.0),
        (4, 0, 8, 0, 10.0, 9.0),
        (5, 0, 10, 0, 1.0, 2.0),
        (6, 0, 99, 0, 1.0, 2.0),
    ]
    azure(tmp_path / NAME, vms, TYPES)
    work, report = load(tmp_path)
    assert (work.job_id.tolist(), work.run_s.tolist()) == ([3], [1.0])
    assert report.left_out == (
        ("of a type that cannot run on machine 16", 2),
        ("started before the trace begins", 2),
        ("without an end within 90 days", 1),
        ("that end before they start", 1),
    )
    work, report = load(tmp_path, cut_off="keep")
    assert work.job_id.tolist() == [0, 1, 2, 3]
    assert work.submit_s.tolist() == [0, 0, 864_000, 864_000]
    assert work.run_s.tolist() == [90 * 86_400, 2 * 86_400, 80 * 86_400, 1.0]
    assert report.left_out[1:] == (("that end before they start", 1),)


def test_the_machine_is_that_on_which_most_requests_can_run_or_the_one_named(tmp_path):
    path = azure(tmp_path / NAME, [(k, 0, 8, 0, 0.0, 1.0) for k in range(3)], TYPES)
    assert load(path)[0].need.tolist() == [0.25] * 3
    assert load(path, machine=17)[0].need.tolist() == [0.5] * 3
    more = azure(
        tmp_path / "more.sqlite", [(1, 0, 8, 0, 0.0, 1.0), (2, 0, 11, 0, 0.0, 1.0)], [*TYPES, (11, 17, 0.1, 0.1)]
    )
    assert load(more)[0].need.tolist() == [0.5, 0.1]
    with pytest.raises(InputError, match=r"sqlite: machine = 18: must be one of 16, 17"):
        load(path, machine=18)


@given(
    vms=st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from((8, 9, 10)),
            st.integers(0, 1),
            st.floats(-20, 14),
            st.one_of(st.none(), st.floats(-20, 90)),
        ),
        min_size=1,
        max_size=40,
    ),
    rows=st.integers(1, 10),
    texts=st.booleans(),
)
def test_each_vm_is_taken_or_has_a_reason(tmp_path_factory, vms, rows, texts):
    requests = [(k, *vm) for k, vm in enumerate(vms)]
    expected = {
        k: (start, max((end - start) * 86_400, 0) or 1.0)
        for k, _, kind, _, start, end in requests
        if kind != 10 and start >= 0 and end is not None and end >= start
    }
    if texts:
        requests = [tuple(None if value is None else str(value) for value in row) for row in requests]
    path = azure(tmp_path_factory.mktemp("azure") / NAME, requests, TYPES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(azure_2020, "ROWS", rows)
        if not expected:
            with pytest.raises(InputError, match="can be taken"):
                load(path, machine=16)
            return
        work, report = load(path, machine=16)
    assert sorted(work.job_id.tolist()) == sorted(expected)
    for job, submit_s, run_s in zip(work.job_id.tolist(), work.submit_s.tolist(), work.run_s.tolist(), strict=True):
        start, seconds = expected[job]
        assert submit_s == start * 86_400
        assert run_s == pytest.approx(seconds)
    assert report.jobs == report.taken + sum(count for _, count in report.left_out)


@pytest.mark.parametrize(
    ("vm", "message"),
    [
        ((1, 0, 8, 0, "soon", None), r"table vm, row 2: starttime = soon: must be a finite number"),
        ((1, 0, 8, 0, None, None), r"table vm, row 2: starttime = NULL: must be a finite number"),
        ((1, 0, 8, 0, 1.0, float("inf")), r"table vm, row 2: endtime = inf: must be a finite number"),
        ((1, 0, 8.5, 0, 1.0, 2.0), r"table vm, row 2: vmTypeId = 8.5: must be a whole number"),
        ((1, 0, None, 0, 1.0, 2.0), r"table vm, row 2: vmTypeId = NULL: must be a whole number"),
        ((1, b"x", 8, 0, 1.0, 2.0), r"table vm, row 2: tenantId = b'x': must be a whole number"),
        ((1, 0, 8, 2, 1.0, 2.0), r"table vm, row 2: priority = 2: must be 0 \(high\) or 1 \(low\)"),
        ((0, 0, 8, 0, 1.0, 2.0), r"table vm, row 2: vmId = 0: must be unique"),
    ],
)
def test_wrong_rows_are_refused(tmp_path, vm, message):
    with pytest.raises(InputError, match=message):
        load(azure(tmp_path / NAME, [(0, 0, 8, 0, 1.0, 2.0), vm], TYPES))


def test_other_databases_are_refused(tmp_path):
    path = azure(tmp_path / NAME, [], TYPES)
    with pytest.raises(InputError, match=r"table vm without a row"):
        load(path)
    path = azure(tmp_path / "types.sqlite", [(0, 0, 8, 0, 1.0, 2.0)], [])
    with pytest.raises(InputError, match=r"table vmType without a row"):
        load(path)
    path = azure(tmp_path / "twice.sqlite", [(0, 0, 8, 0, 1.0, 2.0)], [*TYPES, TYPES[0]])
    with pytest.raises(InputError, match=r"table vmType, row 3: vmTypeId = 8: must be unique for machine 16"):
        load(path)
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE other (a)")
    with pytest.raises(InputError, match=r"no table vm: must be as in packing_trace_zone_a_v1.sqlite"):
        load(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match=r"other.sqlite: (cannot be read as an SQLite database|no table vm)"):
        load(path)


def test_the_file_is_not_written_to(tmp_path):
    path = azure(tmp_path / NAME, [(0, 0, 8, 0, 1.0, 2.0)], TYPES)
    path.chmod(0o400)
    before = path.read_bytes()
    load(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
