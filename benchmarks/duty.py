"""A program whose CPU need follows a trace: for the experiment of 000 chapter 7 on real processes.

Arguments: a JSON file {"start": wall clock, "end": wall clock, "cores": cores of one node, "steps": [[seconds after the
start, need], ...]} and a file to write to. In each cycle it computes until it has used its need of CPU or the cycle is
over: what it did not get is lost, as with a service's requests. It writes one line a window: its middle, the CPU it
needed, the CPU it got.
"""

import json
import sys
import time

CYCLE_S = 0.05
WINDOW_S = 1.0


def main() -> None:
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    steps, start, end = plan["steps"], plan["start"], plan["end"]
    with open(sys.argv[2], "w", buffering=1) as written:
        time.sleep(max(0.0, start - time.time()))
        k, cycle = 0, start
        window, asked_s, used_s = start, 0.0, 0.0
        while cycle < end:
            while k + 1 < len(steps) and steps[k + 1][0] <= cycle - start:
                k += 1
            need = steps[k][1] * plan["cores"]
            used_s += burn(need * CYCLE_S, cycle + CYCLE_S)
            asked_s += need * CYCLE_S
            # A cycle that the program slept through because nobody let it run counts as asked for, too.
            late = max(0, int((time.time() - cycle) / CYCLE_S) - 1)
            asked_s += late * need * CYCLE_S
            cycle += (1 + late) * CYCLE_S
            if cycle - window >= WINDOW_S:
                written.write(f"{(window + cycle) / 2 - start:.3f} {asked_s:.6f} {used_s:.6f}\n")
                window, asked_s, used_s = cycle, 0.0, 0.0
            time.sleep(max(0.0, cycle - time.time()))


def burn(cpu_s: float, until: float) -> float:
    """Compute for `cpu_s` seconds of CPU time, at most until that wall clock; the CPU time used."""
    begin = time.process_time()
    used = 0.0
    while used < cpu_s and time.time() < until:
        sum(range(200))
        used = time.process_time() - begin
    return used


if __name__ == "__main__":
    main()
