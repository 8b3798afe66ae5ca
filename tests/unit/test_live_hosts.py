"""What `dfrs up --hosts` refuses before it makes anything, and what it would make."""

import os
import socket

import pytest

from dfrs.live.api.server import inherited
from dfrs.live.local import hosts
from dfrs.live.local.cluster import Choice, LocalCluster, begun, nodes_ever
from dfrs.live.local.hosts import LocalHosts, address, host_name, host_root, hosts_left
from dfrs.model.errors import InputError


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
