"""[Kumar2011] Figure 1: LOS and EASY on real logs (section III)."""

from pathlib import Path

from dfrs.experiments.fields import spread
from dfrs.experiments.files import find_trace
from dfrs.experiments.kinds.online import OnlineConfiguration
from dfrs.experiments.sources.traces import TraceSource
from dfrs.experiments.spec import Study
from dfrs.model.errors import InputError
from dfrs.report.curves import Picture
from dfrs.report.tables import Content
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.kumar2011 import elastic
from dfrs_reproduction.kumar2011.loads import SUBTITLE
from dfrs_reproduction.sizes import Size

_JOBS = 2_000
_LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_LOGS = {
    "SDSC-BLUE-2000-4.2-cln.swf.gz": ("SDSC Blue Horizon", 116),
    "KTH-SP2-1996-2.1-cln-REBUILT.swf.gz": ("KTH", 14),
}
"""What each log is called, and how many whole parts of so many jobs it has."""

_LOG = (
    "The document's log, SDSC SP2, is not at hand. Ours are parts of 2,000 jobs of SDSC Blue Horizon (1,152 "
    "processors) and of the SP2 of KTH (100), one of the logs on which, by the document, others found LOS better. All "
    "gaps between submissions of a part are multiplied by one factor for a load. Estimates are the users' own, but "
    "never below the run time. Parts are taken as independent."
)
NO_LOGS = (
    "There is nothing of a log here that is not there: put SDSC-BLUE-2000-4.2-cln.swf.gz and "
    "KTH-SP2-1996-2.1-cln-REBUILT.swf.gz of the Parallel Workloads Archive "
    "(https://www.cs.huji.ac.il/labs/parallel/workload/) into a directory, and set DFRS_TRACES to that."
)
_POLICIES = ("EASY", "LOS")


def _needs(size: Size) -> Needs:
    return {name: study for file, (name, parts) in _LOGS.items() if (study := _study(file, name, parts, size))}


def _study(file: str, name: str, parts: int, size: Size) -> Study | None:
    """Parts of a log spread evenly over it; None where it is not there."""
    try:
        find_trace(file, Path())
    except InputError:
        return None
    firsts = [_JOBS * part for part, _ in spread(parts, min(parts, size.elastic_slices))]
    sources = [
        TraceSource(
            name=f"{name}, jobs {first}:{first + _JOBS}",
            file=file,
            annotate="none",
            estimates="raised",
            jobs=f"{first}:{first + _JOBS}",
            loads=_LOADS,
        )
        for first in firsts
    ]
    told = f"{name}: {len(firsts)} of its {parts} parts of {_JOBS:,} jobs, each scaled to load 0.5 to 0.95; 2 policies."
    configurations = tuple(OnlineConfiguration(label=policy, policy=policy) for policy in _POLICIES)
    return Study(name=name, sample=told, sources=tuple(sources), configurations=configurations)


def _content(results: Results) -> Content:
    lacking = (NO_LOGS,) if len(results) < len(_LOGS) else ()
    if not results:
        return Content(notes=lacking)
    labels = {"LOS": elastic.style("LOS")}
    panels = [
        panel
        for name, data in results.items()
        for panel in (
            elastic.panel(data, _POLICIES, elastic.WAIT, name, hours=True),
            elastic.over_panel(data, labels, "EASY", name),
        )
    ]
    picture = Picture(
        name="kumar2011-figure-1",
        title="LOS and EASY on real logs ([Kumar2011] Figure 1)",
        subtitle=SUBTITLE.replace("seeds", "parts"),
        panels=tuple(panels),
    )
    claims = [
        elastic.better_claim(f"{name}: LOS outperforms EASY at every load: mean wait", data, "LOS", "EASY")
        for name, data in results.items()
    ]
    grids = tuple(elastic.means_grid(data, _POLICIES, name) for name, data in results.items())
    return Content(grids=grids, claims=tuple(claims), pictures=(picture,), notes=(_LOG, *lacking))


EXHIBIT = Exhibit(
    name="kumar2011-figure-1",
    title="[Kumar2011] Figure 1: LOS and EASY on real logs",
    source="[Kumar2011] section III, Figure 1",
    needs=_needs,
    content=_content,
)
