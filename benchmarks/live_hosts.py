"""Jobs with real memory on three hosts, in compressed time, under two policies; and their simulation beside it.

Needs root, control groups and swap space. Each host is a set of namespaces with one node. A second of real time is
`SPEED` seconds of the jobs', and so are the policies' own times. What nodes can do and what it costs is measured first,
and is what the simulation assumes: the CPU that a busy node really gets, and the seconds that a job loses by a pause
and a resume beyond those for which it is paused.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import console, machine
from benchmarks.online import table
from dfrs.live.client import Client, read_client_file
from dfrs.live.protocol.resources import ENDED, JobRequest, JobState
from dfrs.model.instance import Floats
from dfrs.model.jobs import Workload
from dfrs.model.run import Penalty
from dfrs.policies.names import find_policy
from dfrs.simulator.simulation import Simulation, SimulationSettings

SPEED = 30.0
HOSTS, JOBS, LOAD = 3, 60, 1.0
SHORTEST_S, MEDIAN_S, LONGEST_S, SPREAD = 60.0, 200.0, 3600.0, 1.2
"""Of the jobs' processing times, log-normal."""
SIZES = {1: 0.5, 2: 0.3, 3: 0.2}
"""Tasks of a job, with their chances."""
SMALL = 0.55
"""Part of the jobs whose tasks need a tenth of the memory; others need 0.2 to 0.95 of it ([Stillwell2010] 5.3)."""
LEAST_S = 10.0
"""Of a bounded stretch."""
DEFAULT = "GreedyPM*/per/OPT=MIN/MVT=600"
LIVE = {DEFAULT: "GreedyPM*/per={0:g}/OPT=MIN/MVT={0:g}", "EASY": "EASY"}
"""How a policy is called in compressed time; {0}: ten minutes of it."""
OWN_MIB = 12
"""Memory of a program beyond what it is told to hold."""
HELD = Path(__file__).with_name("held.py")
DFRS = (sys.executable, "-m", "dfrs.cli.main")
CALIBRATION_S = 10.0
PAUSED = (0.1, 0.9)
"""Memory of the jobs by which the price of a pause is measured."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What was measured."""

    cores: float
    """CPU that a busy node gets while all are busy."""
    start_s: float
    """From submission to the end of a job, beyond its work."""
    pause_s: float
    """Lost by a pause and a resume, whatever the memory …"""
    pause_node_s: float
    """… and, for a task with a whole node's memory, so much more."""

    def penalty(self) -> Penalty:
        """As the simulator has it, in the jobs' time."""
        rate = Penalty.node_bytes / max(1e-3, self.pause_node_s * SPEED)
        return Penalty(seconds=self.pause_s * SPEED, bytes_per_s=rate)


def workload(seed: int) -> Workload:
    """The jobs, in their own time."""
    rng = np.random.default_rng(seed)
    tasks = rng.choice(list(SIZES), JOBS, p=list(SIZES.values())).astype(np.int64)
    run_s = np.clip(np.exp(rng.normal(np.log(MEDIAN_S), SPREAD, JOBS)), SHORTEST_S, LONGEST_S)
    memory = np.where(rng.random(JOBS) < SMALL, 0.1, np.minimum(rng.choice(np.arange(2, 11) / 10, JOBS), 0.95))
    submit_s = np.cumsum(rng.exponential(1.0, JOBS))
    submit_s = (submit_s - submit_s[0]) / submit_s[-1] * float((tasks * run_s).sum()) / HOSTS / LOAD
    return Workload(
        job_id=np.arange(1, JOBS + 1),
        submit_s=submit_s,
        tasks=tasks,
        need=np.ones(JOBS),
        memory=memory,
        run_s=run_s,
        estimate_s=run_s,
        user=np.full(JOBS, -1),
        weight=np.ones(JOBS),
        requested_start_s=np.full(JOBS, np.nan),
        nodes=HOSTS,
    )


def simulated(jobs: Workload, policy: str, prices: Prices) -> Floats:
    """(J,) bounded stretch."""
    settings = SimulationSettings(penalty=prices.penalty(), pauses="free", moves="none")
    run = Simulation(jobs, find_policy(policy), policy, settings).run()
    return _stretch(jobs, run.finish_s - jobs.submit_s)


def _stretch(jobs: Workload, flow_s: Floats) -> Floats:
    return np.maximum(flow_s, LEAST_S) / np.maximum(jobs.run_s, LEAST_S)


class Live:
    """A cluster of three hosts in a directory of its own."""

    def __init__(self, client: Client, memory_bytes: int) -> None:
        self.client, self.memory_bytes = client, memory_bytes

    def submit(self, work_s: float, memory: float, tasks: int = 1, estimate_s: float | None = None) -> int:
        """A job whose tasks have so many seconds of CPU to do, and hold such a part of a node's memory."""
        limit = int(memory * self.memory_bytes)
        held = max(1, (limit >> 20) - OWN_MIB)
        request = JobRequest(
            command=(sys.executable, "-S", str(HELD), str(held), f"{work_s:.3f}"),
            directory="/",
            cpu_cores=self.client.nodes()[0].cpus,
            memory_bytes=limit,
            tasks=tasks,
            estimate_s=estimate_s,
        )
        return self.client.submit(request)[0]

    def wait(self, job: int, *states: JobState) -> float:
        """When it was first seen in one of these states."""
        while (found := self.client.job(job)).state not in states:
            if found.state in ENDED:
                raise SystemExit(f"job {job}: {found.exit}")
            time.sleep(0.02)
        return time.time()

    def flow_s(self, job: int) -> float:
        """From its submission to its end."""
        found = self.client.job(job)
        assert found.state is JobState.DONE, f"job {job}: {found.exit}"
        assert found.ended_at is not None
        return found.ended_at - found.submitted_at

    def measured(self) -> Prices:
        """The prices of this cluster."""
        busy = [self.submit(CALIBRATION_S, 0.1) for _ in range(HOSTS)]
        for job in busy:
            self.wait(job, *ENDED)
        cores = CALIBRATION_S * HOSTS / sum(map(self.flow_s, busy))
        short = [self.submit(0.1, 0.1) for _ in range(5)]
        for job in short:
            self.wait(job, *ENDED)
        start_s = float(np.median([self.flow_s(job) for job in short])) - 0.1 / cores
        small, large = (self._pauses(memory, cores, start_s) for memory in PAUSED)
        slope = max(0.0, (large - small) / (PAUSED[1] - PAUSED[0]))
        return Prices(cores, start_s, max(0.0, small - slope * PAUSED[0]), slope)

    def _pauses(self, memory: float, cores: float, start_s: float) -> float:
        """Seconds that are lost where a job on each host is paused for another one, and goes on after it."""
        flows: list[float] = []
        away_s, others_s = 0.0, 0.0
        for paused in (False, True):
            jobs = [self.submit(3.0, memory) for _ in range(HOSTS)]
            for job in jobs:
                self.wait(job, JobState.RUNNING)
            time.sleep(1.5)
            if paused:
                begin = time.time()
                for job in jobs:
                    self.client.hold(job)
                others = [self.submit(0.1, 0.95) for _ in range(HOSTS)]
                for other in others:
                    self.wait(other, *ENDED)
                for job in jobs:
                    self.client.release(job)
                away_s = time.time() - begin
                others_s = float(np.mean([self.flow_s(other) for other in others])) - start_s - 0.1 / cores
            for job in jobs:
                self.wait(job, *ENDED)
            flows.append(float(np.mean([self.flow_s(job) for job in jobs])))
        return flows[1] - away_s - flows[0] + max(0.0, others_s)

    def replay(self, jobs: Workload, cores: float, *, estimates: bool) -> tuple[Floats, int]:
        """((J,) bounded stretch in the jobs' time, how often any job was paused)."""
        begin, names = time.time() + 1.0, list[int]()
        for k in range(len(jobs)):
            time.sleep(max(0.0, begin + jobs.submit_s[k] / SPEED - time.time()))
            real_s = float(jobs.run_s[k]) / SPEED
            estimate_s = real_s + 1.0 if estimates else None
            names.append(self.submit(real_s * cores, float(jobs.memory[k]), int(jobs.tasks[k]), estimate_s))
        for name in names:
            self.wait(name, *ENDED)
        flow_s = np.array([self.flow_s(name) for name in names]) * SPEED
        return _stretch(jobs, flow_s), sum(self.client.job(name).pauses for name in names)


@contextmanager
def cluster(policy: str, memory: str) -> Generator[Live]:
    """Three hosts under a policy, until the end."""
    with tempfile.TemporaryDirectory(prefix="dfrs-hosts-") as name:
        environment = {**os.environ, "DFRS_STATE": name}
        # Nodes of `dfrs up` know their needs: nothing is to be found out.
        options = ["--hosts", str(HOSTS), "--nodes", str(HOSTS), "--port", "0", "--memory-per-node", memory]
        options += ["--policy", policy, "--discovery", "NONE", "--detach", "--run-as", "root"]
        subprocess.run([*DFRS, "up", *options], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            endpoint = read_client_file(Path(name))
            assert endpoint is not None
            with Client(endpoint, timeout_s=60.0) as client:
                nodes = client.nodes()
                if not all(node.pause_frees_memory for node in nodes):
                    raise SystemExit(f"pauses do not free memory here: {'; '.join(nodes[0].notes)}")
                yield Live(client, nodes[0].memory_bytes)
        finally:
            subprocess.run([*DFRS, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=4, help="of the jobs")
    parser.add_argument("--memory", default="128M", help="of each node")
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    options = parser.parse_args()
    jobs = workload(options.seed)
    minutes = jobs.submit_s[-1] / SPEED / 60
    console.print(
        f"{machine()}: {JOBS} jobs on {HOSTS} hosts, seed {options.seed}, {minutes:.0f} minutes for each policy"
    )
    with cluster(DEFAULT, options.memory) as live:
        prices = live.measured()
    console.print(
        f"a busy node gets {prices.cores:.3f} cores; a start takes {prices.start_s:.2f} s; a pause and a resume cost "
        f"{prices.pause_s:.2f} s, and {prices.pause_node_s:.2f} s more for a whole node's memory"
    )
    made = table("bounded stretch", "policy", "", "maximum", "mean", "median", "pauses")
    kept: dict[str, object] = {"prices": [prices.cores, prices.start_s, prices.pause_s, prices.pause_node_s]}
    for policy, called in LIVE.items():
        with cluster(called.format(600 / SPEED), options.memory) as live:
            real, pauses = live.replay(jobs, prices.cores, estimates=policy == "EASY")
        model = simulated(jobs, policy, prices)
        kept[policy] = {"live": real.tolist(), "simulated": model.tolist(), "pauses": pauses}
        for what, each, count in (("live", real, str(pauses)), ("simulated", model, "")):
            made.add_row(policy, what, f"{each.max():.1f}", f"{each.mean():.2f}", f"{np.median(each):.2f}", count)
    console.print(made)
    if options.json:
        options.json.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
