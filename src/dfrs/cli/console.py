"""What every verb shares: consoles, JSON output, the note about compilation, progress."""

import json
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
from numba.core import event
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def print_json(document: object) -> None:
    """One JSON document on standard output, with numbers that read back exactly."""
    print(json.dumps(document, indent=2, default=_plain, allow_nan=False))


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON for {type(value).__name__}")


class _CompilationNote(event.Listener):
    """Says once that kernels are being compiled; numba tells it only when they are not in its cache."""

    told = False

    def on_start(self, event: event.Event) -> None:
        """A kernel starts to compile."""
        if not self.told:
            self.told = True
            err.print("Compiling kernels for this machine, once: this takes about half a minute.", style="dim")

    def on_end(self, event: event.Event) -> None:
        """A kernel is compiled: nothing to say."""


def tell_about_compilation() -> None:
    """Have the first compilation of a kernel in this process announced on standard error."""
    event.register("numba:compile", _CompilationNote())


@contextmanager
def progress(total: float, *, visible: bool = True) -> Generator[tuple[Progress, TaskID]]:
    """A bar on standard error, gone when done; nothing where standard error is not a terminal."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not (visible and err.is_terminal),
    )
    with bar:
        yield bar, bar.add_task("", total=total)
