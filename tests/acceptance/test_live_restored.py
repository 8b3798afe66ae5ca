"""Real processes, and a state directory that is put back to an older copy: no job is mistaken for another."""

import os
import shutil
import signal
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live_processes import LiveCluster, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: cgroups")
ONCE = Path(__file__).parents[1] / "once.py"
FOREVER = 600


def submit(cluster, name, seconds, **fields):
    """A job that notes its starts and ends in a directory of that name."""
    (cluster.directory / name).mkdir()
    fields = {"cpu_cores": 0.2, "memory_bytes": 64 << 20} | fields
    return cluster.submit(sys.executable, str(ONCE), str(cluster.directory / name), str(seconds), **fields)


def notes(cluster, name, job):
    """How often the task said that it begins, ends, or finds itself running already."""
    path = cluster.directory / name / f"{job}.0.notes"
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def begun(cluster, name, job):
    wait_until(lambda: notes(cluster, name, job)["begin"], f"{name} begins")


def output(cluster, job):
    return cluster.client.get(f"/api/v1/jobs/{job}/output").raise_for_status().json()["text"]


def back_up(cluster):
    """A copy of the state directory; its controller is killed for it, and another one goes on."""
    cluster.kill(cluster.controller)
    shutil.copytree(cluster.state, cluster.directory / "backup")
    cluster.start_controller()
    wait_until(lambda: cluster.up() == cluster.names, "the nodes are back")


@contextmanager
def restored(cluster):
    """The copy is put back, and a controller goes on from it; meanwhile no agent can reach it."""
    cluster.kill(cluster.controller)
    for agent in cluster.agents.values():
        os.kill(agent.pid, signal.SIGSTOP)
    try:
        shutil.rmtree(cluster.state)
        shutil.copytree(cluster.directory / "backup", cluster.state)
        cluster.start_controller()
        yield
    finally:
        for agent in cluster.agents.values():
            os.kill(agent.pid, signal.SIGCONT)


@pytest.mark.parametrize("ended", [False, True], ids=["runs", "has ended"])
def test_a_job_with_the_number_of_a_later_one_runs_its_own_command(tmp_path, ended):
    with LiveCluster(tmp_path) as cluster:
        known = submit(cluster, "known", FOREVER, restart="never")
        begun(cluster, "known", known)
        cluster.wait_for(known, "running")
        back_up(cluster)
        # Its node hears higher versions of what it shall be than the copy has.
        for verb, state in (("hold", "held"), ("release", "running")):
            cluster.client.post(f"/api/v1/jobs/{known}/{verb}").raise_for_status()
            cluster.wait_for(known, state)
        old = submit(cluster, "old", 1 if ended else FOREVER)
        begun(cluster, "old", old)
        if ended:
            # The agents know its end; the controller has not had them forget it.
            cluster.kill(cluster.controller)
            wait_until(lambda: notes(cluster, "old", old)["end"], "it ends")
        with restored(cluster):
            new = submit(cluster, "new", 2)
            assert new == old
        assert cluster.wait_for(new, "done")["attempt"] == 0
        assert notes(cluster, "new", new) == {"begin": 1, "end": 1}
        assert output(cluster, new) == f"done {new}.0\n"
        # What had the number before is gone, and its output kept beside the other's.
        assert notes(cluster, "old", old) == ({"begin": 1, "end": 1} if ended else {"begin": 1})
        wait_until(lambda: not cluster.leftovers(f"tasks/{old}.0."), "the old one is ended")
        outputs = cluster.directory / "host" / "output"
        wait_until(lambda: len(list(outputs.glob(f"{old}.0.0.*.out.0"))) == 2, "both are kept")
        kept = sorted(outputs.glob(f"{old}.0.0.*.out.0"))
        assert sorted(path.read_text() for path in kept) == sorted([f"done {new}.0\n", f"done {old}.0\n" * ended])
        # The job that the copy knows runs on, is obeyed, and ends once.
        for verb, state in (("hold", "held"), ("release", "running")):
            cluster.client.post(f"/api/v1/jobs/{known}/{verb}").raise_for_status()
            cluster.wait_for(known, state)
        (cluster.directory / "known" / "end").touch()
        assert cluster.wait_for(known, "done")["attempt"] == 0
        assert notes(cluster, "known", known) == {"begin": 1, "end": 1}
        wait_until(lambda: not cluster.leftovers(), "no process left")
        wait_until(lambda: not cluster.groups(), "no control group left")
