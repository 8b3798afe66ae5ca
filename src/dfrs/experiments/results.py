"""What came out of a campaign: its runs' results in their order, and what the store lacks."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from dfrs.experiments.planned_runs import FAILED, PlannedRun
from dfrs.experiments.spec import Campaign, Study
from dfrs.experiments.store import Store

NAMES = ("study", "source", "case", "algorithm")
"""Columns that a study adds: `source` names the workloads or instances, `case` is the scenario's name,
`algorithm` the configuration's label."""
TIMES = ("runtime_s", "cell_s")
"""Columns that differ when a run is repeated."""


def study_frame(study: Study, store: Store) -> pl.DataFrame:
    """The results of a study: NAMES and the columns of its kind. Runs without a result are left out.

    Rows are in the order of the runs, whatever the order they were executed in.
    """
    asked = [
        (study.name, source.name, run.scenario.name, run.configuration.label, run.key)
        for source in study.sources
        for run in study.runs_of(source)
    ]
    frame = pl.DataFrame(asked, schema=dict.fromkeys((*NAMES, "key"), pl.String), orient="row")
    return frame.join(store.results(study.kind), on="key", how="inner", maintain_order="left")


def campaign_frame(campaign: Campaign, store: Store) -> pl.DataFrame:
    """The results of all studies, one below the other; columns that one kind does not have are null there."""
    return pl.concat([study_frame(study, store) for study in campaign.studies], how="diagonal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many runs of a study have a result, failed, and how long they took, in seconds of one core."""

    study: str
    runs: int
    done: int
    failed: int
    seconds: float


def progress_of(study: Study, store: Store) -> Progress:
    """What the store has of a study."""
    frame = study_frame(study, store)
    failed = int((frame["status"] == FAILED).sum())
    return Progress(
        study=study.name,
        runs=len(study.runs),
        done=len(frame) - failed,
        failed=failed,
        seconds=float(frame["cell_s"].fill_null(0.0).sum()),
    )


def failed_runs(runs: Sequence[PlannedRun], store: Store) -> list[tuple[PlannedRun, str]]:
    """Runs that failed, with the message."""
    found: list[tuple[PlannedRun, str]] = []
    for kind in {run.kind.name: run.kind for run in runs}.values():
        frame = store.results(kind).filter(pl.col("status") == FAILED)
        messages = dict(zip(frame["key"].to_list(), frame["message"].to_list(), strict=True))
        found += [(run, messages[run.key]) for run in runs if run.kind is kind and run.key in messages]
    return found
