"""What an agent finds out about its host and is told on its command line; what it logs."""

import glob
import io
import json
import logging
import os
import signal
import subprocess
import sys

import pytest
import structlog
import uvicorn

from dfrs.cli.live.agent import read_token
from dfrs.live.agent.capacity import measure, parse_cpus
from dfrs.live.drivers.opening import cluster_name
from dfrs.live.logs import set_up
from dfrs.model.errors import InputError
from tests.processes import kill

GIB = 1 << 30


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A host of four CPUs and 16 GiB; `kernel(path, text)` writes one of its files."""

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 3, 5})
    write("proc/meminfo", f"MemTotal: {16 * GIB >> 10} kB\nMemFree: 1 kB\n")
    return write


def on(tmp_path, **asked):
    return measure(proc=tmp_path / "proc", groups=tmp_path / "groups", **asked)


def test_the_whole_host(kernel, tmp_path):
    found = on(tmp_path)
    assert (found.cpus, found.cores, found.cpu_list) == ((0, 2, 3, 5), 4, "0,2-3,5")
    assert found.memory_bytes == 16 * GIB - round(0.05 * 16 * GIB)


def test_a_part_of_it(kernel, tmp_path):
    found = on(tmp_path, cpus="2-3", cores=0.5, memory_bytes=GIB)
    assert (found.cpus, found.cores, found.memory_bytes) == ((2, 3), 0.5, GIB)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cpus": "1"}, "CPU 1 is not among .*: 0,2-3,5"),
        ({"cpus": "0", "cores": 1.5}, "cores 1.5: .* at most 1"),
        ({"cores": 0.0}, "cores 0"),
        ({"memory_bytes": 17 * GIB}, "memory"),
    ],
)
def test_more_than_there_is(kernel, tmp_path, asked, says):
    with pytest.raises(InputError, match=says):
        on(tmp_path, **asked)


def test_limits_of_control_groups_v2(kernel, tmp_path):
    kernel("proc/self/cgroup", "0::/a/b\n")
    kernel("groups/a/memory.max", f"{4 * GIB}\n")
    kernel("groups/a/b/memory.max", "max\n")
    kernel("groups/a/cpu.max", "max 100000\n")
    kernel("groups/a/b/cpu.max", "150000 100000\n")
    found = on(tmp_path)
    assert (found.cores, found.memory_bytes) == (1.5, 4 * GIB - round(0.05 * 4 * GIB))
    assert on(tmp_path, cores=1.0).cores == 1.0


def test_limits_of_control_groups_v1(kernel, tmp_path):
    kernel("proc/self/cgroup", "4:memory:/a\n2:cpu,cpuacct:/a\n0::/\n")
    kernel("groups/memory/a/memory.limit_in_bytes", f"{2 * GIB}\n")
    kernel("groups/memory/memory.limit_in_bytes", "9223372036854771712\n")
    kernel("groups/cpu,cpuacct/a/cpu.cfs_quota_us", "50000\n")
    kernel("groups/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n")
    kernel("groups/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    kernel("groups/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    found = on(tmp_path)
    assert (found.cores, found.memory_bytes) == (0.5, 2 * GIB - (128 << 20))


def test_lists_of_cpus():
    assert parse_cpus("3, 0-1,1") == (0, 1, 3)
    for text in ("", "a", "1-", "-1", "3-1", "0,,1", "0-99999999", "1" * 99, "0.5"):
        with pytest.raises(InputError, match="cpus"):
            parse_cpus(text)


@pytest.fixture
def logged(logs_as_before):
    """Lines of the log, set up as JSON."""
    stream = io.StringIO()
    set_up("debug", stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def server_configured():
    """Text of the handlers that the server's library gives its loggers where it configures them by itself."""
    shown = io.StringIO()
    names = ("uvicorn", "uvicorn.error", "uvicorn.access")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    uvicorn.Config(app=None)
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        handler.setStream(shown)
    yield shown
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def secrets_said_by(log):
    """All ways in which a token could come into a log."""
    log.info("sent", token="s3cret", headers={"Authorization": "Bearer s3cret"}, lines=["Bearer s3cret"], node="n0")
    log.info("Authorization: bearer s3cret", url="http://h/?token=s3cret&x=1", raw=b"Bearer s3cret")
    logging.getLogger("uvicorn").info("%s", "Authorization: Bearer s3cret")
    try:
        raise ValueError("Bearer s3cret")
    except ValueError:
        log.exception("failed")
        logging.getLogger("uvicorn.error").exception("said")


def test_secrets_are_not_logged(server_configured, logged):
    secrets_said_by(structlog.get_logger("test"))
    lines = logged()
    assert server_configured.getvalue() == ""
    assert "s3cret" not in json.dumps(lines)
    assert lines[0]["node"] == "n0"
    assert lines[1]["url"].endswith("&x=1")
    assert [line["level"] for line in lines] == ["info", "info", "info", "error", "error"]
    assert all("ValueError: Bearer [hidden]" in line["exception"] for line in lines[3:])


def test_secrets_are_masked_where_the_server_configures_its_loggers_afterwards(logged, server_configured):
    secrets_said_by(structlog.get_logger("test"))
    shown = server_configured.getvalue()
    assert "s3cret" not in shown + json.dumps(logged())
    assert "Bearer [hidden]" in shown


def test_texts_of_users_do_not_control_the_terminal_that_shows_the_log(logs_as_before):
    stream = io.StringIO()
    set_up(stream=stream, as_json=False)
    structlog.get_logger("test").info("a \x1b]0;owned\a b", program="./\x1b[2J", words=["\u202ex"])
    try:
        raise ValueError("\x1b[3J")
    except ValueError:
        structlog.get_logger("test").exception("failed")
    shown = stream.getvalue()
    for raw, seen in (("\x1b]0", "\\x1b]0"), ("\x1b[2J", "\\x1b[2J"), ("\u202e", "\\u202e"), ("\x1b[3J", "\\x1b[3J")):
        assert raw not in shown, raw
        assert seen in shown, raw
    assert "\nValueError" in shown


def options(tmp_path):
    return [
        "agent",
        "--server",
        "http://127.0.0.1:9",
        "--token-file",
        str(tmp_path / "token"),
        "--root",
        str(tmp_path / "root"),
        "--name",
        f"t{os.getpid()}",
        "--memory",
        "64M",
    ]


@pytest.fixture
def groups_removed(tmp_path):
    """What agents of this test leave of their nodes' control groups."""
    yield
    # `glob.glob` passes over groups that other tests remove meanwhile; `Path.glob` fails then.
    name = cluster_name((tmp_path / "root").resolve())
    for mounted in glob.glob(f"/sys/fs/cgroup/**/dfrs/{name}", recursive=True):
        for path in (*glob.glob(f"{mounted}/*"), mounted):
            if os.path.isdir(path):
                os.rmdir(path)


def test_help_promises_no_more_of_a_fence_than_it_keeps(dfrs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    status, words, _ = dfrs("agent", "--help")
    assert status == 0
    told = " ".join(words.replace("│", " ").split())
    assert "if the agent runs then" in told
    assert "it makes a second run unlikely, not impossible" in told
    assert "never be" not in told


@pytest.mark.parametrize(
    ("mode", "text", "says"),
    [
        (0o644, "s3cret", "must be readable by its owner only: chmod 600"),
        (0o640, "s3cret", "must be readable by its owner only: chmod 600"),
        (0o600, "", "must hold one token"),
        (0o600, "s3cret and more", "must hold one token"),
        (0o600, "\x00", "must hold one token"),
    ],
)
def test_token_files_that_will_not_do(tmp_path, mode, text, says):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(InputError, match=says) as raised:
        read_token(path)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_token(tmp_path / "none")


@pytest.mark.usefixtures("groups_removed")
def test_the_command(tmp_path, dfrs, monkeypatch):
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "token").chmod(0o600)
    first = subprocess.Popen(
        [sys.executable, "-m", "dfrs.cli.main", *options(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert first.stdout.readline().startswith(f"node t{os.getpid()}: ")
        while "trying again" not in (line := first.stderr.readline()):
            assert first.poll() is None
        assert json.loads(line)["level"] == "warning"
        monkeypatch.setattr("dfrs.live.logs.set_up", lambda _: None)
        status, _, told = dfrs(*options(tmp_path))
        assert status == 2
        assert f"another agent (process {first.pid})" in told
        assert told.count("\n") == 1
        first.send_signal(signal.SIGTERM)
        told, log = first.communicate(timeout=60)
        assert first.returncode == 0
        assert told.splitlines()[-1].endswith("disconnected; its tasks run on")
        assert "s3cret" not in told + log
    finally:
        kill(first)
