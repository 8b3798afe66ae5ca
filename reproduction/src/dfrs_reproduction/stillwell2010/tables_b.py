"""Appendix B: all 118 algorithms of chapter 5, degradation from bound (B.1 to B.3) and moves (B.4 to B.6)."""

from collections.abc import Callable, Mapping

import numpy as np

from dfrs.experiments.spec import Study
from dfrs.model.instance import Floats
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean_cell, quantile
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.stillwell2010.appendix_b import Table, algorithms, published
from dfrs_reproduction.stillwell2010.moves import MOVED, cells
from dfrs_reproduction.stillwell2010.policies import (
    BATCH,
    EASY,
    NO_WEEKS,
    PUBLISHED_SETS,
    STRETCH,
    TOGETHER,
    Averages,
    claim_on,
    configurations,
    degradation,
    heavy,
    known,
    order_claim,
    origins,
    studies,
)

_NO_WORSE = 1.02
"""How many times another an average may be and still count as no worse: about the rounding of the published ones."""


def deviation(values: Floats) -> float | None:
    """Standard deviation of a sample, of what is not NaN; None of fewer than two."""
    return float(np.std(values[~np.isnan(values)], ddof=1)) if known(values) > 1 else None


_STATISTICS: Mapping[str, tuple[str, Callable[[Floats], float | None]]] = {
    "std": ("standard deviation", deviation),
    "max": ("maximum", lambda values: quantile(values, 1.0)),
}


def _studies(size: Size) -> dict[str, Study]:
    return studies(
        "all", configurations(algorithms()), unscaled=size.all_unscaled, scaled=size.all_scaled, weeks=size.all_weeks
    )


def _needs_of(part: str) -> Callable[[Size], Needs]:
    return lambda size: {name: study for name, study in _studies(size).items() if name == part}


def _degradations(results: Results, part: str) -> Content:
    if part not in results:
        return Content(notes=(NO_WEEKS,))
    data = results[part]
    row_cells = tuple(cell for label in algorithms() for cell in _row(data, label, part))
    return Content(
        grids=(Grid(title="Degradation from bound", heading="algorithm", cells=row_cells),),
        claims=tuple(_claims({part: data})),
        notes=(
            STRETCH,
            *((TOGETHER,) if part == "scaled" else ()),
            EASY,
            f"No worse: by at most {100 * (_NO_WORSE - 1):.0f} %.",
        ),
    )


def _row(data: ResultTable, label: str, part: str) -> list[TableCell]:
    values, table = degradation(data, label), PUBLISHED_SETS[part]
    average = mean_cell(
        values,
        report=f"[Stillwell2010] Table {table}",
        row=label,
        metric="average",
        decimals=1,
        published=published(table, "mean", label),
        clusters=origins(data),
    )
    others = [
        TableCell(
            row=label,
            metric=heading,
            measured=measured(values),
            decimals=1,
            instances=known(values),
            published=published(table, statistic, label),
        )
        for statistic, (heading, measured) in _STATISTICS.items()
    ]
    return [average, *others]


def _claims(results: Results) -> list[Claim]:
    return [
        order_claim(results, algorithms()),
        claim_on(
            results,
            "OPT=MIN (MAX) is never worse than OPT=AVG: percentage of the pairs in which it is no worse",
            lambda a: _share(a, _other_optimum),
            least=100.0,
            form=".0f",
        ),
        claim_on(
            results,
            "MVT is always better than MFT of the same bound: percentage of the pairs in which it is no worse",
            lambda a: _share(a, lambda label: label.replace("/MVT=", "/MFT=") if "/MVT=" in label else None),
            least=100.0,
            form=".0f",
        ),
        claim_on(
            results,
            "MVT=600 is slightly better than MVT=300: percentage of the pairs in which it is no worse",
            lambda a: _share(a, lambda label: label.replace("=600", "=300") if "/MVT=600" in label else None),
            least=90.0,
            form=".0f",
        ),
        claim_on(
            results,
            "Without MVT=600, packing on submission is more than ten times worse: MCB*, the ratio",
            lambda a: a["MCB*/OPT=MIN"] / a["MCB*/OPT=MIN/MVT=600"],
            least=10.0,
        ),
        claim_on(
            results,
            "MVT=600 has little effect on /per: /per / with MVT=600, within 5 %",
            lambda a: a["/per/OPT=MIN"] / a["/per/OPT=MIN/MVT=600"],
            least=0.95,
            most=1.05,
            form=".2f",
        ),
    ]


def _other_optimum(label: str) -> str | None:
    for better in ("OPT=MIN", "OPT=MAX"):
        if better in label:
            return label.replace(better, "OPT=AVG")
    return None


def _share(averages: Averages, other: Callable[[str], str | None]) -> float:
    """Percentage of the policies that have another, by `other`, in which they are not worse than it."""
    pairs = [(averages[a], averages[b]) for a in averages for b in [other(a)] if b is not None]
    return 100.0 * sum(a <= _NO_WORSE * b for a, b in pairs) / len(pairs)


def _moves(results: Results, table: Table, unit: str) -> Content:
    data = heavy(results["scaled"])
    labels = [label for label in algorithms() if label in data.labels and label not in BATCH]
    row_cells = tuple(cell for label in labels for cell in cells(data, label, table))
    return Content(
        grids=(Grid(title=unit, heading="algorithm", cells=row_cells),),
        notes=MOVED if table == "B4" else (TOGETHER,),
    )


def _degradation_item(number: int, part: str, what: str) -> Exhibit:
    return Exhibit(
        name=f"stillwell2010-tables-b{number}",
        title=f"[Stillwell2010] Table B.{number}: degradation from bound of all algorithms, {what}",
        source=f"[Stillwell2010] appendix B, Table B.{number}; text of section 5.4",
        needs=_needs_of(part),
        content=lambda results: _degradations(results, part),
    )


def _moves_item(number: int, table: Table, unit: str, what: str) -> Exhibit:
    return Exhibit(
        name=f"stillwell2010-tables-b{number}",
        title=f"[Stillwell2010] Table B.{number}: {what} of all algorithms, load 0.7 and more",
        source=f"[Stillwell2010] appendix B, Table B.{number}",
        needs=_needs_of("scaled"),
        content=lambda results: _moves(results, table, unit),
    )


EXHIBITS = (
    _degradation_item(1, "weeks", "HPC2N"),
    _degradation_item(2, "unscaled", "unscaled traces"),
    _degradation_item(3, "scaled", "scaled traces"),
    _moves_item(4, "B4", "GB/s", "bandwidth of preemptions and migrations"),
    _moves_item(5, "B5", "Occurrences an hour", "preemptions and migrations an hour"),
    _moves_item(6, "B6", "Occurrences a job", "preemptions and migrations a job"),
)
