"""[Stillwell2010] Figure 4.2: VP_CPSUM's relative distance from bound against the slack (section 4.4.5)."""

from itertools import pairwise

import numpy as np

from dfrs.report.curves import Panel, Picture, Series
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs.workloads.services import SLACKS
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean, nan, quantile, relative_to
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.studies import packing

AT_LOWEST_SLACK = 19.23
"""Text of 4.4.5: the average at slack 0.1, in percent."""

_CURVES: tuple[tuple[str, float | None], ...] = (
    ("maximum", 1.0),
    ("99th percentile", 0.99),
    ("90th percentile", 0.9),
    ("75th percentile", 0.75),
    ("average", None),
)


def _needs(size: Size) -> Needs:
    return {"large": packing(size)}


def _content(results: Results) -> Content:
    parts = {slack: part for slack in SLACKS for part in [results["large"].where(slack=slack)] if part.labels}
    cells = [
        TableCell(
            row=f"slack {slack:g}",
            metric=label,
            measured=_value(part, q),
            decimals=2,
            instances=int((~np.isnan(part.yields("VP_CPSUM"))).sum()),
            published=AT_LOWEST_SLACK if slack == 0.1 and q is None else None,
        )
        for slack, part in parts.items()
        for label, q in _CURVES
    ]
    series = tuple(
        Series(label=label, x=list(parts), y=[nan(_value(part, q)) for part in parts.values()]) for label, q in _CURVES
    )
    picture = Picture(
        name="stillwell2010-figure-4.2",
        title="VP_CPSUM's distance from bound against the slack ([Stillwell2010] Figure 4.2)",
        subtitle=f"{len(results['large']):,} instances of [Stillwell2010] section 4.3, those that VP_CPSUM solves",
        panels=(Panel(title="", x_label="slack", y_label="distance from bound, % of LPBOUND", series=series),),
        columns=1,
    )
    averages = [_value(part, None) or 0.0 for part in parts.values()]
    falling = sum(a >= b for a, b in pairwise(averages))
    return Content(
        grids=(Grid(title="Distance from bound, % of LPBOUND", heading="slack", cells=tuple(cells)),),
        claims=(
            Claim(
                claim="The average roughly falls as the slack rises",
                published="roughly",
                measured=f"{falling} of {len(averages) - 1} steps down",
                holds=falling >= 0.7 * (len(averages) - 1),
                instances=len(results["large"]),
            ),
        ),
        pictures=(picture,),
    )


def _value(data: ResultTable, q: float | None) -> float | None:
    relative = relative_to(data.bound, data.yields("VP_CPSUM"))
    return mean(relative) if q is None else quantile(relative, q)


EXHIBIT = Exhibit(
    name="stillwell2010-figure-4.2",
    title="[Stillwell2010] Figure 4.2: VP_CPSUM against the slack",
    source="[Stillwell2010] section 4.4.5, Figure 4.2; [Stillwell2010b] Figure 2",
    needs=_needs,
    content=_content,
)
