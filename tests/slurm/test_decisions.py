"""`dfrs serve --backend slurm` over a real Slurm, with share agents: lives of jobs, shares, and what is killed."""

import os
import random
import statistics
import sys
import time
from collections import Counter

import pytest

from dfrs.live.backends.slurm.reading import JobReader
from tests.slurm_cluster import SlurmCluster, why_not
from tests.slurm_json import assert_same, read_json
from tests.slurm_site import CONF, PATIENCE_S, Site, until

IN_FORCE_S = 0.5
"""So long until new shares are in force: the median of some changes."""
CHANGES = 7
STORED_S = 7.0
"""After so long slurmctld has stored what has happened: it writes every 5 s."""
BURN = "exec {python} -c 'while True: pass'"

pytestmark = [pytest.mark.long, pytest.mark.skipif(why_not(accounting=False) != "", reason=why_not(accounting=False))]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    path = tmp_path_factory.mktemp("dfrs") / "state"
    with SlurmCluster(2, conf=CONF, accounting=False) as slurm, Site(slurm, path) as made:
        yield made


@pytest.fixture(autouse=True)
def empty(site):
    """After each test no jobs are left, and all nodes are there."""
    yield
    for node, state in site.slurm.node_states().items():
        if "drain" in state or "down" in state:
            site.slurm.node_up(node)
    site.slurm.run("scancel", "--user=root")
    until(lambda: not site.slurm.run("squeue", "-h").stdout.strip(), "empty")
    until(lambda: not site.get("/jobs"), "known to be empty")
    until(lambda: all(node["state"] == "up" and not node["problem"] for node in site.get("/nodes")), "all are up")


def test_a_fractional_job_runs_and_says_what_it_is(site):
    job = site.sbatch("--comment", "dfrs: cpu=0.5 min-yield=0.2", "--mem=50", "--time=10", wrap="sleep 1; exit 3")
    site.slurm.await_job(job, "RUNNING", "FAILED")
    site.slurm.await_job(job, "FAILED")
    (found,) = until(lambda: site.get("/jobs?state=failed&limit=1"), "ended")
    assert (found["cpu_cores"], found["minimum_yield"], found["time_limit_s"]) == (0.5, 0.2, 600.0)
    assert found["exit_code"] == 3
    assert site.starts(job) == 1
    assert site.admin_comment(job).startswith(f"dfrs:running:{found['id']}.0.0.")


def used_s(site, node, job):
    """CPU seconds of a job, as the kernel counts them."""
    (group,) = site.slurm.group("cpuacct", node).glob(f"slurm*/uid_*/job_{job}")
    return int((group / "cpuacct.usage").read_text()) / 1e9


def parts(site, jobs, seconds):
    before = [used_s(site, "n1", job) for job in jobs]
    time.sleep(seconds)
    used = [used_s(site, "n1", job) - b for job, b in zip(jobs, before, strict=True)]
    return [each / sum(used) for each in used]


def test_shares_of_5_4_3_2_1_on_one_node(site):
    site.slurm.scontrol("update", "nodename=n2", "state=drain", "reason=test")
    until(lambda: any(node["problem"] for node in site.get("/nodes")), "one node")
    burn = BURN.format(python=sys.executable)
    jobs = [
        site.sbatch("--mem=50", f"--job-name=burn-{k}", "--comment", f"dfrs: cpu={k / 5}", wrap=burn)
        for k in (5, 4, 3, 2, 1)
    ]
    for job in jobs:
        site.slurm.await_job(job, "RUNNING")
    until(lambda: all(each["yield_granted"] is not None for each in site.get("/jobs")), "granted")
    time.sleep(1.5)
    found = parts(site, jobs, 6.0)
    assert found == pytest.approx([k / 15 for k in (5, 4, 3, 2, 1)], abs=0.01)

    # The others have its part as soon as one is held.
    weight = site.slurm.group("cpu", "n1") / f"dfrs_n1/job_{jobs[1]}" / "cpu.shares"
    number = next(each["id"] for each in site.get("/jobs") if each["name"] == "burn-5")
    took_s = []
    for k in range(CHANGES):
        before, began_s = weight.read_text(), time.monotonic()
        site.client.post(f"/jobs/{number}/{('release', 'hold')[k % 2 == 0]}").raise_for_status()
        while weight.read_text() == before and time.monotonic() < began_s + PATIENCE_S:
            time.sleep(0.005)
        took_s.append(time.monotonic() - began_s)
        time.sleep(1.0)
    print("new shares are in force after", *(f"{each:.2f}" for each in took_s), "s")
    assert max(took_s) < PATIENCE_S
    assert statistics.median(took_s) < IN_FORCE_S
    until(lambda: site.slurm.state(jobs[0]) == "SUSPENDED", "suspended")
    assert parts(site, jobs[1:], 3.0) == pytest.approx([k / 10 for k in (4, 3, 2, 1)], abs=0.02)
    received = [each["yield_received"] for each in site.get("/jobs?state=running")]
    assert all(each is not None for each in received)


def test_memory_is_not_given_twice_while_jobs_are_suspended(site):
    rng = random.Random(7)
    jobs = [site.sbatch(f"--mem={rng.randrange(200, 700)}", wrap=f"sleep {rng.uniform(1, 4):.1f}") for _ in range(12)]
    most_mb, suspended, turns = Counter(), set(), 0
    end_s = time.monotonic() + 2 * PATIENCE_S
    while lines := site.slurm.run("squeue", "-h", "-o", "%A %T %m %N").stdout.splitlines():
        assert time.monotonic() < end_s, lines
        used_mb = Counter()
        for job, state, memory, *node in map(str.split, lines):
            if state in ("RUNNING", "SUSPENDED"):
                used_mb[node[0]] += int(memory.removesuffix("M"))
            if state == "SUSPENDED":
                suspended.add(job)
        most_mb |= used_mb
        turns += 1
        # One that runs is held, then all that are held may go on, and so on.
        running, held = site.get("/jobs?state=running"), site.get("/jobs?state=held")
        if turns % 10 == 0 and running:
            site.client.post(f"/jobs/{rng.choice(running)['id']}/hold")
        if turns % 40 == 0 or not running:
            for each in held:
                site.client.post(f"/jobs/{each['id']}/release")
    assert suspended
    assert set(most_mb) == {"n1", "n2"}
    assert max(most_mb.values()) <= site.slurm.nodes["n1"].memory_mb
    assert [site.slurm.state(job) for job in jobs] == ["COMPLETED"] * len(jobs)


def test_jobs_that_come_at_once_queue_in_the_order_of_their_submission(site):
    """squeue lists those that are held the other way round."""
    site.kill("serve")
    names = [f"job-{k}" for k in range(6)]
    for name in names:
        site.sbatch("--mem=600", f"--job-name={name}")
    site.serve()
    found = until(lambda: len(jobs := site.get("/jobs")) == len(names) and jobs, "all are known")
    assert [each["name"] for each in sorted(found, key=lambda each: each["id"])] == names


def test_formats_say_what_json_says(site):
    """Of jobs that run, are suspended, have ended, wait, and of arrays of which some tasks were touched."""
    texts = ("--job-name=a|b\n'c\"", "--comment=dfrs: cpu=0.5; (null) \x1f \x1e ü")
    runs, stays = site.sbatch("--mem=50", "--time=90", *texts), site.sbatch("--mem-per-cpu=50", "--requeue", *texts)
    ends = site.sbatch("--mem=50", "--time=1-2:03:04", wrap="exit 3")
    site.sbatch("--array=1-9:2%2", "--mem=400", "--hold")
    site.sbatch("--array=0-3%1", "--mem=600", "--account=physics", "--begin=now+1hour")
    site.sbatch(f"--dependency=afterok:{runs}", "--nodelist=n2", "--mem=0")
    for job in (runs, stays):
        site.slurm.await_job(job, "RUNNING")
    site.slurm.await_job(ends, "FAILED")
    site.slurm.scontrol("suspend", stays)

    def look():
        reader = JobReader("main")
        words = ("squeue", "--all", "--states=all")
        env = os.environ | reader.environ
        printed = site.slurm.run(*words, "--noheader", "--noconvert", text=False, env=env).stdout
        return reader.read(printed, time.time()), read_json(site.slurm.run(*words, "--json").stdout, "main")

    def same():
        # Both are asked for one after the other: dfrs may have said something between them.
        (found, others), expected = look()
        try:
            assert_same((found, others), expected)
        except (AssertionError, ValueError):
            return None
        return found

    found = until(same, "both say the same", 15.0)
    # Slurm still lists jobs of tests before.
    states = [job.state for job in found if int(job.id.partition("_")[0]) >= runs]
    assert {state: states.count(state) for state in states} == {
        "RUNNING": 1,
        "SUSPENDED": 1,
        "FAILED": 1,
        "PENDING": 5 + 4 + 1,
    }
    assert [job.account for job in found].count("physics") == 4


def test_what_operators_do_in_slurm(site):
    job = site.sbatch("--mem=50", "--requeue")
    site.slurm.await_job(job, "RUNNING")
    (found,) = until(lambda: site.get("/jobs?state=running"), "running")
    time.sleep(1.5)
    site.slurm.scontrol("suspend", job)
    until(lambda: site.get(f"/jobs/{found['id']}")["state"] == "held", "held")
    site.slurm.scontrol("resume", job)
    until(lambda: site.get(f"/jobs/{found['id']}")["state"] == "running", "running again")
    site.slurm.scontrol("requeue", job)
    until(lambda: site.starts(job) == 2, "begun anew")
    until(lambda: site.get(f"/jobs/{found['id']}")["state"] == "running", "running again")
    site.slurm.run("scancel", job)
    until(lambda: site.get(f"/jobs/{found['id']}")["state"] == "cancelled", "cancelled")


def test_nothing_is_lost_or_begun_twice_when_daemons_are_killed(site):
    # They end when all is over, and beside two of them there is no room for the one that waits: what began and ended
    # just before slurmctld is killed, that would run once more.
    over = site.path.parent / "over"
    jobs = [site.sbatch("--mem=50", wrap=f"while [ ! -e {over} ]; do sleep 0.2; done") for _ in range(4)]
    for job in jobs:
        site.slurm.await_job(job, "RUNNING")
    waits = site.sbatch("--mem=950", wrap="sleep 1")
    time.sleep(STORED_S)
    assert site.starts(waits) == 0
    for victim in ("slurmctld", "n1"):
        site.slurm.kill(victim)
        time.sleep(1.0)
        site.slurm.start(victim)
    site.kill("share-n1")
    site.kill("serve")
    site.serve()
    site.share("n1")
    over.touch()
    for job in jobs:
        assert site.slurm.await_job(job, "COMPLETED", seconds=PATIENCE_S) == "COMPLETED"
    site.slurm.await_job(waits, "COMPLETED", seconds=PATIENCE_S)
    assert [site.starts(job) for job in (*jobs, waits)] == [1] * 5
    until(lambda: not site.get("/jobs"), "all have ended")
    found = [each["state"] for each in site.get("/jobs?state=done&state=failed&state=cancelled&limit=5")]
    assert found == ["done"] * 5


def test_a_node_that_fails_and_comes_back(site):
    job = site.sbatch("--mem=50", "--requeue", wrap="sleep 8")
    site.slurm.await_job(job, "RUNNING")
    node = site.slurm.job(job)["NodeList"]
    site.slurm.node_down(node)
    until(lambda: site.starts(job) == 2, "begun anew elsewhere")
    assert site.slurm.job(job)["NodeList"] != node
    site.slurm.node_up(node)
    until(lambda: all(each["state"] == "up" for each in site.get("/nodes")), "all are up")
    assert site.slurm.await_job(job, "COMPLETED") == "COMPLETED"
    assert site.starts(job) == 2
