"""AccaSim 1.1.3, a batch simulator in Python, on the same jobs: CPU seconds of its process.

It lives in an environment of its own, made on first use. It imports names that left `collections` in Python 3.10, and
cannot read jobs without memory: both are put right for it, in the child process and in the copy of the trace.
"""

import json
import resource
import subprocess
import venv
from pathlib import Path

from dfrs.model.jobs import Workload

FOLDER = Path("out/bench/accasim")
_CHILD = """
import collections, collections.abc, resource
for name in ("Mapping", "MutableMapping", "Iterable", "Sequence", "Callable", "Hashable"):
    setattr(collections, name, getattr(collections.abc, name))
from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut
from accasim.base.simulator_class import Simulator
import sys
scheduler = {"EASY": EASYBackfilling, "FCFS": FirstInFirstOut}[sys.argv[1]]
Simulator("trace.swf", "system.json", scheduler(FirstFit()), LOG_LEVEL="ERROR").start_simulation()
"""


def accasim_cpu_s(workload: Workload, policy: str) -> float:
    """User and system seconds AccaSim takes for `workload` under FCFS or EASY on whole processors of its machine."""
    python = _environment()
    lines = [
        f"{k + 1} {submit:.0f} -1 {run:.0f} {tasks} -1 1 {tasks} {run:.0f} 1 1 -1 -1 -1 -1 -1 -1 -1"
        for k, (submit, run, tasks) in enumerate(
            zip(workload.submit_s.tolist(), workload.run_s.tolist(), workload.tasks.tolist(), strict=True)
        )
    ]
    (FOLDER / "trace.swf").write_text(f"; MaxProcs: {workload.nodes}\n" + "\n".join(lines) + "\n")
    system = {"groups": {"all": {"core": 1, "mem": 2_000_000}}, "resources": {"all": workload.nodes}}
    (FOLDER / "system.json").write_text(json.dumps(system))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", _CHILD, policy], cwd=FOLDER, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _environment() -> Path:
    python = (FOLDER / "venv/bin/python").absolute()
    if not python.exists():
        venv.create(FOLDER / "venv", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "accasim==1.1.3"], check=True)
    return python
