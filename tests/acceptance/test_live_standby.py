"""Two controllers on a real PostgreSQL: killed, stopped and started again under load; one of them always leads.

How long a take-over lasts is told here, and measured in `benchmarks.live_standby`.
"""

import json
import os
import signal
from collections import Counter
from itertools import repeat

import pytest

from dfrs.live.client import Client, Endpoint
from dfrs.live.protocol.resources import JobState
from dfrs.model.errors import ReplacedError
from dfrs.policies.names import find_policy
from dfrs.simulator.recorded_log import decide_again
from dfrs.workloads.live_log import read_live_log
from tests.live_pair import ControllerPair, Submitter, shell_job
from tests.live_postgres import new_database, postgres_server
from tests.live_processes import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: cgroups")


@pytest.fixture(scope="module")
def server():
    with postgres_server() as (url, _, _):
        yield url


@pytest.fixture
def pair(server, tmp_path, request):
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    with ControllerPair(tmp_path, new_database(server, name)) as pair:
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
    assert sum("restart" in json.loads(line) for line in lines) == starts


def submit(pair, count, seconds):
    """Jobs that begin to run at once."""
    job = shell_job(pair.directory, seconds).model_copy(update={"array": count})
    with Client(Endpoint(url=pair.server, token=pair.token)) as client:
        jobs = client.submit(job)
    wait_until(lambda: all(notes(pair, job)["begin"] for job in jobs), f"{count} jobs run")
    return jobs


def test_the_leader_is_killed_under_load_and_then_both(pair):
    """100 jobs run, and more are submitted all the time; whichever is started leads in the end."""
    first = submit(pair, 100, 12)
    user = Submitter(pair, repeat(shell_job(pair.directory, 1)), 0.1)
    user.start()
    wait_until(lambda: len(user.taken) > 10, "jobs are submitted")
    pair.signal("a", signal.SIGKILL)
    took_s = pair.wait_for_leader("b")
    before = len(user.taken)
    agents_s = pair.wait_connected()
    wait_until(lambda: len(user.taken) > before + 10, "jobs are submitted to the other")
    user.stop()
    print(f"\ntake-over {took_s:.2f} s, agents {agents_s:.2f} s later, longest submission {user.longest_s:.2f} s")
    # The one that was killed comes back and waits; it is killed again, and nothing happens.
    pair.start_one("a")
    wait_until(lambda: (found := pair.answer("a")) is not None and found.status_code == 503, "it stands by")
    wait_until(lambda: "dfrs_standbys 1.0" in pair.client.get("/metrics").text, "it is seen")
    assert pair.answer("a").json()["detail"] == f"standby: the leader is {pair.urls['b']}"
    assert pair.answer("a").headers["dfrs-leader"] == pair.urls["b"]
    pair.signal("a", signal.SIGKILL)
    wait_until(lambda: "dfrs_standbys 0.0" in pair.client.get("/metrics").text, "it is missed")
    assert pair.answer("b").status_code == 200
    late = submit(pair, 3, 1)
    pair.signal("b", signal.SIGKILL)
    pair.start_one("a")
    pair.wait_for_leader("a")
    pair.wait_connected()
    known = check_once(pair)
    assert known >= {*first, *user.taken, *late}
    assert len(user.taken) == len(set(user.taken))
    assert len(known) - len({*first, *user.taken, *late}) <= user.unsure
    check_decisions(pair, 3)


def test_a_leader_that_was_stopped_does_no_harm_and_ends(pair):
    """And the one that leads then ends in good order, after the other has come back."""
    jobs = submit(pair, 6, 12)
    pair.signal("a", signal.SIGSTOP)
    took_s = pair.wait_for_leader("b")
    agents_s = pair.wait_connected()
    print(f"\ntake-over {took_s:.2f} s after SIGSTOP, agents {agents_s:.2f} s later")
    jobs += submit(pair, 4, 2)
    pair.signal("a", signal.SIGCONT)
    assert pair.controllers["a"].wait(30) == ReplacedError.status
    assert pair.log_of("a").read_text().splitlines()[-1].startswith("dfrs: another controller has taken over")
    pair.start_one("a")
    wait_until(lambda: "dfrs_standbys 1.0" in pair.client.get("/metrics").text, "it stands by")
    pair.signal("b", signal.SIGTERM)
    pair.wait_for_leader("a")
    assert pair.controllers["b"].wait(30) == 0
    assert check_once(pair) == set(jobs)
    check_decisions(pair, 3)
