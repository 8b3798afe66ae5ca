"""The verbs of a live cluster against the real API in this process, with a controller that runs nothing."""

import csv
import functools
import io
import itertools
import json
import os
import re
import select
import socket
import sys
import threading
import time

import httpx
import pytest
from rich.console import Console
from starlette.testclient import TestClient

from dfrs.cli.console import PlainConsole
from dfrs.cli.live import completing, history, logs, nodes, one_by_one, queue, selecting, top
from dfrs.cli.views import live as views
from dfrs.live import client as clients
from dfrs.live.agent.agent import host_name
from dfrs.live.api.routes import create_app
from dfrs.live.client import Client, Endpoint
from dfrs.live.errors import ConflictError
from dfrs.live.following import Patience, asleep
from dfrs.live.protocol.resources import Activity, JobRequest, JobState, NodeTask, OutputPart
from dfrs.model.errors import InputError
from dfrs.model.text import has_controls
from tests.live_service import FakeService, _job

URL = "http://127.0.0.1:7070"
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egpj.exe\u2066\x9b31m\r\nexit 0"
"""Of a user, or of an agent, who wants to fool whoever reads it."""


class Controller(FakeService):
    """Also tells stories, and has outputs that grow and end."""

    def __init__(self):
        super().__init__()
        self.texts = ["one\n", "two\n"]
        self.ends_after = None

    def change(self, job, **fields):
        self.by_id[job] = self.by_id[job].model_copy(update=fields)

    def job(self, job, *, of=None):
        found = super().job(job)
        if self.ends_after is not None:
            self.ends_after -= 1
            if self.ends_after <= 0:
                found = found.model_copy(update={"state": JobState.FAILED, "exit": "status 7", "exit_code": 7})
        return found

    async def output(self, job, rank, piece):
        self.job(job)
        text = "".join(self.texts) if piece.stream == "out" else "bad\n"
        part = text[piece.offset : piece.offset + min(piece.limit, 4)]
        end = piece.offset + len(part)
        return OutputPart(text=part, offset=piece.offset, next_offset=end, end_offset=len(text), ended=end == len(text))

    def explain(self, job, *, of):
        event = Activity(
            sequence=1,
            time=time.time(),
            job=job,
            node=None,
            action="start",
            nodes=("node-1",),
            yield_=0.5,
            why="there was room",
            by="ann",
        )
        return super().explain(job, of=of).model_copy(update={"history": (event,), "bound": 0.75})


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
def transport(controller):
    return TestClient(create_app(controller, page=None))._transport


@pytest.fixture
def cluster(controller, transport, monkeypatch, tmp_path):
    """The controller; every verb of this process finds it by the client file."""
    endpoint = {"url": URL, "token": controller.token("ann", "user"), "ca": None}
    (tmp_path / "client.json").write_text(json.dumps(endpoint))
    monkeypatch.setenv("DFRS_STATE", str(tmp_path))
    for name in ("DFRS_SERVER", "DFRS_TOKEN_FILE", "DFRS_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(clients, "Client", functools.partial(Client, transport=transport))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return controller


def last(controller):
    return controller.requests[-1]


def test_every_option_of_submit_reaches_the_controller(dfrs, cluster, tmp_path):
    status, out, err = dfrs(
        "submit",
        "--tasks",
        4,
        "--cpu",
        0.5,
        "--memory",
        "512M",
        "--min-yield",
        0.2,
        "--gpus",
        2,
        "--resource",
        "licence-x=1",
        "--exclusive",
        "--name",
        "x",
        "--time",
        "2h",
        "--limit",
        "3h",
        "--signal",
        "USR1@120",
        "--after",
        12,
        "--after",
        13,
        "--at",
        "+30m",
        "--array",
        "2%1",
        "--restart",
        "never",
        "--hold",
        "--env",
        "A=1",
        "--directory",
        tmp_path,
        "--",
        "./prog",
        "--tasks",
        "9",
    )
    assert (status, out, err) == (0, "jobs 1, 2\n", "")
    got = last(cluster)
    assert got.command == ("./prog", "--tasks", "9")
    assert (got.tasks, got.cpu_cores, got.memory_bytes, got.minimum_yield, got.name) == (4, 0.5, 512 << 20, 0.2, "x")
    assert (got.estimate_s, got.time_limit_s, got.after) == (7200, 10800, (12, 13))
    assert (got.array, got.array_limit) == (2, 1)
    assert (got.resources, got.exclusive) == ({"gpu": 2, "licence-x": 1}, True)
    assert (got.warning_signal, got.warning_s) == ("USR1", 120.0)
    assert got.start_at == pytest.approx(time.time() + 1800, abs=60)
    assert (got.restart.value, got.held, got.environment["A"], got.directory) == ("never", True, "1", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "ok", "failed", "any_", "start"),
    [
        (["3:ok", "3"], (3,), (), (), ()),
        (["3:failed,4:any", "5:start"], (), (3,), (4,), (5,)),
        (["1-3", "7-8:any"], (1, 2, 3), (), (7, 8), ()),
        (["afterok:3:4,afternotok:5", "afterany:6", "after:7"], (3, 4), (5,), (6,), (7,)),
    ],
)
def test_dependencies_of_every_kind(dfrs, cluster, words, ok, failed, any_, start):
    assert dfrs("submit", *(part for word in words for part in ("--after", word)), "x")[0] == 0
    got = last(cluster)
    assert (got.after, got.after_failed, got.after_any, got.after_start) == (ok, failed, any_, start)
    shown = dfrs("show", 1)[1]
    for name, kind in ((failed, ":failed"), (any_, ":any"), (start, ":start")):
        assert all(f"{job}{kind}" in shown for job in name)


def test_where_a_job_may_run_is_said_by_options_and_scripts_and_shown(dfrs, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--nodelist", "n1, n2", "-x", "n2", "-C", "avx512,rack:a")
    assert dfrs("submit", *options, "x")[0] == 0
    got = last(cluster)
    assert (got.nodelist, got.exclude, got.constraint) == (("n1", "n2"), ("n2",), "avx512,rack:a")
    shown = dfrs("show", 1)[1]
    assert all(words in shown for words in ("only on", "n1, n2", "not on", "avx512,rack:a"))
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -w n1 -x n3,n4\n#SBATCH -C 'a|b'\n#DFRS --nodelist n2\ntrue\n")
    assert dfrs("submit", "job.sh") == (0, "job 2\n", "")
    got = last(cluster)
    assert (got.nodelist, got.exclude, got.constraint) == (("n2",), ("n3", "n4"), "a|b")
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -w n[1-3]\ntrue\n")
    words = f'{tmp_path}/job.sh:2: --nodelist: "n[1-3]": must be names of nodes with commas between them'
    assert dfrs("submit", "job.sh") == (2, "", f"dfrs: {words}\n")


def test_environments_are_said_by_options_and_scripts(dfrs, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    assert dfrs("submit", "--venv", "v", "x", "y")[0] == 0
    got = last(cluster)
    assert got.command == ("x", "y")
    assert (got.environment["VIRTUAL_ENV"], got.environment["PATH"]) == (f"{tmp_path}/v", f"{tmp_path}/v/bin:/usr/bin")
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#DFRS --module gcc/12 --image docker://debian:12\ntrue\n")
    assert dfrs("submit", "--module", "mpi", "job.sh", "7")[0] == 0
    got = last(cluster)
    assert got.name == "job.sh"
    assert got.command[:2] == ("/bin/sh", "-c")
    assert got.command[4:7] == ("2", "gcc/12", "mpi")
    assert got.command[-4:] == ("docker://debian:12", "/bin/sh", f"{tmp_path}/job.sh", "7")


def test_files_for_output_are_named_as_slurm_names_them(dfrs, cluster):
    assert dfrs("submit", "-o", "out-%j.txt", "--error", "err", "--open-mode", "append", "x")[0] == 0
    got = last(cluster)
    assert (got.output_file, got.error_file, got.open_mode) == ("out-%j.txt", "err", "append")
    assert re.search(r"output also in +out-%j.txt, err", dfrs("show", 1)[1])


def test_who_is_to_be_told_and_where_nobody_is(dfrs, cluster):
    status, out, err = dfrs("submit", "--notify", "end,begin,end", "--notify-to", "ann@example.org", "x")
    assert (status, out) == (0, "job 1\n")
    assert err.startswith("--notify: nobody is told by this cluster: ")
    assert (last(cluster).notify, last(cluster).notify_to) == (("end", "begin"), "ann@example.org")


def test_little_is_assumed_and_little_is_taken_along(dfrs, cluster, monkeypatch):
    monkeypatch.setenv("MY_SECRET", "hush")
    assert dfrs("submit", "/bin/sleep", "5")[1] == "job 1\n"
    got = last(cluster)
    assert (got.command, got.name, got.tasks, got.cpu_cores) == (("/bin/sleep", "5"), "sleep", 1, None)
    assert "hush" not in got.model_dump_json()
    assert json.loads(dfrs("submit", "--json", "true")[1]) == {"jobs": [2]}


@pytest.mark.parametrize(
    ("text", "name", "seconds"), [("SIGTERM", "TERM", 60.0), ("10@5", "USR1", 5.0), ("URG@1", "URG", 1.0)]
)
def test_a_warning_is_written_as_slurm_does(dfrs, cluster, text, name, seconds):
    assert dfrs("submit", "--limit", "1h", "--signal", text, "x")[0] == 0
    assert (last(cluster).warning_signal, last(cluster).warning_s) == (name, seconds)


def test_a_script_says_its_options_and_the_command_line_wins(dfrs, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#DFRS --tasks 4 --cpu 0.5\n#DFRS --after 3 --hold\necho $1\n")
    assert dfrs("submit", "--cpu", 2, "--after", 5, "job.sh", "hello")[0] == 0
    got = last(cluster)
    assert got.command == ("/bin/bash", str(tmp_path / "job.sh"), "hello")
    assert (got.name, got.tasks, got.cpu_cores, got.after, got.held) == ("job.sh", 4, 2.0, (3, 5), True)


def test_a_script_of_slurm_is_submitted_with_notes(dfrs, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH --job-name=fit --time=1:30\n#SBATCH -p fast\n#SBATCH -d afternotok:3\necho $1\n"
    )
    status, out, err = dfrs("submit", "--limit", "5m", "job.sh")
    assert (status, out, err) == (0, "job 1\n", "job.sh: says nothing to dfrs: --partition (line 3)\n")
    got = last(cluster)
    assert (got.name, got.estimate_s, got.time_limit_s, got.after_failed) == ("fit", 90.0, 300.0, (3,))
    for line, words in (("--array=1-3", "job.sh:2: #SBATCH --array: "), ("-c many", 'job.sh:2: --cpu: "many"')):
        (tmp_path / "job.sh").write_text(f"#!/bin/bash\n#SBATCH {line}\ntrue\n")
        status, out, err = dfrs("submit", "job.sh")
        assert (status, out) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--tasks none", "--tasks"),
        ("--frobnicate", "--frobnicate"),
        ("--memory 512", "--memory"),
        ("--cpu 'x", "No closing quotation"),
        ("--tasks 2 ./prog", "must hold options only"),
        ("--limit soon", "--limit"),
        ("--server http://127.0.0.1:1", "--server: says nothing of the job"),
        ("--token-file t", "--token-file"),
        ("--ca c", "--ca"),
        ("--json", "--json"),
        ("--wait", "--wait"),
        ("--cpu 1 -w", "--wait"),
        ("--help", "--help"),
        ("-h", "--help"),
        ("--tasks ４", "--tasks"),
    ],
)
def test_a_bad_line_of_a_script_is_named(dfrs, cluster, tmp_path, monkeypatch, line, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\n\n#DFRS {line}\ntrue\n")
    status, out, err = dfrs("submit", "job.sh")
    assert (status, out) == (2, "")
    assert f"{tmp_path / 'job.sh'}:3: " in err
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--memory", "12", "x"],
        ["--memory", "1K", "x"],
        ["--time", "-3h", "x"],
        ["--at", "yesterday", "x"],
        ["--tasks", "0", "x"],
        ["--min-yield", "1.5", "x"],
        ["--env", "1A=x", "x"],
        ["--env", "DFRS_X=1", "x"],
        ["--env", "NOT_SET_ANYWHERE", "x"],
        ["--restart", "maybe", "x"],
        ["--cpu", "nan", "x"],
        ["--name", "a\nb", "x"],
        ["--tasks", "４", "x"],
        ["--cpu", "１", "x"],
        ["--after", "1_0", "x"],
        ["--after", "3:sometimes", "x"],
        ["--after", "3:ok:any", "x"],
        ["--after", "afterok", "x"],
        ["--after", "afterok:3:x", "x"],
        ["--after", "after:3+5", "x"],
        ["--after", "afterok:3?afterok:4", "x"],
        ["--after", "1-5000", "x"],
        ["--after", "", "x"],
        ["--name", "n" * 100_000, "x"],
        ["--array", "99999", "x"],
        [],
        ["--user", "o'hara", "x"],
        ["--cpu", "0", "x"],
        ["--limit", "1:60", "x"],
        ["--signal", "USR1", "x"],
        ["--limit", "1h", "--signal", "KILL", "x"],
        ["--limit", "1h", "--signal", "99", "x"],
        ["--limit", "1h", "--signal", "64", "x"],
        ["--limit", "1h", "--signal", "USR1@", "x"],
        ["--limit", "1h", "--signal", "USR1@-1", "x"],
        ["--limit", "1h", "--signal", "USR1@3600", "x"],
        ["--limit", "1m", "--signal", "USR1", "x"],
    ],
)
def test_what_cannot_be_submitted_is_one_line_and_status_2(dfrs, cluster, arguments):
    status, out, err = dfrs("submit", *arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert len(err) < 300
    assert not cluster.requests


def test_a_refusal_repeats_what_was_written(dfrs, cluster):
    assert '--memory "1K"' in dfrs("submit", "--memory", "1K", "x")[2]
    for words in ("1_0", "many"):
        assert f'--cpu: "{words}": must be a number' in dfrs("submit", "--cpu", words, "x")[2]
    assert '--limit "9999999d"' in dfrs("submit", "--limit", "9999999d", "x")[2]
    _, _, err = dfrs("submit", "--limit", "1m", "--signal", "USR1", "x")
    assert '--signal "60.0": must be fewer seconds than the time limit, 60' in err
    _, _, err = dfrs("submit", "--name", "\x1b[2J", "x")
    assert "\x1b" not in err
    assert r"\x1b[2J" in err


@pytest.fixture
def here(cluster, tmp_path):
    """The cluster, with its only node on this machine."""
    (tmp_path / "host").mkdir()
    (tmp_path / "host/host-id").write_text("0123abcd")
    cluster.add_node("node-1")
    cluster.nodes_by_name["node-1"] = cluster.nodes_by_name["node-1"].model_copy(
        update={"host": f"{host_name()[:54]}-0123abcd"}
    )
    return cluster


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["./prog"], 'command "./prog": there is no such program, seen from {}'),
        (["no-such-program-here"], 'command "no-such-program-here": there is no such program in the PATH of the job'),
        (["--env", "PATH={}", "sh"], 'command "sh": there is no such program in the PATH of the job'),
        (["--venv", "{}", "sh"], 'virtual environment "{}": there is none, as it has no bin/python'),
        (["./file"], 'command "./file": is not executable: chmod +x, or name its interpreter: sh ./file'),
        (["--directory", "{}/nowhere", "true"], '--directory "{}/nowhere": there is no such directory'),
        (["--directory", "{}/file", "true"], '--directory "{}/file": is no directory'),
    ],
)
def test_what_is_missing_where_it_would_run_is_refused(dfrs, here, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("echo\n")
    arguments = [each.format(tmp_path) for each in arguments]
    assert dfrs("submit", *arguments) == (2, "", f"dfrs: {words.format(tmp_path)}\n")
    assert not here.requests
    here.add_node("node-2")
    assert dfrs("submit", *arguments)[0] == 0, "its program may be there"


def test_what_may_be_there_by_then_is_taken(dfrs, here, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for late in (["--after", 1], ["--hold"], ["--at", "+1h"]):
        assert dfrs("submit", *late, "./prog")[0] == 0
    (tmp_path / "prog").write_text("#!/bin/sh\n")
    (tmp_path / "prog").chmod(0o700)
    assert dfrs("submit", "./prog")[0] == 0
    assert dfrs("submit", "sh", "prog")[0] == 0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"state": JobState.DONE, "exit_code": 0}, 0),
        ({"state": JobState.FAILED, "exit_code": 7}, 7),
        ({"state": JobState.FAILED, "exit_code": 137}, 137),
        ({"state": JobState.CANCELLED, "exit_code": None}, 1),
    ],
)
def test_waiting_ends_with_the_status_of_the_job(dfrs, cluster, monkeypatch, fields, expected):
    monkeypatch.setattr(time, "sleep", lambda _: cluster.change(1, ended_at=1.0, exit="as it ended", **fields))
    status, out, err = dfrs("submit", "--wait", "x")
    assert (status, out) == (expected, "")
    assert "job 1: as it ended" in err


def test_jobs_are_waited_for_and_the_worst_status_tells(dfrs, cluster, monkeypatch):
    assert dfrs("submit", "--array", 3, "x")[0] == 0
    ends, state = {1: 0, 2: 0, 3: 7}, (JobState.DONE, JobState.FAILED)

    def end(_):
        for job, code in ends.items():
            cluster.change(job, ended_at=1.0, state=state[bool(code)], exit=f"status {code}", exit_code=code)

    monkeypatch.setattr(time, "sleep", end)
    status, out, err = dfrs("wait", 3, "1-2")
    assert (status, out) == (7, "")
    assert err.splitlines()[1:] == ["job 3: status 7", "job 1: status 0", "job 2: status 0"]
    status, out, _ = dfrs("wait", "--json", "2")
    assert (status, json.loads(out)["jobs"]) == (0, [2])
    assert dfrs("wait", "5-9") == (0, "", "no job to wait for\n")
    status, out, _ = dfrs("wait", "5-9", "--json")
    assert (status, json.loads(out)) == (0, {"jobs": [], "ended": []})
    assert dfrs("wait", "9")[0] == 1


def test_interrupted_waiting_names_jobs_that_are_apart(dfrs, cluster, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    dfrs("submit", "--array", 5, "x")
    monkeypatch.setattr("dfrs.live.following.time.sleep", interrupt)
    for words, named in ((["1", "3-4"], "1 3 4"), (["3", "1", "5"], "3 1 5"), (["2", "1", "4", "5"], "2 1 4 5")):
        status, _, err = dfrs("wait", *words)
        assert status == 130
        assert f"end it with: dfrs cancel {named}\n" in err


def test_interrupted_waiting_for_an_array_names_all_of_it(dfrs, cluster, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dfrs.live.following.time.sleep", interrupt)
    assert "end it with: dfrs cancel 1-20\n" in dfrs("submit", "--wait", "--array", 20, "x")[2]


def test_interrupted_waiting_leaves_the_job_and_says_so(dfrs, cluster, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    status, _, err = dfrs("submit", "--wait", "x")
    assert status == 130
    assert "job 1: left in the cluster; end it with: dfrs cancel 1" in err
    assert cluster.by_id[1].state == JobState.WAITING


def some_jobs(cluster):
    """One of each kind, with long names."""
    for command in ("relaxation-of-a-membrane", "b", "c", "d"):
        cluster.requests.clear()
        cluster.by_id[len(cluster.by_id) + 1] = _made(cluster, command)
    now = time.time()
    cluster.change(
        1,
        state=JobState.RUNNING,
        user="maximiliane",
        yield_granted=0.82,
        need_cores=0.5,
        need_error_cores=0.05,
        nodes=("node-1", "node-2"),
        tasks=2,
        submitted_at=now - 5000,
        why="",
    )
    cluster.change(2, state=JobState.PAUSED, why="gave way to job 1")
    cluster.change(
        3,
        state=JobState.DONE,
        started_at=now - 100,
        ended_at=now - 50,
        virtual_s=25.0,
        stretch=2.0,
        exit="status 0",
        exit_code=0,
    )
    cluster.change(4, state=JobState.FAILED, ended_at=now - 100_000, exit="out of memory")


def _made(cluster, name):
    return _job(len(cluster.by_id) + 1, JobRequest(command=("x",), name=name), "ann")


def test_the_queue_in_80_columns(dfrs, cluster):
    some_jobs(cluster)
    status, out, err = dfrs("queue")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["job", "name", "user", "state", "tasks", "need", "yield", "memory", "nodes", "age"]
    assert "relaxatio…" in lines[1]
    for text in ("running", "0.5±0.05", "0.82", "256M", "node-1 +1", "1h23m", "███"):
        assert text in lines[1]
    assert "paused" in lines[2]
    assert "2: gave way to job 1" in out
    assert "minimum yield 0.25 of at most 0.50; 4 wait" in out
    assert "failed" not in out
    ids = [job["id"] for job in json.loads(dfrs("queue", "--json")[1])]
    assert ids == [1, 2]
    assert [job["id"] for job in json.loads(dfrs("queue", "--mine", "--json")[1])] == [2]
    assert [job["id"] for job in json.loads(dfrs("queue", "--user", "maximiliane", "--json")[1])] == [1]


def test_the_queue_never_cuts_figures(dfrs, cluster):
    some_jobs(cluster)
    cluster.by_id[123456] = _job(123456, JobRequest(command=("x",), name="relaxation-of-a-membrane"), "maximiliane")
    more = {"need_cores": 12.25, "need_error_cores": 1.25, "tasks": 12_000, "submitted_at": time.time() - 40 * 3600}
    where = {"state": JobState.STARTING, "yield_granted": 0.5, "nodes": ("node-1234", "node-1235")}
    cluster.change(123456, **more, **where)
    for verb in ("queue", "top"):
        lines = dfrs(verb)[1].splitlines()
        assert max(map(len, lines)) <= 80
        (row,) = [line.split() for line in lines if line.startswith("123456 ")]
        assert row[3:5] == ["starting", "12000"]
        assert row[1].endswith("…")
        assert {views.need_text(cluster.by_id[123456]), "0.50*", "256M", "1d16h"} <= set(row)


def test_the_queue_by_state_and_sorted(dfrs, cluster):
    some_jobs(cluster)
    cluster.by_id[5] = _made(cluster, "a")

    def ids(*arguments):
        return [job["id"] for job in json.loads(dfrs("queue", "--json", *arguments)[1])]

    assert ids() == [1, 2, 5]
    assert ids("--state", "running,paused") == [1, 2]
    assert ids("--state", "waiting", "--state", "held") == [5]
    assert ids("--sort", "name") == [5, 2, 1]
    assert ids("--sort", "-age") == [1, 2, 5]
    assert ids("--sort", "tasks,-job") == [5, 2, 1]
    assert ids("--sort", "-yield") == [1, 2, 5]
    assert ids("--sort", "-state") == [2, 1, 5]
    shown = dfrs("queue", "--sort", "-job", "--watch")[1]
    assert [line.split()[0] for line in shown.splitlines()[1:4]] == ["5", "2", "1"]
    assert dfrs("queue", "--state", "pending")[1].startswith("no jobs")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--state", "asleep"], '--state: "asleep": must be one of pending, held'),
        (["--sort", "size"], '--sort: "size": must be one of job, name'),
        (["--sort", ""], '--sort: "": must be one of'),
        (["--watch", "--json"], "--watch: goes on, and --json is one document"),
    ],
)
def test_what_the_queue_cannot_show_is_one_line_and_status_2(dfrs, cluster, arguments, words):
    status, out, err = dfrs("queue", *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_more_jobs_than_a_page_are_all_listed(dfrs, cluster):
    for _ in range(clients.PAGE + 5):
        cluster.by_id[len(cluster.by_id) + 1] = _made(cluster, "x")
    assert len(json.loads(dfrs("queue", "--json")[1])) == clients.PAGE + 5


def test_nothing_to_show_is_said(dfrs, cluster):
    assert "no jobs" in dfrs("queue")[1]
    assert "no nodes" in dfrs("nodes")[1]
    assert "no job ended in the last 24h" in dfrs("history")[1]
    assert dfrs("queue", "--json")[1] == "[]\n"


def test_show(dfrs, cluster):
    dfrs("submit", "--name", "[red]x", "--cpu", 0.5, "--", "sh", "-c", "echo 'a b'")
    status, out, _ = dfrs("show", 1)
    assert status == 0
    for text in (
        "1 [red]x",
        "waiting",
        "no node is there",
        """sh -c 'echo '"'"'a b'"'"''""",
        "0.5 cores a task, declared",
    ):
        assert text in out
    assert json.loads(dfrs("show", 1, "--json")[1])["name"] == "[red]x"


def test_explain_a_live_job(dfrs, cluster):
    dfrs("submit", "x")
    out = dfrs("explain", 1)[1]
    assert "it waits" in out
    assert "start on node-1 at yield 0.50: there was room (by ann)" in out
    assert "minimum yield 0.25 of at most 0.50; 1 waits" in out
    assert json.loads(dfrs("explain", 1, "--json")[1])["bound"] == 0.75


@pytest.mark.parametrize(("arguments", "words"), [(["somewhere"], "live job"), (["1", "--at", "10"], "of a run")])
def test_explain_says_what_it_wants(dfrs, cluster, arguments, words):
    status, _, err = dfrs("explain", *arguments)
    assert status == 2
    assert words in err


def test_history_of_the_last_day_and_of_more(dfrs, cluster):
    some_jobs(cluster)
    status, out, _ = dfrs("history")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    for text in ("0.50", "2.00", "status 0", "50s"):
        assert text in out
    assert "out of memory" not in out
    assert "out of memory" in dfrs("history", "--since", "2d")[1]
    assert [job["id"] for job in json.loads(dfrs("history", "--since", "2d", "--json")[1])] == [4, 3]
    assert dfrs("history", "--since", "soon")[0] == 2


def test_history_marks_yields_that_were_granted_and_never_measured(dfrs, cluster):
    some_jobs(cluster)
    assert " 0.50 " in dfrs("history")[1]
    assert "25s received, 0s granted" in " ".join(dfrs("show", 3)[1].split())
    cluster.change(3, virtual_measured=False, virtual_granted_s=25.0)
    assert " 0.50* " in dfrs("history")[1]
    assert "not measured, 25s granted" in " ".join(dfrs("show", 3)[1].split())


def test_history_of_the_last_few_and_since_a_date(dfrs, cluster):
    some_jobs(cluster)

    def ids(*arguments):
        return [job["id"] for job in json.loads(dfrs("history", "--json", *arguments)[1])]

    assert ids("--since", "2d", "--limit", 1) == [3]
    assert ids("--since", "2020-01-01") == [4, 3]
    assert ids("--since", "2020-01-01 08:00", "--limit", 5) == [4, 3]
    cluster.by_id.clear()
    assert dfrs("history", "--since", "2020-01-01")[1] == "no job ended since 2020-01-01\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "2999-01-01"], '--since: "2999-01-01": must be over'),
        (["--since", "yesterday"], '--since: "yesterday": must be a time'),
        (["--limit", "0"], "--limit"),
        (["--csv", "--json"], "--csv: is one form"),
    ],
)
def test_what_history_cannot_show_is_one_line_and_status_2(dfrs, cluster, arguments, words):
    status, out, err = dfrs("history", *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_history_says_what_jobs_used_where_there_is_room_and_as_csv(dfrs, cluster, monkeypatch):
    some_jobs(cluster)
    cluster.change(3, cpu_s=3661.5, peak_bytes=300 << 20, name='=1+"a"', attempt=1)
    out = dfrs("history", "--csv")[1]
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["id"], row["state"], row["cpu_s"], row["peak_bytes"]) == ("3", "done", "3661.5", str(300 << 20))
    assert (row["name"], row["exit_code"], row["cpu_cores"]) == ('\'=1+"a"', "0", "")
    assert float(row["ended_at"]) - float(row["started_at"]) == pytest.approx(50)
    assert "1h1m" not in dfrs("history")[1]
    monkeypatch.setattr(history, "out", PlainConsole(width=120, highlight=False))
    wide = dfrs("history")[1]
    assert wide.splitlines()[0].split()[:8] == ["job", "name", "user", "ended", "ran", "waited", "cpu", "peak"]
    assert "1h1m" in wide
    assert "300M" in wide
    assert "300M in a task" in dfrs("show", 3)[1]


@pytest.mark.parametrize(
    ("verb", "word", "state"),
    [("cancel", "cancelled", "cancelled"), ("hold", "held", "held"), ("release", "released", "waiting")],
)
def test_what_is_done_to_several_jobs(dfrs, cluster, verb, word, state):
    for _ in range(3):
        dfrs("submit", "--hold", "x")
    assert dfrs(verb, 1, 2, 3, 2) == (0, f"{word} jobs 1-3\n", "")
    assert {job.state.value for job in cluster.by_id.values()} == {state}


def test_ranges_are_those_of_their_jobs_to_which_it_can_be_done(dfrs, cluster):
    for _ in range(6):
        dfrs("submit", "x")
    cluster.change(2, state=JobState.DONE)
    cluster.change(3, state=JobState.HELD)
    assert dfrs("hold", "1-4,6") == (0, "held jobs 1, 4, 6\n", "")
    assert dfrs("release", "1-3") == (0, "released jobs 1, 3\n", "")
    assert dfrs("cancel", "1-5", 6, "9-12") == (0, "cancelled jobs 1, 3-6\n", "")
    assert dfrs("cancel", "1-6") == (0, "", "no job to cancel\n")
    status, out, err = dfrs("cancel", "1-6", 2)
    assert (status, out, err) == (1, "", "dfrs: job 2: has ended\n")


def test_a_range_is_ones_own_jobs_and_an_admin_s_everybodys(dfrs, cluster, tmp_path):
    for number, user in enumerate(["ann", "bob", "ann", "bob"], start=1):
        cluster.by_id[number] = _made(cluster, "x").model_copy(update={"user": user})
    assert dfrs("hold", "1-4") == (0, "held jobs 1, 3\n", "")
    status, out, err = dfrs("release", "1-3", 4)
    assert (status, out) == (1, "released jobs 1, 3\n")
    assert err.startswith("dfrs: job 4: belongs to another user")
    token = tmp_path / "admin.token"
    token.write_text(cluster.token("root", "admin"))
    assert dfrs("cancel", "1-4", "--token-file", token)[:2] == (0, "cancelled jobs 1-4\n")


def test_jobs_that_have_started_are_requeued(dfrs, cluster):
    for _ in range(4):
        dfrs("submit", "x")
    cluster.change(2, state=JobState.RUNNING)
    cluster.change(3, state=JobState.PAUSED)
    assert dfrs("requeue", "1-4") == (0, "requeued jobs 2, 3\n", "")
    assert {job.state for job in cluster.by_id.values()} == {JobState.WAITING}


def test_a_chosen_job_that_ends_meanwhile_is_no_failure(dfrs, cluster):
    for _ in range(3):
        dfrs("submit", "x")

    async def late(job, by):
        cluster.change(job, state=JobState.DONE)
        raise ConflictError(f"job {job}: has ended: done")

    cluster.cancel = late
    assert dfrs("cancel", "1-2") == (0, "", "")
    assert dfrs("cancel", "1-3", 1) == (1, "", "dfrs: job 1: has ended: done\n")


def test_the_last_one_is_cancelled_first_as_its_end_lets_no_other_start(dfrs, cluster):
    for _ in range(4):
        dfrs("submit", "x")
    order = []

    async def note(job, by):
        order.append(job)
        if job in {2, 3}:
            raise InputError(f"{job}: no")

    cluster.cancel = note
    assert dfrs("cancel", "1-3", 4) == (1, "cancelled jobs 1, 4\n", "dfrs: 2: no\ndfrs: 3: no\n")
    assert order == [4, 3, 2, 1]


def test_jobs_are_chosen_by_name_user_and_state(dfrs, cluster):
    for number, (name, user) in enumerate(
        [("fit-a", "ann"), ("fit-b", "ann"), ("draw", "ann"), ("fit-c", "bob"), ("fit-d", "ann")], start=1
    ):
        cluster.by_id[number] = _made(cluster, name).model_copy(update={"user": user})
    cluster.change(5, state=JobState.RUNNING)
    assert dfrs("cancel", "--name", "fit") == (0, "", "no job to cancel\n")
    assert dfrs("hold", "--name", "fit-*", "--state", "waiting,pending") == (0, "held jobs 1, 2\n", "")
    assert dfrs("cancel", "--name", "fit-*", "2-4") == (0, "cancelled job 2\n", "")
    status, out, err = dfrs("cancel", "--user", "bob")
    assert (status, out) == (1, "")
    assert err.startswith("dfrs: job 4: belongs to another user")
    assert json.loads(dfrs("cancel", "--state", "running", "--json")[1]) == {"cancelled": [5], "failed": []}


def test_all_are_ones_own_and_an_admin_s_everybodys(dfrs, cluster, monkeypatch, tmp_path):
    for number, user in enumerate(["ann", "bob", "ann"], start=1):
        cluster.by_id[number] = _made(cluster, "x").model_copy(update={"user": user})
    status, out, err = dfrs("hold", "--all")
    assert (status, out) == (2, "")
    assert err == "dfrs: --all: asks before it does anything, and nobody can answer: give --yes\n"
    monkeypatch.setattr(selecting.sys.stdin, "isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr(selecting.typer, "confirm", lambda text, err: asked.append(text) or len(asked) > 1)
    assert dfrs("hold", "--all")[:2] == (1, "")
    assert cluster.by_id[1].state == JobState.WAITING
    assert dfrs("hold", "--all")[:2] == (0, "held jobs 1, 3\n")
    assert dfrs("release", "--all", "--yes")[:2] == (0, "released jobs 1, 3\n")
    token = tmp_path / "admin.token"
    token.write_text(cluster.token("root", "admin"))
    assert dfrs("cancel", "--all", "--token-file", token)[:2] == (0, "cancelled jobs 1-3\n")
    assert asked == ["hold 2 jobs?", "hold 2 jobs?", "cancel 3 jobs of 2 users?"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "JOB: missing: give numbers"),
        (["5-1"], 'JOB: "5-1": must be the number of a job or a range'),
        (["0"], 'JOB: "0": must be'),
        (["1-"], 'JOB: "1-": must be'),
        (["1,,2"], 'JOB: "1,,2": must be'),
        (["٣"], 'JOB: "٣": must be'),
        (["9" * 30], "must be the number of a job"),
        (["--state", "done"], '--state: "done": must be one of pending, held'),
    ],
)
def test_what_names_no_job_is_one_line_and_status_2(dfrs, cluster, arguments, words):
    for verb in ("cancel", "hold", "release"):
        status, out, err = dfrs(verb, *arguments)
        assert (status, out) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1


def test_what_fails_for_one_job_is_done_to_the_others(dfrs, cluster):
    dfrs("submit", "x")
    status, out, err = dfrs("cancel", 7, 1)
    assert (status, out) == (1, "cancelled job 1\n")
    assert err == "dfrs: job 7: there is no such job\n"
    document = json.loads(dfrs("cancel", 1, "--json")[1])
    assert document == {"cancelled": [], "failed": [{"job": 1, "why": "job 1: has ended"}]}


class Outage(httpx.BaseTransport):
    """Passes requests on, but meets those for a path with errors: one of reading comes when it is done."""

    def __init__(self, inner, path, errors):
        self.inner, self.path, self.errors = inner, path, iter(errors)
        self.asked = []

    def handle_request(self, request):
        self.asked.append(request.url.path)
        error = next(self.errors, None) if request.url.path.endswith(self.path) else None
        if error is None:
            return self.inner.handle_request(request)
        if error is httpx.ReadError:
            self.inner.handle_request(request)
        raise error("away")

    def times(self, path):
        return sum(asked.endswith(path) for asked in self.asked)


@pytest.fixture
def outage(cluster, transport, monkeypatch):
    def begins(path, errors):
        made = Outage(transport, path, errors)
        monkeypatch.setattr(clients, "Client", functools.partial(Client, transport=made))
        for module in (one_by_one, nodes):
            monkeypatch.setattr(module, "patience", lambda: Patience(0.05))
        return made

    return begins


AWAY = f"{URL}: cannot be reached: away"


def test_a_controller_that_goes_away_between_several_jobs_is_waited_for(dfrs, cluster, outage):
    dfrs("submit", "--array", 4, "x")
    outage("/jobs/3/cancel", [httpx.ReadError, httpx.ConnectError, httpx.ConnectError])
    assert dfrs("cancel", "1-4") == (0, "cancelled jobs 1-4\n", "")


def test_what_was_done_before_the_controller_went_away_is_told(dfrs, cluster, outage):
    dfrs("submit", "--array", 4, "x")
    seen = outage("/jobs/2/hold", itertools.repeat(httpx.ConnectError))
    status, out, err = dfrs("hold", 1, 2, 3, 4, "--json")
    untried = [{"job": job, "why": f"not tried: {AWAY}"} for job in (3, 4)]
    assert status == 1
    assert json.loads(out) == {"held": [1], "failed": [{"job": 2, "why": AWAY}, *untried]}
    assert err == f"dfrs: job 2: {AWAY}\ndfrs: jobs 3, 4: not tried: {AWAY}\n"
    assert seen.times("/jobs/2/hold") > 1
    # Who meets nobody from the beginning is not made to wait.
    seen = outage("/jobs/2/hold", itertools.repeat(httpx.ConnectError))
    assert dfrs("hold", 2) == (1, "", f"dfrs: job 2: {AWAY}\n")
    assert seen.times("/jobs/2/hold") == 1


@pytest.mark.parametrize(
    ("words", "word", "path"),
    [(("requeue",), "requeued", "/jobs/2/requeue"), (("update", "--weight", 0.5), "updated", "/jobs/2")],
)
def test_what_must_not_be_done_twice_is_not_asked_for_again(dfrs, cluster, outage, words, word, path):
    dfrs("submit", "--array", 3, "x")
    for job in (1, 2, 3):
        cluster.change(job, state=JobState.RUNNING)
    seen = outage(path, [httpx.ReadError])
    status, out, err = dfrs(*words, 1, 2, 3)
    assert (status, out) == (1, f"{word} job 1\n")
    assert err == f"dfrs: job 2: may be done all the same: {AWAY}\ndfrs: job 3: not tried: {AWAY}\n"
    assert seen.times(path) == 1


def test_logs(dfrs, cluster):
    dfrs("submit", "x")
    assert dfrs("logs", 1) == (0, "one\ntwo\n", "")
    assert dfrs("logs", "--err", 1)[1] == "bad\n"
    assert json.loads(dfrs("logs", 1, "--json")[1])["text"] == "one\ntwo\n"


@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_the_last_lines_of_a_log(dfrs, cluster, monkeypatch, size):
    monkeypatch.setattr(logs, "TAIL_BYTES", size)
    dfrs("submit", "x")
    cluster.texts = [f"line {k}\n" for k in range(30)] + ["no end"]
    assert dfrs("logs", "--tail", 3, 1) == (0, "line 28\nline 29\nno end", "")
    assert dfrs("logs", "--tail", 0, 1) == (0, "", "")
    assert dfrs("logs", "--tail", 99, 1)[1] == "".join(cluster.texts)
    assert json.loads(dfrs("logs", "--tail", 1, 1, "--json")[1])["text"] == "no end"
    assert dfrs("logs", "--tail", -1, 1)[0] == 2
    cluster.change(1, state=JobState.RUNNING)
    monkeypatch.setattr(logs.time, "sleep", lambda _: cluster.texts.append(" yet\nmore\n"))
    whole = cluster.output

    async def growing(job, *rest):
        part = await whole(job, *rest)
        return part.model_copy(update={"ended": part.ended and len(cluster.texts) > 31})

    cluster.output = growing
    assert dfrs("logs", "-f", "--tail", 1, 1)[1] == "no end yet\nmore\n"


def test_logs_of_several_jobs_say_whose_each_line_is(dfrs, cluster):
    for _ in range(3):
        dfrs("submit", "x")
    cluster.texts = ["a\n", "b"]
    assert dfrs("logs", "1-2", 3, 2) == (0, "1: a\n1: b\n2: a\n2: b\n3: a\n3: b\n", "")
    assert dfrs("logs", "2-9") == (0, "2: a\n2: b\n3: a\n3: b\n", "")
    assert dfrs("logs", "--tail", 1, "1,3") == (0, "1: b\n3: b\n", "")
    told = json.loads(dfrs("logs", "2-3", "--json")[1])
    assert [(each["job"], each["text"]) for each in told] == [(2, "a\nb"), (3, "a\nb")]
    status, out, err = dfrs("logs", 7, 1)
    assert (status, out, err) == (1, "1: a\n1: b\n", "dfrs: job 7: there is no such job\n")
    assert dfrs("logs", "x")[0] == 2


def test_several_logs_are_followed_together(dfrs, cluster, monkeypatch):
    for _ in range(2):
        dfrs("submit", "x")
    cluster.change(1, state=JobState.RUNNING)
    monkeypatch.setattr(logs.time, "sleep", lambda _: cluster.change(2, state=JobState.RUNNING))
    status, out, err = dfrs("logs", "-f", 1, 2)
    assert (status, err) == (0, "")
    assert out == "1: one\n1: two\n2: one\n2: two\n"


def test_followed_logs_wait_for_the_start_and_end_with_the_job(dfrs, cluster, monkeypatch):
    dfrs("submit", "x")
    seen = []

    def sleep(_):
        seen.append(cluster.by_id[1].state)
        cluster.change(1, state=JobState.RUNNING)

    monkeypatch.setattr(time, "sleep", sleep)
    assert dfrs("logs", "-f", 1) == (0, "one\ntwo\n", "")
    assert seen == [JobState.WAITING]


@pytest.mark.parametrize("tail", [(), ("--tail", 9)])
def test_followed_logs_of_a_job_that_begins_anew_begin_anew(dfrs, cluster, monkeypatch, tail):
    dfrs("submit", "x")
    cluster.change(1, state=JobState.RUNNING)
    plain = cluster.output

    async def output(job, rank, piece):
        part, attempt = await plain(job, rank, piece), cluster.by_id[job].attempt
        return part.model_copy(update={"attempt": attempt, "ended": part.ended and attempt == 2})

    def sleep(_):
        cluster.texts = ["a longer line\n", "than before\n"]
        cluster.change(1, attempt=2)

    cluster.output = output
    cluster.change(1, attempt=1)
    monkeypatch.setattr(logs.time, "sleep", sleep)
    assert dfrs("logs", "-f", *tail, 1) == (
        0,
        "one\ntwo\na longer line\nthan before\n",
        "… job 1 begins anew\n",
    )


def test_nodes_in_80_columns(dfrs, cluster):
    cluster.add_node("node-1")
    cluster.add_node("node-2")
    tasks = [
        NodeTask(job=17, rank=0, user="ann", name="big", share_cores=1.0, used_cores=0.9, paused=False),
        NodeTask(job=18, rank=0, user="ann", name="[bold]", share_cores=0.5, used_cores=None, paused=False),
        NodeTask(job=19, rank=0, user="ann", name="late", share_cores=0.0, used_cores=None, paused=True),
    ]
    cluster.nodes_by_name["node-1"] = cluster.nodes_by_name["node-1"].model_copy(
        update={"tasks": tuple(tasks), "used_cores": 0.9, "memory_free_bytes": 1 << 29, "notes": ("no caps",)}
    )
    out = dfrs("nodes")[1]
    assert max(map(len, out.splitlines())) <= 80
    row = out.splitlines()[1]
    begin, middle = row.index("17"), row.index("18")
    end = row.index("│", middle) + 1
    assert abs((middle - begin) - 2 * (end - middle)) <= 2
    assert "·" in row[end:]
    assert "0.90 of 2" in row
    assert "512M of 1G" in row
    told = dfrs("nodes", "--tasks")[1]
    for text in (
        "17.0 big (ann): 1.00 cores granted, 0.90 used",
        "18.0 [bold] (ann): 0.50 cores granted",
        "19.0 late (ann): paused",
        "no caps",
    ):
        assert text in told
    assert len(json.loads(dfrs("nodes", "--json")[1])) == 2


def test_drain_is_for_admins_and_says_so(dfrs, cluster, transport, monkeypatch, tmp_path):
    cluster.add_node("node-1")
    status, _, err = dfrs("drain", "node-1")
    assert (status, err) == (1, "dfrs: role user: only admin may do this\n")
    token = tmp_path / "admin.token"
    token.write_text(cluster.token("root", "admin"))
    assert dfrs("drain", "node-1", "--token-file", token) == (0, "drained node-1\n", "")
    assert cluster.nodes_by_name["node-1"].state == "draining"
    assert dfrs("drain", "--reason", "a new disk", "node-1", "--token-file", token)[0] == 0
    assert "node-1 is drained: a new disk" in dfrs("nodes")[1]
    status, out, err = dfrs("drain", "--reason", "a\x1bb", "node-1", "--token-file", token)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert "reason" in err
    undrained = dfrs("undrain", "node-1", "--token-file", token, "--json")[1]
    assert json.loads(undrained) == {"undrained": ["node-1"], "failed": []}
    status, _, err = dfrs("drain", "no/such?", "--token-file", token)
    assert status in {1, 2}
    assert len(err.splitlines()) == 1


def test_jobs_are_charged_to_an_account(dfrs, cluster, monkeypatch):
    assert dfrs("submit", "--account", "physics", "--name", "one", "true")[0] == 0
    monkeypatch.setenv("DFRS_ACCOUNT", "biology")
    for words in (("--name", "two"), ("-A", "physics", "--name", "three")):
        assert dfrs("submit", *words, "true")[0] == 0
    monkeypatch.setenv("DFRS_ACCOUNT", "")
    assert dfrs("submit", "--name", "four", "true")[0] == 0
    assert [request.account for request in cluster.requests] == ["physics", "biology", "physics", None]
    assert [job["name"] for job in json.loads(dfrs("queue", "--account", "physics", "--json")[1])] == ["one", "three"]
    assert ["account", "physics"] in [line.split() for line in dfrs("show", "1")[1].splitlines()]
    assert "account" not in dfrs("show", "4")[1]
    status, out, err = dfrs("submit", "--account", "a b", "true")
    assert (status, out) == (2, "")
    assert err.startswith('dfrs: --account "a b": must be a letter, digit or _')


def test_a_script_says_which_account_pays(dfrs, cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("DFRS_ACCOUNT", "biology")
    for name, line in (("slurm.sh", "#SBATCH -A physics"), ("own.sh", "#DFRS --account chemistry")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\ntrue\n")
        status, _, err = dfrs("submit", str(tmp_path / name))
        assert (status, err) == (0, "")
    assert [request.account for request in cluster.requests] == ["physics", "chemistry"]


def test_history_adds_up_what_users_and_accounts_used(dfrs, cluster):
    for number, (user, account, cpu_s, state) in enumerate(
        [("ann", "physics", 60.0, "done"), ("bob", "physics", 30.0, "failed"), ("ann", None, 600.0, "done")], 1
    ):
        request = JobRequest(command=("true",), account=account)
        cluster.by_id[number] = _job(number, request, user).model_copy(
            update={"state": JobState(state), "ended_at": time.time(), "started_at": time.time(), "cpu_s": cpu_s}
        )
    rows = json.loads(dfrs("history", "--by", "account", "--json")[1])
    figures = {"jobs": 2, "done": 1, "failed": 1, "cancelled": 0, "cpu_s": 90.0}
    assert rows == [
        {"account": None, "jobs": 1, "done": 1, "failed": 0, "cancelled": 0, "cpu_s": 600.0},
        {"account": "physics"} | figures,
    ]
    shown = [line.split() for line in dfrs("history", "--by", "user")[1].splitlines()]
    assert shown == [
        ["user", "jobs", "done", "failed", "cancelled", "cpu"],
        ["ann", "2", "2", "0", "0", "11m"],
        ["bob", "1", "0", "1", "0", "30s"],
        ["all", "3", "2", "1", "0", "11m"],
    ]
    assert "(none)" in dfrs("history", "--by", "account")[1]
    table = dfrs("history", "--by", "account", "--csv", "--account", "physics")[1]
    assert table == "account,jobs,done,failed,cancelled,cpu_s\nphysics,2,1,1,0,90.0\n"
    assert [job["id"] for job in json.loads(dfrs("history", "--account", "physics", "--json")[1])] == [1, 2]
    assert [row["account"] for row in csv.DictReader(io.StringIO(dfrs("history", "--csv")[1]))] == [
        "physics",
        "physics",
        "",
    ]
    assert dfrs("history", "--by", "account", "--account", "none")[1] == "no job ended in the last 24h\n"


def test_nodes_are_reserved_listed_and_given_back(dfrs, cluster, tmp_path, monkeypatch):
    for name in ("node-1", "node-2"):
        cluster.add_node(name)
    status, _, err = dfrs("reserve", "node-1", "--duration", "1h")
    assert (status, err) == (1, "dfrs: role user: only admin may do this\n")
    assert dfrs("reservations")[1] == "no reservations\n"
    token = tmp_path / "admin.token"
    token.write_text(cluster.token("root", "admin"))
    monkeypatch.setenv("DFRS_TOKEN_FILE", str(token))
    day = f"{time.localtime().tm_year + 1}-12-01"
    when, span = ("--start", f"{day}T08:00", "--duration", "4h"), f"{day} 08:00 to 12:00"
    status, out, _ = dfrs("reserve", "node-1", "node-2", *when, "--reason", "new fans", "--evacuate")
    assert (status, out) == (0, f"reservation 1: node-1, node-2, {span}\n")
    (made,) = cluster.made.open(0.0)
    assert (made.evacuate, made.reason, made.end_at - made.start_at) == (True, "new fans", 14400.0)
    assert dfrs("reserve", "node-2", "--duration", "2d")[0] == 0
    shown = [" ".join(line.split()) for line in dfrs("reservations")[1].splitlines()]
    assert [line.split()[0] for line in shown] == ["id", "2", "1"]
    assert shown[2] == f"1 node-1, node-2 {span} to come root new fans (evacuates)"
    assert " on root" in shown[1]
    assert f"node-1 is reserved {span}: new fans" in dfrs("nodes")[1]
    assert [each["id"] for each in json.loads(dfrs("reservations", "--json")[1])] == [2, 1]
    assert sorted(word for word, _ in completing.complete_reservations("")) == ["1", "2"]
    assert dfrs("reserve", "--cancel", "1")[:2] == (0, f"reservation 1: node-1, node-2, {span} is cancelled\n")
    assert json.loads(dfrs("reserve", "--cancel", "2", "--json")[1])[0]["cancelled"]
    assert "reserved" not in dfrs("nodes")[1]
    assert dfrs("reserve", "--cancel", "1")[::2] == (1, "dfrs: reservation 1: was cancelled\n")
    status, _, err = dfrs("reserve", "node-9", "--duration", "1h")
    assert (status, err) == (2, "dfrs: nodes: node-9: there is no such node\n")


def test_top_without_a_terminal_is_one_frame(dfrs, cluster):
    some_jobs(cluster)
    cluster.add_node("node-1")
    cluster.sequence = 3
    status, out, _ = dfrs("top")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    for text in ("fake", "FCFS", "minimum yield 0.25", "node-1", "relaxatio", "submit"):
        assert text in out
    assert set(json.loads(dfrs("top", "--json")[1])) == {"sequence", "cluster", "nodes", "jobs", "activity"}


def test_top_shows_jobs_on_nodes_first_and_counts_the_others(dfrs, cluster):
    count = 2 * top.JOBS
    for number in range(1, count + 1):
        cluster.by_id[number] = _made(cluster, f"job-{number}")
    cluster.change(1, state=JobState.RUNNING, yield_granted=0.5, nodes=("node-1",))
    for number in range(2, top.JOBS + 20):
        cluster.change(number, state=JobState.PAUSED)
    rows = [line.split() for line in dfrs("top")[1].splitlines()]
    assert next(row[0] for row in rows if "running" in row) == "1"
    listed = sum(row[1:2] == [f"job-{row[0]}"] for row in rows if row)
    assert ["…", str(count - listed), "more", "do", "not", "fit", "here:", "dfrs", "nodes,", "dfrs", "queue"] in rows
    jobs = json.loads(dfrs("top", "--json")[1])["jobs"]
    assert [jobs[0]["id"], len(jobs)] == [1, top.JOBS]


@pytest.mark.parametrize("height", [12, 24, 50])
@pytest.mark.parametrize("width", [80, 132])
def test_a_frame_fits_the_screen(cluster, width, height):
    special = {
        "problem": "its disk is full",
        "drain_reason": "new fans",
        "features": ("ssd",),
        "resources": {"gpu": 2},
        "left_cores": 1.5,
        "outside_cores": 0.5,
    }
    for number in range(30):
        cluster.add_node(f"node-{number}")
        cluster.nodes_by_name[f"node-{number}"] = cluster.nodes_by_name[f"node-{number}"].model_copy(update=special)
        cluster.by_id[number + 1] = _made(cluster, f"job-{number}")
    cluster.sequence = 40
    seen = cluster.snapshot()
    policy = "GreedyPM*/per/OPT=MIN/MVT=600 " * 3
    seen = seen.model_copy(update={"cluster": seen.cluster.model_copy(update={"policy": policy})})
    lines = _on_screen(views.frame(seen, cluster.activity(), width, height), width, height)
    assert len(lines) <= max(height, 17)
    assert max(map(len, lines)) <= width


def _on_screen(shown, width, height):
    screen = Console(width=width, height=height, record=True, file=io.StringIO())
    screen.print(shown)
    return screen.export_text().splitlines()


class Typist:
    """At a terminal: types some keys at each look at the screen, in turn."""

    def __init__(self, monkeypatch, *keys, size=(80, 24)):
        self.keys, self.screens, self.size = list(keys), [], size
        self.keyboard, terminal = os.openpty()
        width, height = size
        screen = PlainConsole(file=io.StringIO(), force_terminal=True, width=width, height=height, highlight=False)
        monkeypatch.setattr(sys, "stdin", os.fdopen(terminal))
        for module in (top, queue):
            monkeypatch.setattr(module, "out", screen)

    def types(self, shown):
        self.screens.append(_on_screen(shown, *self.size))
        os.write(self.keyboard, self.keys.pop(0))
        return shown


@pytest.mark.parametrize("last_key", [b"q", b"Q", b"\x1b"])
def test_keys_of_more_than_a_byte_do_not_end_a_screen(monkeypatch, last_key):
    typist = Typist(monkeypatch, b"\x1b[B", b"\x1b[6~", b"x", last_key)
    top.watch(lambda _: typist.types("all of it"), 30.0)
    assert typist.keys == []
    assert not select.select([sys.stdin], [], [], 0.0)[0]


def test_a_watched_queue_fits_the_screen(dfrs, cluster, monkeypatch):
    for number in range(1, 61):
        cluster.by_id[number] = _made(cluster, f"job-{number}")
        cluster.change(number, why="no node has the memory: " + "it waits for one " * 8, yield_granted=0.5)
    typist = Typist(monkeypatch, b"q")
    watch = top.watch
    monkeypatch.setattr(top, "watch", lambda look, every: watch(lambda height: typist.types(look(height)), every))
    assert dfrs("queue", "--watch")[0] == 0
    (lines,) = typist.screens
    assert len(lines) == 24
    listed = [line.split()[0] for line in lines[1:] if " job-" in line]
    assert listed == [str(k) for k in range(1, len(listed) + 1)]
    assert f"… {60 - len(listed)} more do not fit here" in lines
    assert len(listed) > 10
    assert any(line.startswith("1: no node has the memory") for line in lines)
    assert lines[-1].startswith("minimum yield")


def test_without_a_controller_it_is_one_line(dfrs, monkeypatch, tmp_path):
    monkeypatch.setenv("DFRS_STATE", str(tmp_path))
    for verb in (["queue"], ["nodes"], ["show", "1"], ["submit", "x"], ["top"], ["history"]):
        status, out, err = dfrs(*verb, "--json") if verb[0] != "submit" else dfrs("submit", "--json", "x")
        assert (status, out) == (1, "")
        assert err.startswith(f"dfrs: no cluster is known: {tmp_path}/client.json")
    status, _, err = dfrs("queue", "--server", "http://127.0.0.1:9")
    assert (status, err) == (1, "dfrs: no cluster at http://127.0.0.1:9: connection refused\n")
    (tmp_path / "client.json").write_text(json.dumps({"url": "http://127.0.0.1:9"}))
    tmp_path.chmod(0o700)
    status, _, err = dfrs("queue")
    assert err == "dfrs: no cluster at http://127.0.0.1:9: connection refused; start one with: dfrs up\n"
    status, _, err = dfrs("queue", "--server", "https://no-such-host.invalid:1")
    assert "name not found" in err
    with socket.create_server(("127.0.0.1", 0)) as plain:
        threading.Thread(target=lambda: plain.accept()[0].sendall(b"HTTP/1.0 400 no\r\n\r\n"), daemon=True).start()
        status, _, err = dfrs("queue", "--server", f"https://127.0.0.1:{plain.getsockname()[1]}")
    assert "no TLS there" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("status", "body", "expected", "words"),
    [
        (401, {"detail": "token: unknown"}, 1, "token: unknown"),
        (403, {"detail": "not yours"}, 1, "not yours"),
        (404, {"detail": "no such job"}, 1, "no such job"),
        (422, {"detail": "job: must be a number"}, 2, "job: must be"),
        (422, {"detail": [{"loc": ["query", "limit"], "msg": "too big"}]}, 2, "limit: too big"),
        (503, {"detail": "database"}, 1, "database"),
        (500, "<html>", 1, "status 500"),
        (200, {"surprise": 1}, 1, "not an answer"),
    ],
)
def test_refusals_are_one_line_without_the_token(dfrs, cluster, monkeypatch, status, body, expected, words):
    answer = httpx.Response(status, json=body) if not isinstance(body, str) else httpx.Response(status, text=body)
    monkeypatch.setattr(clients, "Client", functools.partial(Client, transport=httpx.MockTransport(lambda _: answer)))
    ended, out, err = dfrs("show", 1)
    assert (ended, out) == (expected, "")
    assert words in err
    assert len(err.splitlines()) == 1
    assert "dfrs_" not in err


def test_a_refused_export_leaves_nothing(dfrs, cluster, monkeypatch, tmp_path):
    denied = httpx.MockTransport(lambda _: httpx.Response(403, json={"detail": "for admins"}))
    monkeypatch.setattr(clients, "Client", functools.partial(Client, transport=denied))
    assert dfrs("export", "-o", tmp_path / "day")[::2] == (1, "dfrs: for admins\n")
    assert not (tmp_path / "day").exists()


def test_without_a_token_it_says_where_to_name_one(dfrs, cluster, tmp_path):
    (tmp_path / "client.json").write_text(json.dumps({"url": URL}))
    status, _, err = dfrs("queue")
    assert (status, err) == (1, f"dfrs: {URL}: wants a token: name its file with --token-file\n")


def test_what_follows_a_job_is_patient(cluster, transport):
    outages = iter([True, True, False])

    def flaky(request):
        if next(outages, False):
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"user": "ann", "role": "user"})

    client = Client(Endpoint(url=URL, token="t"), transport=httpx.MockTransport(flaky))
    assert asleep(Patience().ask(client.me))["user"] == "ann"
    with pytest.raises(clients.UnreachableError):
        Client(Endpoint(url=URL), transport=httpx.MockTransport(_refuse)).me()


def _refuse(_):
    raise httpx.ConnectError("refused")


def test_the_log_comes_line_by_line(cluster, transport):
    with Client(Endpoint(url=URL, token=cluster.token("root", "admin")), transport=transport) as client:
        lines = list(client.log())
    assert json.loads(lines[0]) == {"format": "dfrs-log/1"}
    assert len(lines) == 4


def test_submit_refuses_such_a_name_in_one_plain_line(dfrs, cluster):
    status, out, err = dfrs("submit", "--name", "a\x1b[2J\u202e", "true")
    assert (status, out) == (2, "")
    assert err.startswith("dfrs: --name ")
    assert len(err.splitlines()) == 1
    assert not has_controls(err.strip())
    assert not cluster.requests


def test_every_view_escapes_what_others_wrote(dfrs, cluster):
    """Also where the controller, or what it stored before, has such names."""
    for number in (1, 2, 3):
        cluster.by_id[number] = _hostile(cluster, number)
    cluster.change(2, state=JobState.FAILED, exit=HOSTILE, started_at=1.0, ended_at=4e9)
    cluster.add_node("node-1")
    cluster.nodes_by_name["node-1"] = cluster.nodes_by_name["node-1"].model_copy(
        update={"notes": (HOSTILE,), "problem": HOSTILE}
    )
    cluster.sequence = 3
    for verb in (["queue"], ["show", 1], ["show", 2], ["explain", 1], ["nodes", "--tasks"], ["history"], ["top"]):
        status, out, err = dfrs(*verb)
        assert (status, err) == (0, ""), verb
        assert not any(has_controls(line) for line in out.split("\n")), verb
        assert not any(line.strip().startswith("exit 0") for line in out.splitlines()), verb
        if verb[0] != "top":
            assert "\\x1b]0;owned" in "".join(out.split()), verb


def _hostile(cluster, number):
    made = JobRequest(command=("a", HOSTILE))
    return _job(number, made, "ann").model_copy(update={"name": HOSTILE, "why": HOSTILE, "apart": HOSTILE})


def test_a_name_with_markup_is_only_text(dfrs, cluster):
    for k, name in enumerate(("[/bold]", "[red]x"), start=1):
        cluster.by_id[k] = _hostile(cluster, k).model_copy(update={"name": name, "why": ""})
    status, out, _ = dfrs("queue")
    assert status == 0
    assert "[/bold]" in out
    assert "[red]x" in out


def test_errors_of_a_server_are_plain(dfrs, cluster):
    cluster.by_id[1] = _hostile(cluster, 1)

    async def broken(*_):
        raise InputError(HOSTILE)

    cluster.cancel = broken
    status, _, err = dfrs("cancel", 1)
    assert status == 1
    assert len(err.splitlines()) == 1
    assert not has_controls(err.rstrip("\n"))


def test_logs_are_what_the_program_wrote(dfrs, cluster):
    dfrs("submit", "x")
    cluster.texts = ["\x1b[31m\u202ered\x1b[0m\n"]
    assert dfrs("logs", 1)[1] == "\x1b[31m\u202ered\x1b[0m\n"


@pytest.mark.parametrize(
    "verb",
    [
        "submit",
        "queue",
        "show",
        "explain",
        "logs",
        "wait",
        "cancel",
        "hold",
        "release",
        "requeue",
        "update",
        "nodes",
        "drain",
        "undrain",
        "reserve",
        "reservations",
        "top",
        "history",
        "up",
        "down",
    ],
)
def test_every_verb_has_help_with_an_example_and_json(dfrs, verb):
    status, out, _ = dfrs(verb, "--help")
    assert status == 0
    assert "Example" in out
    assert f"dfrs {verb}" in out
    assert "--json" in out


def test_help_is_as_wide_as_the_terminal(dfrs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _, out, _ = dfrs("update", "--help")
    (line,) = [line for line in out.splitlines() if "What you do not name stays as it is" in line]
    assert line.rstrip().endswith("A job keeps its place in the queue. Jobs are named by numbers and")
    assert out.count("\n     dfrs update ") == 2


def test_shells_offer_the_jobs_and_nodes_that_there_are(cluster):
    for name in ("fit", "plot"):
        cluster.by_id[len(cluster.by_id) + 1] = _job(
            len(cluster.by_id) + 1, JobRequest(command=("true",), name=name), "ann"
        )
    cluster.add_node("node-1")
    cluster.add_node("other")
    assert sorted(completing.complete_jobs("")) == [("1", "fit, waiting"), ("2", "plot, waiting")]
    assert [word for word, _ in completing.complete_jobs("2")] == ["2"]
    assert [word for word, _ in completing.complete_nodes("no")] == ["node-1"]


def test_shells_offer_nothing_where_there_is_no_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("DFRS_STATE", str(tmp_path))
    monkeypatch.delenv("DFRS_SERVER", raising=False)
    assert completing.complete_jobs("") == completing.complete_nodes("") == []
    (tmp_path / "client.json").write_text('{"url": "http://127.0.0.1:1"}')
    assert completing.complete_nodes("") == []


def test_a_node_is_evacuated_but_for_jobs_that_must_not_begin_anew(dfrs, cluster, tmp_path):
    cluster.add_node("node-1")
    tasks = []
    for number, restart in enumerate(("on-node-loss", "never", "any-time"), 1):
        cluster.by_id[number] = _job(number, JobRequest(command=("true",), name="fit"), "ann").model_copy(
            update={"restart": restart, "state": JobState.RUNNING}
        )
        tasks.append(
            NodeTask(job=number, rank=0, user="ann", name="fit", share_cores=1.0, used_cores=None, paused=False)
        )
    cluster.nodes_by_name["node-1"] = cluster.nodes_by_name["node-1"].model_copy(update={"tasks": tuple(tasks[:2])})
    (tmp_path / "admin").write_text(cluster.token("root", "admin"))
    status, out, err = dfrs("drain", "--evacuate", "node-1", "--token-file", str(tmp_path / "admin"))
    assert (status, err) == (0, "")
    assert out == ("drained node-1\nqueued again: job 1\ngo on there, since they must not begin anew: job 2\n")
    assert [cluster.by_id[number].attempt for number in (1, 2, 3)] == [1, 0, 0]
    assert cluster.nodes_by_name["node-1"].state == "draining"


def test_a_node_that_there_is_not_keeps_the_others_from_nothing(dfrs, cluster, outage, tmp_path):
    for name in ("node-1", "node-3"):
        cluster.add_node(name)
    token = tmp_path / "admin"
    token.write_text(cluster.token("root", "admin"))
    named = ("node-1", "typo", "node-3", "--token-file", token)
    missing = "node typo: there is no such node"
    assert dfrs("drain", *named, "--evacuate") == (1, "drained node-1, node-3\n", f"dfrs: {missing}\n")
    status, out, _ = dfrs("undrain", *named, "--json")
    failed = [{"node": "typo", "why": missing}]
    assert (status, json.loads(out)) == (1, {"undrained": ["node-1", "node-3"], "failed": failed})
    assert dfrs("undrain", "typo", "--token-file", token) == (1, "", f"dfrs: {missing}\n")

    # Also where it is not known any more what is there.
    outage("/snapshot", itertools.repeat(httpx.ConnectError))
    told = dfrs("drain", "--evacuate", "node-1", "--token-file", token)
    assert told == (1, "drained node-1\n", f"dfrs: {AWAY}\n")
