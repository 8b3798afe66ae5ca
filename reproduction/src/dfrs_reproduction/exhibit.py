"""What every published table or group of figures declares: its name, the studies it needs, and how it is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from dfrs.experiments.spec import Campaign, Study
from dfrs.report.tables import Content, TableReport, dots
from dfrs_reproduction.metrics import ResultTable, failures
from dfrs_reproduction.sizes import Size

Needs = Mapping[str, Study]
Results = Mapping[str, ResultTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One thing that `dfrs reproduce` makes. `content` is a pure function of the studies' results.

    Its notes get what failed; content without a picture gets one of its first published numbers beside ours.
    """

    name: str
    title: str
    source: str
    needs: Callable[[Size], Needs]
    content: Callable[[Results], Content]

    def campaign(self, size: Size) -> Campaign:
        """What has to be run for it."""
        studies = tuple(self.needs(size).values())
        return Campaign(name=self.name, description=f"{self.title}. {self.source}.", studies=studies)

    def report(self, size: Size, frame: Callable[[Study], pl.DataFrame]) -> TableReport:
        """The report, from the results of each study."""
        needs = self.needs(size)
        results = {name: ResultTable(frame(study)) for name, study in needs.items()}
        content = self.content(results)
        report = TableReport(
            name=self.name,
            title=self.title,
            source=self.source,
            samples=tuple(study.sample for study in needs.values()),
            content=replace(content, notes=(*content.notes, *failures(results.values()))),
        )
        if not report.content.pictures and (picture := dots(report)) is not None:
            return replace(report, content=replace(report.content, pictures=(picture,)))
        return report
