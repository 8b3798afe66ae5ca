"""`dfrs simulate` as a user meets it; interrupted runs are real processes that get real signals."""

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dfrs.model import writing
from dfrs.model.errors import InputError
from dfrs.runs.directory import FILES, read_run
from tests.naive.progress import replayed

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("dfrs.policies.names") is None, reason="there are no policies to name yet"
)
DFRS = Path(sys.executable).with_name("dfrs")
RUN = (
    "import os, signal, sys\n"
    "from dfrs.experiments import simulations\n"
    "from dfrs.cli.main import main\n"
    "from dfrs.simulator import simulation as run\n"
    "number, jobs = int(sys.argv.pop(1)), int(sys.argv.pop(1))\n"
    "run.WATCHED, simulations.SAVE_EVERY_S = 1, 0.0\n"
    "whole = run.Simulation.run\n"
    "def stopped(self, watch=None):\n"
    "    def look(done):\n"
    "        going_on = watch(done)\n"
    "        if done == jobs and going_on:\n"
    "            os.kill(os.getpid(), number)\n"
    "        return going_on\n"
    "    return whole(self, look)\n"
    "run.Simulation.run = stopped\n"
    "main()\n"
)
"""Sends itself the signal once so many jobs are done."""


def swf(path, jobs=60, nodes=8, seed=1):
    """A trace of jobs that take a fraction of an hour."""
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.integers(0, 300, jobs))
    lines = [f"; MaxNodes: {nodes}", f"; MaxProcs: {nodes}"]
    for k in range(jobs):
        run_s, tasks = int(rng.integers(1, 2000)), int(rng.integers(1, nodes + 1))
        fields = [k + 1, submit[k], 0, run_s, tasks, -1, -1, tasks, run_s * 2, -1, 1, k % 4, 1, 1, 1, 1, -1, -1]
        lines.append(" ".join(map(str, fields)))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path):
    swf(tmp_path / "t.swf")
    return tmp_path


def simulate(folder, *arguments):
    return subprocess.run(
        [DFRS, "simulate", "t.swf", "--no-bound", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def signalled(folder, number, jobs, *arguments):
    return subprocess.run(
        [sys.executable, "-c", RUN, str(int(number)), str(jobs), "simulate", "t.swf", "--no-bound", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def contents(directory):
    return [(directory / name).read_bytes() for name in FILES]


@pytest.mark.parametrize(
    ("policy", "slug", "number"),
    [
        ("EASY", "EASY", signal.SIGTERM),
        ("GreedyPM*/per/OPT=MIN/MVT=600", "GreedyPM+_per_OPT=MIN_MVT=600", signal.SIGINT),
    ],
)
def test_an_interrupted_run_is_a_valid_partial_run_and_is_continued_to_the_same_bytes(folder, policy, slug, number):
    done = simulate(folder, "-p", policy, "-o", "whole")
    assert done.returncode == 0, done.stderr
    directory = folder / "stopped" / slug
    stopped = signalled(folder, number, 20, "-p", policy, "-o", "stopped")
    assert stopped.returncode == 130, stopped.stderr
    assert "Traceback" not in stopped.stderr
    run = read_run(directory)
    assert not run.complete
    assert 0 < np.isfinite(run.finish_s).sum() < len(run.workload)
    replayed(run)
    assert (directory / "checkpoint.npz").exists()
    continued = simulate(folder, "-p", policy, "-o", "stopped", "--resume")
    assert continued.returncode == 0, continued.stderr
    assert contents(directory) == contents(folder / "whole" / slug)
    assert sorted(path.name for path in directory.iterdir()) == sorted(FILES)


def test_a_killed_run_leaves_no_run_but_its_state_and_is_continued_to_the_same_bytes(folder):
    assert simulate(folder, "-p", "EASY", "-o", "whole").returncode == 0
    killed = signalled(folder, signal.SIGKILL, 20, "-p", "EASY", "-o", "killed")
    assert killed.returncode == -signal.SIGKILL
    left = sorted(path.name for path in (folder / "killed" / "EASY").iterdir())
    assert "checkpoint.npz" in left
    assert all(name.startswith("checkpoint") for name in left)
    assert simulate(folder, "-p", "EASY", "-o", "killed", "--resume").returncode == 0
    assert contents(folder / "killed" / "EASY") == contents(folder / "whole" / "EASY")


def test_a_run_that_is_killed_while_it_replaces_another_is_continued_to_the_same_bytes(folder):
    assert simulate(folder, "-p", "EASY", "-o", "whole").returncode == 0
    assert simulate(folder, "-p", "EASY", "-o", "killed", "--penalty", 20).returncode == 0
    killed = signalled(folder, signal.SIGKILL, 20, "-p", "EASY", "-o", "killed")
    assert killed.returncode == -signal.SIGKILL
    continued = simulate(folder, "-p", "EASY", "-o", "killed", "--resume")
    assert continued.returncode == 0, continued.stderr
    assert contents(folder / "killed" / "EASY") == contents(folder / "whole" / "EASY")


def test_a_run_interrupted_before_any_job_is_done_is_shown_and_continued(folder):
    stopped = signalled(folder, signal.SIGINT, 0, "-p", "FCFS", "-o", "runs")
    assert stopped.returncode == 130, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert simulate(folder, "-p", "FCFS", "-o", "runs", "--resume").returncode == 0
    assert read_run(folder / "runs" / "FCFS").complete


def test_json_is_one_document_with_the_summary_of_each_run(folder):
    done = simulate(folder, "-p", "FCFS", "-p", "EASY", "-o", "runs", "--json")
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["policy"] for run in runs] == ["FCFS", "EASY"]
    for run in runs:
        stored = json.loads((folder / run["directory"] / "summary.json").read_text())
        assert {**stored, "directory": run["directory"]} == run


def test_resuming_keeps_complete_runs_and_refuses_runs_of_other_settings(folder):
    assert simulate(folder, "-p", "FCFS", "-o", "runs").returncode == 0
    before = (folder / "runs" / "FCFS" / "jobs.csv").stat().st_mtime_ns
    assert simulate(folder, "-p", "FCFS", "-o", "runs", "--resume").returncode == 0
    assert (folder / "runs" / "FCFS" / "jobs.csv").stat().st_mtime_ns == before
    other = simulate(folder, "-p", "FCFS", "-o", "runs", "--resume", "--penalty", 20)
    assert other.returncode == 2
    assert "other settings" in other.stderr


def test_where_a_run_cannot_be_written_is_told_before_anything_is_simulated(folder):
    (folder / "runs").mkdir()
    (folder / "runs/EASY").write_text("mine")
    policies = ("-p", "FCFS", "-p", "EASY")
    for place, words in (
        ("runs", "runs/EASY: cannot make the directory: there is a file of that name"),
        ("/proc/runs", "/proc/runs/FCFS: cannot write: No such file or directory"),
    ):
        done = simulate(folder, *policies, "-o", place)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.splitlines()[-1] == f"dfrs: {words}"
        assert [path.name for path in (folder / "runs").iterdir()] == ["EASY"]


def test_runs_that_are_kept_are_shown_also_where_nothing_can_be_written(folder, dfrs, monkeypatch):
    command = ("simulate", folder / "t.swf", "-p", "FCFS", "--no-bound", "-o", folder / "runs")
    assert dfrs(*command)[0] == 0

    def full(path):
        raise InputError(f"{path}: cannot write: Read-only file system")

    monkeypatch.setattr(writing, "require_directory", full)
    assert dfrs(*command, "--resume")[0] == 0
    assert dfrs(*command)[0] == 2


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04garbage"])
def test_a_broken_checkpoint_is_one_line(folder, content):
    directory = folder / "runs" / "FCFS"
    directory.mkdir(parents=True)
    (directory / "checkpoint.npz").write_bytes(content)
    done = simulate(folder, "-p", "FCFS", "-o", "runs", "--resume")
    assert done.returncode == 2
    assert "checkpoint.npz" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["-p", "NOBODY"], "NOBODY"),
        (["-p", "FCFS", "--order", "random"], "--order"),
        (["-p", "FCFS", "--bandwidth", 0], "--bandwidth"),
        (["-p", "FCFS", "--node-file", "none.csv"], "none.csv"),
        (["-p", "FCFS", "--node-events", "far.csv"], "node"),
        (["-p", "FCFS", "-p", "FCFS"], "same directory"),
    ],
)
def test_bad_settings_are_one_line_and_status_two(folder, arguments, word):
    (folder / "far.csv").write_text("time_s,node,condition\n1e4,99,down\n")
    done = simulate(folder, *arguments, "-o", "runs")
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr
