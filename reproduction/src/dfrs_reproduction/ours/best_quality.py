"""Ours: how much of the distance from VP_CPSUM to LPBOUND BEST closes on large instances, and in what time."""

import numpy as np

from dfrs.experiments.kinds.offline import OfflineConfiguration
from dfrs.experiments.spec import Study
from dfrs.model import tolerances
from dfrs.model.instance import Bools, Floats
from dfrs.placement.packing import VECTOR_PACKINGS
from dfrs.placement.registry import Options
from dfrs.report.curves import Panel, Picture, Series, Style
from dfrs.report.tables import Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean, mean_cell, nan, relative_to
from dfrs_reproduction.sizes import Size, dissertation, of

_SERVICES = (200, 500)
_SINGLE = (*VECTOR_PACKINGS, "VP_BEST", "GREEDY")
_TIMES = {"quality": (0.1,), "long": (0.03, 0.3, 1.0), "longest": (10.0,)}
_BASE = "VP_CPSUM"
_TOLD = (_BASE, "VP_FFSUM", "VP_PPMAX", "VP_FFLEX", "VP_BEST", "GREEDY")
"""The names that the picture has room for."""


def _label(seconds: float) -> str:
    return f"BEST {seconds:g} s"


def _needs(size: Size) -> Needs:
    counts = {"quality": size.quality, "long": size.quality_long, "longest": size.quality_longest}
    needs: dict[str, Study] = {}
    for part, count in counts.items():
        times = ", ".join(f"{seconds:g} s" for seconds in _TIMES[part])
        single = (
            tuple(OfflineConfiguration(label=name, algorithm=name) for name in _SINGLE) if part == "quality" else ()
        )
        needs[part] = Study(
            name=f"best-{part}",
            sample=of(count, 486, f"BEST for {times}: 64 nodes, 200 and 500 services, one sample of each scenario")
            + " One run at a time.",
            sources=(dissertation(count, services=_SERVICES),),
            configurations=(
                *single,
                *(
                    OfflineConfiguration(label=_label(seconds), algorithm="BEST", options=Options(time_limit_s=seconds))
                    for seconds in _TIMES[part]
                ),
            ),
            alone=True,
        )
    return needs


def _chosen(data: ResultTable) -> Bools:
    """(I,) the instances that count: LPBOUND above 0."""
    return np.nan_to_num(data.bound) > tolerances.CAPACITY


def _or_zero(data: ResultTable, label: str) -> Floats:
    return np.nan_to_num(data.yields(label, exact=True))


def closed(base: ResultTable, data: ResultTable, label: str) -> Floats:
    """(I,) share of the distance from VP_CPSUM to LPBOUND closed, in percent; NaN where there is none to close.

    A failure counts as yield 0. `base` has VP_CPSUM's results on the instances of `data`.
    """
    low = _or_zero(base, _BASE)
    gap = np.where(_chosen(data), data.bound - low, 0.0)
    open_ = gap > tolerances.CAPACITY
    gained = _or_zero(data, label) - low
    return 100.0 * np.divide(gained, gap, out=np.full(len(gap), np.nan), where=open_)


def away(data: ResultTable, label: str) -> Floats:
    """(I,) distance from LPBOUND in percent of it, 100 for a failure; NaN where LPBOUND is 0 or absent."""
    return np.where(_chosen(data), relative_to(data.bound, _or_zero(data, label)), np.nan)


def _row(base: ResultTable, data: ResultTable, label: str) -> list[TableCell]:
    chosen = _chosen(data)
    share, distance = closed(base, data, label), away(data, label)
    failed = np.isnan(data.column(label, "minimum_yield")) & chosen
    seconds = data.column(label, "runtime_s")[chosen]
    count = int(chosen.sum())
    return [
        mean_cell(share, report="best-quality", row=label, metric="distance closed, %"),
        mean_cell(distance, report="best-quality", row=label, metric="distance from bound, % (failure: 100)"),
        TableCell(row=label, metric="failures", measured=float(failed.sum()), instances=count, decimals=0),
        mean_cell(seconds, report="best-quality", row=label, metric="seconds", decimals=4),
    ]


def _content(results: Results) -> Content:
    whole, long_, longest = results["quality"], results["long"], results["longest"]
    datasets = {"quality": whole, "long": long_, "longest": longest}
    ran = sorted(((s, data) for part, data in datasets.items() for s in _TIMES[part]), key=lambda run: run[0])
    fewest = len(longest)
    rows = [cell for s, data in ran for cell in _row(whole.first(len(data)), data, _label(s))]
    few = [cell for s, data in ran for cell in _row(whole.first(fewest), data.first(fewest), _label(s))]
    single = [cell for name in _SINGLE for cell in _row(whole, whole, name)[1:]]
    return Content(
        grids=(
            Grid(title="BEST, each time limit on its sample", heading="algorithm", cells=tuple(rows)),
            Grid(title="BEST, all on the smallest sample", heading="algorithm", cells=tuple(few)),
            Grid(title="Single algorithms", heading="algorithm", cells=tuple(single)),
        ),
        pictures=(_picture(whole.first(len(long_)), long_),),
        notes=(
            "Distance closed: from VP_CPSUM's yield (0 where it fails) to LPBOUND, averaged over the instances where "
            "there is any. LPBOUND is not always reachable, so 100 % is not either.",
            "All algorithms run with the package's defaults: searches try their upper end, VP_PP* the text's order.",
        ),
    )


def _picture(base: ResultTable, long_: ResultTable) -> Picture:
    """Over the instances of both datasets that anything solves: what nothing solves is equally far for all."""
    solved = base.solved_by(base.labels) | long_.solved_by(long_.labels)
    others = [name for name in _SINGLE if name not in _TOLD]
    ran = sorted(
        ((s, data) for part, data in (("quality", base), ("long", long_)) for s in _TIMES[part]),
        key=lambda run: run[0],
    )
    best = [(_label(s), data) for s, data in ran]
    series = [
        _series("others", "points", 9, [(name, base) for name in others], solved, named=False),
        _series("told", "points", 0, [(name, base) for name in _TOLD], solved),
        _series("BEST", "marked", 1, best, solved),
    ]
    return Picture(
        name="best-quality",
        title="Quality against time: BEST and the algorithms it contains",
        subtitle=f"{int(solved.sum())} instances that are solved at all; 64 nodes, 200 and 500 services; "
        "a failure counts as 100 %; one core; grey: the other vector packings",
        panels=(
            Panel(
                title="",
                x_label="seconds for one instance (mean)",
                y_label="distance from LPBOUND, % (mean)",
                series=tuple(series),
                log_x=True,
                log_y=True,
            ),
        ),
        columns=1,
    )


def _series(
    label: str, style: Style, colour: int, runs: list[tuple[str, ResultTable]], chosen: Bools, *, named: bool = True
) -> Series:
    return Series(
        label=label,
        style=style,
        colour=colour,
        x=[nan(mean(data.column(name, "runtime_s")[chosen])) for name, data in runs],
        y=[nan(mean(away(data, name)[chosen])) for name, data in runs],
        names=[name if named else "" for name, _ in runs],
    )


EXHIBIT = Exhibit(
    name="best-quality",
    title="BEST on large instances: quality against time",
    source="ours; instances of [Stillwell2010] section 4.3",
    needs=_needs,
    content=_content,
)
