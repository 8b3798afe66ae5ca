"""[Stillwell2010] Table 4.2, and the execution times that the text of 4.4.4 gives."""

from dfrs.experiments.sources.instances import ServicesSource
from dfrs.experiments.spec import Study
from dfrs.placement.registry import Options
from dfrs.report.tables import Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.studies import configurations

SERVICES = (128, 256, 512)
PUBLISHED: dict[str, tuple[float, float, float]] = {
    "RRND": (16.30, 61.70, 255.44),
    "RRNDNZ": (16.74, 61.15, 250.83),
    "FASTDIVING": (32.42, 113.89, 416.32),
    "SLOWDIVING": (382.58, 1771.35, 6704.79),
    "GREEDY": (0.05, 0.10, 0.24),
}
"""[Stillwell2010] Table 4.2, seconds; its caption says 64, its columns 128."""

TEXT: dict[str, float] = {"VP_CPSUM": 1.38, "VP_FFSUM": 1.50, "VP_BFSUM": 1.62, "GREEDYLIGHT": 1.75, "GREEDY": 54.56}
"""[Stillwell2010] section 4.4.4, seconds with 8,192 services on 1,024 nodes."""

LIMIT_S = 20.0


def _instances(nodes: int, services: tuple[int, ...], samples: int) -> ServicesSource:
    """Parameters of [Stillwell2010] section 4.3; the number of resources is not stated there: four."""
    return ServicesSource(
        nodes=(nodes,),
        services=services,
        dims=(4,),
        slack=(0.5,),
        sigma=(0.5,),
        rho=(0.25,),
        seeds=tuple(range(samples)),
    )


def _needs(size: Size) -> Needs:
    limit = Options(time_limit_s=LIMIT_S)
    sizes = tuple(count for count in SERVICES if count <= size.programs_services)
    named = ", ".join(str(count) for count in sizes)
    return {
        "programs": Study(
            name="times-programs",
            sample=f"64 nodes, {named} services, 4 resources, slack 0.5, sigma 0.5, rho 0.25: {size.programs} of "
            f"the 100 instances for each number of services, {LIMIT_S:g} s at most a run; one run at a time.",
            sources=(_instances(64, sizes, size.programs),),
            configurations=configurations(*PUBLISHED, options=limit),
            alone=True,
        ),
        "text": Study(
            name="times-packing",
            sample="1,024 nodes, 8,192 services, otherwise the same: one of the 100 instances; one run at a time.",
            sources=(_instances(1024, (8192,), 1),),
            configurations=configurations(*TEXT),
            alone=True,
        ),
    }


def _content(results: Results) -> Content:
    programs, text = results["programs"], results["text"]
    cells = [
        TableCell(
            row=label,
            metric=f"{count} services, s",
            published=published,
            measured=_seconds(data, label),
            instances=len(data),
            decimals=3 if label == "GREEDY" else 2,
        )
        for label, row in PUBLISHED.items()
        for count, published in zip(SERVICES, row, strict=True)
        for data in [programs.where(services=count)]
        if data.labels
    ]
    large = [
        TableCell(
            row=label,
            metric="seconds",
            published=published,
            measured=_seconds(text, label),
            instances=len(text),
            decimals=3,
        )
        for label, published in TEXT.items()
    ]
    cells = [cell for pair in zip(cells, map(_faster, cells), strict=True) for cell in pair]
    large = [cell for pair in zip(large, map(_faster, large), strict=True) for cell in pair]
    ended = [label for label in PUBLISHED if (programs.column(label, "runtime_s") >= LIMIT_S).any()]
    notes = ["Published times: GLPK on a 3.2 GHz Xeon of about 2009; ours: HiGHS, one core of this machine."]
    notes += [f"{label} was ended by the limit of {LIMIT_S:g} s at least once." for label in ended]
    notes.append("A dive ends early where what is fixed leaves the program without a solution; such times count too.")
    return Content(
        grids=(
            Grid(title="Average execution time with 64 nodes", heading="algorithm", cells=tuple(cells)),
            Grid(title="With 1,024 nodes and 8,192 services (text)", heading="algorithm", cells=tuple(large)),
        ),
        notes=tuple(notes),
    )


def _faster(cell: TableCell) -> TableCell:
    """How many times less than published."""
    return TableCell(
        row=cell.row,
        metric=f"{cell.metric.removesuffix(', s')}: times faster",
        measured=cell.published / cell.measured if cell.published and cell.measured else None,
        instances=cell.instances,
        decimals=0,
    )


def _seconds(data: ResultTable, label: str) -> float | None:
    return mean(data.column(label, "runtime_s"))


EXHIBIT = Exhibit(
    name="stillwell2010-table-4.2",
    title="[Stillwell2010] Table 4.2: execution times",
    source="[Stillwell2010] section 4.4.2, Table 4.2, and section 4.4.4",
    needs=_needs,
    content=_content,
)
