"""Which cloud trace some files are is seen from what they hold; and `dfrs simulate --from-cloud`."""

import json
import tarfile
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dfrs.cli.simulate.simulate import simulate
from dfrs.model.errors import InputError
from dfrs.runs.validator.runs import validate_run
from dfrs.workloads.clouds.jobs import CloudOptions
from dfrs.workloads.clouds.load import load_cloud_trace
from tests.cloud_cases import (
    alibaba,
    azure,
    batch_instance,
    batch_task,
    collection_event,
    container,
    google_csv,
    google_json,
    instance_event,
)

OPTIONS = CloudOptions(nodes=4)
RAN = [instance_event(t, kind, 1) for t, kind in ((0, 0), (1, 3), (9, 6))]
VMS, TYPES = [(0, 0, 8, 0, 1.0, 2.0)], [(8, 16, 0.5, 0.5)]
MAIN = "GreedyPM*/per/OPT=MIN/MVT=600"


@pytest.mark.parametrize(
    ("write", "trace"),
    [
        (lambda path: google_json(path, RAN), "Google cluster data 2019"),
        (lambda path: google_csv(path, RAN), "Google cluster data 2019"),
        (lambda path: alibaba(path, [batch_task()]), "Alibaba cluster trace 2018"),
        (
            lambda path: alibaba(path, [container(time=5), container(time=9, state="stopped")]),
            "Alibaba cluster trace 2018",
        ),
        (lambda path: azure(path, VMS, TYPES), "Azure trace for packing 2020"),
    ],
)
def test_a_file_may_have_any_name(tmp_path, write, trace):
    work, report = load_cloud_trace(write(tmp_path / "any.thing"), OPTIONS)
    assert report.trace == trace
    assert work.name == "any"


def test_a_directory_has_all_files_of_its_tables(tmp_path):
    google_json(tmp_path / "instance_events-000000000000.json.gz", RAN[:2])
    google_csv(tmp_path / "instance_events-000000000001.csv", RAN[2:])
    google_json(tmp_path / "collection_events-000000000000.json", [collection_event(0, 0, 1)])
    (tmp_path / "notes.txt").write_text("mine")
    work, _ = load_cloud_trace(tmp_path, OPTIONS)
    assert (work.run_s.tolist(), work.user.tolist(), work.name) == ([8.0], [1], tmp_path.name)


def test_what_is_no_trace_is_refused(tmp_path):
    for rows, what in (
        ([collection_event(0, 0, 1)], "only collection_events"),
        ([{"a": 1}], "no table of a cloud trace"),
    ):
        with pytest.raises(InputError, match=rf"x: {what}: must have instance_events \(Google 2019\)"):
            load_cloud_trace(google_json(tmp_path / "x", rows), OPTIONS)
    with pytest.raises(InputError, match="x: only batch_instance: must have"):
        load_cloud_trace(alibaba(tmp_path / "x", [batch_instance(1)]), OPTIONS)
    (tmp_path / "x").write_text("")
    with pytest.raises(InputError, match="x: no table of a cloud trace: must have"):
        load_cloud_trace(tmp_path / "x", OPTIONS)
    with pytest.raises(InputError, match="nothing: cannot read: No such file"):
        load_cloud_trace(tmp_path / "nothing", OPTIONS)
    with pytest.raises(InputError, match="no table of a cloud trace: must have"):
        load_cloud_trace(tmp_path, OPTIONS)


def test_archives_and_several_traces_are_refused(tmp_path):
    alibaba(tmp_path / "batch_task.csv", [batch_task()])
    azure(tmp_path / "a.sqlite", VMS, TYPES)
    with pytest.raises(
        InputError, match=r"files of several traces \(batch_task, azure\): name a file, or one directory"
    ):
        load_cloud_trace(tmp_path, OPTIONS)
    azure(tmp_path / "b.sqlite", VMS, TYPES)
    with pytest.raises(InputError, match=r"2 SQLite files: name the one"):
        load_cloud_trace(tmp_path, OPTIONS)
    with tarfile.open(tmp_path / "batch_instance.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "batch_task.csv", "batch_instance.csv")
    for path in (tmp_path, tmp_path / "batch_instance.tar.gz"):
        with pytest.raises(InputError, match=r"batch_instance.tar.gz: an archive: must be unpacked first"):
            load_cloud_trace(path, OPTIONS)


def test_options_are_checked(tmp_path):
    with pytest.raises(InputError, match=r"window = 5:5: must start at 0 or later, and end after that"):
        CloudOptions(nodes=1, window_s=(5, 5))
    with pytest.raises(InputError, match=r'cut_off = "half": must be one of drop, keep'):
        CloudOptions(nodes=1, cut_off="half")
    with pytest.raises(InputError, match=r"nodes = 0: must be at least 1"):
        CloudOptions(nodes=0)
    with pytest.raises(InputError, match=r"x: machine = 3: only an Azure trace has machines"):
        load_cloud_trace(google_json(tmp_path / "x", RAN), CloudOptions(nodes=1, machine=3))


app = typer.Typer()
app.command()(simulate)


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def day(tmp_path):
    """A day of VMs on machines that hold few of them."""
    vms = [(k, k % 7, 8 + k % 2, k % 2, k / 50, k / 50 + (1 + k % 5) / 40) for k in range(50)]
    return azure(tmp_path / "day.sqlite", [*vms, (50, 0, 8, 0, 0.3, None)], [(8, 16, 0.5, 0.25), (9, 16, 0.75, 0.5)])


def test_a_trace_under_easy_and_a_fractional_policy(tmp_path):
    done = run("--from-cloud", day(tmp_path), "--nodes", 3, "-p", "EASY", "-p", MAIN, "-o", tmp_path / "runs", "--json")
    rows = json.loads(done.stdout)["runs"]
    assert [row["policy"] for row in rows] == ["EASY", MAIN]
    assert all(row["complete"] and row["workload"]["jobs"] == 50 and not row["refused"] for row in rows)
    assert {row["configuration"]["annotate"] for row in rows} == {"requests of the trace"}
    for row in rows:
        assert not validate_run(Path(row["directory"])).problems
    told = done.stderr.replace("\n", " ")
    assert "Azure trace for packing 2020: 50 of 51 VMs taken, with 50 tasks (25 of low priority" in told
    assert "left out: 1 without an end within 90 days" in told


def test_a_window_and_weights(tmp_path):
    weights = tmp_path / "weights.csv"
    weights.write_text("user,weight\n3,5\n")
    done = run(
        *("--from-cloud", day(tmp_path), "--nodes", 3, "-p", "EASY", "--window", "0:43200", "--cut-off", "keep"),
        *("--machine", 16, "--weights", weights, "-o", tmp_path / "runs", "--json"),
    )
    (row,) = json.loads(done.stdout)["runs"]
    assert row["workload"]["jobs"] == 26
    assert ",5.0,3," in (tmp_path / "runs/EASY/jobs.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from-cloud", "day.sqlite"], r"--from-cloud: the trace does not say how many nodes: give --nodes or"),
        (["--from-cloud", "day.sqlite", "x.swf"], r"one of them must be given, and only one"),
        (["x.swf", "--window", "0:1"], r"--window: must be given with --from-cloud only"),
        (["x.swf", "--cut-off", "keep"], r"--cut-off: must be given with --from-cloud only"),
        (["x.swf", "--machine", "1"], r"--machine: must be given with --from-cloud only"),
        (["--from-cloud", "x", "--nodes", "1", "--window", "1"], r'--window "1": must be A:B, two numbers of seconds'),
    ],
)
def test_options_that_do_not_fit(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    day(tmp_path)
    with pytest.raises(InputError, match=message):
        run(*arguments)
