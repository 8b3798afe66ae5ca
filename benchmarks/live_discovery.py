"""000 chapter 7 in small on real processes: a controller, four nodes, programs whose CPU needs follow traces.

Each node is a part of this machine's CPU; the traces' time runs `SPEED` times as fast, and so do the phases of
discovery. The same traces are simulated beside it. Yields are what the programs themselves measured.
"""

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.live_processes import LiveCluster

from benchmarks.common import console
from benchmarks.online import table
from dfrs.campaigns.needs import Case, Entry, prepare, run

SPEED = 30.0
MINUTES = 1.0
NODES, NODE_CORES = 4, 0.4
START_S = 6.0
"""For everything to be there before the clock starts."""
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
    Method("DYNAMIC+MIGRATION", "DYNAMIC+MIGRATION", "MCB*/OPT=AVG/NEEDS=0.1"),
    Method("OBSERVE", "OBSERVE"),
)
SECONDS_OF = {
    "DYNAMIC": {"discovery_s": 60.0, "allocation_s": 60.0, "execution_s": 60.0, "step_s": 10.0},
    "OBSERVE": {
        "step_s": 15.0, "change_s": 600.0, "probe_every_s": 450.0, "probe_s": 15.0, "memory_s": 14_400.0,
        "tell_s": 10.0,
    },
}  # fmt: skip
"""Settings in seconds of the traces. A step takes at least half a second of real time, so OBSERVE's probes are long and
rare: they take the same part of the time as they do by default."""


def settings(discovery: str) -> list[str]:
    """The method's times, so much shorter."""
    chosen = SECONDS_OF.get(discovery.partition("+")[0], {})
    return [f"--discovery-setting={name}={value / SPEED:g}" for name, value in chosen.items()]


def steps_of(need: np.ndarray) -> list[list[float]]:
    """[seconds of real time, need] where the need (one value a second of the trace) changes."""
    at = np.flatnonzero(np.diff(need, prepend=-1.0))
    return [[float(second) / SPEED, float(need[second])] for second in at]


def real(method: Method, hogs: int, seed: int, seconds: float) -> tuple[float, float, int]:
    """(average minimum yield, minimum average yield, migrations) of programs on this machine."""
    case = Case(seed=seed, nodes=NODES, hogs=hogs, seconds=int(seconds * SPEED))
    scene = case.scene()
    with tempfile.TemporaryDirectory() as name:
        options = ("--discovery", method.discovery, "--report-every", "0.5", *settings(method.discovery))
        directory = Path(name)
        cluster = LiveCluster(directory, nodes=NODES, policy=method.policy, serve=options, cores=NODE_CORES)
        with cluster:
            start = time.time() + START_S
            jobs = [
                _submit(cluster, directory, k, start, seconds, scene.need[k]) for k in np.argsort(scene.node).tolist()
            ]
            time.sleep(max(0.0, start + seconds + 1.0 - time.time()))
            moves = sum(job["migrations"] for job in cluster.wait_ended(jobs))
            got = [_yields(directory / f"{k}.duty", seconds) for k in range(len(jobs))]
    yields = np.array(got)
    return float(yields.min(axis=0).mean()), float(yields.mean(axis=1).min()), moves


def _submit(cluster: LiveCluster, directory: Path, k: int, start: float, seconds: float, need: np.ndarray) -> int:
    plan = directory / f"{k}.json"
    plan.write_text(json.dumps({"start": start, "end": start + seconds, "cores": NODE_CORES, "steps": steps_of(need)}))
    return cluster.submit(
        sys.executable, "-S", str(DUTY), str(plan), str(directory / f"{k}.duty"), memory_bytes=250 << 20
    )


def _yields(path: Path, seconds: float) -> list[float]:
    """One a second: CPU got / CPU needed, 1 where nothing was needed, 0 for a program that never ran."""
    if not path.exists():
        return [0.0] * int(seconds)
    rows = np.loadtxt(path, ndmin=2)
    whole = np.ones(int(seconds))
    for at_s, asked_s, used_s in rows:
        if 0 <= at_s < len(whole) and asked_s > 0:
            whole[int(at_s)] = min(1.0, used_s / asked_s)
    return whole.tolist()


def simulated(method: Method, hogs: int, seed: int, seconds: float) -> tuple[float, float]:
    """The same traces in the simulator."""
    case = Case(seed=seed, nodes=NODES, hogs=hogs, seconds=int(seconds * SPEED))
    policy = method.policy if "MIGRATION" in method.discovery else ""
    found = run(prepare(case), Entry(label=method.name, method=method.discovery, policy=policy), seed, None)
    return float(found["average_minimum_yield"]), float(found["minimum_average_yield"])


def main() -> None:
    """All methods, balanced and unbalanced."""
    for label, hogs in (("balanced", 0), ("unbalanced: two hogs", 2)):
        made = table(
            f"{label}; {NODES} nodes of {NODE_CORES} CPU, {MINUTES * SPEED:.0f} minutes of traces in {MINUTES:g}",
            "method", "avg min yield: real", "simulated", "min avg yield: real", "simulated", "migrations",
        )  # fmt: skip
        for method in METHODS:
            least, mean, moves = real(method, hogs, 1, MINUTES * 60)
            least_s, mean_s = simulated(method, hogs, 1, MINUTES * 60)
            made.add_row(
                method.name, f"{least:.3f}", f"{least_s:.3f}", f"{mean:.3f}", f"{mean_s:.3f}", str(moves)
            )  # fmt: skip
        console.print()
        console.print(made)


if __name__ == "__main__":
    main()
