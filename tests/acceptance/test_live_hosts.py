"""`dfrs up --hosts` as root meets it: hosts that share nothing but files, and nothing left of them."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from dfrs.live.local.hosts import address
from tests.live_processes import processes_with
from tests.live_user import DFRS, at_the_command_line, patiently
from tests.processes import alive

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root, and ip of the package iproute2"
)
THREE = ("--hosts", 3, "--memory-per-node", "256M")
MEET = """
import json, os, socket, sys, time
rank, peers = int(os.environ["DFRS_RANK"]), os.environ["DFRS_PEERS"].split(",")
server = socket.create_server(("", 5055))
for peer in peers[:rank] + peers[rank + 1:]:
    while True:
        try:
            with socket.create_connection((peer, 5055), 1) as other:
                other.sendall(socket.gethostname().encode())
            break
        except OSError:
            time.sleep(0.05)
heard = []
for _ in peers[1:]:
    with server.accept()[0] as other:
        heard.append(other.recv(64).decode())
print(json.dumps({
    "host": socket.gethostname(),
    "known_as": [socket.gethostbyname(f"host{k}") for k in (1, 2, 3)],
    "peers": peers,
    "heard": sorted(heard),
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "commands": [open(f"/proc/{pid}/cmdline").read() for pid in os.listdir("/proc") if pid.isdigit()],
    "others": os.listdir(sys.argv[1]),
    "memory": os.listdir("/dev/shm"),
}))
"""
COUNT = "trap '' HUP; i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done"


@pytest.fixture
def user(tmp_path, dfrs, monkeypatch):
    with at_the_command_line(tmp_path, dfrs, monkeypatch) as someone:
        yield someone


def links():
    return sorted(os.listdir("/sys/class/net"))


def namespaces():
    """All network and process namespaces that any process is in."""
    found = set()
    for kind in ("net", "pid"):
        for entry in Path("/proc").glob(f"[0-9]*/ns/{kind}"):
            try:
                found.add(os.readlink(entry))
            except OSError:
                continue
    return found


def first_processes(user):
    return {path.stem: int(path.read_text().split()[0]) for path in user.state.glob("hosts/*.process")}


def own_namespaces(user):
    """Of the hosts, and of the switch between them."""
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in first_processes(user).values() for kind in ("net", "pid")}


def agent_of(user, node, host):
    """The agent itself, in the host, and not what has entered the host for it."""
    inside = os.readlink(f"/proc/{first_processes(user)[host]}/ns/pid")
    (found,) = [
        pid
        for pid in processes_with(f"--name={node}")
        if pid in processes_with(str(user.state)) and os.readlink(f"/proc/{pid}/ns/pid") == inside
    ]
    return found


def nothing_left(user, made):
    # Whoever reaps the first processes may take a moment.
    assert patiently(lambda: not made & namespaces())
    assert processes_with(str(user.state)) == []
    assert user.groups() == []
    assert list(user.state.glob("hosts/*.process")) == []


def counted(user, job):
    return len(user("logs", job).splitlines())


def test_hosts_share_files_and_reach_each_other_by_address(user):
    before = links()
    _, told = user.up(*THREE)
    made = own_namespaces(user)
    assert len(made) == 8
    assert [node["state"] for node in told["nodes"]] == ["up"] * 3
    assert [node["name"] for node in told["nodes"]] == ["host1-1", "host2-1", "host3-1"]
    assert [node["host"].partition("-")[0] for node in told["nodes"]] == ["host1", "host2", "host3"]
    assert told["url"].startswith("http://127.0.0.1:")
    (user.folder / "meet.py").write_text(MEET)
    meet = ("python3", user.folder / "meet.py", user.state / "hosts")
    # Of tasks that need more than half of a node's memory, each is on a node of its own.
    user("submit", "--tasks", 3, "--memory", "200M", "--wait", "--", *meet)
    told = [json.loads(user("logs", 1, "--rank", rank)) for rank in range(3)]
    hosts = [found["host"] for found in told]
    assert sorted(hosts) == ["host1", "host2", "host3"]
    for found in told:
        assert found["known_as"] == [address(k) for k in range(3)]
        assert found["peers"] == [address(int(host.removeprefix("host")) - 1) for host in hosts]
        assert found["heard"] == sorted(set(hosts) - {found["host"]})
        assert found["interfaces"] == ["eth0", "lo"]
        assert found["others"] == found["memory"] == []
        assert sum("meet.py" in command for command in found["commands"]) == 1
        assert any(f"hold\0{found['host']}" in command for command in found["commands"])
    assert links() == before
    assert len({path.name for path in user.groups()}) == 3
    words = user("down")
    assert "ended: 0 jobs, 3 agents, the controller, 3 hosts" in words
    nothing_left(user, made)
    assert links() == before
    assert "hosts    " not in user.up_in_background("--nodes", 1)


def test_tasks_survive_their_agent_and_the_controller(user):
    process, _ = user.up(*THREE)
    made = own_namespaces(user)
    for _ in range(3):
        user("submit", "--cpu", 0.1, "--memory", "200M", "--", "sh", "-c", COUNT)
    assert patiently(lambda: all(user.state_of(job) == "running" and counted(user, job) > 2 for job in (1, 2, 3)))
    (node,) = user.json("show", 2)["nodes"]
    agent = agent_of(user, node, node.partition("-")[0])
    os.kill(agent, signal.SIGKILL)
    assert f"{node} was killed by SIGKILL; starting it again" in process.stderr.readline()
    assert patiently(lambda: not alive(agent))
    assert patiently(lambda: all(found["connected"] for found in user.json("nodes")))
    seen = counted(user, 2)
    assert patiently(lambda: counted(user, 2) > seen + 2)

    user("hold", 3)
    assert patiently(lambda: user.state_of(3) == "held")
    seen = counted(user, 3)
    user("release", 3)
    assert patiently(lambda: user.state_of(3) == "running" and counted(user, 3) > seen + 2)

    # Ctrl-C, and up again: hosts and tasks are those that there were.
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert made <= namespaces()
    assert "what was started with other hosts must end first: dfrs down" in refused("--hosts", 2)
    assert "--hosts 3: must be at most --nodes, 2" in refused("--nodes", 2)
    process, told = user.up("--port", 0)
    assert len(told["nodes"]) == 3
    assert own_namespaces(user) == made
    assert all(user.state_of(job) == "running" for job in (1, 2, 3))
    lines = user("logs", 2).splitlines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)], "a task was started twice"

    process.kill()
    process.wait()
    assert patiently(lambda: not processes_with(f"--token-file={user.state}")), "agents did not end with their parent"
    assert made <= namespaces()
    assert user.json("down")["jobs"] == 3
    nothing_left(user, made)
    assert user.json("down")["jobs"] == 0


def test_a_host_that_ends_is_made_again(user):
    process, _ = user.up(*THREE)
    for _ in range(2):
        user("submit", "--cpu", 0.1, "--memory", "200M", "--", "sleep", "600")
    assert patiently(lambda: all(user.state_of(job) == "running" for job in (1, 2)))
    hosts = [user.json("show", job)["nodes"][0].partition("-")[0] for job in (1, 2)]
    user("hold", 2)
    assert patiently(lambda: user.state_of(2) == "held")
    first = first_processes(user)
    for host in hosts:
        os.kill(first[host], signal.SIGKILL)
    assert patiently(lambda: all(first_processes(user)[host] != first[host] for host in hosts))
    assert patiently(lambda: all(found["connected"] for found in user.json("nodes")))
    assert patiently(lambda: user.json("show", 1)["attempt"] == 1 and user.state_of(1) == "running")
    user("release", 2)
    assert patiently(lambda: user.json("show", 2)["attempt"] == 1 and user.state_of(2) == "running")
    made = own_namespaces(user)
    process.kill()
    process.wait()
    assert patiently(lambda: not processes_with(f"--state={user.state}"))
    # Also where the controller cannot be told.
    (user.state / "dfrs.db").write_bytes(b"no database")
    assert "killed 2 tasks and ended agents and controller, but:" in user("down", status=1)
    nothing_left(user, made)
    shutil.rmtree(user.state)


def test_more_hosts_than_fit_are_refused(user):
    assert "--hosts 3: must be at most --nodes, 2" in refused("--hosts", 3, "--nodes", 2)
    assert "--memory-per-node: 3 nodes of" in refused("--hosts", 3, "--memory-per-node", "900T")
    assert not list(user.state.glob("hosts/*"))
    user.up("--nodes", 1)
    user("submit", "--memory", "64M", "--", "sleep", "600")
    user.foreground[0].kill()
    user.foreground[0].wait()
    assert "what was started with this machine as its only host must end first: dfrs down" in refused("--hosts", 2)


def refused(*options):
    """What `dfrs up` says to that, in one line."""
    done = subprocess.run([*DFRS, "up", *map(str, options)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done
    return done.stderr
