"""Runs for other tools, and workloads of other tools: Perfetto, evalys, Batsim."""

import csv
import gzip
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.model.run import Action
from dfrs.report.evalys import write_evalys
from dfrs.report.perfetto import FIRST_NODE, trace_events
from dfrs.runs.directory import write_run
from dfrs.runs.metrics.schedule import summarize
from dfrs.workloads.batsim import read_batsim
from dfrs.workloads.load import load_workload
from tests.random_runs import random_run
from tests.toy_runs import run_of, story_run, toy_run, workload
from tests.unit.test_schedule_metrics import Naive

EVALYS = (
    "job_id,workload_name,submission_time,requested_number_of_resources,requested_time,success,starting_time,"
    "execution_time,finish_time,waiting_time,turnaround_time,stretch,allocated_resources"
)


@given(st.integers(0, 10**6), st.booleans())
def test_slices_and_counters_say_at_every_instant_what_runs_where(seed, partial):
    run = random_run(seed, partial=partial)
    events = json.loads(json.dumps(list(trace_events(run)), allow_nan=False))
    slices = [event for event in events if event["ph"] == "X"]
    counters = [event for event in events if event["ph"] == "C"]
    for begin, end, states, _ in Naive(run).steps:
        if end - begin < 1e-6:
            continue
        at = 1e6 * (begin + end) / 2
        shown, lanes = Counter(), set()
        for event in slices:
            if event["ts"] <= at < event["ts"] + event["dur"]:
                where = event["pid"], event["tid"]
                assert where not in lanes
                lanes.add(where)
                mine = [c for c in counters if c["pid"] == event["pid"] and c["name"] == f"yield {event['tid']}"]
                latest = max(c["ts"] for c in mine if c["ts"] <= at)
                value = [c["args"]["value"] for c in mine if c["ts"] == latest][-1]
                shown[event["name"], event["pid"] - FIRST_NODE, value] += event["args"]["tasks"]
        truth = Counter()
        for job, state in states.items():
            if state["running"]:
                for node, tasks in state["nodes"].items():
                    truth[f"job {run.workload.job_id[job]}", node, state["yield"]] += tasks
        assert shown == truth


@given(st.floats(0.0, 1e8), st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=2))
def test_slices_that_abut_do_so_in_whole_microseconds(begin_s, lengths_s):
    middle_s, end_s = begin_s + lengths_s[0], begin_s + sum(lengths_s)
    rows = [
        (begin_s, 0, Action.START, (0,), 1.0, ""),
        (middle_s, 0, Action.FINISH, (), 0.0, ""),
        (middle_s, 1, Action.START, (0,), 1.0, ""),
        (end_s, 1, Action.FINISH, (), 0.0, ""),
    ]
    jobs = [(k + 1, begin_s, 1, 1.0, 0.5, lengths_s[k]) for k in range(2)]
    run = run_of(workload(jobs, nodes=1), rows, penalty=0.0)
    first, second = [event for event in trace_events(run) if event["ph"] == "X"]
    assert all(type(event[name]) is int for event in (first, second) for name in ("ts", "dur"))
    assert (first["ts"] + first["dur"], first["tid"]) == (second["ts"], second["tid"])


def test_each_node_is_a_process_and_a_paused_job_has_no_slice():
    events = list(trace_events(story_run()))
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    assert names == {1: "cluster", 2: "node 0", 3: "node 1", 4: "node 2"}
    mine = [event for event in events if event["ph"] == "X" and event["name"] == "job 10"]
    spans = {(event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in mine}
    assert spans == {(0, 1500), (2100, 3000), (3000, 3750)}
    assert {event["args"]["tasks"] for event in mine if event["ts"] == 2100e6} == {2}


def test_a_job_set_for_evalys_has_its_columns_and_plain_sets_of_nodes(tmp_path):
    moved = write_evalys(story_run(), tmp_path / "jobs.csv")
    text = (tmp_path / "jobs.csv").read_text()
    assert text.splitlines()[0] == EVALYS
    rows = {row["job_id"]: row for row in csv.DictReader(text.splitlines())}
    assert moved == 1
    assert rows["10"]["allocated_resources"] == "1-2"
    assert rows["30"]["allocated_resources"] == "0 2"
    assert float(rows["30"]["execution_time"]) == 725
    run = toy_run(nodes=8, jobs=40)
    write_evalys(run, tmp_path / "toy.csv")
    sets = [row["allocated_resources"] for row in csv.DictReader((tmp_path / "toy.csv").read_text().splitlines())]
    assert len(sets) == 40
    assert not any("*" in each for each in sets)


def test_the_verb_chooses_by_the_ending(dfrs, tmp_path):
    run = story_run()
    write_run(run, tmp_path / "run", summarize(run), "0")
    assert dfrs("convert", tmp_path / "run", tmp_path / "t.json.gz")[0] == 0
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    assert dfrs("convert", tmp_path / "run", tmp_path / "t.json")[0] == 0
    assert json.loads((tmp_path / "t.json").read_text())["displayTimeUnit"] == "ms"
    status, _, err = dfrs("convert", tmp_path / "run", tmp_path / "t.csv")
    assert status == 0
    assert "1 jobs were paused or moved" in err
    for target, words in ((tmp_path / "t.txt", "the ending must be"), (tmp_path / "no" / "t.json", "cannot write")):
        status, out, err = dfrs("convert", tmp_path / "run", target)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert words in err


def test_no_file_of_the_run_is_replaced(dfrs, tmp_path):
    run = story_run()
    write_run(run, tmp_path / "run", summarize(run), "0")
    (tmp_path / "link").symlink_to("run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    for target in ("run/jobs.csv", "link/events.csv", "run/summary.json", "run/commands.csv"):
        status, out, err = dfrs("convert", tmp_path / "run", tmp_path / target)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert f"{target}: is read, and would be replaced" in err
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert dfrs("convert", tmp_path / "run", tmp_path / "run/evalys.csv")[0] == 0


BATSIM = {
    "nb_res": 4,
    "jobs": [
        {"id": "2", "subtime": 10, "walltime": 100, "res": 4, "profile": "long"},
        {"id": "1", "subtime": 0.5, "res": 2, "profile": "short", "walltime": -1},
    ],
    "profiles": {
        "short": {"type": "DelayProfile", "delay": 20.25},
        "long": {"type": "SequentialCompositionProfile", "repeat": 3, "seq": ["short", "old"]},
        "old": {"type": "composed", "nb": 2, "seq": ["old delay"]},
        "old delay": {"type": "delay", "delay": 5},
    },
}


def written(folder, document):
    path = folder / "w.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def changed(**job):
    """The workload with its first job changed."""
    return {**BATSIM, "jobs": [{**BATSIM["jobs"][0], **job}, BATSIM["jobs"][1]]}


def test_a_workload_of_batsim_is_a_trace(tmp_path):
    path = written(tmp_path, BATSIM)
    swf = read_batsim(path)
    assert swf.machine_processors == 4
    assert swf.job_id.tolist() == [1, 2]
    assert swf.submit_s.tolist() == [0.5, 10]
    assert swf.run_s.tolist() == [20.25, 3 * (20.25 + 2 * 5)]
    assert swf.requested_s.tolist() == [-1, 100]
    workload, report = load_workload(path, annotate="none", estimates="user")
    assert (workload.nodes, workload.tasks.tolist()) == (4, [2, 4])
    assert [odd.rule for odd in report.warnings] == ["no requested time"]


def test_identifiers_that_are_no_numbers_are_numbered_in_the_order_of_the_file(tmp_path):
    assert read_batsim(written(tmp_path, changed(id="w0!x"))).job_id.tolist() == [2, 1]


def test_a_workload_of_batsim_becomes_swf_and_is_simulated(dfrs, tmp_path):
    path = written(tmp_path, BATSIM)
    assert dfrs("workload", "convert", path, tmp_path / "w.swf")[0] == 0
    assert np.array_equal(load_workload(tmp_path / "w.swf")[0].run_s, load_workload(path)[0].run_s)
    assert dfrs("simulate", path, "-p", "FCFS", "-o", tmp_path / "runs", "--annotate", "none")[0] == 0


CIRCLE = {"type": "sequence", "seq": ["circle", "circle"]}
BUSHY = {f"p{k}": {"type": "sequence", "seq": [f"p{k + 1}"] * 2} for k in range(40)}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ([], "jobs: must be a list"),
        ({"jobs": []}, "profiles: must be an object"),
        ({"jobs": [], "profiles": {}}, "jobs: must not be empty"),
        ({**BATSIM, "nb_res": 0}, "nb_res = 0: must be a whole number above 0"),
        ({**BATSIM, "jobs": [3]}, "jobs[0]: must be an object"),
        (changed(id=1), "id = '1': must be unique"),
        (changed(id=None), "id = None"),
        (changed(subtime=-1), "jobs[0] (id 2): subtime = -1: must be a number from 0 to 1e12"),
        (changed(subtime=float("nan")), "subtime = nan"),
        (changed(res=1.5), "res = 1.5: must be a whole number above 0"),
        (changed(walltime="1h"), "walltime = '1h'"),
        (changed(profile=1), "profile = 1: must be text"),
        (changed(profile="none"), "profile none: there is no such profile"),
        ({**changed(profile="x"), "profiles": {"x": {"type": "parallel", "cpu": []}}}, "type = 'parallel'"),
        ({**changed(profile="x"), "profiles": {"x": {"type": ["delay"]}}}, "type = ['delay']"),
        ({**changed(profile="x"), "profiles": {"x": {"type": "delay"}}}, "delay = None"),
        ({**changed(profile="x"), "profiles": {"x": {"type": "sequence", "seq": "y"}}}, "seq: must be a list of names"),
        ({**changed(profile="circle"), "profiles": {"circle": CIRCLE}}, "seq: must not contain itself"),
        ({**changed(profile="p0"), "profiles": {**BUSHY, "p40": {"type": "delay", "delay": 1}}}, "time = 10995"),
    ],
)
def test_what_is_no_workload_of_batsim_is_refused_in_one_line(tmp_path, document, words):
    with pytest.raises(InputError) as refused:
        read_batsim(written(tmp_path, document))
    assert words in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path / 'w.json'}: ")
