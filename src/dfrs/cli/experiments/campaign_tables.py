"""What `dfrs campaign` prints: tables of means and comparisons, and the same as one document."""

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from dfrs.cli.console import out, out_of

if TYPE_CHECKING:
    from dfrs.experiments.planned_runs import PlannedRun
    from dfrs.experiments.results import Progress
    from dfrs.experiments.summary import Summaries
    from dfrs.runs.metrics.statistics import Paired

_SHOWN = 10
"""Failures that are told one by one."""


def results_document(summaries: "Summaries") -> dict[str, object]:
    """Means and comparisons as plain data for JSON."""
    return {
        "campaign": summaries.campaign.name,
        "means": [
            {
                "group": group.name,
                "entry": label,
                "measure": m.key,
                "mean": mean.mean,
                "low": mean.low,
                "high": mean.high,
                "count": mean.count,
                "runs": runs,
                "independent": mean.clusters,
            }
            for group, label, m, mean, runs in summaries.means()
        ],
        "comparisons": [
            {
                "group": group.name,
                "entry": label,
                "baseline": baseline,
                "measure": m.key,
                "count": found.count,
                "wins": found.wins,
                "ties": found.ties,
                "losses": found.losses,
                "ratio": found.ratio and found.ratio.mean,
                "ratio_low": found.ratio and found.ratio.shown.low,
                "ratio_high": found.ratio and found.ratio.shown.high,
                "difference": found.difference.mean,
                "difference_low": found.difference.shown.low,
                "difference_high": found.difference.shown.high,
                "p_value": found.p_value,
            }
            for group, label, baseline, m, found in summaries.comparisons()
        ],
    }


def show_status(states: "list[Progress]", failed: "list[tuple[PlannedRun, str]]") -> None:
    """A line a study, and the first of what failed."""
    table = plain_table("study", "runs", "done", "failed", "to do", "core time")
    for s in states:
        numbers = (s.runs, s.done, s.failed, s.runs - s.done - s.failed)
        table.add_row(escape(s.study), *(f"{n:,}" for n in numbers), duration(s.seconds))
    out.print(table)
    for run, message in failed[:_SHOWN]:
        out.print(f"failed: {run.key} {run.name}: {message}", markup=False, soft_wrap=True)
    if len(failed) > _SHOWN:
        out.print(f"and {len(failed) - _SHOWN} more; --json has all")


def show_results(summaries: "Summaries") -> None:
    """For each group and metric a table of means, and one of comparisons with the baseline."""
    means: dict[tuple[str, str], list[list[str]]] = {}
    for group, label, m, mean, runs in summaries.means():
        count = f"{mean.count:,}" + ("" if mean.count == runs else f" of {runs:,}")
        count += "" if mean.clusters == mean.count else f" ({mean.clusters:,})"
        row = [label, count, _number(mean.mean), _interval(mean.low, mean.high)]
        means.setdefault((group.name, m.key), []).append(row)
    compared: dict[tuple[str, str], list[list[str]]] = {}
    for group, label, _, m, found in summaries.comparisons():
        compared.setdefault((group.name, m.key), []).append([label, *_comparison(found)])
    for group in summaries.groups:
        for m in summaries.metrics_of(group):
            place = (group.name, m.key)
            title = f"{group.name}: {m.title}" + (f", {m.unit}" if m.unit else "")
            _fitting(title, ["configuration", "runs", "mean", "95 %"], means.get(place, []))
            if place in compared:
                heading = ["configuration", "ratio", "95 %", "better/same/worse", "p"]
                _fitting(f"  against {summaries.baseline_of(group)}, on the same scenarios", heading, compared[place])
    out.print("runs: those with a value, in brackets how many independent traces or seeds they are of", style="dim")


def _comparison(found: "Paired") -> list[str]:
    shown = found.ratio.shown if found.ratio else None
    ratio = [_number(shown.mean), _interval(shown.low, shown.high)] if shown else ["", ""]
    p = "" if found.p_value is None else "<0.001" if found.p_value < 0.001 else f"{found.p_value:.3f}"
    return [*ratio, f"{found.wins}/{found.ties}/{found.losses}", p]


def _fitting(title: str, heading: list[str], rows: list[list[str]]) -> None:
    """The table with as many of its columns as the terminal has room for; all where the output is no terminal."""
    widths = [max(len(row[k]) for row in [heading, *rows]) for k in range(len(heading))]
    shown = len(heading)
    console = out_of(sum(widths) + 2 * len(widths))
    while shown > 2 and sum(widths[:shown]) + 2 * (shown - 1) > console.width:
        shown -= 1
    table = plain_table(*map(escape, heading[:shown]), title=escape(title))
    for row in rows:
        table.add_row(*map(escape, row[:shown]))
    console.print(table)
    if shown < len(heading):
        out.print(f"  left out for want of room: {', '.join(heading[shown:])}", style="dim")


def plain_table(first: str, *others: str, title: str = "") -> Table:
    """An empty table: names at the left, numbers at the right."""
    table = Table(box=None, header_style="bold", pad_edge=False, title=title or None, title_justify="left")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    """Four digits, without powers of ten."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{_number(low)}, {_number(high)}]"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
