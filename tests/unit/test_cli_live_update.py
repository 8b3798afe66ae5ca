"""`dfrs update`: what is named is changed, of the jobs that are meant, and of no others."""

import json
import time

import pytest

from dfrs.live.errors import ConflictError
from dfrs.live.protocol.resources import JobState
from tests.unit.test_cli_live import cluster, controller, transport

__all__ = ["cluster", "controller", "transport"]


@pytest.fixture
def job(dfrs, cluster):
    dfrs("submit", "--name", "fit", "x")
    return 1


def test_every_option_reaches_the_controller(dfrs, cluster, job):
    status, out, err = dfrs(
        *("update", job, "--limit", "2h", "--estimate", "90m", "--rename", "longer", "--min-yield", 0.2),
        *("--weight", 0.5),
        *("--cpu", 0.5, "--memory", "512M", "--signal", "USR1@120", "--after", "3:any", "--after", 4),
        *("--at", "+30m", "--array-limit", 5),
    )
    assert (status, out, err) == (0, "updated job 1\n", "")
    ((number, fields),) = cluster.updates
    start = fields["start_at"]
    assert start == pytest.approx(time.time() + 1800, abs=60)
    assert (number, fields) == (
        1,
        {
            "name": "longer",
            "cpu_cores": 0.5,
            "memory_bytes": 512 << 20,
            "minimum_yield": 0.2,
            "weight": 0.5,
            "estimate_s": 5400.0,
            "time_limit_s": 7200.0,
            "warning_signal": "USR1",
            "warning_s": 120.0,
            "start_at": start,
            "after": (4,),
            "after_failed": (),
            "after_any": (3,),
            "after_start": (),
            "array_limit": 5,
        },
    )


def test_none_takes_back_and_what_is_not_named_stays(dfrs, cluster, job):
    words = [
        each
        for name in ("limit", "time", "rename", "cpu", "memory", "at", "array-limit")
        for each in (f"--{name}", "none")
    ]
    assert dfrs("update", job, *words, "--signal", "none")[0] == 0
    ((_, fields),) = cluster.updates
    assert set(fields.values()) == {None}
    assert len(fields) == 8
    assert dfrs("update", job, "--after", "none")[0] == 0
    assert cluster.updates[1][1] == {"after": (), "after_failed": (), "after_any": (), "after_start": ()}


def test_jobs_are_chosen_as_for_cancel(dfrs, cluster):
    for name in ("fit", "plot", "fit", "fit"):
        dfrs("submit", "--name", name, "x")
    cluster.change(4, state=JobState.DONE)
    assert dfrs("update", "--name", "fi*", "--limit", "1h") == (0, "updated jobs 1, 3\n", "")
    assert json.loads(dfrs("update", "2-4", "--limit", "2h", "--json")[1]) == {"updated": [2, 3], "failed": []}
    status, out, err = dfrs("update", 2, 4, "--limit", "3h")
    assert (status, out, err) == (1, "updated job 2\n", "dfrs: job 4: has ended\n")


def test_one_that_can_no_longer_change_is_said_and_status_1(dfrs, cluster, job):
    async def begun(job, update, by):
        raise ConflictError(f"job {job}: has begun: its memory can no longer change")

    cluster.update = begun
    said = "dfrs: job 1: has begun: its memory can no longer change\n"
    assert dfrs("update", job, "--memory", "1G") == (1, "", said)
    assert dfrs("update", "1-5", "--memory", "1G") == (0, "", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "nothing to change"),
        (["--limit", "2"], '--limit: "2": must be a time with units'),
        (["--cpu", "1_0"], '--cpu: "1_0": must be a number'),
        (["--cpu", "-1"], '--cpu "-1": input should be greater than 0'),
        (["--min-yield", "2"], '--min-yield "2.0": input should be less than or equal to 1'),
        (["--array-limit", "few"], '--array-limit: "few": must be a number of jobs, or none'),
        (["--array-limit", "0"], '--array-limit "0": input should be greater than or equal to 1'),
        (["--rename", ""], '--rename "": must be 1 to 128 printable characters'),
        (["--signal", "KILL"], '--signal: "KILL": must be one of'),
        (["--after", "x"], '--after: "x": must be a job'),
    ],
)
def test_wrong_values_are_one_line_and_status_2(dfrs, cluster, job, options, words):
    status, out, err = dfrs("update", job, *options)
    assert (status, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1
    assert cluster.updates == []
