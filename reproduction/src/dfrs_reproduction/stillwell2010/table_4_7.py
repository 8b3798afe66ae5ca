"""[Stillwell2010] Table 4.7: cluster utilization before and after the second phase (section 4.4.7)."""

from dfrs.report.tables import Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import mean
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.studies import WITH_SECOND_PHASE, packing

PUBLISHED: dict[tuple[int, int], tuple[float, float]] = {
    (2, 100): (77.75, 78.32),
    (2, 200): (98.03, 99.98),
    (2, 500): (95.70, 99.97),
    (4, 100): (72.87, 77.06),
    (4, 200): (88.60, 94.51),
    (4, 500): (94.76, 96.74),
    (6, 100): (70.07, 75.77),
    (6, 200): (83.15, 90.92),
    (6, 500): (93.36, 95.82),
}
"""[Stillwell2010] Table 4.7: percent before and after, by resources and services."""


def _needs(size: Size) -> Needs:
    return {"large": packing(size)}


def _content(results: Results) -> Content:
    data = results["large"]
    cells: list[TableCell] = []
    for (dims, services), published in PUBLISHED.items():
        part = data.where(dims=dims, services=services)
        if not part.labels:
            continue
        for when, known in zip(("before", "after"), published, strict=True):
            use = part.column(WITH_SECOND_PHASE, f"utilization_{when}")
            value = mean(use)
            cells.append(
                TableCell(
                    row=f"D = {dims}, J = {services}",
                    metric=f"{when}, %",
                    published=known,
                    measured=None if value is None else 100.0 * value,
                    instances=int((use >= 0).sum()),
                )
            )
    return Content(
        grids=(Grid(title="Average utilization with VP_CPSUM", heading="instances", cells=tuple(cells)),),
        notes=("Utilization counts the resources that are not purely rigid, over the instances solved.",),
    )


EXHIBIT = Exhibit(
    name="stillwell2010-table-4.7",
    title="[Stillwell2010] Table 4.7: cluster utilization",
    source="[Stillwell2010] section 4.4.7, Table 4.7; [Stillwell2010b] Table 7",
    needs=_needs,
    content=_content,
)
