"""What the on-line tables share: policies, traces, studies, and degradation from bound (section 5.4)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
import polars as pl

from dfrs.experiments.experiment import Source
from dfrs.experiments.kinds.online import OnlineConfiguration
from dfrs.experiments.spec import Study
from dfrs.model.instance import Floats
from dfrs.policies.names import TABLE_5_2
from dfrs.report.tables import Claim
from dfrs.runs.metrics.schedule import TAU_S
from dfrs_reproduction import sizes
from dfrs_reproduction.metrics import ResultTable, mean, nan
from dfrs_reproduction.sizes import LOADS, Size
from dfrs_reproduction.stillwell2010.appendix_b import Table, algorithms, published

BATCH = ("FCFS", "EASY")
BEST = "GreedyPM*/per/OPT=MIN/MVT=600"
"""The policy that the text finds best."""
PENALTY_S = 300.0
HEAVY = 0.7
"""Least load of the traces of Tables 6.1 and B.4 to B.6."""

SETS = {"weeks": "HPC2N", "unscaled": "unscaled", "scaled": "scaled"}
"""The three sets of traces, as results and as columns name them."""
PUBLISHED_SETS: Mapping[str, Table] = {"weeks": "B1", "unscaled": "B2", "scaled": "B3"}
SAME_ORDER = 90.0
"""Percentage of the pairs of policies in the published order from which on a table counts as ordered alike."""

NO_WEEKS = (
    "There is nothing about HPC2N here, as its trace is not there: put HPC2N-2002-2.2-cln.swf.gz of the Parallel "
    "Workloads Archive (https://www.cs.huji.ac.il/labs/parallel/workload/l_hpc2n/) into a directory, and set "
    "DFRS_TRACES to that."
)
STRETCH = (
    "Degradation is the maximum bounded stretch over its bound by Theorem 1. Bounded: times below "
    f"{TAU_S:g} s count as {TAU_S:g} s. The text speaks of bounded stretch in its conclusion only (5.5), but the "
    "published figures cannot be without: under FCFS jobs of 1 s wait for a day, and by plain stretch that gives many "
    "times what the tables show."
)
TOGETHER = "For confidence intervals, traces that are scaled to several loads from one are drawn together."
EASY = (
    "EASY, with the perfect estimates that the text gives it, comes out much better than published. "
    "Ours starts every job of a year of KTH's trace at the time at which an independent simulator does."
)
"""Notes of the pages."""


def configurations(policies: Iterable[str], penalty_s: float = PENALTY_S) -> tuple[OnlineConfiguration, ...]:
    """Policies under their own names."""
    return tuple(OnlineConfiguration(label=name, policy=name, penalty_s=penalty_s) for name in policies)


def studies(
    name: str, runs: Sequence[OnlineConfiguration], *, unscaled: int = 0, scaled: int = 0, weeks: int = 0
) -> dict[str, Study]:
    """One study for each set of traces, of so many of them; without HPC2N where its trace is not there."""
    model = "Lublin model, 128 nodes, 1,000 jobs, trace k with seed k"
    loads = sorted(LOADS[-scaled:])
    told = " to ".join(dict.fromkeys(f"{load:g}" for load in (*loads[:1], *loads[-1:])))
    sets: dict[str, tuple[Callable[[int], Source | None], int, int, str]] = {
        "weeks": (sizes.weeks, weeks, 182, "HPC2N, 120 nodes: {} weeks"),
        "unscaled": (sizes.unscaled, unscaled, 100, model + ": {} traces"),
        "scaled": (sizes.scaled, scaled, 900, f"{model}, scaled to load {told}: {{}} traces"),
    }
    penalties = " or ".join(f"{seconds:g} s" for seconds in sorted({configuration.penalty_s for configuration in runs}))
    return {
        part: Study(
            name=f"{name}-{part}",
            sample=f"{text.format(_share(count, whole))}; {_count(len(runs))}, penalty {penalties}.",
            sources=(source,),
            configurations=tuple(runs),
        )
        for part, (make, count, whole, text) in sets.items()
        if count and (source := make(count)) is not None
    }


def _count(policies: int) -> str:
    return f"{policies} policies" if policies > 1 else "one policy"


def _share(count: int, whole: int) -> str:
    return f"all {whole}" if count == whole else f"{count} of the {whole}"


def table_5_2(size: Size) -> dict[str, Study]:
    """The policies of Table 5.2 on the three sets."""
    return studies("main", configurations(TABLE_5_2), unscaled=size.unscaled, scaled=size.scaled, weeks=size.weeks)


def degradation(data: ResultTable, label: str, *, plain: bool = False) -> Floats:
    """(I,) degradation from bound; NaN where the policy ended the run."""
    return data.column(label, "degradation_from_bound" if plain else "bounded_degradation_from_bound")


def origins(data: ResultTable) -> Floats:
    """(I,) the number of the trace or week that each trace is made from: those made from one are not independent."""
    return data.parameter("number")


def average(data: ResultTable, label: str) -> float:
    """Average degradation from bound; NaN of nothing."""
    return nan(mean(degradation(data, label)))


def heavy(data: ResultTable) -> ResultTable:
    """The traces of load 0.7 and more."""
    return ResultTable(data.frame.filter(pl.col("target_load") >= HEAVY))


def known(values: Floats) -> int:
    """How many are not NaN."""
    return int((~np.isnan(values)).sum())


Averages = Mapping[str, float]
"""Policies' average degradation from bound on one set of traces."""


def averages(data: ResultTable) -> Averages:
    """Those measured."""
    return {label: average(data, label) for label in data.labels}


def published_averages(part: str) -> Averages:
    """Those published, of all policies, for one of SETS."""
    return {label: published(PUBLISHED_SETS[part], "mean", label) or np.nan for label in algorithms()}


def claim_on(
    datasets: Mapping[str, ResultTable],
    claim: str,
    find: Callable[[Averages], float],
    *,
    least: float = -np.inf,
    most: float = np.inf,
    form: str = ",.1f",
) -> Claim:
    """A claim about averages that must hold on each set: that a number is from `least` to `most`.

    What the published averages give is told beside what ours give.
    """
    ours = {part: find(averages(data)) for part, data in datasets.items()}
    theirs = {part: find(published_averages(part)) for part in datasets}
    decided = [least <= number <= most for number in ours.values() if np.isfinite(number)]
    return Claim(
        claim=claim,
        published=_by_set(theirs, form),
        measured=_by_set(ours, form),
        holds=all(decided) if decided else None,
        instances=sum(len(data) for data in datasets.values()),
    )


def _by_set(numbers: Mapping[str, float], form: str) -> str:
    return "; ".join(f"{SETS[part]} {number:{form}}" for part, number in numbers.items())


def order_claim(datasets: Mapping[str, ResultTable], labels: Sequence[str]) -> Claim:
    """Whether pairs of policies stand in the order that the published averages put them in."""
    alike: dict[str, float] = {}
    for part, data in datasets.items():
        ours, theirs = averages(data), published_averages(part)
        differing = [(a, b) for a, b in combinations(labels, 2) if theirs[a] != theirs[b]]
        same = sum((ours[a] - ours[b]) * (theirs[a] - theirs[b]) > 0 for a, b in differing)
        alike[part] = 100.0 * same / len(differing)
    return Claim(
        claim=f"Of any two policies the published better one is better, in {SAME_ORDER:.0f} % of the pairs",
        published="all pairs",
        measured=_by_set(alike, ".0f") + " %",
        holds=min(alike.values()) >= SAME_ORDER,
        instances=sum(len(data) for data in datasets.values()),
    )
