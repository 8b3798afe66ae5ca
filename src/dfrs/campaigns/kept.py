"""Runs that a campaign keeps: what `dfrs simulate` or `dfrs allocate` would have written, with a page or a picture."""

import json
from collections.abc import Mapping
from pathlib import Path

import dfrs
from dfrs.model.allocation import Outcome
from dfrs.model.instance import Instance
from dfrs.model.run import Run
from dfrs.report.allocation import draw_allocation
from dfrs.report.documents import allocation_file
from dfrs.report.run_page import fits_a_page, write_page
from dfrs.report.runs import write_run
from dfrs.workloads.files import instance_document
from dfrs.workloads.writing import write_text

FRONTS = ("page.html", "allocation.png", "summary.json", "instance.json")
"""What to open first of a kept run: the first of these that is there."""


def keep_run(run: Run, metrics: Mapping[str, object], directory: Path) -> None:
    """A run directory, with a page to explore unless the run is too large for one."""
    write_run(run, directory, metrics, dfrs.__version__)
    if fits_a_page(run):
        write_page(run, directory / "page.html", metrics)


def keep_allocation(instance: Instance, outcome: Outcome, label: str, directory: Path) -> None:
    """The instance, and where there is one the allocation with its picture. Raises InputError on a full disk."""
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / "instance.json", json.dumps(instance_document(instance), indent=1) + "\n")
    if outcome.allocation is None:
        return
    named = outcome.named(label, outcome.runtime_s)
    write_text(directory / "allocation.json", allocation_file(instance, named, source="instance.json"))
    title = f"{label}: {len(instance.services)} services on {len(instance.nodes)} nodes"
    draw_allocation(instance, outcome.allocation, outcome.bound, title, directory / "allocation.png")


def front(directory: Path) -> Path | None:
    """What to open first of a kept run; None where nothing is kept."""
    return next((path for name in FRONTS if (path := directory / name).is_file()), None)
