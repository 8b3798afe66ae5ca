"""[Stillwell2008] Figures 2 to 6 and 8 to 10: the eight multi-capacity packings (section 4.2.1)."""

from dataclasses import replace

import numpy as np

from dfrs.experiments.spec import Study
from dfrs.placement.packing import MULTI_CAPACITY
from dfrs.report.tables import Claim, Content
from dfrs.workloads.services import SLACKS
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean
from dfrs_reproduction.sizes import Size, clusters
from dfrs_reproduction.stillwell2008.clusters import METRICS, average_at, grid, picture
from dfrs_reproduction.studies import clusters_large, clusters_small, configurations

DESCENDING = tuple(label for label, packing in MULTI_CAPACITY.items() if not packing.ascending)
ASCENDING = tuple(label for label, packing in MULTI_CAPACITY.items() if packing.ascending)


def _times(size: Size, *, large: bool) -> Study:
    count = min(108 if large else 144, size.clusters_large if large else size.clusters_small)
    return Study(
        name="clusters-large-times-mcb" if large else "clusters-small-times-mcb",
        sample=f"Run times: {count} of these instances, at most one a setting; one run at a time.",
        sources=(clusters(count, large=large),),
        configurations=configurations(*MULTI_CAPACITY),
        alone=True,
    )


def _needs_small(size: Size) -> Needs:
    return {"clusters": clusters_small(size), "times": _times(size, large=False)}


def _needs_large(size: Size) -> Needs:
    return {"clusters": clusters_large(size), "times": _times(size, large=True)}


def _content(results: Results, name: str, title: str) -> Content:
    data, times = results["clusters"], results["times"]
    curves = [(label, data) for label in MULTI_CAPACITY]
    drawn = picture(
        name,
        title,
        f"{len(data):,} instances of [Stillwell2008] section 4.1; yields over the instances that each algorithm "
        "solves; dashed: sorted in ascending order",
        curves,
        [(label, times) for label in MULTI_CAPACITY],
        bound=data,
    )
    return Content(
        grids=tuple(grid(curves, data, metric) for metric in METRICS),
        claims=tuple(_claims(data)),
        pictures=(drawn,),
        notes=("The published figures are pictures without numbers.",),
    )


def _claims(data: ResultTable) -> list[Claim]:
    yields = {label: average_at(data, label, "minimum yield", SLACKS) for label in MULTI_CAPACITY}
    failures = {label: average_at(data, label, "failures, %", SLACKS) for label in MULTI_CAPACITY}
    low, high = min(yields[a] for a in DESCENDING), max(yields[a] for a in ASCENDING)
    most, least = max(failures[a] for a in DESCENDING), min(failures[a] for a in ASCENDING)
    best = max(yields, key=lambda label: yields[label])
    return [
        Claim(
            claim="The four that sort in descending order yield more than the four that sort in ascending order",
            published="all",
            measured=f"at least {low:.3f} against at most {high:.3f}",
            holds=low > high,
            instances=len(data),
        ),
        Claim(
            claim="They also fail less often",
            published="all",
            measured=f"at most {most:.2f} % against at least {least:.2f} %",
            holds=most < least,
            instances=len(data),
        ),
        Claim(
            claim="MCB8 has the largest minimum yield on average",
            published="MCB8",
            measured=f"{best} {yields[best]:.4f}, MCB8 {yields['MCB8']:.4f}",
            holds=best == "MCB8",
            instances=len(data),
        ),
    ]


def _time_claims(times: ResultTable, said: str) -> tuple[Claim, ...]:
    """About the largest number of tasks; not judged, since the machines differ."""
    most = float(times.parameter("services").max())
    part = times.where(services=most)
    slowest = max(float(np.nan_to_num(mean(part.column(label, "runtime_s")) or 0.0)) for label in MULTI_CAPACITY)
    return (
        Claim(
            claim=f"All eight take {said} on average with {most:g} tasks",
            published=said,
            measured=f"at most {1000 * slowest:.2f} ms",
            holds=None,
            instances=len(part),
        ),
    )


def _content_small(results: Results) -> Content:
    content = _content(
        results,
        "stillwell2008-figures-2-5",
        "The eight multi-capacity packings, small instances ([Stillwell2008] Figures 2 to 5)",
    )
    return replace(content, claims=content.claims + _time_claims(results["times"], "less than 0.18 ms"))


def _content_large(results: Results) -> Content:
    content = _content(
        results,
        "stillwell2008-figures-6-10",
        "The eight multi-capacity packings, large instances ([Stillwell2008] Figures 6, 8 to 10)",
    )
    return replace(content, claims=content.claims + _time_claims(results["times"], "less than half a second"))


SMALL = Exhibit(
    name="stillwell2008-figures-2-5",
    title="[Stillwell2008] Figures 2 to 5: multi-capacity packings, small instances",
    source="[Stillwell2008] section 4.2.1, Figures 2 to 5",
    needs=_needs_small,
    content=_content_small,
)
LARGE = Exhibit(
    name="stillwell2008-figures-6-10",
    title="[Stillwell2008] Figures 6 and 8 to 10: multi-capacity packings, large instances",
    source="[Stillwell2008] section 4.2.1, Figures 6, 8, 9 and 10",
    needs=_needs_large,
    content=_content_large,
)
