"""From a trace file to a workload, as every verb that takes traces does it."""

from pathlib import Path

from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.batsim import read_batsim
from dfrs.workloads.cwf import Cwf, read_cwf
from dfrs.workloads.swf import Swf, read_swf
from dfrs.workloads.trace_warnings import TraceReport

CWF = (".cwf", ".cwf.gz")
SWF = (".swf", ".swf.gz")
BATSIM = (".json",)


def is_cwf(path: Path) -> bool:
    """Whether the name ends as those of CWF files do."""
    return path.name.lower().endswith(CWF)


def check_ending(path: Path | None, endings: tuple[str, ...]) -> None:
    """Raises InputError where the name of a file to be written has none of `endings`; None is standard output."""
    if path is not None and not path.name.lower().endswith(endings):
        raise InputError(f"{path}: the ending must be {', '.join(endings[:-1])} or {endings[-1]}")


def read_trace(path: Path, *, strict: bool = False) -> Swf | Cwf:
    """The trace of a file: CWF where its name ends in .cwf or .cwf.gz, a workload of Batsim in .json, else SWF.

    See `read_cwf`, `read_batsim` and `read_swf`.
    """
    if path.name.lower().endswith(BATSIM):
        return read_batsim(path)
    return read_cwf(path, strict=strict) if is_cwf(path) else read_swf(path, strict=strict)


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
) -> tuple[Workload, TraceReport]:
    """The workload of a trace file, and what was odd in both; see `read_trace` and `to_workload`."""
    trace = read_trace(path, strict=strict)
    return to_workload(
        trace, nodes=nodes, annotate=annotate, estimates=estimates, overrun=overrun, larger=larger, seed=seed
    )
