"""Two controllers on a real PostgreSQL: killed, stopped and started again under load; one of them always leads."""

import os
import signal
import time
from collections import Counter

import pytest
import sqlalchemy as sa

from dfrs.live.client import Client, Endpoint
from dfrs.live.protocol.resources import JobState
from dfrs.model.errors import ReplacedError
from dfrs.policies.names import find_policy
from dfrs.simulator.recorded_log import decide_again
from dfrs.workloads.live_log import read_live_log
from tests.live_pair import ControllerPair, Submitter, shell_job
from tests.live_postgres import postgres_server
from tests.live_processes import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: cgroups")
TAKE_OVER_S = 5.0
STOPPED_S = 15.0
"""A stopped leader is noticed by its silence, and its agents by theirs."""


@pytest.fixture(scope="module")
def server():
    with postgres_server() as (url, _, _):
        yield url


@pytest.fixture
def pair(server, tmp_path, request):
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    with ControllerPair(tmp_path, server.rpartition("/")[0] + f"/{name}") as pair:
        yield pair


def notes(pair, job):
    path = pair.directory / f"{job}.0.notes"
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def all_jobs(pair):
    """Ids of all jobs that the cluster knows, by state."""
    with Client(Endpoint(url=pair.server, token=pair.token)) as client:
        return {job.id: job.state.value for job in client.all_jobs(states=list(JobState))}


def check_once(pair, patience_s=90.0):
    """Every job that the cluster has is done, and began and ended once."""
    known = wait_until(
        lambda: (found := all_jobs(pair)) and set(found.values()) == {"done"} and found, "all jobs are done", patience_s
    )
    wrong = {job: notes(pair, job) for job in known if notes(pair, job) != {"begin": 1, "end": 1}}
    assert not wrong
    return set(known)


def check_decisions(pair, starts):
    """All that was decided, by however many controllers, comes out again from the events alone."""
    with pair.client.stream("GET", "/api/v1/log") as answer:
        lines = [line for line in answer.iter_lines() if line]
    (pair.directory / "log.jsonl").write_text("\n".join(lines) + "\n")
    log = read_live_log(pair.directory)
    assert decide_again(log, find_policy).mismatch is None
    assert sum('"restart"' in line for line in lines) == starts


def test_the_leader_is_killed_under_load(pair, record_property):
    """100 jobs run, and more are submitted all the time."""
    with Client(Endpoint(url=pair.server, token=pair.token)) as client:
        first = [
            job
            for _ in range(4)
            for job in client.submit(shell_job(pair.directory, 12).model_copy(update={"array": 25}))
        ]
    wait_until(lambda: sum(notes(pair, job)["begin"] for job in first) == 100, "100 jobs run")
    user = Submitter(pair, shell_job(pair.directory, 1), 0.1)
    user.start()
    wait_until(lambda: len(user.taken) > 10, "jobs are submitted")
    pair.signal("a", signal.SIGKILL)
    took_s = pair.wait_for_leader("b")
    before = len(user.taken)
    agents_s = pair.wait_connected()
    wait_until(lambda: len(user.taken) > before + 10, "jobs are submitted to the other")
    user.stop()
    print(f"\ntake-over {took_s:.2f} s, agents {agents_s:.2f} s later, longest submission {user.longest_s:.2f} s")
    record_property("take_over_s", took_s)
    assert took_s < TAKE_OVER_S
    known = check_once(pair)
    assert known >= {*first, *user.taken}
    assert len(user.taken) == len(set(user.taken))
    assert len(known) - 100 - len(user.taken) <= user.unsure
    check_decisions(pair, 2)
    # The one that was killed comes back and waits.
    pair.start_one("a")
    wait_until(lambda: (found := pair.answer("a")) is not None and found.status_code == 503, "it stands by")
    assert pair.answer("a").json()["detail"] == f"standby: the leader is {pair.urls['b']}"
    assert pair.answer("a").headers["dfrs-leader"] == pair.urls["b"]


def test_a_leader_that_was_stopped_does_no_harm_and_ends(pair):
    jobs = [pair.submit(*shell_job(pair.directory, 20).command, memory_bytes=8 << 20, cpu_cores=0.02) for _ in range(6)]
    wait_until(lambda: all(notes(pair, job)["begin"] for job in jobs), "they run")
    pair.signal("a", signal.SIGSTOP)
    took_s = pair.wait_for_leader("b")
    connected_s = pair.wait_connected()
    print(f"\ntake-over {took_s:.2f} s after SIGSTOP, agents {connected_s:.2f} s later")
    assert took_s + connected_s < STOPPED_S
    late = [pair.submit(*shell_job(pair.directory, 3).command, memory_bytes=8 << 20, cpu_cores=0.02) for _ in range(4)]
    wait_until(lambda: all(notes(pair, job)["begin"] for job in late), "new ones run")
    pair.signal("a", signal.SIGCONT)
    assert pair.controllers["a"].wait(30) == ReplacedError.status
    assert pair.log_of("a").read_text().splitlines()[-1].startswith("dfrs: another controller has taken over")
    assert check_once(pair) == {*jobs, *late}
    check_decisions(pair, 2)


def test_a_standby_is_killed_and_then_both(pair):
    """Nothing happens; and whichever is started then leads."""
    jobs = [pair.submit(*shell_job(pair.directory, 8).command, memory_bytes=8 << 20, cpu_cores=0.02) for _ in range(3)]
    wait_until(lambda: all(notes(pair, job)["begin"] for job in jobs), "they run")
    pair.signal("b", signal.SIGKILL)
    wait_until(lambda: "dfrs_standbys 0.0" in pair.client.get("/metrics").text, "it is missed")
    assert pair.answer("a").status_code == 200
    jobs.append(pair.submit(*shell_job(pair.directory, 1).command, memory_bytes=8 << 20, cpu_cores=0.02))
    pair.signal("a", signal.SIGKILL)
    pair.start_one("b")
    pair.wait_for_leader("b")
    pair.wait_connected()
    pair.start_one("a")
    wait_until(lambda: "dfrs_standbys 1.0" in pair.client.get("/metrics").text, "the other waits")
    # One that ends in good order is followed at once.
    began = time.monotonic()
    pair.signal("b", signal.SIGTERM)
    pair.wait_for_leader("a")
    assert time.monotonic() - began < TAKE_OVER_S
    assert pair.controllers["b"].wait(30) == 0
    assert check_once(pair) == set(jobs)
    check_decisions(pair, 3)
