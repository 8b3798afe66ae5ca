"""`dfrs rebalance`: what it prints, writes and does, and how it ends."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from dfrs.cli import console
from dfrs.cli.rebalancing import running
from dfrs.cli.rebalancing.running import Watch, apply_moves
from dfrs.cli.rebalancing.sources import constrained, live_state
from dfrs.cli.simulate.rebalance import rebalance
from dfrs.live.protocol.resources import ClusterSnapshot, NodeState
from dfrs.model.errors import InputError
from dfrs.placement.budget import Budget
from dfrs.rebalancing import solve
from dfrs.rebalancing.mover import Migration
from dfrs.rebalancing.watch import Verdict, Watcher, WatchSettings
from dfrs.testing import InMemoryMover
from dfrs.workloads.clusters.reading import read_cluster
from dfrs.workloads.clusters.state import Host, Machine, NeedRule, cluster_state
from tests.unit.test_cluster_snapshots import EXAMPLES
from tests.unit.test_virsh_mover import fake_hosts

app = typer.Typer()
app.command()(rebalance)
SHEETS = (EXAMPLES / "hosts.csv", EXAMPLES / "machines.csv")
QUICK = ("--rounds", 3)


def run(*arguments, status=0):
    result = CliRunner().invoke(app, [str(a) for a in (*arguments, *QUICK)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.stdout


def test_the_table_says_what_moves_why_and_how_good_that_is():
    text = run(*SHEETS, "--budget-moves", 3)
    lines = text.splitlines()
    assert lines[0].endswith("machines.csv: 16 machines on 4 hosts; memory rigid, cpu fluid")
    assert lines[1] == (
        "minimum yield 0.8772, 1.0000 after 1 move, 8G in 8s; no placement within the budget has more than 1.0000"
    )
    assert " ".join(lines[2].split()) == "step starts takes machine from to size minimum yield what it is for"
    assert lines[3].split()[3:5] == ["web-1", "alpha"]
    assert "relieves alpha" in lines[3]
    assert "\x1b" not in text


def test_json_is_one_document_with_a_plan():
    document = json.loads(run(*SHEETS, "--json"))
    assert document["minimum_yield"] == 1.0
    assert document["plan"]["format"] == "dfrs-plan/1"
    assert document["moves"] == len(document["plan"]["steps"]) == 1
    assert document == json.loads(run(*SHEETS, "--format", "json"))


def test_rules_and_maintenance_are_kept():
    document = json.loads(run(*SHEETS, "--rules", EXAMPLES / "rules.json", "--maintenance", "delta", "--json"))
    assert document["not_kept"] == []
    ends = {(s["service"], s["to"]) for s in document["plan"]["steps"]}
    assert {name for name, _ in ends} >= {"search-2", "queue", "monitor"}
    assert "delta" not in {to for _, to in ends}


def test_what_cannot_be_kept_within_the_budget_ends_with_status_3():
    text = run(*SHEETS, "--rules", EXAMPLES / "rules.json", "--budget-moves", 1, status=3)
    assert "not kept: rules[0] apart shop-db-* level=rack" in text
    document = json.loads(run(*SHEETS, "--rules", EXAMPLES / "rules.json", "--budget-moves", 1, "--json", status=3))
    assert document["plan"] is None
    assert len(document["not_kept"]) == 2


def test_failures_that_are_not_survived_are_not_kept(tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text('{"format": "dfrs-rules/1", "rules": [], "headroom": {"failures": 3}}')
    document = json.loads(run(*SHEETS, "--rules", rules, "--json"))
    assert len(document["not_kept"]) == 4
    assert all(line.startswith("headroom: ") and "not survived: no room for" in line for line in document["not_kept"])
    rules.write_text('{"format": "dfrs-rules/1", "rules": [], "headroom": {"failures": 1}}')
    (line,) = json.loads(run(*SHEETS, "--rules", rules, "--json"))["not_kept"]
    assert line == "headroom: gamma: not survived: no room for ci-3, reports: 0.375 of memory"


def test_a_machine_that_may_be_nowhere_is_named_with_its_rules():
    document = json.loads(run(EXAMPLES / "proxmox.json", "--maintenance", "pve2", "--json", status=3))
    assert "dns" in document["reason"]
    assert "containers do not move" in document["reason"]
    assert "maintenance" in document["reason"]


def test_commands_are_a_script():
    lines = run(EXAMPLES / "proxmox.json", "--maintenance", "pve1", "--format", "proxmox").splitlines()
    assert lines[:2] == ["#!/bin/sh", "set -eu"]
    moved = {line.split()[5] for line in lines if line.startswith("ssh")}
    assert moved == {"100", "101", "102", "103"}
    assert all(line.startswith("ssh -n pve1 qm migrate 10") and line.endswith("--online") for line in lines[3::2])


@pytest.fixture
def stuck(tmp_path):
    """Rules by which x and y exchange two full hosts, which cannot be done, z follows x, and a new w starts there."""
    cells = "x,a,4,40G,1\ny,b,4,40G,1\nz,a,1,8G,0.5\nw,,1,8G,0.5\n"
    (tmp_path / "hosts.csv").write_text("name,cpu,memory\na,16,64G\nb,16,64G\n")
    (tmp_path / "machines.csv").write_text(f"name,host,cpu,memory,cpu_used\n{cells}")
    only = [{"kind": "only", "services": [name], "nodes": [host]} for name, host in zip("xyzw", "babb", strict=True)]
    (tmp_path / "rules.json").write_text(json.dumps({"format": "dfrs-rules/1", "rules": only}))
    return (tmp_path / "hosts.csv", tmp_path / "machines.csv", "--rules", tmp_path / "rules.json")


STAYS = "not kept: x does not go from a to b: b lacks "


def test_a_plan_that_leaves_machines_behind_ends_with_status_1(stuck):
    assert STAYS in run(*stuck, status=1)
    document = json.loads(run(*stuck, "--json", status=1))
    assert not document["plan"]["complete"]
    assert any(f"not kept: {line}".startswith(STAYS) for line in document["not_kept"])


def test_a_plan_that_leaves_machines_behind_leaves_nothing_worse(tmp_path):
    """The only better placement has a1 and a2 exchange with b, which has no room: a1 alone would crowd h2."""
    cells = "a1,h1,6,10G,6,\na2,h1,1,30G,0.1,\nc,h1,8,60G,7.9,\nb,h2,4,40G,4,\nd,h2,6,45G,6,yes\n"
    (tmp_path / "hosts.csv").write_text("name,cpu,memory\nh1,10,100G\nh2,10,100G\n")
    (tmp_path / "machines.csv").write_text(f"name,host,cpu,memory,cpu_used,fixed\n{cells}")
    files = (tmp_path / "hosts.csv", tmp_path / "machines.csv", "--margin", 0)
    document = json.loads(run(*files, "--json", status=1))
    assert document["bound"] > 0.8
    assert document["minimum_yield"] == document["minimum_yield_now"] == pytest.approx(10 / 14)
    assert (document["moves"], document["plan"]["steps"], len(document["plan"]["problems"])) == (0, [], 3)
    assert "minimum yield 0.7143; no move that helps can be made: no placement" in run(*files, status=1)


@pytest.mark.parametrize(
    ("little", "enough", "unit"),
    [
        (("--budget-moves", 2), ("--budget-moves", 3), "moves"),
        (("--budget-bytes", "80G"), ("--budget-bytes", "120G"), "bytes"),
        (("--budget-time", "80s"), ("--budget-time", "120s"), "seconds"),
    ],
)
def test_temporary_moves_count_in_the_budget(tmp_path, little, enough, unit):
    """Where x and y exchange, one of them stops on c, which has hardly CPU: three times 40G, at 1G a second."""
    (tmp_path / "hosts.csv").write_text("name,cpu,memory\na,4,48G\nb,8,48G\nc,1,48G\n")
    (tmp_path / "machines.csv").write_text("name,host,cpu,memory\nx,a,8,40G\ny,b,2,40G\n")
    files = (tmp_path / "hosts.csv", tmp_path / "machines.csv")
    assert len(json.loads(run(*files, *enough, "--json"))["plan"]["steps"]) == 3
    document = json.loads(run(*files, *little, "--json", status=1))
    assert document["plan"]["steps"] == []
    assert f"temporary moves would pass the budget of {unit}" in run(*files, *little, status=1)


@pytest.mark.parametrize("tool", ["virsh", "proxmox", "openstack"])
def test_commands_say_what_they_do_not_do(stuck, tool):
    result = CliRunner().invoke(app, [str(a) for a in (*stuck, "--format", tool, *QUICK)])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    left = [line for line in lines if line.startswith(("# not kept: ", "# not started: "))]
    assert lines[2 : 2 + len(left)] == left
    assert left[0].startswith(f"# {STAYS}")
    assert left[-1] == "# not started: w on b"
    assert lines[2 + len(left) :][0::2] == ["# 1: z: a to b"]
    assert result.stderr.splitlines() == [line.replace("#", "dfrs:", 1) for line in left]


def test_tasks_of_a_service_are_no_machines_of_a_tool(tmp_path):
    service = {"name": "web", "tasks": 3, "needs": {"memory": 0.1, "cpu": 0.1}}
    resources = [{"name": "memory", "kind": "rigid"}, {"name": "cpu", "kind": "fluid"}]
    instance = {"format": "dfrs-instance/1", "nodes": 2, "resources": resources, "services": [service]}
    document = {"format": "dfrs-cluster/1", "instance": instance, "placement": {"web": ["n0"] * 3}}
    (tmp_path / "cluster.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r'^--format virsh: service "web" has 3 tasks: must be machines'):
        run(tmp_path / "cluster.json", "--format", "virsh")
    run(tmp_path / "cluster.json")


def test_watching_ends_with_status_1_if_a_plan_left_machines_behind(stuck, capsys):
    state = constrained(read_cluster(stuck[:2], NeedRule()), stuck[-1], ())
    found = solve.rebalance(state.instance, state.present, rounds=3)
    verdict = Verdict(kind="repair", why="", now_yield=None, instance=state.instance, rebalancing=found)
    watcher = SimpleNamespace(decide=lambda *_: verdict)
    watch = Watch(read=lambda: state, watcher=watcher, budget=Budget(), every_s=0.0, times=1, mover=None, as_json=False)
    with pytest.raises(typer.Exit) as ended:
        watch.run()
    assert ended.value.exit_code == 1
    assert STAYS in capsys.readouterr().out


class ShareMover(InMemoryMover):
    """Remembers the shares that it is to set."""

    def set_shares(self, shares):
        self.shares = shares


def test_watched_machines_get_shares_of_the_demand_that_is_promised_and_not_of_the_last_sample():
    """b comes to a's host, and just then a idles: it is promised what it needs when it does not."""
    hosts = [Host(name=name, cores=10, memory_bytes=2.0**30) for name in ("h1", "h2")]

    def sample(used, places):
        machines = [
            Machine(name=n, host=h, cores=10, memory_bytes=1.0, used_cores=u)
            for n, h, u in zip("abc", places, used, strict=True)
        ]
        return cluster_state(hosts, machines, NeedRule(margin=0.0), "samples")

    samples = [sample((8, 8, 1), ("h1", "h2", "h2")), sample((0, 8, 1), ("h1", "h1", "h2"))]
    settings = WatchSettings(percentile=100.0, hold_off_s=0.0)
    watcher = Watcher(settings, lambda i, p, b: solve.rebalance(i, p, budget=b, rounds=5))
    mover = ShareMover({"a": "h1", "b": "h1", "c": "h2"})
    watch = Watch(
        read=lambda: samples.pop(0),
        watcher=watcher,
        budget=Budget(),
        every_s=0.0,
        times=2,
        mover=lambda _: mover,
        as_json=True,
        shares=True,
    )
    watch.run()
    assert mover.shares == {"a": 10_000, "b": 10_000, "c": 1_250}


def test_a_plan_and_a_picture_are_written(tmp_path):
    run(*SHEETS, "--save-plan", tmp_path / "plan.json", "--picture", tmp_path / "p.svg")
    assert json.loads((tmp_path / "plan.json").read_text())["complete"]
    assert b"<svg" in (tmp_path / "p.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "SNAPSHOT, --libvirt and --live: give one of them"),
        ((*SHEETS, "--apply"), "only libvirt hosts can be told to move"),
        ((*SHEETS, "--maintenance", "x"), '--maintenance "x": must be a host of the snapshot'),
        ((*SHEETS, "--budget-bytes", "12"), "--budget-bytes: .* must be a number with a unit"),
        ((*SHEETS, "--budget-time", "12"), "--budget-time: .* must be a time with units"),
        ((*SHEETS, "--picture", "x.bmp"), r"x\.bmp: the ending must be"),
        ((*SHEETS, "--picture", "none/x.svg"), r"none/x\.svg: cannot write: there is no directory none"),
        ((*SHEETS, "--save-plan", "none/plan.json"), r"none/plan\.json: cannot write: there is no directory none"),
        ((*SHEETS, "--save-plan", "/"), "/: cannot write: is a directory"),
        (("--live", "--margin", 20), "--margin: cannot go with --live, which takes needs as"),
        ((*SHEETS, "--shares"), "--shares: goes with --apply"),
        ((*SHEETS, "--libvirt", "x://h", "--shares", "--dry-run"), "--shares: goes with --apply"),
        ((*SHEETS, "--watch", "5m", "--shares"), "--shares: goes with --apply"),
        ((*SHEETS, "--watch", "5m", "--format", "virsh"), "--watch: goes with --format table or json"),
        ((*SHEETS, "--watch", "5m", "--save-plan", "plan.json"), "--save-plan: cannot go with --watch"),
        ((*SHEETS, "--libvirt", "x://h", "--apply", "--format", "virsh"), "--apply: goes with --format table or json"),
        ((*SHEETS, "--libvirt", "here"), '--libvirt "here": must be a libvirt URI'),
        ((*SHEETS, "--rules", "none.json"), r"none\.json: cannot read"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, words):
    with pytest.raises(InputError, match=words) as caught:
        run(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--dry-run",),
        ("--shares",),
        ("--apply", "--shares"),
        ("--budget-moves", 1),
        ("--budget-bytes", "1G"),
        ("--budget-cost", 1),
        ("--budget-time", "1s"),
        ("--save-plan", "new.json"),
        ("--picture", "x.svg"),
    ],
)
def test_what_a_saved_plan_would_ignore_is_refused(libvirt, tmp_path, arguments):
    with pytest.raises(InputError, match=r"^--[a-z-]+: cannot go with --plan, which carries out"):
        run(*libvirt, "--plan", tmp_path / "plan.json", *arguments)
    assert (tmp_path / "log").read_text() == ""


def test_a_saved_plan_is_carried_out_and_not_printed_as_commands(libvirt, tmp_path):
    with pytest.raises(InputError, match=r"^--plan: goes with --format table or json, not virsh"):
        run(*libvirt, "--plan", tmp_path / "plan.json", "--format", "virsh")


@pytest.mark.parametrize("form", ["table", "json", "virsh"])
def test_what_cannot_be_written_has_been_shown(monkeypatch, tmp_path, form):
    def full(path, _):
        raise InputError(f"{path}: cannot write: No space left on device")

    monkeypatch.setattr("dfrs.cli.simulate.rebalance.write_text", full)
    result = CliRunner().invoke(app, [*map(str, SHEETS), "--save-plan", str(tmp_path / "p"), "--format", form])
    assert isinstance(result.exception, InputError)
    assert "web-1" in result.stdout


@pytest.fixture
def libvirt(tmp_path, monkeypatch):
    """Three hosts behind a virsh in the path, h1 small; none is short of CPU however late a sample is."""
    fake_hosts(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "sizes.csv").write_text("name,cpu,memory\nh1,1,2G\nh2,4,8G\nh3,4,8G\n")
    return ("--libvirt", "test://h1,test://h2,test://h3", tmp_path / "sizes.csv", "--sample", "0.1s")


def placed(tmp_path):
    return {d.name: h for h in ("h1", "h2", "h3") for d in (tmp_path / h).iterdir()}


def test_apply_moves_domains_and_again_nothing(libvirt, tmp_path):
    (tmp_path / "h1" / "hard").unlink()
    text = run(*libvirt, "--maintenance", "h2", "--apply")
    assert placed(tmp_path)["b"] != "h2"
    assert "moved in" in text
    assert "0 remain" in text
    again = json.loads(run(*libvirt, "--maintenance", "h2", "--apply", "--json"))
    assert again["execution"]["complete"]
    assert again["plan"]["steps"] == []


def test_apply_ends_at_the_first_failure_with_status_1_and_a_saved_plan_goes_on(libvirt, tmp_path):
    (tmp_path / "h1" / "slow").unlink()
    plan = tmp_path / "plan.json"
    text = run(*libvirt, "--maintenance", "h1", "--save-plan", plan, "--at-once", 1, "--apply", status=1)
    assert "hard" in text
    assert "disk is local" in text
    assert "remains: hard: h1" in text
    (tmp_path / "virsh").write_text((tmp_path / "virsh").read_text().replace("= hard ]", "= nobody ]"))
    done = json.loads(run(*libvirt, "--plan", plan, "--json"))
    assert done["complete"]
    assert "h1" not in placed(tmp_path).values()
    assert len(json.loads(run(*libvirt, "--plan", plan, "--json"))["already_there"]) == 2


def test_apply_of_a_plan_that_leaves_machines_behind_ends_with_status_1(libvirt, tmp_path):
    """Of two full hosts whose domains are to exchange: all its moves are made, which are none."""
    for name in ("hard", "slow"):
        (tmp_path / "h1" / name).unlink()
    (tmp_path / "sizes.csv").write_text("name,cpu,memory\nh1,4,1G\nh2,4,1G\n")
    only = [{"kind": "only", "services": [name], "nodes": [host]} for name, host in (("a", "h2"), ("b", "h1"))]
    (tmp_path / "rules.json").write_text(json.dumps({"format": "dfrs-rules/1", "rules": only}))
    two, plan = ("--libvirt", "test://h1,test://h2", *libvirt[2:]), tmp_path / "plan.json"
    text = run(*two, "--rules", tmp_path / "rules.json", "--save-plan", plan, "--apply", status=1)
    assert "not kept: a does not go from h1 to h2" in text
    assert "0 moves done, 0 remain" in text
    result = CliRunner().invoke(app, [str(a) for a in (*two, "--plan", plan, "--json")])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["complete"]
    assert "dfrs: not kept: a does not go from h1 to h2" in result.stderr


@pytest.mark.parametrize("form", [(), ("--json",), ("--watch", "0.1s", "--times", 1)])
def test_what_was_moved_is_told_also_where_shares_cannot_be_set(libvirt, tmp_path, form):
    (tmp_path / "h1" / "hard").unlink()
    virsh = tmp_path / "virsh"
    virsh.write_text(
        virsh.read_text().replace("domstats)", 'schedinfo) echo "error: no reply" >&2; exit 1 ;;\ndomstats)')
    )
    words = [str(word) for word in (*libvirt, "--maintenance", "h2", "--apply", "--shares", *form, *QUICK)]
    result = CliRunner().invoke(app, words)
    assert "virsh schedinfo: no reply" in str(result.exception)
    if "--json" in form:
        assert json.loads(result.stdout)["execution"]["complete"]
    else:
        assert "1 move done, 0 remain" in result.stdout
    assert placed(tmp_path)["b"] != "h2"


def test_ctrl_c_twice_aborts_what_runs_and_says_where_everything_is(libvirt, tmp_path):
    for name in ("a", "hard"):
        (tmp_path / "h1" / name).unlink()
    command = [sys.executable, "-m", "dfrs.cli.main", "rebalance", *map(str, libvirt), "--maintenance", "h1", "--apply"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        end = time.monotonic() + 90
        while time.monotonic() < end and "migrate" not in (tmp_path / "log").read_text():
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=30)
    assert child.returncode == 130, errors
    assert "Ctrl-C again aborts them" in errors
    assert "remains: slow: h1 to" in out
    assert "it is on h1" in out
    assert placed(tmp_path)["slow"] == "h1"


def moves(*machines):
    """Of these from h1 to h2, one after another."""
    return [
        Migration(machine=name, source="h1", target="h2", start_s=float(k), end_s=k + 1.0)
        for k, name in enumerate(machines)
    ]


def full(*_, **__):
    """What a full disk says."""
    raise OSError(errno.ENOSPC, "No space left on device")


def gone(*_, **__):
    """What Rich does where the reader of a pipe has left."""
    raise SystemExit(1)


@pytest.mark.parametrize(("failing", "error"), [(full, OSError), (gone, SystemExit)])
def test_a_plan_whose_moves_cannot_be_told_is_carried_out_to_its_end(monkeypatch, capsys, failing, error):
    monkeypatch.setattr(console.out, "print", failing)
    mover = InMemoryMover(dict.fromkeys("abc", "h1"))
    mover.fails["c"] = "no route to host"
    with pytest.raises(error):
        apply_moves(moves(*"abc"), mover, quiet=False)
    assert mover.place == {"a": "h2", "b": "h2", "c": "h1"}
    assert capsys.readouterr().err.splitlines() == [
        "2 moves done, 1 remain",
        "ended: c: h1 to h2: no route to host",
        "remains: c: h1 to h2; it is on h1",
    ]


class SlowLater(InMemoryMover):
    """Moves the first machine at once."""

    def move(self, move, /):
        super().move(move)
        self._lasts_s = 60.0


def test_ctrl_c_twice_aborts_also_moves_that_cannot_be_told(monkeypatch, capsys):
    monkeypatch.setattr(console.out, "print", full)
    monkeypatch.setattr(console.err, "print", lambda text, **_: gone() if "migrations" in text else print(text))
    mover = SlowLater(dict.fromkeys("abc", "h1"))

    def interrupt():
        end = time.monotonic() + 10.0
        while time.monotonic() < end and len(mover.begun) < 2:
            time.sleep(0.01)
        for _ in range(2 if len(mover.begun) == 2 else 0):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(OSError, match="No space left"):
        apply_moves(moves(*"abc"), mover, quiet=False)
    assert time.monotonic() - began < 30.0
    first, ended, *remain = capsys.readouterr().out.splitlines()
    assert (first, ended) == ("1 move done, 2 remain", "ended: interrupted")
    assert remain == [f"remains: {name}: h1 to h2; it is on h1" for name in "bc"]


@pytest.mark.parametrize("form", ["now", "watch", "saved"])
def test_what_was_moved_is_told_where_the_document_cannot_be_written(libvirt, tmp_path, monkeypatch, form):
    (tmp_path / "h1" / "hard").unlink()
    words = [*libvirt, "--maintenance", "h2", "--json"]
    if form == "saved":
        run(*words, "--save-plan", tmp_path / "plan.json")
        words = [*libvirt, "--plan", tmp_path / "plan.json", "--json"]
    words += {"now": ["--apply"], "watch": ["--apply", "--watch", "0.1s", "--times", 1], "saved": []}[form]
    monkeypatch.setattr(running if form == "watch" else sys.modules[rebalance.__module__], "print_json", full)
    result = CliRunner().invoke(app, [str(word) for word in (*words, *QUICK)])
    assert "No space left" in str(result.exception)
    assert "1 move done, 0 remain" in result.stderr
    assert placed(tmp_path)["b"] != "h2"


def test_watching_acts_once_and_then_waits(libvirt, tmp_path):
    (tmp_path / "h1" / "hard").unlink()
    (tmp_path / "h1" / "slow").unlink()
    text = run(*libvirt, "--maintenance", "h2", "--watch", "0.1s", "--times", 3, "--apply")
    kinds = [line.split()[1] for line in text.splitlines() if line[2:3] == ":"]
    assert kinds == ["repair:", "wait:", "wait:"]
    assert placed(tmp_path)["b"] != "h2"


def test_watching_ends_with_status_1_if_a_move_failed(libvirt, tmp_path):
    for name in ("a", "slow"):
        (tmp_path / "h1" / name).unlink()
    text = run(*libvirt, "--maintenance", "h1", "--watch", "0.1s", "--times", 2, "--apply", status=1)
    assert text.count("ended: hard: h1 to") == 2


LIVE_NODE = {
    "host": "h", "state": "up", "cpus": 4.0, "memory_bytes": 8 << 30, "memory_free_bytes": 1, "used_cores": 0.0,
    "granted_cores": 0.0, "tasks": [], "shares": "nice", "caps": False, "pause_frees_memory": False, "notes": [],
    "connected": True, "seen_at": 0.0, "version": "1",
}  # fmt: skip
LIVE_JOB = {
    "user": "u", "state": "running", "why": "", "command": ["x"], "cpu_cores": None, "need_error_cores": 0.1,
    "memory_bytes": 1 << 30, "minimum_yield": 0.0, "yield_granted": 1.0, "yield_received": None,
    "yield_received_error": None, "used_cores": None, "used_bytes": None, "cpu_s": 0.0, "submitted_at": 0.0,
    "started_at": 0.0, "ended_at": None, "start_at": None, "virtual_s": 0.0, "stretch": None, "estimate_s": None,
    "after": [], "array_index": None, "attempt": 0, "pauses": 0, "migrations": 0, "exit": "", "exit_code": None,
}  # fmt: skip
LIVE_TASK = {"rank": 0, "user": "u", "name": "x", "share_cores": 0.0, "used_cores": None, "paused": False}


def live(nodes, jobs):
    """A snapshot of nodes and jobs as a cluster's controller gives them."""
    return ClusterSnapshot.model_construct(
        nodes=tuple(_model(ClusterSnapshot, "nodes", nodes)), jobs=tuple(_model(ClusterSnapshot, "jobs", jobs))
    )


def test_a_running_dfrs_cluster_is_a_snapshot():
    node, job = LIVE_NODE, LIVE_JOB
    jobs = [
        job | {"id": 2, "name": "b", "tasks": 1, "need_cores": 3.0, "cpu_cores": 4.0, "nodes": ["n1"]},
        job | {"id": 1, "name": "a", "tasks": 2, "need_cores": 2.0, "nodes": ["n1", "n2"]},
        job | {"id": 3, "name": "c", "tasks": 1, "need_cores": 2.0, "nodes": [], "state": "waiting"},
    ]
    nodes = [node | {"name": "n1"}, node | {"name": "n2"}, node | {"name": "n3", "state": "lost"}]
    seen = live(nodes, jobs)
    state = live_state(seen, NeedRule())
    assert state.instance.services == ("job 1", "job 2")
    assert state.instance.nodes == ("n1", "n2")
    assert state.present.tolist() == [0, 1, 0]
    assert state.instance.need[:, 1].tolist() == [0.5, 0.5, 0.75]
    assert live_state(seen, NeedRule(by="allocated")).instance.need[2, 1] == 1.0
    assert state.notes == ("left out, since they wait or are paused: 1 job",)
    used = seen.model_copy(update={"nodes": (seen.nodes[0], seen.nodes[1].model_copy(update={"left_cores": 1.0}))})
    assert live_state(used, NeedRule()).instance.capacity[:, 1].tolist() == [1.0, 0.25]
    drained = seen.model_copy(
        update={"nodes": (seen.nodes[0], seen.nodes[1].model_copy(update={"state": NodeState.DRAINING}))}
    )
    rules = live_state(drained, NeedRule()).instance.rules
    assert rules.problems(state.present) == []
    assert "n2 is draining" in rules.problems(state.present * 0 + 1)[0]
    with pytest.raises(InputError, match="no job runs"):
        live_state(seen.model_copy(update={"jobs": ()}), NeedRule())


@pytest.mark.parametrize(
    "asked",
    [
        {"nodelist": ["n1"]},
        {"exclude": ["n3"]},
        {"constraint": "ssd"},
        {"resources": {"gpu": 1}},
        {"exclusive": True},
    ],
)
def test_a_live_job_that_may_not_go_everywhere_stays(asked):
    job = LIVE_JOB | {"tasks": 1, "need_cores": 1.0}
    jobs = [
        job | {"id": 1, "name": "a", "tasks": 2, "nodes": ["n1", "n2"]} | asked,
        job | {"id": 2, "name": "b", "nodes": ["n3"]},
    ]
    state = live_state(live([LIVE_NODE | {"name": name} for name in ("n1", "n2", "n3")], jobs), NeedRule())
    assert state.notes == ("stay where they are (ask for certain nodes, resources or whole nodes): job 1",)
    rules = state.instance.rules
    assert rules.problems(state.present) == []
    assert "job 1/1 stays" in rules.problems(np.array([0, 2, 2]))[0]
    # Beside what has its nodes to itself nothing may go; anywhere else it may.
    beside = rules.problems(np.array([0, 1, 0]))
    assert (beside == []) == ("exclusive" not in asked)
    assert all("n1 is job 1's alone" in line for line in beside)


def test_memory_of_live_jobs_that_are_left_out_is_not_free():
    job = LIVE_JOB | {"tasks": 1, "need_cores": 1.0}
    jobs = [
        job | {"id": 1, "name": "a", "nodes": ["n1"]},
        job | {"id": 2, "name": "b", "nodes": ["n1"], "state": "ending"},
        job | {"id": 3, "name": "c", "tasks": 2, "nodes": ["n1", "n3"]},
        job | {"id": 4, "name": "d", "tasks": 2, "nodes": ["n1", "n2"], "state": "paused"},
    ]
    on = {"n1": (1, 2, 3, 4), "n2": (4,), "n3": (3,)}
    nodes = [
        LIVE_NODE | {"name": name, "tasks": [LIVE_TASK | {"job": k, "paused": k == 4} for k in on[name]]}
        for name in ("n1", "n2", "n3")
    ]
    nodes[1]["pause_frees_memory"], nodes[2]["state"] = True, "silent"
    state = live_state(live(nodes, jobs), NeedRule())
    assert state.instance.services == ("job 1",)
    assert state.instance.capacity[:, 0].tolist() == [5 / 8, 1.0]
    assert state.notes == (
        "left out, since they wait or are paused: 1 job",
        "left out, since they end or are on nodes that do not answer: 2 jobs",
    )


def _model(parent, field, entries):
    """Entries as the model that the elements of a field have."""
    (kind, *_) = get_args(parent.model_fields[field].annotation)
    return [kind.model_validate(entry) for entry in entries]
