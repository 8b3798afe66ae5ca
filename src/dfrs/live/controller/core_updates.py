"""What the core is told by the controller itself: submissions, needs, prices, progress, and when the policy wakes."""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dfrs.engine.events import Amend, Progressed, Revise, Submit, Wake
from dfrs.live.controller import tables, views
from dfrs.live.controller.controller_plan import ControllerPlan
from dfrs.live.controller.quotas import QuotaKeeper
from dfrs.live.controller.records import JobOutcome, JobRecord
from dfrs.live.controller.snapshot_copy import virtual_s
from dfrs.live.controller.state import State
from dfrs.live.protocol.node_choice import number
from dfrs.live.protocol.resources import JobRequest, JobState, Restart

MOST_SUBMITTED = 5000
"""Jobs that the core is told of at once."""
PROGRESS_S = 10.0
"""How often the core is told what jobs have received ..."""
PROGRESS_LEAST_S, PROGRESS_PART = 1.0, 0.02
"""... where it differs from what they were granted by more than so many seconds, and this part."""
REBOOKED_S = 1.0
"""The core is told of a requested start again where that comes at a time of its own which differs by more."""


class CoreUpdates:
    """Plans events that nobody asked for. `end` plans the end of a job, given why and the word for the activity."""

    def __init__(
        self, state: State, quotas: QuotaKeeper, end: Callable[[ControllerPlan, JobRecord, JobOutcome, str], None]
    ) -> None:
        self._state = state
        self._quotas = quotas
        self._end = end
        self._progress_at_s = 0.0

    def submit(self, plan: ControllerPlan) -> None:
        """Tell the core of jobs that can be in its queue."""
        state = self._state
        told: list[JobRecord] = []
        through = state.arrays.chosen(self._candidates(plan), lambda job: eligible(state, job, plan.at))
        for job in self._quotas.chosen(through):
            if job.id in plan.jobs:
                plan.again.add(job.id)
                continue
            event = submission(state, job, plan)
            if event.need > 1 or event.memory > 1:
                self._end(
                    plan, job, JobOutcome(state=JobState.FAILED, exit=views.too_large(state, job.request)), "fail"
                )
                continue
            plan.jobs.add(job.id)
            plan.events.append(event)
            plan.rows.append((tables.SET_JOB, {**job.columns(), "b_registered": True}))
            told.append(job)

        def after() -> None:
            for job in told:
                job.registered = True
                state.candidates.pop(job.id, None)

        plan.after.append(after)

    def _candidates(self, plan: ControllerPlan) -> Iterator[JobRecord]:
        state = self._state
        for name in list(state.candidates)[:MOST_SUBMITTED]:
            job = state.jobs.get(name)
            if job is not None and job.id in plan.jobs:
                plan.again.add(name)
            elif job is None or not eligible(state, job, plan.at):
                # Whatever changes that makes it a candidate again.
                del state.candidates[name]
            else:
                yield job

    def revise(self, plan: ControllerPlan, needs: Mapping[int, float]) -> None:
        """Tell the core of needs that were found out."""
        for name, need in needs.items():
            job = self._state.jobs.get(name)
            if job is not None and job.registered and name not in plan.jobs:
                plan.events.append(Revise(name, min(1.0, max(need, 1e-6))))

    def price(self, plan: ControllerPlan) -> None:
        """Tell the core what pauses, resumes and moves cost, where that has changed."""
        prices = self._state.prices.changed(self._state.core.prices, plan.now_s)
        if prices is not None:
            plan.events.append(prices)
            plan.after.append(lambda: self._state.prices.tell(plan.now_s))

    def reweigh(self, plan: ControllerPlan) -> None:
        """Tell the core of weights that are others by what was used lately."""
        state = self._state
        if not state.fair_shares.due(plan.now_s):
            return
        state.fair_shares.look(state.jobs, views.cpu_s, plan.now_s)
        plan.rows.append((tables.SET_META, state.fair_shares.row()))
        if (event := state.fair_shares.changed(state.picture.jobs, state.jobs)) is not None:
            plan.events.append(event)

    def progress(self, plan: ControllerPlan) -> None:
        """Tell the core what jobs have received, now and then, where that is not what they were granted."""
        state = self._state
        if plan.now_s < self._progress_at_s:
            return
        told: list[tuple[int, float, JobRecord, float]] = []
        then_s = state.picture.snapshot.now_s
        for job in state.jobs.values():
            row, received_s = state.picture.row(job.id), views.received_virtual_s(job, plan.now_s)
            if row is None or received_s is None or not job.placed:
                continue
            granted_s = virtual_s(row, then_s, plan.now_s)
            if abs(received_s - granted_s) > PROGRESS_LEAST_S + PROGRESS_PART * granted_s:
                told.append((int(row["serial"]), received_s, job, received_s - granted_s))
        if not told:
            self._progress_at_s = plan.now_s + PROGRESS_S
            return
        told.sort(key=lambda each: each[0])
        serials, received = zip(*((serial, received_s) for serial, received_s, _, _ in told), strict=True)
        plan.events.append(Progressed(np.array(serials, np.int64), np.array(received)))

        def after() -> None:
            self._progress_at_s = plan.now_s + PROGRESS_S
            for _, _, job, more_s in told:
                job.ungranted_s += more_s

        plan.after.append(after)

    def rebook(self, plan: ControllerPlan) -> None:
        """Tell the core again of requested starts that come at another of its times now: the wall clock was set."""
        jobs = self._state.picture.jobs
        for row in np.flatnonzero(jobs["requested_start_s"] > plan.now_s).tolist():
            job, told_s = self._state.jobs.get(int(jobs["id"][row])), float(jobs["requested_start_s"][row])
            if job is None or job.id in plan.jobs or job.tasks or job.request.start_at is None:
                continue
            start_s = max(plan.now_s, plan.time_s(job.request.start_at))
            if abs(start_s - told_s) > REBOOKED_S:
                plan.jobs.add(job.id)
                plan.events.append(Amend(job.id, requested_start_s=start_s))

    def wake(self, plan: ControllerPlan) -> None:
        """Ask the policy when it wanted to be asked."""
        wake_at_s = self._state.picture.wake_at_s
        if wake_at_s is not None and wake_at_s <= plan.now_s:
            plan.events.append(Wake())


def eligible(state: State, job: JobRecord, now: float) -> bool:
    """Whether the core may be told of a job, at that time of the wall clock."""
    if job.registered or job.held or job.waits_for or job.failed or job.outcome or state.reference_cores is None:
        return False
    return not is_early(state, job.request, now)


def is_early(state: State, request: JobRequest, now: float) -> bool:
    """Whether its requested start is to come, and the policy is not one that is told of it."""
    return request.start_at is not None and not state.knows_dedicated and now < request.start_at


def submission(state: State, job: JobRecord, plan: ControllerPlan, request: JobRequest | None = None) -> Submit:
    """As the core is told of it, with `request` instead of its own if there is one.

    A need or memory above 1 is more than a reference node has.
    """
    request = request or job.request
    assert state.reference_bytes is not None
    start_s = math.nan if request.start_at is None else plan.time_s(request.start_at)
    if not state.knows_dedicated or not start_s > plan.now_s:
        start_s = math.nan
    return Submit(
        job.id,
        request.tasks,
        state.need(request),
        state.memory_bytes(request) / state.reference_bytes,
        estimate_s=math.nan if request.estimate_s is None else request.estimate_s,
        weight=request.weight * state.fair_shares.factor(request, job.user),
        user=state.user_number(job.user),
        requested_start_s=start_s,
        minimum=request.minimum_yield,
        restartable=request.restart is Restart.ANY_TIME,
        constraint=number(request),
        resources=tuple(sorted(request.resources.items())),
        alone=request.exclusive,
    )
