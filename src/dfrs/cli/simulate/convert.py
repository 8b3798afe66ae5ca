"""`dfrs convert`: a run in the format of another tool."""

from pathlib import Path
from typing import Annotated

import typer

from dfrs.cli.console import err, warn
from dfrs.cli.refusals import refuse_same
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

PERFETTO = (".json", ".json.gz")
EVALYS = (".csv",)


def convert(
    run: Annotated[Path, typer.Argument(help="Run directory.", show_default=False)],
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="File to write: .json or .json.gz for Perfetto, .csv for evalys.", show_default=False
        ),
    ],
) -> None:
    """Write a run for another tool: a trace for Perfetto, or a job set for evalys, by the ending of the name.

    Open the trace at ui.perfetto.dev: nodes are processes, jobs are slices, yields are counters. evalys has one set of
    nodes for each job: of jobs that were paused or moved the last one.

    Examples:

        dfrs convert out/EASY easy.json.gz

        dfrs convert out/EASY easy.csv
    """
    from dfrs.runs.directory import COMMANDS, FILES, SPEEDS, read_run

    if not output.name.lower().endswith((*PERFETTO, *EVALYS)):
        raise InputError(f"{output}: the ending must be .json, .json.gz or .csv")
    refuse_same(output, *(run / name for name in (*FILES, COMMANDS, SPEEDS)))
    found = read_run(run)
    if output.name.lower().endswith(EVALYS):
        from dfrs.report.evalys import write_evalys

        moved = write_evalys(found, output)
        if moved:
            warn(f"{output}: {moved} jobs were paused or moved: they are there on their last nodes, without gaps")
    else:
        from dfrs.report.perfetto import write_perfetto

        write_perfetto(found, output)
    err.print(f"{output}", markup=False, style="dim", soft_wrap=True)


VERBS = (Verb(convert),)
