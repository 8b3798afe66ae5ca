"""A restartable job on a real node whose pauses keep memory: it goes when its memory is needed, and comes back."""

import sys

import pytest

from tests.live_user import at_the_command_line, patiently

SAVES = """
import pathlib, signal, sys, time
seen = pathlib.Path("seen")
done = int(seen.read_text()) if seen.exists() else 0
print("from", done, flush=True)
def save(*_):
    seen.write_text(str(done))
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
while done < 30:
    time.sleep(0.1)
    done += 1
print("done", flush=True)
"""
POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"


@pytest.fixture
def user(tmp_path, dfrs, monkeypatch):
    monkeypatch.setenv("DFRS_CRIU", str(tmp_path / "none"))
    with at_the_command_line(tmp_path, dfrs, monkeypatch) as someone:
        yield someone


def test_it_gives_its_memory_to_a_newcomer_and_begins_anew(user):
    user.up_in_background("--nodes", 1, "--memory-per-node", "256M", "--swap-per-node", "0", "--policy", POLICY)
    user("submit", "--restartable", "--memory", "200M", "--", sys.executable, "-c", SAVES)
    assert patiently(lambda: "from 0" in user("logs", 1))
    user("submit", "--memory", "200M", "--", "sleep", 2)
    assert patiently(lambda: user.state_of(2) == "running")
    assert user.state_of(1) == "waiting"
    # The newcomer had to wait until its memory was there.
    assert (user.folder / "seen").exists()
    assert patiently(lambda: user.json("queue") == [])
    assert [user.state_of(job) for job in (1, 2)] == ["done", "done"]
    assert "requeue: gave way to a submitted job" in user("explain", 1)
    begun = user("logs", 1).splitlines()
    assert begun[0].startswith("from ")
    assert 0 < int(begun[0].split()[1]) < 30
    assert begun[-1] == "done"
    user("export", "-o", "day")
    assert "1 jobs" not in user("validate", "day")
    assert "--restart never" in user("submit", "--restartable", "--restart", "never", "--", "true", status=2)
