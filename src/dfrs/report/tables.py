"""Published figures and ours side by side: what a reproduced table consists of, and how it is written down.

A measured mean may stand with its confidence interval, so that a deviation can be told from what another sample would
give. Pages and files have the interval; the terminal, which shows measured beside published, has no room for it.
"""

import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from dfrs.report.curves import Picture
from dfrs.report.dots import Dot, Dots

_INTERVALS = "[low, high]: 95 % bootstrap confidence interval of the mean."
_INDEX_LINE = re.compile(r"\| \[([^]]+)\]\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """One number: `published` is None where the document has none, `measured` where no instance gives one.

    `low` and `high` are the 95 % confidence interval of `measured`, both None where it has none.
    """

    row: str
    metric: str
    measured: float | None
    low: float | None = None
    high: float | None = None
    instances: int
    published: float | None = None
    decimals: int = 2

    @property
    def deviation(self) -> float | None:
        """Measured less published."""
        if self.measured is None or self.published is None:
            return None
        return self.measured - self.published


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Cells laid out by row and metric."""

    title: str
    heading: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence of a document against what was measured; `holds` is None where it cannot be decided."""

    claim: str
    published: str
    measured: str
    holds: bool | None
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a reproduced table or group of figures consists of."""

    grids: tuple[Grid, ...] = ()
    claims: tuple[Claim, ...] = ()
    pictures: tuple[Picture | Dots, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """Content under its name and title, with its place in the documents and the instances it rests on."""

    name: str
    title: str
    source: str
    samples: tuple[str, ...]
    content: Content

    @property
    def compared(self) -> int:
        """How many cells have a published number."""
        return sum(cell.deviation is not None for grid in self.content.grids for cell in grid.cells)

    @property
    def holding(self) -> tuple[int, int]:
        """How many claims hold, of how many that can be decided."""
        decided = [claim.holds for claim in self.content.claims if claim.holds is not None]
        return sum(decided), len(decided)


def dots(report: TableReport) -> Dots | None:
    """The first grid with published numbers as a picture; None where there is none."""
    for grid in report.content.grids:
        known = {cell.metric for cell in grid.cells if cell.published is not None}
        if known:
            return Dots(
                name=report.name,
                title=report.title,
                subtitle="dot: measured, with its 95 % interval where it is a mean; diamond: published",
                dots=tuple(
                    Dot(
                        row=cell.row,
                        metric=cell.metric,
                        measured=_nan(cell.measured),
                        published=_nan(cell.published),
                        low=_nan(cell.low),
                        high=_nan(cell.high),
                    )
                    for cell in grid.cells
                    if cell.metric in known
                ),
            )
    return None


def markdown(report: TableReport) -> str:
    """The report as a Markdown page; pictures are expected beside it as `<picture name>.png`."""
    lines = [f"# {report.title}", "", f"Source: {report.source}.", ""]
    lines += [f"- {sample}" for sample in report.samples] + [""]
    for picture in report.content.pictures:
        lines += [f"![{picture.title}]({picture.name}.png)", ""]
    for grid in report.content.grids:
        lines += [f"## {grid.title}", ""]
        if any(cell.low is not None for cell in grid.cells):
            lines += [_INTERVALS, ""]
        lines += [*_grid_lines(grid), ""]
    if report.content.claims:
        lines += ["## What the text says", "", *_claim_lines(report.content.claims), ""]
    if report.content.notes:
        lines += ["## Notes", "", *(f"- {note}" for note in report.content.notes), ""]
    return "\n".join(lines)


def grid_table(grid: Grid) -> list[list[str]]:
    """The grid as text, its heading first: per metric what is published, what was measured and the deviation.

    A metric without any published number has one column. Intervals stand beside what was measured. The last column
    counts instances: where metrics of a row rest on different ones, all counts.
    """
    metrics = list(dict.fromkeys(cell.metric for cell in grid.cells))
    known = {m for m in metrics if any(c.published is not None for c in grid.cells if c.metric == m)}
    heading = [grid.heading]
    for metric in metrics:
        heading += [f"{metric}: published", "measured", "deviation"] if metric in known else [metric]
    table = [[*heading, "instances"]]
    for row, group in groupby(grid.cells, key=lambda cell: cell.row):
        cells = {cell.metric: cell for cell in group}
        line = [row]
        for metric in metrics:
            line += _cell_text(cells.get(metric), metric in known)
        counts = sorted({cell.instances for cell in cells.values()})
        table.append([*line, " / ".join(f"{count:,}" for count in counts)])
    return table


def brief_table(grid: Grid) -> list[list[str]]:
    """The grid as text, its heading first: one column a metric, `measured (published)`, without intervals."""
    metrics = list(dict.fromkeys(cell.metric for cell in grid.cells))
    table = [[grid.heading, *metrics]]
    for row, group in groupby(grid.cells, key=lambda cell: cell.row):
        cells = {cell.metric: cell for cell in group}
        table.append([row, *(_brief(cells.get(metric)) for metric in metrics)])
    return table


def cells_csv(reports: Iterable[TableReport]) -> str:
    """Every cell on a line: report, table, row, metric, published, measured, low, high, deviation, instances."""
    rows = [
        [
            r.name,
            g.title,
            c.row,
            c.metric,
            *(_exact(value) for value in (c.published, c.measured, c.low, c.high, c.deviation)),
            c.instances,
        ]
        for r in reports
        for g in r.content.grids
        for c in g.cells
    ]
    numbers = ["published", "measured", "low", "high", "deviation"]
    return _csv([["report", "table", "row", "measure", *numbers, "instances"], *rows])


def claims_csv(reports: Iterable[TableReport]) -> str:
    """Every claim on a line: report, claim, published, measured, holds, instances."""
    rows = [
        [r.name, c.claim, c.published, c.measured, _yes(c.holds), c.instances]
        for r in reports
        for c in r.content.claims
    ]
    return _csv([["report", "claim", "published", "measured", "holds", "instances"], *rows])


def document(report: TableReport) -> dict[str, object]:
    """The report as plain data for JSON."""
    return {
        "name": report.name,
        "title": report.title,
        "source": report.source,
        "samples": list(report.samples),
        "cells": [
            {
                "table": grid.title,
                "row": cell.row,
                "measure": cell.metric,
                "published": cell.published,
                "measured": cell.measured,
                "low": cell.low,
                "high": cell.high,
                "deviation": cell.deviation,
                "instances": cell.instances,
            }
            for grid in report.content.grids
            for cell in grid.cells
        ],
        "claims": [
            {
                "claim": claim.claim,
                "published": claim.published,
                "measured": claim.measured,
                "holds": claim.holds,
                "instances": claim.instances,
            }
            for claim in report.content.claims
        ],
        "notes": list(report.content.notes),
    }


def merged_csv(before: str, now: str, made: Collection[str], names: Sequence[str]) -> str:
    """The lines of `now`, a file of cells or claims, and those of an earlier one of the other reports among `names`.

    `made` are the reports that `now` is of. Raises ValueError where the columns differ.
    """
    heading, *lines = csv.reader(io.StringIO(now))
    earlier = list(csv.reader(io.StringIO(before)))
    if earlier and earlier[0] != heading:
        raise ValueError("its columns are not those that this version writes")
    places = {name: place for place, name in enumerate(names)}
    kept = [line for line in earlier[1:] if line and line[0] in places and line[0] not in made]
    rows = sorted([*kept, *lines], key=lambda line: places[line[0]])
    return _csv([heading, *rows])


def merged_index(before: str, now: str, names: Sequence[str]) -> str:
    """The lines of `now`, a page of `index`, and those of an earlier one of the other reports among `names`."""
    lines = _index_lines(now)
    found = _index_lines(before) | lines
    heading = [line for line in now.splitlines() if line not in lines.values()]
    return "\n".join([*heading, *(found[name] for name in names if name in found), ""])


def _index_lines(text: str) -> dict[str, str]:
    """The line of each report, by name."""
    return {found[1]: line for line in text.splitlines() if (found := _INDEX_LINE.match(line))}


def index(reports: Iterable[TableReport], sample: str) -> str:
    """A page that lists the others."""
    lines = [
        "# Reproduced tables and figures",
        "",
        "Each page says which instances it rests on.",
        "",
        "| page | what | numbers compared | claims that hold | sample |",
        "|---|---|--:|--:|---|",
    ]
    for report in reports:
        holding, decided = report.holding
        claims = f"{holding} of {decided}" if decided else ""
        found = [f"[{report.name}]({report.name}.md)", report.title, str(report.compared or ""), claims, sample]
        lines.append(_line(found))
    return "\n".join([*lines, ""])


def _grid_lines(grid: Grid) -> list[str]:
    heading, *rows = grid_table(grid)
    marks = ["|---" + "|--:" * (len(heading) - 1) + "|"]
    return [_line(heading), *marks, *(_line(row) for row in rows)]


def _claim_lines(claims: Iterable[Claim]) -> list[str]:
    heading = ["| claim | published | measured | holds | instances |", "|---|---|---|---|--:|"]
    rows = [_line([c.claim, c.published, c.measured, _yes(c.holds), f"{c.instances:,}"]) for c in claims]
    return heading + rows


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell_text(cell: TableCell | None, compared: bool) -> list[str]:
    if cell is None:
        return [""] * (3 if compared else 1)
    measured = _text(cell.measured, cell.decimals)
    if cell.low is not None:
        measured += f" [{_text(cell.low, cell.decimals)}, {_text(cell.high, cell.decimals)}]"
    if not compared:
        return [measured]
    return [_text(cell.published, cell.decimals), measured, _text(cell.deviation, cell.decimals, sign=True)]


def _brief(cell: TableCell | None) -> str:
    if cell is None:
        return ""
    published = "" if cell.published is None else f" ({_text(cell.published, cell.decimals)})"
    return _text(cell.measured, cell.decimals) + published


def _text(value: float | None, decimals: int, *, sign: bool = False) -> str:
    if value is None:
        return ""
    return f"{value:{'+' if sign else ''},.{decimals}f}"


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"


def _yes(holds: bool | None) -> str:
    return "" if holds is None else ("yes" if holds else "no")


def _csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
