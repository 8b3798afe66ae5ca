"""How much of each published set is run, and which instances these are."""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

from dfrs.experiments.fields import spread
from dfrs.experiments.files import find_trace
from dfrs.experiments.sources.instances import DissertationSource, VirtualClusterSource
from dfrs.experiments.sources.traces import LublinSource, TraceSource
from dfrs.model.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Numbers of instances, each at most that of the document (FULL)."""

    name: str
    packing: int
    """[Stillwell2010]'s large set: vector packing and greedy algorithms."""
    genetic: int
    rounding: int
    """[Stillwell2010]'s large set with at most 200 services: RRND, RRNDNZ."""
    diving: int
    """The same: FASTDIVING, SLOWDIVING."""
    chekuri: int
    """[Stillwell2010]'s large set with 100 services."""
    programs: int
    """Instances for each number of services of Table 4.2 ..."""
    programs_services: int
    """... up to this number of services."""
    small: int
    """[Stillwell2010]'s small set: OPT, VP_CPSUM."""
    clusters_small: int
    """[Stillwell2008]'s small set: heuristics."""
    clusters_exact: int
    """[Stillwell2008]'s small set: OPT."""
    clusters_large: int
    """[Stillwell2008]'s large set: heuristics."""
    clusters_rounding: int
    """[Stillwell2008]'s large set: RRND, RRNZ."""
    clusters_parallel: int
    quality: int
    """Ours, large: BEST for 0.1 s, and the single algorithms ..."""
    quality_long: int
    """... for 0.03, 0.3 and 1 s ..."""
    quality_longest: int
    """... for 10 s."""
    quality_small: int
    """Ours, small: BEST and OPT."""
    unscaled: int
    """On-line, the policies of Table 5.2: traces of the Lublin model as they come ..."""
    scaled: int
    """... scaled to loads from 0.1 to 0.9 ..."""
    weeks: int
    """... weeks of HPC2N."""
    all_unscaled: int
    """The same for all policies of appendix B."""
    all_scaled: int
    all_weeks: int
    periods: int
    """Rescheduling periods of Figure 6.1, on so many of ..."""
    periods_unscaled: int
    periods_scaled: int
    periods_weeks: int
    elastic: int
    """[Kumar2011]: seeds of the elastic workload model at each point ..."""
    elastic_long: int
    """... with 10,000 jobs ..."""
    elastic_fractional: int
    """... under fractional policies ..."""
    elastic_slices: int
    """... and parts of each log of Figure 1."""
    needs: int
    """Seeds of the traces of needs of Tables 7.1 and 7.2."""


LOADS = tuple(tenths / 10 for tenths in range(1, 10))
"""Offered loads of the scaled traces ([Stillwell2010] section 5.3.2)."""

QUICK = Size(
    name="quick",
    packing=81,
    genetic=9,
    rounding=6,
    diving=2,
    chekuri=3,
    programs=1,
    programs_services=128,
    small=27,
    clusters_small=144,
    clusters_exact=72,
    clusters_large=54,
    clusters_rounding=3,
    clusters_parallel=54,
    quality=18,
    quality_long=6,
    quality_longest=1,
    quality_small=9,
    unscaled=3,
    scaled=9,
    weeks=2,
    all_unscaled=1,
    all_scaled=1,
    all_weeks=1,
    periods=4,
    periods_unscaled=2,
    periods_scaled=3,
    periods_weeks=2,
    elastic=2,
    elastic_long=1,
    elastic_fractional=1,
    elastic_slices=1,
    needs=4,
)
STANDARD = Size(
    name="standard",
    packing=1458,
    genetic=81,
    rounding=54,
    diving=9,
    chekuri=27,
    programs=1,
    programs_services=512,
    small=486,
    clusters_small=1440,
    clusters_exact=432,
    clusters_large=540,
    clusters_rounding=27,
    clusters_parallel=540,
    quality=486,
    quality_long=54,
    quality_longest=4,
    quality_small=54,
    unscaled=100,
    scaled=108,
    weeks=30,
    all_unscaled=5,
    all_scaled=18,
    all_weeks=3,
    periods=8,
    periods_unscaled=20,
    periods_scaled=45,
    periods_weeks=10,
    elastic=20,
    elastic_long=5,
    elastic_fractional=10,
    elastic_slices=14,
    needs=40,
)
FULL = Size(
    name="full",
    packing=72_900,
    genetic=72_900,
    rounding=48_600,
    diving=48_600,
    chekuri=24_300,
    programs=100,
    programs_services=512,
    small=72_900,
    clusters_small=1440,
    clusters_exact=1440,
    clusters_large=10_800,
    clusters_rounding=10_800,
    clusters_parallel=10_800,
    quality=486,
    quality_long=486,
    quality_longest=54,
    quality_small=72_900,
    unscaled=100,
    scaled=900,
    weeks=182,
    all_unscaled=100,
    all_scaled=900,
    all_weeks=182,
    periods=39,
    periods_unscaled=100,
    periods_scaled=900,
    periods_weeks=182,
    elastic=200,
    elastic_long=20,
    elastic_fractional=200,
    elastic_slices=14,
    needs=400,
)
_NAMED = {size.name: size for size in (QUICK, STANDARD, FULL)}


def parse_size(text: str) -> Size:
    """`quick`, `standard`, `full`, or the share of the document's instances that is run. Raises InputError."""
    if text in _NAMED:
        return _NAMED[text]
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise InputError(
            f'sample "{text}": must be quick, standard, full, or a share of the document\'s instances in (0, 1]'
        )
    if share == 1.0:
        return FULL
    counts = {
        field.name: _counted(field.name, share * getattr(FULL, field.name))
        for field in fields(Size)
        if field.name not in {"name", "programs_services", "periods"}
    }
    return replace(STANDARD, name=f"about {100 * share:g} % of the documents' instances", **counts)


def _counted(name: str, number: float) -> int:
    """A whole number, at least 1; of scaled traces all loads of a trace or few."""
    loads = len(LOADS) if name.endswith("scaled") and "unscaled" not in name and number >= len(LOADS) else 1
    return max(1, loads * round(number / loads))


def dissertation(count: int, *, small: bool = False, services: tuple[int, ...] | None = None) -> DissertationSource:
    """`count` instances of [Stillwell2010]'s large or small set."""
    return DissertationSource(set="small" if small else "large", first=count, services=services)


def clusters(count: int, *, large: bool, parallel: bool = False) -> VirtualClusterSource:
    """`count` instances of [Stillwell2008]'s large or small set."""
    return VirtualClusterSource(set="large" if large else "small", first=count, parallel=parallel)


HPC2N_FILE = "HPC2N-2002-2.2-cln.swf.gz"
_TRACES, _WEEKS = 100, 182


def unscaled(count: int) -> LublinSource:
    """The first `count` of [Stillwell2010]'s 100 traces of the Lublin model."""
    return LublinSource(name="unscaled", seeds=tuple(range(1, min(count, _TRACES) + 1)))


def scaled(count: int) -> LublinSource:
    """`count` of the 900 traces made of them by scaling. High loads come first, and trace 1 at all loads before 2."""
    seeds = tuple(range(1, min(_TRACES, math.ceil(count / len(LOADS))) + 1))
    return LublinSource(name="scaled", seeds=seeds, loads=tuple(reversed(LOADS)), first=count)


def weeks(count: int) -> TraceSource | None:
    """`count` of HPC2N's 182 weeks on 120 nodes, spread evenly; None where the trace is not there."""
    numbers = tuple(week + 1 for week, _ in spread(_WEEKS, min(count, _WEEKS)))
    try:
        find_trace(HPC2N_FILE, Path())
    except InputError:
        return None
    return TraceSource(name="weeks", file=HPC2N_FILE, nodes=120, annotate="hpc2n", weeks=numbers)


def of(count: int, whole: int, what: str) -> str:
    """A sentence about the sample: how many of the document's instances."""
    share = "all" if count == whole else f"{count:,} of the {whole:,}"
    return f"{what}: {share} instances" + ("" if count == whole else ", spread evenly over the scenarios") + "."
