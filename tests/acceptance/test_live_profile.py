"""MPI programs as jobs of a live cluster: their node's agent says what they sent, while they run and afterwards.

Needs Open MPI, and root for control groups.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dfrs.live.drivers.processes.directory import TaskDirectory
from dfrs.live.drivers.processes.profiles import Profiles
from dfrs.model.hardware import Latency
from dfrs.model.hardware_files import read_profile, write_hardware
from dfrs.profiling.calibrate import CpuRates, sub_cluster, with_cluster
from tests.live_processes import LiveCluster, wait_until
from tests.mpi_links import compiled

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mpicc") is None, reason="needs root, and Open MPI's mpicc"
)
DFRS = (sys.executable, "-m", "dfrs.cli.main")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")
SEEN = ("sent", "received", "isent", "ireceived")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("profiled")
    with LiveCluster(directory, nodes=2) as live:
        yield live
        assert not kept(live), "what ranks counted in remains"


@pytest.fixture(scope="module")
def programs(cluster):
    return {name: compiled(name, cluster.directory) for name in ("mix", "messages")}


def kept(cluster):
    """Directories of profiled tasks of this cluster, in shared memory."""
    host = cluster.directory / "host"
    return list(Path("/dev/shm").glob(f"{Profiles(host, TaskDirectory(host)).prefix}*"))


def submit(cluster, *command, **fields):
    path = {"PATH": os.environ["PATH"], "HOME": str(cluster.directory)}
    return cluster.submit(*map(str, command), profile=True, environment=path, memory_bytes=300 << 20, **fields)


def told(cluster, job):
    """What the agent says of the job now; None for nothing yet."""
    answer = cluster.client.get(f"/api/v1/jobs/{job}/output", params={"stream": "profile", "limit": 1 << 20})
    text = answer.raise_for_status().json()["text"]
    return json.loads(text) if text else None


def dfrs(cluster, *words):
    return subprocess.run(
        [*DFRS, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"DFRS_SERVER": str(cluster.client.base_url), "DFRS_TOKEN_FILE": str(token(cluster))},
    )


def token(cluster):
    path = cluster.directory / "token"
    path.write_text(json.loads((cluster.state / "client.json").read_text())["token"])
    path.chmod(0o600)
    return path


def of_two_ranks(profile):
    """The profile once both ranks have written their last."""
    return profile if profile and [rank["finished"] for rank in profile["ranks"]] == [True, True] else None


def test_what_the_agent_counted_is_what_the_program_sent(cluster, programs):
    job = submit(cluster, *MPIRUN, programs["mix"], 7, 200, cluster.directory / "own")
    ended = cluster.wait_for(job, "done", "failed")
    assert ended["state"] == "done", ended
    seen = wait_until(lambda: of_two_ranks(told(cluster, job)), "a profile of two finished ranks")
    found = Counter({(name, row["bytes"]): row[name] for row in seen["messages"] for name in SEEN})
    found += Counter({(row["kind"], row["bytes"]): row["count"] for row in seen["calls"]})
    own = Counter()
    for rank in range(2):
        for line in Path(f"{cluster.directory}/own.{rank}").read_text().splitlines():
            _, name, size, count = line.split()
            own[name, int(size)] += int(count)
    assert found == own
    assert len(own) > 50
    # The verb shows it, and writes what dfrs farm predict takes.
    written, farm = cluster.directory / "mix.json", cluster.directory / "farm.json"
    latency = Latency(sizes_bytes=(1, 1 << 20), seconds=(1e-6, 1e-3))
    rates = CpuRates(hertz=2e9, flops=1e9, l1_s=0.0, l2_s=0.0)
    write_hardware(with_cluster(None, sub_cluster("A", None, rates, latency, 2, 1), "farm"), farm)
    answer = dfrs(cluster, "farm", "profile-job", job, "--farm", farm, "--cluster", "A", "-o", written)
    assert answer.returncode == 0, answer.stderr
    assert "alltoall" in answer.stderr
    assert "without MPI_Finalize" not in answer.stderr
    assert read_profile(written).processes == 2
    answer = dfrs(cluster, "farm", "predict", "--farm", farm, "--profile", written)
    assert answer.returncode == 0, answer.stderr
    answer = dfrs(cluster, "farm", "profile-job", job, "--farm", farm, "--cluster", "B", "-o", written)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "--cluster" in answer.stderr


def test_it_is_told_while_the_job_runs_also_by_a_new_agent_and_on_another_node(cluster, programs):
    job = submit(cluster, *MPIRUN, programs["messages"], "blocking", 1_000_000_000, 64)
    cluster.wait_for(job, "running")

    def sent():
        return sum(row["sent"] for row in (told(cluster, job) or {"messages": ()})["messages"])

    first = wait_until(sent, "messages counted")
    (node,) = cluster.job(job)["nodes"]
    cluster.kill(cluster.agents[node])
    cluster.start_agent(node)
    second = wait_until(lambda: cluster.job(job)["state"] == "running" and reached(sent, first), "more messages")
    cluster.client.post(f"/api/v1/jobs/{job}/hold").raise_for_status()
    cluster.wait_for(job, "held", "paused")
    cluster.client.post(f"/api/v1/nodes/{node}/drain").raise_for_status()
    cluster.client.post(f"/api/v1/jobs/{job}/release").raise_for_status()
    wait_until(lambda: reached(sent, second), "messages after a pause")
    answer = dfrs(cluster, "farm", "profile-job", job, "--json")
    assert answer.returncode == 0, answer.stderr
    assert "without MPI_Finalize" not in answer.stderr
    assert json.loads(answer.stdout)["profile"]["processes"] == 2
    cluster.client.post(f"/api/v1/jobs/{job}/cancel").raise_for_status()
    cluster.wait_for(job, "cancelled")
    cluster.client.post(f"/api/v1/nodes/{node}/undrain").raise_for_status()
    last = wait_until(lambda: told(cluster, job), "what was kept")
    assert sum(row["sent"] for row in last["messages"]) >= second
    wait_until(lambda: not kept(cluster), "shared memory given back")


def reached(sent, before):
    """How many, once it is more than `before`; agents that have just come may not answer yet."""
    try:
        now = sent()
    except Exception:
        return None
    return now if now > before else None


def test_who_did_not_ask_is_told_so_and_others_are_not_told(cluster, programs):
    job = cluster.submit("true")
    cluster.wait_for(job, "done")
    answer = dfrs(cluster, "farm", "profile-job", job)
    assert (answer.returncode, answer.stderr) == (2, f"dfrs: job {job}: was not submitted with --profile\n")
    plain = submit(cluster, "true")
    cluster.wait_for(plain, "done")
    answer = dfrs(cluster, "farm", "profile-job", plain)
    assert (answer.returncode, answer.stderr) == (1, f"dfrs: job {plain}: no MPI rank was seen\n")
    made = cluster.client.post("/api/v1/tokens", json={"user": "mallory", "role": "user", "days": 1}).json()
    path = f"/api/v1/jobs/{plain}/output?stream=profile"
    refused = cluster.client.get(path, headers={"Authorization": f"Bearer {made['token']}"})
    assert refused.status_code == 403
