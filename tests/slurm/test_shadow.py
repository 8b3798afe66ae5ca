"""`dfrs slurm shadow` beside a real Slurm, into which the day of the docs is replayed in compressed time."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dfrs.workloads.slurm.reading import read_accounting
from tests.processes import kill, until
from tests.slurm_cluster import Node, SlurmCluster, why_not

PAGE = Path(__file__).parents[2] / "docs/how-to/replay-a-slurm-day.md"
SPEED = 1200.0
CONF = """ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=batch_sched_delay=0,bf_interval=1
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
POLICIES = ("-p", "GreedyPM*/per/OPT=MIN/MVT=600", "-p", "EASY")
RUNS = ("GreedyPM+_per_OPT=MIN_MVT=600", "EASY")
FILES = ("jobs.csv", "events.csv", "summary.json")
BURN = "timeout 0.5 sh -c 'while :; do :; done'; sleep {:.2f}"

pytestmark = [pytest.mark.long, pytest.mark.skipif(why_not() != "", reason=f"Slurm: {why_not()}")]


@pytest.fixture
def slurm():
    nodes = {name: Node(cpus=8, memory_mb=32000) for name in ("n1", "n2")}
    with SlurmCluster(nodes, conf=CONF) as cluster:
        yield cluster


def the_day(folder):
    """Its records, by when they were submitted."""
    path = folder / "day.txt"
    found = re.search(r"^```text file=day\.txt\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    path.write_text(found[1])
    return sorted((each for each in read_accounting(path).records if each.ran), key=lambda each: each.submit)


def submit(slurm, day):
    begin_s = time.monotonic()
    for record in day:
        time.sleep(max(0.0, begin_s + (record.submit - day[0].submit) / SPEED - time.monotonic()))
        size = (f"--nodes={record.nodes}", f"--ntasks={record.nodes}", f"--cpus-per-task={record.cpus // record.nodes}")
        wrap = BURN.format(record.elapsed_s / SPEED)
        slurm.sbatch("--chdir=/", *size, f"--mem={record.requested / 2**20:.0f}", "--time=5", wrap=wrap)


def test_a_day_gives_what_the_same_accounting_gives(slurm, tmp_path):
    seen, made = tmp_path / "seen", tmp_path / "made"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TZ": "UTC", "COLUMNS": "150"}
    dfrs = [*slurm.inside(), sys.executable, "-m", "dfrs.cli.main"]
    words = ["slurm", "shadow", "--partition", "main", "--every", "5s", *POLICIES, "-o", str(seen)]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        shadow = subprocess.Popen([*dfrs, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
    try:
        assert until(lambda: (seen / "sacct.txt").exists() or shadow.poll() is not None, 120)
        day = the_day(tmp_path)
        submit(slurm, day)
        assert until(lambda: not slurm.squeue("JobID"), 180)
        ended = ("sacct", "-nXP", "--allusers", "--starttime=now-1hour", "--format=State")
        assert until(lambda: slurm.run(*ended).stdout.split() == ["COMPLETED"] * len(day), 60)
        shadow.send_signal(signal.SIGTERM)
        assert shadow.wait(240) == 0, (tmp_path / "err").read_text()
    finally:
        kill(shadow)

    told = (tmp_path / "err").read_text()
    since = re.findall(r"--since (\S+)", told)[-1]
    assert f"sacct.txt: {len(day)} jobs of {len(day)} records" in told
    assert "\nas it was " in (tmp_path / "out").read_text()
    made.mkdir()
    columns = re.search(r"--format=(JobID\S+)", PAGE.read_text())[1]
    sacct = ("sacct", "--allusers", "--duplicates", "--parsable2", "--starttime", since, f"--format={columns}")
    (made / "sacct.txt").write_text(slurm.run(*sacct, env=environment).stdout)
    (made / "nodes.txt").write_text(slurm.scontrol("show", "nodes"))
    words = ["--from-sacct", str(made / "sacct.txt"), "--from-sinfo", str(made / "nodes.txt"), "--since", since]
    again = [*dfrs, "simulate", *words, "--pauses", "keep", "--moves", "none", *POLICIES, "-o", str(made)]
    subprocess.run(again, check=True, capture_output=True, env=environment)
    for run in RUNS:
        for name in FILES:
            assert (seen / run / name).read_bytes() == (made / run / name).read_bytes(), f"{run}: {name}"
    assert (seen / "as-it-was.csv").read_bytes() == (made / "as-it-was.csv").read_bytes()
