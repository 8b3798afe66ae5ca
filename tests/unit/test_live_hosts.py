"""What `dfrs up --hosts` refuses before it makes anything, what it would make, and what is whose."""

import os
import socket

import pytest

from dfrs.live.agent.agent import only_agent
from dfrs.live.api.server import inherited
from dfrs.live.drivers.base import NodeSettings, TaskState
from dfrs.live.drivers.opening import cluster_name, open_driver
from dfrs.live.drivers.processes.directory import Owner, TaskDirectory
from dfrs.live.local import cluster, hosts
from dfrs.live.local.cluster import Choice, LocalCluster, begun, nodes_ever
from dfrs.live.local.hosts import LocalHosts, address, host_name, host_root, hosts_left
from dfrs.model.errors import InputError
from dfrs.testing.drivers import state_of, task_id, task_spec, wait_for


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("DFRS_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def said(dfrs, *options):
    status, out, err = dfrs("up", *options)
    assert (status, out, len(err.splitlines())) == (2, "", 1), err
    return err


def test_only_root_can_make_hosts(state, dfrs, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert said(dfrs, "--hosts", 3) == "dfrs: --hosts: only root can make hosts; leave it out, or run as root\n"
    assert not state.exists()


def test_a_missing_program_is_named_with_its_package(state, dfrs, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(hosts, "_PROGRAMS", str(tmp_path))
    assert said(dfrs, "--hosts", 3) == 'dfrs: --hosts: the program "ip" is missing; install the package iproute2\n'
    assert not state.exists()


@pytest.mark.parametrize("number", ["0", "-1", "257", "many"])
def test_numbers_of_hosts_that_cannot_be(state, dfrs, number):
    assert "--hosts" in said(dfrs, "--hosts", number)
    assert not state.exists()


def test_every_host_has_a_name_and_an_address_of_its_own():
    assert (host_name(0), address(0)) == ("host1", "10.77.1.1")
    assert len({address(number) for number in range(256)} | {hosts.CONTROLLER}) == 257


def test_hosts_have_nodes_in_turn_and_a_node_has_the_name_of_its_host(state):
    five = LocalCluster(state, Choice(port=1, hosts=3, nodes=5, memory_bytes=64 << 20), print)
    assert [part.name for part in five.parts] == ["host1-1", "host2-1", "host3-1", "host1-2", "host2-2"]
    assert Choice(port=1, hosts=1, nodes=2).node_names() == ["host1-1", "host1-2"]
    assert Choice(port=1, nodes=2).node_names() == ["node-1", "node-2"]


def test_only_a_listening_socket_can_be_inherited(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket() as idle,
        (tmp_path / "f").open("w") as file,
    ):
        assert inherited(os.dup(listening.fileno())).getsockname() == listening.getsockname()
        with pytest.raises(InputError, match="does not listen"):
            inherited(os.dup(idle.fileno()))
        with pytest.raises(InputError, match="not a socket"):
            inherited(file.fileno())
    with pytest.raises(InputError, match="not a socket"):
        inherited(999)


def test_what_was_made_is_known_by_its_records(state):
    folder = host_root(state, "host2")
    folder.mkdir(parents=True)
    (folder / "host2-1.agent.lock").touch()
    assert not begun(state)
    assert nodes_ever(state) == {"host2-1"}
    (state / "hosts" / "switch.process").write_text("1 - none")
    (state / "hosts" / "host2.process").write_text("1 - none")
    assert hosts_left(state) == 1
    assert begun(state)
    made = LocalHosts(state, state / "host")
    assert made.running() == 0
    made.kill()
    assert made.wait_ended() == []
    assert not begun(state)


def test_a_node_that_has_an_agent_is_left_to_it(state, monkeypatch):
    monkeypatch.setattr(cluster, "LEAVE_S", 0.0)
    root = cluster.agent_root(state)
    with only_agent(root, "mine"):
        node = open_driver(
            NodeSettings(root=root, cluster=cluster_name(root), node="mine", cores=1.0, memory_bytes=64 << 20)
        )
        node.start(task_id(), task_spec("/bin/sleep", "60"), 0.5)
        wait_for(lambda: state_of(node, task_id()) is TaskState.RUNNING)
        assert LocalCluster(state, Choice(port=1), print)._former(0.0) == set()
        ended, (problem,) = cluster.sweep(state)
        assert ended == 0
        assert problem.startswith(f"node mine of {root} has an agent that dfrs up has not started")
        assert state_of(node, task_id()) is TaskState.RUNNING
    assert cluster.sweep(state) == (1, [])
    assert node.tasks() == []


def test_nodes_of_former_starts_that_have_tasks_are_found_without_a_driver(state, monkeypatch):
    root = cluster.agent_root(state)
    files = TaskDirectory(root)
    for name in ("idle", "node-1", "node-3"):
        (root / f"{name}.agent.lock").touch()
    for job, name in enumerate(("node-1", "node-3", "idle"), 1):
        files.create(task_id(job), Owner(node=name, place={}, carried={}), [])
    # Nobody's, and no reason not to start.
    (root / "tasks/3.0.0/owner").write_text("damaged")
    monkeypatch.setattr(cluster, "open_driver", None)
    made = LocalCluster(state, Choice(port=1), print)
    former = made._former(0.0)
    assert former == {"idle", "node-3"}
    assert [part.name for part in made._outgoing(former)] == ["node-3"]
    made.stop()
