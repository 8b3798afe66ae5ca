"""What becomes of jobs next: from users' requests, and from what nodes said and did not say of tasks."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dfrs.engine.events import Complete, Hold, MoveRefused, PauseRefused, Ready, Unhold, Withdraw
from dfrs.live.controller import tables, views
from dfrs.live.controller.backend import Backend
from dfrs.live.controller.controller_plan import ControllerPlan, Request
from dfrs.live.controller.core_updates import CoreUpdates, submission
from dfrs.live.controller.job_updates import JobUpdates
from dfrs.live.controller.outbox import Outbox
from dfrs.live.controller.quotas import QuotaKeeper
from dfrs.live.controller.records import JobOutcome, JobRecord, TaskRecord, in_words
from dfrs.live.controller.state import ARRIVED, State, never_after
from dfrs.live.drivers.base import Exit, ExitKind
from dfrs.live.errors import ConflictError, NotFoundError
from dfrs.live.protocol.resources import Job, JobState, Restart
from dfrs.model.errors import DfrsError

MOST_TRIED = 3
"""A job that so many nodes did not start in time fails: it is the job that cannot be started."""


class Planner:
    """Makes plans for a state."""

    def __init__(self, state: State, quotas: QuotaKeeper, backend: Backend, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._backend = backend
        self.updates = CoreUpdates(state, quotas, self.end)
        """What goes into plans by itself."""
        self._changes = JobUpdates(state, quotas, self.note)

    def note(self, plan: ControllerPlan, action: str, *, job: JobRecord | None = None, **more: object) -> None:
        """Something happens with this plan."""
        state = self._state
        plan.happened.append(
            state.activity.number(
                {"time": plan.at, "job": None if job is None else job.id, "node": None} | {"action": action} | more
            )
        )

    # Users' requests.

    def apply(self, plan: ControllerPlan, requests: Iterable[Request]) -> list[Request]:
        """Do what is asked; those that have to wait for the next plan."""
        later: list[Request] = []
        for request in requests:
            if request.done.done():
                continue
            try:
                taken = self._apply_to_job(plan, request)
            except DfrsError as error:
                request.done.set_exception(error)
                continue
            if taken:
                plan.answered.append(request)
            else:
                later.append(request)
        return later

    def _apply_to_job(self, plan: ControllerPlan, request: Request) -> bool:
        job = self.open_job(int(request.subject))
        if job.id in plan.jobs:
            return False
        plan.jobs.add(job.id)
        if job.outcome is not None:
            raise ConflictError(f"job {job.id}: is ending: {job.outcome.exit}")
        if request.verb == "cancel":
            outcome = JobOutcome(state=JobState.CANCELLED, exit=f"cancelled by {request.by}", by=request.by)
            self.end(plan, job, outcome, "cancel", by=request.by)
        elif request.verb == "requeue":
            self._requeue(plan, job, request.by)
        elif request.verb == "update":
            assert request.change is not None
            if not self._changes.plan(plan, job, request.change, request.by):
                # Nothing is written that it could wait for.
                request.done.set_result(None)
        else:
            wanted, said = request.verb == "hold", request.change is not None
            if said:
                self._changes.say_held(plan, job, held=wanted)
            # What is new in the backend's own queue may be so here already.
            if not said or job.held != wanted:
                self._hold(plan, job, request, wanted=wanted)
        return True

    def evacuate(self, plan: ControllerPlan, job: JobRecord, why: str) -> None:
        """Have it begin anew elsewhere, if it may, as a node of its tasks is to be empty."""
        free = job.id not in plan.jobs and job.outcome is None and job.registered
        if free and job.request.restart is not Restart.NEVER:
            self._begin_anew(plan, job, "requeue", why)

    def _requeue(self, plan: ControllerPlan, job: JobRecord, by: str) -> None:
        if not (job.registered and job.tasks):
            raise ConflictError(f"job {job.id}: has not begun: it is in the queue")
        self._begin_anew(plan, job, "requeue", f"requeued by {by}", by=by)

    def open_job(self, number: int) -> JobRecord:
        """A job that has not ended. Raises NotFoundError or ConflictError."""
        state = self._state
        job = state.jobs.get(number)
        if job is not None:
            return job
        if number in state.ended:
            raise ConflictError(f"job {number}: has ended: {state.ended.state(number)}")
        raise NotFoundError(f"job {number}: there is no such job, or it ended long ago")

    def _hold(self, plan: ControllerPlan, job: JobRecord, request: Request, *, wanted: bool) -> None:
        if job.held == wanted:
            raise ConflictError(f"job {job.id}: is {'held already' if wanted else 'not held'}")
        # It gives its place in its array to another one.
        withdrawn = wanted and job.registered and not job.tasks and job.request.array_limit is not None
        if withdrawn:
            plan.events.append(Withdraw(job.id))
        elif job.registered:
            plan.events.append(Hold(job.id) if wanted else Unhold(job.id))
        registered = job.registered and not withdrawn
        plan.rows.append((tables.SET_JOB, {**job.columns(), "b_held": wanted, "b_registered": registered}))
        self.note(plan, request.verb, job=job, by=request.by)
        row = self._state.picture.row(job.id)

        def after() -> None:
            job.held, job.registered = wanted, registered
            if not registered:
                job.over_quota = ""
                plan.again.update(self._state.arrays.free(job))
            job.why = f"held by {request.by}" if wanted else ""
            if wanted and row is not None:
                job.row = row.copy()
            if not wanted and not job.registered:
                self._state.candidates[job.id] = None

        plan.after.append(after)

    # How jobs end.

    def end(self, plan: ControllerPlan, job: JobRecord, outcome: JobOutcome, action: str, *, by: str = "") -> None:
        """It is to end that way: now if nothing of it is on any node, or else when nothing is."""
        plan.jobs.add(job.id)
        plan.fates.add(job.id)
        if not any(task.exit is None and task.at for task in job.all_tasks):
            self.finish(plan, job, outcome, action, by=by)
            return
        plan.rows.append((tables.SET_JOB, {**job.columns(), "b_outcome": outcome.text()}))
        self.note(plan, action, job=job, why=outcome.exit, by=by)

        def after() -> None:
            job.outcome = outcome
            job.why = outcome.exit
            self._state.placement.touch(job)

        plan.after.append(after)

    def finish(
        self, plan: ControllerPlan, job: JobRecord, outcome: JobOutcome, action: str | None, *, by: str = ""
    ) -> None:
        """It has ended that way."""
        state = self._state
        plan.jobs.add(job.id)
        plan.fates.add(job.id)
        # Where the wall clock was set back since, it ends when it began: never before.
        now = max(plan.at, job.submitted_at if job.started_at is None else job.started_at)
        final = views.job(state, job, outcome=outcome, present=views.Present(state, now, plan.now_s))
        if job.registered:
            plan.events.append(Complete(job.id))
        plan.rows.append((tables.SET_JOB, {**job.columns(ended_at=now, final=final), "b_outcome": outcome.text()}))
        self._outbox.ended(plan, job, outcome, now)
        if job.key:
            plan.rows.append((tables.DROP_META, {"b_key": ARRIVED + job.key}))
        if action is not None:
            self.note(plan, action, job=job, why=outcome.exit, by=by, nodes=final.nodes[:64])
        plan.after.append(lambda: self._forget(plan, job, final, now))

    def _forget(self, plan: ControllerPlan, job: JobRecord, final: Job, now: float) -> None:
        state = self._state
        self._backend.forget(job)
        state.placement.forget(job)
        state.fair_shares.count(job, views.cpu_s(job))
        state.leave(job)
        plan.again.update(state.arrays.free(job))
        state.add_ended(final)
        state.tasks_changed = True
        state.activity.end_bars(job.id, now)
        for name in state.dependents.pop(job.id, ()):
            waiting = state.jobs.get(name)
            if waiting is None:
                continue
            waiting.waits_for -= {job.id}
            if why := never_after(waiting.request, job.id, final.state):
                waiting.failed = why
                state.placement.inspect_again((name,))
            state.candidates[name] = None

    def inspect(self, plan: ControllerPlan, names: Iterable[int]) -> None:
        """What became of jobs of which something new is known."""
        ready: list[JobRecord] = []
        for name in names:
            job = self._state.jobs.get(name)
            if job is None:
                continue
            if name in plan.jobs:
                plan.again.add(name)
                continue
            plan.seen.add(name)
            if self._inspect(plan, job):
                ready.append(job)
        self._make_ready(plan, ready)

    def _inspect(self, plan: ControllerPlan, job: JobRecord) -> bool:
        """Plan what its tasks make of it; whether it runs where it shall be."""
        if job.outcome is not None:
            if not any(task.exit is None and task.at for task in job.all_tasks):
                self.finish(plan, job, job.outcome, None)
            return False
        if job.failed and not job.registered:
            self.end(plan, job, JobOutcome(state=JobState.CANCELLED, exit=job.failed), "cancel")
            return False
        turn_up = self._state.placement.may_turn_up
        gone = next((task for task in job.tasks if _is_gone(task) and not turn_up(task)), None)
        if gone is not None:
            self._lost(plan, job, gone)
            return False
        exits = [(task.id.rank, task.exit) for task in job.tasks if task.exit is not None]
        bad = next(((rank, found) for rank, found in exits if not _is_good(found)), None)
        if bad is not None:
            self._failed(plan, job, *bad)
        elif job.tasks and len(exits) == len(job.tasks):
            self.finish(plan, job, JobOutcome(state=JobState.DONE, exit=_done(exits), code=0), "finish")
        elif (kept := next((task for task in job.tasks if _is_kept(task)), None)) is not None and job.paused:
            self._refused(plan, job, kept)
        elif (fixed := next((task for task in job.tasks if _is_fixed(task)), None)) is not None:
            self._cannot_leave(plan, job, fixed)
        else:
            row = self._state.picture.row(job.id)
            unready = row is not None and math.isinf(row["ready_s"]) and job.placed
            return unready and all(task.arrived for task in job.tasks)
        return False

    def _refused(self, plan: ControllerPlan, job: JobRecord, task: TaskRecord) -> None:
        """It was paused, and a node could not free its memory: it goes on, or keeps it while it is held."""
        if job.kept:
            return
        nodes = [each.target for each in job.tasks]
        plan.events.append(PauseRefused(job.id, np.array(nodes, np.int64)))
        why = task.at[task.target].error or "its memory could not be freed: it stays accounted for"
        self.note(plan, "kept", job=job, node=self._state.nodes[task.target].name, why=why)
        plan.jobs.add(job.id)

    def _cannot_leave(self, plan: ControllerPlan, job: JobRecord, task: TaskRecord) -> None:
        """It was to go to another host, and cannot: it goes on where it is."""
        if any(each.holder is None for each in job.tasks):
            return
        nodes = [each.holder for each in job.tasks]
        assert task.holder is not None
        why = task.at[task.holder].error or "it could not be check-pointed"
        self.note(plan, "fixed", job=job, node=self._state.nodes[task.holder].name, why=why)
        plan.events.append(MoveRefused(job.id, np.array(nodes, np.int64)))
        plan.jobs.add(job.id)

    def _failed(self, plan: ControllerPlan, job: JobRecord, rank: int, found: Exit) -> None:
        words = in_words(rank, len(job.tasks), found, job.request, self._state.memory_bytes(job.request))
        code = found.code if found.code is not None else 128 + (found.signal or 0) if found.signal else None
        self.end(plan, job, JobOutcome(state=JobState.FAILED, exit=words, code=code), "fail")

    def _lost(self, plan: ControllerPlan, job: JobRecord, task: TaskRecord) -> None:
        """A node is there, or is back, and has lost a task: the job is submitted anew, or fails."""
        state = self._state
        where = state.nodes[task.target].name if task.target >= 0 else "a node"
        said = "" if task.exit is None or not task.exit.message else f": {task.exit.message}"
        self._anew(plan, job, f"its node {where} lost it{said}", again=self.restarts(job))

    def start_elsewhere(self, plan: ControllerPlan, job: JobRecord, task: TaskRecord) -> None:
        """Its node did not start a task in time: this attempt is over, and another one begins, or the job fails.

        The node may start it yet: the next attempt waits until the node has said that it has nothing of this one.
        """
        job.not_started_on |= {task.target}
        tried = len(job.not_started_on)
        said = task.at[task.target].error
        why = f"node {self._state.nodes[task.target].name} did not start it in time{': ' if said else ''}{said}"
        if tried >= MOST_TRIED:
            why = f"{tried} nodes did not start it in time, the last one {why.removeprefix('node ')}"
        self._anew(plan, job, why, again=tried < MOST_TRIED and self.restarts(job))

    def _anew(self, plan: ControllerPlan, job: JobRecord, why: str, *, again: bool) -> None:
        """This attempt is over."""
        if not again:
            self.end(plan, job, JobOutcome(state=JobState.FAILED, exit=why), "fail")
            return
        if any(task.started for task in job.tasks):
            self.count_loss(plan, job)
        self._begin_anew(plan, job, "lost", f"{why}; queued again")

    def _begin_anew(self, plan: ControllerPlan, job: JobRecord, action: str, why: str, by: str = "") -> None:
        """It is submitted to the core once more, which ends what nodes have of this attempt."""
        plan.jobs.add(job.id)
        plan.fates.add(job.id)
        plan.events += [Complete(job.id), submission(self._state, job, plan)]
        if job.held:
            plan.events.append(Hold(job.id))
        self.note(plan, action, job=job, why=why, by=by)

    def restarts(self, job: JobRecord) -> bool:
        """Whether it is queued again if it is lost now."""
        if job.request.restart is not Restart.ON_NODE_LOSS:
            return job.request.restart is Restart.ANY_TIME
        return job.lost in {None, job.attempt} or not any(task.started for task in job.tasks)

    def count_loss(self, plan: ControllerPlan, job: JobRecord) -> None:
        """It is queued again since a node has lost it: of one that is held that is found out a second time."""
        if job.lost is None:
            lost = job.attempt
            plan.rows.append((tables.SET_LOST, {"b_id": job.id, "b_lost": lost}))
            plan.after.append(lambda: setattr(job, "lost", lost))

    def _make_ready(self, plan: ControllerPlan, jobs: Sequence[JobRecord]) -> None:
        if not jobs:
            return
        state = self._state
        rows = [state.picture.rows[job.id] for job in jobs]
        serials = np.array(sorted(state.picture.jobs["serial"][rows].tolist()), np.int64)
        plan.events.append(Ready(serials, np.full(len(serials), plan.now_s)))
        plan.jobs.update(job.id for job in jobs)
        plan.fates.update(job.id for job in jobs)
        fresh = [(job, max(plan.at, job.submitted_at)) for job in jobs if job.started_at is None]
        plan.rows += [(tables.SET_JOB, {**job.columns(), "b_started_at": at}) for job, at in fresh]
        for job, at in fresh:
            self._outbox.begun(plan, job, at)

        def after() -> None:
            for job, at in fresh:
                job.started_at = at
                plan.again.update(state.started(job))

        plan.after.append(after)


def _is_gone(task: TaskRecord) -> bool:
    if task.exit is not None:
        return task.exit.kind is ExitKind.LOST
    return task.gone


def _is_kept(task: TaskRecord) -> bool:
    observation = task.at.get(task.target)
    return observation is not None and observation.kept


def _is_fixed(task: TaskRecord) -> bool:
    holder = task.holder
    return holder is not None and holder != task.target and task.at[holder].fixed


def _is_good(found: Exit) -> bool:
    return found.kind is ExitKind.CODE and found.code == 0


def _done(exits: Sequence[tuple[int, Exit]]) -> str:
    """How a job ended well: with the first thing that a node has to say of it."""
    rank, said = next(((rank, found.message) for rank, found in exits if found.message), (0, ""))
    who = f"task {rank}: " if len(exits) > 1 else ""
    return f"done; {who}{said}" if said else "done"
