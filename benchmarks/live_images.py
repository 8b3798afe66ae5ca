"""How long check-points and moves between hosts take: programs of which half of the memory cannot be compressed.

Two state roots on this machine stand for two hosts, and a pair of sockets for the network.
"""

import socket
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.common import console
from dfrs.live.drivers.base import DriverError, TaskId, TaskSpec
from dfrs.live.drivers.control_groups.driver import ControlGroupDriver
from dfrs.live.drivers.processes.criu import Criu, find_criu
from dfrs.live.drivers.processes.images import Images

SIZES_MB = (8, 64, 512)
TIMES = 5
TASK = TaskId(job=1, rank=0, attempt=0)
PROGRAM = """
import os, sys, time
data = bytearray(int(sys.argv[1]) << 20)
for start in range(0, len(data), 1 << 20):
    data[start : start + (1 << 19)] = os.urandom(1 << 19)
while True:
    print(time.time(), flush=True)
    time.sleep(0.01)
"""


def measured(criu: Criu, size_mb: int, *, compress: bool) -> tuple[float, float, int]:
    """(seconds of a dump, of a restore, bytes stored) of a program with so much memory: medians."""
    with tempfile.TemporaryDirectory() as root:
        driver = ControlGroupDriver(Path(root), "bench-images", "n0", cores=1.0, memory_bytes=4 << 30)
        images = Images(Path(root), 4 << 30, criu, compress=compress)
        driver.start(TASK, _spec(size_mb), 1.0)
        _await_output(driver, 0)
        dumps: list[float] = []
        restores: list[float] = []
        stored = 0
        for _ in range(TIMES):
            began = time.monotonic()
            stored = images.checkpoint(TASK).stored_bytes
            dumps.append(time.monotonic() - began)
            began = time.monotonic()
            images.restore(TASK, driver.groups.group(str(TASK)).entries(), driver.launch)
            restores.append(time.monotonic() - began)
        driver.sweep()
    return median(dumps), median(restores), stored


def _spec(size_mb: int) -> TaskSpec:
    return TaskSpec(
        command=("/usr/bin/env", "python3", "-c", PROGRAM, str(size_mb)),
        directory="/",
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        tasks=1,
        peers=("127.0.0.1",),
        memory_bytes=(size_mb + 64) << 20,
    )


def _await_output(driver: ControlGroupDriver, beyond: int) -> None:
    while driver.output(TASK, "out", 0, 1)[2] <= beyond:
        time.sleep(0.002)


def gaps(size_mb: int) -> list[float]:
    """For how many seconds a program with so much memory said nothing while it moved, there and back again."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        here, there = (
            ControlGroupDriver(Path(root), f"bench-{name}", "n0", cores=1.0, memory_bytes=4 << 30, images_bytes=4 << 30)
            for name, root in (("a", first), ("b", second))
        )
        here.start(TASK, _spec(size_mb), 1.0)
        _await_output(here, 0)
        for _ in range(TIMES):
            _move(here, there, _spec(size_mb))
            _await_output(there, there.output(TASK, "out", 0, 0)[2])
            here.forget(TASK)
            here, there = there, here
        said = [float(word) for word in here.output(TASK, "out", 0, 1 << 24)[0].split()[:-1]]
        for driver in (here, there):
            driver.sweep()
    return sorted(after - before for before, after in pairwise(said))[-TIMES:]


def _move(here: ControlGroupDriver, there: ControlGroupDriver, spec: TaskSpec) -> None:
    ours, theirs = socket.socketpair()

    def give() -> None:
        with ours, ours.makefile("wb") as stream:
            here.send(TASK, stream)

    sender = threading.Thread(target=give)
    sender.start()
    with theirs, theirs.makefile("rb") as stream:
        there.receive(TASK, spec, stream)
    sender.join()
    there.take(TASK, 1.0)
    there.resume(TASK)


def main() -> None:
    """All sizes, with compression and without; then moves."""
    criu, why = find_criu()
    if criu is None:
        raise DriverError(why)
    table = Table("memory, MB", "compressed", "dump, s", "restore, s", "image, MB", title=f"CRIU {criu.version}")
    for size_mb in SIZES_MB:
        for compress in (True, False):
            dump_s, restore_s, stored = measured(criu, size_mb, compress=compress)
            figures = (f"{dump_s:.2f}", f"{restore_s:.2f}", f"{stored / 1e6:.0f}")
            table.add_row(str(size_mb), "yes" if compress else "no", *figures)
    console.print(table)
    moves = Table("memory, MB", "median gap, s", "longest, s", title="moves to another host")
    for size_mb in SIZES_MB:
        found = gaps(size_mb)
        moves.add_row(str(size_mb), f"{median(found):.2f}", f"{max(found):.2f}")
    console.print(moves)
