"""Ours: how often BEST reaches the optimum on small instances."""

import numpy as np

from dfrs.experiments.kinds.offline import OfflineConfiguration
from dfrs.experiments.spec import Study
from dfrs.placement.registry import Options
from dfrs.report.tables import Content, Grid, TableCell
from dfrs.workloads.services import SMALL_SERVICES
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import mean, percent
from dfrs_reproduction.sizes import Size, dissertation, of
from dfrs_reproduction.stillwell2010.figure_4_3 import proven
from dfrs_reproduction.studies import PROGRAM_LIMIT_S

REACHED = 1e-4
"""How far below the optimum still counts as reaching it."""

_BEST, _PACKING = "BEST 1 s", "VP_CPSUM"


def _needs(size: Size) -> Needs:
    return {
        "small": Study(
            name="best-small",
            sample=of(size.quality_small, 72_900, "[Stillwell2010]'s small set (4 nodes; 8, 10, 12 services)")
            + f" OPT has {PROGRAM_LIMIT_S:g} s for each. One run at a time.",
            sources=(dissertation(size.quality_small, small=True),),
            configurations=(
                OfflineConfiguration(label="OPT", algorithm="OPT", options=Options(time_limit_s=PROGRAM_LIMIT_S)),
                OfflineConfiguration(label=_BEST, algorithm="BEST", options=Options(time_limit_s=1.0)),
                OfflineConfiguration(label=_PACKING, algorithm=_PACKING),
            ),
            alone=True,
        )
    }


def _content(results: Results) -> Content:
    cells: list[TableCell] = []
    for services in (None, *SMALL_SERVICES):
        data = results["small"] if services is None else results["small"].where(services=services)
        if not data.labels:
            continue
        optimum = np.where(proven(data), data.yields("OPT"), np.nan)
        solved = ~np.isnan(optimum)
        row = "all" if services is None else f"J = {services}"
        count = int(solved.sum())
        for label in (_BEST, _PACKING):
            reached = np.nan_to_num(data.yields(label, exact=True), nan=-1.0) >= np.nan_to_num(optimum) - REACHED
            cells.append(
                TableCell(row=row, metric=f"{label} reaches it, %", measured=percent(reached, solved), instances=count)
            )
        for label in ("OPT", _BEST):
            seconds = mean(data.column(label, "runtime_s")[solved])
            cells.append(TableCell(row=row, metric=f"{label}, seconds", measured=seconds, instances=count, decimals=4))
    return Content(
        grids=(Grid(title="Instances whose optimum is proven", heading="instances", cells=tuple(cells)),),
        notes=(f"Reaching the optimum means: to {REACHED:g}.",),
    )


EXHIBIT = Exhibit(
    name="best-small",
    title="BEST on small instances: how often it is optimal",
    source="ours; instances of [Stillwell2010] section 4.4.6",
    needs=_needs,
    content=_content,
)
