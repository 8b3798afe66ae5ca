"""[Stillwell2010] Figure 6.1: what the rescheduling period does to stretch and bandwidth (section 6.3)."""

from collections.abc import Iterable

import numpy as np

from dfrs.experiments.kinds.online import OnlineConfiguration
from dfrs.model.instance import Floats
from dfrs.report.curves import Panel, Picture, Series
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean, mean_cell, nan
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.stillwell2010.moves import METRICS, MOVED
from dfrs_reproduction.stillwell2010.policies import (
    BEST,
    NO_WEEKS,
    STRETCH,
    average,
    degradation,
    heavy,
    origins,
    studies,
)

_SHORTEST_S, _STEP_S, _STEPS = 600, 300, 38
"""600, 900, ..., 12,000 s."""
_CURVES = {"weeks": "HPC2N", "unscaled": "unscaled", "scaled": "scaled", "heavy": "scaled, load >= 0.7"}


def periods(count: int) -> list[float]:
    """`count` of the figure's 39 periods, from the first to the last, denser among the short ones; at least two."""
    part = np.linspace(0.0, 1.0, max(count, 2))
    steps = np.unique(np.rint(_STEPS * (part if count > _STEPS else part**2)))
    return [_SHORTEST_S + _STEP_S * float(step) for step in steps]


def _needs(size: Size) -> Needs:
    names = {f"{period_s:g}": BEST.replace("/per", f"/per={period_s:g}") for period_s in periods(size.periods)}
    runs = [OnlineConfiguration(label=seconds, policy=name) for seconds, name in names.items()]
    return studies(
        "periods", runs, unscaled=size.periods_unscaled, scaled=size.periods_scaled, weeks=size.periods_weeks
    )


def bandwidth(data: ResultTable, label: str) -> Floats:
    """(I,) GB/s of preemptions and migrations together."""
    preempting, migrating = METRICS["B4"]
    return data.column(label, preempting) + data.column(label, migrating)


def _content(results: Results) -> Content:
    curves = {part: heavy(results["scaled"]) if part == "heavy" else results.get(part) for part in _CURVES}
    datasets = {part: data for part, data in curves.items() if data is not None and data.labels}
    metrics = {"degradation from bound": degradation, "bandwidth, GB/s": bandwidth}
    panels: list[Panel] = []
    grids: list[Grid] = []
    for metric, find in metrics.items():
        cells = [
            mean_cell(
                find(data, label),
                report=f"[Stillwell2010] Figure 6.1/{metric}",
                row=label,
                metric=_CURVES[part],
                clusters=origins(data),
            )
            for label in next(iter(datasets.values())).labels
            for part, data in datasets.items()
        ]
        series = tuple(_curve(cells, _CURVES[part]) for part in datasets)
        panels.append(Panel(title="", x_label="rescheduling period, s", y_label=metric, series=series))
        grids.append(Grid(title=metric[0].upper() + metric[1:], heading="period, s", cells=tuple(cells)))
    picture = Picture(
        name="stillwell2010-figure-6.1",
        title="The rescheduling period: stretch against bandwidth ([Stillwell2010] Figure 6.1)",
        subtitle=f"{BEST}; means; penalty of 300 s; bands: 95 % bootstrap confidence intervals of the mean",
        panels=tuple(panels),
    )
    notes = [STRETCH, *MOVED]
    if "weeks" not in results:
        notes.append(NO_WEEKS)
    return Content(grids=tuple(grids), claims=tuple(_claims(datasets)), pictures=(picture,), notes=tuple(notes))


def _curve(cells: Iterable[TableCell], name: str) -> Series:
    """The cells of one metric, whose rows are periods, as a curve in the band of their intervals."""
    own = [cell for cell in cells if cell.metric == name]
    return Series(
        label=name,
        x=[float(cell.row) for cell in own],
        y=[nan(cell.measured) for cell in own],
        low=[nan(cell.low) for cell in own],
        high=[nan(cell.high) for cell in own],
    )


def periods_of(data: ResultTable) -> list[float]:
    """The periods, which are the labels."""
    return [float(label) for label in data.labels]


def _claims(datasets: dict[str, ResultTable]) -> list[Claim]:
    claims: list[Claim] = []
    for part, factor in (("scaled", 3.0), ("unscaled", 1.5), ("weeks", 2.0)):
        if part not in datasets:
            continue
        data = datasets[part]
        growth = average(data, data.labels[-1]) / average(data, data.labels[0])
        claims.append(
            Claim(
                claim=f"{_CURVES[part]}: 20 times the period raises the degradation by less than a factor",
                published=f"{factor:g}",
                measured=f"{growth:.2f}",
                holds=growth < factor,
                instances=len(data),
            )
        )
    for part, data in datasets.items():
        used = [nan(mean(bandwidth(data, label))) for label in data.labels]
        at = np.interp([600.0, 2000.0, 4000.0, 12_000.0], periods_of(data), used)
        saved = 100.0 * -np.diff(at) / at[0] if at[0] > 0 else np.full(3, np.nan)
        claims.append(
            Claim(
                claim=f"{_CURVES[part]}: most bandwidth is saved up to 2,000 s, some more up to 4,000 s, then less",
                published="no number",
                measured=" %, ".join(f"{share:.0f}" for share in saved) + " % of it",
                holds=bool(saved[0] > saved[1] > 0) if at[0] > 0 else None,
                instances=len(data),
            )
        )
    return claims


EXHIBIT = Exhibit(
    name="stillwell2010-figure-6.1",
    title="[Stillwell2010] Figure 6.1: the rescheduling period",
    source="[Stillwell2010] section 6.3, Figure 6.1",
    needs=_needs,
    content=_content,
)
