"""`dfrs export`: what a live cluster did, as a run directory."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import dfrs
from dfrs.cli.console import out, print_json, tell_missing, tell_unfitted, warn
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.quantities import show_count
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client


@live
def export(
    client: "Client",
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write to; it must not exist.")],
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Directory of dfrs serve --archive: put back what the controller has pruned.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write what the cluster did: its log, and the run as jobs.csv, events.csv, summary.json.

    The verbs for run directories work on it, and its jobs can be simulated under any policy. Their work is what nodes
    measured: CPU time, and what they waited for by themselves. For admins.

    Commands may be nobody else's business: what it writes is for your account alone.

    Examples:

        dfrs export -o day

        dfrs validate day

        dfrs simulate --from-log day

        dfrs simulate --from-log day -p EASY -p FCFS

        dfrs export -o all --archive /var/lib/dfrs-archive
    """
    from dfrs.workloads.live_archive import complete

    if output.exists():
        raise InputError(f"{output}: exists already: choose another directory")
    # Whoever may not have the log is told so before anything is made.
    lines = client.log()
    first = next(lines, None)
    try:
        # Whoever cannot open the directory cannot open what is in it, while that is being written.
        output.mkdir(parents=True, mode=0o700)
        whole = chain([] if first is None else [first], lines)
        _write(output, whole if archive is None else complete(whole, archive), as_json=as_json)
    finally:
        for path in output.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)


def _write(output: Path, lines: Iterable[str], *, as_json: bool) -> None:
    from dfrs.experiments.simulations import measured
    from dfrs.policies.names import find_policy
    from dfrs.runs.directory import write_run
    from dfrs.simulator.recorded_log import decide_again
    from dfrs.workloads.live_log import FILE, read_live_log

    with (output / FILE).open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    log = read_live_log(output)
    if log.gone:
        _tell_gone(output, log.gone, as_json=as_json)
        return
    recorded = decide_again(log, find_policy, output.resolve().name)
    run = recorded.run
    if len(run.workload):
        write_run(run, output, measured(run, bound=True), dfrs.__version__)
    else:
        warn("no job ended on nodes: only the log was written")
    tell_missing(recorded.missing)
    tell_unfitted(recorded)
    if recorded.mismatch is not None:
        warn(f"event {recorded.mismatch.index + 1} of the log was decided otherwise than recorded")
    if as_json:
        print_json(
            {
                "directory": str(output),
                "jobs": len(run.workload),
                "left_out": recorded.left_out,
                "unfitted": recorded.unfitted,
                "unfitted_part": recorded.unfitted_part,
                "gone": "",
            }
        )
        return
    left = f"; {recorded.left_out} that did not end on nodes are only in its log" if recorded.left_out else ""
    out.print(f"{output}: {show_count(len(run.workload), 'job')}{left}", markup=False, soft_wrap=True)


def _tell_gone(output: Path, gone: str, *, as_json: bool) -> None:
    """Only the log is there: what nodes did since depends on all that was decided before."""
    if as_json:
        print_json({"directory": str(output), "gone": gone})
        return
    warn(f"{gone}: only the log was written; with --archive DIR they are put back")


VERBS = (Verb(export),)
