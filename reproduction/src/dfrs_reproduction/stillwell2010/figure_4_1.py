"""[Stillwell2010] Figure 4.1: the 49 greedy algorithms, failures against distance from bound (section 4.4.1)."""

import numpy as np

from dfrs.model import tolerances
from dfrs.model.instance import Bools
from dfrs.placement.greedy import GREEDIES
from dfrs.report.curves import Panel, Picture, Series
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, distance, nan, percent
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.studies import packing

GOOD = frozenset(f"GREEDY_S{x}_P1" for x in (2, 3, 5, 6, 7)) | frozenset(f"GREEDY_S{x}_P2" for x in (2, 3, 6))
"""Those that "beat or equal their competitors for more than 15% of the instances"; the text counts nine."""

_SORTS, _RULES = range(1, 8), range(1, 8)
_NEAR, _FAR = (1, 2, 5, 6), (3, 4, 7)


def _needs(size: Size) -> Needs:
    return {"large": packing(size)}


def _content(results: Results) -> Content:
    data = results["large"]
    places = {name: _place(data, name) for name in GREEDIES}
    top = _beat_or_equal(data)
    cells = [
        TableCell(row=name, metric=metric, measured=value, instances=count)
        for name, (failures, relative, solved) in places.items()
        for metric, value, count in (
            ("failures, % of all", failures, len(data)),
            ("dfb, %", relative, solved),
            ("beats or equals all others, %", top[name], int(_solved(data).sum())),
        )
    ]
    return Content(
        grids=(Grid(title="The 49", heading="algorithm", cells=tuple(cells)),),
        claims=tuple(_claims(data, places, top)),
        pictures=(_picture(data, places),),
        notes=("The published figure is a picture without numbers.",),
    )


def _place(data: ResultTable, name: str) -> tuple[float, float, int]:
    y = data.yields(name)
    d = distance(data.bound, y)
    return nan(percent(np.isnan(y), np.ones_like(y, dtype=np.bool_))), nan(d.relative), d.solved


def _solved(data: ResultTable) -> Bools:
    return ~np.isnan(np.fmax.reduce([data.yields(name) for name in GREEDIES]))


def _beat_or_equal(data: ResultTable) -> dict[str, float]:
    """In how many percent of the instances that any of the 49 solves each has the largest yield."""
    best = np.fmax.reduce([data.yields(name) for name in GREEDIES])
    solved = _solved(data)
    return {
        name: 100.0 * float((data.yields(name)[solved] >= best[solved] - tolerances.CAPACITY).mean())
        for name in GREEDIES
    }


def _picture(data: ResultTable, places: dict[str, tuple[float, float, int]]) -> Picture:
    def panel(title: str, groups: list[tuple[str, list[str]]]) -> Panel:
        return Panel(
            title=title,
            x_label="failures, % of all instances",
            y_label="distance from bound, % of LPBOUND",
            series=tuple(
                Series(label=label, style="points", x=[places[n][0] for n in names], y=[places[n][1] for n in names])
                for label, names in groups
            ),
            y_from_zero=False,
        )

    by_rule = [(f"P{y}", [f"GREEDY_S{x}_P{y}" for x in _SORTS]) for y in _RULES]
    by_sort = [(f"S{x}", [f"GREEDY_S{x}_P{y}" for y in _RULES]) for x in _SORTS]
    return Picture(
        name="stillwell2010-figure-4.1",
        title="The 49 greedy algorithms ([Stillwell2010] Figure 4.1)",
        subtitle=f"{len(data):,} instances of [Stillwell2010] section 4.3; lower left is better",
        panels=(panel("By choice of node, P1 to P7", by_rule), panel("By order of services, S1 to S7", by_sort)),
    )


def _claims(data: ResultTable, places: dict[str, tuple[float, float, int]], top: dict[str, float]) -> list[Claim]:
    def average(rules: tuple[int, ...]) -> float:
        return float(np.nanmean([places[f"GREEDY_S{x}_P{y}"][1] for x in _SORTS for y in rules]))

    near, far = average(_NEAR), average(_FAR)
    worst_near = float(np.nanmax([places[f"GREEDY_S{x}_P{y}"][1] for x in _SORTS for y in _NEAR]))
    best_far = float(np.nanmin([places[f"GREEDY_S{x}_P{y}"][1] for x in _SORTS for y in _FAR]))
    good = frozenset(name for name, share in top.items() if share > 15.0)
    by_sort = {x: float(np.nanmean([places[f"GREEDY_S{x}_P{y}"][0] for y in _RULES])) for x in _SORTS}
    least = sorted(by_sort, key=lambda x: by_sort[x])[:2]
    count = len(data)
    return [
        Claim(
            claim="Two clusters: P1, P2, P5, P6 are nearer to the bound than P3, P4, P7 by about 30 points or more",
            published="about 30 points or more",
            measured=f"{far - near:.1f} points on average, {best_far - worst_near:.1f} between the nearest members",
            holds=far - near >= 25.0 and best_far > worst_near,
            instances=count,
        ),
        Claim(
            claim="The orders S5 and S4 fail least",
            published="S5, then S4",
            measured=", ".join(f"S{x} {by_sort[x]:.1f} %" for x in least),
            holds=set(least) == {4, 5},
            instances=count,
        ),
        Claim(
            claim="These beat or equal all others in more than 15 % of the instances",
            published=", ".join(sorted(name.removeprefix("GREEDY_") for name in GOOD)),
            measured=", ".join(name.removeprefix("GREEDY_") for name in sorted(good)),
            holds=good == GOOD,
            instances=count,
        ),
    ]


EXHIBIT = Exhibit(
    name="stillwell2010-figure-4.1",
    title="[Stillwell2010] Figure 4.1: the 49 greedy algorithms",
    source="[Stillwell2010] section 4.4.1, Figure 4.1; [Stillwell2010b] Figure 1",
    needs=_needs,
    content=_content,
)
