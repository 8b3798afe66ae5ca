"""[Stillwell2008] Figures 19 to 22: parallel jobs (section 5.2)."""

import numpy as np

from dfrs.experiments.spec import Study
from dfrs.report.tables import Claim, Content
from dfrs.workloads.services import SLACKS
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean, nan, relative_to
from dfrs_reproduction.sizes import Size, clusters, of
from dfrs_reproduction.stillwell2008.clusters import METRICS, average_at, grid, picture
from dfrs_reproduction.studies import configurations, with_average

_ALGORITHMS = ("MCB8", "SG")


def _needs(size: Size) -> Needs:
    count = min(54, size.clusters_parallel)
    return {
        "parallel": Study(
            name="clusters-parallel",
            sample=of(
                size.clusters_parallel,
                10_800,
                "[Stillwell2008]'s large set of parallel jobs (64 nodes; 100, 250, 500 tasks)",
            ),
            sources=(clusters(size.clusters_parallel, large=True, parallel=True),),
            configurations=with_average(*_ALGORITHMS),
        ),
        "times": Study(
            name="clusters-parallel-times",
            sample=f"Run times: {count} of these instances, at most one a setting; one run at a time.",
            sources=(clusters(count, large=True, parallel=True),),
            configurations=configurations(*_ALGORITHMS),
            alone=True,
        ),
    }


def _content(results: Results) -> Content:
    data, times = results["parallel"], results["times"]
    curves = [(label, data) for label in _ALGORITHMS]
    drawn = picture(
        "stillwell2008-figures-19-22",
        "Parallel jobs, large instances ([Stillwell2008] Figures 19 to 22)",
        f"{len(data):,} instances of [Stillwell2008] section 5.2; yields over the instances that each algorithm solves",
        curves,
        [(label, times) for label in _ALGORITHMS],
        bound=data,
    )
    return Content(
        grids=tuple(grid(curves, data, metric) for metric in METRICS),
        claims=tuple(_claims(data, times)),
        pictures=(drawn,),
        notes=("The published figures are pictures without numbers. The average yield is over jobs, not tasks.",),
    )


def _claims(data: ResultTable, times: ResultTable) -> list[Claim]:
    above = tuple(s for s in SLACKS if s > 0.3)
    y = data.yields("MCB8")
    chosen = np.isin(data.parameter("slack"), above) & ~np.isnan(y)
    away = nan(mean(relative_to(data.bound, y)[chosen]))
    low = {label: average_at(data, label, "minimum yield", SLACKS) for label in _ALGORITHMS}
    average = {label: average_at(data, label, "average yield", above) for label in _ALGORITHMS}
    failed = {label: average_at(data, label, "failures, %", SLACKS) for label in _ALGORITHMS}
    most = float(times.parameter("services").max())
    part = times.where(services=most)
    spent = {label: 1000.0 * nan(mean(part.column(label, "runtime_s"))) for label in _ALGORITHMS}
    return [
        Claim(
            claim="MCB8 yields significantly more than SG",
            published="yes",
            measured=f"{low['MCB8']:.3f} against {low['SG']:.3f}",
            holds=low["MCB8"] > low["SG"],
            instances=len(data),
        ),
        Claim(
            claim="MCB8 is close to the bound for slacks above 0.3",
            published="close",
            measured=f"{away:.2f} % below",
            holds=away < 5.0,
            instances=int(chosen.sum()),
        ),
        Claim(
            claim="SG can reach a higher average yield",
            published="yes",
            measured=f"{average['SG']:.3f} against {average['MCB8']:.3f} for slacks above 0.3",
            holds=average["SG"] > average["MCB8"],
            instances=int(chosen.sum()),
        ),
        Claim(
            claim="MCB8 and SG fail equally often",
            published="identical",
            measured=f"{failed['MCB8']:.2f} % and {failed['SG']:.2f} %",
            holds=abs(failed["MCB8"] - failed["SG"]) < 1.0,
            instances=len(data),
        ),
        Claim(
            claim=f"SG is about 32 times faster than MCB8 with {most:g} tasks",
            published="32 times",
            measured=f"{spent['MCB8'] / spent['SG']:.1f} times ({spent['SG']:.2f} against {spent['MCB8']:.2f} ms)",
            holds=None,
            instances=len(part),
        ),
    ]


EXHIBIT = Exhibit(
    name="stillwell2008-figures-19-22",
    title="[Stillwell2008] Figures 19 to 22: parallel jobs",
    source="[Stillwell2008] section 5.2, Figures 19 to 22",
    needs=_needs,
    content=_content,
)
