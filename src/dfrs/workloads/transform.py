"""Parts, mixtures and other loads of a trace or a workload, and its statistics.

Everything but `describe` takes a `Swf` or a `Workload` and gives the same type.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from dfrs.model.elastic import ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.workloads.swf import COLUMNS, Swf

WEEK_S = 604_800

T = TypeVar("T", Swf, Workload)


def slice_jobs(trace: T, first: int, end: int) -> T:
    """Jobs `first` to `end` - 1 in order of submission, counted from 0; times stay. Raises InputError if none."""
    if not 0 <= first < min(end, len(trace)):
        raise InputError(f"jobs {first}:{end}: must hold some of 0:{len(trace)}")
    return _noted(trace.select(np.arange(first, min(end, len(trace)))), f"jobs {first} to {end - 1} of {trace.name}")


def slice_time(trace: T, from_s: float, to_s: float) -> T:
    """Jobs submitted from `from_s` on and before `to_s`, with the clock at 0 at `from_s`. Raises InputError if none."""
    inside = (trace.submit_s >= from_s) & (trace.submit_s < to_s)
    if not inside.any():
        raise InputError(
            f"from {from_s:g} to {to_s:g} s: no job is submitted then; "
            f"they are from {trace.submit_s[0]:.17g} to {trace.submit_s[-1]:.17g} s"
        )
    part = trace.select(inside)
    part = _resubmitted(part, part.submit_s - from_s)
    if isinstance(part, Swf) and (start := part.header_number("UnixStartTime")) is not None:
        part = part.with_header(UnixStartTime=start + round(from_s))
    return _noted(part, f"{from_s:.17g} s to {to_s:.17g} s of {trace.name}")


def week(trace: T, number: int) -> T:
    """Week `number`, from 1: seven days from (number - 1) * 604,800 s of its clock on. Raises InputError if empty."""
    last = int(trace.submit_s[-1] // WEEK_S) + 1
    if not 1 <= number <= last:
        raise InputError(f"week {number}: must be from 1 to {last}")
    part = slice_time(trace, (number - 1) * WEEK_S, number * WEEK_S)
    return part.with_columns(name=f"{trace.name}-week-{number}")


def weeks(trace: T) -> list[T]:
    """The trace in weeks, each with its own clock from 0; weeks without a job are left out, names keep their numbers.

    Weeks count from time 0 of the trace's clock (the start of the log in an archive's SWF). [Stillwell2010] section
    5.3.2: HPC2N has 182 of them.
    """
    numbers = np.unique(trace.submit_s // WEEK_S).astype(np.int64) + 1
    return [week(trace, number) for number in numbers.tolist()]


def scale_gaps(trace: T, factor: float) -> T:
    """The same jobs with all gaps between submissions multiplied by `factor`; the first stays where it is."""
    if not 0 < factor < np.inf:
        raise InputError(f"factor = {factor:g}: must be above 0 and finite")
    first = trace.submit_s[0]
    scaled = _resubmitted(trace, first + (trace.submit_s - first) * factor)
    return _noted(scaled, f"{trace.name}, gaps multiplied by {factor:.17g}")


def scale_to_load(workload: Workload, load: float) -> Workload:
    """The same jobs at offered load `load` (`Workload.load`), by one factor on all gaps ([Stillwell2010] 5.3.2)."""
    return scale_gaps(workload, gap_factor(workload, load))


def gap_factor(workload: Workload, load: float) -> float:
    """What to multiply the gaps by for offered load `load`. Raises InputError where that is impossible."""
    if not 0 < load < np.inf:
        raise InputError(f"load = {load:g}: must be above 0 and finite")
    if workload.span_s <= 0:
        raise InputError(
            f"{workload.name or 'workload'}: all jobs are submitted at one time: there are no gaps to scale"
        )
    return workload.load / load


def merge(traces: Sequence[T]) -> T:
    """All jobs of several traces on one clock and one machine: each trace's time 0 is the same instant.

    Jobs are numbered anew, 1, 2, … by submission, where a number stands in several traces; users' numbers stay. The
    header is the first one's, with the largest machine. Raises InputError for workloads on different numbers of nodes.
    """
    if not traces:
        raise InputError("merge: needs at least one trace")
    swf = isinstance(traces[0], Swf)
    labels = (*COLUMNS, "line") if swf else Workload.COLUMNS
    columns = {label: np.concatenate([getattr(trace, label) for trace in traces]) for label in labels}
    ids, submit_s = columns["job_id"], columns["submit_s"]
    bounds = np.cumsum([0, *map(len, traces)]).tolist()
    if len(np.unique(ids)) < len(ids):
        numbers = np.empty(len(ids), np.int64)
        numbers[np.argsort(submit_s, kind="stable")] = np.arange(1, len(ids) + 1)
        columns["job_id"] = numbers
        if swf:
            parts = [_renumbered(columns["preceding"][a:b], ids[a:b], numbers[a:b]) for a, b in pairwise(bounds)]
            columns["preceding"] = np.concatenate(parts)
    merged = traces[0].with_columns(**columns, name="+".join(trace.name for trace in traces))
    if isinstance(merged, Swf):
        swfs = [trace for trace in traces if isinstance(trace, Swf)]
        largest: dict[str, object] = {}
        for key in ("MaxNodes", "MaxProcs"):
            known = [trace.header_number(key) for trace in swfs]
            largest[key] = max((n for n in known if n is not None), default=None)
        if largest["MaxProcs"] is not None:
            # It counts before MaxNodes, which may be all that a larger machine says.
            largest["MaxProcs"] = max(trace.machine_processors or 0 for trace in swfs)
        return _noted(merged.with_header(**largest), f"{' and '.join(trace.name for trace in traces)} merged")
    different = sorted({trace.nodes for trace in traces if isinstance(trace, Workload)})
    if len(different) > 1:
        raise InputError(f"nodes = {', '.join(map(str, different))}: must be the same in all workloads")
    workloads = [trace for trace in traces if isinstance(trace, Workload)]
    numbered = [columns["job_id"][a:b] for a, b in pairwise(bounds)]
    return merged.with_columns(commands=_commands(workloads, numbered))


def _resubmitted(trace: T, submit_s: Floats) -> T:
    return trace.resubmitted(submit_s) if isinstance(trace, Workload) else trace.with_columns(submit_s=submit_s)


def _commands(workloads: Sequence[Workload], numbers: Sequence[Ints]) -> ElasticCommands:
    """All commands, on the jobs that now have these numbers."""
    parts = [
        replace(part := w.commands.on(w.job_id), job_id=_renumbered(part.job_id, w.job_id, new))
        for w, new in zip(workloads, numbers, strict=True)
    ]
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(ElasticCommands)}
    return ElasticCommands(**columns)


def _renumbered(references: Ints, old: Ints, new: Ints) -> Ints:
    """Job numbers `references` with `new` for `old`; -1 for those that are none of `old`."""
    order = np.argsort(old)
    at = np.minimum(np.searchsorted(old[order], references), len(old) - 1)
    return np.where(old[order][at] == references, new[order][at], -1)


def _noted(trace: T, note: str) -> T:
    """A `Swf` with a header that is true of what it is now."""
    if isinstance(trace, Workload):
        return trace
    counted = trace.with_header(MaxJobs=len(trace), MaxRecords=len(trace), StartTime=None, EndTime=None)
    return counted.with_columns(comments=(*counted.comments, f" Note: {note}"))


def describe(workload: Workload) -> dict[str, object]:
    """Statistics in JSON's types, with the unit in each key; distributions as minimum, quartiles, mean and maximum."""
    gaps = np.diff(workload.submit_s)
    users = workload.user[workload.user >= 0]
    load = workload.load
    return {
        "name": workload.name,
        "jobs": len(workload),
        "nodes": workload.nodes,
        "users": len(np.unique(users)),
        "first_submission_s": float(workload.submit_s[0]) if len(workload) else None,
        "span_s": workload.span_s,
        "span_days": workload.span_s / 86_400,
        "load": load if np.isfinite(load) else None,
        "work_node_s": float((workload.tasks * workload.run_s).sum()),
        "one_task_fraction": float((workload.tasks == 1).mean()) if len(workload) else None,
        "estimated_fraction": float(np.isfinite(workload.estimate_s).mean()) if len(workload) else None,
        "tasks": distribution(workload.tasks),
        "run_s": distribution(workload.run_s),
        "gap_s": distribution(gaps),
        "need": distribution(workload.need),
        "memory": distribution(workload.memory),
    }


def distribution(values: np.ndarray) -> dict[str, float] | None:
    """Minimum, quartiles, mean and maximum; None of nothing."""
    if not len(values):
        return None
    minimum, lower, median, upper, maximum = np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist()
    return {
        "min": minimum,
        "p25": lower,
        "median": median,
        "mean": float(values.mean()),
        "p75": upper,
        "max": maximum,
    }
