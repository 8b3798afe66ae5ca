"""What a Slurm with 1,000 nodes and 12,000 jobs costs: looks, decisions with their commands, and slurmctld's CPU.

The nodes are emulated as Slurm's developers do it: many slurmd on one machine, each with a node's name and a port
of its own. Each running job is a real one, a `sleep` under a slurmstepd. So memory is what limits, and most of the time
passes until all jobs run. It needs root and Debian's packages (`tests/slurm_cluster.py`).

    python -m benchmarks.slurm_scale [--nodes 1000] [--running 2000] [--pending 10000]
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tests.slurm_cluster import Node, SlurmCluster, why_not

from benchmarks.common import console, machine
from benchmarks.online import table
from dfrs.live.backends.slurm.backend import SlurmBackend
from dfrs.live.backends.slurm.port import Found, SlurmCommands
from dfrs.live.backends.slurm.setup.scripts import OURS, SITE, SOURCE, load_line, site_script
from dfrs.testing import make_controller, until

NODES, RUNNING, PENDING = 1_000, 2_000, 10_000
MEMORY_MB = 1_000
"""Of a node; its jobs have equal parts of it."""
ARRAY = 1_000
"""Jobs that are submitted at once: what dfrs has said of a task makes it a job of its own."""
BACK, TIMES = 50, 3
"""Nodes that are back at the same time, and how often."""
LOOKS = 10
REPORT_S = 1.0
"""As of a controller that is served: in tests it looks at all more often."""
MINUTE_S = 60.0
EACH_S = 0.5
"""Between two ends of jobs in a busy minute."""
DECISION_GOAL_S, LOAD_GOAL = 5.0, 0.10
PATIENCE_S, ENDED_S = 900.0, 120.0
CONF = """ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobSubmitPlugins=lua
JobRequeue=0
SlurmdTimeout=0
MaxJobCount=50000
MinJobAge=60
TreeWidth={nodes}
PartitionName=main Nodes=ALL Default=YES DefMemPerCPU=50 MaxTime=INFINITE State=UP OverSubscribe=FORCE:64
"""


@dataclass
class Usage:
    """CPU seconds since something began."""

    slurmctld: float
    commands: float
    controller: float


class Meter:
    """What slurmctld, dfrs's commands and this process have used."""

    def __init__(self, slurmctld: int) -> None:
        self._stat = Path(f"/proc/{slurmctld}/stat")

    def now(self) -> Usage:
        """So far."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Usage(
            (int(fields[11]) + int(fields[12])) / 100, children.ru_utime + children.ru_stime, time.process_time()
        )

    def since(self, before: Usage) -> Usage:
        """Since then."""
        now = self.now()
        return Usage(
            now.slurmctld - before.slurmctld, now.commands - before.commands, now.controller - before.controller
        )


class Timed(SlurmCommands):
    """Slurm's commands, and how long they took."""

    def __init__(self, inside: Sequence[str]) -> None:
        super().__init__("main", inside)
        self.looks = 0
        self.commands_s: list[tuple[float, float]] = []
        """Begin and end of each that starts jobs."""
        self.explained: set[str] = set()

    async def look(self) -> Found:
        """As `Slurm.look`."""
        self.looks += 1
        return await super().look()

    async def explain(self, jobs: Sequence[str], why: str) -> None:
        """As `Slurm.explain`."""
        await super().explain(jobs, why)
        self.explained.update(jobs)

    async def place(self, job: str, node: str, mark: str, *, requeue: bool) -> None:
        """As `Slurm.place`."""
        began = time.perf_counter()
        await super().place(job, node, mark, requeue=requeue)
        self.commands_s.append((began, time.perf_counter()))

    async def release(self, job: str) -> None:
        """As `Slurm.release`."""
        began = time.perf_counter()
        await super().release(job)
        self.commands_s.append((began, time.perf_counter()))


def cluster_of(nodes: int) -> SlurmCluster:
    """As `dfrs slurm install` would leave it, but for control groups: 1,000 nodes of one host have one of each name."""
    files = {OURS: SOURCE.read_text(), SITE: site_script(load_line(Path("/etc/slurm"), "main", [0]))}
    names = {f"n{k + 1}": Node(memory_mb=MEMORY_MB) for k in range(nodes)}
    return SlurmCluster(names, conf=CONF.format(nodes=nodes + 1), files=files, accounting=False, apart=False)


def submit(slurm: SlurmCluster, jobs: int, memory_mb: int) -> None:
    """Jobs that run until they are cancelled."""
    for first in range(0, jobs, ARRAY):
        array = f"--array=0-{min(ARRAY, jobs - first) - 1}"
        options = [array, f"--mem={memory_mb}", "--time=1-0", "--comment=dfrs: cpu=0.5", "--chdir=/"]
        slurm.sbatch(*options, wrap="exec sleep 86400")


async def look_costs(look: Callable[[], Any], meter: Meter) -> tuple[float, Usage]:
    """(median seconds of a look, CPU of one)."""
    before, times = meter.now(), []
    for _ in range(LOOKS):
        began = time.perf_counter()
        await look()
        times.append(time.perf_counter() - began)
    used = meter.since(before)
    return statistics.median(times), Usage(*(each / LOOKS for each in (used.slurmctld, used.commands, used.controller)))


def json_look(inside: Sequence[str]) -> Callable[[], Any]:
    """The same as JSON, which all that Slurm knows of a job is in."""

    def both() -> None:
        for command in ("squeue", "sinfo"):
            json.loads(subprocess.run([*inside, command, "--json"], check=True, capture_output=True).stdout)

    return lambda: asyncio.to_thread(both)


class Scene:
    """A controller on this cluster, in this process."""

    def __init__(self, slurm: SlurmCluster, running: int, path: str) -> None:
        self.slurm, self.running = slurm, running
        self.commands = Timed(slurm.inside())
        self.backend = SlurmBackend(self.commands)
        self.controller = make_controller(path, backend=self.backend, clock=time.time, report_s=REPORT_S)
        self.meter = Meter(slurm.pid("slurmctld"))
        self._cancelled: set[str] = set()

    def all_run(self) -> bool:
        """Whether there is no room for more."""
        return self.run() == self.running

    def run(self) -> int:
        """How many run, as Slurm was last seen."""
        return sum(row.state == "RUNNING" for row in self.backend.seen.rows.values())

    async def end_some(self, count: int) -> None:
        """So many of those that run are cancelled by their user."""
        rows = (row.id for row in self.backend.seen.rows.values() if row.state == "RUNNING")
        chosen = list(islice((name for name in rows if name not in self._cancelled), count))
        self._cancelled.update(chosen)
        await asyncio.gather(*map(self.commands.cancel, chosen))

    async def decide(self, nodes: Sequence[str]) -> tuple[float, float, float]:
        """Nodes are taken out, and are back: seconds of (the slowest decision, its commands, until all jobs run)."""
        slurm, seen = self.slurm, self.backend.seen
        await asyncio.to_thread(slurm.scontrol, "update", f"nodename={','.join(nodes)}", "state=drain", "reason=test")
        records = [record for record in self.controller.state.nodes if record.name in nodes]
        await until(lambda: all(record.problem for record in records), "dfrs knows of it", PATIENCE_S)
        jobs = [row.id for row in seen.rows.values() if row.placed and row.node in nodes]
        # One scancel for all of them waits a second between two.
        await asyncio.gather(*map(self.commands.cancel, jobs))
        left = self.running - len(jobs)
        await until(lambda: self.run() == left, "the nodes are empty", PATIENCE_S)
        self.commands.commands_s.clear()
        core, slowest = self.controller.state.core, 0.0
        began, decisions = time.perf_counter(), core.decisions
        await asyncio.to_thread(slurm.scontrol, "update", f"nodename={','.join(nodes)}", "state=resume")
        while not self.commands.commands_s or not self.all_run() or self.backend.steering.expects:
            if core.decisions != decisions:
                decisions, slowest = core.decisions, max(slowest, self.controller.state.decision_s)
            if time.perf_counter() - began > PATIENCE_S:
                raise TimeoutError("jobs that were to start do not")
            await asyncio.sleep(0.05)
        begins, ends = zip(*self.commands.commands_s, strict=True)
        return slowest, max(ends) - min(begins), time.perf_counter() - began

    async def minute(self, each_s: float | None) -> Usage:
        """CPU in a minute; `each_s`: so often a job ends."""
        before, end_s = self.meter.now(), time.perf_counter() + MINUTE_S
        while (left_s := end_s - time.perf_counter()) > 0:
            if each_s is not None:
                await self.end_some(1)
            await asyncio.sleep(min(left_s, each_s or left_s))
        return self.meter.since(before)


async def _measure(slurm: SlurmCluster, running: int, pending: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as path:
        scene, began = Scene(slurm, running, path), time.perf_counter()
        found: dict[str, Any] = {}
        await scene.controller.start()
        known = running + pending
        # What Slurm fails to launch is there no more.
        most = known - running // 100
        await until(lambda: scene.all_run() and len(scene.controller.state.arrived) >= most, "all run", PATIENCE_S)
        found["filled_s"] = time.perf_counter() - began
        console.print(f"{running:,} jobs run after {found['filled_s']:.0f} s")
        # Reasons are written a few at a time.
        most -= running
        await until(lambda: len(scene.commands.explained) >= most, "all say why they wait", PATIENCE_S)
        found["explained_s"] = time.perf_counter() - began
        console.print(f"the others say why they wait after {found['explained_s']:.0f} s")
        scene.commands.looks = 0
        found["quiet"] = await scene.minute(None)
        found["looks"] = scene.commands.looks
        names = list(slurm.nodes)
        found["decisions"] = [await scene.decide(names[k * BACK : (k + 1) * BACK]) for k in range(TIMES)]
        found["commands"] = len(scene.commands.commands_s)
        console.print(f"{BACK} nodes were back {TIMES} times")
        found["busy"] = await scene.minute(EACH_S)
        await scene.controller.stop()
        found["alone"] = await scene.minute(None)
        found["look"] = await look_costs(scene.commands.look, scene.meter)
        found["json"] = await look_costs(json_look(slurm.inside()), scene.meter)
        return found


def measured(nodes: int, running: int, pending: int) -> dict[str, Any]:
    """All figures of a cluster of its own."""
    with cluster_of(nodes) as slurm:
        submit(slurm, running + pending, MEMORY_MB * nodes // running)
        try:
            return asyncio.run(_measure(slurm, running, pending))
        finally:
            _end_all(slurm)


def _end_all(slurm: SlurmCluster) -> None:
    """Their processes would outlive Slurm's."""
    subprocess.run([*slurm.inside(), "scancel", "--partition=main"], check=False, capture_output=True)
    end_s = time.monotonic() + ENDED_S
    while time.monotonic() < end_s:
        left = subprocess.run([*slurm.inside(), "squeue", "--noheader"], check=False, capture_output=True).stdout
        if not left.strip():
            return
        time.sleep(1.0)


def show(found: dict[str, Any], title: str) -> None:
    """The figures beside their goals."""
    looks = table(title, "one look, all jobs and nodes", "wall", "slurmctld", "its commands", "dfrs")
    for name, key in (("squeue --Format, sinfo --Format", "look"), ("squeue --json, sinfo --json", "json")):
        wall_s, used = found[key]
        looks.add_row(name, *(f"{1e3 * each:,.0f} ms" for each in (wall_s, *_parts(used))))
    minutes = table("", "a minute, in parts of a core", "slurmctld", "its commands", "dfrs", "goal", "met")
    alone = found["alone"].slurmctld
    for name, key in (
        ("without dfrs", "alone"),
        (f"nothing happens; {found['looks']} looks", "quiet"),
        (f"a job ends each {EACH_S:g} s", "busy"),
    ):
        shares = [each / MINUTE_S for each in _parts(found[key])]
        met = "yes" if (found[key].slurmctld - alone) / MINUTE_S <= LOAD_GOAL else "NO"
        goal = ("", "") if key == "alone" else (f"{LOAD_GOAL:.0%} more than without", met)
        minutes.add_row(name, *(f"{each:.1%}" for each in shares), *goal)
    steps = table("", f"{BACK} nodes are back at once, {TIMES} times", "median", "slowest", "goal", "met")
    decided, commanded, whole = zip(*found["decisions"], strict=True)
    both = [a + b for a, b in zip(decided, commanded, strict=True)]
    for name, values in (
        ("decision", decided),
        (f"its {found['commands']} commands", commanded),
        ("decision and commands", both),
        ("until as many jobs run there", whole),
    ):
        goal = (
            (f"{DECISION_GOAL_S:g} s", "yes" if max(both) <= DECISION_GOAL_S else "NO") if values is both else ("", "")
        )
        steps.add_row(name, f"{statistics.median(values):.2f} s", f"{max(values):.2f} s", *goal)
    for each in (looks, minutes, steps):
        console.print()
        console.print(each)
    console.print(f"\nall ran {found['filled_s']:.0f} s after the controller began, and said why they wait after")
    console.print(f"{found['explained_s']:.0f} s. {machine()}")


def _parts(used: Usage) -> tuple[float, float, float]:
    return used.slurmctld, used.commands, used.controller


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm_scale")
    parser.add_argument("--nodes", type=int, default=NODES, metavar="N")
    parser.add_argument("--running", type=int, default=RUNNING, metavar="N", help="a multiple of --nodes")
    parser.add_argument("--pending", type=int, default=PENDING, metavar="N")
    options = parser.parse_args()
    if reason := why_not(accounting=False):
        parser.error(reason)
    found = measured(options.nodes, options.running, options.pending)
    show(found, f"{options.nodes:,} nodes, {options.running:,} jobs running, {options.pending:,} pending")


if __name__ == "__main__":
    main()
