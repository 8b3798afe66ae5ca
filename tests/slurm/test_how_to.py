"""The administrator's way: each command of the page, as it is there, on a Slurm that has just been installed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import kill, until
from tests.slurm_cluster import SlurmCluster

PAGE = Path(__file__).parents[2] / "docs/how-to/slurm.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page():
    """Commands of each part, and files."""
    blocks = BLOCK.findall(PAGE.read_text())
    return [body.splitlines() for kind, _, body in blocks if kind == "sh"], {name: body for _, name, body in blocks}


@pytest.fixture(scope="module")
def machine(page, tmp_path_factory):
    """It has Slurm's daemons, and the page's files are in its administrator's directory."""
    with SlurmCluster(1, accounting=False) as cluster:
        cluster.desk = tmp_path_factory.mktemp("desk")
        for name, text in page[1].items():
            if name:
                (cluster.desk / name).write_text(here(cluster, text))
        (cluster.desk / "dfrs").write_text(f'#!/bin/sh\nexec {sys.executable} -m dfrs.cli.main "$@"\n')
        (cluster.desk / "dfrs").chmod(0o755)
        cluster.started = []
        yield cluster
        end(cluster)


def here(cluster, text):
    """The cluster is there under its name, and its hosts share an address."""
    text = text.replace("ClusterName=example", "ClusterName=tests\nSlurmdParameters=config_overrides")
    text = text.replace("SlurmctldHost=ctl", f"SlurmctldHost=ctl({cluster.address})")
    return text.replace("NodeName=n1", f"NodeName=n1 NodeAddr={cluster.address} Port=17001")


def environment(cluster):
    path = f"{cluster.desk}:{os.environ['PATH']}"
    # What a shell of root has: nothing is to be found where whoever runs the tests has theirs.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DFRS_", "XDG_"))}
    # But for kernels, which take a minute to compile.
    kept["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return kept | {"PATH": path, "HOME": str(cluster.desk), "PYTHONPATH": os.pathsep.join(sys.path)}


def carry_out(cluster, line):
    words = shlex.split(line)
    if words[0] == "apt-get":
        packages = [word for word in words[2:] if not word.startswith("-")]
        return subprocess.run(["dpkg", "--status", *packages], capture_output=True, text=True, check=True)
    if words[0] == "systemctl":
        return cluster.reconfigure()
    if words[-1] == "&":
        return start(cluster, line.removesuffix("&"))
    shell = ("sh", "-c", f"cd {cluster.desk} && {line}")
    done = cluster.run(*shell, env=environment(cluster), check=False)
    # A check before anything was done finds something wrong.
    assert done.returncode == 0 or line.startswith("dfrs slurm check"), done.stdout + done.stderr
    return done


def start(cluster, line):
    host = "n1" if "share-agent" in line else "ctl"
    path = cluster.desk / f"{host}.log"
    with path.open("w") as log:
        words = [*cluster.inside(host), "sh", "-c", f"exec {line}"]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(cluster))
    cluster.started.append(process)
    token = cluster.desk / ".local/state/dfrs/agent.token"
    assert until(lambda: token.exists() or process.poll() is not None, 240)
    assert process.poll() is None, path.read_text()


def test_from_packages_to_a_first_fractional_job(machine, page):
    first = page[0][0]
    assert len(first) <= 10
    said = [carry_out(machine, line) for line in first]
    checks = [done for line, done in zip(first, said, strict=True) if line.startswith("dfrs slurm check")]
    assert [done.returncode for done in checks] == [1, 0]
    assert "wrong" not in checks[1].stdout
    assert until(lambda: machine.squeue("State") == [["RUNNING"]] * 2, 120), (machine.desk / "ctl.log").read_text()
    rows = carry_out(machine, first[-1]).stdout.splitlines()[1:]
    assert [row.split()[1:5] for row in rows] == [["RUNNING", "n1", "dfrs:", "cpu=0.5"]] * 2
    weights = machine.group("cpu", "n1")
    assert until(lambda: len(shares(weights)) == 2), shares(weights)
    assert len(set(shares(weights))) == 1


def shares(group):
    """Weights of jobs."""
    return [int(path.read_text()) for path in group.rglob("job_*/cpu.shares")]


def test_and_back(machine, page):
    before = {name: (machine.desk / name).read_text() for name in ("slurm.conf", "cgroup.conf")}
    waits = carry_out(machine, 'sbatch --parsable --mem 900 --wrap "sleep 300"').stdout.strip()
    end(machine)
    for line in page[0][1]:
        carry_out(machine, line)
    assert {name: (machine.folder / "etc" / name).read_text() for name in before} == before
    assert not (machine.folder / "etc" / "job_submit.lua").exists()
    assert machine.job(waits)["Priority"] != "0"


def end(cluster):
    """Ends what was left to run."""
    while cluster.started:
        kill(cluster.started.pop())
