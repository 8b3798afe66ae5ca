"""`dfrs compare` with requests for more metrics: what it prints, what it says as JSON, and what it refuses."""

import json
from pathlib import Path

import pytest

from dfrs.runs.directory import read_run, write_run
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.metrics.shares import SHARES
from dfrs.runs.metrics.window import Trim
from tests.toy_runs import toy_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of 700 jobs each, of two policies on one workload."""
    folder = tmp_path_factory.mktemp("runs")
    for name, batch in (("batch", True), ("shared", False)):
        run = toy_run(nodes=8, jobs=700, batch=batch)
        write_run(run, folder / name, summarize(run), "0")
    return folder


def rows_of(dfrs, *arguments):
    status, out, err = dfrs("compare", *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_without_a_request_nothing_is_added(dfrs, runs):
    for row in rows_of(dfrs, runs):
        assert set(row) == {"run", "policy", "complete", "workload", "seed", "configuration", "metrics"}


def test_trimmed_metrics_are_those_of_the_log_and_say_so(dfrs, runs):
    for row in rows_of(dfrs, runs, "--trim", "10%:5%"):
        assert row["metrics"] == summarize(read_run(Path(row["run"])), trim=Trim.parse("10%:5%"))
        assert (row["trim"]["trim"], row["trim"]["jobs"], row["trim"]["jobs_left_out"]) == ("10%:5%", 595, 105)
        assert row["metrics"]["jobs"] == 595
    status, out, _ = dfrs("compare", runs, "--trim", "10%:5%")
    assert status == 0
    assert out.startswith("toy: without warm-up and cool-down 10%:5%: 595 of 700 jobs, from ")
    assert "bound" not in " ".join(out.splitlines()[2:4]).split()


def test_intervals_by_batch_means_state_their_batches(dfrs, runs):
    for row in rows_of(dfrs, runs, "--confidence"):
        found = row["batch_means"]
        assert (found["batches"], found["batch_jobs"], found["left_out"], found["confidence"]) == (20, 35, 0, 0.95)
        assert found["bounded_stretch"]["mean"] == pytest.approx(row["metrics"]["bounded_stretch_mean"])
        assert found["flow_s"]["half_width"] > 0
    (row, _) = rows_of(dfrs, runs, "--batches", 10, "--trim", "50%:0")
    assert (row["batch_means"]["batches"], row["batch_means"]["batch_jobs"]) == (10, 35)
    status, out, _ = dfrs("compare", runs, "--batches", 6)
    assert status == 0
    assert "Means with 95 % confidence intervals, by batch means in the order of submission:" in out
    assert " ± " in out


def test_classes_have_all_jobs(dfrs, runs):
    for row in rows_of(dfrs, runs, "--classes"):
        assert sum(each["jobs"] for each in row["classes"]) == 700
        assert len(row["classes"]) == 16
    for row in rows_of(dfrs, runs, "--sizes", "2", "--times", "30m"):
        assert [(each["most_tasks"], each["most_s"]) for each in row["classes"]] == [
            (2, 1800.0),
            (2, None),
            (None, 1800.0),
            (None, None),
        ]
    status, out, _ = dfrs("compare", runs, "--classes")
    assert status == 0
    (line,) = [line.split() for line in out.splitlines() if line.strip().startswith("2-8") and "up to 10m" in line]
    assert len(line) == len(["2-8", "up", "to", "10m", "jobs", "batch", "shared"])


def test_shares_of_the_cpu_and_users_have_tables(dfrs, runs):
    status, out, _ = dfrs("compare", runs, "--lost", "--users")
    assert status == 0
    assert "What becomes of the CPU:" in out
    assert "Mean bounded stretch of users:" in out
    for row in rows_of(dfrs, runs, "--lost"):
        assert sum(row["metrics"][name] for name in SHARES) == pytest.approx(1.0)


def test_runs_whose_summaries_lack_the_shares_are_measured(dfrs, runs, tmp_path):
    run = toy_run(nodes=8, jobs=40)
    metrics = {name: value for name, value in summarize(run).items() if name not in SHARES}
    write_run(run, tmp_path / "old", metrics | {"stretch_bound": 1.0}, "0")
    (row,) = rows_of(dfrs, tmp_path / "old", "--lost")
    assert 0 <= row["metrics"].pop("cpu_share_no_room") <= 1
    assert row["metrics"] == summarize(run) | {"stretch_bound": 1.0}


def test_energy_states_its_model(dfrs, runs):
    for row in rows_of(dfrs, runs, "--power", "100:250"):
        energy = row["energy"]
        assert energy["model"] == {"idle_w": 100.0, "busy_w": 250.0, "empty_w": None}
        used = row["metrics"]["cpu_utilisation"]
        assert energy["power_mean_w"] == pytest.approx(8 * (100 + 150 * used))
    status, out, _ = dfrs("compare", runs, "--power", "100:250:5")
    assert status == 0
    assert "a node draws 100 W idle and 250 W with all of its CPU in use" in out
    assert "empty nodes are off and draw 5 W" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trim", "x"), '--trim = "x": must be WARM-UP:COOL-DOWN'),
        (("--trim", "60%"), "trim = 60%:60%: nothing remains of 700 jobs"),
        (("--batches", "3"), "batches = 3: must be at least 5"),
        (("--batches", "100"), "700 finished jobs are too few"),
        (("--sizes", "8,1"), "sizes = 8,1: limits must be above 0 and ascending"),
        (("--sizes", "a"), '--sizes "a": must be numbers of tasks'),
        (("--times", "10"), "--times: "),
        (("--power", "1"), '--power = "1": must be IDLE:BUSY'),
        (("--power", "3:1"), "--power = 3:1: watts must be from 0"),
    ],
)
def test_bad_requests_end_with_one_line_and_status_2(dfrs, runs, arguments, words):
    status, out, err = dfrs("compare", runs, *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err
