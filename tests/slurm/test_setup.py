"""`dfrs slurm` on a real Slurm: from a site's own files to a job that is held, and back."""

import os
import sys

import pytest

from dfrs.live.backends.slurm.setup.conf_file import read_conf
from tests.processes import until
from tests.slurm_cluster import SlurmCluster

SITE = """SelectType=select/cons_tres  # not whole nodes
selecttypeparameters=cr_core_memory
TaskPlugin=task/affinity,\\
task/cgroup
PROCTRACKTYPE = proctrack/cgroup
SchedulerParameters=batch_sched_delay=2,\\
bf_window=100
Include partitions.conf
"""
PARTITIONS = """PartitionName=DEFAULT State=UP MaxTime=60
PartitionName=main Nodes=n1 Default=YES \\ # of these
   DefMemPerCPU=50
PartitionName=other Nodes=n2 DefMemPerCPU=50
"""
NOBODY = 65534
AS_USER = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@pytest.fixture(scope="module")
def site():
    with SlurmCluster(2, conf=SITE, files={"partitions.conf": PARTITIONS}, accounting=False) as cluster:
        yield cluster


def dfrs(site, *words, check=True):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return site.run(sys.executable, "-m", "dfrs.cli.main", "slurm", *words, env=environment, check=check).stdout


def sbatch(site, *options, wrap="sleep 600", check=True):
    words = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options, "--wrap", wrap]
    return site.run(*AS_USER, *words, check=check)


def submit(site, *options):
    return int(sbatch(site, *options).stdout)


def comment(site, job):
    """Of the first part, if it is an array."""
    lines = site.scontrol("show", "job", job).splitlines()
    return next((line.strip().removeprefix("Comment=").strip() for line in lines if "  Comment=" in line), "")


def is_held(site, job):
    found = site.job(job)
    return (found["JobState"], found["Priority"]) == ("PENDING", "0")


@pytest.fixture(scope="module")
def managed(site):
    """As `dfrs slurm install` leaves it."""
    before = dfrs(site, "check", check=False)
    assert before.count("\nwrong") >= 3
    site.before = {path.name: path.read_text() for path in (site.folder / "etc").iterdir()}
    dfrs(site, "install", "--yes")
    site.reconfigure()
    return site


def test_what_is_read_is_what_slurm_reads(site):
    conf = read_conf(site.conf)
    lines = [line.partition("=") for line in site.scontrol("show", "config").splitlines() if "=" in line]
    shown = {key.strip().lower(): value.strip() for key, _, value in lines}
    for key in ("SelectType", "TaskPlugin", "ProctrackType", "SchedulerParameters", "ReturnToService"):
        assert conf.get(key) == shown[key.lower()]
    words = dict(word.split("=", 1) for word in site.scontrol("-o", "show", "partition", "main").split())
    assert (words["Nodes"], words["Default"], words["DefMemPerCPU"]) == ("n1", "YES", "50")
    main = conf.managed(None)
    assert (main.name, conf.nodes(main), main.get("DefMemPerCPU"), main.get("MaxTime")) == ("main", {"n1"}, "50", "60")


def test_jobs_of_the_partition_are_held_and_others_are_not(managed):
    assert "wrong" not in dfrs(managed, "check")
    held = submit(managed, "--comment=dfrs: cpu=0.5 min-yield=0.2; my run")
    array = submit(managed, "--array=0-3", "--partition=main")
    other = submit(managed, "--partition=other")
    managed.await_job(other, "RUNNING")
    assert is_held(managed, held)
    assert is_held(managed, f"{array}_2")
    assert comment(managed, held) == "dfrs: cpu=0.5 min-yield=0.2; my run"

    # Whoever decides starts as many as share a CPU.
    more = [submit(managed) for _ in range(2)]
    for job in (held, *more):
        managed.scontrol("update", f"jobid={job}", "ReqNodeList=n1")
        managed.scontrol("release", job)
    for job in (held, *more):
        managed.await_job(job, "RUNNING")
    managed.run("scancel", held, array, other, *more)


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ("--comment=dfrs: cpu=2", "--comment: cpu=2: must be at most the job's CPUs, 1"),
        ("--comment=dfrs: cpu=0", "--comment: cpu=0: must be a number of cores above 0"),
        ("--comment=dfrs: cpu=nan", "--comment: cpu=nan: must be a number of cores above 0"),
        ("--comment=dfrs: min-yield=1.5", "--comment: min-yield=1.5: must be a number from 0 to 1"),
        ("--comment=dfrs: mem=1", "--comment: mem=1: must be cpu=CORES, min-yield=FRACTION or held"),
        ("--comment=DFRS cpu=1", '--comment: must begin with "dfrs:"'),
        ("--nodes=2", "--nodes=2: must be 1 in partition main"),
        ("--partition=main,other", "--partition=main,other: must be one partition: dfrs decides for main"),
    ],
)
def test_what_cannot_be_read_is_refused(managed, option, rule):
    done = sbatch(managed, option, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"sbatch: error: dfrs: {rule}"


def test_a_hold_of_its_user_is_kept_apart(managed):
    job = submit(managed, "--hold", "--comment=my run")
    assert comment(managed, job) == "dfrs: held; my run"
    for verb, text in (("release", "my run"), ("hold", "dfrs: held; my run"), ("release", "my run")):
        managed.run(*AS_USER, "scontrol", verb, job)
        assert comment(managed, job) == text
        assert is_held(managed, job)
    array = submit(managed, "--array=0-1", "--hold")
    managed.run(*AS_USER, "scontrol", "release", array)
    assert comment(managed, array) == "dfrs:"

    for change in ("comment=dfrs: cpu=x", "partition=other"):
        assert managed.run(*AS_USER, "scontrol", "update", f"jobid={job}", change, check=False).returncode == 1
    assert comment(managed, job) == "my run"
    managed.run("scancel", job, array)


def test_the_way_back(managed):
    held = submit(managed, "--hold")
    waits = submit(managed, f"--comment=it's\n{held}")
    array, paused = submit(managed, "--array=0-2"), submit(managed)
    managed.run(*AS_USER, "scontrol", "hold", f"{array}_2")
    managed.scontrol("release", paused)
    managed.await_job(paused, "RUNNING")
    managed.scontrol("suspend", paused)

    shown = dfrs(managed, "uninstall", "--yes")
    now = {path.name: path.read_text() for path in (managed.folder / "etc").iterdir() if ".before-" not in path.name}
    assert now == managed.before
    managed.reconfigure()
    command = shown.splitlines()[-1].split()
    assert command[:3] == ["dfrs", "slurm", "give-back"]
    assert "to release: 3 jobs\nleft held: 2 jobs\n" in dfrs(managed, *command[2:-1])
    assert dfrs(managed, *command[2:]) == "resumed: 1 job\nreleased: 3 jobs\nleft held: 2 jobs\n"
    # Nobody shares any more: one runs, the others wait for it, and not for dfrs.
    assert managed.await_job(paused, "RUNNING") == "RUNNING"
    assert not is_held(managed, waits)
    assert not is_held(managed, f"{array}_1")
    assert is_held(managed, f"{array}_2")
    managed.run("scancel", paused)
    assert until(lambda: ["RUNNING"] in managed.squeue("State"))
    assert is_held(managed, held)
    managed.run("scancel", waits, held, array)
