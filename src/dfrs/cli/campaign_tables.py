"""What `dfrs campaign` prints: tables of means and comparisons, and the same as one document."""

from typing import TYPE_CHECKING

from dfrs.cli.console import out

if TYPE_CHECKING:
    from rich.table import Table

    from dfrs.campaigns.summary import Summaries
    from dfrs.metrics.statistics import Paired


def results_document(summaries: "Summaries") -> dict[str, object]:
    """Means and comparisons as plain data for JSON."""
    return {
        "campaign": summaries.campaign.name,
        "means": [
            {
                "group": group.name, "entry": label, "measure": m.key, "mean": mean.mean, "low": mean.low,
                "high": mean.high, "count": mean.count, "failed": failed,
            }
            for group, label, m, mean, failed in summaries.means()
        ],
        "comparisons": [
            {
                "group": group.name, "entry": label, "baseline": baseline, "measure": m.key, "count": found.count,
                "wins": found.wins, "ties": found.ties, "losses": found.losses,
                "ratio": found.ratio and found.ratio.mean, "ratio_low": found.ratio and found.ratio.low,
                "ratio_high": found.ratio and found.ratio.high, "difference": found.difference.mean,
                "difference_low": found.difference.low, "difference_high": found.difference.high,
                "p_value": found.p_value,
            }
            for group, label, baseline, m, found in summaries.comparisons()
        ],
    }  # fmt: skip


def show_results(summaries: "Summaries") -> None:
    """A table for each group and measure: means, and beside them the comparison with the baseline."""
    compared = {(group.name, label, m.key): found for group, label, _, m, found in summaries.comparisons()}
    rows: dict[tuple[str, str], list[list[str]]] = {}
    for group, label, m, mean, failed in summaries.means():
        found = compared.get((group.name, label, m.key))
        runs = f"{mean.count:,}" + (f" ({failed} failed)" if failed else "")
        cells = [label, runs, _number(mean.mean), _interval(mean.low, mean.high), *_comparison(found)]
        rows.setdefault((group.name, m.key), []).append(cells)
    for group in summaries.groups:
        baseline = summaries.baseline_of(group)
        for m in summaries.measures_of(group):
            title = f"{group.name}: {m.title}" + (f", {m.unit}" if m.unit else "")
            heading = ["entry", "runs", "mean", "95 %", f"times {baseline}", "95 %", "better/same/worse", "p"]
            _fitting(title, heading, rows.get((group.name, m.key), []))
    out.print("95 %: bootstrap interval; ratios, and better/same/worse, are on the same cases", style="dim")


def _comparison(found: "Paired | None") -> list[str]:
    if found is None:
        return ["", "", "", ""]
    ratio = [_number(found.ratio.mean), _interval(found.ratio.low, found.ratio.high)] if found.ratio else ["", ""]
    p = "" if found.p_value is None else "<0.001" if found.p_value < 0.001 else f"{found.p_value:.3f}"
    return [*ratio, f"{found.wins}/{found.ties}/{found.losses}", p]


def _fitting(title: str, heading: list[str], rows: list[list[str]]) -> None:
    """The table with as many of its columns as the terminal has room for; all where the output is no terminal."""
    widths = [max(len(row[k]) for row in [heading, *rows]) for k in range(len(heading))]
    shown = len(heading)
    if not out.is_terminal:
        out.width = max(out.width, sum(widths) + 2 * len(widths))
    while shown > 3 and sum(widths[:shown]) + 2 * (shown - 1) > out.width:
        shown -= 1
    from rich.markup import escape

    table = plain_table(*map(escape, heading[:shown]), title=escape(title))
    for row in rows:
        table.add_row(*map(escape, row[:shown]))
    out.print(table)


def plain_table(first: str, *others: str, title: str = "") -> "Table":
    """An empty table: names at the left, numbers at the right."""
    from rich.table import Table

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
