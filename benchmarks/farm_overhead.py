"""What the profiler of MPI programs costs ([Atif2011] 7.4): pairs of runs with and without it, one after the other.

`python -m benchmarks.farm_overhead [PAIRS]` needs Open MPI. The program does nothing but send messages through shared
memory, the fastest there are: of any real program the overhead is a smaller part. Pairs are interleaved in an order by
chance, so that what else the machine does meets both; the figure is the median of the pairs' ratios with its 95 %
bootstrap confidence interval, of the time of a message in quiet moments (tests/mpi/messages.c), and of the whole time.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import console, machine
from dfrs.profiling.build import profiler, toolchain
from dfrs.profiling.preload import environment
from dfrs.profiling.reader import ProfileReader

SOURCE = Path(__file__).parents[1] / "tests" / "mpi" / "messages.c"
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")
LOOK_S = 0.5


@dataclass(frozen=True)
class Overhead:
    """Ratios of time with the profiler to time without it, one a pair."""

    ratios: list[float]
    middle: float
    """Their median, and its 95 % confidence interval."""
    low: float
    high: float
    whole: float
    """Median ratio of the whole time: what else the machine did is in it."""
    plain_us: float
    """A message without the profiler, microseconds."""


def measure(pairs=30, messages=100_000, size=1024, mode="blocking", work=0, seed=1):
    """Overhead on a program of `messages` messages of `size` bytes, and about `work` nanoseconds of work for each."""
    library = profiler(toolchain())
    rng = np.random.default_rng(seed)
    quiet, whole, plain_s = [], [], []
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "messages"
        subprocess.run(["mpicc", "-O2", "-o", str(program), str(SOURCE)], check=True)
        command = [*MPIRUN, str(program), mode, str(messages), str(size), str(work)]
        for _ in range(pairs):
            order = (True, False) if rng.random() < 0.5 else (False, True)
            took = {profiled: _run(command, library if profiled else None) for profiled in order}
            whole.append(took[True][0] / took[False][0])
            quiet.append(took[True][1] / took[False][1])
            plain_s.append(took[False][1])
    drawn = np.median(rng.choice(np.array(quiet), size=(2000, len(quiet))), axis=1)
    middle = float(np.median(quiet))
    low, high = (float(value) for value in np.quantile(drawn, (0.025, 0.975)))
    return Overhead(
        ratios=quiet,
        middle=middle,
        low=low,
        high=high,
        whole=float(np.median(whole)),
        plain_us=1e6 * float(np.median(plain_s)),
    )


def _run(command, library):
    """Seconds in all and of a message; with a reader that looks on, where a library is given."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        env = os.environ if library is None else environment(os.environ, library, Path(place))
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        reader = ProfileReader(Path(place))
        while process.poll() is None:
            if library is not None:
                reader.look()
            try:
                process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                time.sleep(0)
        seen = len(reader.look().ranks)
    assert process.returncode == 0
    assert seen == (0 if library is None else 2)
    return [float(word) for word in process.stdout.read().split()]


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    console.print(machine())
    for mode, size, work in (
        ("blocking", 8, 0),
        ("blocking", 1024, 0),
        ("nonblocking", 1024, 0),
        ("nonblocking", 1024, 2000),
    ):
        found = measure(pairs=pairs, size=size, mode=mode, work=work)
        console.print(
            f"{mode}, {size:,} bytes, {work} ns of work, {found.plain_us:.2f} us a message: "
            f"{100 * (found.middle - 1):+.2f} % [{100 * (found.low - 1):+.2f}, {100 * (found.high - 1):+.2f}], "
            f"whole time (median) {100 * (found.whole - 1):+.1f} %, {pairs} pairs"
        )


if __name__ == "__main__":
    main()
