"""`dfrs doctor` finds what is wrong, says how to mend it, and exits with 1 then."""

import asyncio
import json
import os
import resource
import shutil
import time
from collections import namedtuple

import pytest
from starlette.testclient import TestClient

from dfrs.cli import main as cli
from dfrs.live import client as clients
from dfrs.live.api.routes import create_app
from dfrs.live.client import Endpoint
from dfrs.live.doctor import cluster, findings, host, state
from dfrs.live.drivers.base import UnsuitableError
from dfrs.live.drivers.control_groups.swap import SwapSpace
from dfrs.live.protocol.resources import NodeState
from dfrs.model.errors import DfrsError
from tests.live_databases import damage_table, execute, killed_copy, serving
from tests.live_service import FakeService

URL = "http://127.0.0.1:7070"
MIB = 1 << 20


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def ask(service, monkeypatch):
    """Have all clients reach the service; what the doctor says of it."""
    transport = TestClient(create_app(service, page=None))._transport
    monkeypatch.setattr(clients, "_context", lambda _: True)
    real = clients.httpx.Client
    monkeypatch.setattr(clients.httpx, "Client", lambda **options: real(**options | {"transport": transport}))
    token = service.token("ann", "admin")

    def asked(secret=token):
        return by_check(cluster.controller(Endpoint(url=URL, token=secret)))

    return asked


def by_check(found):
    result = {}
    for each in found:
        assert each.verdict == "ok" or each.mend
        result.setdefault(each.check, each)
    return result


def verdicts(found):
    return {name: each.verdict for name, each in found.items()}


def test_a_well_controller(ask, service):
    service.add_node("n1")
    service.nodes_by_name["n1"] = service.nodes_by_name["n1"].model_copy(update={"version": service.cluster().version})
    found = ask()
    assert found.pop("versions")
    assert set(verdicts(found).values()) == {"ok"}
    assert found["token"].found == "is good: ann, role admin"


def test_what_is_wrong_with_a_controller(ask, service):
    service.wrong = "the database cannot be written: disk full"
    service.add_node("n1")
    service.add_node("n2")
    version = service.cluster().version
    service.nodes_by_name["n1"] = service.nodes_by_name["n1"].model_copy(
        update={"version": version, "state": NodeState.UNHEALTHY, "problem": "no memory limit"}
    )
    service.nodes_by_name["n2"] = service.nodes_by_name["n2"].model_copy(update={"version": "0.0.1"})
    found = ask()
    assert found["controller's health"].found == service.wrong
    assert (found["agents"].verdict, found["nodes"].verdict) == ("wrong", "warning")
    assert "n2 (0.0.1)" in found["agents"].found
    assert found["nodes"].found == "n1: unhealthy: no memory limit"


def test_only_connected_agents_are_to_be_of_the_controllers_version(ask, service):
    service.add_node("n1")
    service.nodes_by_name["n1"] = service.nodes_by_name["n1"].model_copy(update={"version": ""})
    found = ask()
    assert found["nodes"].found == "1 connected, none of another version"
    assert "wrong" not in verdicts(found).values()
    service.add_node("n2")
    service.nodes_by_name["n2"] = service.nodes_by_name["n2"].model_copy(
        update={"version": "0.0.1", "connected": False, "state": NodeState.LOST}
    )
    found = ask()
    assert found["nodes"].found == "n2: lost"
    assert "wrong" not in verdicts(found).values()


def test_a_token_of_a_node_that_expires_soon_is_said(ask, service):
    for number, days in enumerate((10, 300), 2):
        service.token(f"n{number}", "agent", days)
        service.infos[number] = service.infos[number].model_copy(update={"node": f"n{number}"})
    found = ask()["tokens of nodes"]
    assert (found.verdict, found.found[:18]) == ("warning", "n2: token 2 expire")
    service.infos[2] = service.infos[2].model_copy(update={"revoked": True})
    assert ask()["tokens of nodes"].verdict == "ok"
    # Whoever may not see the tokens is told nothing of them.
    assert "tokens of nodes" not in ask(service.token("bob", "user"))


def test_a_token_that_is_not_good_is_said(ask):
    found = ask("dfrs_unknown")
    assert verdicts(found) == {"controller": "ok", "controller's health": "ok", "token": "wrong"}


def test_a_token_of_agents_is_good(ask, service):
    found = ask(service.token("agents", "agent"))
    assert verdicts(found) == {"controller": "ok", "controller's health": "ok", "token": "ok"}


def test_a_controller_that_does_not_answer_is_said():
    found = by_check(cluster.controller(Endpoint(url="http://127.0.0.1:1", token="x")))
    assert verdicts(found) == {"controller": "wrong"}


@pytest.mark.parametrize(("apart_s", "verdict"), [(0.0, "ok"), (-5.0, "warning"), (5.0, "warning"), (90.0, "wrong")])
def test_clocks_that_are_apart(ask, monkeypatch, apart_s, verdict):
    real = time.time
    here = namedtuple("Clock", "time")(lambda: real() + apart_s)
    monkeypatch.setattr(cluster, "time", here)
    assert ask()["clock"].verdict == verdict


@pytest.mark.parametrize(
    ("free", "verdict"), [(1 * MIB, "wrong"), (500 * MIB, "warning"), (3 << 30, "warning"), (500 << 30, "ok")]
)
def test_disks(tmp_path, monkeypatch, free, verdict):
    usage = namedtuple("Usage", "total used free")(1 << 40, 0, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (found,) = host.disks([("database", tmp_path / "is" / "not" / "there")])
    assert found.verdict == verdict
    assert str(tmp_path) in found.found


def test_hosts_without_anything(monkeypatch):
    def none(*_):
        raise UnsuitableError("no control groups: mount version 2 with the cpu controller")

    monkeypatch.setattr(host, "detect", none)
    monkeypatch.setattr(host, "find_criu", lambda: (None, "no criu"))
    monkeypatch.setattr(host, "swap_space", lambda: SwapSpace(0, 0))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = by_check([*host.control_groups(), *host.swap(), *host.criu(), *host.limits()])
    assert set(verdicts(found).values()) == {"warning"}
    assert set(found) == {"control groups", "swap", "CRIU", "open files", "processes"}


def test_files_that_others_may_read(tmp_path):
    place = tmp_path / "state"
    assert verdicts(by_check(state.directory(place))) == {"state directory": "ok"}
    place.mkdir(mode=0o700)
    (place / "client.json").write_text("{}")
    (place / "client.json").chmod(0o644)
    found = by_check(state.directory(place))
    assert verdicts(found) == {"state directory": "ok", "secrets": "wrong"}
    assert f"chmod 600 {place / 'client.json'}" in found["secrets"].mend
    place.chmod(0o755)
    assert by_check(state.directory(place))["state directory"].verdict == "wrong"


def test_databases(tmp_path):
    async def story():
        async with serving(tmp_path / "live"):
            # Also while a controller writes.
            (found,) = state.database(tmp_path / "live" / "dfrs.db")
            assert found.verdict == "ok", found
            return killed_copy(tmp_path / "live", tmp_path / "copy")

    file = asyncio.run(story())
    (found,) = state.database(tmp_path / "none" / "dfrs.db")
    assert found.verdict == "ok"
    execute(file, ("DELETE FROM checkpoints",))
    damage_table(file, "activity")
    (found,) = state.database(file)
    assert (found.verdict, "damaged" in found.found) == ("wrong", True)
    (tmp_path / "copy" / "dfrs.db.last").unlink()
    (found,) = state.database(file)
    assert (found.verdict, "dfrs.db.last" in found.found) == ("wrong", True)


def test_kernels_that_cannot_be_kept(monkeypatch):
    (found,) = host.kernels()
    assert found.verdict == "ok"
    monkeypatch.setattr(os, "access", lambda *_: False)
    (found,) = host.kernels()
    assert found.verdict == "warning"
    assert "NUMBA_CACHE_DIR" in found.mend


def test_a_check_that_fails_is_a_finding():
    def fails():
        raise DfrsError("cannot be")

    (found,) = findings.run([("a check", fails)])
    assert (found.check, found.verdict) == ("a check", "wrong")


def test_the_verb(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DFRS_STATE", str(tmp_path / "state"))
    for name in ("DFRS_SERVER", "DFRS_TOKEN_FILE", "DFRS_DATABASE"):
        monkeypatch.delenv(name, raising=False)

    def doctor(*options):
        monkeypatch.setattr("sys.argv", ["dfrs", "doctor", *options])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, capsys.readouterr().out

    status, said = doctor("--json")
    document = json.loads(said)
    assert status == (1 if document["wrong"] else 0)
    assert {"check", "verdict", "found", "mend"} == set(document["findings"][0])
    (tmp_path / "state").mkdir(mode=0o755)
    status, said = doctor()
    lines = said.splitlines()
    assert status == 1
    assert any(
        line.startswith("wrong   state directory: ") and line.endswith(f"chmod 700 {tmp_path}/state") for line in lines
    )
    assert all(line.startswith(("ok", "warning", "wrong")) for line in lines)
