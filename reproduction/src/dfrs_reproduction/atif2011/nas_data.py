"""The figures behind `nas`: each is computed here from what is printed, with the table or section it comes from."""

from dataclasses import dataclass

from dfrs_reproduction.atif2011.published import MIGRATIONS, TABLE_2, TABLE_5, TABLE_6, Moved

REFERENCE, PUBLISHED, SOLVED, MODELLED = "reference", "published", "solved", "modelled"
"""What a factor rests on: A itself; a quotient of printed times; a run of which part was elsewhere; a model."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A time relative to that on sub-cluster A."""

    value: float
    basis: str
    """One of REFERENCE, PUBLISHED, SOLVED, MODELLED."""
    source: str
    """Tables, figures and assumptions, in words."""


FIRST_MOVE_S = 200.0
"""Assumed of Tables 7 to 9 and 19: jobs are moved at the first analysis, 4 tau after the start (section 8), and what
the move costs counts as time at the destination. Table 2's LU.B.8 agrees to 3 % (0.407 and 0.418)."""


def rest_of(total_s: float, moved_s: float, here_s: float) -> float:
    """Time of the whole job at the destination, if it took `here_s` at the source, moved after `moved_s` seconds, and
    ended after `total_s`: a fraction moved_s / here_s of it was done at the source."""
    return (total_s - moved_s) / (1 - moved_s / here_s)


def _moved(table: int, name: str) -> Moved:
    return next(job for job in MIGRATIONS[table].jobs if job.name == name)


_A_TO_B = {row.benchmark: row for row in TABLE_2}
_C_TO_B = {row.benchmark: row for row in TABLE_5}


def _b(name: str) -> float:
    return _A_TO_B[name].there_s / _A_TO_B[name].here_s


def _c(name: str) -> float:
    return _C_TO_B[name].here_s / _A_TO_B[name].here_s


# Table 14: LU.A.1 and LU.B.1 moved from A to C together, after x seconds. Both have one process on the same CPU, so
# one factor f: 4161 = x (1 - f) + 5870 f and 1447 = x (1 - f) + 1850 f.
_LONG, _SHORT = _moved(14, "LU.A.1.7385"), _moved(14, "LU.B.1.455")
LU_1 = (_LONG.migrated_s - _SHORT.migrated_s) / (_LONG.base_s - _SHORT.base_s)
TABLE_14_MOVE_S = (_LONG.migrated_s - LU_1 * _LONG.base_s) / (1 - LU_1)
"""Seconds that the jobs of Table 14 ran before they moved. LU.A.8.12334, from C to A, confirms it: 1838 s are 1844 s
on A by it, 1850 s are expected."""

_CG4 = 3268.0
"""CG.B.4.2286 is expected to take that on A; Table 14's 3408 s are of D."""
_LU_EXPECTED = 2005.0
"""LU.A.8.13367 on A (Table 22, job 31)."""
_FT_EXPECTED = 1045.0
"""FT.A.8.925 on A (Table 22, job 190)."""
_FT8 = (_b("FT.B.8") + _moved(16, "FT.B.8.1093").base_s / _moved(19, "FT.B.8.1093").base_s) / 2
_LU_A8_B = (_moved(8, "LU.A.8.13367").base_s / _LU_EXPECTED + _moved(14, "LU.A.8.12334").base_s / 1850) / 2

IS_B = 1.0
"""Assumed: IS does not gain from B's CPU ("almost zero floating point operations", section 8.3)."""
_LU_D = _moved(20, "LU.B.8.2255")
_LU_B8_A_S = 1947.0 / 2279 * 2255
"""LU.B.8.2255 on A at the rate of Table 18's LU.B.8.2279."""
TABLE_20_MOVE_S = (_LU_D.migrated_s - _b("LU.B.8") * _LU_B8_A_S) / (1 - _b("LU.B.8") * _LU_B8_A_S / _LU_D.base_s)
"""Seconds that the jobs of Table 20 ran before they moved: by LU.B.8, from D to B."""

_PINS: dict[tuple[str, str, int, str, bool], Factor] = {
    ("CG", "B", 8, "B", False): Factor(_b("CG.B.8"), PUBLISHED, "Table 2: 57.9 / 104.5"),
    ("CG", "B", 8, "C", False): Factor(_c("CG.B.8"), PUBLISHED, "Tables 5 and 2: 141.0 / 104.5"),
    ("CG", "B", 4, "D", False): Factor(
        _moved(14, "CG.B.4.2286").base_s / _CG4, PUBLISHED, "Table 14: 3408 (D, base run) over 3268 expected"
    ),
    ("FT", "B", 8, "B", False): Factor(_FT8, PUBLISHED, "mean of Table 2: 87.6 / 98.2, and Tables 16, 19: 4657 / 4986"),
    ("FT", "B", 8, "C", False): Factor(_c("FT.B.8"), PUBLISHED, "Tables 5 and 2: 375.1 / 98.2"),
    ("FT", "B", 8, "D", False): Factor(14 / 12, PUBLISHED, "section 8.1, FT.B.8.3: 14 on D over 12 expected"),
    ("FT", "A", 8, "B", False): Factor(
        rest_of(1104, FIRST_MOVE_S, 3387) / _FT_EXPECTED, SOLVED, "Table 8, sub-clusters exchanged: C to B after 200 s"
    ),
    ("FT", "A", 8, "C", False): Factor(
        3387 / _FT_EXPECTED, PUBLISHED, "Table 8, sub-clusters exchanged: 3387 over 1045 expected"
    ),
    ("FT", "A", 4, "D", False): Factor(
        rest_of(727, FIRST_MOVE_S, 416) / 416, SOLVED, "Table 9: 727 from A to D after 200 s, 416 on A"
    ),
    ("IS", "A", 8, "C", False): Factor(10728 / 2717, PUBLISHED, "Table 11: 10728 over 2717 expected"),
    ("IS", "A", 8, "B", False): Factor(IS_B, MODELLED, "assumed: no gain from the CPU (section 8.3)"),
    ("IS", "B", 8, "B", False): Factor(IS_B, MODELLED, "assumed: no gain from the CPU (section 8.3)"),
    ("IS", "B", 8, "D", False): Factor(
        rest_of(1867, TABLE_20_MOVE_S, 1760 * IS_B) / 1760,
        SOLVED,
        f"Table 20: 1867 from B to D after {TABLE_20_MOVE_S:.0f} s, 1760 on A",
    ),
    ("LU", "A", 8, "B", False): Factor(
        _LU_A8_B, PUBLISHED, "mean of Table 8 (exchanged): 1170 / 2005, and Table 14: 1058 / 1850, over expected"
    ),
    ("LU", "A", 8, "C", False): Factor(
        rest_of(1829, FIRST_MOVE_S, 1170) / _LU_EXPECTED, SOLVED, "Table 8, exchanged: B to C after 200 s"
    ),
    ("LU", "B", 8, "B", False): Factor(_b("LU.B.8"), PUBLISHED, "Table 2: 81.3 / 199.7"),
    ("LU", "B", 8, "C", False): Factor(_c("LU.B.8"), PUBLISHED, "Tables 5 and 2: 106.8 / 199.7"),
    ("LU", "B", 8, "D", False): Factor(1696 / 1984, PUBLISHED, "Table 20: 1696 over 1984 expected"),
    ("LU", "B", 4, "D", False): Factor(1526 / 2174, PUBLISHED, "Table 19: 1526 over 2174 expected"),
    ("MG", "B", 8, "B", False): Factor(
        rest_of(1769, 611, 2332) / 2332, SOLVED, "Table 13: A to B at T = 615, 611 s after its arrival; 2332 on A"
    ),
}
_PINS["MG", "A", 8, "B", False] = Factor(
    _PINS["MG", "B", 8, "B", False].value, SOLVED, "as class B, which has the same grid: Table 13"
)


def pinned(benchmark: str, class_: str, processes: int, cluster: str, colocated: bool) -> Factor | None:
    """What was published or solved of exactly this, if anything was."""
    return _PINS.get((benchmark, class_, processes, cluster, colocated))


_MIDDLE = TABLE_6[2].latency_c / TABLE_6[2].latency_b
_LARGE = TABLE_6[0].latency_c / TABLE_6[0].latency_b
_LU_RATIO = sum(row.seconds_c for row in TABLE_6[1:]) / sum(row.seconds_b for row in TABLE_6[1:])
NETWORK_RATIO = {"CG": _MIDDLE, "EP": 1.0, "FT": _LARGE, "IS": _LARGE, "LU": _LU_RATIO, "MG": _MIDDLE}
"""Time in messages on C over that on B (Table 6): FT's and LU's own; IS exchanges all with all as FT does; CG and MG
are taken at 0.25 MB."""


def _part(benchmark: str, class_: str, source: str) -> Factor:
    """m8 from the difference of C and B, which have the same CPU."""
    b, c = (_PINS[benchmark, class_, 8, cluster, False].value for cluster in "BC")
    return Factor((c - b) / (NETWORK_RATIO[benchmark] - 1), MODELLED, source)


MESSAGES_8 = {
    ("CG", "A"): _part("CG", "B", "as class B"),
    ("CG", "B"): _part("CG", "B", "C less B"),
    ("FT", "A"): _part("FT", "A", "C less B"),
    ("FT", "B"): _part("FT", "B", "C less B"),
    ("IS", "A"): _part("IS", "A", "C less B"),
    ("IS", "B"): _part("IS", "A", "as class A"),
    ("LU", "A"): _part("LU", "A", "C less B"),
    ("LU", "B"): _part("LU", "B", "C less B"),
    ("MG", "A"): Factor(0.1, MODELLED, "assumed"),
    ("MG", "B"): Factor(0.1, MODELLED, "assumed"),
}
"""m8: time in messages on A at 8 processes, relative to the whole."""

ITERATION_S = {
    ("CG", "A"): {2: 0.2195, 4: 0.2588, 8: 0.2000},
    ("CG", "B"): {2: 1.6467, 4: 1.4261, 8: 1.0864},
    ("FT", "A"): {2: 1.8481, 4: 1.4737, 8: 1.1269},
    ("FT", "B"): {4: 4.6, 8: 4.2864},
    ("IS", "A"): {2: 0.2234, 4: 0.2222, 8: 0.2546},
    ("IS", "B"): {2: 0.8851, 4: 0.8191, 8: 0.7500},
    ("LU", "A"): {1: 0.6963, 2: 0.4790, 4: 0.2697, 8: 0.1499},
    ("LU", "B"): {1: 3.2800, 2: 2.0254, 4: 1.8740, 8: 0.8785},
    ("MG", "A"): {1: 4.2429, 2: 1.1079, 4: 1.1724, 8: 0.5366},
    ("MG", "B"): {1: 0.5385, 2: 1.1154, 4: 1.1842, 8: 0.5388},
}
"""Seconds an iteration on A, by processes: the median over the appendix's jobs of at least 20 iterations; FT.B.4 is of
Table 11. The appendix's MG.B.1 has the seconds of 8 processes."""

_FLOP_B = Factor((1.25 / 3.0) / (2.5 / 2.2), MODELLED, "eq 3, floating-point operations only")
_FLOP_D = Factor((5 / 3 / 2.0) / (2.5 / 2.2), MODELLED, "eq 3, floating-point operations only; B has twice D's rate")
_LU_COUNTS = (56771, 1038, 285)
_LU_A = sum(n * c for n, c in zip(_LU_COUNTS, (2.5, 15, 108), strict=True)) / 2.2
_MIX_D = Factor(
    sum(n * c for n, c in zip(_LU_COUNTS, (5 / 3, 15, 108), strict=True)) / 2.0 / _LU_A,
    MODELLED,
    "eq 3 with LU.B.8's counters (Table 4)",
)


def _rest(benchmark: str, class_: str, cluster: str, other: str | None = None) -> Factor:
    """CPU factor at 8 processes: what the messages leave."""
    pin, part = _PINS[benchmark, other or class_, 8, cluster, False], MESSAGES_8[benchmark, other or class_].value
    return Factor((pin.value - part) / (1 - part), MODELLED, f"less messages {part:.3f}: {pin.source}")


_LU_1 = Factor(LU_1, SOLVED, "Table 14: LU.A.1 and LU.B.1 from A to C together")
_LU_4 = Factor(rest_of(948, FIRST_MOVE_S, 1526) / 2174, SOLVED, "Table 19: 948 from D to B after 200 s")
_FT_4 = Factor(95 / 230, PUBLISHED, "Table 12, FT.A.4: 95 on C over 230 expected, taken as co-located")
_CG_4 = Factor(
    rest_of(2043, TABLE_14_MOVE_S, _CG4) / _CG4, SOLVED, f"Table 14: co-located on C after {TABLE_14_MOVE_S:.0f} s on A"
)
_CG_2 = Factor(1272 / 1952, PUBLISHED, "Table 18, CG.B.2: 1272 on B over 1952 expected, taken as co-located")
_CG_D4 = Factor(
    _PINS["CG", "B", 4, "D", False].value - MESSAGES_8["CG", "B"].value * 1.0864 / 1.4261,
    MODELLED,
    "less messages: Table 14, CG.B.4 on D",
)
_LU_D4 = Factor(
    _PINS["LU", "B", 4, "D", False].value - MESSAGES_8["LU", "B"].value * 0.8785 / 1.8740,
    MODELLED,
    "less messages: Table 19, LU.B.4 on D",
)

CPU: dict[tuple[str, str, str], dict[int, Factor]] = {}
"""By (B or D, benchmark, class) and processes: CPU time relative to that on A. C has the CPUs of B."""
for _class in "AB":
    CPU["B", "CG", _class] = {2: _CG_2, 4: _CG_4, 8: _rest("CG", "B", "B")}
    CPU["D", "CG", _class] = {4: _CG_D4}
    CPU["B", "EP", _class], CPU["D", "EP", _class] = {1: _FLOP_B}, {1: _FLOP_D}
    CPU["B", "FT", _class] = {4: _FT_4, 8: _rest("FT", _class, "B")}
    CPU["D", "FT", _class] = {8: _rest("FT", "B", "D")}
    CPU["B", "IS", _class] = {8: _rest("IS", _class, "B")}
    CPU["D", "IS", _class] = {8: _rest("IS", "B", "D")}
    CPU["D", "LU", _class] = {1: _MIX_D, 4: _LU_D4, 8: _rest("LU", "B", "D")}
    CPU["B", "MG", _class], CPU["D", "MG", _class] = {8: _rest("MG", "B", "B")}, {1: _MIX_D}
CPU["B", "LU", "A"] = {1: _LU_1, 8: _rest("LU", "A", "B")}
CPU["B", "LU", "B"] = {1: _LU_1, 4: _LU_4, 8: _rest("LU", "B", "B")}

MEMORY_MIB = {
    ("CG", "A"): (55.0, 30.0),
    ("CG", "B"): (400.0, 30.0),
    ("EP", "A"): (0.0, 30.0),
    ("EP", "B"): (0.0, 30.0),
    ("FT", "A"): (750.0, 0.0),
    ("FT", "B"): (3000.0, 0.0),
    ("IS", "A"): (100.0, 30.0),
    ("IS", "B"): (400.0, 30.0),
    ("LU", "A"): (45.0, 30.0),
    ("LU", "B"): (180.0, 30.0),
    ("MG", "A"): (450.0, 30.0),
    ("MG", "B"): (450.0, 30.0),
}
"""MiB shared out among the processes, and of each process. FT.B.4's 750 MB is printed (section 8.1), and FT.A has a
quarter of the points; the others are modelled from the sizes of the arrays in NPB, and all fit D's 512 MB."""

THRASH_FACTOR = 1148 / 92
"""Time of a thrashing job relative to its time on A: FT.B.4.20 on D (Table 11)."""

CPU_ERROR = {row.benchmark[:2]: row.predicted_s / row.there_s for row in TABLE_2 if row.benchmark[:3] != "HPL"}
"""Predicted over actual time on B, from A (Table 2)."""
NETWORK_ERROR = {row.benchmark[:2]: row.predicted_s / row.there_s for row in TABLE_5 if row.benchmark[:3] != "HPL"}
"""Predicted over actual time on B, from C (Table 5)."""
MEAN_ACCURACY = sum(row.accuracy for row in (*TABLE_2, *TABLE_5)) / 800
"""Mean of the eight accuracies printed, as a fraction."""
