"""From a trace file to a workload, as every verb that takes traces does it."""

from pathlib import Path

from dfrs.model.jobs import Workload
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.oddities import Report
from dfrs.workloads.swf import read_swf


def load_workload(
    path: Path,
    *,
    nodes: int | None = None,
    annotate: str = "dfrs",
    estimates: str | float = "perfect",
    overrun: str = "keep",
    larger: str = "keep",
    seed: int = 0,
    strict: bool = False,
) -> tuple[Workload, Report]:
    """The workload of a trace file, and what was odd in both; see `read_swf` and `to_workload`."""
    swf = read_swf(path, strict=strict)
    return to_workload(
        swf, nodes=nodes, annotate=annotate, estimates=estimates, overrun=overrun, larger=larger, seed=seed
    )
