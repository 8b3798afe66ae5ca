"""The figures that [Atif2011] prints in Tables 2 to 21, as it prints them, for tests and reproductions.

Nothing here is corrected: where a table does not close, docs/explanation/farm-models.md says so. Times are in seconds.
"""

from dataclasses import dataclass

EVENTS_A_COUNT = 500_000
"""Events that one count of Table 4 stands for: the profiler samples every 500,000th ([Atif2011] section 6)."""

TAU_S = 50.0
"""Seconds of the profiles of Tables 4 and 6, and of the experiments ([Atif2011] section 8)."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A line of Table 2 or 5: actual times on two sub-clusters, the predicted one, and accuracies in percent."""

    benchmark: str
    here_s: float
    there_s: float
    predicted_s: float
    accuracy: float
    by_frequency: float | None = None
    """Accuracy of scaling by CPU frequency (Table 2 only)."""


TABLE_2 = (
    Accuracy("CG.B.8", 104.5, 57.9, 71.2, 81.3, 75.5),
    Accuracy("FT.B.8", 98.2, 87.6, 79.3, 90.5, 88.6),
    Accuracy("LU.B.8", 199.7, 81.3, 107.1, 76.0, 46.0),
    Accuracy("HPL.N15K", 150.7, 62.2, 68.5, 90.8, 56.2),
)
"""From sub-cluster A to B."""

TABLE_3 = {"A": (2.2e9, 2.5, 15.0, 108.0), "B": (3.0e9, 1.25, 15.0, 108.0)}
"""Frequency in Hz; cycles a floating-point operation, L1 miss, L2 miss."""


@dataclass(frozen=True, slots=True)
class Counters:
    """A benchmark of Table 4: (floating point, L1, L2) counts in units of EVENTS_A_COUNT, and their seconds in tau."""

    benchmark: str
    counts: tuple[int, int, int]
    seconds_a: tuple[float, float, float]
    seconds_b: tuple[float, float, float]


TABLE_4 = (
    Counters("FT.B.8", (20251, 1118, 180), (11.5, 3.8, 4.4), (4.2, 2.8, 3.2)),
    Counters("LU.B.8", (56771, 1038, 285), (32.2, 3.5, 7.0), (11.8, 2.6, 5.1)),
)

TABLE_5 = (
    Accuracy("CG.B.8", 141.0, 57.9, 66.2, 88.8),
    Accuracy("FT.B.8", 375.1, 87.6, 90.15, 97.2),
    Accuracy("LU.B.8", 106.8, 81.3, 74.38, 91.5),
    Accuracy("HPL.N15K", 150.7, 62.2, 80.2, 71.1),
)
"""From sub-cluster C to B."""


@dataclass(frozen=True, slots=True)
class Messages:
    """A line of Table 6: messages of one size in tau, latencies, and seconds in tau, on C and B."""

    benchmark: str
    size_bytes: float
    count: float
    latency_c: float
    latency_b: float
    seconds_c: float
    seconds_b: float


TABLE_6 = (
    Messages("FT.B.8", 8.39e6, 57.83, 0.73, 0.08, 42.21, 4.70),
    Messages("LU.B.8", 1.79e3, 46288, 0.00019, 0.00013, 15.03, 10.28),
    Messages("LU.B.8", 0.25e6, 471, 0.012, 0.00136, 11.69, 1.26),
)

EQ_17, EQ_18, EQ_19, EQ_20 = 9.47, 18.6, 37.51, 281.3
"""Seconds saved by FT.B.8: in tau and in all from A to B, in tau and in all from C to B."""

TEXT_PREDICTED_S = {("FT.B.8", "A"): 79.4, ("LU.B.8", "A"): 107.1, ("FT.B.8", "C"): 93.7, ("LU.B.8", "C"): 74.38}
"""Time on B predicted from that sub-cluster, as the text of sections 7.3.2 and 7.3.3 has it."""

TEXT_SAVED_S = {("LU.B.8", "A"): 92.6}


@dataclass(frozen=True, slots=True)
class Moved:
    """A job of a table of migrations. `None` where the table has no such column."""

    name: str
    cluster: str
    """Column "Sub-cluster": where it started in the migration run, as printed."""
    base_s: float
    migrated_s: float
    expected_s: float | None = None
    base_cluster: str | None = None
    """The letter in brackets: where it ran in the base run."""


@dataclass(frozen=True, slots=True)
class Migration:
    """Tables 7 to 9, 12 to 14, 16 and 18 to 20: jobs that were moved, and the seconds saved (none in Table 14)."""

    table: int
    jobs: tuple[Moved, ...]
    saved_s: float | None


MIGRATIONS = {
    entry.table: entry
    for entry in (
        Migration(7, (Moved("LU.B.8.1500", "A", 1299, 659), Moved("FT.B.8.300", "B", 1263, 1302)), 601),
        Migration(8, (Moved("FT.A.8.925", "B", 3387, 1104), Moved("LU.A.8.13367", "C", 1170, 1829)), 1624),
        Migration(9, (Moved("HPL-N15.5K", "D", 1089, 370), Moved("FT.A.4.280", "A", 416, 727)), 408),
        Migration(12, (Moved("FT.B.4.20", "D", 1148, 415, 92, "D"), Moved("FT.A.4.156", "C", 95, 108, 230, "C")), 720),
        Migration(
            13,
            (Moved("MG.B.8.5132", "A", 2332, 1769, 2697, "A"), Moved("FT.B.8.506", "B", 2005, 2258, 2174, "B")),
            310,
        ),
        Migration(
            14,
            (
                Moved("CG.B.4.2286", "A", 3408, 2043, 3268, "D"),
                Moved("LU.A.1.7385", "A", 5870, 4161, 5869, "A"),
                Moved("LU.B.1.455", "A", 1850, 1447, 1500, "A"),
                Moved("LU.A.8.12334", "C", 1058, 1838, 1850, "B"),
            ),
            None,
        ),
        Migration(
            16,
            (Moved("LU.B.8.3088", "A", 2077, 1237, 2177, "A"), Moved("FT.B.8.1093", "B", 4657, 4856, 4697, "B")),
            641,
        ),
        Migration(
            18,
            (Moved("CG.B.2.1184", "B", 1272, 1576, 1952, "B"), Moved("LU.B.8.2279", "A", 1947, 857, 2005, "A")),
            719,
        ),
        Migration(
            19,
            (Moved("LU.B.4.1157", "D", 1526, 948, 2174, "D"), Moved("FT.B.8.1093", "B", 4986, 4820, 4697, "A")),
            744,
        ),
        Migration(
            20,
            (Moved("LU.B.8.2255", "D", 1696, 1354, 1984, "D"), Moved("IS.B.8.2149", "B", 1760, 1867, 1850, "A")),
            235,
        ),
    )
}
"""By the number of the table."""


@dataclass(frozen=True, slots=True)
class Runs:
    """A line of Table 10, 15 or 17; times are of the base run, then of the migration run."""

    base_wait_s: int
    base_turnaround_s: int
    base_total_s: int
    jobs_then: int
    """Jobs that the base run had completed when the migration run was done."""
    wait_s: int
    turnaround_s: int
    total_s: int


@dataclass(frozen=True, slots=True)
class PublishedExperiment:
    """Three pairs of runs, the printed averages, and what the text claims of them in percent."""

    table: int
    jobs: int
    runs: tuple[Runs, Runs, Runs]
    average: Runs
    throughput: float
    total: float
    wait: float
    turnaround: float


EXPERIMENTS = {
    1: PublishedExperiment(
        10,
        330,
        (
            Runs(4493, 4654, 12434, 255, 2747, 2913, 9740),
            Runs(4469, 4684, 12782, 267, 2961, 3129, 9380),
            Runs(4531, 4749, 12837, 258, 2982, 3119, 9619),
        ),
        Runs(4498, 4696, 12684, 260, 2896, 3053, 9580),
        throughput=27,
        total=32,
        wait=55,
        turnaround=54,
    ),
    2: PublishedExperiment(
        15,
        212,
        (
            Runs(1971, 2159, 7730, 201, 1998, 2163, 7320),
            Runs(1872, 2047, 7451, 207, 1806, 1970, 6940),
            Runs(1814, 2011, 8195, 201, 1847, 2021, 7527),
        ),
        Runs(1886, 2072, 7792, 203, 1884, 2051, 7262),
        throughput=4,
        total=6.8,
        wait=1,
        turnaround=7,
    ),
    3: PublishedExperiment(
        17,
        194,
        (
            Runs(949, 1190, 13263, 171, 357, 579, 9743),
            Runs(1232, 1500, 13962, 169, 383, 561, 10406),
            Runs(1158, 1412, 13568, 173, 379, 573, 10563),
        ),
        Runs(1113, 1367, 13597, 171, 373, 571, 10237),
        throughput=13,
        total=33,
        wait=298,
        turnaround=230,
    ),
}

TABLE_11 = (("FT.B.4.20", "D", 92, 1148, "Thrashing"), ("IS.A.8.10655", "C", 2717, 10728, "Comm. Requirement"))
"""Jobs that slowed the base run of experiment 1: name, sub-cluster, expected and actual time, reason."""

TABLE_21 = (("LU.B.8.5", 8, 4), ("LU.B.8.16", 8, 14), ("CG.A.8.60", 8, 12), ("FT.A.8.16", 8, 18))
"""The queue of section 9: name, processes, expected time."""
