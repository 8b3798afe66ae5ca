"""[Stillwell2010] chapter 7 in small, on real processes: a controller, four nodes, CPU needs that follow traces.

Two nodes share a CPU of this machine by weights, and a filler of the least weight keeps each busy, so that it neither
gets more than its half nor needs a quota, under which the kernel keeps weights less exactly. Needs root and control
groups of version 1. The traces' time runs `--speed` times as fast, and so do the phases of discovery. The same traces
are simulated beside it. Yields are what the programs themselves measured, in windows of `WINDOW_S`. With `--beside`
programs that are no tasks compute all the time, each on a CPU, which the simulation does not know.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.live_processes import GROUPS, LiveCluster
from tests.received_scene import beside

from benchmarks.common import console
from benchmarks.online import table
from dfrs.experiments.kinds.discovery import DiscoveryScenario
from dfrs.model.instance import Floats, Ints
from dfrs.policies.discovery.methods import find_discovery
from dfrs.policies.names import find_policy
from dfrs.simulator.discovery import share

SPEED = 5.0
"""Of time. Faster, and a task of little need gets so few slices in a window and a step that chance shows in both."""
TRACE_S = 1800
WINDOW_S = 10.0
"""Of the traces: over so long a yield is measured."""
SEEDS = (1, 2, 3)
SCENES = {"balanced": 0, "unbalanced": 2}
"""By how many tasks need a whole node."""
NODES, NODE_CORES = 4, 0.45
"""A node has half a CPU to give, less what agents, controller and kernel take of this machine: a tenth, measured."""
TASK_BYTES = 100 << 20
"""Of a node's GiB. Unlike the simulated host, a live cluster exchanges no tasks between nodes whose memory is full."""
START_S = 60.0
"""For everything to be there before the clock starts."""
SETTLE_S = 90.0
"""Before that, for the cluster to find out what the programs beside it leave: they have always been there."""
DUTY = Path(__file__).with_name("duty.py")


@dataclass(frozen=True, slots=True)
class Method:
    """A name of the table, and how a controller is told to do that."""

    name: str
    discovery: str
    policy: str = "Greedy*/OPT=MIN"


METHODS = (
    Method("equal shares", "EQUAL"),
    Method("DYNAMIC", "DYNAMIC"),
    Method("DYNAMIC+MIGRATION", "DYNAMIC+MIGRATION", "Greedy*/OPT=AVG/NEEDS=0.1"),
    Method("OBSERVE", "OBSERVE"),
    Method("OBSERVE+MIGRATION", "OBSERVE+MIGRATION", "Greedy*/OPT=AVG/NEEDS=0.1"),
)
SECONDS_OF = {
    "DYNAMIC": {"discovery_s": 60.0, "allocation_s": 60.0, "execution_s": 60.0, "step_s": 10.0},
    "OBSERVE": {"change_s": 600.0, "memory_s": 14_400.0, "ahead_s": 900.0, "tell_s": 10.0},
}
"""Settings in seconds of the traces."""
REAL_SECONDS_OF = {"OBSERVE": {"step_s": 2.0, "probe_s": 2.0, "probe_every_s": 60.0}}
"""Settings in seconds of this machine, as they are by default: in less time programs show less of what they need. So
the faster the traces run, the more of them a probe takes."""


def _seconds_of(discovery: str, speed: float) -> dict[str, float]:
    """All settings, in seconds of the traces."""
    kind = discovery.partition("+")[0]
    found = SECONDS_OF.get(kind, {}) | {name: speed * value for name, value in REAL_SECONDS_OF.get(kind, {}).items()}
    # A policy that moves jobs is told once a minute: see `dfrs.policies.discovery.methods`.
    return found | ({"tell_s": 60.0} if discovery == "OBSERVE+MIGRATION" else {})


def settings(discovery: str, speed: float) -> list[str]:
    """The method's times, so much shorter."""
    return [f"--discovery-setting={name}={value / speed:g}" for name, value in _seconds_of(discovery, speed).items()]


def steps_of(need: np.ndarray, speed: float) -> list[list[float]]:
    """[seconds of real time, need] where the need (one value a second of the trace) changes."""
    at = np.flatnonzero(np.diff(need, prepend=-1.0))
    return [[float(second) / speed, float(need[second])] for second in at]


def real(method: Method, hogs: int, seed: int, speed: float, outside: int = 0) -> tuple[float, float, int]:
    """(average minimum yield, minimum average yield, migrations) of programs on this machine, beside others."""
    scene = _case(hogs, seed).scene()
    seconds = TRACE_S / speed
    with tempfile.TemporaryDirectory() as name:
        options = ("--discovery", method.discovery, "--report-every", "0.25", *settings(method.discovery, speed))
        directory = Path(name)
        cluster = LiveCluster(directory, nodes=NODES, policy=method.policy, serve=options, cores=NODE_CORES)
        with cluster, _halves(cluster), beside(outside, cpus=range(os.cpu_count() or 1)):
            if outside:
                time.sleep(SETTLE_S)
            start = time.time() + START_S
            jobs = _submit_all(cluster, directory, start, speed, scene.need, scene.node)
            time.sleep(max(0.0, start + seconds + 1.0 - time.time()))
            moves = sum(job["migrations"] for job in cluster.wait_ended(jobs))
            got = [_yields(directory / f"{k}.duty", WINDOW_S / speed) for k in range(len(jobs))]
    yields = np.array(got)
    return float(yields.min(axis=0).mean()), float(yields.mean(axis=1).min()), moves


@contextmanager
def _halves(cluster: LiveCluster) -> Generator[None]:
    """Keep nodes to their halves by fillers instead of quotas."""
    fillers: list[subprocess.Popen[bytes]] = []
    try:
        for name in cluster.names:
            group = GROUPS / "cpu" / "dfrs" / cluster.name / name
            (group / "cpu.cfs_quota_us").write_text("-1")
            fillers.append(subprocess.Popen(["nice", "-n", "19", "sh", "-c", "while :; do :; done"]))
            os.sched_setaffinity(fillers[-1].pid, {cluster.names.index(name) % (os.cpu_count() or 1)})
            (group / "cgroup.procs").write_text(str(fillers[-1].pid))
        yield
    finally:
        for filler in fillers:
            filler.kill()
            filler.wait()


def _submit_all(
    cluster: LiveCluster, directory: Path, start: float, speed: float, need: Floats, node: Ints
) -> list[int]:
    """The jobs' ids. Those are on a node together that are in the scene: the other nodes are drained meanwhile."""
    ids: list[int] = []
    for n, name in enumerate(cluster.names):
        _open_only(cluster, [name])
        here = [_submit(cluster, directory, k, start, speed, need[:, k]) for k in np.flatnonzero(node == n).tolist()]
        for job in here:
            cluster.wait_for(job, "running")
        ids += here
    _open_only(cluster, cluster.names)
    if time.time() > start:
        raise RuntimeError(f"{len(ids)} jobs were not there within {START_S} s")
    return ids


def _open_only(cluster: LiveCluster, names: list[str]) -> None:
    for name in cluster.names:
        verb = "undrain" if name in names else "drain"
        cluster.client.post(f"/api/v1/nodes/{name}/{verb}").raise_for_status()


def _submit(cluster: LiveCluster, directory: Path, k: int, start: float, speed: float, need: np.ndarray) -> int:
    plan = directory / f"{k}.json"
    times = {"start": start, "end": start + TRACE_S / speed, "window": WINDOW_S / speed}
    plan.write_text(json.dumps({**times, "cores": NODE_CORES, "steps": steps_of(need, speed)}))
    return cluster.submit(
        sys.executable, "-S", str(DUTY), str(plan), str(directory / f"{k}.duty"), memory_bytes=TASK_BYTES
    )


def _yields(path: Path, window_s: float) -> list[float]:
    """One a window: CPU got / CPU needed, 1 where nothing was needed, 0 for a program that never ran.

    A program's own windows are never shorter, and each counts wherever the middle of one of these is in it; the last,
    which it may not have told, is left out.
    """
    middles = (np.arange(int(TRACE_S / WINDOW_S) - 1) + 0.5) * window_s
    if not path.exists():
        return np.zeros(len(middles)).tolist()
    end_s, asked_s, used_s = np.loadtxt(path, ndmin=2).T
    rows = np.minimum(np.searchsorted(end_s, middles), len(end_s) - 1)
    told = np.divide(used_s, asked_s, out=np.ones(len(end_s)), where=asked_s > 0)
    return np.minimum(told, 1.0)[rows].tolist()


def _case(hogs: int, seed: int) -> DiscoveryScenario:
    return DiscoveryScenario(seed=seed, nodes=NODES, hogs=hogs, seconds=TRACE_S)


def simulated(method: Method, hogs: int, seed: int, speed: float) -> tuple[float, float]:
    """The same traces and settings in the simulator."""
    discovery = find_discovery(method.discovery, **_seconds_of(method.discovery, speed))
    policy = find_policy(method.policy) if "MIGRATION" in method.discovery else None
    found = share(_case(hogs, seed).scene(), discovery, policy)
    return found.average_minimum, found.minimum_average


def main(
    scenes: Iterable[str] = SCENES,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
    speed: float = SPEED,
    outside: int = 0,
) -> None:
    """Means over the seeds of these methods (default: all) in these scenes.

    All methods in both scenes take seven minutes a trace and method at the usual speed, and twice that at half of it.
    """
    chosen = [method for method in METHODS if not methods or method.name in methods]
    for label in scenes:
        made = table(
            f"{label}; {NODES} nodes of {NODE_CORES:g} CPU, {TRACE_S / 60:g} minutes of traces in "
            f"{TRACE_S / 60 / speed:g}; {outside} programs beside; mean of {len(seeds)} traces",
            "method",
            "avg min yield: real",
            "simulated",
            "min avg yield: real",
            "simulated",
            "migrations",
        )
        for method in chosen:
            rows = [_both(label, method, seed, speed, outside) for seed in seeds]
            least, least_s, mean, mean_s, moves = np.mean(rows, axis=0)
            made.add_row(method.name, f"{least:.3f}", f"{least_s:.3f}", f"{mean:.3f}", f"{mean_s:.3f}", f"{moves:g}")
        console.print()
        console.print(made)


def _both(label: str, method: Method, seed: int, speed: float, outside: int) -> tuple[float, float, float, float, int]:
    """Average minimum yield, real and simulated; minimum average yield, likewise; migrations."""
    least, mean, moves = real(method, SCENES[label], seed, speed, outside)
    least_s, mean_s = simulated(method, SCENES[label], seed, speed)
    console.print(
        f"{label}, {method.name}, trace {seed}: {least:.3f}, {mean:.3f}; simulated {least_s:.3f}, {mean_s:.3f}"
    )
    return least, least_s, mean, mean_s, moves


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    parser.add_argument("--methods", nargs="+", choices=[method.name for method in METHODS], default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--speed", type=float, default=SPEED)
    parser.add_argument("--beside", dest="outside", type=int, default=0, help="programs that compute and are no tasks")
    main(**vars(parser.parse_args()))
