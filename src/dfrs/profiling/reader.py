"""Profiles of a running MPI program, block by block of tau seconds ([Atif2011] sections 5.2 to 5.4).

Every rank counts in a file of its own (`dfrs.profiling.records`). What stands there at two moments, subtracted, is what
happened between them; the mean over the ranks is the profile's. CPU: where the CPU has counters and they counted
floating-point operations, their events; else the stated substitute, the event "second": CPU seconds outside MPI, times
the sub-cluster's calibrated rate of operation. An MPI library waits busily, so its CPU time says nothing of the
program: of a rank's CPU seconds the share is taken that its time outside MPI is of all its time.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from dfrs.model.hardware import SECOND, Partition, Profile, Waits
from dfrs.profiling.collectives import LEAST_BYTES, barriers_of, blocking_of
from dfrs.profiling.counters import CpuCounters, model_events
from dfrs.profiling.memory import ProcessUse, read_process
from dfrs.profiling.records import Calls, RankFigures, RankFile, Sizes

SUBSTITUTE = "CPU seconds outside MPI"
"""What stands for the CPU's work where no floating-point operations are counted."""
MOST_RANKS = 4096
"""Of one program on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMoment:
    """A rank's figures at one moment."""

    figures: RankFigures
    cpu_s: float
    """Since MPI_Init."""
    use: ProcessUse
    """What /proc said last."""

    @property
    def working_s(self) -> float:
        """CPU seconds outside MPI."""
        elapsed = self.figures.elapsed_s
        return self.cpu_s * max(0.0, 1.0 - self.figures.mpi_s / elapsed) if elapsed > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """All ranks at one moment."""

    at_s: float
    """Monotonic clock."""
    ranks: tuple[RankMoment, ...]
    counts: Mapping[str, float]
    """Events of the hardware, of all processes together; empty where there are none."""

    @property
    def processes(self) -> int:
        """Ranks of which something is known."""
        return len(self.ranks)

    @property
    def expected(self) -> int:
        """Ranks that there should be: fewer are known where some run on other machines."""
        return max((rank.figures.size for rank in self.ranks), default=0)

    @property
    def worlds(self) -> int:
        """MPI programs, each with its MPI_COMM_WORLD, that the known ranks are of at least."""
        ranks = Counter((rank.figures.size, rank.figures.rank) for rank in self.ranks)
        of_size: dict[int, int] = {}
        for (size, _), count in ranks.items():
            of_size[size] = max(of_size.get(size, 0), count)
        return sum(of_size.values())

    @property
    def colocated(self) -> bool:
        """Whether all known ranks are of one machine: of one host name and one network namespace."""
        places = {(rank.figures.host, rank.figures.network_namespace) for rank in self.ranks}
        return len(places) == 1 and self.processes == self.expected

    @property
    def elapsed_s(self) -> float:
        """From the first MPI_Init to the last MPI_Finalize, or until now."""
        begun = [rank.figures.start_s for rank in self.ranks]
        ended = [rank.figures.start_s + rank.figures.elapsed_s for rank in self.ranks]
        return max(ended) - min(begun) if begun else 0.0


class ProfileReader:
    """Follows the ranks that count in `directory`: at each look as many as it can in `cpu_s` seconds of CPU time."""

    def __init__(self, directory: Path, counters: CpuCounters | None = None, *, cpu_s: float = math.inf) -> None:
        self._directory, self._counters, self._cpu_s = directory, counters, cpu_s
        self._use: dict[str, ProcessUse] = {}
        self._cpu: dict[str, float] = {}
        self._frozen: dict[str, float] = {}

    def look(self) -> Moment:
        """The figures now."""
        now_ns = time.monotonic_ns()
        ranks: list[RankMoment] = []
        for path in islice(self._paths(), MOST_RANKS):
            # Whoever runs the program can write its files: a damaged one is not seen.
            with suppress(ValueError, OSError, OverflowError), RankFile(path) as file:
                ranks.append(self._rank(path.name, file.read(now_ns)))
        ranks.sort(key=lambda rank: (rank.figures.rank, rank.figures.pid))
        counts = self._counters.read() if self._counters else {}
        return Moment(at_s=now_ns * 1e-9, ranks=tuple(ranks), counts=counts)

    def _paths(self) -> Iterator[Path]:
        until_s = time.thread_time() + self._cpu_s
        with suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                if time.thread_time() > until_s:
                    return
                if entry.name.endswith(".rank"):
                    yield Path(entry.path)

    def _rank(self, name: str, figures: RankFigures) -> RankMoment:
        use = read_process(figures.pid)
        if use is not None:
            before = self._use.get(name)
            most = use if before is None else replace(use, swap_bytes=max(use.swap_bytes, before.swap_bytes))
            self._use[name] = most
            self._cpu[name] = use.cpu_s
        elif not figures.finished:
            # Killed: what it had done until it was last seen alive.
            figures = replace(figures, elapsed_s=self._frozen.setdefault(name, figures.elapsed_s))
        known = self._use.get(name) or ProcessUse(cpu_s=0.0, rss_bytes=0, swap_bytes=0, faults=0, switches=0)
        if figures.finished:
            rss = max(known.rss_bytes, figures.peak_rss_bytes)
            known = replace(known, rss_bytes=rss, faults=figures.faults, switches=figures.switches)
        cpu_s = figures.cpu_s if figures.cpu_s is not None else self._cpu.get(name, 0.0)
        return RankMoment(figures=figures, cpu_s=cpu_s, use=known)


def profile_of(
    now: Moment, before: Moment | None, job: str, cluster: Partition | None, *, tau_s: float | None = None
) -> Profile | None:
    """What happened between two moments (`before` None: since the beginning); None where no rank was seen.

    `cluster` is the sub-cluster it runs on; without one the event "second" is plain CPU seconds. `tau_s`: the seconds
    observed; default the time between the moments, or from MPI_Init to MPI_Finalize.
    """
    if not now.ranks:
        return None
    old = {rank.figures.pid: rank for rank in before.ranks} if before else {}
    pairs = [(rank, old.get(rank.figures.pid)) for rank in now.ranks]
    observed = now.at_s - before.at_s if before else now.elapsed_s
    return Profile(
        job=job,
        cluster=cluster.name if cluster else "here",
        tau_s=max(observed if tau_s is None else tau_s, 1e-9),
        processes=now.processes,
        counters=_counters(now, before, pairs, cluster),
        blocking=_blocking(pairs),
        waiting=_waiting(pairs),
        colocated=now.colocated,
        memory_bytes=max(rank.use.rss_bytes for rank in now.ranks),
        swap_bytes=max(rank.use.swap_bytes for rank in now.ranks),
    )


def taken_on(profile: Profile, cluster: Partition) -> Profile:
    """A profile of which nobody knew where it was taken, as one of this sub-cluster."""
    counters = {
        name: _seconds_on(cluster, count) if name == SECOND else count for name, count in profile.counters.items()
    }
    return replace(profile, cluster=cluster.name, counters=counters)


Pairs = list[tuple[RankMoment, RankMoment | None]]


def _counters(now: Moment, before: Moment | None, pairs: Pairs, cluster: Partition | None) -> dict[str, float]:
    known = cluster.cycles if cluster else dict.fromkeys(now.counts, 1.0)
    counted = {name: count - (before.counts.get(name, 0.0) if before else 0.0) for name, count in now.counts.items()}
    events = model_events(counted, known)
    if events:
        return {name: max(0.0, count) / len(pairs) for name, count in events.items()}
    worked = sum(max(0.0, rank.working_s - (old.working_s if old else 0.0)) for rank, old in pairs) / len(pairs)
    return {SECOND: _seconds_on(cluster, worked) if cluster else worked}


def _seconds_on(cluster: Partition, cpu_s: float) -> float:
    """So many events "second" that they cost those seconds there: elsewhere they cost what they cost there."""
    cycles = cluster.cycles.get(SECOND, cluster.frequency_hz)
    return cpu_s * cluster.frequency_hz / cycles if cycles > 0 else cpu_s


def _blocking(pairs: Pairs) -> dict[int, float]:
    total: dict[int, float] = {}
    for rank, old in pairs:
        for sign, figures in ((1, rank.figures), (-1, old.figures if old else None)):
            if figures is None:
                continue
            for size, count in _blocking_of(figures).items():
                total[size] = total.get(size, 0.0) + sign * count
    return {size: count / len(pairs) for size, count in sorted(total.items()) if count > 0}


def _blocking_of(figures: RankFigures) -> dict[int, int]:
    found = blocking_of(figures.calls)
    for size, seen in figures.messages.items():
        count = seen.sent + seen.received
        if count:
            found[max(size, LEAST_BYTES)] = found.get(max(size, LEAST_BYTES), 0) + count
    return found


def _waiting(pairs: Pairs) -> dict[int, Waits]:
    count: dict[int, float] = {}
    seconds: dict[int, float] = {}
    for rank, old in pairs:
        for sign, figures in ((1, rank.figures), (-1, old.figures if old else None)):
            for size, number, waited_s in _waiting_of(figures):
                count[size] = count.get(size, 0.0) + sign * number
                seconds[size] = seconds.get(size, 0.0) + sign * waited_s
    return {
        size: Waits(count=number / len(pairs), mean_s=max(0.0, seconds[size]) / number)
        for size, number in sorted(count.items())
        if number > 0
    }


def _waiting_of(figures: RankFigures | None) -> Iterable[tuple[int, int, float]]:
    if figures is None:
        return
    for size, seen in figures.messages.items():
        if seen.isent + seen.ireceived:
            yield max(size, LEAST_BYTES), seen.isent + seen.ireceived, seen.waited_s
    barriers = barriers_of(figures.calls)
    if barriers.count:
        yield LEAST_BYTES, barriers.count, barriers.seconds


def totals(moment: Moment) -> tuple[dict[int, Sizes], dict[tuple[str, int, int], Calls]]:
    """Messages by size and collective calls of all ranks together."""
    messages: dict[int, Sizes] = {}
    calls: dict[tuple[str, int, int], Calls] = {}
    for rank in moment.ranks:
        for size, seen in rank.figures.messages.items():
            old = messages.get(size, Sizes())
            messages[size] = Sizes(
                sent=old.sent + seen.sent,
                received=old.received + seen.received,
                isent=old.isent + seen.isent,
                ireceived=old.ireceived + seen.ireceived,
                waited_s=old.waited_s + seen.waited_s,
            )
        for key, done in rank.figures.calls.items():
            was = calls.get(key, Calls(count=0, seconds=0.0))
            calls[key] = Calls(count=was.count + done.count, seconds=was.seconds + done.seconds)
    return dict(sorted(messages.items())), dict(sorted(calls.items()))
