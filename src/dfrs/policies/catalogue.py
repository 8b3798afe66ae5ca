"""What the names of policies, and the parts they are made of, mean; the reference is made of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name or part of a name."""

    name: str
    group: str
    meaning: str
    source: str


def _entries(group: str, *rows: tuple[str, str, str]) -> tuple[Entry, ...]:
    return tuple(Entry(name=name, group=group, meaning=meaning, source=source) for name, meaning, source in rows)


CATALOGUE: tuple[Entry, ...] = (
    *_entries(
        "batch",
        ("FCFS", "whole nodes, strictly in order of submission", "000 5.3.1"),
        ("EASY", "FCFS with backfilling that does not delay the first in the queue; needs estimates", "000 5.3.1"),
        ("CONSERVATIVE", "backfilling that delays nobody's reservation; needs estimates", "field standard"),
    ),
    *_entries(
        "batch, by sets",
        ("LOS", "sets of waiting jobs that fill the nodes, around the first's reservation; needs estimates", "002 III"),
        ("Delayed-LOS", "LOS, but the first may be left out of the set up to 7 times", "002 Algorithm 1"),
        ("Hybrid-LOS", "Delayed-LOS around reservations of dedicated jobs", "002 Algorithm 2"),
        ("EASY-D, LOS-D", "EASY and LOS around reservations of dedicated jobs", "002 V"),
        ("EASY-E, LOS-E, Delayed-LOS-E", "the same, and users' commands are processed", "002 III-C"),
        ("EASY-DE, LOS-DE, Hybrid-LOS-E", "both: dedicated jobs and commands", "002 III-C"),
        ("/CS=N", "with Delayed-LOS, Hybrid-LOS: how often the first may be left out", "002 III-A"),
        ("/CS=AUTO", "the same: as often as serves those present best, found at each decision", "beyond 002"),
        ("/SWITCH=X", "the same: as EASY while at least the share X of the jobs present is small", "002 V-A"),
        ("/LOOKAHEAD=N", "with LOS, Delayed-LOS, Hybrid-LOS: sets are of the first N waiting jobs", "002 II-B"),
        ("/UNIT=N", "with LOS, Delayed-LOS, Hybrid-LOS, EASY-D: nodes are given out in multiples of N", "002 IV-A"),
    ),
    *_entries(
        "on a farm",
        ("FARM-EASY", "EASY with each job in one sub-cluster; needs estimates", "003 6.1"),
        ("ARRIVE-F", "the same, and jobs move to where they are predicted to run best", "003 5.6, 5.7"),
        ("/TAU=S", "with ARRIVE-F: a profile is of S seconds (50)", "003 5.2, 8"),
        ("/BETA=N", "the same: migrations must pay within N profiles (20)", "003 5.6, 8"),
        ("/THRESH=X", "the same: gains of at least the share X of that time for each process (0.1)", "003 5.6, 8"),
        ("/STRETCH=S", "the same: moving a process costs S seconds of wall clock (0.7)", "003 5.6"),
        ("/COPY=S", "the same: moving a process takes S seconds, in which nobody starts there (10)", "003 6.1"),
        ("/EVERY=N", "the same: jobs are analysed every N profiles (4)", "003 8"),
        ("/PARALLEL", "the same: machines copy at the same time, and so do plans that share no sub-cluster", "003 9"),
        ("/HEAD", "the same: a job may be moved to let the first of the queue in", "003 9"),
        ("/ONE", "the same: one job of a plan must run for longer than it has to pay, not all", "003 9"),
        ("DFRS-FARM", "CPU shared in fractions, for the largest minimum yield by predicted speeds", "000 5, 003 4"),
        ("/PERIOD=S", "with DFRS-FARM: all jobs are packed anew every S seconds (600)", "000 5.2.4"),
        ("/MVT=S", "the same: not a running job with less than S seconds of virtual time (60)", "000 5.2.4"),
    ),
    *_entries("equal shares", ("EQUIPARTITION", "all jobs at once, in equal parts", "000 5.1.2")),
    *_entries(
        "on submission",
        ("Greedy", "each task on the least loaded node with memory for it; else the job waits", "000 5.2.1"),
        ("GreedyP", "the same, but jobs of low priority are paused where there is no room", "000 5.2.3"),
        ("GreedyPM", "the same, but they are moved instead where there is room elsewhere", "000 5.2.3"),
        ("MCB", "all jobs packed anew for the largest minimum yield", "000 5.2.2"),
    ),
    *_entries("on completion", ("*", "Greedy (or MCB) for waiting and paused jobs, by priority", "000 5.2.4")),
    *_entries(
        "periodically",
        ("/per, /per=S", "MCB every S seconds (600)", "000 5.2.4"),
        ("/stretch-per, /stretch-per=S", "MCB for the least estimated stretch", "000 5.2.6"),
    ),
    *_entries(
        "what is left over",
        ("/OPT=MIN", "max-min: raise the least happy, then the next (default)", "000 5.2.5"),
        ("/OPT=AVG", "the largest average yield, or least average stretch", "000 5.2.5, 5.2.6"),
        ("/OPT=MAX", "with /stretch-per: the largest stretch least, then the next (default)", "000 5.2.6"),
        ("/OPT=NONE", "nobody above the least happy", "000 5.2.5"),
    ),
    *_entries(
        "who may be moved by MCB",
        ("/MVT=S", "not a running job with less than S seconds of virtual time", "000 5.2.4"),
        ("/MFT=S", "not a running job submitted less than S seconds ago", "000 5.2.4"),
    ),
    *_entries(
        "priority",
        ("/PRIO=FLOW/VT^2", "flow time / virtual time squared (default)", "000 5.2.3"),
        ("/PRIO=FLOW/VT", "flow time / virtual time", "000 5.2.3"),
        ("/PRIO=VT", "1 / virtual time", "000 5.2.3"),
    ),
    *_entries(
        "beyond the documents",
        ("/due, /due=S", "MCB when some stretch has doubled, at a multiple of S seconds (600)", "000 8.3.1"),
        ("/WEIGHT", "yields in proportion to the jobs' weights, as far as 1", "000 8.3.1"),
        ("/DECAY=S", "yields less for long-running jobs: halved after S seconds of virtual time", "000 8.3.1"),
        ("/NEEDS=X", "MCB when needs are revised, if the minimum yield improves by more than X of it", "000 7.2.2"),
        ("/BUDGET=X", "MCB migrates at most the memory of X nodes an hour; ADAPT chooses what", "000 6.2, 8.3.1"),
    ),
    *_entries(
        "packing",
        ("/VP_CPSUM, /MCB8, ...", "another packing instead of VP_CPMAX; see dfrs algorithms", "000 4.2.5, 001 3.4"),
        ("/WINDOW=2", "one list of tasks instead of one for each resource", "000 4.2.5"),
    ),
)
