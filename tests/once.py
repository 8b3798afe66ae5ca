"""A job for tests of faults: notes each of its starts and ends, and whether it ever runs twice at a time.

Arguments: a directory, and the seconds to run, at most: it ends once there is a file `end` in the directory.
"""

import fcntl
import os
import sys
import time
from pathlib import Path


def note(text):
    """One line in one write, so that notes of two processes do not mix."""
    with (directory / f"{name}.notes").open("a") as notes:
        notes.write(f"{text} {os.getpid()}\n")


directory, seconds = Path(sys.argv[1]), float(sys.argv[2])
name = f"{os.environ['DFRS_JOB_ID']}.{os.environ['DFRS_RANK']}"
lock = (directory / f"{name}.lock").open("w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("twice")
note("begin")
end = time.monotonic() + seconds
while time.monotonic() < end and not (directory / "end").exists():
    time.sleep(0.02)
print("done", name, flush=True)
note("end")
