"""[Kumar2011] Tables IV to VII: the largest improvements of Figures 7, 9 and 11 (section V)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dfrs.experiments.spec import Study
from dfrs.model.instance import Floats
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Results
from dfrs_reproduction.kumar2011 import elastic
from dfrs_reproduction.kumar2011.elastic import BATCH, BATCH_E, METRICS, MIXED, MIXED_E, UTILISATION, Contest
from dfrs_reproduction.metrics import ResultTable, quantile
from dfrs_reproduction.sizes import Size

Numbers = Mapping[str, tuple[float, float]]
"""For each metric the improvement over LOS and over EASY, in percent."""

_MAXIMUM = (
    "As in the document, an improvement is the largest over the loads: here of means over seeds, and the interval is "
    "that at this load. The largest of several uncertain numbers is more often too high than too low."
)
_ALONE = (
    "The document's numbers are of one run a load. What one seed alone would have given is in the second table: for "
    "each seed the largest improvement over the loads, and of these the median, the range of nine seeds in ten, and "
    "how many seeds give at least what is published."
)
_BELOW = (
    "Where ours are lower than published, the document does not tell why. It may be its LOS, which the published "
    "improvements make worse than EASY, while ours is better; which of equal sets its dynamic programs choose, and how "
    "many jobs they look at; its jobs, which are smaller on average; the means of requested starts and of amounts, "
    "which it does not state; or its single runs: the second table says how many of ours get there."
)
_INCONSISTENT = (
    "The document's own slowdown over EASY-DE, 14.6 %, is larger than its wait, 10.18 %. With slowdown as it defines "
    "it, and the same mean run time, that cannot be at any load."
)


_QUANTILES = {0.05: "5 % quantile, %", 0.5: "median, %", 0.95: "95 % quantile, %"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """One of the four."""

    number: str
    name: str
    figure: int
    section: str
    contest: Contest
    needs: Callable[[Size], Study]
    published: Numbers
    against: str = ""
    """The other of the four than which this has lower numbers, as the text says."""
    notes: tuple[str, ...] = ()


_TABLES = {
    "IV": _Table(
        number="IV",
        name="kumar2011-table-4",
        figure=7,
        section="V-A",
        contest=BATCH,
        needs=lambda size: elastic.batch(size, 0.2),
        published={"Utilization": (4.1, 1.52), "Job waiting time": (31.88, 21.65), "Slowdown": (30.3, 20.41)},
    ),
    "V": _Table(
        number="V",
        name="kumar2011-table-5",
        figure=9,
        section="V-B",
        contest=MIXED,
        needs=lambda size: elastic.mixed(size, 0.2, 0.5),
        published={"Utilization": (4.55, 2.33), "Job waiting time": (25.31, 18.24), "Slowdown": (24.29, 17.43)},
    ),
    "VI": _Table(
        number="VI",
        name="kumar2011-table-6",
        figure=11,
        section="V-C",
        contest=BATCH_E,
        needs=elastic.batch_commands,
        published={"Utilization": (4.93, 1.78), "Job waiting time": (18.94, 12.19), "Slowdown": (18.39, 11.79)},
        against="IV",
    ),
    "VII": _Table(
        number="VII",
        name="kumar2011-table-7",
        figure=11,
        section="V-C",
        contest=MIXED_E,
        needs=elastic.mixed_commands,
        published={"Utilization": (1.88, 3.02), "Job waiting time": (20.76, 10.18), "Slowdown": (19.81, 14.6)},
        against="V",
        notes=(_INCONSISTENT,),
    ),
}


def maximum(data: ResultTable, new: str, old: str, metric: str) -> tuple[float, elastic.Change]:
    """The load at which the improvement is largest, of those where there is one, and the improvement."""
    found = elastic.improvements(data, new, old, metric)
    load = max(elastic.known(found) or found, key=lambda load: found[load].percent)
    return load, found[load]


def alone(data: ResultTable, new: str, old: str, metric: str) -> Floats:
    """(S,) the largest improvement over the loads for each seed alone, in percent."""
    sign = 1.0 if metric == UTILISATION else -1.0
    found: list[Floats] = []
    for load in elastic.loads_of(data):
        at = data.where(target_load=load)
        a, b = at.column(new, metric), at.column(old, metric)
        found.append(100.0 * sign * np.divide(a - b, b, out=np.zeros_like(b), where=b > 0.0))
    return np.max(found, axis=0)


def _grid(table: _Table, data: ResultTable) -> Grid:
    contest, cells = table.contest, list[TableCell]()
    for k, old in enumerate((contest.los, contest.easy)):
        for name, published in table.published.items():
            load, change = maximum(data, contest.new, old, METRICS[name])
            row = f"over {old}"
            cells.append(elastic.change_cell(change, row, f"{name}, %", published[k]))
            cells.append(
                TableCell(row=row, metric=f"{name}: at load", measured=load, instances=change.count, decimals=1)
            )
    title = f"Largest improvement of {contest.new} over the loads of Figure {table.figure}"
    return Grid(title=title, heading="improvement", cells=tuple(cells))


def _alone_grid(table: _Table, data: ResultTable) -> Grid:
    contest, cells = table.contest, list[TableCell]()
    for name, published in table.published.items():
        for old, known in zip((contest.los, contest.easy), published, strict=True):
            found = alone(data, contest.new, old, METRICS[name])
            shown = {what: quantile(found, q) for q, what in _QUANTILES.items()}
            shown["seeds with at least the published number, %"] = 100.0 * float((found >= known).mean())
            cells += [
                TableCell(row=f"{name}, over {old}", metric=what, measured=value, instances=len(found), decimals=1)
                for what, value in shown.items()
            ]
    return Grid(title="What one seed alone gives", heading="measure", cells=tuple(cells))


def _claims(table: _Table, results: Results) -> list[Claim]:
    data, contest = results[table.number], table.contest
    claims: list[Claim] = []
    for k, old in enumerate((contest.los, contest.easy)):
        ours = [maximum(data, contest.new, old, METRICS[name])[1].percent for name in METRICS]
        theirs = [table.published[name][k] for name in METRICS]
        claims.append(
            Claim(
                claim=f"{contest.new} improves on {old} in utilization, wait and slowdown, at some load",
                published=_say(theirs),
                measured=_say(ours),
                holds=elastic.all_above_zero(ours),
                instances=len(data),
            )
        )
        if table.against:
            other = _TABLES[table.against]
            rival = (other.contest.los, other.contest.easy)[k]
            before = [
                maximum(results[other.number], other.contest.new, rival, METRICS[name])[1].percent for name in METRICS
            ]
            claims.append(
                Claim(
                    claim=f"The improvements on {old} are lower than those of Table {other.number} on {rival}",
                    published=f"{_say(theirs)} against {_say([other.published[name][k] for name in METRICS])}",
                    measured=f"{_say(ours)} against {_say(before)}",
                    holds=elastic.all_above_zero(b - a for a, b in zip(ours, before, strict=True)),
                    instances=len(data),
                )
            )
    return claims


def _say(percents: list[float]) -> str:
    return ", ".join(f"{percent:.2f}" for percent in percents) + " %"


def _item(table: _Table) -> Exhibit:
    wanted = [table, *([_TABLES[table.against]] if table.against else [])]

    def needs(size: Size) -> dict[str, Study]:
        return {t.number: t.needs(size) for t in wanted}

    def content(results: Results) -> Content:
        data = results[table.number]
        return Content(
            grids=(_grid(table, data), _alone_grid(table, data)),
            claims=tuple(_claims(table, results)),
            notes=(
                _MAXIMUM,
                _ALONE,
                _BELOW,
                *table.notes,
                elastic.WORKLOADS,
                elastic.SKIPPED,
                elastic.WAITING,
                elastic.SATURATED,
            ),
        )

    return Exhibit(
        name=table.name,
        title=f"[Kumar2011] Table {table.number}: the largest improvements of {table.contest.new} "
        f"(Figure {table.figure})",
        source=f"[Kumar2011] section {table.section}, Table {table.number}",
        needs=needs,
        content=content,
    )


EXHIBITS = tuple(_item(table) for table in _TABLES.values())
