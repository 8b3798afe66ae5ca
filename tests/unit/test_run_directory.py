"""The three files of a run: written, read back, and read when they are broken."""

import errno
import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.elastic import ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.run import PLACING, Action, Penalty, Run
from dfrs.runs import directory as directory_module
from dfrs.runs.directory import FILES, read_run, slug, workload_digest, write_run
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.node_sets import node_set, node_sets, node_sets_of, parse_node_set
from dfrs.simulator import simulation as simulator
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.naive.node_sets import node_set as naive_node_set
from tests.naive.progress import replayed
from tests.online_cases import empty_workload, plain_workload, random_workload
from tests.small_policies import FairShare, Mover
from tests.toy_runs import toy_run
from tests.unit.test_simulation import NODE_EVENTS

COLUMNS = (
    "job_id,submission_time,requested_number_of_resources,requested_time,success,starting_time,execution_time,"
    "finish_time,waiting_time,turnaround_time,stretch,allocated_resources,processing_time,cpu_need,memory,weight,user,"
    "virtual_time,pauses,migrations,requested_start_time"
)


def mover_run(**settings):
    return Simulation(
        random_workload(1), Mover(), "Mover*/per", SimulationSettings(node_events=NODE_EVENTS, **settings)
    ).run()


def partial_run(monkeypatch):
    monkeypatch.setattr(simulator, "WATCHED", 60)
    return Simulation(random_workload(1), Mover(), "Mover", SimulationSettings(penalty=Penalty(seconds=3.0))).run(
        lambda _: False
    )


def refusing_run():
    workload = plain_workload([(0, 3, 0.1, 0.7, 5), (1, 2, 0.1, 0.7, 1 / 3), (1e9, 1, 1.0, 0.7, 1e-7)], nodes=2)
    return Simulation(workload, FairShare(), "fair").run()


RUNS = {
    "mover": lambda _: mover_run(),
    "size": lambda _: mover_run(penalty=Penalty(seconds=1.0, bytes_per_s=3e9, node_bytes=16e9), seed=7),
    "unequal": lambda _: mover_run(capacity=np.array([[2.0, 1.5], [1.0, 1.0], [1 / 3, 1.0], [1.0, 1.0]])),
    "partial": partial_run,
    "refusing": lambda _: refusing_run(),
    "empty": lambda _: Simulation(empty_workload(), FairShare(), "fair").run(),
    "toy": lambda _: toy_run(nodes=8, jobs=30),
}


@pytest.fixture(params=RUNS)
def run(request, monkeypatch):
    return RUNS[request.param](monkeypatch)


def canonical(run):
    """Events with nodes sorted within each row, and reasons in words."""
    events = run.events
    nodes = [sorted(events.nodes_of(k).tolist()) for k in range(len(events))]
    yields = [None if np.isnan(y) else y for y in events.yield_.tolist()]
    words = [events.reasons[k] for k in events.why.tolist()]
    return list(
        zip(events.time_s.tolist(), events.job.tolist(), events.action.tolist(), yields, words, nodes, strict=True)
    )


def assert_same_columns(one, other):
    for f in fields(one):
        assert np.array_equal(getattr(one, f.name), getattr(other, f.name)), f.name


def assert_same(one, other):
    for f in fields(one.workload):
        a, b = getattr(one.workload, f.name), getattr(other.workload, f.name)
        if isinstance(a, np.ndarray):
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), f.name
        elif isinstance(a, ElasticCommands):
            assert_same_columns(a, b)
        else:
            assert a == b, f.name
    assert workload_digest(one.workload) == workload_digest(other.workload)
    for f in fields(Run):
        if f.name not in {"workload", "events", "capacity", "penalty", "answers"}:
            assert getattr(one, f.name) == getattr(other, f.name), f.name
    assert_same_columns(one.answers, other.answers)
    assert (one.capacity == other.capacity).all()
    assert [getattr(one.penalty, f.name) for f in fields(Penalty)] == [
        getattr(other.penalty, f.name) for f in fields(Penalty)
    ]
    assert canonical(one) == canonical(other)


def contents(directory):
    return [(directory / name).read_bytes() for name in FILES]


def test_what_is_read_equals_what_was_written_and_is_written_the_same_again(run, tmp_path):
    metrics = summarize(run)
    write_run(run, tmp_path / "a", metrics, "1")
    back = read_run(tmp_path / "a")
    assert_same(back, run)
    write_run(back, tmp_path / "b", metrics, "1")
    write_run(run, tmp_path / "a", metrics, "1")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(FILES)


def test_parts_make_the_same_files(run, tmp_path, monkeypatch):
    write_run(run, tmp_path / "whole", {}, "1")
    monkeypatch.setattr("dfrs.runs.directory.ROWS_AT_ONCE", 3)
    write_run(run, tmp_path / "parts", {}, "1")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_headers_and_columns_are_those_of_the_contract(run, tmp_path):
    write_run(run, tmp_path, summarize(run), "1")
    assert (tmp_path / "jobs.csv").read_text().splitlines()[0] == COLUMNS
    assert (tmp_path / "events.csv").read_text().splitlines()[0] == "time_s,job_id,action,nodes,yield,why"
    jobs = pl.read_csv(tmp_path / "jobs.csv", infer_schema=False).to_dicts()
    assert len(jobs) == len(run.workload)
    virtual = replayed(run) if run.policy not in {"toy"} else []
    for j, row in enumerate(jobs):
        finished = not np.isnan(run.finish_s[j])
        assert row["success"] == str(int(finished))
        assert row["job_id"] == str(run.workload.job_id[j])
        for column in ("finish_time", "execution_time", "turnaround_time", "stretch"):
            assert (row[column] is not None) == finished
        assert (row["starting_time"] is not None) == (row["waiting_time"] is not None) == (not np.isnan(run.start_s[j]))
        assert float(row["virtual_time"]) == pytest.approx(float(virtual[j]), rel=1e-9, abs=1e-6)
        assert int(row["migrations"]) == run.count(Action.MIGRATE)[j]
        assert int(row["pauses"]) == run.count(Action.PAUSE)[j]
        placed = [k for k in range(len(run.events)) if run.events.job[k] == j and run.events.action[k] in PLACING]
        expected = sorted(run.events.nodes_of(placed[-1]).tolist()) if placed else []
        assert parse_node_set(row["allocated_resources"] or "").tolist() == expected
        if finished:
            flow = run.finish_s[j] - run.workload.submit_s[j]
            assert float(row["stretch"]) == flow / run.workload.run_s[j]
            assert float(row["turnaround_time"]) == flow


def test_the_summary_is_that_of_the_contract(run, tmp_path):
    write_run(run, tmp_path, {"some_s": np.float64(1.5), "none": None, "list": np.arange(2)}, "1.2")
    document = json.loads((tmp_path / "summary.json").read_text())
    assert document["format"] == "dfrs-run/1"
    assert document["version"] == "1.2"
    assert document["complete"] is run.complete
    assert document["end_s"] == run.end_s
    assert document["metrics"] == {"some_s": 1.5, "none": None, "list": [0, 1]}
    assert document["refused"] == [int(run.workload.job_id[j]) for j in run.refused]
    assert document["workload"]["jobs"] == len(run.workload)
    assert document["configuration"]["nodes"] == len(run.capacity)
    assert document["configuration"]["penalty"]["node_bytes"] == run.penalty.node_bytes


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=20),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12), min_size=1, max_size=5),
)
def test_every_number_and_every_word_survives(tmp_path_factory, values, words):
    run = refusing_run()
    events = run.events
    count = min(len(events), len(values))
    times, why = events.time_s.copy(), np.arange(len(events)) % len(words)
    times[:count] = values[:count]
    run = replace(run, events=replace(events, time_s=times, why=why, reasons=tuple(words)))
    directory = tmp_path_factory.mktemp("run")
    write_run(run, directory, {}, "1")
    assert canonical(read_run(directory)) == canonical(run)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("GreedyPM*/per/OPT=MIN/MVT=600", "GreedyPM+_per_OPT=MIN_MVT=600"),
        ("EASY", "EASY"),
        ("Hybrid-LOS-E", "Hybrid-LOS-E"),
        ("a b:c\\d", "a_b_c_d"),
        ("ü.x", "_.x"),
    ],
)
def test_slugs(policy, name):
    assert slug(policy) == name


# Sets of nodes.


@given(st.lists(st.integers(0, 12) | st.integers(0, 2000), max_size=40))
def test_a_set_of_nodes_and_its_text_are_inverse(nodes):
    text = node_set(np.array(nodes, dtype=np.int64))
    assert parse_node_set(text).tolist() == sorted(nodes)
    assert node_set(parse_node_set(text)) == text
    assert "," not in text


@given(st.lists(st.lists(st.integers(0, 12) | st.integers(0, 2000), max_size=40), max_size=6))
def test_sets_of_a_whole_log_are_as_each_by_itself(sets):
    first = np.cumsum([0, *map(len, sets)])
    nodes = np.array([node for each in sets for node in each], dtype=np.int64)
    texts = [naive_node_set(each) for each in sets]
    assert node_sets(first, nodes) == texts
    assert node_sets(first[len(sets) // 2 :], nodes) == texts[len(sets) // 2 :]
    assert node_sets_of(first, nodes, np.arange(len(sets))[::-2]) == texts[::-2]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([7, 7], "7*2"),
        ([0, 1, 2, 3], "0-3"),
        ([0, 1, 2, 3, 0, 1, 2, 3, 7], "0-3*2 7"),
        ([3, 1, 0], "0-1 3"),
        ([0, 0, 1, 2, 2], "0*2 1 2*2"),
        ([0, 1], "0-1"),
    ],
)
def test_texts_of_sets_of_nodes(nodes, text):
    assert node_set(np.array(nodes, dtype=np.int64)) == text


@pytest.mark.parametrize("text", ["a", "1,2", "-1", "1-", "1*", "*2", "1--2", "1.5", "5-3", "4*0", "1 x", "0-2*"])
def test_what_is_no_set_of_nodes_is_an_input_error(text):
    with pytest.raises(InputError, match="nodes"):
        parse_node_set(text)


# Broken files.


def good(tmp_path):
    write_run(toy_run(nodes=4, jobs=8), tmp_path, {}, "1")
    return tmp_path


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def summary_with(directory, change):
    path = directory / "summary.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


BREAKS = {
    "no summary": lambda d: (d / "summary.json").unlink(),
    "no jobs": lambda d: (d / "jobs.csv").unlink(),
    "no events": lambda d: (d / "events.csv").unlink(),
    "empty summary": lambda d: (d / "summary.json").write_text(""),
    "truncated summary": lambda d: (d / "summary.json").write_text((d / "summary.json").read_text()[:200]),
    "summary a list": lambda d: (d / "summary.json").write_text("[1]"),
    "summary binary": lambda d: (d / "summary.json").write_bytes(b"\xff\xfe\x00"),
    "other format": lambda d: summary_with(d, lambda s: s.update(format="dfrs-run/2")),
    "no workload": lambda d: summary_with(d, lambda s: s.pop("workload")),
    "workload a number": lambda d: summary_with(d, lambda s: s.update(workload=3)),
    "nodes a word": lambda d: summary_with(d, lambda s: s["workload"].update(nodes="x")),
    "no configuration": lambda d: summary_with(d, lambda s: s.pop("configuration")),
    "configuration null": lambda d: summary_with(d, lambda s: s.update(configuration=None)),
    "penalty a word": lambda d: summary_with(d, lambda s: s["configuration"].update(penalty="much")),
    "penalty a list": lambda d: summary_with(d, lambda s: s["configuration"].update(penalty=[1])),
    "negative nodes": lambda d: summary_with(d, lambda s: s["configuration"].update(nodes=-1)),
    "capacity of another shape": lambda d: summary_with(d, lambda s: s["configuration"].update(capacity=[[1.0]])),
    "capacity ragged": lambda d: summary_with(d, lambda s: s["configuration"].update(capacity=[[1.0], [1.0, 2.0]])),
    "unknown refused": lambda d: summary_with(d, lambda s: s.update(refused=[99999])),
    "empty jobs": lambda d: (d / "jobs.csv").write_text(""),
    "jobs binary": lambda d: (d / "jobs.csv").write_bytes(b"\xff\xfe\x00\x01\n"),
    "jobs without a column": lambda d: edited(d / "jobs.csv", "cpu_need", "cpu"),
    "jobs with a word": lambda d: edited(d / "jobs.csv", "\n1,", "\none,"),
    "jobs twice the same": lambda d: edited(d / "jobs.csv", "\n2,", "\n1,"),
    "a job gone": lambda d: (d / "jobs.csv").write_text("\n".join((d / "jobs.csv").read_text().split("\n")[:3]) + "\n"),
    "events without a column": lambda d: edited(d / "events.csv", "yield", "yields"),
    "unknown action": lambda d: edited(d / "events.csv", "start", "begin"),
    "broken nodes": lambda d: edited(d / "events.csv", "start,", "start,x"),
    "a node that is not there": lambda d: edited(d / "events.csv", "start,", "start,9"),
    "time a word": lambda d: edited(d / "events.csv", "\n0.0,", "\nsoon,"),
    "no time": lambda d: edited(d / "events.csv", "\n0.0,", "\n,"),
    "truncated events": lambda d: (d / "events.csv").write_text((d / "events.csv").read_text()[:-9] + '"'),
}


@pytest.mark.parametrize("how", BREAKS)
def test_broken_files_are_input_errors_of_one_line_that_name_the_directory(how, tmp_path):
    directory = good(tmp_path)
    assert read_run(directory).complete
    BREAKS[how](directory)
    with pytest.raises(InputError) as caught:
        read_run(directory)
    assert "\n" not in str(caught.value)
    assert str(directory) in str(caught.value)


def test_a_directory_that_cannot_be_made_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        write_run(toy_run(nodes=4, jobs=8), tmp_path / "file" / "run", {}, "1")


def test_an_unfinished_write_leaves_the_run_that_was_there(tmp_path, monkeypatch):
    run = toy_run(nodes=4, jobs=8)
    write_run(run, tmp_path, {}, "1")
    (tmp_path / "own.txt").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    write = directory_module.write_parts

    def full(path, parts):
        if path.name == "jobs.csv":
            raise InputError(f"{path}: cannot write: No space left on device")
        write(path, parts)

    monkeypatch.setattr(directory_module, "write_parts", full)
    with pytest.raises(InputError) as caught:
        write_run(toy_run(nodes=4, jobs=9), tmp_path, {}, "1")
    assert str(caught.value) == f"{tmp_path}/jobs.csv: cannot write: No space left on device"
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert_same(read_run(tmp_path), run)


def test_a_mixture_of_two_runs_is_not_taken_for_one(tmp_path, monkeypatch):
    """The old summary goes before any other file is replaced, and the new one comes after all of them."""
    write_run(toy_run(nodes=4, jobs=8), tmp_path, {}, "1")
    replace_file = Path.replace

    def failing(path, target):
        if Path(target) == tmp_path / "jobs.csv":
            raise OSError(errno.EIO, "Input/output error")
        return replace_file(path, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(InputError, match="cannot write: Input/output error"):
        write_run(toy_run(nodes=4, jobs=9), tmp_path, {}, "1")
    with pytest.raises(InputError, match=r"summary\.json"):
        read_run(tmp_path)


def test_the_old_summary_stays_where_a_new_one_cannot_be_written(tmp_path):
    run = toy_run(nodes=4, jobs=8)
    write_run(run, tmp_path, {}, "1")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_run(run, tmp_path, {"stretch_max": np.inf}, "1")
    assert read_run(tmp_path).complete
