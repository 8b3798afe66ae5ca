"""`dfrs farm predict`: how long a job would take on each cluster of a farm, by its profile ([Atif2011] 5.2 to 5.5)."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dfrs.cli.console import err, out, print_json
from dfrs.cli.quantities import show_bytes
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dfrs.model.hardware import Hardware, Profile
    from dfrs.profiling.predict import Prediction

_SHAPES = ("spread", "co-located")
_LONGEST_S = 1e9
_BLOCK = {
    "CPU, s": "cpu_s",
    "blocking,\ns": "blocking_s",
    "non-block-\ning, s": "non_blocking_s",
    "saved a\nblock, s": "saved_per_block_s",
    "block, s": "block_s",
}
_WHOLE = {"saved in all, s": "saved_s", "left, s": "left_s"}
"""Columns of the two tables."""


def predict(
    profile: Annotated[
        Path, typer.Option("--profile", "-p", help="Profile of the job, dfrs-profile/1.", show_default=False)
    ],
    farm: Annotated[
        Path | None,
        typer.Option("--farm", "-f", help="File of the farm, dfrs-farm/1.", show_default="that of Atif 2011, Table 1"),
    ] = None,
    elapsed: Annotated[float | None, typer.Option(help="Seconds for which the job has been running.", min=0)] = None,
    estimate: Annotated[
        float | None,
        typer.Option(help="Seconds that the whole job takes where it runs now, by its user's estimate.", min=0),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Predict from a job's profile how long it would take on each cluster of a farm, and why.

    A farm: clusters of different hardware, managed as one. The first table is about a block, which
    is what the job does in tau seconds where it runs now. With --estimate a second table is about
    the whole run, with --elapsed about what is left of it (Atif 2011, equation 11).

    Examples:

        dfrs farm predict --profile lu.json

        dfrs farm predict --farm farm.json --profile lu.json --elapsed 300 --estimate 2000 --json
    """
    from dfrs.model.hardware_files import read_hardware, read_profile
    from dfrs.profiling.predict import predict as predict_all
    from dfrs.workloads.programs import USUAL, find_programs

    left_s = _left(elapsed, estimate)
    known = find_programs(USUAL).farm if farm is None else read_hardware(farm)
    read = read_profile(profile)
    try:
        found = predict_all(read, known)
    except InputError as error:
        raise InputError(f"{profile}: {error}") from None
    rows = _rows(found, known, left_s)
    if as_json:
        print_json(_document(found, known, read, rows, left_s))
        return
    _show(found, read, rows, left_s)


def _left(elapsed: float | None, estimate: float | None) -> float | None:
    """T^rem, in seconds; None where no estimate is given."""
    for name, value in (("--elapsed", elapsed), ("--estimate", estimate)):
        if value is not None and not math.isfinite(value):
            raise InputError(f"{name} {value}: must be a finite number of seconds")
        if value is not None and value > _LONGEST_S:
            raise InputError(f"{name} {value:g}: must be at most {_LONGEST_S:g} seconds")
    if estimate is None:
        if elapsed is not None:
            raise InputError("--elapsed: says nothing without --estimate")
        return None
    if estimate == 0:
        raise InputError("--estimate 0: must be above 0")
    if elapsed is not None and elapsed > estimate:
        raise InputError(f"--elapsed {elapsed:g}: must be at most the estimate, {estimate:g}")
    return estimate - (elapsed or 0.0)


def _rows(found: "Prediction", farm: "Hardware", left_s: float | None) -> list[dict[str, Any]]:
    """One for each sub-cluster, spread and co-located; no co-location where a machine has too few nodes."""
    rows: list[dict[str, Any]] = []
    for c, name in enumerate(found.clusters):
        for shape, label in enumerate(_SHAPES):
            here = c == found.here and bool(shape) == found.colocated
            time_s = float(found.time_s[c, shape])
            rows.append(
                {
                    "cluster": name,
                    "placement": label,
                    "here": here,
                    "cpu_s": float(found.cpu_s[c]),
                    "blocking_s": _known(found.blocking_s[c, shape]),
                    "non_blocking_s": _known(found.waiting_s[c, shape]),
                    "saved_per_block_s": _known(found.saved_s[c, shape]),
                    "block_s": _known(time_s),
                    "speed": _known(found.tau_s / time_s),
                    "saved_s": None if left_s is None else _known(found.saved_of(left_s)[c, shape]),
                    "left_s": None if left_s is None else _known(left_s * time_s / found.tau_s),
                    "memory": found.required_bytes <= farm.partitions[c].node_memory_bytes,
                }
            )
    return rows


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _possible(row: dict[str, Any], farm: "Hardware", processes: int) -> bool:
    cluster = farm.partitions[farm.index(row["cluster"])]
    return processes <= (cluster.cores if row["placement"] == _SHAPES[1] else cluster.nodes)


def _document(
    found: "Prediction", farm: "Hardware", profile: "Profile", rows: list[dict[str, Any]], left_s: float | None
) -> dict[str, Any]:
    return {
        "farm": farm.name,
        "job": profile.job,
        "cluster": profile.cluster,
        "processes": profile.processes,
        "colocated": profile.colocated,
        "tau_s": profile.tau_s,
        "left_s": left_s,
        "required_bytes": found.required_bytes,
        "swapping": found.swapping,
        "predictions": [row | {"possible": _possible(row, farm, profile.processes)} for row in rows],
    }


def _show(found: "Prediction", profile: "Profile", rows: list[dict[str, Any]], left_s: float | None) -> None:
    shape = _SHAPES[profile.colocated]
    what = f"{profile.job}: {profile.processes} processes on {profile.cluster}, {shape}; a block is {found.tau_s:g} s"
    out.print(what, style="bold", markup=False, soft_wrap=True)
    out.print(_table(rows, _BLOCK))
    if left_s is not None:
        out.print(_table(rows, _WHOLE))
        out.print(f"left of the run where it is: {left_s:,.0f} s", markup=False)
    if found.required_bytes > 0:
        out.print(f"a process wants {show_bytes(found.required_bytes)} of memory", markup=False)
    if found.swapping:
        err.print("the job is thrashing: its times say little, and it needs a node with more memory", style="yellow")


def _table(rows: list[dict[str, Any]], columns: "Mapping[str, str]") -> Table:
    """So narrow that no digit is lost in 80 columns; memory is told where there is too little of it."""
    short = not all(row["memory"] for row in rows)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("cluster", "nodes"):
        table.add_column(heading, overflow="fold")
    for heading in columns:
        table.add_column(heading, justify="right", overflow="fold")
    if short:
        table.add_column("memory", overflow="fold")
    for row in rows:
        values = ["not known" if row[key] is None else f"{row[key]:,.2f}" for key in columns.values()]
        here = " (here)" if row["here"] else ""
        enough = [] if not short else ["" if row["memory"] else "too little"]
        table.add_row(row["cluster"], row["placement"] + here, *values, *enough, style="bold" if here else None)
    return table
