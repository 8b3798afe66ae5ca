"""Pauses that free memory: the memory of real processes goes to real swap space, and comes back."""

import shutil
import socket
import subprocess
import threading

import pytest

from dfrs.live.drivers.base import CheckpointRefusedError, NotYetError, PauseRefusedError, TaskState
from dfrs.live.drivers.control_groups.driver import ControlGroupDriver
from dfrs.live.drivers.control_groups.swap import swap_space
from tests.driver_hosts import MIB, PYTHON, host, needs_groups, needs_root, running, state, task, until
from tests.images import NEEDS_CRIU, Breaking

__all__ = ["host"]

pytestmark = [needs_root, needs_groups]

SWAP_MIB = 320
HOLDS = """
import sys, time
size = int(sys.argv[1]) << 20
data = bytearray()
while len(data) < size:
    data += bytes(range(256)) * 4096
said = sum(data[::4097])
print("ready", said, flush=True)
while True:
    time.sleep(0.05)
    assert sum(data[::4097]) == said
    print("whole", flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def swap(tmp_path_factory):
    """Swap space of this module's own."""
    if shutil.which("mkswap") is None or shutil.which("swapon") is None:
        pytest.skip("mkswap and swapon are not installed")
    path = tmp_path_factory.mktemp("swap") / "space"
    with path.open("wb") as file:
        for _ in range(SWAP_MIB):
            file.write(bytes(MIB))
    path.chmod(0o600)
    subprocess.run(["mkswap", path], check=True, capture_output=True)
    on = subprocess.run(["swapon", path], capture_output=True, text=True, check=False)
    if on.returncode:
        pytest.skip(f"no swap space can be turned on here: {on.stderr.strip()}")
    yield
    subprocess.run(["swapoff", path], check=True)


def node_of(host, name="n0", **options):
    found = host.node(name, swap_bytes=None, **options)
    if not found.groups.swaps:
        pytest.skip("the control groups of this kernel cannot swap")
    return found


def begin(host, node, which, mib, limit_mib=None):
    """A task with so much memory in use."""
    spec = host.spec(PYTHON, "-c", HOLDS, str(mib), memory_bytes=(limit_mib or mib + 64) * MIB)
    node.start(which, spec, 0.5)
    running(node, which)
    until(lambda: b"ready" in node.output(which, "out", 0, 100)[0], 20.0)


def used_mib(node, which):
    """(memory, swap space) of a task, in MiB."""
    row = next(row for row in node.usage() if row.task == which)
    return row.memory_bytes / MIB, (row.swap_bytes or 0) / MIB


def test_a_pause_frees_memory_and_what_was_in_it_comes_back(host, monkeypatch):
    node = node_of(host)
    assert node.abilities.pause_frees_memory
    begin(host, node, task(), 96)
    assert used_mib(node, task())[0] > 90
    node.pause(task())
    status = node.tasks()[0]
    assert (status.state, status.kept) == (TaskState.PAUSED, False)
    memory, swapped = used_mib(node, task())
    assert memory < 10
    assert swapped > 80
    node.pause(task())
    place = node.files.place(task(), node.files.owner(task()))
    monkeypatch.setattr(type(place), "thaw", lambda _: None)
    node.resume(task())
    # Its memory is back before it goes on.
    assert used_mib(node, task())[0] > 90
    monkeypatch.undo()
    node.resume(task())
    assert state(node, task()) is TaskState.RUNNING
    before = node.output(task(), "out", 0, 0)[2]
    until(lambda: node.output(task(), "out", 0, 0)[2] > before + 12, 20.0)
    assert used_mib(node, task())[0] > 90


def test_a_task_is_admitted_only_where_others_have_left_the_memory(host):
    node = node_of(host, memory_bytes=256 * MIB)
    begin(host, node, task(1), 64, 160)
    with pytest.raises(NotYetError, match="waits until others have left node n0's memory"):
        node.start(task(2), host.spec("/bin/sleep", "60", memory_bytes=160 * MIB), 0.5)
    assert state(node, task(2)) is TaskState.ABSENT
    node.pause(task(1))
    node.start(task(2), host.spec("/bin/sleep", "60", memory_bytes=160 * MIB), 0.5)
    running(node, task(2))
    with pytest.raises(NotYetError):
        node.resume(task(1))
    assert state(node, task(1)) is TaskState.PAUSED
    node.pause(task(2))
    node.resume(task(1))
    assert state(node, task(1)) is TaskState.RUNNING


def test_without_room_in_swap_space_the_pause_is_refused_and_the_task_runs_on(host):
    node = node_of(host)
    node.swap_bytes = 32 * MIB
    begin(host, node, task(), 96)
    with pytest.raises(PauseRefusedError, match="MiB to swap, and 32 MiB of swap space left"):
        node.pause(task())
    assert state(node, task()) is TaskState.RUNNING
    before = node.output(task(), "out", 0, 0)[2]
    until(lambda: node.output(task(), "out", 0, 0)[2] > before)
    node.pause(task(), keep=True)
    assert (node.tasks()[0].state, node.tasks()[0].kept) == (TaskState.PAUSED, True)
    assert used_mib(node, task())[0] > 90
    with pytest.raises(NotYetError):
        node.start(task(2), host.spec("/bin/sleep", "60", memory_bytes=node.memory_bytes), 0.5)


@NEEDS_CRIU
def test_what_does_not_fit_into_swap_space_goes_to_an_image(host):
    node = node_of(host, images_bytes=1 << 30)
    begin(host, node, task(1), 16)
    begin(host, node, task(2), 96)
    node.swap_bytes = 32 * MIB
    for which in (task(1), task(2)):
        node.pause(which)
    assert [node.files.in_image(which) for which in (task(1), task(2))] == [False, True]
    assert [one.kept for one in node.tasks()] == [False, False]
    assert used_mib(node, task(2))[0] < 10
    # What is in swap space can be check-pointed as well, and the disk may have no room either.
    node.images.max_bytes = MIB
    for which in (task(1), task(2)):
        node.resume(which)
    both = r"\Atask 2.0.0: cannot be paused: \d+ MiB to swap, [^\n;]*left; cannot be check-pointed: images[^\n]*\Z"
    with pytest.raises(PauseRefusedError, match=both):
        node.pause(task(2))
    assert state(node, task(2)) is TaskState.RUNNING
    node.pause(task(1))
    node.images.max_bytes = 1 << 30
    with pytest.raises(BrokenPipeError):
        node.send(task(1), Breaking())
    assert state(node, task(1)) is TaskState.HANDED
    node.take(task(1), 0.5)
    node.resume(task(1))
    for which in (task(1), task(2)):
        before = node.output(which, "out", 0, 0)[2]
        until(lambda which=which, before=before: node.output(which, "out", 0, 0)[2] > before + 12, 20.0)


@NEEDS_CRIU
def test_what_cannot_be_check_pointed_is_in_swap_space_again(host):
    node = node_of(host, images_bytes=1 << 30)
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"import socket; c = socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))\n"
        spec = host.spec(PYTHON, "-c", connect + HOLDS, "64", memory_bytes=128 * MIB)
        node.start(task(), spec, 0.5)
        until(lambda: b"ready" in node.output(task(), "out", 0, 100)[0], 20.0)
        node.pause(task())
        with pytest.raises(CheckpointRefusedError, match="TCP"):
            node.send(task(), Breaking())
        # Not settled: the pause is repeated.
        assert (node.tasks()[0].state, node.tasks()[0].kept) == (TaskState.PAUSED, None)
        node.pause(task())
        assert node.tasks()[0].kept is False
        assert used_mib(node, task())[0] < 10


def test_locked_memory_stays_and_the_pause_is_refused(host):
    node = node_of(host)
    lock = "import ctypes, mmap, time; m = mmap.mmap(-1, 64 << 20); c = ctypes.CDLL(None); "
    lock += "c.mlockall(3) and exit(3); m[:] = bytes(64 << 20); print('ready', flush=True); time.sleep(60)"
    node.start(task(), host.spec(PYTHON, "-c", lock, memory_bytes=256 * MIB), 0.5)
    running(node, task())
    until(lambda: b"ready" in node.output(task(), "out", 0, 100)[0], 20.0)
    with pytest.raises(PauseRefusedError, match="of it stay in memory"):
        node.pause(task())
    assert state(node, task()) is TaskState.RUNNING


def test_several_pauses_at_once_share_the_budget(host):
    node = node_of(host, memory_bytes=1 << 30)
    node.swap_bytes = 150 * MIB
    for number in (1, 2, 3):
        begin(host, node, task(number), 64)
    refused = []

    def pause(number):
        try:
            node.pause(task(number))
        except PauseRefusedError:
            refused.append(number)

    threads = [threading.Thread(target=pause, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert state(node, task(refused[0])) is TaskState.RUNNING


def test_an_agent_that_died_in_a_pause_leaves_it_to_the_next_one(host, monkeypatch):
    node = node_of(host)
    begin(host, node, task(), 64)

    class Killed(BaseException):
        pass

    def killed(*_args, **_options):
        raise Killed

    monkeypatch.setattr(node, "_free", killed)
    with pytest.raises(Killed):
        node.pause(task())
    again = node_of(host)
    assert (again.tasks()[0].state, again.tasks()[0].kept) == (TaskState.PAUSED, None)
    again.pause(task())
    assert again.tasks()[0].kept is False
    assert used_mib(again, task())[0] < 10


def test_a_paused_task_goes_to_another_node_with_its_memory_in_swap_space(host):
    first, second = node_of(host, "n0"), node_of(host, "n1", memory_bytes=200 * MIB)
    begin(host, first, task(), 64)
    first.pause(task())
    first.hand(task())
    second.take(task(), 0.5)
    assert state(second, task()) is TaskState.PAUSED
    assert used_mib(second, task())[0] < 10
    second.resume(task())
    before = second.output(task(), "out", 0, 0)[2]
    until(lambda: second.output(task(), "out", 0, 0)[2] > before + 12, 20.0)


def test_nodes_without_swap_space_keep_memory(host):
    node = host.node()
    assert not node.abilities.pause_frees_memory
    assert "a paused task keeps its memory: no swap space is allowed" in node.abilities.notes
    assert isinstance(node, ControlGroupDriver)


def test_the_kernel_is_asked_for_swap_space(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:  100 kB\nSwapTotal:  2048 kB\nSwapFree:  1024 kB\n")
    assert (swap_space(str(path)).total_bytes, swap_space(str(path)).free_bytes) == (2 << 20, 1 << 20)
    assert swap_space(str(tmp_path / "none")).total_bytes == 0
