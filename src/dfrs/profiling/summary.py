"""What the profiler has seen of a program, as one document: what tables show, and what a node's agent tells."""

from typing import Any

from dfrs.model.hardware import Profile
from dfrs.model.hardware_files import profile_document
from dfrs.profiling.reader import Moment, totals


def summary(moment: Moment, profile: Profile | None, counted: str) -> dict[str, Any]:
    """Messages and calls of all ranks together, each rank's times, and the profile (None where no rank was seen).

    `counted`: what stands for the CPU's work, in words.
    """
    messages, calls = totals(moment)
    return {
        "counted": counted,
        "expected": moment.expected,
        "worlds": moment.worlds,
        "untracked": sum(rank.figures.untracked for rank in moment.ranks),
        "profile": None if profile is None else profile_document(profile),
        "messages": [
            {
                "bytes": size,
                "sent": seen.sent,
                "received": seen.received,
                "isent": seen.isent,
                "ireceived": seen.ireceived,
                "waited_s": seen.waited_s,
            }
            for size, seen in messages.items()
        ],
        "calls": [
            {"kind": kind, "bytes": size, "processes": processes, "count": done.count, "seconds": done.seconds}
            for (kind, size, processes), done in calls.items()
        ],
        "ranks": [
            {
                "rank": rank.figures.rank,
                "host": rank.figures.host,
                "elapsed_s": rank.figures.elapsed_s,
                "cpu_s": rank.cpu_s,
                "mpi_s": rank.figures.mpi_s,
                "memory_bytes": rank.use.rss_bytes,
                "swap_bytes": rank.use.swap_bytes,
                "faults": rank.use.faults,
                "switches": rank.use.switches,
                "finished": rank.figures.finished,
            }
            for rank in moment.ranks
        ],
    }
