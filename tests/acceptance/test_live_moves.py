"""Jobs that go from host to host, as root meets it: nothing that they say is lost or said twice."""

import itertools
import os
import shutil
import sys

import pytest

from tests.images import NEEDS_CRIU
from tests.installed_policy import installed
from tests.kills import Kills
from tests.live_processes import wait_until
from tests.live_user import at_the_command_line, patiently
from tests.small_policies import Turn

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root, and ip of iproute2"),
    NEEDS_CRIU,
]
PROGRAM = """
import os, sys, time
mib, numbers = map(int, sys.argv[1:])
data = bytearray()
for _ in range(mib):
    data += os.urandom(1 << 19) + bytes(1 << 19)
said = sum(data[::4099])
for number in range(numbers):
    assert number % 64 or sum(data[::4099]) == said
    print(number, time.time(), flush=True)
    time.sleep(0.02)
"""
LONG_S = 300.0


def turning():
    """Three times: a machine on which moves take longer than the time between them gets on, too."""
    return Turn(8.0, 2.0)


@pytest.fixture
def user(tmp_path, dfrs, monkeypatch):
    monkeypatch.setenv("DFRS_IMAGES", "4G")
    for name, value in installed(tmp_path / "policy", "Turning", "tests.acceptance.test_live_moves:turning").items():
        monkeypatch.setenv(name, value)
    with at_the_command_line(tmp_path, dfrs, monkeypatch) as someone:
        yield someone


def moves_of(user, job):
    return user.json("show", job)["migrations"]


def gaps(user, job, count, *options):
    """Between two numbers of one task each: all must have been said, in order. How long they are depends on what else
    the machine does: `python -m benchmarks.live_images` measures them on a quiet one."""
    rows = [line.split() for line in user("logs", job, *options).splitlines()]
    assert [int(number) for number, _ in rows] == list(range(count))
    times = [float(time_s) for _, time_s in rows]
    return sorted((after - before for before, after in itertools.pairwise(times)), reverse=True)


def test_a_process_of_512_mb_moves_between_hosts(user):
    user.up("--hosts", 2, "--memory-per-node", "800M", "--policy", "Turning")
    user("submit", "--cpu", 0.8, "--memory", "620M", "--", sys.executable, "-c", PROGRAM, 512, 1200)
    wait_until(lambda: moves_of(user, 1) >= 2, "it has moved twice")
    assert patiently(lambda: user.state_of(1) == "done", LONG_S)
    found = gaps(user, 1, 1200)
    print(f"gaps of {found[0]:.2f} s and {found[1]:.2f} s")
    assert not list(user.state.glob("hosts/*/images/*"))


def test_a_job_of_four_tasks_moves_between_hosts(user):
    user.up("--hosts", 2, "--memory-per-node", "600M", "--policy", "Turning")
    user("submit", "--tasks", 4, "--cpu", 0.2, "--memory", "100M", "--", sys.executable, "-c", PROGRAM, 32, 1000)
    wait_until(lambda: moves_of(user, 1) >= 2, "it has moved twice")
    assert patiently(lambda: user.state_of(1) == "done", LONG_S)
    for rank in range(4):
        gaps(user, 1, 1000, "--rank", rank)
    assert not list(user.state.glob("hosts/*/images/*"))


def test_whoever_is_killed_no_job_is_lost_or_says_anything_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("DFRS_IMAGES", "2G")
    with Kills(tmp_path, 20.0, 5) as kills:
        jobs = kills.submit()
        for _ in range(5):
            kills.strike()
        assert kills.problems(jobs) == []
