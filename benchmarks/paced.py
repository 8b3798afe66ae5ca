"""A program that computes for so much CPU time, at most so many cores of it, and says when it began and ended.

Arguments: seconds that it takes where it gets all of that, cores (0: it sleeps), a file to which it appends a line: its
number in Slurm, when it began, when it ended (wall clock), the CPU time it used.
"""

import os
import sys
import time

PAUSE_S = 0.005
LATE_S = 0.2
"""It makes up for so much that it could not do in time, and for no more."""


def main() -> None:
    alone_s, cores = float(sys.argv[1]), float(sys.argv[2])
    begin = now = time.time()
    if cores == 0.0:
        time.sleep(alone_s)
    used_s = due_s = time.process_time()
    while used_s < alone_s * cores:
        before, now = now, time.time()
        due_s = min(due_s + cores * (now - before), used_s + cores * LATE_S)
        if due_s > used_s:
            sum(range(10_000))
        else:
            time.sleep(PAUSE_S)
        used_s = time.process_time()
    line = f"{os.environ['SLURM_JOB_ID']} {begin:.3f} {time.time():.3f} {used_s:.3f}\n"
    with open(sys.argv[3], "a") as file:
        file.write(line)


if __name__ == "__main__":
    main()
