"""`dfrs up` and `dfrs down` as a user meets them: real processes on this machine, and nothing left of them."""

import errno
import json
import os
import signal
import subprocess

import pytest

from dfrs.cli.live import down
from dfrs.cli.quantities import show_cores
from dfrs.live import home
from dfrs.live.errors import UnavailableError
from dfrs.live.local import cluster
from tests.live_processes import processes_with
from tests.live_user import DFRS, at_the_command_line, patiently
from tests.processes import alive, script


@pytest.fixture
def user(tmp_path, dfrs, monkeypatch):
    with at_the_command_line(tmp_path, dfrs, monkeypatch) as someone:
        yield someone


def test_a_day_at_the_command_line(user):
    process, told = user.up()
    assert [node["state"] for node in told["nodes"]] == ["up", "up"]
    assert oct((user.state / "client.json").stat().st_mode)[-3:] == "600"
    token = json.loads((user.state / "client.json").read_text())["token"]
    assert not processes_with(token), "a token is in a command line or an environment"
    assert token not in user.logs()
    assert f"{user.state}: a cluster runs there already (process {process.pid})" in user("up", status=1)

    forever = "echo $$; trap '' HUP; while true; do sleep 0.2; done"
    assert user("submit", "--name", "long", "--cpu", 0.5, "--memory", "64M", "--", "sh", "-c", forever) == "job 1\n"
    steps = "for i in 1 2 3; do echo step $i; sleep 0.1; done; echo bad >&2"
    assert user("submit", "--name", "steps", "--memory", "64M", "--", "sh", "-c", steps) == "job 2\n"
    assert user("submit", "--wait", "--memory", "64M", "--", "sh", "-c", "exit 7", status=7)
    assert user("logs", "-f", 2) == "step 1\nstep 2\nstep 3\n"
    assert user("logs", "-f", "--err", 2) == "bad\n"

    assert patiently(lambda: user.state_of(1) == "running")
    assert patiently(lambda: user.state_of(2) == "done")
    assert [job["id"] for job in user.json("queue")] == [1]
    assert {job["id"]: job["exit_code"] for job in user.json("history")} == {2: 0, 3: 7}
    assert user.json("explain", 1)["now"]
    (node,) = [node for node in user.json("nodes") if node["tasks"]]
    assert (node["name"], node["tasks"][0]["job"]) == (user.json("show", 1)["nodes"][0], 1)
    assert "minimum yield" in user("top")
    pid = int(user("logs", 1))
    user("export", "-o", user.folder / "day")
    written = [user.folder / "day", *(user.folder / "day").rglob("*")]
    assert len(written) > 1
    assert all(path.stat().st_mode & 0o077 == 0 for path in written)

    agent = next(pid for pid in processes_with("--name=node-1") if pid in processes_with(str(user.state)))
    os.kill(agent, signal.SIGKILL)
    assert "node-1 was killed by SIGKILL; starting it again" in process.stderr.readline()
    assert patiently(lambda: all(node["state"] == "up" for node in user.json("nodes")))

    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "stopped; 1 job goes on: the next dfrs up finds what is left" in err
    assert alive(pid)
    assert f"no cluster at {told['url']}: connection refused; start one with: dfrs up" in user("queue", status=1)

    assert "dashboard    http://127.0.0.1:" in (shown := user.up_in_background())
    assert "token" not in shown
    assert patiently(lambda: user.state_of(1) == "running")
    assert int(user("logs", 1)) == pid
    assert alive(pid)

    assert "ended: 1 job, 2 agents" in user("down")
    assert patiently(lambda: not alive(pid))
    assert processes_with(str(user.state)) == []
    assert user.groups() == []
    assert "nothing runs in" in user("down")


def test_jobs_that_were_left_behind_are_ended_for_good(user):
    process, _ = user.up()
    user("submit", "--memory", "64M", "--", "sleep", "600")
    assert patiently(lambda: user.state_of(1) == "running")
    process.kill()
    process.wait()
    assert patiently(lambda: not processes_with(f"--state={user.state}")), "the controller did not end with its parent"
    assert user.json("down")["jobs"] == 1
    assert processes_with(str(user.state)) == []
    assert user.groups() == []
    user.up_in_background()
    assert user.json("queue") == []
    assert [job["state"] for job in user.json("history")] == ["cancelled"]


def test_down_needs_no_room_on_the_disk(user, monkeypatch):
    user.up_in_background()
    user("submit", "--memory", "64M", "--", "sh", "-c", "echo $$; exec sleep 600")
    assert patiently(lambda: user("logs", 1).strip())
    pid = int(user("logs", 1))

    def full(*_):
        raise UnavailableError("database or disk is full")

    def full_disk(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(down, "_end_jobs", full)
        for module in (home, cluster):
            disk.setattr(module, "write_private", full_disk)
        disk.setattr(cluster.os, "pwrite", full_disk)
        words = user("down", status=1)
    assert "killed 1 task and ended agents and controller, but: the controller does not know it" in words
    assert "disk is full" in words
    assert not alive(pid)
    assert processes_with(str(user.state)) == []
    assert user.groups() == []
    assert "ended: 1 job, 2 agents, the controller" in user("down")
    assert "nothing runs in" in user("down")


def test_another_number_of_nodes_divides_the_machine_anew(user):
    user.up_in_background("--nodes", 4, "--memory-per-node", "64M")
    four = {node["name"]: node["cpus"] for node in user.json("nodes")}
    user("down")
    shown = user.up_in_background("--nodes", 1)
    nodes = {node["name"]: node for node in user.json("nodes")}
    assert nodes["node-1"]["cpus"] == pytest.approx(sum(four.values()))
    assert nodes["node-1"]["memory_bytes"] > 64 << 20
    assert f"dfrs is up: node-1 ({show_cores(nodes['node-1']['cpus'])} CPU" in shown
    assert "node-2" not in shown
    assert all(node["state"] not in {"up", "silent"} for name, node in nodes.items() if name != "node-1")
    user("down")
    assert user.groups() == []
    user.up_in_background("--nodes", 2)
    states = {node["name"]: node["state"] for node in user.json("nodes")}
    assert patiently(lambda: [user_node["state"] for user_node in user.json("nodes")][:2] == ["up", "up"]), states


def test_an_agent_that_was_started_by_hand_keeps_its_node(user):
    process, told = user.up("--nodes", 1, "--memory-per-node", "256M")
    where = ["--server", told["url"], "--token-file", user.state / home.AGENT_FILE]
    size = ["--name", "mine", "--memory", "64M", "--cores", "0.5"]
    agent = subprocess.Popen([*DFRS, "agent", *where, *size], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    user.foreground.append(agent)

    def is_up():
        return any((node["name"], node["state"]) == ("mine", "up") for node in user.json("nodes"))

    assert patiently(is_up)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    user.up("--port", told["url"].rpartition(":")[2])
    assert patiently(is_up)
    words = user("down", status=1)
    assert f"ended agents and controller, but: node mine of {user.state / 'host'} has an agent that dfrs up" in words
    assert agent.poll() is None
    agent.terminate()
    agent.wait(60)
    user("down")
    assert user.groups() == []


def test_under_nohup_it_stays_whoever_logs_out(user):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process, _ = user.up("--nodes", 1, "--memory-per-node", "256M")
    finally:
        signal.signal(signal.SIGHUP, before)
    os.killpg(process.pid, signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


IN_BACKGROUND = """
import sys
from pathlib import Path
from dfrs.cli.live.up import _in_background
from dfrs.model.errors import DfrsError
def run(ready):
    if sys.argv[3] == "late":
        ready()
    raise {"DfrsError": DfrsError, "ValueError": ValueError}[sys.argv[2]]("no such luck")
try:
    _in_background(Path(sys.argv[1]), run)
except DfrsError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("error", "when", "logged"),
    [
        ("ValueError", "early", "ValueError: no such luck"),
        ("ValueError", "late", "ValueError: no such luck"),
        ("DfrsError", "early", "dfrs: no such luck"),
        ("DfrsError", "late", "dfrs: no such luck"),
    ],
)
def test_why_the_background_has_ended_is_in_its_log(tmp_path, error, when, logged):
    with script(IN_BACKGROUND, tmp_path, error, when) as process:
        said, problems = process.communicate(timeout=60)
    assert (said, problems) == ("" if when == "late" else "no such luck\n", "")

    def log():
        return (tmp_path / "log" / "up.log").read_text()

    assert patiently(lambda: log().endswith(f"{logged}\n")), log()
    assert log().count("Traceback") == (error == "ValueError")


def test_what_is_refused_is_not_remembered(user):
    for option, value in (("--policy", "NOPE"), ("--discovery", "NOPE"), ("--memory-per-node", "900T")):
        for background in ((), ("--detach",)):
            process = subprocess.run([*DFRS, "up", option, value, *background], capture_output=True, text=True)
            assert (process.returncode, process.stdout, len(process.stderr.splitlines())) == (2, "", 1), process.stderr
    assert not (user.state / "up.json").exists()
    user("down")
    file = user.folder / "file"
    file.touch()
    for verb in (["up"], ["up", "--detach"], ["down"]):
        assert f"{file}: must be a directory" in user(*verb, "--state", file, status=2)
