"""Options of `dfrs simulate` for public traces of large clouds, and what is said of one before a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, warn
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.model.jobs import Workload

FromCloud = Annotated[
    Path | None,
    typer.Option(
        help="Instead of traces: files of Google 2019, Alibaba 2018 or Azure 2020 (packing), a directory or one file."
    ),
]
Window = Annotated[
    str | None,
    typer.Option(help="With --from-cloud: only what is submitted from second A to before B of its clock, as A:B."),
]
CutOff = Annotated[
    str | None,
    typer.Option(
        help="With --from-cloud: jobs without a known start or end, drop, or keep with the part that is known.",
        show_default="drop",
    ),
]
Machine = Annotated[
    int | None,
    typer.Option(
        help="With --from-cloud, of Azure: which machineId a node is.", show_default="that of most requests", min=0
    ),
]


def check_cloud_options(from_cloud: Path | None, window: str | None, cut_off: str | None, machine: int | None) -> None:
    """Raises InputError where an option for cloud traces is given without one."""
    for option, value in (("--window", window), ("--cut-off", cut_off), ("--machine", machine)):
        if from_cloud is None and value is not None:
            raise InputError(f"{option}: must be given with --from-cloud only")


def read_cloud(
    path: Path, nodes: int | None, estimates: str, window: str | None, cut_off: str | None, machine: int | None
) -> "Workload":
    """The jobs of a cloud trace; what was taken and what was not is told on standard error."""
    from dfrs.workloads.clouds.jobs import CloudOptions
    from dfrs.workloads.clouds.load import load_cloud_trace

    if nodes is None:
        raise InputError("--from-cloud: the trace does not say how many nodes: give --nodes or --node-file")
    options = CloudOptions(
        nodes=nodes, estimates=estimates, window_s=_window(window), cut_off=cut_off or "drop", machine=machine
    )
    workload, report = load_cloud_trace(path, options)
    taken, *left_out = report.lines()
    err.print(taken, markup=False, soft_wrap=True)
    for line in left_out:
        warn(line)
    return workload


def _window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    first, _, last = text.partition(":")
    try:
        return float(first), float(last)
    except ValueError:
        raise InputError(f'--window "{text}": must be A:B, two numbers of seconds') from None
