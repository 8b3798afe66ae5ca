"""Nodes whose tasks are in images: they go to other hosts, and pauses free memory without swap space.

Two state roots on this machine stand for two hosts. Needs a CRIU, see `tests.images`.
"""

import io
import os
import random
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from dfrs.live.drivers.base import (
    CheckpointRefusedError,
    DriverError,
    ExitKind,
    NotYetError,
    PauseRefusedError,
    TaskFile,
    TaskState,
)
from dfrs.live.drivers.control_groups.v2 import NodeGroupV2
from dfrs.live.drivers.nice_levels.driver import NiceDriver
from dfrs.live.drivers.processes.image_files import ImageError
from dfrs.live.drivers.processes.supervisor import living, stat_fields
from tests.driver_hosts import MIB, PYTHON, Host, ended, host, processes, running, state, task, until, used
from tests.images import (
    COUNTER,
    ONE,
    UNIFIED,
    WITH_CRIU,
    Breaking,
    advances,
    counted,
    criu_of,
    output,
    small_disk,
    start,
    stop,
    written,
)

pytestmark = WITH_CRIU
__all__ = ["host", "small_disk"]

BUDGET = 1 << 30


@pytest.fixture
def other(tmp_path):
    """Another host."""
    made = Host(tmp_path / "other")
    yield made
    made.close()


def node_of(host, name="n0", version=1, **options):
    if version == 2:
        if UNIFIED is None:
            pytest.skip("needs control groups of version 2")
        options |= {"groups": NodeGroupV2(UNIFIED, host.cluster, name), "cpus": None}
    return host.node(name, **{"images_bytes": BUDGET} | options)


def spec_of(host, size=8, program=COUNTER):
    return host.spec(PYTHON, "-c", program, str(size), memory_bytes=(size + 64) * MIB)


def transfer(source, target, spec, which=ONE):
    """Send and receive as two hosts do."""
    ours, theirs = socket.socketpair()

    def give():
        with ours, ours.makefile("wb") as stream:
            source.send(which, stream)

    with theirs, theirs.makefile("rb") as stream, ThreadPoolExecutor(1) as pool:
        sent = pool.submit(give)
        try:
            target.receive(which, spec, stream)
        finally:
            theirs.shutdown(socket.SHUT_RDWR)
        sent.result()


def status(node, which=ONE):
    return next(one for one in node.tasks() if one.task == which)


def images_left(host):
    return sorted(path.name for path in (host.root / "images").iterdir())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("paused", [False, True])
def test_there_and_back(host, other, version, paused):
    here, there = node_of(host, version=version), node_of(other, version=version)
    start(here, host, size=16)
    spec = spec_of(host, 16)
    nodes, hosts = [here, there], [host, other]
    for transfers in (1, 2, 3):
        source, target = nodes
        if paused:
            source.pause(task())
        before = used(source, task())
        transfer(source, target, spec)
        assert (state(source, task()), status(source).transfers) == (TaskState.HANDED, transfers - 1)
        assert (state(target, task()), status(target).transfers) == (TaskState.PAUSED, transfers)
        assert output(source) == output(target)
        transfer_again(source, target, spec)
        with pytest.raises(DriverError, match="take it back first"):
            source.resume(task())
        target.take(task(), 0.5)
        assert used(target, task()).cpu_s >= before.cpu_s
        assert target.groups.group("1.0.0").exists()
        source.forget(task())
        assert state(source, task()) is TaskState.ABSENT
        assert images_left(hosts[0]) == []
        ends = written(target)
        time.sleep(0.05)
        assert written(target) == ends
        target.resume(task())
        assert state(target, task()) is TaskState.RUNNING
        assert images_left(hosts[1]) == []
        assert advances(target)
        assert not list((hosts[1].root / "output").iterdir())
        # An agent that starts anew finds it.
        nodes = [node_of(hosts[1], version=version), source]
        hosts.reverse()
        assert status(nodes[0]).transfers == transfers
    end = stop(nodes[0])
    assert end.kind is ExitKind.STOPPED
    assert version == 2 or end.cpu_s >= before.cpu_s > 0
    assert counted(nodes[0]) == {b"a"}
    assert nodes[1].output(task(), "out", 0, 100)[0] == output(nodes[0])[:100]


def transfer_again(source, target, spec):
    """Who has it takes nothing."""
    with pytest.raises(OSError, match=r"[Bb]roken pipe|reset"):
        transfer(source, target, spec)
    assert (state(source, task()), state(target, task())) == (TaskState.HANDED, TaskState.PAUSED)


def test_output_goes_on_in_the_users_file_wherever_the_task_goes(host, other, tmp_path):
    file = tmp_path / "out.txt"
    named = {"output_file": TaskFile(name=str(file), mode="truncate")}
    here, there = node_of(host), node_of(other)
    start(here, host, **named)
    assert advances(here)
    transfer(here, there, spec_of(host).model_copy(update=named))
    there.take(task(), 0.5)
    here.forget(task())
    there.resume(task())
    assert advances(there)
    stop(there)
    assert counted(there) == {b"a"}
    assert file.read_bytes() == output(there)


@pytest.mark.slow
def test_a_large_one(host, other):
    here, there = node_of(host), node_of(other)
    start(here, host, size=512)
    silent = [None, None]
    for number in (0, 1):
        began = time.monotonic()
        transfer(here, there, spec_of(host, 512))
        here.forget(task())
        there.take(task(), 1.0)
        there.resume(task())
        assert advances(there)
        silent[number] = time.monotonic() - began
        here, there = there, here
    print(f"gaps of 512 MiB: {silent[0]:.2f} s, {silent[1]:.2f} s")
    assert min(silent) < 10.0
    stop(here)
    assert counted(here) == {b"a"}


def test_taken_back(host, other):
    here, there = node_of(host), node_of(other)
    start(here, host)
    for number in range(3):
        with suppress(OSError) if number else pytest.raises(BrokenPipeError):
            here.send(task(), Breaking())
        assert state(here, task()) is TaskState.HANDED
        assert not processes(host.cluster)
        if number == 1:
            # An agent that starts anew keeps the promise.
            here = node_of(host)
            assert state(here, task()) is TaskState.HANDED
        here.take(task(), 0.5)
        assert (state(here, task()), status(here).transfers) == (TaskState.PAUSED, 0)
        here.resume(task())
        assert advances(here)
    with pytest.raises(BrokenPipeError):
        here.send(task(), Breaking())
    transfer(here, there, spec_of(host))
    here.forget(task())
    there.take(task(), 0.5)
    there.resume(task())
    assert advances(there)
    stop(there)
    assert counted(there) == {b"a"}


CONNECTED = """
import socket, sys, time
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
number = 0
while True:
    print("a", number, flush=True)
    number += 1
    time.sleep(0.001)
"""


@pytest.mark.parametrize("paused", [False, True])
def test_what_cannot_be_check_pointed_stays_as_it_was(host, other, paused):
    here, there = node_of(host, images_bytes=BUDGET), node_of(other)
    with socket.create_server(("127.0.0.1", 0)) as server:
        start(here, host, CONNECTED, size=server.getsockname()[1], memory_bytes=64 * MIB)
        if paused:
            with pytest.raises(PauseRefusedError, match="TCP"):
                here.pause(task())
            here.pause(task(), keep=True)
        was = state(here, task())
        assert was is (TaskState.PAUSED if paused else TaskState.RUNNING)
        with pytest.raises(CheckpointRefusedError, match="TCP"):
            refused(here, there, spec_of(host))
        assert (state(here, task()), state(there, task())) == (was, TaskState.ABSENT)
        assert images_left(host) == images_left(other) == []
        here.resume(task())
        assert advances(here)
    stop(here)
    assert counted(here) == {b"a"}
    with pytest.raises(CheckpointRefusedError, match="has ended"):
        here.send(task(), Breaking())


def refused(here, there, spec):
    """Raises what the sender meets; the receiver meets the end of the stream."""
    ours, theirs = socket.socketpair()
    with theirs, theirs.makefile("rb") as stream:
        try:
            with ours, ours.makefile("wb") as out:
                here.send(task(), out)
        finally:
            with pytest.raises(EOFError):
                there.receive(task(), spec, stream)


def test_who_takes_nothing(host, other):
    here, there = node_of(host), node_of(other)
    start(here, host)
    spec = spec_of(host)
    closed = node_of(other, "n1", images_bytes=0)
    for node, given, why in (
        (there, spec.model_copy(update={"memory_bytes": 1 << 40}), "node n0 has"),
        (host.node("n2", driver=NiceDriver), spec, "need control groups"),
    ):
        with pytest.raises(DriverError, match=why):
            node.receive(task(2), given, Breaking())
    with pytest.raises(DriverError, match="none are allowed"):
        closed.receive(task(2), spec, Breaking())
    assert closed.abilities.images is None
    assert "no check-points: none are allowed" in closed.abilities.notes
    with pytest.raises(ImageError, match="not a file"):
        there.receive(task(), spec, garbage())
    transfer(here, there, spec)
    with pytest.raises(DriverError, match="node n0 of this host has it"):
        node_of(other, "n1").receive(task(), spec, Breaking())
    with pytest.raises(DriverError, match="was given up here and not forgotten"):
        here.receive(task(), spec, Breaking())
    there.forget(task())
    assert state(there, task()) is TaskState.ABSENT
    assert images_left(other) == []
    with pytest.raises(DriverError, match="no out output on this host"):
        there.output(task(3), "out", 0, 1)


def garbage():
    return io.BytesIO(b"\x03\x00\x01\x00\x00\x00abcx")


@pytest.mark.parametrize("ending", ["stop", "forget", "sweep", "stop after the agent's restart"])
@pytest.mark.parametrize("received", [False, True])
def test_ended_in_its_image(host, other, ending, received):
    here, there = node_of(host), node_of(other)
    start(here, host)
    transfer(here, there, spec_of(host))
    node, where = (there, other) if received else (here, host)
    rest = here if received else there
    rest.forget(task())
    if not received:
        here.take(task(), 0.5)
    said = output(node)
    if "restart" in ending:
        pid = living(node.files.supervisor(task()))
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            until(lambda: stat_fields(pid)[:1] in ([], ["Z"]))
        node = node_of(where)
    if "stop" in ending:
        node.stop(task(), 5.0)
        assert ended(node, task()).kind is ExitKind.STOPPED
        assert output(node) == said
        node.forget(task())
    elif ending == "forget":
        node.forget(task())
    else:
        assert node.sweep() == (0, [])
    assert state(node, task()) is TaskState.ABSENT
    assert images_left(where) == []
    assert node.output(task(), "out", 0, 1 << 20)[0] == said


def test_what_a_killed_agent_leaves_is_swept_also_without_criu(host, monkeypatch):
    node = node_of(host)
    start(node, host)
    node.pause(task())
    (host.root / "images" / ".new.left").mkdir()
    (host.root / "images" / "1.0.0.left").mkdir()
    monkeypatch.setenv("DFRS_CRIU", "/no/such/criu")
    node = node_of(host)
    assert node.abilities.images is None
    assert "no check-points: /no/such/criu: No such file or directory" in node.abilities.notes
    with pytest.raises(DriverError, match="cannot be restored: /no/such/criu"):
        node.resume(task())
    assert state(node, task()) is TaskState.PAUSED
    assert len(images_left(host)) == 3
    assert node.sweep() == (0, [])
    assert images_left(host) == []


@pytest.mark.parametrize("version", [1, 2])
def test_between_nodes_of_a_host(host, other, version):
    first, second = node_of(host, version=version), node_of(host, "n1", version=version)
    there = node_of(other, version=version)
    start(first, host)
    first.pause(task())
    assert first.files.in_image(task())
    first.hand(task())
    assert state(first, task()) is TaskState.HANDED
    second.take(task(), 0.5)
    assert (state(first, task()), state(second, task())) == (TaskState.ABSENT, TaskState.PAUSED)
    transfer(second, there, spec_of(host))
    second.forget(task())
    third = node_of(other, "n1", version=version)
    there.hand(task())
    third.take(task(), 0.5)
    assert status(third).transfers == 1
    third.resume(task())
    assert advances(third)
    stop(third)
    assert counted(third) == {b"a"}
    assert images_left(host) == images_left(other) == []


def test_after_the_machine_was_started_anew(host, other):
    """Its groups are gone, and its supervisor; its image is not."""
    here, there = node_of(host), node_of(other)
    start(here, host)
    transfer(here, there, spec_of(host))
    here.forget(task())
    for _ in range(2):
        there = node_of(other)
        assert status(there).transfers == 1
        there.set_share(task(), 0.5)
        there.resume(task())
        assert advances(there)
        there.pause(task())
        pid = living(there.files.supervisor(task()))
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: stat_fields(pid)[:1] in ([], ["Z"]))
        path = Path(there.files.path(task())) / "supervisor.pid"
        path.write_text(path.read_text()[:-4] + "beef")
        there.groups.group("1.0.0").remove()
    there = node_of(other)
    there.resume(task())
    assert advances(there)
    stop(there)
    assert counted(there) == {b"a"}


def test_a_pause_frees_memory_for_others(host):
    node = node_of(host, memory_bytes=200 * MIB)
    abilities = node.abilities
    assert abilities.pause_frees_memory
    assert abilities.images is not None
    assert "the memory of paused tasks goes to images" in abilities.notes
    start(node, host, size=64)
    sleeper = host.spec("/bin/sleep", "60", memory_bytes=160 * MIB)
    with pytest.raises(NotYetError, match="waits until others have left node n0's memory"):
        node.start(task(2), sleeper, 0.5)
    for _ in range(2):
        node.pause(task())
        assert (status(node).state, status(node).kept) == (TaskState.PAUSED, False)
        assert used(node, task()).memory_bytes < 4 * MIB
    node.start(task(2), sleeper, 0.5)
    running(node, task(2))
    with pytest.raises(NotYetError):
        node.resume(task())
    node.pause(task(2))
    node.resume(task())
    assert advances(node)
    with pytest.raises(NotYetError):
        node.resume(task(2))
    stop(node)
    assert counted(node) == {b"a"}
    assert node.sweep() == (0, [])
    assert images_left(host) == []


def test_a_pause_that_no_image_has_room_for_is_refused_and_the_task_runs_on(host):
    node = node_of(host, images_bytes=8 * MIB)
    start(node, host, size=64)
    with pytest.raises(PauseRefusedError, match=r"\Atask 1.0.0: cannot [^\n]*: images may take 8 MiB[^\n]*\Z"):
        node.pause(task())
    assert state(node, task()) is TaskState.RUNNING
    assert advances(node)
    node.pause(task(), keep=True)
    assert (status(node).state, status(node).kept) == (TaskState.PAUSED, True)
    assert used(node, task()).memory_bytes > 60 * MIB
    node.resume(task())
    assert images_left(host) == []
    # What is in an image comes back also where no more are made.
    node = node_of(host)
    node.pause(task())
    node = node_of(host, images_bytes=0)
    assert not node.abilities.pause_frees_memory
    assert state(node, task()) is TaskState.PAUSED
    node.resume(task())
    assert advances(node)
    stop(node)
    assert counted(node) == {b"a"}


def test_a_full_disk(small_disk):
    node = node_of(small_disk)
    start(node, small_disk, size=128)
    with pytest.raises(PauseRefusedError, match="cannot be check-pointed: No space left on device"):
        node.pause(task())
    with pytest.raises(CheckpointRefusedError, match="No space left on device"):
        node.send(task(), Breaking())
    assert state(node, task()) is TaskState.RUNNING
    assert advances(node)
    assert images_left(small_disk) == []
    stop(node)
    assert counted(node) == {b"a"}


def test_unless_told_otherwise_images_take_a_tenth_of_what_is_free(small_disk):
    node = node_of(small_disk, images_bytes=None)
    assert 2 * MIB < node.images.max_bytes <= 3.2 * MIB


def test_several_at_once(host, other):
    """With other programs' numbers in use, as each is restored on the machine where it was."""
    here, there = node_of(host), node_of(other)
    for number in (1, 2, 3):
        here.start(task(number), spec_of(host), 0.3)
        until(lambda number=number: written(here, task(number)))
    with ThreadPoolExecutor(3) as pool:
        moves = [pool.submit(transfer, here, there, spec_of(host), task(number)) for number in (1, 2, 3)]
        for move in moves:
            move.result()
        list(pool.map(there.resume, map(task, (1, 2, 3))))
    for number in (1, 2, 3):
        here.forget(task(number))
        assert advances(there, task(number))
        there.stop(task(number), 5.0)
        ended(there, task(number))
        assert counted(there, task(number)) == {b"a"}
    assert images_left(host) == images_left(other) == []


def both(here, there, spec):
    """A process that sends, and one that receives."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = child(lambda: here.send(task(), ours.makefile("wb")), theirs)
        receiver = child(lambda: there.receive(task(), spec, theirs.makefile("rb")), ours)
    return sender, receiver


def child(action, closing):
    """A process that does it."""
    pid = os.fork()
    if pid == 0:
        try:
            closing.close()
            with suppress(DriverError, OSError, EOFError):
                action()
        finally:
            os._exit(0)
    return pid


def goes_on(node):
    """What was killed may have left it frozen."""
    until(lambda: node.resume(task()) or state(node, task()) is TaskState.RUNNING)
    return advances(node)


@pytest.mark.parametrize("victim", ["sender", "receiver"])
@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_at_any_instant(host, other, victim, rounds):
    """The task is in one place at a time, whatever is killed when; then the roles change."""
    rng = random.Random(f"{victim} {rounds}")
    hosts = [host, other]
    here, there = map(node_of, hosts)
    start(here, host)
    spec = spec_of(host)
    began = time.monotonic()
    transfer(here, there, spec)
    takes_s = time.monotonic() - began
    there.forget(task())
    here.take(task(), 0.5)
    here.resume(task())
    arrived = 0
    for number in range(rounds):
        children = both(here, there, spec)
        time.sleep(rng.uniform(0, 2 * takes_s))
        os.kill(children[victim == "receiver"], signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
        until(lambda: not [*criu_of(host), *criu_of(other)])
        here, there = map(node_of, hosts)
        if state(there, task()) is TaskState.PAUSED:
            assert state(here, task()) is TaskState.HANDED
            arrived += 1
        else:
            assert state(there, task()) is TaskState.ABSENT
            if state(here, task()) is TaskState.HANDED and number % 2:
                here.take(task(), 0.5)
            else:
                transfer(here, there, spec)
        if state(there, task()) is TaskState.PAUSED:
            here.forget(task())
            here, there = there, here
            hosts.reverse()
            here.take(task(), 0.5)
        assert goes_on(here)
        assert len(processes(host.cluster)) == 1
        assert images_left(host) == images_left(other) == []
    # On a busy machine a few rounds may all end alike.
    assert rounds < 100 or 0 < arrived < rounds
    assert stop(here).kind is ExitKind.STOPPED
    assert counted(here) == {b"a"}
