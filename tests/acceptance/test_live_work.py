"""Exports of a real cluster beside a program that is no job: work is what the programs of jobs say they did."""

import json
import subprocess
import sys
from contextlib import contextmanager

import polars as pl
import pytest

from tests.live_user import at_the_command_line, patiently

COMPUTES = """
import json, os, sys, time
while time.process_time() < float(sys.argv[1]):
    sum(range(1000))
print(json.dumps({"alone_s": sum(os.times()[:2])}))
"""
SLEEPS = """
import json, os, sys, time
time.sleep(float(sys.argv[1]))
print(json.dumps({"alone_s": float(sys.argv[1]) + sum(os.times()[:2])}))
"""
POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"


@pytest.fixture
def user(tmp_path, dfrs, monkeypatch):
    with at_the_command_line(tmp_path, dfrs, monkeypatch) as someone:
        yield someone


@contextmanager
def hog():
    """A process that computes as long as the block lasts."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_work_is_what_programs_did_whatever_ran_beside_them(user):
    with hog():
        user.up_in_background("--nodes", 2, "--policy", POLICY)
        for options, program, seconds in (
            (("--cpu", 1), COMPUTES, 4),
            ((), SLEEPS, 8),
            (("--array", 3), COMPUTES, 1.5),
        ):
            user("submit", *options, "--memory", "64M", "--", sys.executable, "-c", program, seconds)
        assert patiently(lambda: user.json("queue") == [])
        said = {job: json.loads(user("logs", job)) for job in range(1, 6)}
        day = user.folder / "day"
        user("export", "-o", day)
    jobs = pl.read_csv(day / "jobs.csv")
    work_s = dict(jobs.select("job_id", "processing_time").iter_rows())
    for job, alone_s in ((job, each["alone_s"]) for job, each in said.items()):
        # A second at the most is before the first look at it and after the last one.
        assert work_s[job] == pytest.approx(alone_s, rel=0.05, abs=1.0), jobs
    needs = dict(jobs.select("job_id", "cpu_need").iter_rows())
    cores = json.loads((day / "log.jsonl").read_text().splitlines()[0])["reference_cores"]
    assert needs[2] * cores < 0.1
    assert all(needs[job] * cores > 0.5 for job in (1, 3, 4, 5)), needs
    assert "valid" in user("validate", day)
    assert "all as recorded" in user("simulate", "--from-log", day)
    user("simulate", "--from-log", day, "-p", POLICY, "-p", "EASY", "-o", user.folder / "replayed")
    assert user("validate", user.folder / "replayed").count(": valid: 5 jobs") == 2
