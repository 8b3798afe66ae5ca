"""The checker of runs accepts what keeps every rule, notices each lie alone, and names what is not of its form."""

import dataclasses
import errno
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.model.run import Action
from dfrs.runs.directory import write_run
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.validator.runs import run_directories, validate_run
from tests.random_runs import random_run
from tests.toy_runs import story_run, toy_run

# Two nodes, a penalty of 10 s. Job 1 makes 50 s of virtual time at yield 1, 15 at a half until 80, is paused, comes
# back at 95 with both tasks on node 0 (penalty until 105), makes 5 until 115, moves one task (penalty until 125), and
# makes the last 30 until 155. Job 4 has more tasks than fit.
JOBS = """\
job_id,submission_time,requested_number_of_resources,requested_time,success,starting_time,execution_time,finish_time,\
waiting_time,turnaround_time,stretch,allocated_resources,processing_time,cpu_need,memory,weight,user,virtual_time,\
pauses,migrations,requested_start_time
1,0.0,2,200.0,1,0.0,155.0,155.0,0.0,155.0,1.55,0-1,100.0,1.0,0.4,1.0,7,100.0,1,1,
4,10.0,3,,0,,,,,,,,50.0,1.0,0.9,1.0,7,0.0,0,0,
2,50.0,1,,1,50.0,45.0,95.0,0.0,45.0,1.5,0,30.0,1.0,0.5,1.0,-1,30.0,0,0,
3,79.0,1,,1,80.0,20.0,100.0,1.0,21.0,1.05,1,20.0,0.5,0.6,2.0,-1,20.0,0,0,
"""
EVENTS = """\
time_s,job_id,action,nodes,yield,why
0.0,1,start,0-1,1.0,there was room
50.0,1,share,,0.5,
50.0,2,start,0,0.5,there was room
80.0,1,pause,,0.0,"made room, as it must"
80.0,2,share,,1.0,
80.0,3,start,1,1.0,
95.0,2,finish,,,
95.0,1,resume,0*2,0.5,
100.0,3,finish,,,
115.0,1,migrate,0-1,1.0,
155.0,1,finish,,,
"""
NO_ELASTIC = {
    "dedicated_jobs": 0,
    "dedicated_on_time": 0,
    "dedicated_delay_mean_s": None,
    "dedicated_delay_max_s": None,
    "commands": 0,
    "commands_granted": 0,
    "commands_refused": 0,
}
SUMMARY = {
    "format": "dfrs-run/1",
    "version": "0",
    "complete": True,
    "policy": "by hand",
    "workload": {"name": "tiny", "jobs": 4, "nodes": 2, "load": None, "sha256": ""},
    "configuration": {
        "nodes": 2,
        "capacity": None,
        "penalty": {"model": "fixed", "seconds": 10.0},
        "node_bytes": 8e9,
    },
    "seed": 0,
    "refused": [4],
    "metrics": {
        "jobs": 4,
        "jobs_finished": 3,
        "jobs_refused": 1,
        "jobs_unfinished": 0,
        "jobs_running_at_end": 0,
        "jobs_paused_at_end": 0,
        **{f"{kind}stretch_max": 1.55 for kind in ("", "bounded_")},
        **{f"{kind}stretch_mean": (1.55 + 1.5 + 1.05) / 3 for kind in ("", "bounded_")},
        **{f"{kind}stretch_p50": 1.5 for kind in ("", "bounded_")},
        **{f"{kind}stretch_p90": 1.5 + 0.8 * 0.05 for kind in ("", "bounded_")},
        **{f"{kind}stretch_p95": 1.5 + 0.9 * 0.05 for kind in ("", "bounded_")},
        **{f"{kind}stretch_p99": 1.5 + 0.98 * 0.05 for kind in ("", "bounded_")},
        "wait_max_s": 1.0,
        "wait_mean_s": 1 / 3,
        "wait_p50_s": 0.0,
        "wait_p90_s": 0.8,
        "wait_p95_s": 0.9,
        "wait_p99_s": 0.98,
        "run_mean_s": 50.0,
        "slowdown_of_means": (1 / 3 + 50) / 50,
        "flow_max_s": 155.0,
        "flow_mean_s": 221 / 3,
        "flow_p50_s": 45.0,
        "flow_p90_s": 45 + 0.8 * 110,
        "flow_p95_s": 45 + 0.9 * 110,
        "flow_p99_s": 45 + 0.98 * 110,
        "span_s": 155.0,
        "makespan_s": 155.0,
        "pauses": 1,
        "migrations": 1,
        "cpu_utilisation": (100 + 30 + 20 + 80 + 30 + 10) / 310,
        "memory_utilisation": (0.8 * 140 + 0.5 * 45 + 0.6 * 20) / 310,
        "minimum_yield_mean": (50 + 15 + 15 + 2.5 + 7.5 + 40) / 155,
        "pause_gb": 6.4,
        "pause_and_resume_gb": 12.8,
        "migration_gb": 3.2,
        **NO_ELASTIC,
    },
    "end_s": 155.0,
}


def write(folder, jobs=JOBS, events=EVENTS, summary=SUMMARY):
    folder.mkdir(exist_ok=True)
    (folder / "jobs.csv").write_text(jobs)
    (folder / "events.csv").write_text(events)
    (folder / "summary.json").write_text(summary if isinstance(summary, str) else json.dumps(summary))
    return folder


def changed(text, old, new):
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
    return text.replace(old, new)


def jobs(old, new):
    return {"jobs": changed(JOBS, old, new)}


def events(old, new):
    return {"events": changed(EVENTS, old, new)}


def summary(path, value):
    document = json.loads(json.dumps(SUMMARY))
    *keys, last = path.split(".")
    inner = document
    for key in keys:
        inner = inner[key]
    inner[last] = value
    return {"summary": document}


def test_a_run_written_by_hand_is_valid(tmp_path):
    report = validate_run(write(tmp_path))
    assert report.problems == []
    assert report.checks > 100
    assert report.summary.startswith("4 jobs, 11 events on 2 nodes")


def test_what_is_left_of_it_when_interrupted_is_valid(tmp_path):
    kept = EVENTS[: EVENTS.index("95.0,2")]
    document = {**SUMMARY, "complete": False, "end_s": 90.0}
    document["metrics"] = dict.fromkeys(SUMMARY["metrics"]) | {
        "jobs": 4,
        "jobs_finished": 0,
        "jobs_refused": 1,
        "jobs_unfinished": 3,
        "jobs_running_at_end": 2,
        "jobs_paused_at_end": 1,
        "span_s": 90.0,
        "pauses": 1,
        "migrations": 0,
        "cpu_utilisation": (100 + 30 + 15 + 10 + 5) / 180,
        "memory_utilisation": (0.8 * 80 + 0.5 * 40 + 0.6 * 10) / 180,
        "minimum_yield_mean": (50 + 15 + 10) / 90,
        "pause_gb": 6.4,
        "pause_and_resume_gb": 6.4,
        "migration_gb": 0.0,
        **NO_ELASTIC,
    }
    rows = JOBS.splitlines()
    rows[1] = "1,0.0,2,200.0,0,0.0,,,0.0,,,0-1,100.0,1.0,0.4,1.0,7,65.0,1,0,"
    rows[3] = "2,50.0,1,,0,50.0,,,0.0,,,0,30.0,1.0,0.5,1.0,-1,25.0,0,0,"
    rows[4] = "3,79.0,1,,0,80.0,,,1.0,,,1,20.0,0.5,0.6,2.0,-1,10.0,0,0,"
    assert validate_run(write(tmp_path, "\n".join(rows) + "\n", kept, document)).problems == []


@pytest.mark.parametrize("kind", ["", "bounded_"])
def test_the_degradation_is_that_from_the_bound_that_is_stated(tmp_path, kind):
    document = json.loads(json.dumps(SUMMARY))
    document["metrics"] |= {f"{kind}stretch_bound": 1.25, f"{kind}degradation_from_bound": 1.55 / 1.25}
    assert validate_run(write(tmp_path / "true", summary=document)).problems == []
    document["metrics"][f"{kind}degradation_from_bound"] = 1.2
    (problem,) = validate_run(write(tmp_path / "lie", summary=document)).problems
    assert f"metrics.{kind}degradation_from_bound = 1.2: by the log 1.24" in problem


def test_bounded_stretches_are_of_the_tau_that_is_stated(tmp_path):
    document = json.loads(json.dumps(SUMMARY))
    stated = document["metrics"]
    # With 40 s: 155 / 100, 45 / 40, 40 / 40.
    stated |= {"tau_s": 40.0, "bounded_stretch_max": 1.55, "bounded_stretch_mean": (1.55 + 1.125 + 1.0) / 3}
    stated |= {f"bounded_stretch_p{p}": 1.125 + 0.425 * (p - 50) / 50 for p in (50, 90, 95, 99)}
    assert validate_run(write(tmp_path / "true", summary=document)).problems == []
    del stated["tau_s"]
    problems = validate_run(write(tmp_path / "lie", summary=document)).problems
    assert any("metrics.bounded_stretch_mean = 1.22" in problem for problem in problems), problems


LIES = {
    "memory overcommitted": (jobs("1.0,0.5,1.0", "1.0,0.7,1.0"), "node 0: memory is 1.1, capacity 1"),
    "memory of two tasks on a node": (
        jobs("1.0,0.4,1.0", "1.0,0.55,1.0"),
        "at 95.0: node 0: memory is 1.1, capacity 1",
    ),
    "CPU of two tasks on a node": (events("0*2,0.5", "0*2,0.6"), "at 95.0: node 0: CPU is 1.2, capacity 1"),
    "memory of a small node": (
        summary("configuration.capacity", [[1, 1], [1, 0.5]]),
        "node 1: memory is 0.6, capacity 0.5",
    ),
    "CPU overcommitted": (events("50.0,1,share,,0.5", "50.0,1,share,,0.6"), "node 0: CPU is 1.1, capacity 1"),
    "CPU overcommitted by less than a thousandth": (
        events("50.0,1,share,,0.5", "50.0,1,share,,0.50001"),
        "node 0: CPU is 1.00001, capacity 1",
    ),
    "finish time in jobs.csv": (jobs("155.0,155.0,0.0", "155.0,155.0001,0.0"), "job 1: finish_time = 155.0001"),
    "start time in jobs.csv": (jobs("1,80.0,20.0", "1,79.5,20.0"), "job 3: starting_time = 79.5"),
    "finished too early": (events("155.0,1,finish", "154.9,1,finish"), "job 1: finish at virtual time 99.9"),
    "finished too late": (events("155.0,1,finish", "155.1,1,finish"), "virtual time 100.1 passes 100.0"),
    "progress in the penalty of a resume": (summary("configuration.penalty.seconds", 0.0), "passes 100.0"),
    "progress in the penalty of a migration": (
        events("155.0,1,finish", "145.0,1,finish"),
        "finish at virtual time 90.0",
    ),
    "a node too few": (events("0*2", "0"), "resume names nodes for 1 tasks, must be 2"),
    "a node too many": (events("80.0,3,start,1,", "80.0,3,start,0-1,"), "start names nodes for 2 tasks, must be 1"),
    "a node that does not exist": (events("115.0,1,migrate,0-1", "115.0,1,migrate,1-2"), "nodes: must be ascending"),
    "nodes out of order": (events("115.0,1,migrate,0-1", "115.0,1,migrate,1 0"), "nodes: must be ascending"),
    "nodes where none belong": (
        events("80.0,1,pause,,", "80.0,1,pause,0,"),
        "pause names nodes for 1 tasks, must be 0",
    ),
    "finish missing": (events("100.0,3,finish,,,\n", ""), "job 3: never finishes: it is running"),
    "truncated between rows": (
        {"events": EVENTS[: EVENTS.index("115.0")]},
        "job 1: never finishes: it is running at the end",
    ),
    "never started": (events("80.0,3,start,1,1.0,\n", ""), "job 3: finish while it is waiting"),
    "yield above one": (
        events("115.0,1,migrate,0-1,1.0", "115.0,1,migrate,0-1,1.5"),
        "yield = 1.5: must be from 0 to 1",
    ),
    "yield below zero": (events("50.0,1,share,,0.5", "50.0,1,share,,-0.5"), "yield = -0.5: must be from 0 to 1"),
    "yield of a pause": (events("80.0,1,pause,,0.0", "80.0,1,pause,,0.5"), "must be 0 or empty for pause"),
    "yield a little lower": (
        events("95.0,1,resume,0*2,0.5", "95.0,1,resume,0*2,0.4999"),
        "finish at virtual time 99.999",
    ),
    "started before submission": (jobs("3,79.0", "3,80.5"), "job 3: start before its submission at 80.5"),
    "start of what runs": (events("80.0,1,pause,,0.0", "80.0,1,start,0-1,0.5"), "start while it is running"),
    "start of what is paused": (events("95.0,1,resume", "95.0,1,start"), "start while it is paused"),
    "resume of what never ran": (events("80.0,3,start", "80.0,3,resume"), "resume while it is waiting"),
    "pause of what is paused": (events("95.0,1,resume,0*2,0.5", "95.0,1,pause,,0.0"), "pause while it is paused"),
    "share of what is paused": (events("95.0,2,finish,,,", "95.0,1,share,,0.1,"), "share while it is paused"),
    "something after the end": (
        events("155.0,1,finish,,,\n", "155.0,1,finish,,,\n155.0,2,share,,0.0,\n"),
        "it is finished",
    ),
    "migration to where it is": (events("115.0,1,migrate,0-1", "115.0,1,migrate,0*2"), "migrate to where it is"),
    "time runs backwards": (events("95.0,2,finish", "79.0,2,finish"), "time_s = 79.0: before the row above it"),
    "unknown job": (events("100.0,3,finish", "100.0,9,finish"), "job 9 is not in jobs.csv"),
    "a refused job runs": (events("100.0,3,", "96.0,4,start,0-1*2,0.0,\n100.0,3,"), "job 4: start, but it was refused"),
    "a job refused that fits": (jobs("4,10.0,3", "4,10.0,2"), "job 4 fits: 2 tasks, room for 2"),
    "a job refused that just fits": (
        {"jobs": changed(JOBS, "4,10.0,3", "4,10.0,2").replace("1.0,0.9,1.0", "1.0,1.0,1.0")},
        "job 4 fits: 2 tasks, room for 2",
    ),
    "a job refused that fits with two tasks on a node": (
        {"jobs": changed(JOBS, "1.0,0.9,1.0", "1.0,0.45,1.0")},
        "job 4 fits: 3 tasks, room for 4",
    ),
    "a job refused that is not there": (summary("refused", [4, 5]), "job 5 is not in jobs.csv"),
    "a job forgotten": (summary("refused", []), "job 4: never finishes: it is waiting"),
    "lost without a cause": (events("80.0,1,pause,,0.0", "80.0,1,lost,,"), "lost, but no node of it is"),
    "on a node that is down": (
        events("95.0,2,f", "95.0,,down,1,,\n95.0,2,f"),
        "at 95.0: node 1: tasks on it, but it is down",
    ),
    "comes to a drained node": (
        events("100.0,3,f", "100.0,,drain,1,,\n100.0,3,f"),
        "comes to node 1, which is drained",
    ),
    "shared where jobs have their own nodes": (
        summary("configuration.exclusive", True),
        "at 50.0: node 0: shared by jobs that have nodes of their own",
    ),
    "half a yield where jobs have their own nodes": (
        summary("configuration.exclusive", True),
        "yield = 0.5: must be 1",
    ),
    "not by submission": (jobs("4,10.0,3", "4,60.0,3"), "job 2: submitted before the row above it"),
    "success": (jobs("7,100.0,1,1,\n4,10.0,3,,0", "7,100.0,1,1,\n4,10.0,3,,1"), "job 4: success = 1: by the log 0"),
    "waiting time": (jobs("100.0,1.0,21.0", "100.0,1.5,21.0"), "waiting_time = 1.5: by the log 1.0"),
    "turnaround time": (jobs("0.0,45.0,1.5", "0.0,46.0,1.5"), "turnaround_time = 46.0: by the log 45.0"),
    "execution time": (jobs("1,50.0,45.0,", "1,50.0,44.0,"), "execution_time = 44.0: by the log 45.0"),
    "stretch": (jobs("45.0,1.5,0", "45.0,1.4,0"), "stretch = 1.4: by the log 1.5"),
    "last nodes": (jobs("1.05,1,20.0", "1.05,0,20.0"), "allocated_resources: not its last nodes"),
    "virtual time": (jobs("7,100.0,1,1", "7,99.0,1,1"), "virtual_time = 99.0: by the log 100.0"),
    "pauses": (jobs("7,100.0,1,1", "7,100.0,2,1"), "pauses = 2: by the log 1"),
    "migrations": (jobs("7,100.0,1,1", "7,100.0,1,0"), "migrations = 0: by the log 1"),
    "number of jobs": (summary("workload.jobs", 5), "workload.jobs = 5: jobs.csv has 4"),
    "ends before its last row": (summary("end_s", 154.0), "end_s = 154.0: before the last row of events.csv, 155.0"),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_noticed(tmp_path, lie):
    files, words = LIES[lie]
    problems = validate_run(write(tmp_path, **files)).problems
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize("name", [name for name, value in SUMMARY["metrics"].items() if value is not None])
@pytest.mark.parametrize("change", [lambda v: v * 1.0001 + 1e-5, lambda _: None, lambda _: "much"])
def test_each_metric_is_recomputed(tmp_path, name, change):
    problems = validate_run(write(tmp_path, **summary(f"metrics.{name}", change(SUMMARY["metrics"][name])))).problems
    assert len(problems) == 1
    assert f"summary.json: metrics.{name} = " in problems[0]
    document = summary(f"metrics.{name}", 0)["summary"]
    del document["metrics"][name]
    assert f"metrics.{name} is missing" in validate_run(write(tmp_path, summary=document)).problems[0]


UNREADABLE = {
    "text in a time": (events("50.0,2,start", "noon,2,start"), "events.csv: line 4: time_s = 'noon': must be a number"),
    "no number": (
        events("50.0,1,share,,0.5", "50.0,1,share,,nan"),
        "events.csv: line 3: yield = 'nan': must be a number",
    ),
    "infinite": (jobs("100.0,1.0,0.4", "inf,1.0,0.4"), "jobs.csv: line 2: processing_time = 'inf': must be a number"),
    "no yield": (
        events("50.0,1,share,,0.5", "50.0,1,share,,"),
        "events.csv: line 3: yield = '': must be a number for share",
    ),
    "action": (events("80.0,1,pause", "80.0,1,rest"), "events.csv: line 5: action = 'rest': must be one of start, "),
    "nodes": (events("0*2", "0 x 2"), "events.csv: line 9: nodes = '0 x 2': 'x' is not of the form 0-3*2"),
    "job of a node": (
        events("100.0,3,f", "100.0,3,down,1,,\n100.0,3,f"),
        "line 10: job_id = '3': must be empty for down",
    ),
    "a value missing": (events("80.0,2,share,,1.0,", "80.0,2,share,1.0,"), "events.csv: line 6: 5 values: must be 6"),
    "column missing": (
        {"events": EVENTS.replace("nodes,yield,why", "nodes,why")},
        "events.csv: line 1: column 5 is 'why': must be 'yield'",
    ),
    "header missing": ({"jobs": JOBS.split("\n", 1)[1]}, "jobs.csv: line 1: column 1 is '1': must be 'job_id'"),
    "one column more": ({"events": EVENTS.replace("why\n", "why,more\n")}, "events.csv: line 1: column 7 is 'more'"),
    "empty": ({"events": ""}, "events.csv: line 1: the last line does not end: the file is truncated"),
    "truncated in a row": ({"events": EVENTS[:-9]}, "events.csv: line 12: the last line does not end"),
    "truncated in quotes": ({"events": EVENTS[: EVENTS.index(", as it")] + "\n"}, "events.csv: line 5: unexpected end"),
    "half a task": (
        jobs("1,0.0,2,", "1,0.0,2.5,"),
        "line 2: requested_number_of_resources = '2.5': must be a whole number",
    ),
    "no task": (jobs("4,10.0,3,", "4,10.0,0,"), "requested_number_of_resources = '0': must be a whole number from 1"),
    "no need": (jobs("0.5,0.6,2.0", "0.0,0.6,2.0"), "jobs.csv: line 5: cpu_need = 0.0: must be above 0, at most 1"),
    "memory": (jobs("0.5,0.6,2.0", "0.5,1.6,2.0"), "jobs.csv: line 5: memory = 1.6: must be from 0 to 1"),
    "a job twice": (jobs("2,50.0,1", "1,50.0,1"), "jobs.csv: line 4: job_id = 1: already on line 2"),
    "not JSON": ({"summary": '{"format": "dfrs-run/1",'}, "summary.json: not JSON: "),
    "no object": ({"summary": "[]"}, "summary.json: must be a JSON object"),
    "another format": (summary("format", "dfrs-run/9"), "summary.json: format = 'dfrs-run/9': must be \"dfrs-run/1\""),
    "no nodes": (summary("configuration.nodes", 0), "configuration.nodes = 0: must be a whole number from 1 to"),
    "far too many nodes": (summary("configuration.nodes", 10**15), "configuration.nodes = 1000000000000000: must be"),
    "capacity of another cluster": (
        summary("configuration.capacity", [[1, 1]]),
        "configuration.capacity: 1 rows for 2 nodes",
    ),
    "capacity of one resource": (
        summary("configuration.capacity", [[1, 1], [1]]),
        "configuration.capacity[1] = [1]: must be",
    ),
    "unknown penalty": (
        summary("configuration.penalty.model", "none"),
        'penalty.model = \'none\': must be "fixed" or "size"',
    ),
    "half a penalty": (
        summary("configuration.penalty", {"model": "size"}),
        "penalty.bytes_per_s = None: must be a number above 0",
    ),
    "no tau": (summary("metrics.tau_s", 0), "metrics.tau_s = 0: must be a number above 0"),
    "complete is text": (summary("complete", "yes"), "complete = 'yes': must be true or false"),
    "an endless number": (summary("end_s", 10**400), "end_s = inf: must be a number"),
}


@pytest.mark.parametrize("fault", UNREADABLE)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path, fault):
    files, words = UNREADABLE[fault]
    with pytest.raises(InputError) as caught:
        validate_run(write(tmp_path, **files))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["jobs.csv", "events.csv", "summary.json"])
def test_a_missing_or_binary_file_is_named(tmp_path, name):
    (write(tmp_path) / name).write_bytes(b"time_s\xff\n")
    with pytest.raises(InputError, match=f"{name}: not UTF-8 text: byte 6 is 0xff"):
        validate_run(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=f"{name}: cannot read: No such file"):
        validate_run(tmp_path)


def test_runs_are_found_below_a_directory(tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="no run directory"):
        run_directories(tmp_path)
    found = []
    for name in ("b", "a"):
        (tmp_path / "w" / name).mkdir(parents=True)
        found.insert(0, write(tmp_path / "w" / name))
    shutil.copytree(found[0], tmp_path / ".dfrs-x" / "c")
    assert run_directories(tmp_path) == (found, {})
    assert run_directories(found[0]) == ([found[0]], {})


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Of two runs one is where only another user may look."""
    monkeypatch.chdir(tmp_path)
    for name in ("EASY", "FCFS"):
        Path("out", name).mkdir(parents=True)
        write(Path("out", name))
    scandir = os.scandir

    def refusing(path):
        if path == "out/FCFS":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)


def test_where_runs_could_not_be_looked_for_not_all_is_valid(dfrs, others):
    problem = "out/FCFS: cannot read: Permission denied"
    status, out, err = dfrs("validate", "out")
    assert (status, err) == (1, "")
    first, *told = out.splitlines()
    assert first.startswith("out/EASY: valid: ")
    assert told == ["out/FCFS: 1 problem", problem]
    status, out, _ = dfrs("validate", "out", "--json")
    assert status == 1
    document = json.loads(out)
    assert [(run["run"], run["problems"]) for run in document["runs"]] == [("out/EASY", []), ("out/FCFS", [problem])]
    assert not document["valid"]


def test_what_could_not_be_looked_into_is_named_beside_what_is_compared(dfrs, others):
    status, out, err = dfrs("compare", "out", "--json")
    assert (status, [row["run"] for row in json.loads(out)]) == (0, ["out/EASY"])
    assert err == "left out: out/FCFS: cannot read: Permission denied\n"
    shutil.rmtree("out/EASY")
    for verb in ("compare", "validate"):
        assert dfrs(verb, "out") == (2, "", "dfrs: out/FCFS: cannot read: Permission denied\n")


def saved(run, folder):
    write_run(run, folder, summarize(run), "0")
    return folder


@given(seed=st.integers(0, 10**6), partial=st.booleans(), exclusive=st.booleans())
def test_runs_that_keep_every_rule_are_valid(tmp_path_factory, seed, partial, exclusive):
    run = random_run(seed, partial=partial, exclusive=exclusive)
    assert validate_run(saved(run, tmp_path_factory.mktemp("run"))).problems == []


def test_runs_like_real_ones_are_valid(tmp_path):
    for k, run in enumerate((story_run(), toy_run(), toy_run(batch=True))):
        assert validate_run(saved(run, tmp_path / str(k))).problems == []


@given(seed=st.integers(0, 10**6), data=st.data())
def test_a_row_taken_out_is_noticed(tmp_path_factory, seed, data):
    run = random_run(seed)
    log = run.events
    # Without effect is a share in a penalty or of no length, a drain that kept no one away, and a node that comes back
    # from one.
    telling = np.flatnonzero(~np.isin(log.action, [Action.SHARE, Action.DRAIN, Action.UP, Action.DOWN]))
    if not len(telling):
        return
    folder = saved(run, tmp_path_factory.mktemp("run"))
    row = 1 + data.draw(st.sampled_from(telling.tolist()))
    lines = (folder / "events.csv").read_text().splitlines(keepends=True)
    (folder / "events.csv").write_text("".join(lines[:row] + lines[row + 1 :]))
    assert validate_run(folder).problems


@given(seed=st.integers(0, 10**6), data=st.data(), factor=st.floats(0.5, 0.999))
def test_a_yield_changed_while_it_counts_is_noticed(tmp_path_factory, seed, data, factor):
    run = random_run(seed, node_events=False)
    log = run.events
    counts = []
    for row in np.flatnonzero(log.yield_ > 0).tolist():
        later = np.flatnonzero((log.job == log.job[row]) & (np.arange(len(log)) > row))
        ready_s = log.time_s[row] + 30.0 * (run.penalty.seconds > 0)
        if log.time_s[later[0]] - ready_s > 1.0:
            counts.append(row)
    if not counts:
        return
    row = data.draw(st.sampled_from(counts))
    yields = log.yield_.copy()
    yields[row] *= factor
    lie = dataclasses.replace(run, events=dataclasses.replace(log, yield_=yields))
    folder = tmp_path_factory.mktemp("run")
    write_run(lie, folder, summarize(lie), "0")
    words = f"job {run.workload.job_id[log.job[row]]}: finish at virtual time"
    assert any(words in problem for problem in validate_run(folder).problems)


def test_a_size_dependent_penalty_counts_the_tasks_that_move(tmp_path):
    penalty = {"model": "size", "latency_s": 2.0, "node_bytes": 8e9, "bytes_per_s": 0.8e9}
    files = summary("configuration.penalty", penalty)
    # The resume of two tasks of 0.4 takes 2 + 8 s, as before; the migration of one takes 2 + 4 s instead of 10.
    problems = validate_run(write(tmp_path, **files)).problems
    assert any("virtual time 104.0 passes 100.0" in problem for problem in problems)
    rows = changed(EVENTS, "155.0,1,finish", "151.0,1,finish")
    assert not any(
        "virtual time" in problem for problem in validate_run(write(tmp_path, events=rows, **files)).problems
    )


def test_rounding_of_times_since_1970_is_forgiven(tmp_path):
    run = toy_run(nodes=8, jobs=60, seed=5)
    shift = 1.7e9 + 1 / 3
    work = run.workload.with_columns(submit_s=run.workload.submit_s + shift)
    log = dataclasses.replace(run.events, time_s=run.events.time_s + shift)
    later = dataclasses.replace(run, workload=work, events=log, end_s=run.end_s + shift)
    assert math.ulp(later.end_s) > 1e-7
    assert not any("virtual time" in problem for problem in validate_run(saved(later, tmp_path)).problems)
