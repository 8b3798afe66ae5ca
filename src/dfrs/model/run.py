"""What a run leaves behind: the workload, the settings, and one row for every change, in the order performed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dfrs.model.decisions import Prices
from dfrs.model.elastic import Answers, no_answers
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.model.shown import Shown
from dfrs.model.true_speeds import EqualSpeeds, TrueSpeeds

if TYPE_CHECKING:
    import polars as pl

    from dfrs.model.run_frames import Table


class Action(IntEnum):
    """What happened to a job, or (DOWN, DRAIN, UP) to a node."""

    START = 0
    PAUSE = 1
    RESUME = 2
    MIGRATE = 3
    SHARE = 4
    """Its yield changed, its nodes did not."""
    FINISH = 5
    LOST = 6
    """A node it ran on failed: it lost its progress and waits."""
    DOWN = 7
    DRAIN = 8
    UP = 9
    RESIZE = 10
    """Its number of tasks changed while it runs; the nodes are those of all of them."""


ROOM_FREED = "room became free"
"""Why Greedy places a job that waited or was paused when another one is done."""

PLACING = (Action.START, Action.RESUME, Action.MIGRATE, Action.RESIZE)
"""The actions that name the job's nodes."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Events(Shown):
    """E rows as columns."""

    time_s: Floats
    job: Ints
    """(E,) index of the job in the workload, -1 for what happens to nodes."""
    action: Ints
    yield_: Floats
    """(E,) after the action; NaN where it says nothing (FINISH, LOST, nodes)."""
    why: Ints
    """(E,) index into `reasons`."""
    first: Ints
    """(E + 1,) where each row's nodes begin in `nodes`."""
    nodes: Ints
    """One node index a task for PLACING actions, the nodes concerned for DOWN, DRAIN, UP; nothing otherwise."""
    reasons: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.time_s)

    def _figures(self) -> Mapping[str, object]:
        return {"rows": len(self)}

    def nodes_of(self, row: int) -> Ints:
        """The nodes that row names."""
        return self.nodes[self.first[row] : self.first[row + 1]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Penalty:
    """Seconds without progress after a resume or a migration ([Stillwell2010] section 5.3.1).

    `seconds` alone is the documents' fixed penalty. With `bytes_per_s`, copying the memory of the tasks that move (all
    of them on a resume) at that rate is added; `node_bytes` is the memory of the reference node.
    """

    seconds: float = 0.0
    bytes_per_s: float | None = None
    node_bytes: float = 8e9

    def __post_init__(self) -> None:
        for name in ("seconds", "node_bytes"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"penalty: {name} = {value}: must be a finite number of at least 0")
        rate = self.bytes_per_s
        if rate is not None and not (np.isfinite(rate) and rate > 0):
            raise InputError(f"penalty: bytes_per_s = {rate}: must be a finite number above 0")

    def prices(self, memory: float) -> Prices:
        """Those of a job with so much memory, in reference nodes. A pause costs nothing: it ends with a resume."""
        copy_s = 0.0 if self.bytes_per_s is None else memory * self.node_bytes / self.bytes_per_s
        return Prices(resume_s=self.seconds + copy_s, move_s=self.seconds + copy_s)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Run(Shown):
    """One workload under one policy. All that metrics, pictures and the checker need."""

    workload: Workload
    policy: str
    capacity: Floats
    """(N, 2) CPU and memory of each node."""
    penalty: Penalty
    events: Events
    complete: bool
    """False where the run was interrupted: the log ends at `end_s`."""
    end_s: float
    refused: tuple[int, ...] = ()
    """Jobs, by index, that cannot run on this cluster at all."""
    answers: Answers = field(default_factory=no_answers)
    """How the workload's commands were answered."""
    seed: int = 0
    configuration: Mapping[str, object] = field(default_factory=dict[str, object])
    """Every other setting, for the summary."""
    speeds: EqualSpeeds | TrueSpeeds = field(default_factory=EqualSpeeds)
    """How fast each job of the workload really is where."""

    @cached_property
    def start_s(self) -> Floats:
        """(J,) first start; NaN before."""
        started = self.events.action == Action.START
        start = np.full(len(self.workload), np.nan)
        start[self.events.job[started][::-1]] = self.events.time_s[started][::-1]
        return start

    @cached_property
    def finish_s(self) -> Floats:
        """(J,) completion; NaN before."""
        finished = self.events.action == Action.FINISH
        finish = np.full(len(self.workload), np.nan)
        finish[self.events.job[finished]] = self.events.time_s[finished]
        return finish

    @cached_property
    def process_s(self) -> Floats:
        """(J,) processing time as commands left it."""
        work, answers = self.workload, self.answers
        if not len(answers) or not len(work):
            return work.run_s
        order = np.argsort(work.job_id)
        found = order[np.minimum(np.searchsorted(work.job_id[order], answers.job_id), len(order) - 1)]
        known = work.job_id[found] == answers.job_id
        return work.run_s + np.bincount(found[known], answers.change_s[known], len(work))

    @cached_property
    def stretch(self) -> Floats:
        """(J,) flow time since the release / processing time; NaN for jobs that did not finish."""
        return (self.finish_s - self.workload.release_s) / self.process_s

    def count(self, action: Action) -> Ints:
        """(J,) how often that happened to each job."""
        jobs = self.events.job[self.events.action == action]
        return np.bincount(jobs, minlength=len(self.workload)).astype(np.int64)

    def to_frame(self, table: "Table" = "jobs") -> "pl.DataFrame":
        """The run as a polars frame with a row for each job, or with "events" for each event in the order performed.

        Columns of jobs: `job_id`, `user`, `tasks`, `need`, `memory`, `weight`, `submit_s`, `release_s`, `estimate_s`,
        `process_s`, `start_s`, `finish_s`, `wait_s` and `flow_s` since the release, `stretch`, `pauses`, `migrations`.
        Columns of events: `time_s`, `job_id` (null for what happens to nodes), `action`, `nodes` (indices), `yield`,
        `why`. Times are in seconds from the workload's time 0, needs and memory fractions of the reference node; what
        did not happen is null. For pandas call `.to_pandas()` on it, which needs pandas and pyarrow.
        """
        from dfrs.model.run_frames import run_frame  # noqa: PLC0415 - it needs runs, and polars takes long to load

        return run_frame(self, table)

    def _figures(self) -> Mapping[str, object]:
        finished = np.isfinite(self.stretch)
        return {
            "policy": self.policy,
            "workload": self.workload.name or None,
            "nodes": len(self.capacity),
            "jobs": len(self.workload),
            "finished": int(finished.sum()),
            "refused": len(self.refused) or None,
            "maximum stretch": float(self.stretch[finished].max()) if finished.any() else None,
            "end_s": float(self.end_s),
            "interrupted": None if self.complete else "yes",
        }
