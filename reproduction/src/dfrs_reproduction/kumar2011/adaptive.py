"""Ours: Delayed-LOS that finds its own C_s, or that switches to EASY, beside fixed C_s (after section V-A)."""

from dataclasses import replace

from dfrs.experiments.kinds.online import OnlineConfiguration
from dfrs.report.curves import Picture, Style
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.kumar2011 import elastic
from dfrs_reproduction.kumar2011.elastic import HOUR_S, WAIT
from dfrs_reproduction.kumar2011.skips import LOAD, best, knee, label_of, skips
from dfrs_reproduction.metrics import ResultTable, mean_cell
from dfrs_reproduction.sizes import Size

_SHARES = (0.2, 0.5, 0.8)
_AUTO, _FIXED, _SWITCH = "CS=AUTO", "CS=7", "SWITCH=0.65"
_POLICIES = {"EASY": "EASY", "LOS": "LOS"} | {label: f"Delayed-LOS/{label}" for label in (_FIXED, _AUTO, _SWITCH)}
_CURVES: dict[str, tuple[int, Style]] = {
    "LOS": (1, "line"),
    _FIXED: (0, "line"),
    _AUTO: (2, "line"),
    _SWITCH: (3, "dashed"),
}
_WHAT = (
    "The text leaves two things to others: a way to find C_s, and a policy that chooses between Delayed-LOS and EASY "
    "by the share of small jobs. CS=AUTO finds at each decision the C_s that would do best if nobody else came; "
    "SWITCH=0.65 is Delayed-LOS with C_s = 7 but for decisions at which at least 65 % of the jobs present are small, "
    "which are EASY's. Neither knows P_S."
)
_FIXED_BEST = (
    "The best fixed C_s of the last table is chosen by the very workloads that it is measured on, which flatters it; "
    "CS=AUTO has no such choice."
)


def _needs(size: Size) -> Needs:
    configurations = [OnlineConfiguration(label=label, policy=policy) for label, policy in _POLICIES.items()]
    loads = {f"{ps:g}": elastic.study(f"adaptive-{ps:g}", configurations, ps=ps, seeds=size.elastic) for ps in _SHARES}
    return loads | {f"skips {ps:g}": skips(size, ps) for ps in _SHARES}


def _content(results: Results) -> Content:
    datasets = {ps: results[f"{ps:g}"] for ps in _SHARES}
    picture = Picture(
        name="kumar2011-adaptive",
        title="Delayed-LOS with fixed and with adaptive C_s",
        subtitle="difference of the means over seeds from that of EASY; bands: 95 % bootstrap confidence intervals of "
        "the paired difference",
        panels=tuple(elastic.over_panel(data, _CURVES, "EASY", f"P_S = {ps:g}") for ps, data in datasets.items()),
        columns=3,
    )
    grids = [grid for ps, data in datasets.items() for grid in (_waits(ps, data), _gains(ps, data))]
    return Content(
        grids=(*grids, _fixed(results)),
        claims=tuple(_claims(results)),
        pictures=(picture,),
        notes=(_WHAT, _FIXED_BEST, elastic.WORKLOADS, elastic.SATURATED),
    )


def _waits(ps: float, data: ResultTable) -> Grid:
    title = f"Mean wait, hours, P_S = {ps:g}"
    cells = [
        mean_cell(
            data.where(target_load=load).column(label, WAIT) / HOUR_S,
            report=f"kumar2011-adaptive/{title}",
            row=label,
            metric=f"load {load:g}",
            decimals=1,
        )
        for label in _POLICIES
        for load in elastic.loads_of(data)
    ]
    return Grid(title=title, heading="policy", cells=tuple(cells))


def _gains(ps: float, data: ResultTable) -> Grid:
    cells = [
        elastic.change_cell(change, label, f"load {load:g}")
        for label in _CURVES
        for load, change in elastic.improvements(data, label, "EASY", WAIT).items()
    ]
    return Grid(title=f"Mean wait below that of EASY, %, P_S = {ps:g}", heading="policy", cells=tuple(cells))


def _auto_over_best(results: Results, ps: float) -> elastic.Change:
    """CS=AUTO over the best fixed C_s, on the same workloads."""
    fixed = results[f"skips {ps:g}"]
    found = results[f"{ps:g}"].where(target_load=LOAD).column(_AUTO, WAIT)
    return elastic.change(found, fixed.column(label_of(best(fixed)), WAIT), f"kumar2011-adaptive/best/{ps:g}")


def _fixed(results: Results) -> Grid:
    cells: list[TableCell] = []
    for ps in _SHARES:
        row, fixed, at = f"{ps:g}", results[f"skips {ps:g}"], results[f"{ps:g}"].where(target_load=LOAD)
        count = best(fixed)
        cells += [
            TableCell(row=row, metric="best fixed C_s", measured=float(count), instances=len(fixed), decimals=0),
            TableCell(row=row, metric="knee", measured=float(knee(fixed)), instances=len(fixed), decimals=0),
            elastic.change_cell(elastic.improvement(fixed, label_of(count), "EASY", WAIT), row, "best fixed C_s, %"),
            *(
                elastic.change_cell(elastic.improvement(at, label, "EASY", WAIT), row, f"{label}, %")
                for label in (_FIXED, _AUTO)
            ),
            elastic.change_cell(_auto_over_best(results, ps), row, "CS=AUTO below the best fixed C_s, %"),
        ]
    title = f"Mean wait below that of EASY at load {LOAD:g}, with the best fixed C_s of 1 to 20 and with CS=AUTO"
    return Grid(title=title, heading="P_S", cells=tuple(cells))


def _claims(results: Results) -> list[Claim]:
    datasets = {ps: results[f"{ps:g}"] for ps in _SHARES}
    claims = [
        elastic.better_claim(f"P_S = {ps:g}: {label} is better than {old} at every load: mean wait", data, label, old)
        for label, old in ((_AUTO, "EASY"), (_AUTO, _FIXED), (_SWITCH, "EASY"))
        for ps, data in datasets.items()
    ]
    for ps in _SHARES:
        change = _auto_over_best(results, ps)
        claims.append(
            Claim(
                claim=f"P_S = {ps:g}: CS=AUTO is as good as the best fixed C_s at load {LOAD:g}: mean wait, within 1 %",
                published="ours",
                measured=f"{change.percent:+.1f} % below it; {elastic.say_sure([change])}",
                holds=change.percent >= -1.0,
                instances=change.count,
            )
        )
    return [replace(claim, published="ours") for claim in claims]


EXHIBIT = Exhibit(
    name="kumar2011-adaptive",
    title="Delayed-LOS with fixed and with adaptive C_s",
    source="ours, after [Kumar2011] section V-A",
    needs=_needs,
    content=_content,
)
