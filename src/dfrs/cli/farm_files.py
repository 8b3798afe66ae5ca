"""What `dfrs farm simulate` writes: run directories and pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.campaigns.farm_compare import Outcome
    from dfrs.campaigns.farm_runs import Prepared


def check_writable(output: Path | None, picture: Path | None) -> None:
    """Raise InputError before anything is simulated where results could not be written."""
    if output is not None:
        if output.exists() and not output.is_dir():
            raise InputError(f"{output}: cannot make the directory: there is a file of that name")
        _check_directory(output)
    if picture is not None:
        if picture.is_dir():
            raise InputError(f"{picture}: cannot write: is a directory")
        if not picture.parent.is_dir():
            raise InputError(f"{picture}: cannot write: there is no directory {picture.parent}")
        _check_directory(picture.parent)


def _check_directory(directory: Path) -> None:
    """Try what will be done, in the nearest directory that exists."""
    import os
    import tempfile

    there = next((each for each in (directory, *directory.absolute().parents) if each.exists()), Path())
    try:
        handle, name = tempfile.mkstemp(dir=there, prefix=".dfrs-")
        os.close(handle)
        Path(name).unlink()
    except OSError as error:
        raise InputError(f"{directory}: cannot write: {error.strerror}") from None


def write_runs(outcomes: "Sequence[Outcome]", output: Path) -> None:
    """A run directory for each policy."""
    import dfrs
    from dfrs.metrics.schedule import summarize
    from dfrs.report.runs import slug, write_run

    for each in outcomes:
        write_run(each.run, output / slug(each.policy), summarize(each.run, tau_s=10.0), dfrs.__version__)


def write_pictures(made: "Prepared", outcomes: "Sequence[Outcome]", picture: Path, until_s: float) -> None:
    """One panel a run."""
    from dfrs.report.farm_gantt import Panel, draw_farm

    panels = [Panel(label=f"{each.policy}: {_told(each)}", run=each.run) for each in outcomes]
    last_s = max(each.run.end_s for each in outcomes)
    part = f"the first {until_s:,.0f} s" if until_s < last_s else "the whole runs"
    draw_farm(
        panels, made.farm, made.names, picture, to_s=until_s, title=f"{made.workload.name} on {made.farm.name}: {part}"
    )


def _told(each: "Outcome") -> str:
    moved = len(each.moves)
    what = "no job moved" if not moved else "1 job moved" if moved == 1 else f"{moved} jobs moved"
    return f"{what}, average wait {each.measures['wait_s']:,.0f} s, done after {each.measures['total_s']:,.0f} s"
