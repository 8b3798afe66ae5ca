"""Lower bound on the maximum stretch: the optimum of a clairvoyant scheduler with fluid CPU ([Stillwell2010] 5.1.2).

By Theorem 1 a maximum stretch S can be reached, if memory, penalties and packing are left out, iff each job j can get
its work p_j * w_j (w_j = need * tasks) between r_j and r_j + S * p_j, at most at rate w_j, all jobs together at most at
rate C. By max-flow min-cut that holds iff every set A of jobs passes its own cut: the sum of work over A is at most the
integral of min(C, sum of the rates of the jobs of A whose window it is). A set that fails at S fails at all stretches
below the root of its cut, so a discrete Newton method climbs from root to root: every value it visits is a lower bound,
and the first at which all jobs can be served is the optimum.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.bounds.stretch_flow import Part, Problem, Timeline
from dfrs.kernels import stretch as kernels
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.jobs import Workload

PROGRESS = 1e-11
"""Relative step below which a cut only shows rounding; the bound is the optimum up to this."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StretchSchedule:
    """A schedule that reaches the bound: K amounts of work in T intervals, as x_jt of Theorem 1."""

    times_s: Floats
    """(T + 1,) ends of the intervals, increasing."""
    job: Ints
    """(K,) index into the workload, increasing."""
    interval: Ints
    """(K,) index of the interval."""
    work: Floats
    """(K,) work done then, in reference nodes times seconds, above 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Certificate:
    """Why the optimum is not smaller, and not larger."""

    jobs: Ints
    """Critical set: indices into the workload, increasing. At any smaller stretch they lack capacity by themselves."""
    shortfall: float
    """Largest part of its work that a job lacks at the bound; 0 up to rounding where the bound is the optimum."""
    schedule: StretchSchedule | None
    """Only on request."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StretchBound:
    """A lower bound on the maximum stretch of any schedule."""

    value: float
    """At least 1."""
    certificate: Certificate
    iterations: int
    """Stretches at which all jobs were tried."""


def stretch_bound(
    workload: Workload,
    *,
    capacity: float | None = None,
    tau_s: float = 0.0,
    near: Ints | None = None,
    schedule: bool = False,
) -> StretchBound:
    """The least maximum stretch that any schedule can have, by Theorem 1; the bounded stretch with `tau_s` above 0.

    The bounded stretch is max(flow time, tau) / max(run time, tau): at most S, for S >= 1, where a job is done by
    r_j + S * max(p_j, tau).

    `capacity` is the CPU of all nodes together in reference nodes; by default that of the workload's nodes. A workload
    without jobs has the bound 1. `near`, the critical set of a bound that is like this one, as for another `tau_s`, is
    where it begins to look: that saves time where it is nearly critical here, too. With `schedule`, the certificate
    has one that reaches the bound. The value passes the optimum by no more than its last digit and, up to rounding (see
    `shortfall`), is it. Every job counts: leave out those that will be refused. A dedicated job counts from its
    requested start; users' commands do not count.
    Raises InputError where `capacity` is not positive and finite.
    """
    total = float(workload.nodes) if capacity is None else float(capacity)
    if not (total > 0 and np.isfinite(total)):
        raise InputError(f"capacity = {capacity}: must be above 0 and finite")
    if not len(workload):
        certificate = Certificate(
            jobs=np.zeros(0, np.int64), shortfall=0.0, schedule=_no_schedule() if schedule else None
        )
        return StretchBound(value=1.0, certificate=certificate, iterations=0)
    order = np.argsort(workload.release_s, kind="stable")
    release_s, run = workload.release_s[order], workload.run_s[order]
    origin = float(release_s[0])
    rate = (workload.need * workload.tasks)[order]
    problem = Problem(release_s - origin, np.maximum(run, tau_s), run, rate, total)
    alone = problem.work / (total * problem.scale)
    value, critical = max(1.0, float(alone.max())), np.array([int(alone.argmax())])
    if near is not None and len(near):
        members = np.flatnonzero(np.isin(order, near))
        root = _root(problem, members, value)
        if root > value:
            value, critical = root, members
    iterations = 0
    while True:
        iterations += 1
        timeline = Timeline(problem, value)
        step = _failing(timeline, value)
        if step is None:
            break
        value, critical = step
    certificate = Certificate(
        jobs=np.sort(order[critical]),
        shortfall=max(float((timeline.flow.missing / problem.work).max()), 0.0),
        schedule=_schedule(timeline.whole(), origin, order) if schedule else None,
    )
    return StretchBound(value=value, certificate=certificate, iterations=iterations)


def _failing(timeline: Timeline, stretch: float) -> tuple[float, Ints] | None:
    """A larger stretch that is still a lower bound, with its critical set; None where all jobs can be served.

    Jobs are tried one by one, those that lack most first: the cut of one such job is local, so its root is larger
    than that of a minimum cut, which adds up what happens at unrelated times.
    """
    for job in timeline.unserved:
        members = timeline.cut(job)
        if not len(members):
            continue
        root = _root(timeline.problem, members, stretch)
        if root > stretch * (1.0 + PROGRESS):
            return root, members
    return None


def _root(problem: Problem, members: Ints, stretch: float) -> float:
    """The least stretch, from `stretch` on, at which the cut of these jobs has room for their work."""
    columns = (problem.submit, problem.scale, problem.rate, problem.work)
    return float(kernels.least_stretch(*columns, members, problem.capacity, stretch)[0])


def _schedule(part: Part, origin: float, order: Ints) -> StretchSchedule:
    network, flow = part.network, part.flow
    used = np.flatnonzero(flow.amount > 0.0)
    row = np.searchsorted(network.edge + network.begin, used, side="right") - 1
    interval, job = used - network.edge[row], order[part.jobs[row]]
    by_job = np.argsort(job, kind="stable")
    return StretchSchedule(
        times_s=network.times + origin,
        job=job[by_job],
        interval=interval[by_job],
        work=flow.amount[used][by_job],
    )


def _no_schedule() -> StretchSchedule:
    none = np.zeros(0, np.int64)
    return StretchSchedule(times_s=np.zeros(1), job=none, interval=none, work=np.zeros(0))
