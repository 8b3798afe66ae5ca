"""Real processes killed, cut off and starved of disk: no job is lost, none runs twice, nothing is left behind."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live_disks import fill, small_disk
from tests.live_processes import DFRS, LiveCluster, wait_until
from tests.live_proxy import WAYS, Proxy

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: cgroups and mounts")
ONCE = Path(__file__).parents[1] / "once.py"


def submit(cluster, seconds, **fields):
    """A job that notes its starts and ends in the cluster's directory."""
    fields = {"cpu_cores": 0.2, "memory_bytes": 64 << 20} | fields
    return cluster.submit(sys.executable, str(ONCE), str(cluster.directory), str(seconds), **fields)


def notes(cluster, job, rank=0):
    """How often the task said that it begins, ends, or finds itself running already."""
    path = cluster.directory / f"{job}.{rank}.notes"
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def begun(cluster, *jobs):
    """Wait until all of them run."""
    for job in jobs:
        wait_until(lambda job=job: notes(cluster, job)["begin"], f"job {job} begins")


def check_once(cluster, jobs, tasks=1):
    """Every one of them is done and ran exactly once, and nothing is left of any."""
    for job in cluster.wait_ended(jobs):
        assert job["state"] == "done", job
        for rank in range(tasks):
            assert notes(cluster, job["id"], rank) == {"begin": 1, "end": 1}
    check_nothing_left(cluster)


def check_nothing_left(cluster):
    """No process and no control group of any task."""
    wait_until(lambda: not cluster.leftovers(), "no process left")
    wait_until(lambda: not cluster.groups(), "no control group left")


@pytest.fixture
def cluster(tmp_path):
    with LiveCluster(tmp_path) as cluster:
        yield cluster


FREEZER = "/sys/fs/cgroup/freezer"
COVERED = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
"""What follows runs with mounts of its own: they are gone with it."""


@pytest.mark.skipif(not os.path.ismount(FREEZER), reason="no version 1 freezer is mounted here")
def test_a_node_that_cannot_pause_gets_no_jobs_until_it_can(tmp_path):
    """Something else is mounted over one of its control groups; it opens by itself when that is gone."""
    with LiveCluster(tmp_path, nodes=1) as cluster:

        def node():
            return next((n for n in cluster.client.get("/api/v1/nodes").json() if n["name"] == "n1"), None)

        cluster.names.append("n1")
        cluster.start_agent("n1", inside=(*COVERED, f'mount -t tmpfs none {FREEZER} && exec "$@"', "sh"))
        wait_until(
            lambda: (found := node()) and found["state"] == "unhealthy" and "start a task" in found["problem"],
            "n1 is unhealthy",
        )
        said = node()["problem"]
        assert said.startswith("self-test failed: could not start a task: it ended: not-started: ")
        assert FREEZER in said
        environment = {**os.environ, "DFRS_STATE": str(cluster.state)}
        shown = subprocess.run([*DFRS, "nodes"], env=environment, check=True, capture_output=True, text=True).stdout
        assert "unhealthy" in shown
        assert "n1 gets no jobs: self-test failed: could not start a task" in " ".join(shown.split())
        assert 'dfrs_nodes{state="unhealthy"} 1.0' in cluster.client.get("/metrics").text
        jobs = [submit(cluster, 0.2) for _ in range(6)]
        assert {tuple(job["nodes"]) for job in cluster.wait_ended(jobs)} == {("n0",)}
        waiting = submit(cluster, 0.1, tasks=2, memory_bytes=600 << 20)
        # Restarted, it says so again; its word survives the controller, too.
        cluster.kill(cluster.controller)
        cluster.start_controller()
        assert node()["state"] == "unhealthy"
        assert cluster.job(waiting)["state"] == "waiting"
        enter = ["nsenter", f"--mount=/proc/{cluster.agents['n1'].pid}/ns/mnt"]
        subprocess.run([*enter, "umount", FREEZER], check=True)
        wait_until(lambda: node()["state"] == "up", "the node opens")
        assert node()["problem"] == ""
        check_once(cluster, [waiting], tasks=2)
        check_once(cluster, jobs)


def test_jobs_run_on_while_the_controller_is_dead(cluster):
    jobs = [submit(cluster, seconds) for seconds in (1, 3, 6)]
    # The cluster has 2 GiB: this one waits for the others' ends.
    jobs.append(submit(cluster, 0.1, tasks=2, memory_bytes=950 << 20))
    begun(cluster, *jobs[:3])
    cluster.kill(cluster.controller)
    wait_until(lambda: notes(cluster, jobs[1])["end"], "a job ends without a controller")
    cluster.start_controller()
    assert len(cluster.client.get("/api/v1/jobs").json()) >= 1
    check_once(cluster, jobs[:3])
    check_once(cluster, jobs[3:], tasks=2)


def test_jobs_run_on_while_their_agent_is_dead(cluster):
    jobs = [submit(cluster, seconds) for seconds in (1, 1, 5, 5)]
    begun(cluster, *jobs)
    for name in cluster.names:
        cluster.kill(cluster.agents[name])
    wait_until(lambda: notes(cluster, jobs[1])["end"], "a job ends without an agent")
    late = submit(cluster, 0.1)
    for name in cluster.names:
        cluster.start_agent(name)
    check_once(cluster, [*jobs, late])


def test_both_dead_at_once(cluster):
    jobs = [submit(cluster, seconds, tasks=2) for seconds in (1, 1, 5)]
    begun(cluster, *jobs)
    cluster.kill(cluster.controller)
    for name in cluster.names:
        cluster.kill(cluster.agents[name])
    wait_until(lambda: notes(cluster, jobs[0], 1)["end"], "a job ends on its own")
    for name in reversed(cluster.names):
        cluster.start_agent(name)
    cluster.start_controller()
    check_once(cluster, jobs, tasks=2)


@contextmanager
def behind_proxy(cluster, name):
    """The agent of that node reaches its controller through a man in the middle."""
    proxy = Proxy(cluster.port)
    cluster.kill(cluster.agents[name])
    cluster.start_agent(name, proxy.url)
    # Its old connection is broken, and was noticed to be: the node is there by the new one.
    wait_until(lambda: proxy.forwarded > 3 and name in cluster.up(), "the node is up behind the proxy")
    try:
        yield proxy
    finally:
        proxy.close()


def test_an_agent_cut_off_for_a_minute_comes_back(cluster):
    with behind_proxy(cluster, "n0") as proxy:
        jobs = [submit(cluster, seconds) for seconds in (20, 20, 70, 70)]
        begun(cluster, *jobs)
        proxy.cut = True
        since = time.monotonic()
        wait_until(lambda: "n0" not in cluster.up(), "the node is found silent")
        there = submit(cluster, 0.1)
        assert cluster.wait_for(there, "done")
        wait_until(lambda: time.monotonic() - since > 60, "a minute has gone", patience_s=70)
        assert all(notes(cluster, job)["end"] for job in jobs[:2])
        proxy.cut = False
        wait_until(lambda: "n0" in cluster.up(), "the node is back")
        check_once(cluster, [*jobs, there])


def test_messages_repeated_and_out_of_order(cluster):
    with behind_proxy(cluster, "n0") as proxy:
        proxy.repeats = proxy.shuffles = WAYS
        jobs = [submit(cluster, 0.2 + k % 4 / 2, tasks=1 + k % 2, cpu_cores=0.3 + k % 3 / 4) for k in range(24)]
        for job in jobs[::5]:
            begun(cluster, job)
            cluster.client.post(f"/api/v1/jobs/{job}/hold")
            cluster.client.post(f"/api/v1/jobs/{job}/release")
        for k, job in enumerate(jobs):
            check = cluster.wait_ended([job])[0]
            assert check["state"] == "done", check
            assert all(notes(cluster, job, rank) == {"begin": 1, "end": 1} for rank in range(1 + k % 2))
        assert proxy.repeated > 10
        assert proxy.overtaken > 10
        check_nothing_left(cluster)


def test_a_lost_node(tmp_path):
    # Long enough that no task ends before its job is given up, also where the machine is busy.
    with LiveCluster(tmp_path, serve=("--lost-after", "4")) as cluster:
        again = [submit(cluster, 15, tasks=2) for _ in range(2)]
        never = submit(cluster, 15, tasks=2, restart="never")
        begun(cluster, *again, never)
        wait_until(lambda: all(notes(cluster, job, 1)["begin"] for job in [*again, never]), "all tasks run")
        cluster.kill_node("n1")
        gone = cluster.wait_for(never, "failed")
        assert "n1" in gone["exit"]
        for job in cluster.wait_ended(again):
            assert (job["state"], job["attempt"]) == ("done", 1)
            assert set(job["nodes"]) <= {"n0"}
            for rank in range(2):
                told = notes(cluster, job["id"], rank)
                assert (told["begin"], told["end"], told["twice"]) == (2, 1, 0)
        # The machine comes back: what it still had of the jobs is not wanted any more.
        cluster.start_agent("n1")
        check_nothing_left(cluster)


def test_a_job_is_queued_again_only_once(tmp_path):
    with LiveCluster(tmp_path, nodes=1, serve=("--lost-after", "4")) as cluster:
        job = submit(cluster, 60)
        for attempt in range(2):
            wait_until(lambda count=attempt: notes(cluster, job)["begin"] > count, "it begins")
            cluster.kill_node("n0")
            wait_until(lambda: not cluster.up(), "the node is missed")
            wait_until(lambda: cluster.job(job)["state"] in {"waiting", "failed"}, "the node is lost")
            cluster.start_agent("n0")
        ended = cluster.wait_for(job, "failed")
        assert (ended["attempt"], notes(cluster, job)["twice"]) == (1, 0)
        check_nothing_left(cluster)


def test_a_full_disk_under_the_database(tmp_path):
    with small_disk(tmp_path / "state", "24m"), LiveCluster(tmp_path) as cluster:
        jobs = [submit(cluster, seconds) for seconds in (1, 6)]
        begun(cluster, *jobs)
        filler = fill(cluster.state)
        refused = wait_until(lambda: _refused(cluster), "a submission is refused")
        assert refused.status_code == 503
        assert "\n" not in refused.json()["detail"]
        assert cluster.client.get("/healthz").status_code == 503
        wait_until(lambda: notes(cluster, jobs[1])["end"], "jobs run on")
        filler.unlink()
        wait_until(lambda: cluster.client.get("/healthz").status_code == 200, "it is well again by itself")
        jobs.append(submit(cluster, 0.1))
        check_once(cluster, jobs)


def _refused(cluster):
    body = {"command": ["true"], "environment": {"FILL": "x" * 100_000}}
    answer = cluster.client.post("/api/v1/jobs", json=body)
    return answer if answer.status_code >= 500 else None


def test_five_cycles_of_kill_and_restart_under_load(cluster):
    chance = random.Random(6)
    jobs = []

    def load(count):
        sizes = [(chance.uniform(0.05, 2.0), chance.choice([1, 1, 2])) for _ in range(count)]
        jobs.extend(submit(cluster, seconds, tasks=tasks, name=f"load {count}") for seconds, tasks in sizes)

    for cycle in range(5):
        load(8)
        victims = [["controller"], ["n0"], ["n1"], ["controller", "n0"], ["n0", "n1", "controller"]][cycle]
        time.sleep(chance.uniform(0, 0.5))
        for victim in victims:
            cluster.kill(cluster.controller if victim == "controller" else cluster.agents[victim])
        for victim in victims:
            if victim == "controller":
                cluster.start_controller()
            else:
                cluster.start_agent(victim)
        load(4)
    assert len(set(jobs)) == len(jobs) == 60
    for job in cluster.wait_ended(jobs):
        assert job["state"] == "done", job
        for rank in range(job["tasks"]):
            assert notes(cluster, job["id"], rank) == {"begin": 1, "end": 1}, (job, rank)
    check_nothing_left(cluster)
