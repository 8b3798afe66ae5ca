"""Jobs on a live cluster beside a load from outside, and what an independent observer says that they received.

The observer is the programs themselves, or a thread that looks at them in /proc: their CPU time by the kernel's count
for the process, and the wall clock.
"""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DFRS = (sys.executable, "-m", "dfrs.cli.main")
BEGIN, SAY = (
    "import os, sys, time\nbegan = time.time()\n",
    "ended = time.time()\nprint(sum(os.times()[:2]), ended - began, ended, flush=True)",
)
FOR = f"{BEGIN}while time.time() - began < float(sys.argv[1]):\n    sum(range(5000))\n{SAY}"
WORK = f"{BEGIN}while time.process_time() < float(sys.argv[1]):\n    sum(range(5000))\n{SAY}"
SLEEP = f"{BEGIN}time.sleep(float(sys.argv[1]))\n{SAY}"
HOG = "import os\nprint(os.getpid(), flush=True)\nwhile True:\n    sum(range(5000))"
LOOK_S = 0.2
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
    """From its acceptance to its program's end, by the one who submitted it."""
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
    came = {}
    for name, options, program, seconds in jobs:
        command = (sys.executable, "-c", program, seconds)
        dfrs("submit", "--name", name, *options, "--memory", "64M", "--", *command)
        # It has been accepted: what is before that is the command's own start.
        came[name] = time.time()
    end = time.monotonic() + patience_s
    while json.loads(dfrs("queue", "--json")):
        assert time.monotonic() < end, dfrs("queue")
        time.sleep(1.0)
    ended = [job for job in json.loads(dfrs("history", "--json")) if job["name"] in came]
    return {job["name"]: _observed(job, came[job["name"]]) for job in ended}


def _observed(job, came):
    assert job["state"] == "done", job
    cpu_s, elapsed_s, ended = map(float, dfrs("logs", job["id"]).split())
    return Observed(
        name=job["name"],
        cpu_s=cpu_s,
        alone_s=elapsed_s if cpu_s < 0.1 * elapsed_s and "sleep" in job["name"] else cpu_s,
        flow_s=ended - came,
        virtual_s=job["virtual_s"],
        stretch=job["stretch"],
    )


class Watch:
    """Looks at these processes again and again, while in its context."""

    def __init__(self, pids):
        self._seen = {pid: [] for pid in pids}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _look_on(self):
        tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        while not self._over.wait(LOOK_S):
            for pid, seen in self._seen.items():
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                seen.append((time.time(), (int(fields[11]) + int(fields[12])) * tick_s))

    def cores(self, pid, begin, end):
        """CPU time of the process per second, between these times."""
        at, used = np.array(self._seen[pid]).T
        first, last = np.interp([begin, end], at, used)
        return (last - first) / (end - begin)


@contextmanager
def cluster(state, nodes=1, inside=()):
    """A cluster of this machine, without swap space and images, started by `inside`, a command."""
    os.environ.update(DFRS_STATE=str(state), DFRS_PORT="0", DFRS_SWAP="0", DFRS_IMAGES="0")
    subprocess.run([*inside, *DFRS, "up", "--detach", "--nodes", str(nodes)], check=True, capture_output=True)
    try:
        yield
    finally:
        dfrs("down")
