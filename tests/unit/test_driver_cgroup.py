"""Control groups by themselves: version 2 as far as this kernel has it, and against plain files."""

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dfrs.live.drivers.base import DriverError, ExitKind, TaskState, UnsuitableError
from dfrs.live.drivers.control_groups import groups as cgroup
from dfrs.live.drivers.control_groups import v1 as cgroup_v1
from dfrs.live.drivers.control_groups import v2 as cgroup_v2
from dfrs.live.drivers.control_groups.groups import (
    UsageCounters,
    add_counters,
    cpu_list,
    most_processes,
    mounted,
    mounts,
    move_all,
    quota,
)
from dfrs.live.drivers.control_groups.v1 import NodeGroupV1
from dfrs.live.drivers.control_groups.v2 import NodeGroupV2
from dfrs.live.drivers.processes.supervisor import pack, unpack
from tests.driver_hosts import (
    BUSY,
    PYTHON,
    ended,
    host,
    needs_groups,
    needs_root,
    processes,
    running,
    state,
    task,
    until,
)

__all__ = ["host"]

FILES = {
    "cgroup.subtree_control": "",
    "cgroup.procs": "",
    "cgroup.freeze": "0",
    "cgroup.kill": "",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cpu.weight": "100",
    "cpu.max": "max 100000",
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nthrottled_usec 750000\n",
    "cgroup.threads": "1\n" * 65,
    "cpuset.cpus": "",
    "memory.max": "max",
    "memory.current": "1048576\n",
    "memory.peak": "2097152\n",
    "memory.swap.current": "4096\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n",
    "pids.max": "max",
    "pids.events": "max 4\n",
    "io.stat": "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2\n8:0 rbytes=1 wbytes=2 rios=1 wios=1\n",
}


@pytest.fixture
def writes(monkeypatch):
    """Everything written to control files, in order."""
    seen = []

    def make(path):
        try:
            os.mkdir(path)
        except FileExistsError:
            return False
        for name, text in FILES.items():
            Path(path, name).write_text(text)
        return True

    def write(path, text):
        assert os.path.exists(path), f"the kernel has no {path}"
        seen.append((path, text))
        if path.endswith("subtree_control"):
            Path(path).write_text(f"{Path(path).read_text()} {text.replace('+', '')}")

    for module in (cgroup, cgroup_v2):
        monkeypatch.setattr(module, "write_control", write)
    monkeypatch.setattr(cgroup_v2, "make_directory", make)
    monkeypatch.setattr(cgroup_v2, "remove_directory", lambda path, timeout_s=0, whole=False: shutil.rmtree(path))
    return seen


@pytest.fixture
def fake(tmp_path, writes):
    """A tree with all controllers, and a node in it that has half of CPU 3."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids rdma misc\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    (tmp_path / "cpuset.cpus.effective").write_text("0-7\n")
    node = NodeGroupV2(str(tmp_path), "c", "n0")
    node.create("3", 0.5, 0.5)
    return node


def test_node_of_version_2_is_made_level_by_level(fake, writes, tmp_path):
    weight = str(100 * (os.cpu_count() or 1))
    top, cluster, node = tmp_path / "dfrs", tmp_path / "dfrs/c", tmp_path / "dfrs/c/n0"
    every = "+cpu +memory +io +cpuset +pids"
    expected = [(tmp_path / "cgroup.subtree_control", "+cpu +io +cpuset")]
    expected += [(top / "cpu.weight", weight), (top / "cgroup.subtree_control", every)]
    expected += [(cluster / "cpu.weight", weight), (cluster / "cgroup.subtree_control", every)]
    expected += [(node / "cpu.weight", "50"), (node / "cgroup.subtree_control", every)]
    expected += [(node / "cpu.max", "100000 200000"), (node / "cpuset.cpus", "3")]
    assert writes == [(str(path), text) for path, text in expected]
    assert fake.notes == ("a task that moves between nodes of this host starts with a memory count of zero",)
    with pytest.raises(DriverError, match="this host has 0-7"):
        fake.create("7-9", None, 1.0)


def test_a_tree_that_cannot_be_divided_is_no_tree_for_nodes(writes, monkeypatch, tmp_path):
    """As in a container with more rights than most, whose programs are in what it sees as the root of the tree."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    seen = []

    def busy(path, text):
        seen.append((path, text))
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(cgroup, "write_control", busy)
    error = errno.EBUSY
    node = NodeGroupV2(str(tmp_path), "c", "n0")
    with pytest.raises(UnsuitableError, match="Device or resource busy; run the agent outside of containers"):
        node.create(None, None, 1.0)
    # What is refused must be refused whole: some controllers without the others would be of no use.
    assert seen == [(str(tmp_path / "cgroup.subtree_control"), "+cpu +memory +pids")]
    assert not (tmp_path / "dfrs").exists()
    error = errno.ENOMEM
    with pytest.raises(DriverError, match="Cannot allocate memory") as raised:
        node.create(None, None, 1.0)
    assert not isinstance(raised.value, UnsuitableError)


@pytest.mark.parametrize("online", ["0", "0-7"])
def test_without_cpu_sets_a_node_has_all_cpus(writes, monkeypatch, tmp_path, online):
    (tmp_path / "online").write_text(f"{online}\n")
    monkeypatch.setattr(cgroup, "ONLINE", str(tmp_path / "online"))
    (tmp_path / "cgroup.controllers").write_text("cpu memory io pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    node = NodeGroupV2(str(tmp_path), "c", "n0")
    assert "no cpuset controller: nodes cannot be bound to CPUs" in node.notes
    for cpus in (online, None):
        node.create(cpus, None, 1.0)
    monkeypatch.setattr(cgroup, "ONLINE", str(tmp_path / "more"))
    (tmp_path / "more").write_text("0-8\n")
    with pytest.raises(DriverError, match=f"cpus '{online}': this host has no cpuset controller: .* all its CPUs, 0-8"):
        node.create(online, None, 1.0)


def test_task_of_version_2(fake, writes):
    group = fake.group("1.0.0")
    del writes[:]
    group.create(300 << 20)
    group.set_weight(0.25, 1.0)
    group.set_weight(0.0, 1.0)
    group.set_weight(1.0, 1.0)
    group.set_cap(0.125)
    group.set_cap(0.002)
    group.set_cap(None)
    group.attach(42)
    written = [(os.path.relpath(path, fake.path), text) for path, text in writes]
    assert written == [
        ("1.0.0/memory.max", str(300 << 20)),
        ("1.0.0/pids.max", str(most_processes(fake.point))),
        ("1.0.0/cpu.weight", "2500"),
        ("1.0.0/cpu.weight", "1"),
        ("1.0.0/cpu.weight", "10000"),
        ("1.0.0/cpu.max", "25000 200000"),
        ("1.0.0/cpu.max", "2000 1000000"),
        ("1.0.0/cpu.max", "max 100000"),
        ("1.0.0/cgroup.procs", "42"),
    ]
    expected = UsageCounters(
        cpu_s=2.5,
        memory_bytes=1 << 20,
        swap_bytes=4096,
        read_bytes=4097,
        written_bytes=8194,
        throttled_s=0.75,
    )
    assert group.read() == expected
    assert group.limit_events() == UsageCounters(peak_bytes=2 << 20, oom_kills=2, refused_forks=4)
    assert fake.names() == ["1.0.0"]
    place = group.place()
    files = ("procs", "freeze", "frozen", "kill", "oom", "peak", "cpu", "forks")
    assert all(os.path.exists(place[key]) for key in files)
    group.remove()
    assert fake.names() == []
    fake.remove()
    assert not os.path.exists(os.path.dirname(fake.path))


def real_v2(host, name="n0", **options):
    """A node in the version 2 tree of this host, whatever controllers that has."""
    point = mounted()[1]
    if point is None or os.geteuid() != 0:
        pytest.skip("no version 2 tree is mounted here, or no right to it")
    return host.node(name, groups=NodeGroupV2(point, host.cluster, name), **({"cpus": None, "cores": 1.0} | options))


def test_version_2_runs_pauses_and_kills(host):
    node = real_v2(host)
    node.start(task(1), host.spec(*BUSY), 0.5)
    node.start(task(2), host.shell("exit 3"), 0.5)
    pid = running(node, task(1))
    assert f"0::/dfrs/{host.cluster}/n0/1.0.0" in Path(f"/proc/{pid}/cgroup").read_text()
    assert ended(node, task(2)).code == 3
    until(lambda: node.usage()[0].cpu_s > 0.05)
    node.pause(task(1))
    assert state(node, task(1)) is TaskState.PAUSED
    before = node.usage()[0]
    time.sleep(0.1)
    assert node.usage()[0].cpu_s == before.cpu_s
    assert before.waiting_s is not None
    node.stop(task(1), 1.0)
    gone = ended(node, task(1))
    assert (gone.kind, gone.signal) == (ExitKind.STOPPED, 15)
    assert gone.cpu_s >= before.cpu_s


def test_version_2_keeps_pause_and_counters_in_a_move(host):
    first, second = real_v2(host, "n0"), real_v2(host, "n1")
    forks = "import os, time\nwhile True:\n    if os.fork() == 0:\n        time.sleep(0.3)\n        os._exit(0)\n"
    forks += "    try:\n        while os.waitpid(-1, os.WNOHANG)[0]: pass\n    except ChildProcessError: pass\n"
    first.start(task(), host.spec(PYTHON, "-ISc", forks), 0.5)
    running(first, task())
    until(lambda: first.usage()[0].cpu_s > 0.1)
    before = first.usage()[0]
    first.hand(task())
    second.take(task(), 0.5)
    assert first.groups.names() == []
    assert second.usage()[0].cpu_s >= before.cpu_s
    second.pause(task())
    assert set(processes(host.cluster)) == set(second.groups.group("1.0.0").members())
    held = second.usage()[0].cpu_s
    second.hand(task())
    first.take(task(), 0.5)
    assert state(first, task()) is TaskState.PAUSED
    assert first.usage()[0].cpu_s == pytest.approx(held, abs=0.1)
    first.stop(task(), 0.2)
    gone = ended(first, task())
    assert gone.kind is ExitKind.STOPPED
    assert gone.cpu_s >= held


@needs_root
@needs_groups
def test_version_1_without_version_2_beside_it(host):
    points = mounted()[0]
    if "cpu" not in points:
        pytest.skip("no version 1 controllers are mounted here")
    node = host.node("n0", groups=NodeGroupV1(points, None, host.cluster, "n0"))
    node.start(task(1), host.spec(*BUSY), 0.5)
    node.start(task(2), host.shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"), 0.5)
    running(node, task(1))
    until(lambda: node.output(task(2), "out", 0, 1)[0])
    time.sleep(0.3)
    until(lambda: node.usage()[0].waiting_s > 0)
    node.stop(task(2), 0.1)
    assert ended(node, task(2)).signal == 9


@needs_root
@needs_groups
def test_version_1_without_cpu_sets(host):
    points = {name: point for name, point in mounted()[0].items() if name != "cpuset"}
    if "cpu" not in points:
        pytest.skip("no version 1 controllers are mounted here")
    every = Path(cgroup.ONLINE).read_text().strip()
    node = host.node("n0", groups=NodeGroupV1(points, None, host.cluster, "n0"), cpus=every)
    assert "no cpuset controller: nodes cannot be bound to CPUs" in node.abilities.notes
    node.start(task(), host.shell("exit 3"), 0.5)
    assert ended(node, task()).code == 3


def test_shares_of_version_1_are_clamped_and_fine(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(cgroup_v1, "set_file", lambda path, value: seen.append((os.path.basename(path), value)))
    points = dict.fromkeys(("cpu", "cpuacct"), str(tmp_path / "cpu")) | {"freezer": str(tmp_path / "freezer")}
    node = NodeGroupV1(points, None, "c", "n0")
    group = node.group("1.0.0")
    for share in (0.0, 0.5, 0.50002, 1.0, 9.0):
        group.set_weight(share, 1.0)
    assert [value for _, value in seen] == ["2", "32768", "32769", "65536", "262144"]
    assert node.joint
    assert group.account == group.cpu
    assert group.lost_by_move == {"throttled_s", "cpu_s"}
    assert [note.partition(":")[0] for note in node.notes][:2] == ["no memory controller", "no cpuset controller"]
    with pytest.raises(DriverError):
        node.create("0", None, 1.0)


class Forking:
    """A group in which processes appear while others are moved out of it."""

    def __init__(self, *forked):
        self.forked, self.here, self.moved = list(forked), [], []

    def members(self):
        if not self.here and self.forked:
            self.here = self.forked.pop(0)
        return list(self.here)

    def attach(self, pid):
        self.here.remove(pid)
        if pid < 0:
            raise ProcessLookupError
        self.moved.append(pid)

    def place(self):
        return {"frozen": "/dev/null", "frozen_mark": "frozen", "freeze": "/dev/null"} | dict.fromkeys(
            ("freeze_on", "freeze_off"), "x"
        )


def test_none_is_left_behind_in_a_move():
    group = Forking([1, 2], [3], [-4, 5], [6])
    move_all(group, group, 1.0)
    assert group.moved == [1, 2, 3, 5, 6]
    endless = Forking(*([pid] for pid in range(1, 20_000)))
    with pytest.raises(DriverError, match="could not be moved"):
        move_all(endless, endless, 0.0)


WHOLE = "31 23 0:28 / {} rw,relatime shared:9 master:1 - cgroup cgroup rw,{}"
PART = "31 23 0:28 /docker/1 {} rw,relatime - cgroup cgroup rw,{}"
SECOND = "41 31 0:38 {} {} rw - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("lines", "cpu", "unified"),
    [
        ([WHOLE.format("/a", "cpu,cpuacct"), SECOND.format("/", "/u")], "/a", "/u"),
        # A bind mount for a sandbox, before and after the system's own.
        ([WHOLE.format("/sys/fs/cgroup/cpu", "cpu"), WHOLE.format("/box/cpu", "cpu")], "/sys/fs/cgroup/cpu", None),
        ([WHOLE.format("/box/cpu", "cpu"), WHOLE.format("/sys/fs/cgroup/cpu", "cpu")], "/sys/fs/cgroup/cpu", None),
        ([SECOND.format("/", "/box/u"), SECOND.format("/", "/sys/fs/cgroup")], None, "/sys/fs/cgroup"),
        ([SECOND.format("/", "/sys/fs/cgroupx"), SECOND.format("/", "/u")], None, "/sys/fs/cgroupx"),
        # Of one another the first.
        ([WHOLE.format("/one", "cpu"), WHOLE.format("/two", "cpu"), SECOND.format("/", "/u")], "/one", "/u"),
        # A part of a tree only where there is nothing else.
        ([PART.format("/sys/fs/cgroup/cpu", "cpu"), WHOLE.format("/mnt/cpu", "cpu")], "/mnt/cpu", None),
        ([PART.format("/box/cpu", "cpu"), PART.format("/sys/fs/cgroup/cpu", "cpu")], "/sys/fs/cgroup/cpu", None),
        (
            [SECOND.format("/../..", "/box"), SECOND.format("/", "/sys/fs/cgroup/unified")],
            None,
            "/sys/fs/cgroup/unified",
        ),
        # What would end a word is escaped, and what only looks like it is not.
        (
            [WHOLE.format(r"/a\040b\011c\134d", "cpu"), SECOND.format("/", "/\xa0\x0c\udcff")],
            "/a b\tc\\d",
            "/\xa0\x0c\udcff",
        ),
        (["", "22 27 0:21 / /proc rw - proc proc rw", "27 1 254:0 / / rw - ext4 /dev/vda rw,cpu"], None, None),
    ],
)
def test_which_mount_is_taken(lines, cpu, unified):
    first, second = mounts("\n".join(lines) + "\n")
    assert (first.get("cpu"), second) == (cpu, unified)


BIND = """
import os, subprocess, sys
from dfrs.live.drivers.control_groups.groups import mounted
own = mounted()
points = {**own[0], **({"unified": own[1]} if own[1] else {})}
for name, point in points.items():
    if not point.startswith("/sys/fs/cgroup"):
        sys.exit("mounted elsewhere")
    parts = [entry.path for entry in os.scandir(point) if entry.is_dir()]
    for number, source in enumerate((point, *parts[:1])):
        target = f"{sys.argv[1]}/a box/{name}{number}"
        os.makedirs(target)
        subprocess.run(["mount", "--bind", source, target], check=True)
assert open("/proc/self/mountinfo").read().count("a\\\\040box") >= len(points)
assert mounted() == own, (mounted(), own)
print("the same")
"""


@needs_root
@needs_groups
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare of util-linux")
def test_bind_mounts_of_others_change_nothing(tmp_path):
    # In a mount namespace of its own: with that, all of it is gone.
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", BIND, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "mounted elsewhere" in done.stderr:
        pytest.skip("control groups are mounted elsewhere")
    assert (done.stdout, done.stderr) == ("the same\n", "")


def test_small_parts(tmp_path):
    assert quota(0.5) == (100_000, 200_000)
    assert quota(0.005) == (1_000, 200_000)
    assert quota(0.0042) == (4_200, 1_000_000)
    assert quota(0.0) == (1_000, 1_000_000)
    assert quota(3.25) == (650_000, 200_000)
    assert cpu_list("0-2,5\n") == {0, 1, 2, 5}
    for bad in ("", "a", "1-", "-1", "1,,2"):
        with pytest.raises(DriverError):
            cpu_list(bad)
    entries = [("command", "a=b\nc"), ("command", ""), ("environment", "X=\udcff=ä")]
    assert unpack(pack(entries).decode("utf-8", "surrogateescape")) == entries
    counted = add_counters(UsageCounters(cpu_s=1.0, peak_bytes=5, throttled_s=None), {"cpu_s": 2.0, "peak_bytes": 9})
    assert (counted.cpu_s, counted.peak_bytes, counted.throttled_s) == (3.0, 9, None)
