"""What users are told of a real cluster is so, and what is free is used, whatever else the machine does.

Programs that are no tasks compute all the time beside each scene.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import time

import pytest

from dfrs.live.client import Client, read_client_file
from dfrs.live.controller.received import WINDOW_S
from dfrs.live.protocol.resources import ENDED, JobRequest, JobState
from dfrs.workloads.live_log import FILE
from tests.driver_hosts import measuring
from tests.live_processes import wait_until
from tests.received_scene import DFRS, FOR, HOG, SLEEP, WORK, Watch, beside, cluster, dfrs, observe

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root: shares are kept by control groups"
)
PATIENCE_S = 240.0
ONE = ("--cpu", 1)
ON_NODES = {JobState.STARTING, JobState.RUNNING}


@pytest.fixture(autouse=True)
def _nowhere_else(tmp_path, monkeypatch):
    for name in ("DFRS_SERVER", "DFRS_TOKEN_FILE", "DFRS_CA", "DFRS_STATE", "DFRS_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with measuring():
        yield


@pytest.fixture
def pair(tmp_path):
    """A client of a cluster of two nodes, beside a load from outside."""
    state = tmp_path / "state"
    with beside(1), cluster(state, nodes=2), Client(read_client_file(state), timeout_s=60.0) as client:
        yield client


def submit(client, program, seconds, cpu_cores=None):
    command = (sys.executable, "-c", program, str(seconds))
    return client.submit(JobRequest(command=command, directory="/", cpu_cores=cpu_cores, memory_bytes=64 << 20))[0]


def when(client, job, states):
    return wait_until(lambda: (found := client.job(job)).state in states and found, f"job {job} {states}", PATIENCE_S)


def test_stretches_and_shares_beside_a_load_from_outside(tmp_path):
    jobs = [("declared", ONE, FOR, 30), ("unknown", (), FOR, 30), ("work", ONE, WORK, 12), ("sleeper", (), SLEEP, 20)]
    with beside(2), cluster(tmp_path / "state"):
        found = observe(jobs, PATIENCE_S)
        dfrs("export", "-o", tmp_path / "run")
    # Those that computed were told to the core as they fared, not as they were granted.
    assert '"event": "progressed"' in (tmp_path / "run" / FILE).read_text()
    for each in found.values():
        # Up to a second is before the first look and after the last one.
        assert each.virtual_s == pytest.approx(each.alone_s, rel=0.05, abs=0.8), each
        assert abs(each.off) < 0.05, each


def test_yields_received_are_what_the_kernel_counts(pair):
    """Of programs that always compute: CPU time over time, in the seconds of which a yield tells."""
    jobs = [submit(pair, HOG, 0, 1.0) for _ in range(3)]
    pids = {}
    for job in jobs:
        when(pair, job, {JobState.RUNNING})
        pids[job] = int(wait_until(lambda job=job: pair.output(job).text.strip(), "its number"))
    off = []
    with Watch(pids.values()) as watch:
        time.sleep(WINDOW_S + 5.0)
        for _ in range(15):
            time.sleep(1.0)
            told = {job: pair.job(job).yield_received for job in jobs}
            # What is told was reported up to a second ago.
            now = time.time() - 0.5
            off += [told[job] / watch.cores(pids[job], now - WINDOW_S, now) - 1.0 for job in jobs]
    assert statistics.median(map(abs, off)) < 0.05, off


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 10])
def test_two_equal_programs_get_the_same_whether_their_needs_are_declared_or_not(tmp_path, threads):
    jobs = [("declared", ONE, FOR, 120), ("unknown", (), FOR, 120)]
    with beside(threads), cluster(tmp_path / "state"):
        found = observe(jobs, 2 * PATIENCE_S)
    assert found["unknown"].cpu_s == pytest.approx(found["declared"].cpu_s, rel=0.1)


def test_a_program_of_unknown_need_does_not_starve(pair):
    jobs = [submit(pair, FOR, 60, cpu_cores) for cpu_cores in (1.0, None)]
    # Where each of them is alone on its node, only the load from outside tells them apart.
    found = [when(pair, job, ENDED) for job in jobs]
    declared_s, unknown_s = (float(pair.output(job.id).text.split()[0]) for job in found)
    assert unknown_s > 0.8 * declared_s, found


def least_part_granted(seen):
    """Of what is left of its node, by any task."""
    left = {node.name: node.cpus if node.left_cores is None else node.left_cores for node in seen.nodes}
    return min(job.yield_granted / left[job.nodes[0]] for job in seen.jobs)


def test_what_a_job_leaves_is_used_at_once(pair):
    short = submit(pair, FOR, 8, 1.0)
    (there,) = when(pair, short, {JobState.RUNNING}).nodes
    pair.drain(there)
    stays = [submit(pair, FOR, 40, 1.0) for _ in range(2)]
    (other,) = {when(pair, job, {JobState.RUNNING}).nodes for job in stays}
    pair.undrain(there)
    ended = when(pair, short, ENDED)
    moved = wait_until(
        lambda: [each for job in stays for each in pair.activity(job=job) if each.action == "migrate"], "a move"
    )
    assert [each.nodes for each in moved] == [(there,)]
    assert moved[0].time - ended.ended_at < 2.0
    assert other != (there,)
    # The other task's share grows when the moved one has left its node, which is after the move began.
    # The load from outside may have become known by then: full is what it leaves of a node.
    wait_until(lambda: least_part_granted(pair.snapshot()) > 0.95, "full shares")


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_more_jobs_go_to_the_node_whose_cpu_no_other_program_uses(tmp_path):
    state = tmp_path / "state"
    first_cpu = min(os.sched_getaffinity(0))
    with (
        beside(2, cpus=[first_cpu]),
        cluster(state, nodes=2),
        Client(read_client_file(state), timeout_s=60.0) as client,
    ):
        jobs = [submit(client, FOR, 3600, 1.0) for _ in range(2)]
        for job in jobs:
            when(client, job, {JobState.RUNNING})
        # Nodes own the CPUs in their order.
        loaded, free = (node.name for node in client.nodes())

        def little_is_left():
            left = {node.name: node.left_cores for node in client.nodes()}[loaded]
            return left is not None and left < 0.7

        wait_until(little_is_left, "less than 0.7 cores left", 120.0)
        said = [each.why for each in client.activity() if (each.action, each.node) == ("capacity", loaded)]
        assert said
        assert all(why.endswith("programs beside the cluster's use the rest") for why in said)
        jobs.append(submit(client, FOR, 3600, 1.0))
        when(client, jobs[-1], {JobState.RUNNING})
        # Unless other tests compute on its CPU all the time, too.
        free_at_times = False

        def two_on_the_free_node():
            nonlocal free_at_times
            now = {node.name: node.cpus if node.left_cores is None else node.left_cores for node in client.nodes()}
            free_at_times |= now[free] > 1.5 * now[loaded]
            return [client.job(job).nodes for job in jobs].count((free,)) == 2

        try:
            wait_until(two_on_the_free_node, "two on the free node")
        except AssertionError:
            if free_at_times:
                raise
            pytest.skip("the other CPU is not free either")


def test_all_displays_of_an_instant_agree(pair):
    """As `top` prints them: the headline is the least of the yields below it, and no higher than its bound."""
    # They end with the cluster, however slow the machine is.
    jobs = [submit(pair, FOR, 3600, 1.0) for _ in range(3)]
    for job in jobs:
        when(pair, job, {JobState.RUNNING})
    environment = {**os.environ, "COLUMNS": "160"}
    for _ in range(6):
        time.sleep(1.0)
        text = subprocess.run([*DFRS, "top"], env=environment, capture_output=True, text=True, check=True).stdout
        least, most = map(float, re.search(r"minimum yield (\d\.\d\d) of at most (\d\.\d\d)", text).groups())
        assert least <= most, text
        rows = {job: re.search(rf"^\W*{job} .*", text, re.MULTILINE).group() for job in jobs}
        yields = [float(re.search(r" ([01]\.\d\d)[*± ]", row).group(1)) for row in rows.values()]
        assert min(yields) == least, text
        seen = pair.snapshot()
        told = [job.yield_granted if job.yield_received is None else job.yield_received for job in seen.jobs]
        assert seen.cluster.minimum_yield == min(told)
        assert seen.cluster.bound >= seen.cluster.minimum_yield
        used = [sum(task.used_cores or 0.0 for task in node.tasks) for node in seen.nodes]
        assert seen.cluster.used_cores == pytest.approx(sum(used))
        assert seen.cluster.used_cores == pytest.approx(sum(job.used_cores or 0.0 for job in seen.jobs))


BOXED = """
mount --bind /sys/fs/cgroup "$1" || exit 77
for tree in /sys/fs/cgroup/*/; do
  test ! -d "$tree" || mkdir -p "$2/$(basename "$tree")" && mount --bind "$tree" "$2/$(basename "$tree")" || exit 77
done
shift 2
exec "$@"
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare of util-linux")
def test_mounts_of_others_keep_no_job_from_starting(tmp_path):
    """Somebody's bind mounts of control groups, the last ones that the kernel lists."""
    for name in ("whole", "trees"):
        (tmp_path / name).mkdir()
    boxed = ["unshare", "--mount", "--propagation", "private", "sh", "-c", BOXED, "sh"]
    boxed += [str(tmp_path / "whole"), str(tmp_path / "trees")]
    state = tmp_path / "state"
    with (
        beside(1),
        cluster(state, inside=boxed),
        Client(read_client_file(state), timeout_s=60.0) as client,
    ):
        assert [node.problem for node in client.nodes()] == [""]
        assert when(client, submit(client, WORK, 0.2, 1.0), ENDED).state is JobState.DONE
