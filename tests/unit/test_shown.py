"""What is shown of large things: one line in a terminal, a small table in a notebook; and runs as frames."""

import math

import numpy as np
import polars as pl
import pytest

import dfrs
from dfrs.model.nodes import Condition, NodeChange
from dfrs.model.run import Action
from dfrs.runs.directory import write_run

INSTANCE = dfrs.generate_services(nodes=4, services=8, seed=1)


def workload(jobs=3):
    one = np.ones(jobs)
    return dfrs.Workload(
        job_id=np.arange(jobs) + 10,
        submit_s=np.arange(jobs) * 10.0,
        tasks=np.ones(jobs, np.int64),
        need=one,
        memory=one / 2,
        run_s=one * 100,
        estimate_s=one * np.nan,
        user=np.arange(jobs),
        weight=one,
        nodes=1,
        name="<tiny>",
    )


@pytest.fixture(scope="module")
def run():
    return dfrs.simulate(workload(), "FCFS")


def test_each_is_one_short_line(run):
    outcome = dfrs.allocate(INSTANCE, "GREEDY")
    lines = {
        repr(workload()): "<Workload: name <tiny>, jobs 3, nodes 1, span_s 20, load 15>",
        repr(run): "<Run: policy FCFS, workload <tiny>, nodes 1, jobs 3, finished 3, maximum stretch 2.8, end_s 300>",
        repr(run.events): f"<Events: rows {len(run.events)}>",
        repr(INSTANCE): "<Instance: ",
        repr(outcome.allocation): "<Allocation: tasks 8, nodes in use ",
        repr(outcome): "<Outcome: algorithm GREEDY, status feasible, minimum yield ",
    }
    for line, begin in lines.items():
        assert line.startswith(begin), line
        assert len(line) < 200, line
        assert "array" not in line


def test_a_notebook_gets_a_table_in_which_names_are_no_markup(run):
    table = run._repr_html_()
    assert "<th style='text-align: left'>policy</th><td>FCFS</td>" in table
    assert "&lt;tiny&gt;" in table
    assert "<tiny>" not in table
    assert len(table) < 1000
    for shown in (INSTANCE, dfrs.allocate(INSTANCE, "GREEDY"), workload()):
        assert shown._repr_html_().startswith("<table>")


def test_what_did_not_happen_is_left_out():
    stopped = dfrs.simulate(workload(0), "FCFS")
    assert "maximum stretch" not in repr(stopped)
    assert "refused" not in repr(stopped)
    assert stopped.to_frame().height == stopped.to_frame("events").height == 0


def test_a_run_is_a_frame_of_its_jobs(run):
    frame = run.to_frame()
    assert frame.columns[:3] == ["job_id", "user", "tasks"]
    assert frame["job_id"].to_list() == [10, 11, 12]
    assert frame["start_s"].to_list() == [0.0, 100.0, 200.0]
    assert frame["finish_s"].to_list() == [100.0, 200.0, 300.0]
    assert frame["wait_s"].to_list() == [0.0, 90.0, 180.0]
    assert frame["flow_s"].to_list() == [100.0, 190.0, 280.0]
    assert frame["stretch"].to_list() == pytest.approx([1.0, 1.9, 2.8])
    assert frame["estimate_s"].null_count() == 3
    assert frame["stretch"].max() == dfrs.summarize(run)["stretch_max"]


def test_a_run_is_a_frame_of_its_events(run):
    frame = run.to_frame("events")
    assert frame.height == len(run.events)
    assert frame.filter(pl.col("action") == "start").select("job_id", "nodes", "yield").rows() == [
        (10, [0], 1.0),
        (11, [0], 1.0),
        (12, [0], 1.0),
    ]
    assert frame.filter(pl.col("action") == "finish")["yield"].null_count() == 3
    assert set(frame["why"]) == {"first in the queue", ""}


def test_what_happens_to_nodes_has_no_job():
    changes = [(5.0, NodeChange(0, Condition.DOWN)), (50.0, NodeChange(0, Condition.UP))]
    run = dfrs.simulate(workload(), "FCFS", node_events=changes)
    frame = run.to_frame("events").filter(pl.col("job_id").is_null())
    assert frame["action"].to_list() == ["down", "up"]
    assert frame["nodes"].to_list() == [[0], [0]]
    assert run.count(Action.LOST).sum() == 1


def test_a_run_is_read_from_its_directory(run, tmp_path):
    write_run(run, tmp_path / "r", dfrs.summarize(run), dfrs.__version__)
    again = dfrs.read_run(str(tmp_path / "r"))
    assert again.to_frame().equals(run.to_frame())
    assert math.isclose(again.end_s, run.end_s)
    with pytest.raises(dfrs.InputError, match="there is no such file"):
        dfrs.read_run(tmp_path / "nothing")
