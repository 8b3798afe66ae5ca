"""What every verb shares: consoles, JSON output, the note about compilation."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dfrs.kernels.compiling import compilation
from dfrs.model.text import has_controls, visible

if TYPE_CHECKING:
    from dfrs.simulator.recorded_log import Recorded
    from dfrs.workloads.trace_warnings import TraceReport


class PlainConsole(Console):
    """Shows characters that would control the terminal, or the direction of text, as escapes.

    Ends of lines are left alone: text that shall stay on one line goes through `visible` before it is laid out.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As in the base, with escapes for what is not Rich's own."""
        for segment in super().render(renderable, options):
            if segment.control is None and segment.text != "\n" and has_controls(segment.text):
                lines = [visible(line) for line in segment.text.split("\n")]
                yield Segment("\n".join(lines), segment.style)
            else:
                yield segment


out = PlainConsole(highlight=False)
err = PlainConsole(stderr=True, highlight=False)


def out_of(width: int) -> Console:
    """Standard output with lines of `width` columns where more than it has and it is no terminal."""
    return out if out.is_terminal or width <= out.width else PlainConsole(highlight=False, width=width)


def print_json(document: object) -> None:
    """One JSON document on standard output, with numbers that read back exactly."""
    print(json.dumps(document, indent=2, default=_plain, allow_nan=False), flush=True)


def _plain(value: object) -> object:
    from dfrs.model.json_values import plain

    return plain(value)


def tell_about_compilation() -> None:
    """Have the first compilation of a kernel in this process announced on standard error."""
    compilation.announce = _announce


def _announce() -> None:
    err.print("Compiling kernels for this machine, once: this takes about half a minute.", style="dim")


def warn(text: str) -> None:
    """One line on standard error about what the user may not have wanted."""
    err.print(text, style="yellow", markup=False, soft_wrap=True)


def tell_missing(policies: Sequence[str]) -> None:
    """A line for each policy of a live cluster's log that cannot be asked any more."""
    for name in policies:
        warn(f"policy {name} is not there any more: the one after it decides in its place")


def tell_unfitted(recorded: "Recorded") -> None:
    """A line where jobs of a live cluster's log received more than a run can say."""
    if recorded.unfitted:
        jobs = f"{recorded.unfitted} of {len(recorded.run.workload)} jobs"
        less = f"less of their work is in the run, by at most {recorded.unfitted_part:.1%}"
        warn(f"{jobs} received more than nodes have in declared needs: {less}")


def tell_odd(trace: Path, report: "TraceReport") -> None:
    """A line for each kind of warning of a trace: rule, number, what was done, the first."""
    for odd in report.warnings:
        warn(f"{trace}: {odd.rule}: {odd.count} ({odd.handled}; first: {odd.examples[0]})")


def tell_annotation(annotate: str, node_bytes: float) -> None:
    """A line that says what a node is and what tasks need: the assumptions that all results rest on."""
    from dfrs.workloads.annotate import Annotation

    meaning = Annotation.parse(annotate).meaning
    note = f"annotate {annotate}: {meaning}; node memory {node_bytes / 1e9:.4g} GB"
    err.print(note, style="dim", markup=False, soft_wrap=True)
