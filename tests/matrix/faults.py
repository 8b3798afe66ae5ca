"""The faults: what each does to a part of a cluster, for how long, and how that part is mended."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from dfrs.live.client import Client, Endpoint
from dfrs.live.protocol.resources import JobState
from tests.live_databases import damage_table
from tests.live_disks import fill, small_disk
from tests.live_pair import shell_job
from tests.live_processes import DFRS, wait_until
from tests.live_proxy import DOWN, UP, WAYS, Line, Proxy
from tests.matrix.clusters import Pair, Single

LATE_S = {"agent": 1.0, "controller": 1.0, "both": 1.0, "standby": 0.1, "leader": 0.1}
"""A transaction is several messages: what is late to a database by a second is late for users by many."""
JUMP_S = 3600
SECONDS = 0.2, 2.0
"""How long a job takes, at least and at most."""
LOST_AFTER_S = 8
"""Where a host is replaced: its jobs are given up after so long."""
FENCE_S, GIVEN_UP_S = 15, 45
"""Where a node ends its jobs itself, and is given up: after so long without the controller."""
ONE_END = {
    "controller": ((("n0", "n1"), {DOWN}),),
    "agent": ((("n0",), {UP}),),
    "both": ((("n0",), {UP}), (("n1",), {DOWN})),
    "leader": ((("a",), {UP}),),
    "standby": ((("b",), {UP}),),
}
"""Of which connections the words of which side are disturbed: what it says itself, of the controller and the agent."""
ALL_ENDS = {
    "controller": ((("n0", "n1"), WAYS),),
    "agent": ((("n0",), WAYS),),
    "leader": ((("a",), WAYS),),
    "standby": ((("b",), WAYS),),
}
SAID_BY = ONE_END | {"both": ((("n0", "n1"), WAYS),)}
SENSELESS = {
    ("both", "cut"): "a connection has two ends: see controller, cut",
    **{
        (part, fault): "its connection to the database is one of TCP, which keeps the order and repeats nothing"
        for part in ("leader", "standby")
        for fault in ("duplicate", "reorder")
    },
}
"""Cells that are not run, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`strike(cluster, part)` is a context: the fault is there inside, and mended at its end.

    It may give the numbers of jobs that it submitted.
    """

    strike: Callable
    hold_s: float
    """So long it lasts."""
    disturbs: bool = False
    """Whether it is one of connections: then it must be seen that something was disturbed."""
    parts: tuple[str, ...] = ("controller", "agent", "both", "leader", "standby")
    middle: type = Line
    options: tuple = ()
    """Of the controller."""
    agent: tuple = ()
    """Options of the agents."""
    disk: bool = False
    """Whether that part has a small disk of its own."""
    seconds: tuple[float, float] = SECONDS
    """How long the jobs take that are there before, at least and at most."""
    meanwhile: bool = True
    """Whether users submit jobs while it lasts; otherwise after it."""


def _processes(cluster, part):
    """Of that part: names and processes."""
    if isinstance(cluster, Pair):
        other = "b" if cluster.leader == "a" else "a"
        name = cluster.leader if part == "leader" else other
        return {name: cluster.controllers[name]}
    agents = {"n0": cluster.agents["n0"]} if part == "agent" else cluster.agents if part == "both" else {}
    return ({} if part == "agent" else {"controller": cluster.controller}) | agents


def _start(cluster, name):
    if isinstance(cluster, Pair):
        cluster.start_one(name)
    elif name == "controller":
        cluster.start_controller()
    else:
        cluster.start_agent(name)


@contextmanager
def kill(cluster, part):
    """kill -9; what was killed is started again."""
    processes = _processes(cluster, part)
    for process in processes.values():
        cluster.kill(process)
    yield
    for name in processes:
        _start(cluster, name)


@contextmanager
def stop(cluster, part):
    """SIGSTOP, then SIGCONT."""
    processes = _processes(cluster, part)
    for process in processes.values():
        process.send_signal(signal.SIGSTOP)
    yield
    for process in processes.values():
        process.send_signal(signal.SIGCONT)


@contextmanager
def disturb(ends, change, cluster, part):
    """`change(line, ways)` each connection of that part; without ways all is well."""
    found = [(cluster.lines[name], frozenset(ways)) for names, ways in ends[part] for name in names]
    for line, ways in found:
        change(line, ways)
    yield
    for line, _ in found:
        change(line, frozenset())


def _hold(line, ways):
    line.held = ways


def _slow(late_s, line, ways):
    line.late_s = dict.fromkeys(ways, late_s)


def slow(cluster, part):
    """All that it says is late."""
    return disturb(SAID_BY, partial(_slow, LATE_S[part]), cluster, part)


def _repeat(line, ways):
    line.repeats = ways


def _shuffle(line, ways):
    line.shuffles = ways


@contextmanager
def fill_disk(cluster, part):
    """Its disk is filled to the last byte; room is made again."""
    filler = fill(cluster.state if part == "controller" else cluster.directory / "host")
    yield
    filler.unlink()


@contextmanager
def set_clock(cluster, part):
    """Its wall clock is set forward by an hour, and then back by two."""
    for name in _processes(cluster, part):
        cluster.set_clock(name, JUMP_S)
    yield
    for name in _processes(cluster, part):
        cluster.set_clock(name, -JUMP_S)


def _dfrs(cluster, *arguments):
    subprocess.run([*DFRS, *map(str, arguments), "--state", cluster.state], check=True, capture_output=True)


@contextmanager
def damage_database(cluster, _):
    """The controller is killed, its database saved and damaged; it does not start until the copy is put back."""
    cluster.kill(cluster.controller)
    saved = cluster.directory / "saved"
    _dfrs(cluster, "backup", "-o", saved)
    damage_table(cluster.state / "dfrs.db", "events")
    refused = subprocess.run([*DFRS, "serve", "--state", cluster.state, "--listen", "127.0.0.1:0"], capture_output=True)
    assert refused.returncode == 2, refused
    yield
    _dfrs(cluster, "restore", saved)
    cluster.start_controller()


@contextmanager
def restore_backup(cluster, _):
    """The database is put back to a copy that lacks some jobs which run, and whose numbers are given out anew.

    Jobs that were done when the copy was made do not run again, and those that ran then run on.
    """
    with Client(Endpoint(url=cluster.server, token=cluster.token)) as client:
        known = client.submit(shell_job(cluster.directory / "notes", 8).model_copy(update={"array": 3}))
        wait_until(
            lambda: all(
                job.state in {JobState.RUNNING, JobState.DONE} for job in client.all_jobs(states=list(JobState))
            ),
            "all jobs run or are done",
        )
    # What ends between the copy and the kill would be taken for open by the copy: so the controller hears of no end.
    for line in cluster.lines.values():
        line.held = frozenset((UP,))
    saved = cluster.directory / "saved"
    _dfrs(cluster, "backup", "-o", saved)
    (cluster.directory / "later").mkdir()
    with Client(Endpoint(url=cluster.server, token=cluster.token)) as client:
        client.submit(shell_job(cluster.directory / "later", 600).model_copy(update={"array": 5}))
    wait_until(lambda: list((cluster.directory / "later").glob("*.notes")), "jobs run that the copy lacks")
    cluster.kill(cluster.controller)
    for agent in cluster.agents.values():
        os.kill(agent.pid, signal.SIGSTOP)
    yield known
    _dfrs(cluster, "restore", saved)
    cluster.start_controller()
    for line in cluster.lines.values():
        line.held = frozenset()
    for agent in cluster.agents.values():
        os.kill(agent.pid, signal.SIGCONT)


@contextmanager
def replace_host(cluster, _):
    """The host of all nodes burns down with what runs there; another one comes in its place, under the same names."""
    for agent in cluster.agents.values():
        cluster.kill(agent)

    def burnt():
        for pid in cluster.leftovers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            # One that has a process yet is busy.
            cluster.remove_groups()
        return not cluster.leftovers() and not cluster.groups()

    wait_until(burnt, "nothing runs there any more")
    shutil.rmtree(cluster.directory / "host")
    yield
    for name in cluster.names:
        cluster.start_agent(name)


FAULTS = {
    "kill -9": Fault(strike=kill, hold_s=2),
    "stop": Fault(strike=stop, hold_s=12),
    "cut": Fault(strike=partial(disturb, ALL_ENDS, _hold), hold_s=16, disturbs=True),
    "one-way cut": Fault(strike=partial(disturb, ONE_END, _hold), hold_s=16, disturbs=True),
    "cut, fenced": Fault(
        strike=partial(disturb, ALL_ENDS, _hold),
        hold_s=GIVEN_UP_S + 15,
        disturbs=True,
        parts=("agent",),
        options=("--lost-after", str(GIVEN_UP_S)),
        agent=("--fence", f"{FENCE_S}s"),
        # What ends before the fence, and cannot be told before its node is given up, runs again: so none does.
        seconds=(FENCE_S + 5, FENCE_S + 11),
    ),
    "slow": Fault(strike=slow, hold_s=10, disturbs=True),
    "duplicate": Fault(strike=partial(disturb, SAID_BY, _repeat), hold_s=10, disturbs=True, middle=Proxy),
    "reorder": Fault(strike=partial(disturb, SAID_BY, _shuffle), hold_s=10, disturbs=True, middle=Proxy),
    "disk full": Fault(strike=fill_disk, hold_s=8, parts=("controller", "agent"), disk=True),
    "clock jump": Fault(strike=set_clock, hold_s=5, parts=("controller", "agent", "both")),
    "database damaged": Fault(strike=damage_database, hold_s=1, parts=("controller",)),
    "backup restored": Fault(strike=restore_backup, hold_s=1, parts=("controller",), meanwhile=False),
    "host replaced": Fault(
        strike=replace_host,
        hold_s=1,
        parts=("agent",),
        options=("--lost-after", str(LOST_AFTER_S)),
        # An end that nobody was told of is gone with its host: so none ends before that.
        seconds=(10, 14),
    ),
}


@contextmanager
def cluster_for(fault: Fault, part: str, directory, new_database):
    """A cluster to which it can happen; `new_database()` is the URL of a PostgreSQL's."""
    with ExitStack() as stack:
        if fault.disk:
            stack.enter_context(small_disk(directory / {"controller": "state", "agent": "host"}[part], "48m"))
        if part in {"leader", "standby"}:
            cluster = Pair(directory, new_database())
        else:
            cluster = Single(directory, fault.middle, serve=fault.options, agent=fault.agent)
        yield stack.enter_context(cluster)
