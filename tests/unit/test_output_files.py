"""Names of files for output, and whether what they hold is replaced."""

import pytest

from dfrs.live.controller.output_files import output_file
from dfrs.live.controller.records import JobRecord
from dfrs.live.drivers.base import TaskId
from dfrs.live.drivers.file_names import complete, fill, is_shared, letters
from dfrs.live.drivers.processes.launching import entries_of
from dfrs.live.protocol.resources import JobRequest
from dfrs.testing.drivers import task_spec


def job(name, attempt=0, index=None, **fields):
    request = JobRequest(command=("true",), name="100%t", output_file=name, **fields)
    return JobRecord(17, 12, request, "ann", 0.0, array_index=index, attempt=attempt)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("out-%j.txt", "out-17.txt"),
        ("%A_%a", "12_5"),
        ("%6j-%3t", "000017-002"),
        ("%x/%u.%N", "100%t/ann.node-1"),
        ("100%%-%%j", "100%-%j"),
        ("plain", "plain"),
    ],
)
def test_patterns_are_filled_by_who_knows_them(pattern, name):
    made = output_file(job(pattern, index=5, array=9), pattern)
    spec = task_spec("true", output_file=made)
    found = dict(entries_of(TaskId(job=17, rank=2, attempt=0), spec, "node-1"))["file"]
    assert found.split(" ", 2)[2] == name


def test_what_is_filled_in_begins_no_pattern():
    assert complete(fill("%x%t", {"x": "%N%%"}), {"t": 1, "N": "node"}) == "%N%%1"


@pytest.mark.parametrize("name", ["%q", "a%", "%J", "%123j", "%-1j"])
def test_there_are_no_other_patterns(name):
    with pytest.raises(ValueError, match=r"^%\S*: no such pattern: there are %j, %A,"):
        letters(name)


@pytest.mark.parametrize(
    ("name", "tasks", "array", "shared"),
    [
        ("out", 1, None, False),
        ("out", 1, 1, False),
        ("out", 2, None, True),
        ("%N", 2, None, True),
        ("%t", 2, None, False),
        ("%t", 2, 3, True),
        ("%A", 1, 3, True),
        ("%a", 1, 3, False),
        ("%j-%t", 2, 3, False),
    ],
)
def test_who_shares_a_file(name, tasks, array, shared):
    assert is_shared(name, tasks, array) == shared
    made = output_file(job(name, tasks=tasks, array=array), name)
    assert made.mode == ("append" if shared else "truncate")


def test_nothing_is_lost_of_the_attempt_before_unless_the_user_says_so():
    assert output_file(job("out", attempt=1), "out").mode == "append"
    assert output_file(job("out", attempt=1, open_mode="truncate"), "out").mode == "truncate"
    assert output_file(job("out", open_mode="append"), "out").mode == "append"
    assert output_file(job("out"), None) is None


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"error_file": "%q"}, "%q: no such pattern"),
        ({"output_file": "%a"}, "%a: only a job of an array has an index"),
        ({"output_file": ""}, "at least 1 character"),
        ({"output_file": "a\0"}, "no NUL"),
        ({"output_file": "%j", "tasks": 2, "open_mode": "truncate"}, "tasks share %j, .* its own by %t"),
        ({"error_file": "e", "array": 2, "open_mode": "truncate"}, "tasks share e, .* its own by %j"),
    ],
)
def test_what_cannot_be_is_refused(fields, why):
    with pytest.raises(ValueError, match=why):
        JobRequest(command=("true",), **fields)


def test_requests_from_before_have_no_files():
    assert JobRequest.model_validate_json('{"command": ["true"]}').output_file is None
    assert "file" not in JobRequest(command=("true",)).model_dump_json(exclude_defaults=True)
