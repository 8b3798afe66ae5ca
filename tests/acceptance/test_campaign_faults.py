"""`dfrs campaign` meets what ends programs; the processes and signals are real."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.processes import alive, descendants, kill, until

DFRS = Path(sys.executable).with_name("dfrs")
needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="Dask is not installed")
CELLS = 150
CAMPAIGN = """
name = "faults"
policies = ["FCFS", "EASY", "GreedyPM*/per/OPT=MIN/MVT=600"]

[[workloads]]
model = "lublin"
jobs = 100
nodes = 16
seeds = "1-50"
"""
OFTEN = (
    "from dfrs.experiments import campaign_engine\n"
    "from dfrs.cli.main import main\n"
    "campaign_engine.WRITE_EVERY_S = 0.1\n"
    "main()\n"
)
"""Writes results so often that there are some soon."""
LOOK = (
    "import sys\n"
    "from dfrs.cli.main import main\n"
    "for arguments in (['export', '-o', 'x.csv'], ['export', '-o', 'x.parquet'], ['export', '-o', 'x.html'],\n"
    "                  ['results', '--json']):\n"
    "    sys.argv = ['dfrs', 'campaign', arguments[0], 'c.toml', *arguments[1:]]\n"
    "    try:\n"
    "        main()\n"
    "    except SystemExit as ended:\n"
    "        if ended.code:\n"
    "            raise\n"
)
"""Every verb that tells results, one after the other."""


def folder(directory, text=CAMPAIGN):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "c.toml").write_text(text)
    return directory


def campaign(directory, verb, *arguments):
    return subprocess.run(
        [DFRS, "campaign", verb, "c.toml", *arguments], cwd=directory, capture_output=True, text=True, timeout=120
    )


def started(directory, *arguments):
    """A run in a group of its own, as from a terminal."""
    return subprocess.Popen(
        [sys.executable, "-c", OFTEN, "campaign", "run", "c.toml", *arguments],
        cwd=directory,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def done(directory):
    """How many results are on disk."""
    files = list(directory.glob("c.results/online-*/*.parquet"))
    try:
        return sum(len(pl.read_parquet(path, columns=["key"])) for path in files)
    except FileNotFoundError:  # merged meanwhile
        return done(directory)


def in_the_middle(directory, process):
    """Wait until some results, but not all, are there."""
    assert until(lambda: done(directory) > 0 or process.poll() is not None, seconds=60)
    assert process.poll() is None, process.communicate()
    assert 0 < done(directory) < CELLS


def told(directory):
    """What users get to see of the results, to the byte."""
    looked = subprocess.run([sys.executable, "-c", LOOK], cwd=directory, capture_output=True, timeout=120)
    assert looked.returncode == 0, looked.stderr.decode()
    return {name: (directory / name).read_bytes() for name in ("x.csv", "x.parquet", "x.html")} | {"": looked.stdout}


def one_line(status, error, *words):
    """Exit status 2, and one line that has the words."""
    assert status == 2
    lines = error.strip().splitlines()
    assert len(lines) == 1, error
    assert lines[0].startswith("dfrs: ")
    assert all(word in lines[0] for word in words), lines


def counts(process):
    """Cells, those that were there, those that were run."""
    found = re.search(r"faults: ([\d,]+) runs, ([\d,]+) were there, ([\d,]+) executed", process.stderr)
    assert found, process.stderr
    return [int(number.replace(",", "")) for number in found.groups()]


@pytest.fixture(scope="module", autouse=True)
def unanswered(tmp_path_factory):
    """Asks a scheduler that is not there, which takes seconds: while the other tests run."""
    directory = folder(tmp_path_factory.mktemp("unanswered"))
    process = started(directory, "--dask", "tcp://127.0.0.1:1")
    yield process
    if process.poll() is None:
        kill(process)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a campaign tells that nothing happened to."""
    directory = folder(tmp_path_factory.mktemp("undisturbed"))
    whole = campaign(directory, "run", "--workers", "1")
    assert whole.returncode == 0, whole.stderr
    assert counts(whole) == [CELLS, 0, CELLS]
    seen = told(directory)
    assert json.loads(seen[""])["means"]
    assert len(pl.read_csv(seen["x.csv"])) == len(pl.read_parquet(seen["x.parquet"])) == CELLS
    return seen


def test_a_killed_campaign_goes_on_and_tells_the_same_to_the_byte(undisturbed, tmp_path):
    directory = folder(tmp_path)
    process = started(directory, "--workers", "2")
    in_the_middle(directory, process)
    workers = descendants(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert until(lambda: not any(alive(pid) for pid in workers), seconds=8)
    kept = done(directory)
    assert 0 < kept < CELLS
    state = json.loads(campaign(directory, "status", "--json").stdout)["studies"][0]
    assert (state["done"], state["failed"]) == (kept, 0)
    continued = campaign(directory, "run", "--workers", "2")
    assert continued.returncode == 0, continued.stderr
    assert counts(continued) == [CELLS, kept, CELLS - kept]
    assert told(directory) == undisturbed


@needs_dask
@pytest.mark.slow
def test_a_killed_dask_worker_changes_nothing_that_is_told(undisturbed, tmp_path):
    directory = folder(tmp_path)
    process = started(directory, "--dask-local", "3")
    in_the_middle(directory, process)
    workers = [pid for pid in descendants(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(workers) == 3
    os.kill(workers[1], signal.SIGKILL)
    assert done(directory) < CELLS
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert "Traceback" not in error
    assert told(directory) == undisturbed


@pytest.mark.parametrize(
    "how", [["--workers", "2"], pytest.param(["--dask-local", "2"], marks=[needs_dask, pytest.mark.slow])], ids=" ".join
)
def test_ctrl_c_is_one_line_and_what_was_done_is_kept(how, tmp_path):
    """The terminal sends it to the workers too."""
    directory = folder(tmp_path)
    process = started(directory, *how)
    in_the_middle(directory, process)
    workers = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    beside = ("Dask: ", "Compiling kernels")
    assert [line for line in error.splitlines() if not line.startswith(beside)] == ["dfrs: interrupted"]
    assert until(lambda: not any(alive(pid) for pid in workers), seconds=8)
    kept = done(directory)
    assert 0 < kept < CELLS
    # The rest of another campaign is not needed to see that this one goes on.
    (directory / "c.toml").write_text(CAMPAIGN.replace("1-50", "1-20"))
    continued = campaign(directory, "run", "--workers", "1")
    assert continued.returncode == 0, continued.stderr
    cells, there, run = counts(continued)
    assert cells == 60 == there + run
    assert 0 < there <= kept


def test_two_ways_to_run_at_once_are_one_line(tmp_path):
    directory = folder(tmp_path)
    ran = campaign(directory, "run", "--workers", "2", "--dask-local", "2")
    one_line(ran.returncode, ran.stderr, "--workers", "--dask-local", "one of")
    assert not list(directory.rglob("*.parquet"))


@needs_dask
def test_a_scheduler_that_does_not_answer_is_one_line(unanswered):
    _, error = unanswered.communicate(timeout=60)
    one_line(unanswered.returncode, error, "--dask tcp://127.0.0.1:1", "no scheduler")


@pytest.mark.parametrize(
    "verb", [["run"], ["status"], ["results"], ["export", "-o", "x.csv"]], ids=lambda verb: verb[0]
)
def test_a_store_of_another_format_is_one_line_and_is_left_as_it_is(verb, tmp_path):
    directory = folder(tmp_path)
    (directory / "c.results").mkdir()
    (directory / "c.results" / "store.json").write_text('{"format": "dfrs-store/0"}')
    ran = campaign(directory, *verb)
    one_line(ran.returncode, ran.stderr, "store.json", "dfrs-store/0", "dfrs-store/1")
    assert [path.name for path in (directory / "c.results").iterdir()] == ["store.json"]
    assert not (directory / "x.csv").exists()


WEEKS = """
name = "weeks"
policies = ["FCFS", "EASY"]

[[workloads]]
model = "swf"
file = "t.swf"
weeks = "1-9"
"""


def test_a_part_that_is_not_there_fails_alone_and_status_says_why(tmp_path):
    directory = folder(tmp_path, WEEKS)
    made = subprocess.run(
        [DFRS, "generate", "lublin", "--jobs", "300", "--seed", "1", "-o", "t.swf"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    ran = campaign(directory, "run", "--workers", "1")
    assert ran.returncode == 1, ran.stderr
    state = json.loads(campaign(directory, "status", "--json").stdout)
    study = state["studies"][0]
    assert study["cells"] == 18 == study["done"] + study["failed"]
    assert study["done"] > 0
    assert f"{study['failed']} of 18 runs failed" in ran.stderr
    failed = state["failed"]
    assert len(failed) == study["failed"] > 0
    # Weeks without jobs are those after the last, under every policy.
    weeks = {int(re.search(r"week=(\d+)", cell["cell"])[1]) for cell in failed}
    assert weeks == set(range(min(weeks), 10))
    assert len(failed) == 2 * len(weeks)
    assert all("week" in cell["message"] and "\n" not in cell["message"] for cell in failed)
    plain = campaign(directory, "status")
    assert plain.returncode == 0
    assert failed[0]["message"] in plain.stdout
    assert "Traceback" not in ran.stderr
