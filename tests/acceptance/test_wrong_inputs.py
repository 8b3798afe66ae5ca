"""Wrong input of every kind: one line that says what is wrong and what would be right, exit status 2, nothing lost.

The inputs and what is said of them are in `wrong_inputs.txt`: `$ COMMAND`, or `$1 COMMAND` where something is not there
and the status is 1, and below it how the line begins.
"""

import functools
import json
import os
import re
import shlex
import signal
from pathlib import Path

import pytest
from starlette.testclient import TestClient

# Verbs bind the client's class when they are imported: that is to be the real one, also where this test is alone.
import dfrs.cli.live.attach
import dfrs.cli.live.run  # noqa: F401
from dfrs.live import client as clients
from dfrs.live.api.routes import create_app
from dfrs.live.client import Client
from dfrs.live.protocol.resources import JobRequest
from tests.live_service import FakeService, _job

TABLE = Path(__file__).with_name("wrong_inputs.txt")
CUT = "…"
"""Ends a line of the table that is cut."""
OWN = {"new", "state"}
"""Directories of a controller and of an agent: what they prepare there is no loss."""
PATIENCE_S = 60
"""What should be refused and is begun instead ends after this time."""

INSTANCE = {
    "format": "dfrs-instance/1",
    "resources": [{"name": "memory", "kind": "rigid"}, {"name": "cpu", "kind": "fluid"}],
    "nodes": 2,
    "services": [{"name": f"s{k}", "needs": {"cpu": 0.5, "memory": 0.2}} for k in range(4)],
}
WHOLE = json.dumps(INSTANCE)
HEADER = "; MaxNodes: 4\n; MaxProcs: 4\n"
JOBS = [f"{k} {60 * k} 0 {100 + k} 1 -1 -1 1 {200 + k} -1 1 1 1 1 1 1 -1 -1\n" for k in range(1, 13)]
TRACE = HEADER + "".join(JOBS)
CAMPAIGN = """name = "x"
policies = ["FCFS"]

[[workloads]]
model = "lublin"
nodes = 8
jobs = 10
seeds = "1-2"
"""
FILES = {
    **dict.fromkeys(("mine.txt", "mine.json", "mine.xml", "mine.gif", "folder/kept.txt"), "mine\n"),
    "token": "dfrs_secret\n",
    "s.json": WHOLE,
    "broken.json": WHOLE[:90],
    "twice.json": '{"format": "dfrs-instance/1", "format": "x"}',
    "infinite.json": WHOLE.replace("0.5", "Infinity", 1),
    "negative.json": WHOLE.replace("0.5", "-0.5", 1),
    "missing.json": json.dumps({name: value for name, value in INSTANCE.items() if name != "services"}),
    "unknown.json": WHOLE.replace('"nodes"', '"machines"'),
    "version.json": WHOLE.replace("dfrs-instance/1", "dfrs-instance/9"),
    "binary.json": bytes(range(256)),
    "now.json": "{}",
    "bad.csv": "name,memory\ns0,lots\n",
    "t.swf": TRACE,
    "bad.swf": TRACE + "13 many\n",
    "twice.swf": TRACE + JOBS[0],
    "empty.swf": "",
    "notgzip.swf.gz": TRACE,
    "hosts.csv": "name,cpu,memory\nh1,4,8G\nh2,4,8G\n",
    "machines.csv": "name,host,cpu,memory,cpu_used\nm1,h1,2,2G,1.5\nm2,h1,2,2G,1.5\n",
    "badmachines.csv": "name,host,cpu,memory,cpu_used\nm1,h9,2,2G,1.5\n",
    "badrules.json": '{"format": "dfrs-rules/1", "rules": [{"kind": "nope"}]}',
    "badevents.csv": "time_s,node,condition\n0,0,asleep\n",
    "badnodes.csv": "cpu,memory\n1,-1\n",
    "badweights.csv": "job_id,weight\n1,heavy\n",
    "good.toml": CAMPAIGN,
    "syntax.toml": 'name = "x\n',
    "field.toml": CAMPAIGN.replace("jobs =", "job ="),
    "policy.toml": CAMPAIGN.replace("FCFS", "NOPE"),
    "seeds.toml": CAMPAIGN.replace("1-2", "5-1"),
    "load.toml": CAMPAIGN + "loads = [-1]\n",
    "model.toml": CAMPAIGN.replace("lublin", "dice"),
    "unknown.toml": CAMPAIGN + "\n[extra]\nx = 1\n",
    "binary.toml": bytes(range(256)),
    "badquotas.toml": "[users.ann]\nopen_jobs = -1\n",
    "unknownquota.toml": "[users.ann]\njobs = 1\n",
    "badaccount.toml": '[accounts.physics]\nusers = "ann"\n',
    "graph.toml": '[[job]]\nid = "a"\ncommand = ["true"]\n',
    "cycle.toml": '[[job]]\nid = "a"\ncommand = ["true"]\nafter = "a"\n',
    "twograph.toml": '[[job]]\nid = "a"\ncommand = ["true"]\n\n[[job]]\nid = "a"\n',
    "badoption.sh": "#!/bin/sh\n#DFRS --tasks none\ntrue\n",
    "badquote.sh": "#!/bin/sh\n#DFRS --name 'x\ntrue\n",
    "badserver.sh": "#!/bin/sh\n#DFRS --server http://127.0.0.1:1\ntrue\n",
    "badsbatch.sh": "#!/bin/sh\n#SBATCH --array=1-3\ntrue\n",
    "badtime.sh": "#!/bin/sh\n#SBATCH --time=soon\ntrue\n",
    "damaged/client.json": '{"url": ',
}


def cases():
    """(status, command, how the line begins) of the table."""
    found = re.findall(r"^\$([12]?) (.*)\n(.*)$", TABLE.read_text(), re.MULTILINE)
    return [(int(status or 2), command, said) for status, command, said in found]


def content(folder):
    """All files there, but for those that a controller or an agent prepares for itself."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] not in OWN
    }


def begun(*_):
    raise AssertionError(f"it was not refused within {PATIENCE_S} s")


@pytest.fixture(scope="module")
def controller():
    """Of a cluster with a node and a job; and how it is reached."""
    service = FakeService()
    service.add_node("node-1")
    service.by_id[1] = _job(1, JobRequest(command=("true",), name="one"), "root")
    return service, TestClient(create_app(service, page=None))._transport


@pytest.fixture
def folder(tmp_path, controller, monkeypatch):
    """With wrong files and good ones, where a cluster is known."""
    service, transport = controller
    endpoint = {"url": "http://127.0.0.1:7070", "token": service.token("root", "admin"), "ca": None}
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True, mode=0o700)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        # Tokens that others may read are refused for that.
        file.chmod(0o600)
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state/client.json").write_text(json.dumps(endpoint))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DFRS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DFRS_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(clients, "Client", functools.partial(Client, transport=transport))
    return tmp_path


@pytest.mark.parametrize(("status", "command", "said"), [pytest.param(*case, id=case[1]) for case in cases()])
def test_wrong_input_is_refused_in_one_line(folder, dfrs, monkeypatch, status, command, said):
    words = [word.encode().decode("unicode_escape") for word in shlex.split(command)]
    while re.match(r"DFRS_\w+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    before = content(folder)
    earlier = signal.signal(signal.SIGALRM, begun)
    signal.alarm(PATIENCE_S)
    try:
        ended, out, err = dfrs(*words)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
    assert (ended, out) == (status, ""), err
    (line,) = err.splitlines()
    line = line.replace(f"{folder}/", "./")
    assert line.startswith(f"dfrs: {said.removesuffix(CUT)}"), line
    assert len(line) < 450
    assert said.endswith(CUT) or line == f"dfrs: {said}"
    assert content(folder) == before


def test_there_are_enough_of_every_kind():
    assert len(cases()) >= 150
    assert len({command for _, command, _ in cases()}) == len(cases())
