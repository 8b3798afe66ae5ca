"""How well real programs get what was asked for: [Stillwell2008] section 7 with control groups, not virtual machines.

One to ten CPU-bound jobs on one CPU, under random shares and under random caps: error of the fraction that each got,
in per cent of the CPU. What a program loses by being managed. How soon a changed share is in force.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import cast

import numpy as np
from rich.table import Table

from benchmarks.common import console
from dfrs.live.drivers.base import DriverError, ShareMode, TaskId, TaskSpec
from dfrs.live.drivers.control_groups.driver import ControlGroupDriver
from dfrs.live.drivers.control_groups.groups import set_file
from dfrs.live.drivers.control_groups.v1 import NodeGroupV1
from dfrs.live.drivers.control_groups.v2 import NodeGroupV2

JOBS = 10
WINDOW_S = 5.0
MEAN_GOAL, MAX_GOAL = 1.0, 3.0
OVERHEAD_GOAL = 0.5
CHANGE_GOAL_S = 0.5
CHANGE_WINDOW_S = 0.1
NEAR = 0.075
"""How far a window of a tenth of a second may be off: three times its noise for a constant share."""
PAIRS = 15
SHIELD_SHARES = 88_761
"""The kernel's weight of nice level -20."""
WORK = """
import sys, time
def work(steps):
    total = 0
    for step in range(steps):
        total += step & 7
    return total
work(10**5)
wall, cpu = time.perf_counter(), time.process_time()
work(int(sys.argv[1]))
print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)
"""


def spec(*command: str) -> TaskSpec:
    environment = {"PATH": "/usr/bin:/bin"}
    return TaskSpec(
        command=command, directory="/", environment=environment, tasks=1, peers=("127.0.0.1",), memory_bytes=64 << 20
    )


BUSY = spec("/bin/sh", "-c", "while :; do :; done")


def task(job: int) -> TaskId:
    return TaskId(job=job, rank=0, attempt=0)


class Node:
    """A node of one CPU, not this process's own if there is another; cleared at the end."""

    def __init__(self, shares: ShareMode = "weights") -> None:
        self.cpu = (os.cpu_count() or 1) - 1
        self.root = tempfile.TemporaryDirectory()
        self.driver = ControlGroupDriver(
            Path(self.root.name),
            f"bench-{os.getpid()}",
            "n0",
            cpus=str(self.cpu),
            cores=1.0,
            memory_bytes=1 << 30,
            shares=shares,
        )

    def __enter__(self) -> ControlGroupDriver:
        return self.driver

    def __exit__(self, *_: object) -> None:
        for status in self.driver.tasks():
            self.driver.forget(status.task)
        self.driver.remove_node()
        self.root.cleanup()


def shield(driver: ControlGroupDriver) -> None:
    """Keep the rest of the host out of the measurement: before all of that, the CPU is for managed programs."""
    groups = driver.groups
    version_1 = isinstance(groups, NodeGroupV1)
    file, weight = ("cpu.shares", SHIELD_SHARES) if version_1 else ("cpu.weight", SHIELD_SHARES * 100 // 1024)
    cluster = Path(groups.cpu if version_1 else cast("NodeGroupV2", groups).path).parent
    for path in (cluster.parent, cluster):
        set_file(str(path / file), str(weight))


def fractions(driver: ControlGroupDriver, window_s: float) -> dict[int, float]:
    """CPU seconds a second of each job over a while."""
    shield(driver)
    before = {row.task.job: row for row in driver.usage()}
    time.sleep(window_s)
    return {
        row.task.job: (row.cpu_s - before[row.task.job].cpu_s) / (row.time_s - before[row.task.job].time_s)
        for row in driver.usage()
    }


def accuracy(shares: ShareMode, rng: np.random.Generator) -> list[float]:
    """Prints the errors for one to ten jobs, and returns all of them, in per cent of the CPU."""
    table = Table(title=f"One CPU, random {'shares' if shares == 'weights' else 'caps'}, {WINDOW_S:g} s")
    for column in ("jobs", "asked", "mean error %", "max error %", "all together"):
        table.add_column(column, justify="right")
    errors: list[float] = []
    with Node(shares) as driver:
        for jobs in range(1, JOBS + 1):
            # Shares of at least 0.02; caps leave a part of the CPU idle, which nobody may use.
            asked = 0.02 + (1 - 0.02 * jobs) * rng.dirichlet(np.ones(jobs))
            if shares == "caps":
                asked *= 0.95
            driver.start(task(jobs), BUSY, float(asked[-1]))
            for job, share in enumerate(asked, 1):
                driver.set_share(task(job), float(share))
            time.sleep(0.5)
            got = fractions(driver, WINDOW_S)
            total = sum(got.values())
            of = total if shares == "weights" else 1.0
            here = [100 * abs(got[job] / of - share) for job, share in enumerate(asked, 1)]
            errors += here
            what = f"{asked.min():.3f}..{asked.max():.3f}"
            table.add_row(str(jobs), what, f"{mean(here):.2f}", f"{max(here):.2f}", f"{total:.3f}")
    console.print(table)
    return errors


def work(driver: ControlGroupDriver | None, cpu: int, steps: int, run: int) -> tuple[float, float]:
    """(steps a wall-clock second, steps a CPU second) of the same loop, managed or bare."""
    command = (sys.executable, "-I", "-S", "-c", WORK, str(steps))
    if driver is None:
        # The same shield as a managed program has, by the means that a program without control groups has.
        script = f'echo -20 > /proc/self/autogroup; exec nice -n -20 taskset -c {cpu} "$@"'
        bare = ["/bin/sh", "-c", script, "sh", *command]
        done = subprocess.run(bare, check=True, capture_output=True, text=True, start_new_session=True)
        text = done.stdout
    else:
        shield(driver)
        driver.start(task(run), spec(*command), 1.0)
        while not any(status.exit for status in driver.tasks() if status.task == task(run)):
            time.sleep(0.25)
            driver.usage()
        text = driver.output(task(run), "out", 0, 1000)[0].decode()
    wall_s, cpu_s = map(float, text.split())
    return steps / wall_s, steps / cpu_s


def overhead() -> tuple[float, float]:
    """Per cent of a bare run that a managed one loses: (by the wall clock, by CPU time); medians of close pairs."""
    node = Node()
    with node as driver:
        steps = int(work(None, node.cpu, 2_000_000, 0)[0])
        losses: list[tuple[float, float]] = []
        for pair in range(1, PAIRS + 1):
            # Before and after, so that a drift of the machine cancels.
            first = work(None, node.cpu, steps, 0)
            managed = work(driver, node.cpu, steps, pair)
            second = work(None, node.cpu, steps, 0)
            bare = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
            losses.append((100 * (1 - managed[0] / bare[0]), 100 * (1 - managed[1] / bare[1])))
    wall, cpu = zip(*losses, strict=True)
    return median(wall), median(cpu)


def change() -> list[float]:
    """Seconds from a changed share to the end of the first window in which it is in force and stays so."""
    delays: list[float] = []
    with Node() as driver:
        for job, share in ((1, 0.75), (2, 0.25)):
            driver.start(task(job), BUSY, share)
        time.sleep(1.0)
        for turn in range(10):
            share = 0.25 if turn % 2 == 0 else 0.75
            driver.set_share(task(1), share)
            driver.set_share(task(2), 1 - share)
            started = time.monotonic()
            seen: list[tuple[float, bool]] = []
            for _ in range(12):
                got = fractions(driver, CHANGE_WINDOW_S)
                seen.append((time.monotonic() - started, abs(got[1] / (got[1] + got[2]) - share) < NEAR))
            last_off = max((index for index, (_, near) in enumerate(seen[:-1]) if not near), default=-1)
            delays.append(seen[last_off + 1][0])
    return delays


def main() -> None:
    """All three, and a table with the goals."""
    try:
        with Node():
            pass
    except DriverError as error:
        console.print(f"Sharing of real programs is not measured: {error}")
        return
    rng = np.random.default_rng(7)
    table = Table(title="Sharing of real programs on one CPU")
    for column in ("what", "measured", "goal"):
        table.add_column(column, justify="left" if column == "what" else "right")
    kinds: list[tuple[ShareMode, str]] = [("weights", "share"), ("caps", "cap")]
    for shares, name in kinds:
        errors = accuracy(shares, rng)
        table.add_row(f"error of a {name}, mean", f"{mean(errors):.2f} %", f"{MEAN_GOAL:g} %")
        table.add_row(f"error of a {name}, max", f"{max(errors):.2f} %", f"{MAX_GOAL:g} %")
    wall, cpu = overhead()
    table.add_row("loss against a bare run, wall clock", f"{wall:.2f} %", f"{OVERHEAD_GOAL:g} %")
    table.add_row("loss against a bare run, CPU time", f"{cpu:.2f} %", f"{OVERHEAD_GOAL:g} %")
    delays = change()
    table.add_row("a changed share is in force, median", f"{median(delays):.2f} s", f"{CHANGE_GOAL_S:g} s")
    table.add_row("a changed share is in force, max", f"{max(delays):.2f} s", f"{CHANGE_GOAL_S:g} s")
    console.print(table)
