"""What is known of CPU needs that nobody declared, and who finds them out ([Stillwell2010] section 7.2).

Discovery is a pure step: the table of tasks, what each of them did since the last step, and the time go in; weights,
revised needs and the next table come out. There is no clock, no chance and no memory elsewhere, so whoever stores the
table can stop and go on with the same decisions. The simulator and the live controller drive the same object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dfrs.model.decisions import JobId
from dfrs.model.instance import Floats

NEVER_S = -1.0
"""Before all times: a task of which nothing was ever discovered."""

FULL_NEED = 1.0
"""What a task needs at most, and at first, where nobody says more: all of the reference node."""

WEIGHTS = 100.0
"""What the weights on a node add up to."""

TASK = np.dtype(
    [
        ("job", "i8"),
        ("rank", "i8"),
        ("node", "i8"),
        ("declared", "i8"),
        ("most", "f8"),
        ("estimate", "f8"),
        ("error", "f8"),
        ("discovered_s", "f8"),
        ("told", "f8"),
        ("told_s", "f8"),
        ("weight", "f8"),
        ("phase", "i8"),
        ("chosen", "i8"),
        ("used_s", "f8"),
        ("seen_s", "f8"),
        ("low", "f8"),
        ("high", "f8"),
        ("trust", "f8"),
        ("usage", "f8"),
        ("noise", "f8"),
        ("changes", "f8"),
        ("age_s", "f8"),
    ]
)
"""One task on a node. Of use to all: `job` and `rank` name it; `node` is the index of its node; `declared` 1 where the
user gave the need, which is then never revised, else 0; `most` is the largest need it can have, as a fraction of the
reference node; `estimate` its need as known now, `error` the half-width of its error bar (one standard deviation);
`discovered_s` the time of the last discovery event, NEVER_S before; `told` the need of its job that the policy was last
told, at `told_s`; `weight` its weight in force, 0 before the first. The rest is the memory of a method; each documents
its own."""

USAGE = np.dtype(
    [
        ("seconds", "f8"),
        ("used_s", "f8"),
        ("share", "f8"),
        ("throttled_s", "f8"),
        ("waiting_s", "f8"),
        ("idle_s", "f8"),
        ("delayed_s", "f8"),
    ]
)
"""What a task did since the last step, in the order of the table: `seconds` it was observed (0: not at all, or it was
moved in between), `used_s` CPU seconds, of the reference node, `share` the fraction of the reference node that its
weight guaranteed it, `throttled_s` seconds stopped by a quota, `waiting_s` seconds ready to run but not running, summed
over its threads and in CPU seconds of the reference node, `idle_s` seconds in which no thread was running or ready, if
they took turns, `delayed_s` seconds in which it was held up, as its threads were on average; the last four are NaN
where the host does not say."""

UNKNOWN = ("throttled_s", "waiting_s", "idle_s", "delayed_s")
"""Columns of USAGE that are NaN where the host does not say."""

Tasks = NDArray[np.void]
Usage = NDArray[np.void]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What a step of discovery answers."""

    table: Tasks
    """(T,) of type TASK, the same tasks in the same order: what the next step is to be given."""
    weights: Floats | None
    """(T,) weights above 0, on each node WEIGHTS together; None: the shares of the policy hold."""
    needs: Mapping[JobId, float] = field(default_factory=lambda: MappingProxyType({}))
    """Needs per task, by job, that changed enough for the policy to be told: one event for all of them."""
    repack: bool = False
    """Whether this is the time to consider migrations."""
    next_step_s: float
    """When to call again at the latest; tasks that come, go or move ask for a step at once."""


class Discovery(Protocol):
    """Finds out needs.

    `step` may be called at any time: a step before `next_step_s` is not out of turn, it only sees less.
    """

    @property
    def name(self) -> str:
        """As in the registry."""
        ...

    def step(self, now_s: float, table: Tasks, usage: Usage, capacity: Floats, /) -> Revision:
        """What to do from `now_s` on. Nothing that is given is modified.

        `table` (T,) of TASK has all tasks that are on nodes, in any order that stays; `usage` (T,) of USAGE what they
        did since the last step; `capacity` (N,) is the CPU of each node, 1 on the reference node.
        """
        ...


def new_tasks(job: JobId, nodes: Sequence[int], need: float | None = None, most: float = FULL_NEED) -> Tasks:
    """(tasks,) rows of type TASK for a job that starts on these nodes, one a task; `need` where the user declared it.

    A need that was not declared starts as `most`, with an error bar down to 0. A guess that is too high corrects
    itself: the task gets more than it can use, and that it does not use it shows within a step. A task that was guessed
    too low uses all it is given whatever its need, and shows nothing.
    """
    rows = np.zeros(len(nodes), TASK)
    rows["job"], rows["rank"], rows["node"] = job, np.arange(len(nodes)), nodes
    rows["declared"] = need is not None
    rows["most"] = most
    rows["estimate"] = rows["told"] = most if need is None else need
    rows["error"] = 0.0 if need is not None else most
    rows["discovered_s"] = rows["told_s"] = NEVER_S
    rows["phase"] = rows["chosen"] = -1
    rows["high"] = most
    return rows


def job_needs(table: Tasks) -> dict[JobId, float]:
    """The need per task of each job: the largest estimate of its tasks.

    Tasks of a job are alike and wait for the slowest of them ([Stillwell2010] section 4.5.1): one that uses less is
    ahead of the others, not smaller.
    """
    needs: dict[JobId, float] = {}
    for job, estimate in zip(table["job"].tolist(), table["estimate"].tolist(), strict=True):
        needs[job] = max(needs.get(job, 0.0), estimate)
    return needs


def mark_told(now_s: float, table: Tasks, needs: Mapping[JobId, float]) -> None:
    """Note in `table` that the policy was told these needs."""
    for t, job in enumerate(table["job"].tolist()):
        if job in needs:
            table["told"][t], table["told_s"][t] = needs[job], now_s
