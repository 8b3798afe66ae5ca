"""A bar that shows how far a long verb is."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from dfrs.cli.console import err


class _Rate(ProgressColumn):
    """How many steps a second lately."""

    def render(self, task: Task) -> Text:
        """Nothing as long as it is not known."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f}/s", style="progress.data.speed")


@contextmanager
def progress(total: float, *, visible: bool = True, counted: bool = False) -> Generator[tuple[Progress, TaskID]]:
    """A bar on standard error, gone when done; nothing where standard error is not a terminal.

    `counted` shows how many of how many, how many a second, and the time that is left.
    """
    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    columns += (
        [MofNCompleteColumn(), _Rate(), TimeRemainingColumn(elapsed_when_finished=True)]
        if counted
        else [TaskProgressColumn(), TimeElapsedColumn()]
    )
    bar = Progress(
        *columns, console=err, transient=True, disable=not (visible and err.is_terminal), speed_estimate_period=60.0
    )
    with bar:
        yield bar, bar.add_task("", total=total)
