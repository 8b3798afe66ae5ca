"""A program whose CPU need follows a trace: for the experiment of [Stillwell2010] chapter 7 on real processes.

Arguments: a JSON file {"start": wall clock, "end": wall clock, "window": seconds, "cores": cores of one node,
"steps": [[seconds after the start, need], ...]} and a file to write to. Work comes in evenly, as much as its need;
what it has not done after `LATE_S` is lost, as with a service's requests. It writes one line a window: when it
ended, the CPU it needed, the CPU it got. Before the start it works as at the start, and writes nothing: that traces
begin is not to look as if needs had changed.
"""

import json
import sys
import time

PAUSE_S = 0.01
LATE_S = 0.2


def main() -> None:
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    steps, start, end = plan["steps"], plan["start"], plan["end"]
    with open(sys.argv[2], "w", buffering=1) as written:
        k, now, backlog_s = 0, time.time(), 0.0
        begin, asked_s, used_s = start, 0.0, 0.0
        while now < end:
            while k + 1 < len(steps) and steps[k + 1][0] <= now - start:
                k += 1
            need = steps[k][1] * plan["cores"]
            before, now = now, time.time()
            asked_s += need * (now - before)
            backlog_s = min(backlog_s + need * (now - before), need * LATE_S)
            if backlog_s > 0.0:
                got_s = compute()
                backlog_s -= got_s
                used_s += got_s
            else:
                time.sleep(PAUSE_S)
            if now < start:
                asked_s = used_s = 0.0
            if now - begin >= plan["window"]:
                written.write(f"{now - start:.3f} {asked_s:.6f} {used_s:.6f}\n")
                begin, asked_s, used_s = now, 0.0, 0.0


def compute() -> float:
    """About a millisecond's work; the CPU time it took."""
    begin = time.process_time()
    for _ in range(100):
        sum(range(1000))
    return time.process_time() - begin


if __name__ == "__main__":
    main()
