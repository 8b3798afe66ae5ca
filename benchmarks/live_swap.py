"""How long pauses take that push memory out to swap space, and how soon it is back: needs root and swap space."""

import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from statistics import median
from unittest.mock import patch

from rich.table import Table

from benchmarks.common import console
from dfrs.live.drivers.base import DriverError, TaskId, TaskSpec
from dfrs.live.drivers.control_groups import driver as process_driver
from dfrs.live.drivers.control_groups.driver import ControlGroupDriver

SIZES_MB = (8, 150, 512)
TIMES = 5
TASK = TaskId(job=1, rank=0, attempt=0)
PROGRAM = """
import os, sys, time
data = bytearray(os.urandom(1 << 20)) * int(sys.argv[1])
while True:
    sum(data[::4096])
    print("touched", flush=True)
    time.sleep(0.005)
"""


def measured(size_mb: int) -> tuple[float, float]:
    """(seconds of a pause, from a resume until the program has touched all of its memory): medians."""
    with tempfile.TemporaryDirectory() as root:
        driver = ControlGroupDriver(Path(root), "bench-swap", "n0", cores=1.0, memory_bytes=4 << 30, swap_bytes=None)
        if not driver.abilities.pause_frees_memory:
            raise DriverError("pauses free no memory here: turn swap space on, and be root")
        command = ("/usr/bin/env", "python3", "-c", PROGRAM, str(size_mb))
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        limit = (size_mb + 64) << 20
        spec = TaskSpec(
            command=command, directory="/", environment=environment, tasks=1, peers=("127.0.0.1",), memory_bytes=limit
        )
        with closing(driver):
            driver.start(TASK, spec, 1.0)
            _touched(driver, 0)
            pauses: list[float] = []
            resumes: list[float] = []
            for _ in range(TIMES):
                began = time.monotonic()
                driver.pause(TASK)
                pauses.append(time.monotonic() - began)
                before = _said(driver)
                began = time.monotonic()
                driver.resume(TASK)
                # What it was doing when it was paused had touched a part of it before.
                _touched(driver, before + 1)
                resumes.append(time.monotonic() - began)
            driver.forget(TASK)
            driver.remove_node()
    return median(pauses), median(resumes)


def _said(driver: ControlGroupDriver) -> int:
    return driver.output(TASK, "out", 0, 1 << 24)[0].count(b"\n")


def _touched(driver: ControlGroupDriver, times: int) -> None:
    """Wait until the program has touched its memory more often than that."""
    while _said(driver) <= times:
        time.sleep(0.002)


def _none(pids: Iterable[int]) -> None:
    """Leave the memory of these processes where it is."""


def main() -> None:
    """All sizes: memory that is read back in large pieces, as it is, and page by page, as it is touched."""
    table = Table("memory, MB", "pause, s", "back, s", "back if only touched, s", title="pauses to swap space")
    for size_mb in SIZES_MB:
        pause_s, back_s = measured(size_mb)
        with patch.object(process_driver, "recall", _none):
            _, touched_s = measured(size_mb)
        table.add_row(str(size_mb), f"{pause_s:.2f}", f"{back_s:.2f}", f"{touched_s:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
