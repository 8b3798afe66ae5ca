"""Programs, hosts and a CRIU for the tests of check-points.

The CRIU is what `make criu` unpacks into .venv/criu, or what DFRS_CRIU names.
"""

import io
import os
import subprocess
from pathlib import Path

import pytest

from dfrs.live.drivers.control_groups.groups import mounted
from dfrs.live.drivers.control_groups.v2 import NodeGroupV2
from dfrs.live.drivers.processes.criu import find_criu
from tests.driver_hosts import IN_GROUPS, MIB, PYTHON, Host, ended, running, task, until

UNPACKED = Path(__file__).parents[1] / ".venv/criu/criu"
if UNPACKED.exists():
    os.environ.setdefault("DFRS_CRIU", str(UNPACKED))
CRIU, WHY = find_criu()
NEEDS_CRIU = pytest.mark.skipif(CRIU is None, reason=WHY or "-")
WITH_CRIU = [*IN_GROUPS, NEEDS_CRIU]

COUNTER = """
import os, sys, time
size = int(sys.argv[1]) << 20
data = bytearray(size)
for start in range(0, size, 1 << 20):
    data[start : start + (1 << 19)] = os.urandom(1 << 19)
number = 0
while True:
    sys.stdout.write("a %d\\n" % number)
    sys.stdout.flush()
    number += 1
    time.sleep(0.0005)
"""
FAMILY = """
import os, threading, time
def count(name):
    number = 0
    while True:
        os.write(1, b"%s %d\\n" % (name, number))
        number += 1
        time.sleep(0.001)
for name in (b"b", b"c", b"d"):
    if os.fork() == 0:
        threading.Thread(target=count, args=(name + b"1",)).start()
        count(name)
for name in (b"a1", b"a2"):
    threading.Thread(target=count, args=(name,)).start()
count(b"a")
"""
ONE = task()


def output(node, which=ONE):
    return node.output(which, "out", 0, 1 << 30)[0]


def written(node, which=ONE):
    return node.output(which, "out", 0, 1)[2]


def advances(node, which=ONE):
    """That it runs: it writes."""
    before = written(node, which)
    until(lambda: written(node, which) > before)
    return True


def counted(node, which=ONE):
    """That each of its writers wrote each number once, in order; the writers."""
    last = {}
    for line in output(node, which).splitlines():
        name, number = line.split()
        assert int(number) == last.get(name, -1) + 1
        last[name] = int(number)
    assert node.output(which, "err", 0, 100)[0] == b""
    return set(last)


def start(node, host, program=COUNTER, size=8, **options):
    options = {"memory_bytes": (size + 64) * MIB} | options
    node.start(task(), host.spec(PYTHON, "-c", program, str(size), **options), 1.0)
    pid = running(node, task())
    until(lambda: written(node))
    return pid


def stop(node):
    node.stop(task(), 5.0)
    return ended(node, task())


UNIFIED = mounted()[1]


def second_version(host, **options):
    """A node in groups of version 2, also where the controllers belong to version 1: memory is not counted then."""
    return host.node(groups=NodeGroupV2(UNIFIED, host.cluster, "n0"), cpus=None, **options)


@pytest.fixture
def small_disk(tmp_path):
    """A host whose disk has 32 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", path], check=True)
    made = Host(path / "state")
    yield made
    made.close()
    subprocess.run(["umount", path], check=True)


def criu_of(host):
    """A CRIU at work on this host, itself or one of its helpers."""
    own = f"dfrs/{host.cluster}/"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"/criu" in told and (own.encode() in told or own in group_of(entry)):
                yield int(entry.name)


def group_of(entry):
    try:
        return (entry / "cgroup").read_text() if b"restore" in (entry / "cmdline").read_bytes() else ""
    except OSError:
        return ""


class Breaking(io.BytesIO):
    """A connection that breaks after some bytes."""

    def write(self, data):
        if self.tell() > MIB:
            raise BrokenPipeError
        return super().write(data)
