"""[Stillwell2010] Table 6.1: what preemptions and migrations cost in bandwidth under heavy load (section 6.1)."""

import numpy as np

from dfrs.policies.names import TABLE_5_2
from dfrs.report.tables import Claim, Content, Grid
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import mean, quantile, say
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.stillwell2010.moves import METRICS, MOVED, cells
from dfrs_reproduction.stillwell2010.policies import BEST, heavy, table_5_2

_DFRS = TABLE_5_2[2:]


def _needs(size: Size) -> Needs:
    return {"scaled": table_5_2(size)["scaled"]}


def _content(results: Results) -> Content:
    data = heavy(results["scaled"])
    labels = [label for label in _DFRS if label in data.labels]
    grid = Grid(
        title="GB/s", heading="policy", cells=tuple(cell for label in labels for cell in cells(data, label, "B4"))
    )
    preempting, migrating = METRICS["B4"]
    total = data.column(BEST, preempting) + data.column(BEST, migrating) if labels else np.zeros(0)
    average, peak = mean(total), quantile(total, 1.0)
    return Content(
        grids=(grid,),
        claims=(
            Claim(
                claim=f"{BEST} needs ... on average",
                published="0.80 GB/s",
                measured=say(average, unit=" GB/s"),
                holds=None if average is None else abs(average - 0.8) <= 0.2,
                instances=len(data),
            ),
            Claim(
                claim="and at most ... in any trace",
                published="under 2 GB/s",
                measured=say(peak, unit=" GB/s"),
                holds=None if peak is None else peak < 2.0,
                instances=len(data),
            ),
        ),
        notes=MOVED,
    )


EXHIBIT = Exhibit(
    name="stillwell2010-table-6.1",
    title="[Stillwell2010] Table 6.1: bandwidth of preemptions and migrations",
    source="[Stillwell2010] section 6.1, Table 6.1",
    needs=_needs,
    content=_content,
)
