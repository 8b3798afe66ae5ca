"""How a profile is shown and stored, whether the program ran here or on a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dfrs.cli.console import err
from dfrs.cli.extras import require
from dfrs.cli.quantities import show_bytes
from dfrs.cli.refusals import refuse_same
from dfrs.model.errors import InputError
from dfrs.model.writing import require_writable

if TYPE_CHECKING:
    from dfrs.model.hardware import Partition, Profile

_MOST_ROWS = 40
_PICTURES = {".png", ".svg", ".pdf"}

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Profile of the whole run to write, dfrs-profile/1.")
]
Farm = Annotated[Path | None, typer.Option("--farm", "-f", help="File of the farm that it runs on, dfrs-farm/1.")]
ClusterName = Annotated[str | None, typer.Option("--cluster", help="Name of the cluster of the farm that it runs on.")]
Picture = Annotated[Path | None, typer.Option(help="Histogram of messages to draw, .png, .svg or .pdf.")]


def partition_of(farm: Path | None, name: str | None) -> "Partition | None":
    """The cluster of --farm and --cluster; None if neither is given. Raises InputError."""
    if farm is None and name is None:
        return None
    if farm is None or name is None:
        raise InputError("--farm and --cluster: must be given together")
    from dfrs.model.hardware_files import read_hardware

    known = read_hardware(farm)
    try:
        return known.partitions[known.index(name)]
    except InputError as error:
        raise InputError(f"--{error}") from None


def check_files(output: Path | None, picture: Path | None, farm: Path | None) -> None:
    """Before anything runs: afterwards it would be too late. Raises InputError."""
    if picture is not None and picture.suffix.lower() not in _PICTURES:
        raise InputError(f"{picture}: the ending must be .png, .svg or .pdf")
    if picture is not None:
        require("plot")
    for path in filter(None, (output, picture)):
        require_writable(path)
    refuse_same(output, farm)


def store(seen: dict[str, Any], profile: "Profile", output: Path | None, picture: Path | None) -> None:
    """Write the files that are asked for. Raises InputError, also where `seen` is not of one MPI program."""
    if _worlds(seen) > 1 and (output or picture):
        raise InputError(f"{output or picture}: not written: a profile is of one MPI program: profile each by itself")
    if output is not None:
        from dfrs.model.hardware_files import write_profile

        write_profile(profile, output)
    if picture is not None:
        from dfrs.profiling.picture import draw
        from dfrs.report.saving import save

        save(lambda: draw(profile), picture)
        err.print(f"{picture}", markup=False, style="dim", soft_wrap=True)


def show(seen: dict[str, Any], whole: "Profile", time: str, *, running: bool = False) -> None:
    """Tables of a `profiling.summary` with a profile, on standard error. `time`: of how long, in words."""
    worlds = _worlds(seen)
    if worlds > 1:
        what = f"{whole.processes} processes of at least {worlds} MPI programs, {whole.tau_s:.4g} s from first to last"
    else:
        place = "co-located" if whole.colocated else "spread"
        what = f"{whole.processes} processes, {place}, {whole.tau_s:.4g} s in MPI's world"
    err.print(f"{whole.job}: {what}{time}", style="bold", markup=False, soft_wrap=True)
    _show_messages(seen["messages"])
    _show_calls(seen["calls"])
    _show_ranks(seen["ranks"])
    events = ", ".join(f"{name} {count:.6g}" for name, count in whole.counters.items())
    err.print(f"CPU: {seen['counted']}; a process: {events}", markup=False, soft_wrap=True)
    if worlds > 1:
        told = "more than one MPI program ran: these figures are of all of them together, and no profile of any"
        err.print(told, style="yellow", markup=False, soft_wrap=True)
    if len(seen["ranks"]) < seen["expected"]:
        missing = f"only {len(seen['ranks'])} of {seen['expected']} ranks were seen: the others run elsewhere"
        err.print(missing, style="yellow", markup=False, soft_wrap=True)
    unfinished = sum(not rank["finished"] for rank in seen["ranks"])
    if unfinished and not running:
        err.print(f"{unfinished} ranks ended without MPI_Finalize: figures until then", style="yellow", soft_wrap=True)
    if whole.swap_bytes:
        err.print("the job was thrashing: it had memory on the swap partition", style="yellow", soft_wrap=True)


def _worlds(seen: dict[str, Any]) -> int:
    """How many MPI programs there were at least; what an older agent has kept of a job does not say."""
    return seen.get("worlds", 1)


def _table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    if not rows:
        return
    table = Table(box=None, header_style="bold", pad_edge=False, title=title, title_justify="left", title_style="")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows[:_MOST_ROWS]:
        table.add_row(*row)
    err.print(table)
    if len(rows) > _MOST_ROWS:
        err.print(f"  and {len(rows) - _MOST_ROWS} more (--json has all)", style="dim", markup=False)


def _show_messages(messages: list[dict[str, Any]]) -> None:
    names = ("bytes", "sent", "received", "isent", "ireceived")
    rows = [[f"{row[name]:,}" for name in names] + [_mean_wait(row)] for row in messages]
    columns = ["bytes", "sent", "received", "sent, non-bl.", "received, non-bl.", "mean wait, us"]
    _table("Messages of all ranks", columns, rows)


def _mean_wait(row: dict[str, Any]) -> str:
    number = row["isent"] + row["ireceived"]
    return f"{1e6 * row['waited_s'] / number:,.1f}" if number else ""


def _show_calls(calls: list[dict[str, Any]]) -> None:
    rows = [
        [
            row["kind"],
            f"{row['bytes']:,}",
            str(row["processes"]),
            f"{row['count']:,}",
            f"{1e6 * row['seconds'] / row['count']:,.1f}",
        ]
        for row in calls
    ]
    _table("Collective calls of all ranks", ["kind", "bytes", "processes", "calls", "mean time, us"], rows)


def _show_ranks(ranks: list[dict[str, Any]]) -> None:
    rows = [
        [
            str(rank["rank"]),
            f"{rank['elapsed_s']:.3f}",
            f"{rank['cpu_s']:.3f}",
            f"{rank['mpi_s']:.3f}",
            show_bytes(rank["memory_bytes"]),
            show_bytes(rank["swap_bytes"]),
            f"{rank['faults']:,}",
            f"{rank['switches']:,}",
        ]
        for rank in ranks
    ]
    columns = ["rank", "elapsed, s", "CPU, s", "in MPI, s", "memory", "swap", "page faults", "switches"]
    _table("Ranks", columns, rows)
