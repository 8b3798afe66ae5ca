"""One HTML page for a run: a file that opens anywhere, with its data, its style and its script inside.

The page's Gantt diagram, timelines and table are drawn by the browser from the log itself, so one can look at any hour
of it; the jobs' stories are those of `dfrs explain`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs.model.run import Action, Run
from dfrs.report.clock import clock
from dfrs.report.explain import StoryStep, stories
from dfrs.report.gantt import JOB_COLOURS, busiest, colour_index
from dfrs.report.page_parts import assemble, pack, write
from dfrs.report.timeline import resample
from dfrs.runs.metrics.intervals import penalties
from dfrs.runs.metrics.schedule import summarize, utilisation_timeline, yield_timeline

MOST_JOBS, MOST_CHANGES = 20_000, 300_000
"""Larger runs make a page that no browser likes."""

_STEPS = 20_000
"""Timelines longer than this are resampled to so many columns."""

_ACTIONS = ("submit", "refused", "shares", "command", *(action.name.lower() for action in Action))


def fits_a_page(run: Run) -> bool:
    """Whether a run is small enough to be looked at in one page."""
    return len(run.workload) <= MOST_JOBS and len(run.events) <= MOST_CHANGES


def page(run: Run, metrics: Mapping[str, object] | None = None) -> str:
    """The page as text. `metrics` are those of the summary; computed anew where they are not given.

    Raises InputError where the run is too large, see `fits_a_page`.
    """
    if not fits_a_page(run):
        raise InputError(
            f"{run.policy}: {len(run.workload)} jobs and {len(run.events)} changes are too many for a page: "
            f"at most {MOST_JOBS} and {MOST_CHANGES}"
        )
    known = dict(metrics) if metrics is not None else dict(summarize(run))
    return assemble(
        "run.html",
        title=f"{run.policy} on {run.workload.name or 'the workload'}",
        styles=("base.css", "run.css"),
        scripts=("base.js", "data.js", "draw.js", "run.js"),
        document=_document(run, known),
    )


def write_page(run: Run, path: Path, metrics: Mapping[str, object] | None = None) -> None:
    """Write the page to `path`. Raises InputError where that cannot be done."""
    write(page(run, metrics), path)


def _document(run: Run, metrics: Mapping[str, object]) -> dict[str, Any]:
    work = run.workload
    begin_s = float(work.submit_s[0]) if len(work) else 0.0
    return {
        "policy": run.policy,
        "workload": work.name or "the workload",
        "complete": run.complete,
        "begin": begin_s,
        "end": max(run.end_s, begin_s + 1.0),
        "busy": list(busiest(run, 6 * 3600.0)),
        "refused": len(run.refused),
        "cpu": pack(run.capacity[:, 0], "f4"),
        "palette": list(JOB_COLOURS),
        "tiles": _tiles(run, metrics),
        "metrics": dict(metrics),
        "bound": metrics.get("stretch_bound"),
        "jobs": _jobs(run),
        "events": _events(run),
        "actions": [action.name.lower() for action in Action],
        "timeline": _timeline(run),
        "steps": list(_ACTIONS),
        "stories": _stories(run),
    }


def _jobs(run: Run) -> dict[str, Any]:
    work = run.workload
    return {
        "id": work.job_id.tolist(),
        "user": work.user.tolist(),
        "tasks": pack(work.tasks, "i4"),
        "submit": pack(work.release_s, "f8"),
        "need": pack(work.need, "f4"),
        "memory": pack(work.memory, "f4"),
        "run": pack(run.process_s, "f8"),
        "start": pack(run.start_s, "f8"),
        "finish": pack(run.finish_s, "f8"),
        "stretch": pack(run.stretch, "f8"),
        "pauses": pack(run.count(Action.PAUSE), "i4"),
        "migrations": pack(run.count(Action.MIGRATE), "i4"),
        "colour": pack(colour_index(run), "u1"),
    }


def _events(run: Run) -> dict[str, Any]:
    """The log; equal lists of nodes are stored once."""
    events = run.events
    known: dict[bytes, int] = {}
    which = [known.setdefault(events.nodes_of(row).tobytes(), len(known)) for row in range(len(events))]
    lists = [np.frombuffer(key, dtype=events.nodes.dtype) for key in known]
    return {
        "time": pack(events.time_s, "f8"),
        "job": pack(events.job, "i4"),
        "action": pack(events.action, "u1"),
        "yield": pack(events.yield_, "f4"),
        "why": pack(events.why, "u2"),
        "penalty": pack(penalties(run), "f4"),
        "list": pack(which, "u4"),
        "first": pack(np.cumsum([0, *map(len, lists)]), "u4"),
        "nodes": pack(np.concatenate(lists) if lists else np.zeros(0, np.int64), "u4"),
        "reasons": list(events.reasons),
    }


def _timeline(run: Run) -> dict[str, Any]:
    yields, used = yield_timeline(run), utilisation_timeline(run)
    cpu, memory = (max(float(c), 1e-300) for c in run.capacity.sum(axis=0))
    low = _thin(yields.time_s, {"minimum": yields.minimum, "median": yields.median})
    levels: dict[str, Floats] = {
        "cpu": used.cpu / cpu,
        "idle": (used.cpu - used.useful_cpu) / cpu,
        "memory": used.memory / memory,
        "running": used.running.astype(float),
        "paused": used.paused.astype(float),
        "waiting": used.waiting.astype(float),
    }
    return {"yields": low, "levels": _thin(used.time_s, levels)}


def _thin(time_s: Floats, series: Mapping[str, Floats]) -> dict[str, str]:
    if len(time_s) > _STEPS:
        edges = np.linspace(time_s[0], time_s[-1], _STEPS + 1)
        series = {
            name: (r.low if name == "minimum" else r.mean)
            for name, values in series.items()
            for r in [resample(time_s, values, edges)]
        }
        time_s = edges
    return {"time": pack(time_s, "f8")} | {name: pack(values, "f4") for name, values in series.items()}


def _stories(run: Run) -> list[list[Any]]:
    """For each job its summary, then time, action, virtual time and text of each step."""
    return [[story.summary, *(_step(step) for step in story.steps)] for story in stories(run, range(len(run.workload)))]


def _step(step: StoryStep) -> list[Any]:
    return [round(step.time_s, 3), _ACTIONS.index(step.action), round(step.virtual_s, 1), step.text]


def _tiles(run: Run, metrics: Mapping[str, object]) -> list[list[str]]:
    """What one wants to know first: name, figure, and what it is compared with."""
    bound, ratio = metrics.get("stretch_bound"), metrics.get("degradation_from_bound")
    distance = (
        f"{_figure(ratio)} times the bound of {_figure(bound)}" if ratio is not None else "flow / processing time"
    )
    finished, jobs = metrics.get("jobs_finished"), len(run.workload)
    span = float(run.end_s - run.workload.submit_s[0]) if jobs else 0.0
    return [
        ["worst stretch", _figure(metrics.get("stretch_max")), distance],
        ["mean stretch", _figure(metrics.get("stretch_mean")), f"median {_figure(metrics.get('stretch_p50'))}"],
        ["least yield", _figure(metrics.get("minimum_yield_mean")), "of running jobs, mean over time"],
        ["CPU", _percent(metrics.get("cpu_utilisation")), f"{_percent(metrics.get('useful_cpu_utilisation'))} useful"],
        ["memory", _percent(metrics.get("memory_utilisation")), "mean over time"],
        ["pauses", _figure(metrics.get("pauses_per_job")), f"a job, {_figure(metrics.get('pauses'))} in all"],
        [
            "migrations",
            _figure(metrics.get("migrations_per_job")),
            f"a job, {_figure(metrics.get('migrations'))} in all",
        ],
        ["finished", f"{_figure(finished)}", f"of {jobs:,} jobs in {clock(span)}"],
    ]


def _figure(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def _percent(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, float) else "–"
