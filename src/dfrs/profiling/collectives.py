"""Of which messages a collective call is made ([Atif2011] section 5.3), for the model of blocking messages.

For one process of NP, by calls of size s (what goes to one other process):

- Alltoall, Alltoallv (s: the mean), Allgather: NP messages sent and NP received, as section 5.3 says of Alltoall.
- Bcast, Reduce: ceil(log2 NP) messages, the depth of a binomial tree: so many follow each other until the last one is
  served.
- Allreduce: ceil(log2 NP) messages: so many exchanges follow each other by recursive doubling, and in each a process
  sends and receives at the same time.
- Barrier: no message, but time: it is taken as a wait for one message of the least size, which a slower network
  lengthens in proportion (equation 8), as it does the rounds that a barrier is made of.

These are models: an MPI library chooses its algorithm by size and number of processes. Calls among one process alone
send nothing.
"""

from dfrs.profiling.records import Calls

LEAST_BYTES = 1
"""An empty message counts as one of this size: it still takes a network's latency."""


def messages_of(kind: str, processes: int) -> int:
    """Blocking messages, sent or received, that a process's part of one call is made of."""
    if processes < 2:
        return 0
    depth = (processes - 1).bit_length()
    if kind in {"alltoall", "allgather"}:
        return 2 * processes
    return depth if kind in {"bcast", "reduce", "allreduce"} else 0


def blocking_of(calls: dict[tuple[str, int, int], Calls]) -> dict[int, int]:
    """n^B of one process for its collective calls, by size in bytes."""
    found: dict[int, int] = {}
    for (kind, size, processes), done in calls.items():
        count = messages_of(kind, processes) * done.count
        if count:
            found[max(size, LEAST_BYTES)] = found.get(max(size, LEAST_BYTES), 0) + count
    return found


def barriers_of(calls: dict[tuple[str, int, int], Calls]) -> Calls:
    """Barriers of one process among others: how many, and the seconds in them."""
    ours = [done for (kind, _, processes), done in calls.items() if kind == "barrier" and processes > 1]
    return Calls(count=sum(done.count for done in ours), seconds=sum(done.seconds for done in ours))
