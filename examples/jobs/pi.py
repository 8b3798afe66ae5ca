"""A parallel job: each task adds up its part of an integral, and task 0 puts the parts together: pi.py STEPS.

The tasks know who they are from DFRS_RANK and DFRS_TASKS. They meet through files in the directory they run in; tasks
on different hosts would find each other by DFRS_PEERS.
"""

import os
import sys
import time
from pathlib import Path

rank, tasks, job = (int(os.environ[name]) for name in ("DFRS_RANK", "DFRS_TASKS", "DFRS_JOB_ID"))
steps = int(sys.argv[1])
part = sum(4 / (1 + ((i + 0.5) / steps) ** 2) for i in range(rank, steps, tasks)) / steps

parts = [Path(f"pi-{job}-{number}") for number in range(tasks)]
fresh = parts[rank].with_suffix(".new")
fresh.write_text(repr(part))
fresh.rename(parts[rank])

if rank == 0:
    while not all(path.exists() for path in parts):
        time.sleep(0.05)
    print(f"pi is about {sum(float(path.read_text()) for path in parts):.10f}")
