"""`dfrs serve` and `dfrs token` as processes: their files and words, what they refuse, and secrets that stay so."""

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dfrs.cli.live.serve import _Plan, database_url, machine_names
from dfrs.live.api.certificates import own_certificates
from dfrs.live.api.server import bind, read_address
from dfrs.live.client import Client, DeniedError, Endpoint, read_client_file
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.model.errors import InputError
from tests.live_http import bearer
from tests.live_processes import processes_with, wait_until

DFRS = (sys.executable, "-m", "dfrs.cli.main")


@contextmanager
def serving(state, *options, environ=None):
    """A controller: its process and its client file."""
    words, errors = state.parent / "out", state.parent / "err"
    with words.open("ab") as out, errors.open("ab") as err:
        process = subprocess.Popen(
            [*DFRS, "serve", "--state", state, "--listen", "127.0.0.1:0", "--discovery", "NONE", *options],
            stdout=out,
            stderr=err,
            start_new_session=True,
            env={**os.environ, **(environ or {})},
        )
    (state / "client.json").unlink(missing_ok=True)
    try:
        wait_until(lambda: process.poll() is not None or (state / "client.json").exists(), "the client file")
        assert process.poll() is None, errors.read_text()
        endpoint = read_client_file(state)
        wait_until(lambda: httpx.get(f"{endpoint.url}/healthz", verify=False).status_code == 200, "it is well")
        yield process, endpoint
    finally:
        if process.poll() is None:
            process.terminate()
        assert process.wait(60) == 0


@pytest.fixture
def refused(dfrs):
    """Status and the one line on standard error of a verb that must fail, run in this process."""
    mask = os.umask(0o022)

    def called(*arguments):
        status, out, err = dfrs(*arguments)
        assert out == ""
        return status, " ".join(err.split())

    yield called
    os.umask(mask)


def test_a_day_of_a_controller(tmp_path, refused):
    state = tmp_path / "state"
    secret = "hunter2-in-the-environment"
    with serving(state, "--name", "here") as (process, endpoint):
        agent = (state / "agent.token").read_text().strip()
        with Client(endpoint) as admin:
            assert admin.cluster().name == "here"
            made = subprocess.run(
                [*DFRS, "token", "create", "alice", "--json"],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "DFRS_STATE": str(state)},
            )
            alice = json.loads(made.stdout)["token"]
            with Client(Endpoint(url=endpoint.url, token=alice)) as user:
                (job,) = user.submit(JobRequest(command=("true", "--key=s3cret"), environment={"KEY": secret}))
                assert user.job(job).user == "alice"
            (other,) = admin.submit(JobRequest(command=("true",)))
            with Client(Endpoint(url=endpoint.url, token=alice)) as user:
                for forbidden in (user.cancel, user.hold, user.output):
                    with pytest.raises(DeniedError):
                        forbidden(other)
                user.cancel(job)
                assert user.job(job).state is JobState.CANCELLED
            assert [token.user for token in admin.tokens()][-1] == "alice"
            admin.revoke_token(admin.tokens()[-1].id)
            with pytest.raises(DeniedError), Client(Endpoint(url=endpoint.url, token=alice)) as user:
                user.me()
        secrets = (endpoint.token, agent, alice, secret, "s3cret")
        for text in secrets:
            assert processes_with(text) == [], "a secret is in a process list"
        status, words = refused("serve", "--state", state, "--listen", "127.0.0.1:0")
        assert (status, "another controller" in words) == (2, True)
        with httpx.stream("GET", f"{endpoint.url}/api/v1/changes", headers=bearer(endpoint.token)) as answer:
            next(answer.iter_lines())
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    told = (tmp_path / "out").read_text() + (tmp_path / "err").read_text()
    assert not any(text in told for text in secrets)
    assert str(state / "client.json") in told
    assert "Traceback" not in told
    for path in state.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path

    with serving(state) as (_, again), Client(again) as admin:
        assert (state / "agent.token").read_text().strip() == agent
        assert admin.job(other).id == other


def test_a_port_in_use_and_odd_options_are_one_line(tmp_path, refused, monkeypatch):
    taken, address = bind(read_address("127.0.0.1:0"))
    with taken:
        status, words = refused("serve", "--state", tmp_path / "a", "--listen", f"127.0.0.1:{address.port}")
        assert (status, "cannot listen" in words) == (1, True)
    for options, said in (
        (("--listen", "7070"), "HOST:PORT"),
        (("--policy", "NOPE"), "NOPE"),
        (("--discovery", "NOPE"), "NOPE"),
        (("--discovery", "OBSERVE", "--report-every", "1.5"), "half of discovery's step_s"),
        (("--certificate", tmp_path / "x"), "together"),
        (("--certificate", tmp_path / "x", "--key", tmp_path / "y"), "PEM"),
        (("--database", "postgresql+psycopg://u:hunter2@127.0.0.1:1/d"), "DFRS_DATABASE"),
    ):
        status, words = refused("serve", "--state", tmp_path / "b", "--listen", "127.0.0.1:0", *options)
        assert status == 2, words
        assert said in words
        assert "hunter2" not in words
    monkeypatch.setenv("DFRS_DATABASE", "postgresql+psycopg://u:hunter2@127.0.0.1:1/d")
    status, words = refused("serve", "--state", tmp_path / "b", "--listen", "127.0.0.1:0")
    assert status in {1, 2}
    assert "hunter2" not in words


def test_tls_where_certificates_are_given(tmp_path):
    made = own_certificates(tmp_path / "tls", ["localhost", "127.0.0.1"])
    options = ("--certificate", made.certificate, "--key", made.key, "--host", "localhost")
    with serving(tmp_path / "state", *options) as (_, endpoint):
        assert endpoint.url.startswith("https://localhost:")
        with Client(Endpoint(url=endpoint.url, token=endpoint.token, ca=made.authority)) as admin:
            assert admin.me()["role"] == "admin"


def test_beyond_loopback_there_are_certificates_of_its_own_and_on_it_none(tmp_path):
    def certificates(listen):
        plan = _Plan(
            state=tmp_path,
            listen=read_address(listen),
            settings=ControllerSettings(database=""),
            certificate=None,
            key=None,
            hosts=("cluster.example",),
            submissions_per_s=None,
            open_metrics=False,
            as_json=False,
        )
        return plan.certificates()

    assert certificates("127.0.0.1:7070") is None
    assert certificates("localhost:7070") is None
    assert not (tmp_path / "tls").exists()
    for listen in ("0.0.0.0:7070", "[::]:7070", "192.0.2.1:7070", "head.example:7070"):
        made = certificates(listen)
        assert made.authority == tmp_path / "tls" / "ca.pem"
        made.context()
    assert {"localhost", "127.0.0.1", "::1"} <= machine_names()


def test_where_the_database_is(tmp_path):
    file = tmp_path / "url"
    file.write_text("postgresql+psycopg://u:hunter2@h/d\n")
    assert database_url(None, None, Path("/s"), {}) == "sqlite:////s/dfrs.db"
    assert database_url("sqlite:///x", None, Path("/s"), {"DFRS_DATABASE": "sqlite:///y"}) == "sqlite:///x"
    assert database_url(None, None, Path("/s"), {"DFRS_DATABASE": "sqlite:///y"}) == "sqlite:///y"
    assert database_url(None, file, Path("/s"), {}) == "postgresql+psycopg://u:hunter2@h/d"
    for url in ("postgresql://u:hunter2@h/d", "postgresql://h/d?password=hunter2", "hunter2"):
        with pytest.raises(InputError) as said:
            database_url(url, None, Path("/s"), {})
        assert "hunter2" not in str(said.value)
    with pytest.raises(InputError, match="only one"):
        database_url("sqlite:///x", file, Path("/s"), {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--backend", "slurm"), "--partition: --backend slurm needs the name of one of Slurm's partitions"),
        (("--backend", "slurm", "--partition", "a b"), "--partition: --backend slurm needs the name"),
        (("--partition", "main"), "--partition: is one of Slurm's; say --backend slurm"),
        (("--backend", "slurm", "--partition", "main"), "--backend slurm: scontrol is not in the PATH"),
    ],
)
def test_what_serving_a_partition_of_slurm_needs(refused, monkeypatch, tmp_path, options, words):
    monkeypatch.setenv("PATH", str(tmp_path))
    status, said = refused("serve", "--state", tmp_path / "a", *options)
    assert status == 2
    assert words in said
    assert not (tmp_path / "a").exists()
