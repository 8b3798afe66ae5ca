"""Tell storms, follow a task through one, or shrink one that goes wrong."""

import argparse
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

import structlog

from tests.storms.acts import faults_of
from tests.storms.run import tell
from tests.storms.shrink import shrink

MESSAGE_CHARS = 300


def tell_one(seed):
    """(seed, whether all was well, a line on it, steps, CPU seconds)."""
    begin_s = time.process_time()
    told = tell(seed)
    spent_s = time.process_time() - begin_s
    faults = ",".join(sorted(faults_of(seed))) or "none"
    if told.error is not None:
        line = f"{type(told.error).__name__}: {str(told.error)[:MESSAGE_CHARS]} (faults: {faults})"
    else:
        storm = told.storm
        line = f"{len(storm.ledger.of_job)} jobs, {storm.kills} kills, {told.digest}, {spent_s:.2f} s of CPU, {faults}"
    return seed, told.error is None, line, told.steps, spent_s


def tell_all(seeds, processes, *, quiet=False):
    """Tell storms; exit status 1 if any went wrong."""
    bad, steps, spent_s, begin_s = [], 0, 0.0, time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        for seed, good, line, made, took_s in pool.map(tell_one, seeds, chunksize=1):
            steps, spent_s = steps + made, spent_s + took_s
            bad += [] if good else [seed]
            if not good or not quiet:
                print(f"{seed}: {'' if good else 'WRONG: '}{line}", flush=True)
    took_s = time.monotonic() - begin_s
    print(f"{len(seeds)} storms, {len(bad)} went wrong{': ' if bad else ''}{' '.join(map(str, bad))}")
    print(
        f"{steps} steps (turns of the event loop; all is checked after each) in {took_s:.1f} s: "
        f"{steps / took_s:.0f} a second, {steps / spent_s:.0f} a second of CPU"
    )
    sys.exit(bool(bad))


def trace(seed, task):
    """Print what became of a task."""
    told = tell(seed)
    if told.error is not None:
        print(f"{type(told.error).__name__}: {told.error}")
    happened = {"kill", "restore", "replace", "reboot", "cut", "attach", "fence", "agent killed"}
    for each in told.storm.hosts.history:
        names = {".".join(str(part).split(".")[:3]) for part in each[1:]}
        if each[0] in happened or names & {task, task.partition(".")[0]}:
            print(*each)


def print_shrunk(seed):
    """Print the shortest story found, one act a line; exit status 1 if there is one."""
    found = shrink(seed, lambda line: print(line, end="\r", file=sys.stderr, flush=True))
    if found is None:
        print(f"{seed}: nothing goes wrong")
        return
    acts, error = found
    print(f"{seed}: {type(error).__name__}: {str(error)[:MESSAGE_CHARS]}, after {len(acts)} acts:")
    print(*acts, sep="\n")
    sys.exit(1)


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.storms", description=__doc__)
    parser.add_argument("seeds", help="one seed, or FIRST:END")
    parser.add_argument("--trace", metavar="TASK", help="print what became of this task, as 7.0.0")
    parser.add_argument("--shrink", action="store_true", help="leave out acts while it goes wrong, and print the rest")
    parser.add_argument("--quiet", action="store_true", help="only those that went wrong")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="by default one a CPU")
    options = parser.parse_args()
    first, _, end = options.seeds.partition(":")
    if not (first.isdecimal() and (end.isdecimal() or not end)) or (end and int(end) <= int(first)):
        parser.error(f'seeds "{options.seeds}": must be one number, as 8, or FIRST:END with END above FIRST, as 0:1000')
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if options.trace:
        trace(int(first), options.trace)
    elif options.shrink:
        print_shrunk(int(first))
    else:
        tell_all(range(int(first), int(end or int(first) + 1)), options.processes, quiet=options.quiet)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
