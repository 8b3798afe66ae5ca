"""`make bench`: speed and memory, on one core after compilation, with peers in the same run.

`python -m benchmarks.run offline` or `online` runs one part.
"""

import os
import sys

from benchmarks import offline, online
from benchmarks.common import console, machine

PARTS = {"offline": offline.main, "online": online.main}


def main() -> None:
    """The parts named, or all."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    console.print(machine())
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
