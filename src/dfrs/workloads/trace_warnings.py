"""Warnings about a trace: which rules it breaks, where, and what was done about it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Ints

SHOWN = 10
"""Examples kept of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One place where a rule was not met."""

    line: int
    """From 1; 0 where the job did not come from a file, or from one without lines that mean anything."""
    field: str
    value: str

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.field} = {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWarning:
    """All places where one rule was not met, and how they were handled."""

    rule: str
    handled: str
    count: int
    examples: tuple[Example, ...]
    """The first ten."""

    def refusal(self, source: str) -> InputError:
        """The error to raise where this may not be."""
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        first = self.examples[0]
        return InputError(f"{source}:{first.line}: {first.field} = {first.value}: {self.rule}{more}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """What the reader of a trace, and whoever made a workload of it, noticed."""

    source: str = ""
    lines: int = 0
    """Lines that should have been jobs."""
    warnings: tuple[TraceWarning, ...] = ()

    def and_(self, warnings: Iterable[TraceWarning]) -> Self:
        """The report with more warnings; rules that were never broken are left out."""
        return replace(self, warnings=(*self.warnings, *(o for o in warnings if o.count)))

    def document(self) -> dict[str, object]:
        """The report in JSON's types."""
        return {
            "source": self.source,
            "lines": self.lines,
            "odd": [
                {
                    "rule": o.rule,
                    "handled": o.handled,
                    "count": o.count,
                    "examples": [{"line": e.line, "field": e.field, "value": e.value} for e in o.examples],
                }
                for o in self.warnings
            ],
        }


def trace_warning(rule: str, handled: str, bad: Bools, line: Ints, field: str, values: np.ndarray) -> TraceWarning:
    """The warning about the rows where `bad` (J,), which stood in lines `line` (J,) with `values` (J,) in `field`."""
    rows = np.flatnonzero(bad)
    examples = [
        Example(line=int(line[k]), field=field, value=f"{float(values[k]):.17g}") for k in islice(rows.tolist(), SHOWN)
    ]
    return TraceWarning(rule=rule, handled=handled, count=len(rows), examples=tuple(examples))
