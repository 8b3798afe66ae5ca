"""Tasks that will not end, that eat all memory, and disks without room."""

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dfrs.live.drivers.base import DriverError, ExitKind, ProgramSpec, TaskState
from dfrs.live.drivers.control_groups import strays
from dfrs.live.drivers.processes import driver
from tests.driver_hosts import CPUS, IN_GROUPS, MIB, PYTHON, Host, ended, host, processes, running, state, task, until

pytestmark = IN_GROUPS
__all__ = ["host"]


@pytest.fixture
def small_disk(tmp_path):
    """A host whose root has one mebibyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", disk], check=True)
    try:
        made = Host(disk / "state")
        yield made
        made.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(disk, name="filler"):
    """Use all room of a disk."""
    with open(disk.root / name, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return disk.root / name


def everywhere(pid, group, task_name):
    """Move a process to this group, in each hierarchy in which it is in its task's; those that it was in."""
    moved = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        controllers, path = line.split(":", 2)[1:]
        at = Path("/sys/fs/cgroup") / controllers.removeprefix("name=") if controllers else Path("/sys/fs/cgroup")
        at = at if controllers or not (at / "unified").is_dir() else at / "unified"
        if task_name in path.split("/"):
            there = at / (path.strip("/") + "/" + group if group else "")
            there.mkdir(exist_ok=True)
            (there / "cgroup.procs").write_text(str(pid))
            moved.append(there)
    return moved


def test_what_has_left_its_groups_is_said_of_its_task(host, monkeypatch):
    monkeypatch.setattr(strays, "LOOK_S", 0.05)
    node = host.node()
    for job in (1, 2, 3):
        node.start(task(job), host.shell("sleep 600 & echo ready; wait"), 0.5)
        until(lambda job=job: node.output(task(job), "out", 0, 10)[0])

    def note(job):
        return next(status.note for status in node.tasks() if status.task == task(job))

    inner, outer = (running(node, task(job)) for job in (1, 2))
    assert everywhere(inner, "made-by-the-program", str(task(1)))
    assert everywhere(outer, "", str(task(2)))
    words = f"process {outer} has left its control groups: its share, its memory limit, pauses and its end"
    assert until(lambda: note(2).startswith(words))
    assert [note(1), note(3)] == ["", ""]
    # Back where it belongs, or gone, nothing is wrong any more.
    for path in node.groups.group(str(task(2))).entries():
        Path(path).write_text(str(outer))
    assert until(lambda: note(2) == "")
    for path in node.groups.group(str(task(1))).entries():
        Path(path).write_text(str(inner))


def test_stop_of_what_ignores_it(host):
    node = host.node()
    node.start(task(), host.shell("trap '' TERM; echo ready; while :; do sleep 1; done"), 0.5)
    until(lambda: node.output(task(), "out", 0, 10)[0])
    started = time.monotonic()
    node.stop(task(), 2.0)
    assert time.monotonic() - started < 2.0
    assert state(node, task()) is TaskState.RUNNING
    gone = ended(node, task(), 20.0)
    assert time.monotonic() - started > 1.9
    assert (gone.kind, gone.signal) == (ExitKind.STOPPED, 9)


def test_stop_of_a_paused_task(host):
    node = host.node()
    gentle = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    for job, script, grace_s in ((1, gentle, 10.0), (2, "trap '' TERM; echo ready; sleep 60", 0.3)):
        node.start(task(job), host.shell(script), 0.5)
        until(lambda job=job: node.output(task(job), "out", 0, 10)[0])
        node.pause(task(job))
        node.stop(task(job), grace_s)
    gentle, rough = ended(node, task(1)), ended(node, task(2))
    assert (gentle.kind, gentle.code) == (ExitKind.STOPPED, 7)
    assert (rough.kind, rough.signal) == (ExitKind.STOPPED, 9)


@pytest.mark.parametrize("by_signals", [False, True])
def test_stop_and_forget_of_a_tree_that_grows(host, by_signals):
    node = host.node()
    node.groups.kills = node.groups.kills and not by_signals
    bomb = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nos.setsid if os.fork() else 0\n"
    bomb += "while True:\n    if os.fork() == 0:\n        time.sleep(0.2)\n        if os.fork(): os._exit(0)\n"
    bomb += "        os.setsid()\n        time.sleep(1)\n        os._exit(0)\n    time.sleep(0.004)\n"
    for job in (1, 2):
        node.start(task(job), host.spec(PYTHON, "-ISc", bomb), 0.5)
        running(node, task(job))
    until(lambda: len(processes(host.cluster)) > 30)
    node.stop(task(1), 0.1)
    assert ended(node, task(1), 5.0).kind is ExitKind.STOPPED
    node.forget(task(2))
    assert until(lambda: not processes(host.cluster), 1.0)


@pytest.mark.parametrize("by_signals", [False, True])
def test_groups_that_a_task_has_made_below_its_own_are_the_task_too(host, by_signals):
    node = host.node()
    node.groups.kills = node.groups.kills and not by_signals
    told = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    deaf = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    for job, script in ((1, told), (2, deaf), (3, deaf)):
        node.start(task(job), host.shell(script), 0.3)
        until(lambda job=job: node.output(task(job), "out", 0, 10)[0])
        inner = running(node, task(job))
        for path in everywhere(inner, "made-by-the-program", str(task(job))):
            (path / "deeper").mkdir()
        assert inner in node.groups.group(str(task(job))).members()
    node.stop(task(1), 20.0)
    assert ended(node, task(1), 5.0).code == 7
    node.stop(task(2), 0.1)
    assert ended(node, task(2), 5.0).signal == 9
    began = time.monotonic()
    for job in (1, 2, 3):
        node.forget(task(job))
    assert time.monotonic() - began < 5.0
    assert (node.tasks(), node.groups.names()) == ([], [])
    assert until(lambda: not processes(host.cluster), 1.0)


def test_forget_of_a_paused_task_and_of_one_that_is_starting(host):
    node = host.node()
    node.start(task(1), host.spec("/bin/sleep", "60"), 0.5)
    running(node, task(1))
    node.pause(task(1))
    node.forget(task(1))
    for job in range(2, 12):
        node.start(task(job), host.spec("/bin/sleep", "60"), 0.5)
        time.sleep(job * 0.003)
        node.forget(task(job))
    assert node.tasks() == []
    assert node.groups.names() == []
    assert until(lambda: not processes(host.cluster), 1.0)


def test_what_it_said_last_is_kept(host):
    node = host.node()
    mark = host.root / "mark"
    node.start(task(), host.shell(f"head -c 60000 /dev/zero; touch {mark}; exec sleep 60"), 0.5)
    until(mark.exists)
    node.forget(task())
    assert node.output(task(), "out", 0, 1)[2] == 60000


def test_memory_limit_counts_all_of_a_task_and_stays_after_a_move(host):
    first, second = host.node("n0"), host.node("n1", cpus=str(CPUS[-1]))
    eat = "import os, sys\nkept = bytearray(24 << 20)\nsys.stdin = open(sys.argv[1])\nsys.stdin.read()\n"
    eat += "for _ in range(3): os.fork()\nmore = bytearray(24 << 20)\nimport time; time.sleep(30)"
    gate = host.root / "gate"
    subprocess.run(["mkfifo", gate], check=True)
    first.start(task(), host.spec(PYTHON, "-ISc", eat, str(gate), memory_bytes=80 * MIB), 0.5)
    running(first, task())
    until(lambda: first.usage()[0].memory_bytes > 24 * MIB)
    first.hand(task())
    second.take(task(), 0.5)
    if second.abilities.shares == "cgroup-v1":
        assert second.usage()[0].memory_bytes > 24 * MIB
    gate.write_text("")
    group = second.groups.group("1.0.0")
    assert until(lambda: group.limit_events().oom_kills > 0)
    second.stop(task(), 1.0)
    gone = ended(second, task())
    assert gone.kind in (ExitKind.STOPPED, ExitKind.OUT_OF_MEMORY)
    assert gone.kind is ExitKind.OUT_OF_MEMORY or "killed for want of memory" in gone.message


def test_output_on_a_full_disk(small_disk):
    node = small_disk.node()
    go = small_disk.root.parent.parent / "go"
    script = "while [ ! -e GO ]; do sleep 0.01; done; head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2; exit 6"
    node.start(task(), small_disk.shell(script.replace("GO", str(go))), 1.0)
    running(node, task())
    fill(small_disk).unlink()
    go.touch()
    gone = ended(node, task())
    assert gone.code == 6
    end = node.output(task(), "out", 0, 1)[2]
    assert 100_000 < end <= MIB - (64 << 10)
    assert f"{3_000_000 - end} bytes of output were dropped: the disk was full" in gone.message


def test_a_program_beside_whose_output_finds_no_room_does_not_end_well(small_disk):
    node = small_disk.node()
    node.start(task(), small_disk.shell("sleep 60"), 1.0)
    running(node, task())
    program = ProgramSpec(name="a" * 16, command=("head", "-c", "3000000", "/dev/zero"))
    node.execute(task(), program)
    code = until(lambda: node.program_output(task(), program.name, "out", 0, 1)[3])
    assert code == -signal.SIGPIPE


def test_exit_on_a_full_disk(small_disk):
    node = small_disk.node()
    go = small_disk.root.parent.parent / "go"
    node.start(task(), small_disk.shell(f"while [ ! -e {go} ]; do sleep 0.01; done; exit 6"), 1.0)
    running(node, task())
    filler = fill(small_disk)
    go.touch()
    until(lambda: not processes(small_disk.cluster))
    time.sleep(0.3)
    assert state(node, task()) is TaskState.RUNNING
    with pytest.raises(DriverError, match="No space left"):
        node.start(task(2), small_disk.spec("/bin/true"), 0.5)
    node.start(task(), small_disk.spec("/bin/true"), 0.5)
    filler.unlink()
    assert ended(node, task()).code == 6
    assert state(node, task(2)) is TaskState.ABSENT


def test_what_could_not_be_started_on_a_full_disk_leaves_nothing(small_disk, monkeypatch):
    """The disk is full once the task has its directory and its groups: whether it is asked for again is not known."""
    node = small_disk.node()

    def full(path, lock, before=driver.launch):
        monkeypatch.setattr(driver, "launch", before)
        fill(small_disk)
        return before(path, lock)

    def ends_at_once(path, lock):
        monkeypatch.undo()
        return subprocess.Popen(["/bin/false"])

    def cannot(path, lock):
        raise DriverError("there is no process to be had")

    for number, launch in enumerate((full, ends_at_once, cannot), 1):
        monkeypatch.setattr(driver, "launch", launch)
        with suppress(DriverError):
            node.start(task(number), small_disk.spec("/bin/true"), 0.5)
        until(lambda: node.tasks() == [] and not node.groups.names() and not node.files.ids())
        monkeypatch.undo()
        (small_disk.root / "filler").unlink(missing_ok=True)
        node.start(task(number), small_disk.spec("/bin/true"), 0.5)
        assert ended(node, task(number)).code == 0
        node.forget(task(number))


def test_stop_on_a_full_disk(small_disk):
    node = small_disk.node()
    node.start(task(), small_disk.spec("/bin/sleep", "60"), 1.0)
    running(node, task())
    filler = fill(small_disk)
    node.stop(task(), 5.0)
    until(lambda: not processes(small_disk.cluster))
    filler.unlink()
    assert ended(node, task()).kind is ExitKind.STOPPED
    filler = fill(small_disk)
    node.forget(task())
    assert node.tasks() == []


@pytest.mark.parametrize("damage", ["", "node", "no\0separator\0", "\xff\xfe"])
def test_a_damaged_record_hides_no_other_task(host, damage):
    node = host.node()
    for k in (1, 2, 3):
        node.start(task(k), host.shell("exit 3" if k == 3 else "sleep 60"), 0.5)
    running(node, task(1))
    running(node, task(2))
    ended(node, task(3))
    one, three = (Path(node.files.path(task(k))) for k in (1, 3))
    kept = (one / "owner").read_bytes()
    (one / "owner").write_text(damage)
    (three / "exit.json").write_text(damage or "{")
    again = host.node()
    found = {status.task: status for status in again.tasks()}
    assert found[task(2)].state is TaskState.RUNNING
    assert found[task(3)].exit.kind is ExitKind.LOST
    assert "exit.json" in found[task(3)].exit.message
    assert task(1) not in found
    (one / "owner").write_bytes(kept)
    assert state(again, task(1)) is TaskState.RUNNING


def test_a_task_whose_record_cannot_be_read_now_is_not_said_to_be_gone(host):
    node = host.node()
    node.start(task(), host.shell("sleep 60"), 0.5)
    running(node, task())
    record = Path(node.files.path(task())) / "owner"
    kept = record.read_bytes()
    # As with a disk that fails, or without a free file descriptor, for which a test has to be no root.
    record.unlink()
    record.mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        node.tasks()
    record.rmdir()
    record.write_bytes(kept)
    assert state(node, task()) is TaskState.RUNNING
