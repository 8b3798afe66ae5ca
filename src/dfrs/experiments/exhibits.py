"""Published tables and figures that `dfrs reproduce` makes again: they are in packages of their own.

Such a package has one entry point, which leads to an object with the methods of `ExhibitCatalogue`:

    [project.entry-points."dfrs.reproduction"]
    papers = "dfrs_reproduction.catalogue"
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

import polars as pl

from dfrs.experiments.spec import Campaign, Study
from dfrs.model.errors import InputError
from dfrs.report.tables import TableReport

GROUP = "dfrs.reproduction"


class SampleSize(Protocol):
    """How much of each published set is run."""

    @property
    def name(self) -> str:
        """As reports call it."""
        ...


class PublishedExhibit(Protocol):
    """A published table or figure."""

    @property
    def name(self) -> str:
        """As users type it."""
        ...

    @property
    def title(self) -> str:
        """What it shows."""
        ...

    @property
    def source(self) -> str:
        """Where it was published."""
        ...

    def campaign(self, size: SampleSize, /) -> Campaign:
        """What has to be run for it, on a sample."""
        ...

    def report(self, size: SampleSize, frame: Callable[[Study], pl.DataFrame], /) -> TableReport:
        """Published and measured numbers side by side, from the results of each study."""
        ...


class ExhibitCatalogue(Protocol):
    """All that a package has."""

    def choose(self, names: list[str], /) -> list[PublishedExhibit]:
        """By name or pattern, all if none is given. Raises InputError with the nearest names."""
        ...

    def parse_size(self, text: str, /) -> SampleSize:
        """`quick`, `standard`, `full` or a share. Raises InputError."""
        ...


def find_exhibits() -> ExhibitCatalogue:
    """Those of the installed package. Raises InputError that says how to install it."""
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    if not found:
        raise InputError(
            "published tables and figures are not installed: in a checkout of dfrs, pip install -e reproduction"
        )
    return found[0].load()
