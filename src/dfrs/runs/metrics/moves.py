"""What moving jobs costs: the memory that pauses, resumes and migrations carry ([Stillwell2010] 6.1 and appendix B).

A row that names a job's nodes says how many tasks the job has from then on: commands may change it while the job runs.
"""

import numpy as np

from dfrs.model.instance import Bools, Ints
from dfrs.model.run import PLACING, ROOM_FREED, Action, Run


def _tasks_of(run: Run, action: Action, counts: Bools) -> Ints:
    """(J,) tasks that each job had at all of its rows of that action that count (E,) together."""
    events = run.events
    rows = np.flatnonzero(np.isin(events.action, (*PLACING, action)))
    rows = rows[np.argsort(events.job[rows], kind="stable")]
    places = np.isin(events.action[rows], PLACING)
    placed = np.maximum.accumulate(np.where(places, np.arange(len(rows)), 0))
    width = np.diff(events.first)[rows[placed]]
    at = (events.action[rows] == action) & counts[rows]
    return np.bincount(events.job[rows[at]], width[at], len(run.workload)).astype(np.int64)


def _taken_back(run: Run, counts: Bools) -> int:
    """How many pauses, of those that count (E,), ended because room became free."""
    events = run.events
    rows = np.flatnonzero(np.isin(events.action, (*PLACING, Action.PAUSE, Action.LOST, Action.FINISH)))
    rows = rows[np.argsort(events.job[rows], kind="stable")]
    before, after = rows[:-1], rows[1:]
    freed = np.array([text == ROOM_FREED for text in events.reasons], np.bool_)[events.why[after]]
    pairs = (events.action[before] == Action.PAUSE) & (events.action[after] == Action.RESUME) & freed
    return int((pairs & counts[before]).sum())


def move_metrics(run: Run, span_s: float, moved: Ints, counts: Bools, jobs: int) -> dict[str, float | int | None]:
    """What pauses and migrations moved; a pause or resume moves all of a job's memory, once each.

    `moved` (E,) are the tasks that each migration carries; rows count where `counts` (E,), for so many jobs. As
    published: a pause that ends because room became free counts as a migration.
    """
    events, work = run.events, run.workload
    own_gb = work.memory * (run.penalty.node_bytes / 1e9)
    migrates = (events.action == Action.MIGRATE) & counts
    paused_gb, resumed_gb, whole_gb = (
        float((_tasks_of(run, action, counts) * own_gb).sum())
        for action in (Action.PAUSE, Action.RESUME, Action.MIGRATE)
    )
    migrated_gb = float((moved[migrates] * own_gb[events.job[migrates]]).sum())
    metrics: dict[str, float | int | None] = {}
    back = _taken_back(run, counts)
    pauses, migrations = (int(((events.action == action) & counts).sum()) for action in (Action.PAUSE, Action.MIGRATE))
    for name, total in (
        ("pauses", pauses),
        ("migrations", migrations),
        ("pauses_as_published", pauses - back),
        ("migrations_as_published", migrations + back),
    ):
        metrics[name] = total
        metrics[f"{name}_per_job"] = total / jobs if jobs else None
        metrics[f"{name}_per_hour"] = total * 3600 / span_s if span_s > 0 else None
    for name, gigabytes in (
        ("pause", paused_gb),
        ("pause_and_resume", paused_gb + resumed_gb),
        ("migration", migrated_gb),
        ("migration_of_whole_jobs", whole_gb),
    ):
        metrics[f"{name}_gb"] = gigabytes
        metrics[f"{name}_gb_per_s"] = gigabytes / span_s if span_s > 0 else None
    return metrics
