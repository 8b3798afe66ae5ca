"""The page of sixty tasks is true: every command on it runs, and does what its row says."""

import csv
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

import dfrs as library
from dfrs.cli.live.selecting import parse_jobs
from dfrs.live.client import Client, read_client_file
from dfrs.live.errors import TooManyError
from dfrs.live.protocol.resources import ENDED, JobState, NodeState, Restart, TokenRequest
from tests.live_processes import wait_until
from tests.live_terminal import AtTerminal

PAGE = Path(__file__).parents[2] / "docs/reference/tasks.md"
FILE = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (\d+) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)
COMMAND = re.compile(r"`(dfrs [^`]*)`")
APART = {"run", "exec", "attach", "up", "serve"}
"""Verbs that read what is typed, or stay: they run in a process of their own."""
TOLD = "told.json"
"""What users of the cluster are told of their jobs."""
SMALL = {"cpu_cores": 0.1, "memory_bytes": 64 << 20}
FOREVER = ("sleep", "600")


@dataclass(frozen=True)
class Row:
    number: int
    commands: tuple[str, ...]


ROWS = {
    int(number): Row(int(number), tuple(COMMAND.findall(words)))
    for number, _, _, words in ROW.findall(PAGE.read_text())
}
CHECKS = {}
"""Of each row: the jobs that are 17 and 18 in it, and what is true after its commands."""


def row(number, *jobs, **fields):
    """A check of a row, before whose commands `jobs` are submitted, by their commands, with these fields."""

    def registered(check):
        assert number not in CHECKS
        CHECKS[number] = (jobs, fields, check)
        return check

    return registered


class User:
    """Somebody who types commands of the page, in a folder with its files."""

    def __init__(self, folder, call, monkeypatch):
        self.folder, self.state, self._call = folder, folder / "state", call
        monkeypatch.chdir(folder)
        for name in ("DFRS_SERVER", "DFRS_TOKEN_FILE", "DFRS_CA"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"DFRS_STATE": str(self.state), "DFRS_PORT": "0", "COLUMNS": "160"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def types(self, command, statuses=(0,)):
        """What it prints, on both outputs."""
        words = shlex.split(command)
        if words[1] in APART or {"<", ">"} & set(words):
            done = subprocess.run(
                command, shell=True, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
            )
            status, out, err = done.returncode, done.stdout, done.stderr
        else:
            status, out, err = self._call(*words[1:])
        assert status in statuses, f"{command}: {status}\n{out}{err}"
        return out + err


class UserOfCluster(User):
    """Of a live cluster, too."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.client = Client(read_client_file(self.state), timeout_s=60)

    def does(self, number):
        """All of a row: its jobs, its commands one by one, its check, and what it left."""
        jobs, fields, check = CHECKS[number]
        self.jobs = [self.client.submit(job, **SMALL | fields)[0] for job in jobs]
        check(self, [self.named(command) for command in ROWS[number].commands])
        self.leaves()

    def named(self, command):
        """The command with the numbers of jobs that there are."""
        for number, job in zip(("17", "18"), self.jobs, strict=False):
            command = re.sub(rf"\b{number}\b", str(job), command)
        return command

    def submits(self, command):
        """The jobs that it makes."""
        said = re.search(r"^jobs? (.*)$", self.types(command), re.MULTILINE)[1]
        return [job for each in parse_jobs(said.split(", ")) for job in each]

    def leaves(self):
        for job in self.client.all_jobs():
            if job.state is not JobState.ENDING:
                self.client.cancel(job.id)
        for node in self.client.nodes():
            if node.state is NodeState.DRAINING:
                self.client.undrain(node.name)
        wait_until(lambda: not self.client.jobs(), "nothing left of a row")

    def reaches(self, job, *states):
        return wait_until(
            lambda: found if (found := self.client.job(job)).state in states else None,
            f"job {job} in {states}: {self.client.job(job)}",
        )

    def ends(self, job):
        """What it wrote."""
        ended = self.reaches(job, *ENDED)
        assert ended.state is JobState.DONE, ended
        return self.client.output(job).text


@row(1)
def scripts(user, commands):
    (job,) = user.submits(commands[0])
    assert user.ends(job) == "fitting, index none\n"
    assert (user.client.job(job).name, user.client.job(job).time_limit_s) == ("fit", 30.0)
    assert f"job {job + 1}: done" in user.types(commands[1])


@row(2)
def programs(user, commands):
    (job,) = user.submits(commands[0])
    assert user.ends(job) == "made\n"
    assert (user.client.job(job).cpu_cores, user.client.job(job).memory_bytes) == (1.0, 128 << 20)


@row(3)
def runs_here(user, commands):
    assert user.types(commands[0]) == f"{socket.gethostname()}\n"


@row(4)
def a_shell(user, commands):
    with AtTerminal(SimpleNamespace(state=user.state), *shlex.split(commands[0])[1:]) as terminal:
        assert terminal.asked("echo $((6*7))") == "42"
        terminal.type("exit 3\n")
        assert terminal.end() == 3


@row(5)
def tasks(user, commands):
    (job,) = user.submits(commands[0])
    user.ends(job)
    assert [user.client.output(job, rank=rank).text for rank in (0, 1)] == ["0 of 2\n", "1 of 2\n"]


@row(6)
def arrays(user, commands):
    jobs = user.submits(commands[0])
    assert [user.ends(job) for job in jobs] == [f"fitting, index {k}\n" for k in range(3)]


@row(7)
def arrays_one_by_one(user, commands):
    jobs = user.submits(commands[0])
    assert [user.ends(job) for job in jobs] == [f"fitting, index {k}\n" for k in range(3)]
    ran = [user.client.job(job) for job in jobs]
    # One that was over before it was seen to run has no start.
    assert all((later.started_at or later.ended_at) >= earlier.ended_at for earlier, later in pairwise(ran))


@row(8, FOREVER)
def dependencies(user, commands):
    jobs = [user.submits(command)[0] for command in commands]
    assert {user.client.job(job).state for job in jobs} == {JobState.PENDING}
    user.client.cancel(user.jobs[0])
    ends = [user.reaches(job, *ENDED).state for job in jobs]
    assert ends == [JobState.CANCELLED, JobState.DONE, JobState.DONE]


@row(9)
def limits(user, commands):
    (job,) = user.submits(commands[0])
    assert user.client.job(job).time_limit_s == 7200.0


@row(10)
def signals(user, commands):
    (job,) = user.submits(commands[0])
    assert user.ends(job) == "working\nsaved\n"


@row(11)
def starts_later(user, commands):
    (job,) = user.submits(commands[0])
    assert 3000 < user.client.job(job).start_at - time.time() <= 3600
    assert user.client.job(job).state not in {*ENDED, JobState.RUNNING}


@row(12)
def environments(user, commands):
    assert user.ends(*user.submits(commands[0])) == "1 in /\n"


@row(13)
def outputs_in_files(user, commands):
    (job,) = user.submits(commands[0])
    assert user.ends(job) == (user.folder / f"out-{job}.txt").read_text() == "fitting, index none\n"


@row(14, ("sh", "-c", "echo one; sleep 1; echo two"))
def outputs_as_they_come(user, commands):
    assert user.types(commands[0]) == "one\ntwo\n"


@row(15)
def tells_the_end(user, commands):
    (job,) = user.submits(commands[0])
    user.ends(job)
    told = json.loads(wait_until((user.folder / TOLD).read_text, "a notification"))
    assert (told["job"], told["event"], told["state"]) == (job, "end", "done")


@row(16)
def chooses_nodes(user, commands):
    for command in commands:
        (job,) = user.submits(command)
        user.ends(job)
        assert user.client.job(job).nodes == ("node-1",)


@row(17)
def asks_for_a_feature(user, commands):
    (job,) = user.submits(commands[0])
    # The page's nodes have none; see test_node_choice.py for one that has.
    waits = wait_until(lambda: why if "node" in (why := user.client.job(job).why) else "", "its reason")
    assert waits == "waits: no node it may run on is up (--constraint avx512)"


@row(18)
def charges_a_project(user, commands):
    (job,) = user.submits(commands[0])
    assert user.client.job(job).account == "physics"
    user.ends(job)


@row(19, FOREVER)
def a_node_of_its_own(user, commands):
    there = user.reaches(user.jobs[0], JobState.RUNNING)
    (job,) = user.submits(commands[0])
    user.ends(job)
    assert user.client.job(job).exclusive
    assert not set(user.client.job(job).nodes) & set(there.nodes)


@row(20, FOREVER)
def lets_others_go_first(user, commands):
    (job,) = user.submits(commands[0])
    assert user.client.job(job).weight == 0.1
    user.ends(job)
    user.types(commands[1])
    assert user.client.job(user.jobs[0]).weight == 0.5


@row(21, FOREVER, name="mine")
def lists_its_jobs(user, commands):
    assert re.search(rf"\b{user.jobs[0]} +mine\b", user.types(commands[0]))


@row(22, FOREVER, held=True)
def why_it_waits(user, commands):
    assert "held" in user.types(commands[0])


@row(23, FOREVER, held=True, resources={"gpu": 1}, time_limit_s=3600.0)
def when_it_will_start(user, commands):
    both = [user.client.submit(FOREVER, resources={"gpu": 1}, time_limit_s=600.0, **SMALL)[0] for _ in range(2)]
    for job in both:
        user.reaches(job, JobState.RUNNING)
    user.client.release(user.jobs[0])
    user.reaches(user.jobs[0], JobState.WAITING)
    shown = wait_until(lambda: re.search(r"expected to start at .*, in (\d+)m", user.types(commands[0])), "it is said")
    assert int(shown[1]) <= 10


@row(24, ("sh", "-c", "while true; do :; done"), time_limit_s=600.0)
def all_of_a_job(user, commands):
    wait_until(lambda: user.client.job(user.jobs[0]).used_cores, "CPU in use")
    shown = user.types(commands[0])
    for words in ("running", "64M", "10m", "while true"):
        assert words in shown
    assert re.search(r"\bus(es|ed|ing)\b.*\d", shown), shown


@row(25, FOREVER, FOREVER, name="sweep")
def cancels(user, commands):
    (third,) = user.client.submit(FOREVER, **SMALL)
    for command, job in zip(commands, (*user.jobs, third), strict=True):
        user.types(command)
        assert user.reaches(job, *ENDED).state is JobState.CANCELLED


@row(26, FOREVER)
def holds_and_releases(user, commands):
    user.types(commands[0])
    user.reaches(user.jobs[0], JobState.HELD)
    user.types(commands[1])
    user.reaches(user.jobs[0], JobState.RUNNING)


@row(27, FOREVER)
def begins_anew(user, commands):
    user.reaches(user.jobs[0], JobState.RUNNING)
    user.types(commands[0])
    wait_until(lambda: user.reaches(user.jobs[0], JobState.RUNNING).attempt == 1, "its second attempt")


@row(28, FOREVER, held=True)
def changes_a_job(user, commands):
    assert user.types(commands[0]) == f"updated job {user.jobs[0]}\n"
    assert user.client.job(user.jobs[0]).time_limit_s == 7200.0


@row(29, ("true",), name="over")
def what_has_ended(user, commands):
    user.ends(user.jobs[0])
    assert re.search(rf"\b{user.jobs[0]} +over\b", user.types(commands[0]))


@row(30, ("sh", "-c", "until test -e go; do echo tick; sleep 0.1; done"), FOREVER)
def beside_a_job(user, commands):
    for job in user.jobs:
        user.reaches(job, JobState.RUNNING)
    with subprocess.Popen(
        shlex.split(commands[0]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as attached:
        assert attached.stdout.readline() == "tick\n"
        (user.folder / "go").touch()
    assert attached.returncode == 0
    assert user.types(commands[1]) == f"{socket.gethostname()}\n"


@row(31)
def a_cluster(user, commands):
    """The fixture has started it by this command."""
    assert commands == [ROWS[31].commands[0]]
    assert [(node.name, node.state) for node in user.client.nodes()] == [("node-1", "up"), ("node-2", "up")]


@row(32)
def programs_with_limits(user, commands):
    (job,) = user.submits(commands[0])
    assert user.ends(job) == "made\n"
    assert user.client.job(job).time_limit_s == 600.0


@row(33)
def a_job_for_each_line(user, commands):
    assert [user.ends(job) for job in user.submits(commands[0])] == ["cherry\n", "apple\n", "banana\n"]


@row(34)
def input_of_a_program(user, commands):
    assert user.types(commands[0]) == "apple\nbanana\ncherry\n"


@row(35, ("sleep", "1"), ("sh", "-c", "exit 7"))
def waits(user, commands):
    said = user.types(commands[0], statuses=(7,))
    for job, end in zip(user.jobs, ("done", "ended with status 7"), strict=True):
        assert f"job {job}: {end}" in said


@row(36, FOREVER, name="long")
def how_far_all_is(user, commands):
    user.reaches(user.jobs[0], JobState.RUNNING)
    assert re.search(r"long .*running", user.types(commands[0]))


@row(37, ("sh", "-c", "echo good; echo bad >&2"))
def error_outputs(user, commands):
    user.ends(user.jobs[0])
    assert user.types(commands[0]) == "bad\n"


@row(38)
def never_anew(user, commands):
    (job,) = user.submits(commands[0])
    assert user.client.job(job).restart is Restart.NEVER


@row(39)
def asks_for_a_gpu(user, commands):
    assert [node.resources for node in user.client.nodes()] == [{"gpu": 1}] * 2
    assert user.ends(*user.submits(commands[0])) == "GPU 0\n"
    both = [user.client.submit(FOREVER, resources={"gpu": 1}, **SMALL)[0] for _ in range(2)]
    assert {user.reaches(job, JobState.RUNNING).nodes for job in both} == {("node-1",), ("node-2",)}
    (third,) = user.submits(commands[0])
    wait_until(lambda: user.client.job(third).why == "waits: gpu: all in use", "it says why it waits")
    user.client.cancel(both[0])
    assert user.ends(third) == "GPU 0\n"


@row(40)
def graphs(user, commands):
    jobs = {name: int(job) for name, job in re.findall(r"^(\w+) +job (\d+)$", user.types(commands[0]), re.MULTILINE)}
    assert user.ends(jobs["add"]) == "1+2+3\n"
    assert user.client.job(jobs["add"]).after == (jobs["write"],)


@row(41, FOREVER)
def nodes_and_tasks(user, commands):
    user.reaches(user.jobs[0], JobState.RUNNING)
    shown = user.types(commands[0])
    for words in ("node-1", "node-2", f"{user.jobs[0]}.0 sleep"):
        assert words in shown


@row(42)
def closes_a_node_and_says_why(user, commands):
    user.types(commands[0])
    assert "node-2 is drained: new disk" in user.types(commands[1])


@row(43)
def empties_a_node(user, commands):
    half = int(0.6 * user.client.nodes()[0].memory_bytes)
    (job,) = user.client.submit(FOREVER, tasks=2, cpu_cores=0.1, memory_bytes=half)
    there = user.reaches(job, JobState.RUNNING)
    assert set(there.nodes) == {"node-1", "node-2"}
    assert f"queued again: job {job}" in user.types(commands[0])
    wait_until(lambda: not user.client.nodes()[1].tasks, "an empty node")


@row(44)
def opens_a_node(user, commands):
    user.client.drain("node-2", "a new disk")
    wait_until(lambda: user.client.nodes()[1].state is NodeState.DRAINING, "a closed node")
    assert user.types(commands[0]) == "undrained node-2\n"
    wait_until(lambda: user.client.nodes()[1].state is NodeState.UP, "an open node")


@row(45)
def reserves_nodes(user, commands):
    said = user.types(commands[0])
    (made,) = user.client.reservations()
    try:
        assert said.startswith(f"reservation {made.id}: node-2, ")
        assert (made.nodes, made.reason, round(made.end_at - made.start_at)) == (("node-2",), "new fans", 14400)
        assert 3500 < made.start_at - time.time() <= 3600
        assert re.search(rf"^ *{made.id} node-2 .* to come +\S+ new fans", user.types(commands[1]), re.MULTILINE)
        assert user.client.nodes()[1].state is NodeState.UP
    finally:
        user.types(f"dfrs reserve --cancel {made.id}")
    (made,) = [user.client.reserve("node-2", duration_s=600)]
    wait_until(lambda: user.client.nodes()[1].state is NodeState.DRAINING, "a closed node")
    user.client.cancel_reservation(made.id)
    wait_until(lambda: user.client.nodes()[1].state is NodeState.UP, "an open node")


@row(46)
def lets_somebody_in(user, commands):
    user.types(commands[0])
    token = (user.folder / "ann.token").read_text().strip()
    with Client(user.client.url, token) as ann:
        assert ann.me() == {"user": "ann", "role": "user"}


@row(47)
def quotas(user, commands):
    serving = subprocess.Popen(
        shlex.split(commands[0]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        other = wait_until(lambda: read_client_file(user.folder / "other"), "a controller")
        with Client(other) as admin:
            wait_until(lambda: admin.health() is None, "a controller that answers")
            made = admin.create_token(TokenRequest(user="ann", role="user"))
            with Client(other.url, made.token) as ann:
                ann.submit(FOREVER)
                with pytest.raises(TooManyError, match="open jobs: ann has 1 and may have 1"):
                    ann.submit(FOREVER)
    finally:
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(60) == 0


@row(48, ("true",), name="over", account="physics")
def what_was_used(user, commands):
    user.ends(user.jobs[0])
    user.types(commands[0])
    with (user.folder / "usage.csv").open() as file:
        last = [line for line in csv.DictReader(file) if line["id"] == str(user.jobs[0])]
    assert [line["name"] for line in last] == ["over"]
    assert float(last[0]["cpu_s"]) >= 0
    assert re.search(r"^physics +[1-9]", user.types(commands[1]), re.MULTILINE)


@row(49)
def what_is_wrong(user, commands):
    """Status 1 where something of this machine is."""
    said = user.types(commands[0], statuses=(0, 1))
    assert re.search(r"^ok +controller", said, re.MULTILINE), said


@row(50)
def backs_up(user, commands):
    user.types(commands[0])
    assert (user.folder / "cluster.backup").read_bytes().startswith(b"SQLite format 3")


@row(51)
def makes_a_trace(user, said):
    assert len(library.read_workload(user.folder / "trace.swf.gz").submit_s) == 60


@row(52)
def looks_at_a_trace(user, said):
    assert re.search(r"jobs\D+60\b", said[0])


@row(53)
def cuts_out_a_part(user, said):
    assert len(library.read_workload(user.folder / "part.swf").submit_s) == 30


@row(54)
def changes_the_load(user, said):
    part, dense = (library.read_workload(user.folder / name) for name in ("part.swf", "dense.swf"))
    assert len(dense.submit_s) == 30
    assert not (dense.submit_s == part.submit_s).all()


@row(55)
def replays(user, said):
    assert {path.parent.name for path in (user.folder / "runs").rglob("summary.json")} == {"FCFS", "EASY"}


@row(56)
def compares(user, said):
    assert "FCFS" in said[0]
    assert "EASY" in said[0]


@row(57)
def bounds(user, said):
    assert "dense.swf" in said[0]
    assert re.search(r"\d+\.\d+", said[0])


@row(58)
def draws(user, said):
    assert [path.read_bytes()[:4] for path in (user.folder / "pictures").glob("*gantt*.png")] == [b"\x89PNG"]


@row(59)
def places(user, said):
    allocation = json.loads((user.folder / "allocation.json").read_text())
    assert 0 < allocation["minimum_yield"] <= 1
    assert user.types("dfrs validate allocation.json")


@row(60)
def runs_many(user, said):
    assert "EASY" in said[1]
    assert user.types("dfrs campaign status loads.toml").count("4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("tasks")
    for name, text in FILE.findall(PAGE.read_text()):
        (found / name).write_text(text)
    return found


@pytest.fixture(scope="module")
def cluster(folder):
    """Started and ended as the page says; that nodes have a GPU each is as on a machine that has some."""
    (folder / TOLD).touch()
    teller = folder / "tell"
    teller.write_text(f"#!/bin/sh\ncat >> {folder / TOLD}\n")
    teller.chmod(0o755)
    environment = os.environ | {
        "DFRS_STATE": str(folder / "state"),
        "DFRS_NOTIFY_COMMAND": str(teller),
        "DFRS_PORT": "0",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    started = subprocess.run(
        f"{ROWS[31].commands[0]} --resource-per-node gpu=1",
        shell=True,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    try:
        assert started.returncode == 0, started.stderr
        yield folder
    finally:
        subprocess.run("dfrs down", shell=True, env=environment, capture_output=True, timeout=120)


def test_each_row_is_run():
    assert sorted(ROWS) == list(range(1, 61))
    assert all(row.commands for row in ROWS.values())
    assert set(CHECKS) == set(ROWS)


@pytest.mark.parametrize("number", [number for number in ROWS if number <= 50])
def test_what_is_done_with_a_cluster(number, cluster, dfrs, monkeypatch):
    user = UserOfCluster(cluster, dfrs, monkeypatch)
    with user.client:
        user.does(number)


def test_what_researchers_do(folder, dfrs, monkeypatch):
    """In the order of the page: what one row writes others read."""
    user = User(folder, dfrs, monkeypatch)
    for number in range(51, 61):
        _, _, check = CHECKS[number]
        check(user, [user.types(command) for command in ROWS[number].commands])
