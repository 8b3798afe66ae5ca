"""What came out of a campaign: its cells' results in their order, and what the store lacks."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from dfrs.experiments.planned_runs import FAILED, PlannedRun
from dfrs.experiments.spec import Campaign, Study
from dfrs.experiments.store import Store

NAMES = ("study", "source", "case", "algorithm")
"""Columns that a study adds: `source` names the workloads or instances, `algorithm` is the entry's label."""
TIMES = ("runtime_s", "cell_s")
"""Columns that are otherwise when a cell is run again."""


def study_frame(study: Study, store: Store) -> pl.DataFrame:
    """The results of a study: NAMES and the columns of its kind. Cells without a result are left out.

    Rows are in the order of the cells, whatever the order they were run in.
    """
    asked = [
        (study.name, source.name, cell.case.name, cell.entry.label, cell.key)
        for source in study.sources
        for cell in study.cells_of(source)
    ]
    frame = pl.DataFrame(asked, schema=dict.fromkeys((*NAMES, "key"), pl.String), orient="row")
    return frame.join(store.results(study.kind), on="key", how="inner", maintain_order="left")


def campaign_frame(campaign: Campaign, store: Store) -> pl.DataFrame:
    """The results of all studies, one below the other; columns that one kind does not have are null there."""
    return pl.concat([study_frame(study, store) for study in campaign.studies], how="diagonal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many cells of a study have a result, failed, and how long they took, in seconds of one core."""

    study: str
    cells: int
    done: int
    failed: int
    seconds: float


def progress_of(study: Study, store: Store) -> Progress:
    """What the store has of a study."""
    frame = study_frame(study, store)
    failed = int((frame["status"] == FAILED).sum())
    return Progress(
        study=study.name,
        cells=len(study.cells),
        done=len(frame) - failed,
        failed=failed,
        seconds=float(frame["cell_s"].fill_null(0.0).sum()),
    )


def failed_cells(cells: Sequence[PlannedRun], store: Store) -> list[tuple[PlannedRun, str]]:
    """Cells that failed, with the message."""
    found: list[tuple[PlannedRun, str]] = []
    for kind in {cell.kind.name: cell.kind for cell in cells}.values():
        frame = store.results(kind).filter(pl.col("status") == FAILED)
        messages = dict(zip(frame["key"].to_list(), frame["message"].to_list(), strict=True))
        found += [(cell, messages[cell.key]) for cell in cells if cell.kind is kind and cell.key in messages]
    return found
