"""What users submit over time: a workload of rigid parallel jobs as read-only columns ([Stillwell2010] section 5.1).

On-line, a node has two resources: memory, which cannot be shared in time, and CPU, which can. A job has `tasks`
identical tasks; each must have `memory` and could use `need` of CPU, both as fractions of the reference node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from dfrs.model.elastic import NO_COMMANDS, ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.shown import Shown

LATEST_S = 1e12
"""No time is later, in seconds: rounding would be felt."""
LEAST_CHECKPOINT_S = 0.001
"""Nobody makes check-points more often."""
MOST_NODES = 2**24
"""Of more there would be no room for what is known of each."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Workload(Shown):
    """J jobs by order of submission (ties in the order given), for a cluster of `nodes` reference nodes.

    Arrays are sorted and frozen on construction. Raises InputError, naming job, value and rule, where a column has
    the wrong length or a value is out of its range.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        "job_id",
        "submit_s",
        "tasks",
        "need",
        "memory",
        "run_s",
        "estimate_s",
        "user",
        "weight",
        "requested_start_s",
        "minimum_yield",
        "checkpoint_s",
    )
    """The fields that hold a value for each job."""

    job_id: Ints
    """(J,) names, unique."""
    submit_s: Floats
    """(J,) time of submission, at most LATEST_S from 0."""
    tasks: Ints
    """(J,) at least 1."""
    need: Floats
    """(J,) CPU need of each task, above 0, at most 1."""
    memory: Floats
    """(J,) memory requirement of each task, 0 to 1."""
    run_s: Floats
    """(J,) processing time: seconds to completion at yield 1; above 0. Policies never see it."""
    estimate_s: Floats
    """(J,) the user's estimate of `run_s`; NaN where there is none."""
    user: Ints
    """(J,) who submitted it; -1 if unknown."""
    weight: Floats
    """(J,) importance, above 0; 1 for most."""
    nodes: int
    name: str = ""
    requested_start_s: Floats = field(default_factory=lambda: np.zeros(0))
    """(J,) when a dedicated job is to start ([Kumar2011] III-B); NaN for a batch job. Empty: all are batch jobs."""
    minimum_yield: Floats = field(default_factory=lambda: np.zeros(0))
    """(J,) what its yield must be at least while it is on nodes, 0 to 1. Empty: 0 for all."""
    checkpoint_s: Floats = field(default_factory=lambda: np.zeros(0))
    """(J,) processing time from one check-point to the next, 0: it makes none. A job that loses a node goes on from the
    last one; making one takes no time. Empty: 0 for all."""
    commands: ElasticCommands = NO_COMMANDS
    """What users change while their jobs wait or run; they may name jobs that are not here."""

    def __post_init__(self) -> None:
        jobs = len(self.job_id)
        columns = self.COLUMNS
        if not len(self.requested_start_s):
            object.__setattr__(self, "requested_start_s", np.full(jobs, np.nan))
        for label in ("minimum_yield", "checkpoint_s"):
            if not len(getattr(self, label)):
                object.__setattr__(self, label, np.zeros(jobs))
        for label in columns:
            if len(getattr(self, label)) != jobs:
                raise InputError(f"{label}: {len(getattr(self, label))} values for {jobs} jobs")
        if self.nodes < 1:
            raise InputError(f"nodes = {self.nodes}: must be at least 1")
        if self.nodes > MOST_NODES:
            raise InputError(f"nodes = {self.nodes}: must be at most {MOST_NODES}")
        self._check(
            "job_id",
            np.zeros(jobs, np.bool_) if jobs == len(np.unique(self.job_id)) else self._repeated(),
            "must be unique",
        )
        self._check("submit_s", ~(np.abs(self.submit_s) <= LATEST_S), f"must be at most {LATEST_S:g}")
        self._check("tasks", self.tasks < 1, "must be at least 1")
        self._check("need", ~((self.need > 0) & (self.need <= 1)), "must be above 0 and at most 1")
        self._check("memory", ~((self.memory >= 0) & (self.memory <= 1)), "must be from 0 to 1")
        self._check("run_s", ~((self.run_s > 0) & np.isfinite(self.run_s)), "must be above 0 and finite")
        self._check("estimate_s", self.estimate_s <= 0, "must be above 0")
        far = np.abs(self.requested_start_s) > LATEST_S
        self._check("requested_start_s", far, f"must be at most {LATEST_S:g}, or NaN for a batch job")
        least = self.minimum_yield
        self._check("minimum_yield", ~((least >= 0) & (least <= 1)), "must be from 0 to 1")
        every = self.checkpoint_s
        often = (every == 0) | ((every >= LEAST_CHECKPOINT_S) & np.isfinite(every))
        self._check("checkpoint_s", ~often, f"must be 0, or at least {LEAST_CHECKPOINT_S:g} and finite")
        self._check("weight", ~((self.weight > 0) & np.isfinite(self.weight)), "must be above 0 and finite")
        order = np.argsort(self.submit_s, kind="stable")
        for label in columns:
            array = np.array(getattr(self, label))[order]
            array.setflags(write=False)
            object.__setattr__(self, label, array)

    def _repeated(self) -> np.ndarray:
        _, first = np.unique(self.job_id, return_index=True)
        bad = np.ones(len(self.job_id), np.bool_)
        bad[first] = False
        return bad

    def _check(self, label: str, bad: np.ndarray, rule: str) -> None:
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise InputError(f"job {self.job_id[k]}: {label} = {getattr(self, label)[k]}: {rule}")

    def __len__(self) -> int:
        return len(self.job_id)

    def _figures(self) -> Mapping[str, object]:
        return {
            "name": self.name or None,
            "jobs": len(self),
            "nodes": self.nodes,
            "span_s": float(self.span_s),
            "load": self.load if np.isfinite(self.load) else None,
            "commands": len(self.commands) or None,
        }

    @property
    def dedicated(self) -> Bools:
        """(J,) which jobs have a requested start."""
        return ~np.isnan(self.requested_start_s)

    @property
    def checkpointing(self) -> bool:
        """Whether any job makes check-points."""
        return bool(self.checkpoint_s.any())

    @property
    def demanding(self) -> bool:
        """Whether any job has a minimum yield."""
        return bool(self.minimum_yield.any())

    @property
    def release_s(self) -> Floats:
        """(J,) from when on a job may run, and from which its wait and flow time count.

        That is its submission, or for a dedicated job its requested start where that is later.
        """
        return np.fmax(self.submit_s, self.requested_start_s)

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last submission."""
        return float(self.submit_s[-1] - self.submit_s[0]) if len(self) else 0.0

    @property
    def load(self) -> float:
        """Offered load: sum of tasks * processing time / (nodes * span), whatever the need ([Stillwell2010] 5.3.2)."""
        return float((self.tasks * self.run_s).sum()) / (self.nodes * self.span_s) if self.span_s > 0 else np.inf

    def select(self, keep: np.ndarray) -> Self:
        """The jobs of index or mask `keep`, and the commands on them."""
        columns = {label: getattr(self, label)[keep] for label in self.COLUMNS}
        return self.with_columns(**columns, commands=self.commands.on(columns["job_id"]))

    def resubmitted(self, submit_s: Floats) -> Self:
        """The same jobs submitted at `submit_s` (J,); requested starts and commands keep their distance from that."""
        later_s = submit_s - self.submit_s
        order = np.argsort(self.job_id)
        commands = self.commands.on(self.job_id)
        job = order[np.searchsorted(self.job_id[order], commands.job_id)]
        return self.with_columns(
            submit_s=submit_s,
            requested_start_s=self.requested_start_s + later_s,
            commands=replace(commands, time_s=commands.time_s + later_s[job]),
        )

    def with_columns(self, **columns: object) -> Self:
        """The same workload with some fields replaced; checked and sorted again."""
        return replace(self, **columns)  # type: ignore[arg-type]
