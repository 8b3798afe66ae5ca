"""[Stillwell2008] Figures 11 to 14: all algorithms and the optimum on small instances (section 4.2.2)."""

import numpy as np

from dfrs.experiments.kinds.offline import OfflineConfiguration
from dfrs.experiments.spec import Study
from dfrs.placement.registry import Options
from dfrs.report.tables import Claim, Content
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, advantage, mean, percent, say
from dfrs_reproduction.sizes import Size, clusters, of
from dfrs_reproduction.stillwell2008.clusters import METRICS, grid, picture
from dfrs_reproduction.stillwell2010.figure_4_3 import proven
from dfrs_reproduction.studies import (
    LOAD_GREEDY,
    PROGRAM_LIMIT_S,
    ROUNDING,
    clusters_small,
    configurations,
    with_average,
)

_HEURISTICS = ("MCB8", *LOAD_GREEDY, *ROUNDING)


def _needs(size: Size) -> Needs:
    count = min(72, size.clusters_small)
    limit = Options(time_limit_s=PROGRAM_LIMIT_S)
    return {
        "clusters": clusters_small(size),
        "exact": Study(
            name="clusters-exact",
            sample=of(size.clusters_exact, 1_440, "OPT, and all curves, the same set")
            + f" OPT has {PROGRAM_LIMIT_S:g} s for each; what it has not proven by then is left out.",
            sources=(clusters(size.clusters_exact, large=False),),
            configurations=(
                OfflineConfiguration(label="OPT", algorithm="OPT", options=limit, second_phase="average"),
                *with_average(*_HEURISTICS),
            ),
        ),
        "times": Study(
            name="clusters-small-times",
            sample=f"Run times: {count} of these instances, at most one a setting; one run at a time.",
            sources=(clusters(count, large=False),),
            configurations=configurations(*_HEURISTICS),
            alone=True,
        ),
    }


def _content(results: Results) -> Content:
    data, exact, times = results["clusters"], results["exact"], results["times"]
    curves = [(label, exact) for label in ("OPT", *_HEURISTICS)]
    drawn = picture(
        "stillwell2008-figures-11-14",
        "All algorithms and the optimum, small instances ([Stillwell2008] Figures 11 to 14)",
        f"{len(exact):,} instances of [Stillwell2008] section 4.1; yields over the instances that each algorithm "
        "solves; dashed: GB, SGB, RRNZ",
        curves,
        [(label, times) for label in _HEURISTICS],
        bound=exact,
    )
    return Content(
        grids=tuple(grid(curves, exact, metric) for metric in METRICS),
        claims=(*_distances(exact), *_failures(exact, data), *_times(exact, times)),
        pictures=(drawn,),
        notes=(
            "The published figures are pictures without numbers.",
            "An instance is feasible here where OPT or any heuristic finds a placement.",
        ),
    )


def _distances(exact: ResultTable) -> list[Claim]:
    optimum = np.where(proven(exact), exact.yields("OPT"), np.nan)
    solved = int((~np.isnan(optimum)).sum())
    bound = mean(advantage(exact.bound, optimum))
    packing = mean(advantage(optimum, exact.yields("MCB8")))
    greedy = {label: mean(advantage(optimum, exact.yields(label))) for label in LOAD_GREEDY}
    known = [value for value in greedy.values() if value is not None]
    return [
        Claim(
            claim="The LP bound is about 4 % above the optimum on average",
            published="about 4 %",
            measured=say(bound),
            holds=None if bound is None else bound < 8.0,
            instances=solved,
        ),
        Claim(
            claim="The optimum is about 2 % better than MCB8",
            published="about 2 %",
            measured=say(packing),
            holds=None if packing is None else packing < 4.0,
            instances=solved,
        ),
        Claim(
            claim="The optimum is about 11 % to 13 % better than the greedy algorithms",
            published="11 % to 13 %",
            measured=", ".join(f"{label} {say(value)}" for label, value in greedy.items()),
            holds=bool(known) and min(known) > 5.0 and max(known) < 26.0,
            instances=solved,
        ),
    ]


def _failures(exact: ResultTable, data: ResultTable) -> list[Claim]:
    none = percent(np.isnan(exact.yields("OPT")), proven(exact))
    feasible = data.solvable
    failed = {label: int((np.isnan(data.yields(label)) & feasible).sum()) for label in _HEURISTICS}
    count = int(feasible.sum())
    scale = count / 1380.0
    order = sorted(failed, key=lambda label: failed[label], reverse=True)[:3]
    return [
        Claim(
            claim="The solver finds no solution for 60 of the 1,440 instances",
            published="4.17 %",
            measured=say(none),
            holds=None if none is None else abs(none - 4.17) < 2.5,
            instances=int(proven(exact).sum()),
        ),
        Claim(
            claim="GB and SGB never fail on feasible instances",
            published="0 of 1,380",
            measured=f"GB {failed['GB']}, SGB {failed['SGB']} of {count:,}",
            holds=failed["GB"] == failed["SGB"] == 0,
            instances=count,
        ),
        Claim(
            claim="MCB8 fails once on feasible instances",
            published="1 of 1,380",
            measured=f"{failed['MCB8']} of {count:,}",
            holds=failed["MCB8"] <= max(1.0, 5.0 * scale),
            instances=count,
        ),
        Claim(
            claim="SG fails 15 times on feasible instances",
            published="15 of 1,380",
            measured=f"{failed['SG']} of {count:,}",
            holds=5.0 * scale <= failed["SG"] <= 30.0 * scale,
            instances=count,
        ),
        Claim(
            claim="RRND fails most, then GR, then RRNZ",
            published="RRND, GR, RRNZ",
            measured=", ".join(f"{label} {100 * failed[label] / max(1, count):.1f} %" for label in order),
            holds=order == ["RRND", "GR", "RRNZ"],
            instances=count,
        ),
    ]


def _times(exact: ResultTable, times: ResultTable) -> list[Claim]:
    optimum = exact.column("OPT", "runtime_s")
    spent = {label: 1000.0 * (mean(times.column(label, "runtime_s")) or 0.0) for label in _HEURISTICS}
    quick = max(spent[label] for label in ("MCB8", *LOAD_GREEDY))
    slow = min(spent[label] for label in ROUNDING)
    average = mean(optimum) or 0.0
    return [
        Claim(
            claim="The optimum takes 28.7 s on average, 11,549 s at most (GLPK)",
            published="28.7 s; 11,549 s",
            measured=f"{average:.2f} s; {float(np.nanmax(optimum)):.2f} s (HiGHS)",
            holds=None,
            instances=len(exact),
        ),
        Claim(
            claim="The greedy algorithms and MCB8 take less than 0.15 ms on average",
            published="0.15 ms",
            measured=f"at most {quick:.3f} ms",
            holds=None,
            instances=len(times),
        ),
        Claim(
            claim="RRND and RRNZ are much slower, a little over 2 ms",
            published="2 ms",
            measured=f"at least {slow:.2f} ms",
            holds=slow > 5.0 * quick,
            instances=len(times),
        ),
    ]


EXHIBIT = Exhibit(
    name="stillwell2008-figures-11-14",
    title="[Stillwell2008] Figures 11 to 14: all algorithms, small instances",
    source="[Stillwell2008] section 4.2.2, Figures 11 to 14",
    needs=_needs,
    content=_content,
)
