"""Google cluster data 2019: collections become jobs, whatever the order of lines, their form and the size of blocks."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.workloads import swf
from dfrs.workloads.clouds import google_2019
from dfrs.workloads.clouds.google_2019 import EVICT, FAIL, FINISH, KILL, LOST, SCHEDULE, SUBMIT, tier
from dfrs.workloads.clouds.jobs import CloudOptions
from dfrs.workloads.clouds.load import load_cloud_trace
from tests.cloud_cases import BEGIN_US, SECOND_US, collection_event, google_csv, google_json, instance_event

QUEUE, ENABLE, UPDATE_RUNNING = 1, 2, 10


def load(path, **options):
    return load_cloud_trace(path, CloudOptions(nodes=4, **options))


def write(tmp_path, instances, collections=()):
    google_json(tmp_path / "instance_events-000000000000.json.gz", instances)
    if collections:
        google_json(tmp_path / "collection_events-000000000000.json.gz", collections)
    return tmp_path


def test_a_collection_is_a_job_of_the_tasks_that_were_started(tmp_path):
    events = [
        instance_event(10, SUBMIT, 7),
        instance_event(11, QUEUE, 7),
        instance_event(12, ENABLE, 7),
        instance_event(20, SCHEDULE, 7, 0, cpus=0.25, memory=0.125),
        instance_event(50, FINISH, 7, 0),
        instance_event(20, SCHEDULE, 7, 1, cpus=0.5, memory=0.5),
        instance_event(30, UPDATE_RUNNING, 7, 1, cpus=0.75, memory=0.75),
        instance_event(30, FINISH, 7, 1),
        instance_event(10, SUBMIT, 7, 2),
    ]
    work, report = load(write(tmp_path, events, [collection_event(8, SUBMIT, 7)]))
    assert (work.job_id.tolist(), work.tasks.tolist(), work.nodes) == ([7], [2], 4)
    assert work.submit_s.tolist() == [608]
    assert work.run_s.tolist() == work.estimate_s.tolist() == [20.0]
    assert work.need.tolist() == [0.375]
    assert work.memory.tolist() == [0.5]
    assert work.user.tolist() == [1]
    assert work.weight.tolist() == [2]
    assert report.lines() == [
        f"{tmp_path}: Google cluster data 2019: 1 of 1 collections taken, with 2 tasks; a node is the largest machine "
        "of the trace: 1 NCU and 1 of normalised memory"
    ]


def test_time_of_attempts_that_were_repeated_does_not_count(tmp_path):
    events = [
        instance_event(0, SUBMIT, 1),
        instance_event(1, SCHEDULE, 1),
        instance_event(5, EVICT, 1),
        instance_event(5, SUBMIT, 1),
        instance_event(6, SCHEDULE, 1),
        instance_event(8, FAIL, 1),
        instance_event(8, SCHEDULE, 1, cpus=1.0),
        instance_event(20, FINISH, 1),
    ]
    work, report = load(write(tmp_path, events))
    assert work.run_s.tolist() == [12.0]
    assert work.need.tolist() == [1.0]
    assert report.notes == ()


def test_a_task_that_was_evicted_and_killed_while_it_waited_ran_until_it_was_evicted(tmp_path):
    events = [instance_event(t, kind, 1) for t, kind in ((0, SUBMIT), (10, SCHEDULE), (20, EVICT), (50, KILL))]
    work, report = load(write(tmp_path, events))
    assert work.run_s.tolist() == [10.0]
    assert report.notes == (("killed", 1),)


def test_what_is_left_out_and_why(tmp_path):
    events = [
        instance_event(None, SUBMIT, 1),
        instance_event(None, SCHEDULE, 1),
        instance_event(40, FINISH, 1),
        instance_event(0, SUBMIT, 2),
        instance_event(1, SCHEDULE, 2),
        *(instance_event(t, k, 3) for t, k in ((0, SUBMIT), (1, SCHEDULE), (9, LOST))),
        *(instance_event(t, k, 4) for t, k in ((0, SUBMIT), (1, SCHEDULE), (9, EVICT))),
        instance_event(0, SUBMIT, 5),
        *(instance_event(t, k, 6, alloc_set=True) for t, k in ((0, SUBMIT), (1, SCHEDULE), (9, KILL))),
        *(instance_event(t, k, 7, cpus=0.0) for t, k in ((0, SUBMIT), (1, SCHEDULE), (9, FINISH))),
        *(instance_event(t, k, 8, memory=None) for t, k in ((0, SUBMIT), (1, SCHEDULE), (9, FINISH))),
        *(instance_event(t, k, 9, cpus=1.5) for t, k in ((0, SUBMIT), (1, SCHEDULE), (9, FINISH))),
        *(instance_event(t, k, 10) for t, k in ((2, SUBMIT), (3, SCHEDULE), (100, FAIL))),
        *(instance_event(t, k, 11) for t, k in ((5, SUBMIT), (6, SCHEDULE), (6, FINISH))),
        {**instance_event(0, FINISH, 2), "time": 2**63 - 1},
    ]
    work, report = load(write(tmp_path, events))
    assert work.job_id.tolist() == [10, 11]
    assert work.run_s.tolist() == [97.0, 1.0]
    assert report.notes == (("with a failed task", 1), ("with a run time of 0, taken as 1 s", 1))
    assert report.left_out == (
        ("alloc sets", 1),
        ("never started", 1),
        ("submitted before the trace begins", 1),
        ("cut off, evicted or lost without a known end", 3),
        ("without a CPU request", 1),
        ("without a memory request", 1),
        ("with tasks larger than a node", 1),
    )
    assert report.jobs == report.taken + sum(count for _, count in report.left_out) == 11

    work, report = load(tmp_path, cut_off="keep")
    assert dict(zip(work.job_id.tolist(), work.run_s.tolist(), strict=True)) == {
        1: 40.0,
        2: 99.0,
        3: 8.0,
        4: 8.0,
        10: 97.0,
        11: 1.0,
    }
    assert work.submit_s[work.job_id == 1].tolist() == [600]
    assert report.notes[1:3] == (
        ("submitted before the trace begins", 1),
        ("cut off, evicted or lost without a known end", 3),
    )


def test_users_are_numbered_in_the_order_of_their_first_submission(tmp_path):
    ran = [
        event
        for k in range(4)
        for event in (instance_event(9 - k, SUBMIT, k), instance_event(20, SCHEDULE, k), instance_event(30, FINISH, k))
    ]
    users = [collection_event(9 - k, SUBMIT, k, user=user) for k, user in enumerate(("b", "a", "b", None))]
    work, _ = load(write(tmp_path, ran, users))
    assert dict(zip(work.job_id.tolist(), work.user.tolist(), strict=True)) == {3: -1, 2: 1, 1: 2, 0: 1}


def test_priorities_are_tiers():
    assert tier(np.array([0, 99, 100, 115, 116, 119, 120, 450])).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_window_is_of_submissions_and_starts_the_clock(tmp_path):
    events = [
        event
        for k in range(4)
        for event in (instance_event(10 * k, SUBMIT, k), instance_event(50, SCHEDULE, k), instance_event(60, FINISH, k))
    ]
    work, report = load(write(tmp_path, events), window_s=(610, 630))
    assert work.job_id.tolist() == [1, 2]
    assert work.submit_s.tolist() == [0, 10]
    assert report.left_out == (("submitted outside the window", 2),)
    known = [collection_event(10 * k, SUBMIT, k) for k in range(1, 4)]
    again, report = load(write(tmp_path, events, known), window_s=(610, 630))
    assert again.job_id.tolist() == [1, 2]
    assert again.run_s.tolist() == work.run_s.tolist()
    assert report.left_out == (("submitted outside the window", 2),)
    with pytest.raises(InputError, match=r"no collections of 4 can be taken: left out: 4 submitted outside the window"):
        load(tmp_path, window_s=(0, 600))


@st.composite
def histories(draw):
    """Events of some instances, at times of their own; anything may follow anything."""
    kinds = st.sampled_from((SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST))
    events = []
    for collection in range(draw(st.integers(1, 4))):
        for instance in range(draw(st.integers(1, 3))):
            time_s = 0
            for kind in draw(st.lists(kinds, max_size=7)):
                time_s += draw(st.integers(1, 50))
                share = draw(st.integers(1, 8)) / 8
                events.append(instance_event(time_s, kind, collection, instance, cpus=share, memory=share / 2))
    return draw(st.permutations(events))


def slowly(events):
    """Jobs by collection: tasks, mean seconds, mean CPU, memory; without those that have a task without a known end."""
    jobs = {}
    for key in {(e["collection_id"], e["instance_index"]) for e in events}:
        start = end = final = None
        for event in sorted(events, key=lambda e: e["time"]):
            if (event["collection_id"], event["instance_index"]) != key:
                continue
            if event["type"] == SCHEDULE:
                start, end, final = event, None, None
            elif event["type"] != SUBMIT and start is not None:
                end, final = end or event, event["type"]
        if start is not None:
            known = final in {FAIL, FINISH, KILL}
            seconds = (end["time"] - start["time"]) / SECOND_US if known else None
            jobs.setdefault(key[0], []).append((seconds, *start["resource_request"].values()))
    whole = {job: tasks for job, tasks in jobs.items() if all(task[0] is not None for task in tasks)}
    return {
        job: (len(tasks), np.mean([t[0] for t in tasks]), np.mean([t[1] for t in tasks]), max(t[2] for t in tasks))
        for job, tasks in whole.items()
    }


@given(events=histories(), as_csv=st.booleans(), block=st.integers(50, 5_000), rows=st.integers(1, 20))
def test_as_if_each_instance_were_followed_by_itself(tmp_path_factory, events, as_csv, block, rows):
    expected = slowly(events)
    path = tmp_path_factory.mktemp("google") / "x"
    (google_csv if as_csv else google_json)(path, events) if events else path.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swf, "BLOCK_BYTES", block)
        patch.setattr(google_2019, "MOST_ROWS", rows)
        if not expected:
            with pytest.raises(InputError):
                load(path)
            return
        work, report = load(path)
    found = zip(*(getattr(work, name).tolist() for name in ("tasks", "run_s", "need", "memory")), strict=True)
    assert dict(zip(work.job_id.tolist(), map(pytest.approx, found), strict=True)) == expected
    first = {job: min(e["time"] for e in events if e["collection_id"] == job) for job in expected}
    submits = {job: [e["time"] for e in events if (e["collection_id"], e["type"]) == (job, SUBMIT)] for job in expected}
    due = [min(submits[job], default=first[job]) / SECOND_US for job in work.job_id.tolist()]
    assert work.submit_s.tolist() == due == sorted(due)
    assert report.jobs == report.taken + sum(count for _, count in report.left_out)


@pytest.mark.parametrize(
    "names", [("resource_request.cpus", "resource_request.memory"), ("cpus", "memory"), ("requested_cpus", "memory")]
)
def test_a_csv_may_name_requests_as_queries_do(tmp_path, names):
    events = [instance_event(t, kind, 1) for t, kind in ((0, SUBMIT), (1, SCHEDULE), (9, FINISH))]
    work, _ = load(google_csv(tmp_path / "x.csv", events, names))
    assert (work.need.tolist(), work.memory.tolist()) == ([0.25], [0.125])


@pytest.mark.parametrize("cpus", [0.00012345678901234567, 1e-9, 1.0, 0.1 + 0.2])
def test_json_may_have_numbers_or_texts_and_requests_in_any_form(tmp_path, cpus):
    events = [instance_event(t, kind, 1, cpus=cpus) for t, kind in ((0, SUBMIT), (1, SCHEDULE), (9, FINISH))]
    plain = [{key: value for key, value in event.items() if key != "resource_request"} for event in events]
    named = [{**event, "resource_request_cpus": cpus, "resource_request_memory": 0.125} for event in plain]
    texts = [{**event, "resource_request": {"cpus": str(cpus), "memory": "0.125"}} for event in plain]
    for rows in (events, named, texts):
        as_numbers = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "x").write_text(as_numbers)
        for path in (tmp_path / "x", google_json(tmp_path / "y", rows)):
            work, _ = load(path)
            assert (work.need.tolist(), work.memory.tolist(), work.run_s.tolist()) == ([cpus], [0.125], [8.0])


GOOD = '{"time":"600000000","type":"0","collection_id":"1","instance_index":"0"}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "\n\n" + GOOD.replace('"0"', '"12"', 1), r'x:4: type = "12": must be a whole number from 0 to 10'),
        (GOOD + GOOD.replace('"600000000"', '"soon"'), r'x:2: time = "soon": must be a whole number of at least 0'),
        (GOOD + GOOD.replace('"600000000"', "6e-1"), r'x:2: time = "0.6": must be a whole number of at least 0'),
        (GOOD + '{"time":"600000000","type":"0","instance_index":"0"}', r'x:2: collection_id = "": must be a whole'),
        (
            GOOD.replace("}", ',"resource_request":{"cpus":"NaN"}}'),
            r'x:1: resource_request.cpus = "NaN": must be a finite number of at least 0',
        ),
        (GOOD + "{", r"x:2: '\{': is no JSON: must be an object"),
        (GOOD + "[]", r"x:2: '\[\]': must be a JSON object"),
        ("time,type,collection_id,instance_index\n1,0,1,0\n1,0,1\n", r"x:3: 3 fields: must be 4"),
        ("time,type,collection_id,instance_index\n1,0,1,0,5\n1,0,1\n", r"x:2: 5 fields: must be 4"),
        (
            "time,type,collection_id,instance_index\n1,-1,1,0\n",
            r'x:2: type = "-1": must be a whole number from 0 to 10',
        ),
        ("time,type,collection_id,instance_index,cpus,requested_cpus\n", r"columns cpus and requested_cpus: must be"),
        ("time,kind,collection_id,instance_index\n1,0,1,0\n", r"x:1: no column type: must have one"),
        ("time,type,collection_id,instance_index\n", r"instance_events without a line"),
        ('time,type,collection_id,instance_index\n1,"0,1,0\n', r"x:2: 2 fields: must be 4"),
    ],
)
def test_wrong_files_are_refused(tmp_path, text, message):
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load(path)


def test_text_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"time,type,collection_id,instance_index,user\n1,0,1,0,a\n1,0,1,0,\xff\n")
    with pytest.raises(InputError, match=r"x:3: byte 8: not UTF-8 text"):
        load(path)


def test_times_are_those_of_the_trace(tmp_path):
    events = [instance_event(t, kind, 1) for t, kind in ((0, SUBMIT), (1, SCHEDULE), (9, FINISH))]
    assert events[0]["time"] == BEGIN_US
    assert load(write(tmp_path, events))[0].submit_s.tolist() == [600]
