"""`make bench`: speed and memory after compilation, with peers in the same run; on one core, campaigns and the live
cluster on all.

`python -m benchmarks.run PART...` runs some of offline, adapt, online, simulations, elastic, cloud_traces, campaign,
live_sharing, live_submissions, live_load, live_connections, live_history, live_discovery, live_images, live_standby and
starts.
"""

import os
import sys
from importlib import import_module

from benchmarks.common import console, machine

PARTS = ("offline", "adapt", "online", "simulations", "elastic", "cloud_traces")
ON_ALL_CORES = (
    "campaign",
    "live_sharing",
    "live_submissions",
    "live_load",
    "live_connections",
    "live_history",
    "live_discovery",
    "live_images",
    "live_standby",
    "starts",
)


def main() -> None:
    """The parts named, or all."""
    cores = os.sched_getaffinity(0)
    console.print(machine())
    for name in sys.argv[1:] or (*PARTS, *ON_ALL_CORES):
        os.sched_setaffinity(0, cores if name in ON_ALL_CORES else {min(cores)})
        # Processes that a part starts import this module again: it must not bring the other parts with it.
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
