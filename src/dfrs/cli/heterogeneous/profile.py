"""`dfrs farm profile`: run any MPI program unchanged, and see what it sends, waits for and uses ([Atif2011] 5)."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dfrs.cli.console import err, print_json
from dfrs.cli.heterogeneous.profile_output import (
    ClusterName,
    Farm,
    Output,
    Picture,
    check_files,
    partition_of,
    show,
    store,
)
from dfrs.model.errors import DfrsError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dfrs.model.hardware import Profile
    from dfrs.profiling.session import ProfiledRun


def profile(
    command: Annotated[
        list[str],
        typer.Argument(help="The program and its arguments, after --.", show_default=False, metavar="COMMAND"),
    ],
    tau: Annotated[float, typer.Option(help="Seconds of a block.")] = 50.0,
    output: Output = None,
    blocks: Annotated[
        Path | None, typer.Option(help="Directory for the profile of every whole block, while the program runs.")
    ] = None,
    farm: Farm = None,
    cluster: ClusterName = None,
    job: Annotated[str | None, typer.Option(help="Name of the job.", show_default="the program's")] = None,
    picture: Picture = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output, after what the program writes.")
    ] = False,
) -> None:
    """Run an MPI program unchanged under the profiler; print what it sends, waits for and uses.

    Its exit status and signals are passed on. Where a file cannot be written, it runs to its end
    all the same; the status is then 2 if the program succeeded. Tables go to standard error; the
    program's output is not changed. To predict its time on other clusters of a farm (clusters of
    different hardware, managed as one), say with --farm and --cluster where it runs. Without these
    options the profile is of a cluster "here", and CPU seconds are not scaled.

    Examples:

        dfrs farm profile --tau 10 -o lu.json -- mpirun -n 4 ./lu.B.4

        dfrs farm profile --farm farm.json --cluster A --picture lu.png -- mpirun -n 4 ./lu.B.4
    """
    from dfrs.profiling.session import run
    from dfrs.profiling.summary import summary

    if not (math.isfinite(tau) and tau > 0):
        raise InputError(f"--tau {tau:g}: must be a number of seconds above 0")
    check_files(output, picture, farm)
    if job is not None and not job.isprintable():
        raise InputError("--job: must be printable text on one line")
    where = partition_of(farm, cluster)
    if blocks is not None:
        _make(blocks)
    unwritten: list[InputError] = []
    found = run(
        command,
        tau_s=tau,
        job=job or _name(command),
        cluster=where,
        on_block=None if blocks is None else _into(blocks, unwritten),
    )
    if found.profile is None:
        _tell_none(command, found)
    else:
        seen = summary(found.moment, found.profile, found.counted)
        show(seen, found.profile, f" of {found.wall_s:.4g} s")
        try:
            store(seen, found.profile, output, picture)
        except InputError as error:
            _fail(error, found.status)
        if as_json:
            print_json(_document(found, seen))
    if unwritten:
        _fail(InputError(f"{blocks}: {len(unwritten)} of {len(found.blocks)} blocks are not written"), found.status)
    raise typer.Exit(found.status)


def _fail(error: DfrsError, status: int) -> None:
    """End with this error, unless the program has failed: then its own status says more."""
    if status == 0:
        raise error
    _tell(error)


def _tell(error: DfrsError) -> None:
    err.print(f"dfrs: {error}", markup=False, soft_wrap=True)


def _tell_none(command: list[str], found: "ProfiledRun") -> None:
    message = (
        f"{command[0]}: no MPI rank was seen: not an MPI program, linked statically, "
        "or built for another MPI than the mpicc that was found (DFRS_MPICC names another)"
    )
    _fail(DfrsError(message), found.status)


def _name(command: list[str]) -> str:
    """The name of what the launcher runs: the last word that is a program, before its arguments."""
    from dfrs.profiling.session import launcher_at

    launcher = launcher_at(command)
    for word in command[:1] if launcher is None else command[launcher + 1 :]:
        if "/" in word and os.access(word, os.X_OK) and Path(word).is_file():
            return Path(word).name
    return Path(command[0]).name


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot make the directory: {error.strerror}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InputError(f"{directory}: cannot write: permission denied")


def _into(directory: Path, unwritten: list[InputError]) -> "Callable[[int, Profile], None]":
    """Writes blocks, by their number; those that it cannot write are told of in `unwritten`, as the program goes on."""
    from dfrs.model.hardware_files import write_profile

    def write(number: int, block: "Profile") -> None:
        try:
            write_profile(block, directory / f"block-{number:04d}.json")
        except InputError as error:
            # Where a disk is full, one line about it is enough.
            if not unwritten:
                _tell(error)
            unwritten.append(error)

    return write


def _document(found: "ProfiledRun", seen: dict[str, Any]) -> dict[str, Any]:
    """What is shown, and instead of totals every rank's messages and calls."""
    from dfrs.model.hardware_files import profile_document

    return seen | {
        "status": found.status,
        "wall_s": found.wall_s,
        "blocks": [profile_document(block) for block in found.blocks],
        "messages": _message_rows(found),
        "calls": _call_rows(found),
    }


def _message_rows(found: "ProfiledRun") -> list[dict[str, Any]]:
    return [
        {
            "rank": rank.figures.rank,
            "bytes": size,
            "sent": seen.sent,
            "received": seen.received,
            "isent": seen.isent,
            "ireceived": seen.ireceived,
            "waited_s": seen.waited_s,
        }
        for rank in found.moment.ranks
        for size, seen in sorted(rank.figures.messages.items())
    ]


def _call_rows(found: "ProfiledRun") -> list[dict[str, Any]]:
    return [
        {
            "rank": rank.figures.rank,
            "kind": kind,
            "bytes": size,
            "processes": processes,
            "count": done.count,
            "seconds": done.seconds,
        }
        for rank in found.moment.ranks
        for (kind, size, processes), done in sorted(rank.figures.calls.items())
    ]
