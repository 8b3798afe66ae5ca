"""Jobs on a live cluster beside a load from outside, and what an independent observer says that they received.

The observer is the programs themselves: their CPU time by the kernel's count for the process, and the wall clock.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass

DFRS = (sys.executable, "-m", "dfrs.cli.main")
BEGIN, SAY = (
    "import os, sys, time\nbegan = time.time()\n",
    "print(sum(os.times()[:2]), time.time() - began, flush=True)",
)
FOR = f"{BEGIN}while time.time() - began < float(sys.argv[1]):\n    sum(range(5000))\n{SAY}"
WORK = f"{BEGIN}while time.process_time() < float(sys.argv[1]):\n    sum(range(5000))\n{SAY}"
SLEEP = f"{BEGIN}time.sleep(float(sys.argv[1]))\n{SAY}"
LEAST_S = 10.0
"""Times in stretches count as at least so long."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Of one job that has ended."""

    name: str
    cpu_s: float
    """By its program."""
    alone_s: float
    """What it would have taken alone, by its program: its CPU time, or for a sleeper its time."""
    flow_s: float
    virtual_s: float
    """As dfrs says."""
    stretch: float
    """As dfrs says."""

    @property
    def off(self) -> float:
        """By how much the stretch that is told differs from the true one, as a part of it."""
        true = max(self.flow_s, LEAST_S) / max(self.alone_s, LEAST_S)
        return self.stretch / true - 1.0


@contextmanager
def beside(threads, cpus=()):
    """So many programs that are no tasks compute all the time, anywhere or on these CPUs in turn."""
    others = [subprocess.Popen([sys.executable, "-c", "while True:\n    sum(range(5000))"]) for _ in range(threads)]
    try:
        for k, each in enumerate(others if cpus else ()):
            os.sched_setaffinity(each.pid, {cpus[k % len(cpus)]})
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def dfrs(*arguments):
    """What a verb says."""
    return subprocess.run(
        [*DFRS, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout


def observe(jobs, patience_s):
    """Submit (name, options, program, seconds) to the cluster of DFRS_STATE, wait for all; what became of each."""
    for name, options, program, seconds in jobs:
        command = (sys.executable, "-c", program, seconds)
        dfrs("submit", "--name", name, *options, "--memory", "64M", "--", *command)
    end = time.monotonic() + patience_s
    while json.loads(dfrs("queue", "--json")):
        assert time.monotonic() < end, dfrs("queue")
        time.sleep(1.0)
    return {job["name"]: _observed(job) for job in json.loads(dfrs("history", "--json"))}


def _observed(job):
    assert job["state"] == "done", job
    cpu_s, elapsed_s = map(float, dfrs("logs", job["id"]).split())
    return Observed(
        name=job["name"],
        cpu_s=cpu_s,
        alone_s=elapsed_s if cpu_s < 0.1 * elapsed_s and "sleep" in job["name"] else cpu_s,
        flow_s=job["ended_at"] - job["submitted_at"],
        virtual_s=job["virtual_s"],
        stretch=job["stretch"],
    )


@contextmanager
def cluster(state, nodes=1, inside=()):
    """A cluster of this machine, without swap space and images, started by `inside`, a command."""
    os.environ.update(DFRS_STATE=str(state), DFRS_PORT="0", DFRS_SWAP="0", DFRS_IMAGES="0")
    subprocess.run([*inside, *DFRS, "up", "--detach", "--nodes", str(nodes)], check=True, capture_output=True)
    try:
        yield
    finally:
        dfrs("down")
