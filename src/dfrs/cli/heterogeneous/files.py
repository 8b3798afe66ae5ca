"""What `dfrs farm simulate` writes: run directories and pictures."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dfrs
from dfrs.cli.extras import require
from dfrs.model.errors import InputError
from dfrs.model.writing import nearest_directory, require_directory, require_writable

if TYPE_CHECKING:
    from dfrs.experiments.farm_compare import FarmOutcome
    from dfrs.experiments.farm_runs import PreparedStream


def check_writable(output: Path | None, picture: Path | None, policies: "Sequence[str]" = ()) -> None:
    """Raise InputError before anything is simulated where results could not be written."""
    if output is not None:
        from dfrs.runs.directory import slug

        for directory in (output, *(output / slug(policy) for policy in policies)):
            require_directory(directory)
    if picture is not None:
        require("plot")
        require_writable(picture)


def write_runs(outcomes: "Sequence[FarmOutcome]", output: Path) -> None:
    """A run directory for each policy; all of them, or none where one cannot be written."""
    from dfrs.runs.directory import UNFINISHED, slug, write_run
    from dfrs.runs.metrics.schedule import TAU_S, summarize

    try:
        with tempfile.TemporaryDirectory(dir=nearest_directory(output), prefix=UNFINISHED) as name:
            for each in outcomes:
                write_run(each.run, Path(name) / slug(each.policy), summarize(each.run, tau_s=TAU_S), dfrs.__version__)
            for each in outcomes:
                _move(Path(name) / slug(each.policy), output / slug(each.policy))
    except InputError as error:
        raise InputError(f"{output}: {_cause(error)}") from None
    except OSError as error:
        raise InputError(f"{output}: cannot write: {error.strerror}") from None


def _cause(error: InputError) -> str:
    """Without the path, which is of a temporary directory."""
    path, found, rest = str(error).partition(": cannot ")
    return f"cannot {rest}" if found else path


def _move(made: Path, run: Path) -> None:
    """Into place. In a directory that is there already other files stay, and the summary comes last."""
    run.parent.mkdir(parents=True, exist_ok=True)
    if not run.exists():
        made.rename(run)
        return
    (run / "summary.json").unlink(missing_ok=True)
    for file in sorted(made.iterdir(), key=lambda file: file.name == "summary.json"):
        file.replace(run / file.name)


def write_pictures(made: "PreparedStream", outcomes: "Sequence[FarmOutcome]", picture: Path, until_s: float) -> None:
    """One panel a run, of the first `until_s` seconds from the first submission on."""
    from dfrs.report.partition_gantt import GanttPanel, draw_partitions

    panels = [GanttPanel(label=f"{each.policy}: {_told(each)}", run=each.run) for each in outcomes]
    from_s = float(made.workload.submit_s.min())
    last_s = max(each.run.end_s for each in outcomes)
    part = f"the first {until_s:,.0f} s" if from_s + until_s < last_s else "the whole runs"
    draw_partitions(
        panels,
        made.farm,
        made.names,
        picture,
        from_s=from_s,
        to_s=from_s + until_s,
        title=f"{made.workload.name} on the farm of Atif 2011: {part}",
    )


def _told(each: "FarmOutcome") -> str:
    moved = len(each.moves)
    what = "no job moved" if not moved else "1 job moved" if moved == 1 else f"{moved} jobs moved"
    return f"{what}, average wait {each.metrics['wait_s']:,.0f} s, done after {each.metrics['total_s']:,.0f} s"
