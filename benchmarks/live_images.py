"""How long check-points take, and how large they are: programs of which half of the memory cannot be compressed."""

import tempfile
import time
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.common import console
from dfrs.live.drivers.base import DriverError, TaskId, TaskSpec
from dfrs.live.drivers.control_groups.driver import ProcessDriver
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
print("ready", flush=True)
time.sleep(3600)
"""


def measured(criu: Criu, size_mb: int, *, compress: bool) -> tuple[float, float, int]:
    """(seconds of a dump, of a restore, bytes stored) of a program with so much memory: medians."""
    with tempfile.TemporaryDirectory() as root:
        driver = ProcessDriver(Path(root), "bench-images", "n0", cores=1.0, memory_bytes=4 << 30)
        images = Images(Path(root), 4 << 30, criu, compress=compress)
        command = ("/usr/bin/env", "python3", "-c", PROGRAM, str(size_mb))
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        driver.start(
            TASK,
            TaskSpec(
                command=command,
                directory="/",
                environment=environment,
                tasks=1,
                peers=("127.0.0.1",),
                memory_bytes=(size_mb + 64) << 20,
            ),
            1.0,
        )
        while not driver.output(TASK, "out", 0, 1)[0]:
            time.sleep(0.01)
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


def main() -> None:
    """All sizes, with compression and without."""
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
