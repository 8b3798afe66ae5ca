"""[Stillwell2008] Figures 15 to 18: all algorithms on large instances (section 4.2.3)."""

import numpy as np

from dfrs.experiments.spec import Study
from dfrs.report.tables import Claim, Content
from dfrs.workloads.services import SLACKS
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean, nan
from dfrs_reproduction.sizes import Size, clusters, of
from dfrs_reproduction.stillwell2008.clusters import METRICS, average_at, grid, picture
from dfrs_reproduction.studies import LOAD_GREEDY, ROUNDING, clusters_large, configurations, with_average

_QUICK = ("MCB8", *LOAD_GREEDY)


def _needs(size: Size) -> Needs:
    count = min(54, size.clusters_large)
    return {
        "clusters": clusters_large(size),
        "rounding": Study(
            name="clusters-rounding",
            sample=of(size.clusters_rounding, 10_800, "RRND and RRNZ, the same set"),
            sources=(clusters(size.clusters_rounding, large=True),),
            configurations=with_average(*ROUNDING),
        ),
        "times": Study(
            name="clusters-large-times",
            sample=f"Run times: {count} of these instances, at most one a setting; one run at a time.",
            sources=(clusters(count, large=True),),
            configurations=configurations(*_QUICK),
            alone=True,
        ),
    }


def _content(results: Results) -> Content:
    data, rounding, times = results["clusters"], results["rounding"], results["times"]
    curves = [*((label, data) for label in _QUICK), *((label, rounding) for label in ROUNDING)]
    drawn = picture(
        "stillwell2008-figures-15-18",
        "All algorithms, large instances ([Stillwell2008] Figures 15 to 18)",
        f"{len(data):,} instances of [Stillwell2008] section 4.1 ({len(rounding):,} for RRND and RRNZ, whose times "
        "are not shown); yields over the instances that each algorithm solves; dashed: GB, SGB, RRNZ",
        curves,
        [(label, times) for label in _QUICK],
        bound=data,
    )
    return Content(
        grids=tuple(grid(curves, data, metric) for metric in METRICS),
        claims=(*_distances(data), *_failures(data, rounding), *_times(rounding, times)),
        pictures=(drawn,),
        notes=(
            "The published figures are pictures without numbers.",
            "The curve of the bound is over all instances, that of an algorithm over those that it solves.",
        ),
    )


def _away(data: ResultTable, label: str, slacks: tuple[float, ...]) -> tuple[float, float, int]:
    """By how many percent an algorithm's curve is below that of the bound, and so on the instances it solves.

    As in the figure, its curve is the mean over the instances that it solves, that of the bound over all. What is
    left out are mostly instances of few, large tasks, whose bound is 1; the second number leaves them out of both.
    """
    y = data.yields(label)
    here = np.isin(data.parameter("slack"), slacks)
    solved = here & ~np.isnan(y)
    if not solved.any():
        return np.nan, np.nan, 0
    low, high, same = y[solved].mean(), data.bound[here].mean(), data.bound[solved].mean()
    return 100.0 * float(1.0 - low / high), 100.0 * float(1.0 - low / same), int(here.sum())


def _distances(data: ResultTable) -> list[Claim]:
    claims: list[Claim] = []
    for slacks, said, least, most in (
        ((0.1,), "37 %", 25.0, 50.0),
        ((0.2,), "8 %", 4.0, 14.0),
        (tuple(s for s in SLACKS if s >= 0.3), "extremely close", 0.0, 2.0),
    ):
        away, same, count = _away(data, "MCB8", slacks)
        where = f"slack {slacks[0]:g}" + (" and more" if len(slacks) > 1 else "")
        claims.append(
            Claim(
                claim=f"MCB8's distance from the upper bound at {where}",
                published=said,
                measured=f"{away:.2f} % between the curves, {same:.2f} % on the instances solved",
                holds=least <= away < most if count else None,
                instances=count,
            )
        )
    above = tuple(s for s in SLACKS if s > 0.2)
    greedy = {label: _away(data, label, above) for label in LOAD_GREEDY}
    averages = {label: average_at(data, label, "average yield", above) for label in _QUICK}
    claims += [
        Claim(
            claim="Greedy algorithms are 20 % below the bound for slacks above 0.2",
            published="20 % on average",
            measured=", ".join(f"{label} {value:.1f} %" for label, (value, _, _) in greedy.items()),
            holds=all(10.0 < value < 30.0 for value, _, _ in greedy.values()),
            instances=greedy["SG"][2],
        ),
        Claim(
            claim="Greedy algorithms reach a higher average yield than MCB8 for slacks above 0.2",
            published="yes",
            measured=", ".join(f"{label} {value:.3f}" for label, value in averages.items()),
            holds=min(averages[label] for label in LOAD_GREEDY) > averages["MCB8"],
            instances=greedy["SG"][2],
        ),
    ]
    return claims


def _failures(data: ResultTable, rounding: ResultTable) -> list[Claim]:
    failed = {label: average_at(data, label, "failures, %", SLACKS) for label in _QUICK}
    failed |= {label: average_at(rounding, label, "failures, %", SLACKS) for label in ROUNDING}
    low = np.isin(rounding.parameter("slack"), (0.1, 0.2, 0.3))
    solved = int((~np.isnan(rounding.yields("RRND")[low])).sum())
    few, many = max(failed[a] for a in ("SG", "SGB", "MCB8")), min(failed[a] for a in ("GR", "GB", "RRNZ"))
    told = ", ".join(f"{label} {value:.1f} %" for label, value in failed.items())
    return [
        Claim(
            claim="RRND fails completely for slacks below 0.4",
            published="no instance solved",
            measured=f"{solved} of {int(low.sum())} solved",
            holds=solved == 0,
            instances=int(low.sum()),
        ),
        Claim(
            claim="SG, SGB and MCB8 fail about 40 % less often than GR, GB and RRNZ",
            published="about 40 % less",
            measured=told,
            holds=few < 0.8 * many,
            instances=len(data),
        ),
        Claim(
            claim="... and more than 14 times less often than RRND",
            published="more than 14 times",
            measured=f"{failed['RRND'] / few:.1f} times" if few > 0 else "no failures",
            holds=None if few == 0 else failed["RRND"] > 14 * few,
            instances=len(rounding),
        ),
        Claim(
            claim="Backtracking hardly helps on large instances",
            published="nearly as many failures",
            measured=", ".join(f"{label} {failed[label]:.2f} %" for label in LOAD_GREEDY),
            holds=failed["GB"] > 0.7 * failed["GR"] and failed["SGB"] > 0.7 * failed["SG"],
            instances=len(data),
        ),
    ]


def _times(rounding: ResultTable, times: ResultTable) -> list[Claim]:
    most = float(times.parameter("services").max())
    largest, programs = times.where(services=most), rounding.where(services=most)
    spent = {label: 1000.0 * nan(mean(largest.column(label, "runtime_s"))) for label in _QUICK}
    relaxed = nan(mean(programs.column("RRND", "runtime_s"))) if programs.labels else np.nan
    return [
        Claim(
            claim=f"With {most:g} tasks greedy algorithms take 15 to 20 ms, MCB8 nearly 500 ms",
            published="15 to 20 ms; 500 ms",
            measured=", ".join(f"{label} {value:.1f}" for label, value in spent.items()) + " ms",
            holds=None,
            instances=len(largest),
        ),
        Claim(
            claim=f"RRND takes up to roughly 650 s with {most:g} tasks (GLPK)",
            published="650 s",
            measured=f"{relaxed:.1f} s (HiGHS)",
            holds=None,
            instances=len(programs),
        ),
    ]


EXHIBIT = Exhibit(
    name="stillwell2008-figures-15-18",
    title="[Stillwell2008] Figures 15 to 18: all algorithms, large instances",
    source="[Stillwell2008] section 4.2.3, Figures 15 to 18",
    needs=_needs,
    content=_content,
)
