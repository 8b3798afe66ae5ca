"""How long tasks are held up: what they wait for the CPU while they could run, by the kernel's count for each thread.

A thread that is ready and does not run is held up; one that sleeps is not, whatever it sleeps for. A task is held up as
much as its threads are on average, each as heavy as what it wanted: the time in which it ran or was ready. So threads
that only sleep do not hide that another one waits, and of four that share one CPU each is held up three quarters of the
time. What a task would have got on more CPUs than it may have is for those to judge who know its need.

A thread that has a CPU of which another virtual machine has the time is held up, too. The kernel counts that for CPUs
and not for threads: of what a thread ran, as much is taken to be stolen as of all that its CPUs were wanted for.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dfrs.live.drivers.base import TaskId
from dfrs.live.drivers.cpu_times import CpuTimes, stolen_part, wanted_s
from dfrs.live.drivers.processes.supervisor import read_text

LEAST_CPU = 0.01
"""Of the time: a task that used less without any thread that was seen to run was asleep."""
YOUNG_S = 10.0
"""A task that is looked at for the first time this soon after it began is watched since it began."""
MOST_STOLEN = 0.95
"""Of a CPU: some of it was run on."""
LEAST_WANTED_S = 0.1
"""What was stolen is counted in ticks of 0.01 s. Of less CPU time than this they say too little: then what was known
last counts."""
THREADS = 64
"""Of more threads only so many are looked at: the others are taken to fare alike."""

Counted = Mapping[int, tuple[float, float]]
"""Seconds a thread ran, and was ready and did not run, since it began; by its number."""


def count(threads: Iterable[int]) -> Counted:
    """What the kernel has counted of these threads; those that have ended are left out."""
    found: dict[int, tuple[float, float]] = {}
    for thread in threads:
        words = read_text(f"/proc/{thread}/schedstat").split()
        if len(words) == 3:
            found[thread] = int(words[0]) / 1e9, int(words[1]) / 1e9
        if len(found) == THREADS:
            break
    return found


@dataclass(slots=True)
class _Seen:
    """A task, and what was counted of it when it was last looked at."""

    time_s: float
    cpu_s: float
    threads: Counted
    host: CpuTimes | None = None
    stolen: float = 0.0
    """The part of the CPUs' time that was stolen, as it was known last."""
    watched_s: float = 0.0
    delayed_s: float = 0.0
    waiting_s: float = 0.0
    part: float = 0.0
    """What was counted between the last two looks of time in which it was held up, as a part of the time between."""


class RunDelays:
    """Of the tasks of a node, since each began, or was looked at for the first time if that was much later."""

    def __init__(self) -> None:
        self._seen: dict[TaskId, _Seen] = {}

    def look(
        self,
        task: TaskId,
        time_s: float,
        cpu_s: float,
        threads: Counted,
        *,
        stopped: bool,
        there: int = 0,
        age_s: float = math.inf,
        host: CpuTimes | None = None,
    ) -> tuple[float, float, float]:
        """(seconds it was watched, of them held up, seconds that its threads together were ready and did not run).

        `there` is how many threads it has now, where more than were looked at. `cpu_s` is its CPU time by another
        count, which includes threads that have ended. While it is `stopped` it is not watched. `age_s` is for how long
        it has been on this host, whose CPUs have done `host` by now.
        """
        seen = self._seen.get(task)
        if seen is None and age_s < YOUNG_S:
            # What it got elsewhere before is no part of this.
            here_s = sum(ran for ran, _ in threads.values())
            seen = self._seen[task] = _Seen(time_s - age_s, cpu_s - here_s, {})
        elif seen is None:
            seen = self._seen[task] = _Seen(time_s, cpu_s, threads)
        seconds = time_s - seen.time_s
        if not stopped and seconds > 0:
            if host is not None and seen.host is not None and wanted_s(seen.host, host) >= LEAST_WANTED_S:
                seen.stolen = min(MOST_STOLEN, stolen_part(seen.host, host))
            alike = max(1.0, there / len(threads)) if threads else 1.0
            seen.part, waited = _held_up(
                seen.threads, threads, seconds, cpu_s - seen.cpu_s, seen.part, seen.stolen, alike
            )
            seen.watched_s += seconds
            # A wait is counted when it is over: in a short time there may be more of it than time.
            seen.delayed_s += seen.part * seconds
            seen.waiting_s += waited
        seen.time_s, seen.cpu_s, seen.threads = time_s, cpu_s, threads
        if host is None or seen.host is None or not 0.0 <= wanted_s(seen.host, host) < LEAST_WANTED_S:
            seen.host = host
        return seen.watched_s, min(seen.delayed_s, seen.watched_s), seen.waiting_s

    def keep(self, tasks: Iterable[TaskId]) -> None:
        """Forget all but these."""
        kept = set(tasks)
        for task in [task for task in self._seen if task not in kept]:
            del self._seen[task]


def _held_up(
    before: Counted, after: Counted, seconds: float, cpu_s: float, last: float, stolen: float, alike: float
) -> tuple[float, float]:
    """(the part of the time in which it was held up, seconds that its threads were ready and did not run), where the
    part `stolen` of the CPUs' time was, and there are `alike` times as many threads as were looked at.

    Those fared like the ones that were looked at, at the same time. Threads that have ended did so one after the other;
    without any that was looked at, they fared as the `last`.
    """
    ran = waited = weighted = 0.0
    for thread, (run_s, wait_s) in after.items():
        run_before, wait_before = before.get(thread, (0.0, 0.0))
        run, wait = max(0.0, run_s - run_before), max(0.0, wait_s - wait_before)
        # It was not stolen for longer than there is time left; what the kernel counts as run may have some of it.
        wait += min(run * stolen / (1.0 - stolen), max(0.0, seconds - run - wait))
        ran, waited = ran + run, waited + wait
        weighted += (run + wait) * wait / seconds
    if ran + waited == 0.0:
        return (last, 0.0) if cpu_s > LEAST_CPU * seconds else (0.0, 0.0)
    # Threads that were not looked at and sleep neither ran nor waited: the CPU time tells.
    alike = min(alike, max(1.0, cpu_s / ran)) if ran > 0.0 else alike
    more = max(1.0, cpu_s / (ran * alike)) if ran > 0.0 else 1.0
    return more * weighted / (ran + waited), more * waited * alike
