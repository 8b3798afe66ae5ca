"""Runs that a campaign saves: what `dfrs simulate` or `dfrs allocate` would have written, with a page or a picture."""

import json
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import dfrs
from dfrs.experiments.planned_runs import NotSavedError
from dfrs.model.allocation import Outcome
from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.model.run import Run
from dfrs.model.writing import write_text
from dfrs.report.allocation import draw_allocation
from dfrs.report.documents import allocation_file
from dfrs.report.run_page import fits_a_page, write_page
from dfrs.runs.directory import write_run
from dfrs.workloads.files import instance_document


def save_run(run: Run, metrics: Mapping[str, object], directory: Path) -> None:
    """A run directory, with a page to explore unless the run is too large for one. Raises NotSavedError."""
    with _whole(directory) as made:
        write_run(run, made, metrics, dfrs.__version__)
        if fits_a_page(run):
            write_page(run, made / "page.html", metrics)


def save_allocation(instance: Instance, outcome: Outcome | None, label: str, directory: Path) -> None:
    """The instance, and where there is one the allocation with its picture. Raises NotSavedError."""
    with _whole(directory) as made:
        write_text(made / "instance.json", json.dumps(instance_document(instance), indent=1) + "\n")
        if outcome is None or outcome.allocation is None:
            return
        named = outcome.named(label, outcome.runtime_s)
        write_text(made / "allocation.json", allocation_file(instance, named, source="instance.json"))
        title = f"{label}: {len(instance.services)} services on {len(instance.nodes)} nodes"
        draw_allocation(instance, outcome.allocation, outcome.bound, title, made / "allocation.png")


@contextmanager
def _whole(directory: Path) -> Generator[Path]:
    """A directory to fill, which then takes the place of `directory`: that is there whole or not at all."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as temporary:
            made = Path(temporary) / directory.name
            made.mkdir()
            yield made
            shutil.rmtree(directory, ignore_errors=True)
            made.replace(directory)
    except (OSError, InputError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error).rpartition(": ")[2]
        raise NotSavedError(f"{directory}: cannot keep the run: {cause}; what is done is kept: run again") from None
