"""What the benchmarks share: where they write, the machine's name, the best of some runs, a fresh process's memory."""

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

console = Console(width=110, highlight=False)


def machine() -> str:
    """Processor, Python and system."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return f"One core of {model}, Python {platform.python_version()}, {platform.system()} {platform.release()}"


def best_of(run: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of the fastest of some runs."""
    times: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def current_memory_mib() -> float:
    """What this process has in memory now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def peak_memory_mib(code: str) -> float:
    """Peak memory of a fresh process that runs `code`.

    Read from /proc: what getrusage says of a child includes what its parent had when it was started.
    """
    tell = "import pathlib; t = pathlib.Path('/proc/self/status').read_text().splitlines()\n"
    tell += "print('PEAK', next(l for l in t if 'HWM' in l).split()[1])\n"
    done = subprocess.run([sys.executable, "-c", code + tell], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1]) / 1024
