"""`make bench`: speed and memory after compilation, with peers in the same run; on one core, campaigns on two.

`python -m benchmarks.run offline`, `online`, `elastic`, `campaign` or `live-sharing` runs one part.
"""

import os
import sys
from importlib import import_module

from benchmarks.common import console, machine

PARTS = ("offline", "online", "elastic", "campaign", "live-sharing")
MODULES = {"live-sharing": "sharing"}
"""Where a part's module has another name."""


def main() -> None:
    """The parts named, or all."""
    cores = os.sched_getaffinity(0)
    console.print(machine())
    for name in sys.argv[1:] or PARTS:
        os.sched_setaffinity(0, cores if name == "campaign" else {min(cores)})
        # Processes that a part starts import this module again: it must not bring the other parts with it.
        import_module(f"benchmarks.{MODULES.get(name, name)}").main()


if __name__ == "__main__":
    main()
