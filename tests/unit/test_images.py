"""Check-points of tasks: what they were doing goes on, no byte of output twice or missing, whatever is killed.

Needs a CRIU that works, which `make criu` unpacks into .venv/criu, or which DFRS_CRIU names.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dfrs.live.drivers.base import ExitKind, TaskState
from dfrs.live.drivers.processes import criu as criu_module
from dfrs.live.drivers.processes import image_files as files_module
from dfrs.live.drivers.processes import images as images_module
from dfrs.live.drivers.processes.criu import find_criu
from dfrs.live.drivers.processes.image_files import Frames, History, ImageError, receive
from dfrs.live.drivers.processes.images import Images
from dfrs.live.drivers.processes.launching import launch
from dfrs.live.drivers.processes.supervisor import living, pack, read_text, stat_fields, unpack
from dfrs.live.drivers.processes.supervisor.loop import Supervisor
from tests.driver_hosts import MIB, PYTHON, Host, ended, host, processes, running, state, task, until, used
from tests.images import (
    COUNTER,
    CRIU,
    FAMILY,
    ONE,
    UNIFIED,
    WITH_CRIU,
    Breaking,
    advances,
    counted,
    criu_of,
    output,
    second_version,
    small_disk,
    start,
    stop,
    written,
)

pytestmark = WITH_CRIU
__all__ = ["host", "small_disk"]


def images_of(host, max_bytes=1 << 30, **options):
    return Images(host.root, max_bytes, CRIU, **options)


def back(images, node, which=ONE):
    images.restore(which, node.groups.group(str(which)).entries(), launch)


@pytest.mark.skipif(UNIFIED is None, reason="needs control groups of version 2")
@pytest.mark.parametrize("own_numbers", [True, False])
def test_in_control_groups_of_version_2(host, monkeypatch, own_numbers):
    if not own_numbers:
        monkeypatch.setattr(images_module, "taken", lambda numbers: True)
    node, images = second_version(host), images_of(host)
    start(node, host)
    for paused in (False, True, False):
        if paused:
            node.pause(task())
        images.checkpoint(task())
        assert state(node, task()) is TaskState.PAUSED
        back(images, node)
        assert state(node, task()) is TaskState.RUNNING
        assert advances(node)
    stop(node)
    assert counted(node) == {b"a"}


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("size", [8, 64, pytest.param(512, marks=pytest.mark.slow)])
def test_goes_on_where_it_was_under_the_same_supervisor(host, size, compress):
    node, images = host.node(), images_of(host, compress=compress)
    pid = start(node, host, size=size)
    supervisor = node.files.supervisor(task())
    for _ in range(2):
        before = used(node, task())
        manifest = images.checkpoint(task())
        assert manifest.plain_bytes >= size * MIB
        assert compress == (manifest.stored_bytes < 0.7 * manifest.plain_bytes)
        assert images.used_bytes() >= manifest.stored_bytes
        assert state(node, task()) is TaskState.PAUSED
        assert used(node, task()).memory_bytes < 4 * MIB < before.memory_bytes
        assert not processes(host.cluster)
        end = written(node)
        images.checkpoint(task())
        assert written(node) == end
        back(images, node)
        back(images, node)
        assert state(node, task()) is TaskState.RUNNING
        assert node.files.supervisor(task()) == supervisor
        assert advances(node)
        assert used(node, task()).cpu_s >= before.cpu_s
        assert images.used_bytes() == 0
    assert pid in node.groups.group("1.0.0").members()
    assert stop(node).signal == signal.SIGTERM
    assert counted(node) == {b"a"}


def test_a_tree_of_processes_with_threads(host):
    node, images = host.node(), images_of(host)
    start(node, host, FAMILY)
    for own_numbers in (True, False, False):
        until(lambda: len({line.split()[0] for line in output(node)[-4000:].split(b"\n")[1:-1]}) == 9)
        before = len(processes(host.cluster))
        assert before == 4
        with pytest.MonkeyPatch.context() as patch:
            if not own_numbers:
                patch.setattr(images_module, "taken", lambda numbers: True)
            images.checkpoint(task())
            back(images, node)
        assert advances(node)
    assert stop(node).kind is ExitKind.STOPPED
    assert len(counted(node)) == 9
    assert not processes(host.cluster)


@pytest.mark.parametrize("at_once", [True, False])
def test_on_another_host(host, tmp_path, at_once):
    """With other tasks' numbers in use there, as on a machine where both run."""
    node, images = host.node(), images_of(host)
    start(node, host, size=16, output_bytes=4096)
    until(lambda: written(node) > 9000)
    other = Host(tmp_path / "other")
    there, images_there = other.node(), images_of(other)
    with open(tmp_path / "sent", "w+b") as stream:
        frames = Frames(stream)
        images.checkpoint(task(), frames if at_once else None)
        assert (stream.tell() > 16 * MIB // 4) is at_once
        images.send(task(), frames, promise)
        for length in (0, 3, stream.tell() // 2, stream.tell() - 1):
            stream.seek(0)
            with open(tmp_path / "part", "w+b") as part:
                part.write(stream.read(length))
                part.seek(0)
                with pytest.raises(EOFError):
                    images_there.receive(task(), part, lambda _: None)
            assert images_there.used_bytes() == 0
            assert there.tasks() == []
        for _ in range(2):
            stream.seek(0)
            images_there.receive(task(), stream, lambda history: adopt(there, node))
    assert images_there.used_bytes() < 1.1 * images.used_bytes()
    ends, limit = written(node), node._limit(task())
    node.forget(task())
    images.sweep()
    assert images.used_bytes() == 0
    assert state(there, task()) is TaskState.PAUSED
    # An agent that starts anew finds it.
    there = other.node()
    assert state(there, task()) is TaskState.PAUSED
    assert written(there) == ends
    there.groups.group(str(task())).create(limit)
    back(images_there, there)
    until(lambda: written(there) > ends + 9000)
    assert stop(there).kind is ExitKind.STOPPED
    kept, begin, end = there.output(task(), "out", 0, 1 << 20)
    numbers = [int(line.split()[1]) for line in kept.splitlines()[1:-1]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    whole = b"".join(b"a %d\n" % number for number in range(numbers[-1] + 100))
    assert whole[begin:end] == kept
    other.close()


def test_a_program_that_runs_others_all_the_time(host):
    """CRIU cannot stop a parent that waits for its child to begin a program."""
    node, images = host.node(), images_of(host)
    node.start(task(), host.shell("n=0; while :; do /bin/true; echo a $n; n=$((n+1)); done"), 1.0)
    running(node, task())
    for _ in range(10):
        until(lambda: written(node))
        began = time.monotonic()
        images.checkpoint(task())
        assert time.monotonic() - began < 8.0
        back(images, node)
        assert advances(node)
    stop(node)
    assert counted(node) == {b"a"}


def promise():
    return History(transfers=1, carried={})


def test_a_connection_that_breaks_does_not_end_the_dump(host):
    node, images = host.node(), images_of(host)
    start(node, host, size=16)
    frames = Frames(Breaking())
    images.checkpoint(task(), frames)
    with pytest.raises(BrokenPipeError):
        images.send(task(), frames, promise)
    back(images, node)
    assert advances(node)
    stop(node)
    assert counted(node) == {b"a"}


def adopt(there, node):
    """What the driver of another host makes for a task that comes to it."""
    owner = replace(node.files.owner(task()), node=there.node, place=there._place(task()), carried={})
    there.files.create(task(), owner, unpack(read_text(f"{node.files.path(task())}/spec")))


def test_exit_status_and_time_limit_after_it(host):
    node, images = host.node(), images_of(host)
    node.start(
        task(1), host.shell("while [ ! -e %s ]; do sleep 0.01; done; echo done; exit 7" % (host.root / "go")), 0.5
    )
    node.start(task(2), host.spec("/bin/sh", "-c", "while :; do sleep 0.01; done", time_limit_s=2.0), 0.5)
    for which in (task(1), task(2)):
        running(node, which)
        images.checkpoint(which)
    time.sleep(2.2)
    for which in (task(1), task(2)):
        back(images, node, which)
    began = time.monotonic()
    assert ended(node, task(2)).kind is ExitKind.TIME_LIMIT
    assert time.monotonic() - began > 0.3
    (host.root / "go").touch()
    assert ended(node, task(1)).code == 7
    assert output(node, task(1)) == b"done\n"


def test_a_task_that_uses_all_of_its_memory(host):
    node, images = host.node(), images_of(host)
    start(node, host, size=32)
    needs = used(node, task()).memory_bytes
    stop(node)
    node.forget(task())
    start(node, host, size=32, memory_bytes=needs + MIB)
    limits = [Path(path).parent / "memory.limit_in_bytes" for path in node.groups.group(str(task())).entries()]
    before = [path.read_text() for path in limits if path.exists()]
    for _ in range(2):
        images.checkpoint(task())
        back(images, node)
        assert advances(node)
        assert [path.read_text() for path in limits if path.exists()] == before
    stop(node)
    counted(node)


def test_a_number_that_is_in_use_by_now(host):
    node, images = host.node(), images_of(host)
    pid = start(node, host)
    images.checkpoint(task())
    taken = take_number(pid)
    try:
        back(images, node)
        assert advances(node)
        status = next(one for one in node.tasks() if one.task == task())
        assert status.pid not in (None, pid)
        # And again, from the namespace in which it now is.
        images.checkpoint(task())
        back(images, node)
        # The exit status comes from there, too.
        assert stop(node).signal == signal.SIGTERM
        assert counted(node) == {b"a"}
        node.forget(task())
        pid = start(node, host, FAMILY)
        images.checkpoint(task())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(images_module, "taken", lambda numbers: True)
            back(images, node)
        end_supervisor(node)
        assert ended(node, task()).message == "its supervisor was killed"
        assert until(lambda: not processes(host.cluster), 2.0)
    finally:
        taken.kill()
        taken.wait()


def take_number(number):
    """A process of that number."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
        process = subprocess.Popen(["/bin/sleep", "600"])
        if process.pid == number:
            return process
        process.kill()
        process.wait()
    pytest.skip("the machine is too busy to give a process a certain number")


def test_stopped_and_forgotten_while_in_the_image(host):
    node, images = host.node(), images_of(host)
    start(node, host)
    images.checkpoint(task())
    assert stop(node).kind is ExitKind.STOPPED
    assert counted(node) == {b"a"}
    node.forget(task())
    images_of(host)
    assert images.used_bytes() == 0
    with pytest.raises(ImageError, match="not on this host"):
        images.checkpoint(task())
    start(node, host)
    stop(node)
    with pytest.raises(ImageError, match="does not run"):
        images.checkpoint(task())
    node.forget(task())
    start(node, host)
    images.checkpoint(task())
    began = time.monotonic()
    node.forget(task())
    assert time.monotonic() - began < 0.9
    images.sweep()
    assert images.used_bytes() == 0
    assert not processes(host.cluster)


def end_supervisor(node):
    pid = living(node.files.supervisor(task()))
    os.kill(pid, signal.SIGKILL)
    until(lambda: stat_fields(pid)[:1] in ([], ["Z"]))


def test_a_new_supervisor_where_the_old_one_was_killed(host):
    node, images = host.node(), images_of(host)
    start(node, host)
    for _ in range(2):
        images.checkpoint(task())
        end_supervisor(node)
        assert state(node, task()) is TaskState.PAUSED
        node = host.node()
        assert state(node, task()) is TaskState.PAUSED
        back(images, node)
        assert state(node, task()) is TaskState.RUNNING
        assert advances(node)
    assert stop(node).kind is ExitKind.STOPPED
    assert counted(node) == {b"a"}


REFUSED = {
    "a connection": (
        "import socket, sys, time\nc = socket.create_connection(('127.0.0.1', int(sys.argv[1])))",
        "TCP",
    ),
    "a process without its parent": (
        "import os, time\nif os.fork() == 0:\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)\nos.wait()",
        "lost its parent",
    ),
    "a socket of another program": (
        "import socket, sys\nc = socket.socket(socket.AF_UNIX)\nc.connect('\\0dfrs-test-' + sys.argv[1])",
        "[Ee]xternal|unix",
    ),
}
COUNTS = "\nimport time\nn = 0\nwhile True:\n    print('a', n, flush=True)\n    n += 1\n    time.sleep(0.001)\n"


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("paused", [False, True])
def test_what_cannot_be_check_pointed_is_refused_and_runs_on(host, what, paused):
    node, images = host.node(), images_of(host)
    program, reason = REFUSED[what]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        port = server.getsockname()[1]
        local.bind(f"\0dfrs-test-{port}")
        local.listen()
        start(node, host, program + COUNTS, size=port, memory_bytes=64 * MIB)
        accepted = local.accept() if "socket" in what else None
        if paused:
            node.pause(task())
        with pytest.raises(ImageError, match=rf"\Atask 1.0.0: cannot be check-pointed: [^\n]*{reason}[^\n]*\Z"):
            images.checkpoint(task())
        assert state(node, task()) is (TaskState.PAUSED if paused else TaskState.RUNNING)
        node.resume(task())
        assert advances(node)
        del accepted
    assert images.used_bytes() == 0
    stop(node)
    assert counted(node) == {b"a"}


def test_a_budget(host):
    node = host.node()
    start(node, host, size=64)
    images = images_of(host, 8 * MIB)
    with pytest.raises(ImageError, match="images may take 8 MiB"):
        images.checkpoint(task())
    assert images.used_bytes() == 0
    assert state(node, task()) is TaskState.RUNNING
    assert advances(node)
    images_of(host).checkpoint(task())
    node.start(task(2), host.spec(PYTHON, "-c", COUNTER, "64", memory_bytes=128 * MIB), 1.0)
    until(lambda: node.output(task(2), "out", 0, 1)[2])
    with pytest.raises(ImageError, match="images may take"):
        images_of(host, 50 * MIB).checkpoint(task(2))
    assert advances(node, task(2))
    back(images, node)
    assert advances(node)
    stop(node)
    assert counted(node) == {b"a"}


def test_a_full_disk(small_disk):
    node, images = small_disk.node(), images_of(small_disk)
    start(node, small_disk, size=128)
    for _ in range(2):
        with pytest.raises(ImageError, match=r"\Atask 1.0.0: cannot be check-pointed: No space left on device\Z"):
            images.checkpoint(task())
        assert images.used_bytes() == 0
        assert state(node, task()) is TaskState.RUNNING
        assert advances(node)
    stop(node)
    assert counted(node) == {b"a"}
    node.forget(task())
    start(node, small_disk, size=16)
    images.checkpoint(task())
    filler = small_disk.root / "filler"
    try:
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(64 * MIB))
        with pytest.raises(ImageError, match="cannot be restored: No space left on device"):
            back(images, node)
    finally:
        filler.unlink()
    assert state(node, task()) is TaskState.PAUSED
    back(images, node)
    assert advances(node)
    stop(node)
    assert counted(node) == {b"a"}


def settled(host, images, node):
    """Bring a task back to running, whatever was killed; whether it was in an image."""
    until(lambda: not list(criu_of(host)))
    was_in_image = node.files.in_image(task())
    back(images, node)
    # What was killed may have left it frozen.
    until(lambda: node.resume(task()) or state(node, task()) is TaskState.RUNNING)
    assert advances(node)
    images.sweep()
    assert images.used_bytes() == 0
    assert not os.path.exists(f"{node.files.path(task())}/dumping")
    return was_in_image


@pytest.mark.parametrize("program", [COUNTER, FAMILY], ids=["counter", "family"])
def test_criu_killed_at_any_instant(host, program):
    """One in some fifty tasks, into which it had just put code, is lost, and says so. All others go on."""
    rng = random.Random(5)
    node, images = host.node(), images_of(host)
    killed, lost = 0, 0
    for step in range(30):
        if state(node, task()) is TaskState.ABSENT:
            start(node, host, program)
        action = images.checkpoint if step % 3 else lambda which: (images.checkpoint(which), back(images, node))
        problems = []
        thread = threading.Thread(target=attempt, args=(action, problems))
        thread.start()
        time.sleep(rng.uniform(0, 0.3 if step % 3 else 0.5))
        for pid in rng.sample(found := list(criu_of(host)), min(len(found), 1)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        thread.join()
        if problems and "is lost" in problems[0]:
            lost += 1
            end = ended(node, task())
            assert (end.kind, end.message) == (ExitKind.LOST, "CRIU was killed while it made an image of it")
            assert not processes(host.cluster)
            counted(node)
            node.forget(task())
        else:
            settled(host, images, node)
    assert killed > 5
    assert lost < 5
    if state(node, task()) is not TaskState.ABSENT:
        assert stop(node).kind is ExitKind.STOPPED
        counted(node)


def attempt(action, problems):
    try:
        action(task())
    except ImageError as error:
        problems.append(str(error))


@pytest.mark.parametrize("program", [COUNTER, FAMILY], ids=["counter", "family"])
def test_caller_killed_at_any_instant(host, program):
    rng = random.Random(6)
    node, images = host.node(), images_of(host)
    start(node, host, program)
    in_image = 0
    for step in range(30):
        if step % 2:
            images.checkpoint(task())
        pid = os.fork()
        if pid == 0:
            try:
                back(images, node) if step % 2 else images.checkpoint(task())
            finally:
                os._exit(0)
        time.sleep(rng.uniform(0, 0.3))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        node, images = host.node(), images_of(host)
        in_image += settled(host, images, node)
    assert 0 < in_image < 30
    assert stop(node).kind is ExitKind.STOPPED
    counted(node)


def test_supervisor_killed_at_any_instant(host):
    """The task is in its image and goes on, or was lost as without images: nothing is left, nothing is silent."""
    rng = random.Random(7)
    node, images = host.node(), images_of(host)
    went_on = 0
    for step in range(30):
        start(node, host)
        if step % 2:
            images.checkpoint(task())
        action = (lambda which: back(images, node)) if step % 2 else images.checkpoint
        problems = []
        thread = threading.Thread(target=attempt, args=(action, problems))
        thread.start()
        time.sleep(rng.uniform(0, 0.25))
        end_supervisor(node)
        thread.join()
        until(lambda: not list(criu_of(host)))
        if state(node, task()) is TaskState.PAUSED:
            went_on += 1
            back(images, node)
            assert advances(node)
            assert stop(node).kind is ExitKind.STOPPED
        else:
            assert ended(node, task()).kind is ExitKind.LOST
            assert until(lambda: not processes(host.cluster), 2.0)
        counted(node)
        node.forget(task())
        images.sweep()
        assert images.used_bytes() == 0
    assert went_on > 3


HOLDS = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = pre-resume ] || exit 0
touch "$DFRS_TASK/held"
while [ ! -e "$DFRS_TASK/go" ]; do sleep 0.01; done
mv "$DFRS_TASK/image" "$DFRS_TASK/spent"
"""
"""Keeps CRIU where all threads are about to run, and the image is not yet spent."""


@pytest.mark.parametrize("own_numbers", [True, False])
@pytest.mark.parametrize("spent", [True, False])
def test_criu_killed_when_all_threads_are_about_to_run(host, tmp_path, monkeypatch, own_numbers, spent):
    """They run then, until the supervisor sees that the image is not spent: what they say would be said twice."""
    node, images = host.node(), images_of(host)
    start(node, host, FAMILY)
    images.checkpoint(task())
    path, script, problems = Path(node.files.path(task())), tmp_path / "holds", []
    script.write_text(HOLDS)
    script.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(images_module, "RESTORED", script)
        if not own_numbers:
            patch.setattr(images_module, "taken", lambda numbers: True)
        thread = threading.Thread(target=attempt, args=(lambda which: back(images, node, which), problems))
        thread.start()
        until((path / "held").exists)
        supervisor = living(node.files.supervisor(task()))
        os.kill(supervisor, signal.SIGSTOP)
        for pid in criu_of(host):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)
        if spent:
            (path / "go").touch()
            until((path / "spent").is_symlink)
        os.kill(supervisor, signal.SIGCONT)
        thread.join()
    assert bool(problems) is not spent
    assert node.files.in_image(task()) is not spent
    back(images, node)
    assert advances(node)
    assert stop(node).kind is ExitKind.STOPPED
    assert len(counted(node)) == 9


def test_an_image_that_is_spent_while_what_it_was_restored_to_is_killed(tmp_path, monkeypatch):
    (tmp_path / "spec").write_bytes(pack([("output_bytes", "1000")]))
    (tmp_path / "image").symlink_to("somewhere")
    (tmp_path / "restore").touch()
    one = Supervisor(str(tmp_path))
    one.parked = True
    one._attach()
    for stream in one.outputs:
        os.write(stream.writer, b"said twice")
        stream.detach()

    def kill():
        if (tmp_path / "image").is_symlink():
            (tmp_path / "image").rename(tmp_path / "spent")
            return False
        return True

    monkeypatch.setattr(one, "place", lambda: SimpleNamespace(kill=kill))
    one._restored(signal.SIGKILL)
    assert one.parked
    assert {name for name in os.listdir(tmp_path) if os.lstat(tmp_path / name).st_size} == {"image", "spec"}
    assert sorted(os.listdir(tmp_path)) == ["err.0", "image", "out.0", "spec"]


@pytest.mark.parametrize("committed", [True, False])
def test_the_first_process_of_its_own_numbers_is_killed(host, tmp_path, monkeypatch, committed):
    node, images = host.node(), images_of(host)
    start(node, host)
    images.checkpoint(task())
    with monkeypatch.context() as patch:
        patch.setattr(images_module, "taken", lambda numbers: True)
        if committed:
            back(images, node)
        else:
            script = tmp_path / "holds"
            script.write_text(HOLDS)
            script.chmod(0o755)
            patch.setattr(images_module, "RESTORED", script)
            thread = threading.Thread(target=attempt, args=(lambda which: back(images, node, which), problems := []))
            thread.start()
            until((Path(node.files.path(task())) / "held").exists)
        supervisor = living(node.files.supervisor(task()))
        (first,) = map(int, Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split())
        os.kill(first, signal.SIGKILL)
        if not committed:
            thread.join()
            assert problems
            assert state(node, task()) is TaskState.PAUSED
    if committed:
        end = ended(node, task())
        assert (end.kind, end.signal) == (ExitKind.SIGNAL, signal.SIGKILL)
    else:
        back(images, node)
        assert advances(node)
        stop(node)
    assert counted(node) == {b"a"}


def test_a_directory_that_is_taken_for_a_stray_before_it_is_locked(tmp_path, monkeypatch):
    made = iter(tmp_path / str(number) for number in range(3))

    def make():
        path = next(made)
        path.mkdir()
        if path.name == "0":
            path.rmdir()
        return str(path)

    opened = files_module.lock_directory

    def late(path, **options):
        lock = opened(path, **options)
        if str(path).endswith("1"):
            os.rmdir(path)
        return lock

    monkeypatch.setattr(files_module, "lock_directory", late)
    path, lock = files_module.make_locked(make)
    assert path == str(tmp_path / "2")
    files_module.remove_unlocked(Path(path))
    assert os.path.exists(path)
    os.close(lock)
    files_module.remove_unlocked(Path(path))
    assert not os.path.exists(path)


def test_why_there_is_no_criu(tmp_path, monkeypatch):
    monkeypatch.setenv("DFRS_CRIU", str(tmp_path / "none"))
    assert find_criu() == (None, f"{tmp_path}/none: No such file or directory")
    monkeypatch.delenv("DFRS_CRIU")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_criu() == (None, "no criu: install it or name it in DFRS_CRIU")
    program = tmp_path / "criu"
    program.write_text(
        "#!/bin/sh\n[ $1 = dump ] && echo 'Error (a.c:1): no vDSO here' && exit 1\necho Version: 3.17.1\n"
    )
    program.chmod(0o755)
    cache = tmp_path / "cache"
    assert find_criu(cache) == (None, f"{program}: no vDSO here")
    assert not cache.exists()


def test_that_a_criu_works_is_tried_once_a_boot(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("DFRS_CRIU", CRIU.program)
    assert find_criu(cache)[0].version == CRIU.version
    monkeypatch.setattr(criu_module, "_probe", lambda program: ("", "asked again"))
    assert find_criu(cache)[0].version == CRIU.version
    monkeypatch.setattr(criu_module.supervisor, "BOOT", "another")
    assert find_criu(cache) == (None, f"{CRIU.program}: asked again")


def test_where_an_image_does_not_fit(tmp_path):
    here = Images(tmp_path, 0, CRIU).format
    assert here.why_not_from(here) == ""
    for field, value, why in (
        ("cpu", ("far-too-new",), "the CPU here lacks far-too-new"),
        ("machine", "m68k", "made on m68k"),
        ("criu", "99.1", "made by CRIU 99.1"),
        ("kernel", "99.1.2-cloud", "made under Linux 99.1.2-cloud"),
    ):
        other = here.model_copy(update={field: value})
        assert why in here.why_not_from(other)
    older = here.model_copy(update={"kernel": "5.10.0", "criu": "4.0", "cpu": here.cpu[1:]})
    assert here.why_not_from(older) == ""
    patched = here.model_copy(update={"kernel": "6.1.150"})
    assert patched.model_copy(update={"kernel": "6.1.2"}).why_not_from(patched) == ""


def test_frames_that_are_not_of_an_image(tmp_path):
    with open(tmp_path / "sent", "w+b") as stream:
        Frames(stream).write("../../etc/passwd", b"x")
        stream.seek(0)
        with pytest.raises(ImageError, match="not a file of an image"):
            receive(stream, Frames(stream))
