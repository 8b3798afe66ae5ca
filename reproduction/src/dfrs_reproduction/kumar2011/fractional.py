"""Ours: fractional sharing beside the batch policies of [Kumar2011], on its workloads of Figure 11."""

from collections.abc import Iterable

from dfrs.experiments.kinds.online import OnlineConfiguration
from dfrs.report.curves import Panel, Picture, Series
from dfrs.report.tables import Claim, Content, Grid
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.kumar2011 import elastic
from dfrs_reproduction.kumar2011.elastic import HOUR_S, MIXED_E
from dfrs_reproduction.metrics import ResultTable, mean, mean_cell, nan
from dfrs_reproduction.sizes import Size

_LOADS = (0.5, 0.7, 0.9)
_FRACTIONAL = ("GreedyPM*/per/OPT=MIN/MVT=600", "MCB*/per/OPT=MIN/MVT=600")
_EQUI = "EQUIPARTITION"
_PENALTIES_S = (300.0, 0.0)


def _label(policy: str, penalty_s: float) -> str:
    return f"{policy.removesuffix('/OPT=MIN/MVT=600')}, {penalty_s:g} s"


_SHARING = {_label(policy, penalty_s): (policy, penalty_s) for policy in _FRACTIONAL for penalty_s in _PENALTIES_S}
_METRICS: dict[str, tuple[str, float, int]] = {
    "wait, h": ("wait_mean_s", HOUR_S, 2),
    "time in the system, h": ("flow_mean_s", HOUR_S, 2),
    "bounded stretch, mean": ("bounded_stretch_mean", 1.0, 1),
    "bounded stretch, max": ("bounded_stretch_max", 1.0, 0),
    "slowdown of means": ("slowdown_of_means", 1.0, 2),
    "delay of dedicated starts, h": ("dedicated_delay_mean_s", HOUR_S, 2),
    "utilization, %": ("cpu_utilisation", 0.01, 1),
    "commands granted": ("commands_granted", 1.0, 0),
    "migrations a job": ("migrations_per_job", 1.0, 2),
}
"""Column, its unit, and decimals."""
_WHAT = (
    "Jobs here are bound by CPU: a task is a group of 32 processors with CPU need 1 and no memory, so that any number "
    "of jobs fits a node and fractional policies only share its time; memory never makes a job wait. Names without "
    "/OPT=MIN/MVT=600 have it; behind them stands the penalty of a resume or migration."
)
_SLOWDOWN = (
    "The document's slowdown has only waits and run times. Under fractional policies jobs hardly wait but run at a "
    "fraction of their speed, which it does not see: it is shown, but time in the system and bounded stretch (tau = "
    "10 s), which count everything from a job's release to its end, are what compares them."
)
_DEDICATED = (
    "A dedicated job is released at its requested start. Under GreedyPM* and MCB* it has its nodes to itself from "
    "then on, at full speed, so that only other dedicated jobs make it late; with half of the jobs dedicated, only the "
    "other half is shared. EQUIPARTITION takes dedicated jobs for jobs as all others and processes no commands: its "
    "jobs need other times, and it stands here for sharing alone."
)


def _needs(size: Size) -> Needs:
    runs = [
        *MIXED_E.configurations(0.5),
        OnlineConfiguration(label=_EQUI, policy=_EQUI),
        *(
            OnlineConfiguration(label=label, policy=policy, penalty_s=penalty_s)
            for label, (policy, penalty_s) in _SHARING.items()
        ),
    ]
    return {
        "mixed": elastic.study(
            "fractional", runs, ps=0.5, pd=0.5, commands=True, seeds=size.elastic_fractional, loads=_LOADS
        )
    }


def _content(results: Results) -> Content:
    data = results["mixed"]
    picture = Picture(
        name="kumar2011-dfrs",
        title="Fractional sharing beside batch policies: half of the jobs dedicated, with commands",
        subtitle="means over seeds; bands: 95 % bootstrap confidence intervals of the mean; behind fractional policies "
        "the penalty of a resume or migration",
        panels=(
            _panel(data, "flow_mean_s", HOUR_S, "time in the system, hours"),
            _panel(data, "bounded_stretch_mean", 1.0, "mean bounded stretch", log=True),
        ),
    )
    grids = tuple(_grid(data.where(target_load=load), f"Load {load:g}") for load in elastic.loads_of(data))
    return Content(grids=grids, claims=tuple(_claims(data)), pictures=(picture,), notes=(_WHAT, _SLOWDOWN, _DEDICATED))


def _panel(data: ResultTable, metric: str, unit: float, title: str, *, log: bool = False) -> Panel:
    series: list[Series] = []
    for label in data.labels:
        known = label in MIXED_E.labels
        free = label.endswith(" 0 s")
        colour, _ = elastic.style(label) if known else ({_EQUI: 3}.get(label, 2 if "Greedy" in label else 5), "line")
        cells = [
            mean_cell(
                data.where(target_load=load).column(label, metric) / unit,
                report="kumar2011-dfrs",
                row=label,
                metric=f"{metric} {load:g}",
            )
            for load in elastic.loads_of(data)
        ]
        series.append(
            Series(
                label=label,
                x=elastic.loads_of(data),
                y=[nan(c.measured) for c in cells],
                low=[nan(c.low) for c in cells],
                high=[nan(c.high) for c in cells],
                colour=colour,
                style="dashed" if free else "line",
            )
        )
    return Panel(title="", x_label="load", y_label=title, series=tuple(series), log_y=log, x_ticks=_LOADS)


def _grid(data: ResultTable, title: str) -> Grid:
    cells = [
        mean_cell(
            data.column(label, column) / unit,
            report=f"kumar2011-dfrs/{title}",
            row=label,
            metric=metric,
            decimals=decimals,
        )
        for label in data.labels
        for metric, (column, unit, decimals) in _METRICS.items()
    ]
    return Grid(title=title, heading="policy", cells=tuple(cells))


def _claims(data: ResultTable) -> list[Claim]:
    penalised = [_label(policy, _PENALTIES_S[0]) for policy in _FRACTIONAL]
    claims: list[Claim] = []
    for what, column in (
        ("delay of dedicated starts", "dedicated_delay_mean_s"),
        ("mean bounded stretch", "bounded_stretch_mean"),
        ("mean time in the system", "flow_mean_s"),
    ):
        best = [_least(data, MIXED_E.labels, column, load) for load in elastic.loads_of(data)]
        ours = [_least(data, penalised, column, load) for load in elastic.loads_of(data)]
        unit = HOUR_S if column.endswith("_s") else 1.0
        told = "; ".join(
            f"load {load:g}: {a / unit:.2f} against {b / unit:.2f}"
            for load, a, b in zip(elastic.loads_of(data), ours, best, strict=True)
        )
        claims.append(
            Claim(
                claim="Less under the better fractional policy, penalty 300 s, than under the best of [Kumar2011]: "
                f"{what}",
                published="ours",
                measured=told + (" h" if unit > 1.0 else ""),
                holds=all(a < b for a, b in zip(ours, best, strict=True)),
                instances=len(data),
            )
        )
    return claims


def _least(data: ResultTable, labels: Iterable[str], column: str, load: float) -> float:
    at = data.where(target_load=load)
    return min(nan(mean(at.column(label, column))) for label in labels)


EXHIBIT = Exhibit(
    name="kumar2011-dfrs",
    title="Fractional sharing beside the policies of [Kumar2011]",
    source="ours, after [Kumar2011] section V-C",
    needs=_needs,
    content=_content,
)
