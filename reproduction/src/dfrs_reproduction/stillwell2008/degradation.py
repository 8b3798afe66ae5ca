"""Table 1 and Figure 7: by how much each multi-capacity packing is below the best of the eight (section 4.2.1)."""

from collections.abc import Mapping

import numpy as np

from dfrs.model.instance import Floats
from dfrs.placement.packing import MULTI_CAPACITY
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, degradation, mean, quantile
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.studies import clusters_large, clusters_small

SMALL: dict[str, tuple[float, float]] = {
    "MCB8": (1.06, 40.45),
    "MCB5": (1.60, 38.67),
    "MCB6": (1.83, 37.61),
    "MCB7": (3.91, 40.71),
    "MCB3": (11.76, 55.73),
    "MCB2": (14.21, 48.30),
    "MCB1": (14.90, 55.84),
    "MCB4": (17.32, 46.95),
}
"""[Stillwell2008] Table 1: average and maximum, percent."""
LARGE: dict[str, tuple[float, float]] = {
    "MCB8": (0.09, 3.16),
    "MCB5": (0.25, 3.50),
    "MCB6": (0.46, 16.68),
    "MCB7": (1.04, 48.39),
    "MCB3": (4.07, 64.71),
    "MCB2": (8.68, 46.68),
    "MCB1": (10.97, 73.33),
    "MCB4": (14.80, 61.20),
}
"""[Stillwell2008] Figure 7, a table."""


def _needs_small(size: Size) -> Needs:
    return {"clusters": clusters_small(size)}


def _needs_large(size: Size) -> Needs:
    return {"clusters": clusters_large(size)}


def _grid(data: ResultTable, published: Mapping[str, tuple[float, float]]) -> Grid:
    below = _below(data)
    cells: list[TableCell] = []
    for label, (average, most) in published.items():
        all_, solved = below[label], np.where(np.isnan(data.yields(label)), np.nan, below[label])
        for metric, values, known, value in (
            ("average, % (failure: 100)", all_, average, mean(all_)),
            ("average where it succeeds, %", solved, None, mean(solved)),
            ("maximum where it succeeds, %", solved, most, quantile(solved, 1.0)),
        ):
            count = int((~np.isnan(values)).sum())
            cells.append(TableCell(row=label, metric=metric, published=known, measured=value, instances=count))
    return Grid(title="Degradation from the best of the eight", heading="algorithm", cells=tuple(cells))


def _below(data: ResultTable) -> dict[str, Floats]:
    return degradation({label: data.yields(label) for label in MULTI_CAPACITY})


def _order(data: ResultTable, published: Mapping[str, tuple[float, float]]) -> Claim:
    averages = {label: mean(values) or 0.0 for label, values in _below(data).items()}
    ours, theirs = sorted(averages, key=lambda label: averages[label]), list(published)
    return Claim(
        claim="The order of the eight by their average",
        published=", ".join(theirs),
        measured=", ".join(ours),
        holds=ours == theirs,
        instances=len(data),
    )


def _content_small(results: Results) -> Content:
    data = results["clusters"]
    below = np.where(np.isnan(data.yields("MCB8")), np.nan, _below(data)["MCB8"])
    solved = int((~np.isnan(below)).sum())
    shares = [100.0 * float((below > limit).sum()) / max(1, solved) for limit in (3.0, 10.0)]
    return Content(
        grids=(_grid(data, SMALL),),
        claims=(
            _order(data, SMALL),
            Claim(
                claim="MCB8 is more than 3 % (10 %) below the best in few of the instances that it solves",
                published="155 (19) of 1,379: 11.2 % (1.4 %)",
                measured=f"{shares[0]:.1f} % ({shares[1]:.1f} %)",
                holds=shares[0] < 15.0 and shares[1] < 3.0,
                instances=solved,
            ),
        ),
    )


def _content_large(results: Results) -> Content:
    data = results["clusters"]
    return Content(grids=(_grid(data, LARGE),), claims=(_order(data, LARGE),))


TABLE_1 = Exhibit(
    name="stillwell2008-table-1",
    title="[Stillwell2008] Table 1: multi-capacity packings, small instances",
    source="[Stillwell2008] section 4.2.1, Table 1",
    needs=_needs_small,
    content=_content_small,
)
FIGURE_7 = Exhibit(
    name="stillwell2008-figure-7",
    title="[Stillwell2008] Figure 7: multi-capacity packings, large instances",
    source="[Stillwell2008] section 4.2.1, Figure 7 (a table)",
    needs=_needs_large,
    content=_content_large,
)
