"""Jobs that their users change: what becomes of that, in the record, in the core, and in what the job waits for.

One that has not begun is as if it had been submitted so, and keeps its place in the queue, unless it has to wait for
something now before the policy is told of it: then it is taken back. Of one that has begun only `ONCE_BEGUN` changes.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from dfrs.engine.events import Amend, Withdraw
from dfrs.live.controller import tables, views
from dfrs.live.controller.controller_plan import ControllerPlan, JobChange
from dfrs.live.controller.core_updates import is_early, submission
from dfrs.live.controller.quotas import QuotaKeeper
from dfrs.live.controller.records import JobRecord
from dfrs.live.controller.state import State
from dfrs.live.errors import ConflictError
from dfrs.live.protocol.job_update import ONCE_BEGUN, changed
from dfrs.live.protocol.resources import DEPENDENCIES, JobRequest
from dfrs.model.amounts import show_bytes, show_cores, show_seconds
from dfrs.model.errors import InputError

NONE = "none"
SHOWN = 5
"""Jobs of a list that the activity names."""


def _names(jobs: tuple[int, ...]) -> str:
    more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    return ", ".join(map(str, jobs[:SHOWN])) + more or NONE


_WORDS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "name": ("name", str),
    "cpu_cores": ("CPU", lambda cores: f"{show_cores(cores)} cores"),
    "memory_bytes": ("memory", show_bytes),
    "minimum_yield": ("minimum yield", lambda part: f"{part:g}"),
    "weight": ("weight", lambda weight: f"{weight:g}"),
    "estimate_s": ("estimate", show_seconds),
    "time_limit_s": ("limit", show_seconds),
    "warning_signal": ("warning", str),
    "warning_s": ("time of the warning", show_seconds),
    "start_at": ("requested start", lambda at: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))),
    "after": ("after", _names),
    "after_failed": ("after the failure of", _names),
    "after_any": ("after the end of", _names),
    "after_start": ("after the start of", _names),
    "array_limit": ("limit of its array", str),
}
"""What each field is called, and how its values are shown."""


def in_words(before: JobRequest, after: JobRequest, names: list[str]) -> str:
    """What is otherwise: `limit 1h to 2h`."""
    parts: list[str] = []
    for name in names:
        word, show = _WORDS[name]
        values = (getattr(request, name) for request in (before, after))
        parts.append(f"{word} {' to '.join(NONE if value is None else show(value) for value in values)}")
    return ", ".join(parts)


class JobUpdates:
    """Plans them. `note` is `Planner.note`."""

    def __init__(self, state: State, quotas: QuotaKeeper, note: Callable[..., None]) -> None:
        self._state = state
        self._quotas = quotas
        self._note = note

    def plan(self, plan: ControllerPlan, job: JobRecord, change: JobChange, by: str) -> bool:
        """Change a job; whether there is anything to change.

        Raises InputError where it cannot be like that, ConflictError where it cannot now.
        """
        request = changed(job.request, change.fields)
        names = [name for name in change.fields if getattr(request, name) != getattr(job.request, name)]
        if not names:
            return False
        self._check(job, request, names)
        depends = not set(names).isdisjoint(DEPENDENCIES)
        before = not job.tasks and self._before_the_queue(plan, job, request, change if depends else None)
        stays = not before and self._has_room(job, request)
        withdrawn = job.registered and not stays
        if withdrawn:
            plan.events.append(Withdraw(job.id))
            plan.rows.append((tables.SET_JOB, {**job.columns(), "b_registered": False}))
        elif job.registered and (event := self._amendment(plan, job, request, names)) is not None:
            plan.events.append(event)
        told = request.model_dump(mode="json", include=set(names))
        changes = {**job.changes, **told}
        plan.rows.append((tables.SET_CHANGES, {"b_id": job.id, "b_changes": json.dumps(changes)}))
        self._note(plan, "update", job=job, why=in_words(job.request, request, names), by=by)

        def after() -> None:
            job.request, job.changes, job.revision = request, changes, job.revision + 1
            job.registered = job.registered and not withdrawn
            if not job.tasks:
                job.spec = None
            if depends:
                self._state.unlink(job)
                self._state.link(job, change.ended)
            if before:
                job.over_quota = ""
            if not (job.registered or job.over_quota):
                self._state.candidates[job.id] = None
            plan.again.update({job.id} if job.failed else ())
            plan.again.update(self._state.arrays.free(job))
            # Whether its need is declared.
            self._state.tasks_changed = True

        plan.after.append(after)
        return True

    def say_held(self, plan: ControllerPlan, job: JobRecord, *, held: bool) -> None:
        """Its user holds it in the backend's own queue, or no longer does: its request says so from now on."""
        changes = {**job.changes, "held": held}
        plan.rows.append((tables.SET_CHANGES, {"b_id": job.id, "b_changes": json.dumps(changes)}))

        def after() -> None:
            job.request, job.changes = job.request.model_copy(update={"held": held}), changes

        plan.after.append(after)

    def _before_the_queue(
        self, plan: ControllerPlan, job: JobRecord, request: JobRequest, change: JobChange | None
    ) -> bool:
        """Whether the job has to wait for something before it is in the queue. `change`: None where it comes after the
        same jobs as before.
        """
        waits_for, failed = job.waits_for, job.failed
        if change is not None:
            waits_for, failed = self._state.dependencies(request, change.ended)
        return bool(waits_for or failed) or is_early(self._state, request, plan.at)

    def _check(self, job: JobRecord, request: JobRequest, names: list[str]) -> None:
        fixed = [_WORDS[name][0] for name in names if name not in ONCE_BEGUN]
        if job.tasks and fixed:
            raise ConflictError(f"job {job.id}: has begun: its {', '.join(fixed)} can no longer change")
        if not job.tasks:
            views.check_fits(self._state, request)
        elif "cpu_cores" in names and (problem := views.too_large(self._state, request)):
            raise InputError(problem)
        self._quotas.check_size(request, job.user)
        self._quotas.check_weight(request, job.user)
        if not set(names).isdisjoint(DEPENDENCIES):
            self._check_order(job, request)

    def _check_order(self, job: JobRecord, request: JobRequest) -> None:
        """Raise InputError where it would come after itself, or after one that waits for it, or for one that does."""
        # One walk for all, with the name by which it came to each: others may wait for very many in common.
        first = {name: name for name in sorted(request.dependencies)}
        left = list(first)
        while left:
            here = left.pop()
            if here == job.id:
                name = first[here]
                whom = "itself" if name == here else f"job {name}, which comes after it"
                raise InputError(f"after: {name}: job {job.id} cannot come after {whom}")
            if here in self._state.jobs:
                for name in self._state.jobs[here].waits_for:
                    if name not in first:
                        first[name] = first[here]
                        left.append(name)

    def _has_room(self, job: JobRecord, request: JobRequest) -> bool:
        """Whether its quota allows it. Raises ConflictError for one that has begun and would be too much."""
        why = self._quotas.why(job, request) if job.registered else ""
        if why and job.tasks:
            raise ConflictError(f"job {job.id}: {why}")
        return not why

    def _amendment(self, plan: ControllerPlan, job: JobRecord, request: JobRequest, names: list[str]) -> Amend | None:
        """What the core is to know of it, if anything."""
        new = submission(self._state, job, plan, request)
        told: dict[str, Any] = {}
        if "cpu_cores" in names and not (job.tasks and request.cpu_cores is None):
            told["need"] = new.need
        if "memory_bytes" in names:
            told["memory"] = new.memory
        if "minimum_yield" in names:
            told["minimum"] = new.minimum
        if "weight" in names:
            told["weight"] = new.weight
        for name, field in (("estimate_s", "estimate_s"), ("start_at", "requested_start_s")):
            if name in names:
                value = float(getattr(new, field))
                told[field] = math.inf if math.isnan(value) else value
        return Amend(job.id, **told) if told else None
