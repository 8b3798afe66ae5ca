"""`dfrs farm profile`: run any MPI program unchanged, and see what it sends, waits for and uses (003 section 5)."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dfrs.cli.console import err, print_json
from dfrs.cli.quantities import show_bytes
from dfrs.model.errors import DfrsError, InputError

if TYPE_CHECKING:
    from dfrs.model.farm import Profile, SubCluster
    from dfrs.profiling.session import ProfiledRun

_MOST_ROWS = 40
_PICTURES = {".png", ".svg", ".pdf"}


def profile(
    command: Annotated[
        list[str],
        typer.Argument(help="The program and its arguments, after --.", show_default=False, metavar="COMMAND"),
    ],
    tau: Annotated[float, typer.Option(help="Seconds of a block.")] = 50.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Profile of the whole run to write, dfrs-profile/1.")
    ] = None,
    blocks: Annotated[
        Path | None, typer.Option(help="Directory for the profile of every whole block, while the program runs.")
    ] = None,
    farm: Annotated[Path | None, typer.Option("--farm", "-f", help="Farm that it runs in, dfrs-farm/1.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Sub-cluster that it runs on.")] = None,
    job: Annotated[str | None, typer.Option(help="Name of the job.", show_default="the program's")] = None,
    picture: Annotated[Path | None, typer.Option(help="Histogram of messages to draw, .png, .svg or .pdf.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output, after what the program writes.")
    ] = False,
) -> None:
    """Run an MPI program unchanged under the profiler; print what it sends, waits for and uses.

    Its exit status is passed on, and so are signals. Tables go to standard error, the program's output is its own.
    Without --farm and --cluster the profile is of a sub-cluster "here", and CPU seconds are not scaled.

    Examples:

        dfrs farm profile --tau 10 -o lu.json -- mpirun -n 4 ./lu.B.4

        dfrs farm profile --farm farm.json --cluster A --picture lu.png -- mpirun -n 4 ./lu.B.4
    """
    from dfrs.profiling.session import run

    if not (math.isfinite(tau) and tau > 0):
        raise InputError(f"--tau {tau:g}: must be a number of seconds above 0")
    if picture is not None and picture.suffix.lower() not in _PICTURES:
        raise InputError(f"{picture}: the ending must be .png, .svg or .pdf")
    for path in (output, picture):
        if path is not None:
            _check_writable(path)
    if job is not None and not job.isprintable():
        raise InputError("--job: must be printable text on one line")
    where = _cluster(farm, cluster)
    if blocks is not None:
        _make(blocks)
    found = run(
        command,
        tau_s=tau,
        job=job or _name(command),
        cluster=where,
        on_block=None if blocks is None else lambda number, block: _write(block, blocks / f"block-{number:04d}.json"),
    )
    if found.profile is None:
        _tell_none(command, found)
    else:
        _show(found, found.profile)
        if output is not None:
            _write(found.profile, output)
        if picture is not None:
            _draw(found.profile, picture)
        if as_json:
            print_json(_document(found, found.profile))
    raise typer.Exit(found.status)


def _tell_none(command: list[str], found: "ProfiledRun") -> None:
    """No rank was seen: an error, but the program's own status says more if it failed."""
    message = (
        f"{command[0]}: no MPI rank was seen: not an MPI program, linked statically, "
        "or built for another MPI than the mpicc that was found (DFRS_MPICC names another)"
    )
    if found.status == 0:
        raise DfrsError(message)
    err.print(f"dfrs: {message}", markup=False, soft_wrap=True)


def _cluster(farm: Path | None, name: str | None) -> "SubCluster | None":
    if farm is None and name is None:
        return None
    if farm is None or name is None:
        raise InputError("--farm and --cluster: must be given together")
    from dfrs.farm.files import read_farm

    known = read_farm(farm)
    try:
        return known.clusters[known.index(name)]
    except InputError as error:
        raise InputError(f"--{error}") from None


def _name(command: list[str]) -> str:
    """The name of what the launcher runs: the last word that is a program, before its arguments."""
    from dfrs.profiling.session import launcher_at

    launcher = launcher_at(command)
    for word in command[:1] if launcher is None else command[launcher + 1 :]:
        if "/" in word and os.access(word, os.X_OK) and Path(word).is_file():
            return Path(word).name
    return Path(command[0]).name


def _check_writable(path: Path) -> None:
    """Before the program runs: afterwards it would be too late."""
    if path.is_dir():
        raise InputError(f"{path}: cannot write: is a directory")
    parent = path.parent
    if not parent.is_dir():
        raise InputError(f"{path}: cannot write: no such directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot write: permission denied")


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot make the directory: {error.strerror}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InputError(f"{directory}: cannot write: permission denied")


def _write(profile: "Profile", path: Path) -> None:
    from dfrs.farm.files import write_profile

    write_profile(profile, path)


def _draw(profile: "Profile", path: Path) -> None:
    from dfrs.profiling.picture import draw
    from dfrs.report.saving import save

    save(lambda: draw(profile), path)
    err.print(f"{path}", markup=False, style="dim", soft_wrap=True)


def _document(found: "ProfiledRun", whole: "Profile") -> dict[str, Any]:
    from dfrs.farm.files import profile_document

    return {
        "status": found.status, "wall_s": found.wall_s, "counted": found.counted, "expected": found.moment.expected,
        "untracked": sum(rank.figures.untracked for rank in found.moment.ranks),
        "profile": profile_document(whole), "blocks": [profile_document(block) for block in found.blocks],
        "messages": _message_rows(found), "calls": _call_rows(found),
        "ranks": [
            {
                "rank": rank.figures.rank, "host": rank.figures.host, "elapsed_s": rank.figures.elapsed_s,
                "cpu_s": rank.cpu_s, "mpi_s": rank.figures.mpi_s, "memory_bytes": rank.use.rss_bytes,
                "swap_bytes": rank.use.swap_bytes, "faults": rank.use.faults, "switches": rank.use.switches,
                "finished": rank.figures.finished,
            }
            for rank in found.moment.ranks
        ],
    }  # fmt: skip


def _message_rows(found: "ProfiledRun") -> list[dict[str, Any]]:
    return [
        {
            "rank": rank.figures.rank, "bytes": size, "sent": seen.sent, "received": seen.received,
            "isent": seen.isent, "ireceived": seen.ireceived, "waited_s": seen.waited_s,
        }
        for rank in found.moment.ranks
        for size, seen in sorted(rank.figures.messages.items())
    ]  # fmt: skip


def _call_rows(found: "ProfiledRun") -> list[dict[str, Any]]:
    return [
        {"rank": rank.figures.rank, "kind": kind, "bytes": size, "processes": processes, "count": done.count,
         "seconds": done.seconds}
        for rank in found.moment.ranks
        for (kind, size, processes), done in sorted(rank.figures.calls.items())
    ]  # fmt: skip


def _show(found: "ProfiledRun", whole: "Profile") -> None:
    place = "co-located" if whole.colocated else "spread"
    what = (
        f"{whole.job}: {whole.processes} processes, {place}, {whole.tau_s:.4g} s in MPI's world of {found.wall_s:.4g} s"
    )
    err.print(what, style="bold", markup=False, soft_wrap=True)
    _show_messages(found)
    _show_calls(found)
    _show_ranks(found)
    events = ", ".join(f"{name} {count:.6g}" for name, count in whole.counters.items())
    err.print(f"CPU: {found.counted}; a process: {events}", markup=False, soft_wrap=True)
    if found.moment.processes < found.moment.expected:
        missing = f"only {found.moment.processes} of {found.moment.expected} ranks were seen: the others run elsewhere"
        err.print(missing, style="yellow", markup=False, soft_wrap=True)
    unfinished = sum(not rank.figures.finished for rank in found.moment.ranks)
    if unfinished:
        err.print(f"{unfinished} ranks ended without MPI_Finalize: figures until then", style="yellow", soft_wrap=True)
    if whole.swap_bytes:
        err.print("the job was thrashing: it had memory on the swap partition", style="yellow", soft_wrap=True)


def _table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table

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


def _show_messages(found: "ProfiledRun") -> None:
    from dfrs.profiling.reader import totals

    messages, _ = totals(found.moment)
    rows = [
        [f"{size:,}", *(f"{n:,}" for n in (seen.sent, seen.received, seen.isent, seen.ireceived)),
         f"{1e6 * seen.waited_s / (seen.isent + seen.ireceived):,.1f}" if seen.isent + seen.ireceived else ""]
        for size, seen in messages.items()
    ]  # fmt: skip
    columns = ["bytes", "sent", "received", "sent, non-bl.", "received, non-bl.", "mean wait, us"]
    _table("Messages of all ranks", columns, rows)


def _show_calls(found: "ProfiledRun") -> None:
    from dfrs.profiling.reader import totals

    _, calls = totals(found.moment)
    rows = [
        [kind, f"{size:,}", str(processes), f"{done.count:,}", f"{1e6 * done.seconds / done.count:,.1f}"]
        for (kind, size, processes), done in calls.items()
    ]
    _table("Collective calls of all ranks", ["kind", "bytes", "processes", "calls", "mean time, us"], rows)


def _show_ranks(found: "ProfiledRun") -> None:
    rows = [
        [str(rank.figures.rank), f"{rank.figures.elapsed_s:.3f}", f"{rank.cpu_s:.3f}", f"{rank.figures.mpi_s:.3f}",
         show_bytes(rank.use.rss_bytes), show_bytes(rank.use.swap_bytes), f"{rank.use.faults:,}",
         f"{rank.use.switches:,}"]
        for rank in found.moment.ranks
    ]  # fmt: skip
    columns = ["rank", "elapsed, s", "CPU, s", "in MPI, s", "memory", "swap", "page faults", "switches"]
    _table("Ranks", columns, rows)
