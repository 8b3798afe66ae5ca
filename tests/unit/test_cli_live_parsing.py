"""What people write on the command line of a live cluster: sizes, times, scripts, the way to a cluster."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dfrs.cli.live.job_options import environment
from dfrs.cli.live.script import read_script
from dfrs.cli.quantities import (
    parse_bytes,
    parse_instant,
    parse_seconds,
    quoted,
    show_bytes,
    show_cores,
    show_count,
    show_instant,
    show_seconds,
)
from dfrs.live.agent.capacity import HostCapacity
from dfrs.live.agent.connection import Server, socket_url
from dfrs.live.client import UnreachableError, find_endpoint, state_directory
from dfrs.live.local.machine import partition
from dfrs.model.errors import InputError


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("1.5G", 3 << 29), ("2GiB", 2 << 30), ("1k", 1024), ("100B", 100), (" 1 T ", 1 << 40)],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "512", "M", "-1M", "0M", "1e3M", "1.M", "1,5G", "nanG", "512MM", "9999999T", "1 2M", "５M", "1\u212a"]
)
def test_sizes_that_are_refused_in_one_line_that_names_the_option(text):
    with pytest.raises(InputError, match="--memory") as refused:
        parse_bytes(text, "--memory")
    assert f'"{text}"' in str(refused.value)


@given(st.integers(1, (1 << 50) - 1))
def test_sizes_are_shown_short_and_near_enough(size):
    text = show_bytes(size)
    assert len(text) <= 5
    if size >= 1 << 10:
        assert parse_bytes(text) == pytest.approx(size, rel=0.06)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2h", 7200),
        ("1d2h", 93600),
        ("1h30m", 5400),
        ("0.5h", 1800),
        ("1:30", 90),
        ("90:00", 5400),
        ("01:30:00", 5400),
        ("1-00:00:01", 86401),
        ("2-03:04", 2 * 86400 + 3 * 3600 + 4 * 60),
    ],
)
def test_times(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        "-1s",
        "0s",
        "s",
        "2h1d",
        "1h1h",
        "1w",
        "inf",
        "1 h",
        "00:00:00",
        "nan",
        "９s",
        "0１:00:00",
        "0:00",
        "1:60",
        "1:030",
    ],
)
def test_times_that_are_refused(text):
    with pytest.raises(InputError, match=r'--limit: ".*": must be'):
        parse_seconds(text, "--limit")


@given(days=st.integers(0, 99), hours=st.integers(0, 23), minutes=st.integers(0, 59), seconds=st.integers(0, 59))
def test_times_of_all_units(days, hours, minutes, seconds):
    parts = [(days, "d", 86400), (hours, "h", 3600), (minutes, "m", 60), (seconds, "s", 1)]
    total = sum(count * unit for count, _, unit in parts)
    assume(total > 0)
    assert parse_seconds("".join(f"{count}{name}" for count, name, _ in parts if count)) == total


@given(st.floats(0, 1e8))
def test_a_shown_time_is_short_and_can_be_given_back(seconds):
    text = show_seconds(seconds)
    assert len(text) <= 7
    if round(seconds) > 0:
        assert parse_seconds(text) == pytest.approx(seconds, rel=0.1, abs=0.51)


@given(st.text(max_size=12))
def test_no_text_makes_a_parser_stumble(text):
    for parse in (parse_bytes, parse_seconds, parse_instant):
        try:
            assert parse(text) > 0
        except InputError:
            continue


def test_instants():
    assert parse_instant("+30m", now=1000.0) == 2800.0
    there = parse_instant("2126-11-23 08:00")
    assert time.strftime("%Y-%m-%d %H:%M", time.localtime(there)) == "2126-11-23 08:00"
    with pytest.raises(InputError, match="to come"):
        parse_instant("2001-01-01 00:00")
    with pytest.raises(InputError, match="--at: "):
        parse_instant("tomorrow", "--at")


def test_shown_cores_and_instants():
    assert [show_cores(cores) for cores in (0.25, 1.0, 1.5, 16.0, 0.333)] == ["0.25", "1", "1.5", "16", "0.33"]
    now = time.time()
    assert show_instant(now, now) == time.strftime("%H:%M:%S", time.localtime(now))
    assert show_instant(0.0, now).startswith("19")


def script(folder, text, name="job.sh"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_script_is_run_by_its_interpreter_from_where_it_is(tmp_path):
    path = script(
        tmp_path,
        "#!/usr/bin/env python3\n# a comment\n\n#DFRS --tasks 4 --cpu 0.5\n#DFRS --name 'two words'\n"
        "print()\n#DFRS --hold\n",
    )
    found = read_script("job.sh", tmp_path)
    assert found.command(["-x", "1"]) == ("/usr/bin/env", "python3", str(path), "-x", "1")
    assert [(line.number, line.words) for line in found.lines] == [
        (4, ("--tasks", "4", "--cpu", "0.5")),
        (5, ("--name", "two words")),
    ]


@pytest.mark.parametrize("text", ["#!/bin/sh\necho\n", "echo #DFRS --hold\n", "#DFRSX --hold\n", "", "\x7fELF\x00"])
def test_what_has_no_options_is_no_script(tmp_path, text):
    script(tmp_path, text)
    assert read_script("job.sh", tmp_path) is None
    assert read_script("nothing", tmp_path) is None
    assert read_script(".", tmp_path) is None


def test_without_an_interpreter_a_script_is_run_by_the_shell(tmp_path):
    script(tmp_path, "#DFRS --hold\n")
    assert read_script("job.sh", tmp_path).interpreter == ("/bin/sh",)


def test_the_environment_is_small_and_what_was_asked_for():
    present = {"PATH": "/bin", "HOME": "/h", "SECRET": "x", "MINE": "1", "TERM": "xterm"}
    chosen = environment(["MINE", "A=b=c", "EMPTY="], present)
    assert set(chosen) <= {"PATH", "HOME", "LANG", "USER", "LOGNAME", "SHELL", "MINE", "A", "EMPTY"}
    assert (chosen["PATH"], chosen["MINE"], chosen["A"], chosen["EMPTY"]) == ("/bin", "1", "b=c", "")
    with pytest.raises(InputError, match="--env NONE: is not set here"):
        environment(["NONE"], present)


@pytest.fixture
def state(tmp_path):
    (tmp_path / "client.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "token": "t0", "ca": None}))
    return tmp_path


def test_a_cluster_is_found_by_option_environment_or_client_file(state, tmp_path):
    token = tmp_path / "mine.token"
    token.write_text("t1\n")
    environ = {"DFRS_STATE": str(state)}
    found = find_endpoint(environ=environ)
    assert (found.url, found.token, found.ca) == ("http://127.0.0.1:9", "t0", None)
    found = find_endpoint("https://other:1/", token, Path("ca.pem"), environ)
    assert (found.url, found.token, found.ca) == ("https://other:1", "t1", Path("ca.pem"))
    environ |= {"DFRS_SERVER": "https://env:1", "DFRS_TOKEN_FILE": str(token)}
    assert (find_endpoint(environ=environ).url, find_endpoint(environ=environ).token) == ("https://env:1", "t1")


def test_the_token_of_the_client_file_goes_nowhere_else(state):
    assert find_endpoint("https://elsewhere:1", environ={"DFRS_STATE": str(state)}).token is None
    assert "t0" not in repr(find_endpoint(environ={"DFRS_STATE": str(state)}))


def test_no_cluster_and_bad_addresses_are_said(tmp_path):
    with pytest.raises(UnreachableError, match="start one with: dfrs up"):
        find_endpoint(environ={"DFRS_STATE": str(tmp_path)})
    for address in ("cluster", "ftp://x", "http://", "http://["):
        with pytest.raises(InputError, match="must be an address"):
            find_endpoint(address, environ={"DFRS_STATE": str(tmp_path)})
    (tmp_path / "client.json").write_text("{")
    with pytest.raises(InputError, match=r"client\.json"):
        find_endpoint(environ={"DFRS_STATE": str(tmp_path)})


@pytest.mark.parametrize(
    "url", ["http://head.example:7070", "http://10.0.0.1:1", "http://127.0.0.1.example", "http://[fe80::1]"]
)
def test_a_token_goes_over_tls_or_stays_here(url, tmp_path):
    for refused in (
        lambda: find_endpoint(url, environ={"DFRS_STATE": str(tmp_path)}),
        lambda: Server(url=url, token="t").trust(),
    ):
        with pytest.raises(InputError, match="tokens go over TLS only: use https://"):
            refused()
    (tmp_path / "client.json").write_text(json.dumps({"url": url, "token": "t0"}))
    with pytest.raises(InputError, match="TLS only"):
        find_endpoint(environ={"DFRS_STATE": str(tmp_path)})


def test_addresses_of_this_machine_need_no_tls():
    for host in ("localhost", "127.0.0.1", "127.9.9.9", "[::1]"):
        assert find_endpoint(f"http://{host}:1", environ={"DFRS_STATE": "/nonexistent"}).url == f"http://{host}:1"
        assert socket_url(f"http://{host}:1").startswith("ws://")


def test_what_was_written_is_repeated_on_one_line_and_in_part():
    assert quoted("plain") == '"plain"'
    assert quoted("a\n\x1b[2J") == r'"a\n\x1b[2J"'
    assert len(quoted("x" * 100_000)) < 100


def test_counts():
    assert [show_count(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]


def test_the_state_directory():
    assert state_directory({"XDG_STATE_HOME": "/x"}) == Path("/x/dfrs")
    assert state_directory({}) == Path.home() / ".local/state/dfrs"
    assert state_directory({"DFRS_STATE": "here", "XDG_STATE_HOME": "/x"}) == Path("here")


@given(cpus=st.integers(1, 64), nodes=st.integers(1, 70), memory=st.integers(64, 1 << 20))
def test_a_machine_is_divided_without_giving_anything_twice(cpus, nodes, memory):
    machine = HostCapacity(cpus=tuple(range(cpus)), cores=float(cpus), memory_bytes=memory << 20)
    names = [f"n{number}" for number in range(nodes)]
    if memory // nodes < 64:
        with pytest.raises(InputError, match="--nodes"):
            partition(machine, names)
        return
    parts = [part.capacity for part in partition(machine, names)]
    assert sum(part.cores for part in parts) == pytest.approx(cpus)
    assert sum(part.memory_bytes for part in parts) <= machine.memory_bytes
    if nodes <= cpus:
        assert sorted(cpu for part in parts for cpu in part.cpus) == list(machine.cpus)
        assert all(part.cores == len(part.cpus) for part in parts)
    else:
        assert all(part.cpus == machine.cpus for part in parts)
    with pytest.raises(InputError, match="--memory-per-node"):
        partition(machine, names, machine.memory_bytes + 1)


def test_nobody_is_without_a_home(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    assert environment([], {})["HOME"].startswith("/")
