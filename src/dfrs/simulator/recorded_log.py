"""A live cluster's log, decided again: the same events through a fresh core, and the run that they make.

The run speaks of one need of each job: while a job is watched its need is an estimate that changes, and yields mean
nothing without the need they are a fraction of. That is the declared need, else the CPU time that the job used over the
time that it would have taken alone; where nodes could not measure that, the last need. So yields are told anew as the
same share of CPU over that need, at most 1. A job's processing time is the integral of its yields over the time it was
on nodes: moves cost nothing more than the time they took, which is in it.

What a policy granted is not what jobs received: other programs may take of the CPU, and jobs may use what others leave.
Where nodes measured what a job received, its yields are those that integrate to it (`received_yields`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dfrs.engine.codec import Mismatch, decode, digest
from dfrs.engine.core import Core
from dfrs.engine.events import Amend, Submit
from dfrs.model.decisions import Policy, traits_of
from dfrs.model.errors import DfrsError, InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.model.nodes import CapacityLeft, Condition, NodeChange
from dfrs.model.run import PLACING, Action, Events, Penalty, Run
from dfrs.simulator.received_yields import received_yields
from dfrs.workloads.live_log import LiveLog, LogEntry

LEAST_RUN_S = 1e-6
"""Processing time of a job that ended at once."""
NOTABLE = 0.001
"""A part of a job's work; less is no difference."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorded:
    """What came of it."""

    run: Run
    """Jobs that ended on nodes."""
    node_events: tuple[tuple[float, NodeChange | CapacityLeft], ...]
    """When nodes came and went, and what was left of them, for a simulation of the same jobs."""
    decisions: int
    mismatch: Mismatch | None
    """The first decision that differs from the recorded one, or None."""
    left_out: int
    """Jobs that have not ended, or not on nodes."""
    missing: tuple[str, ...]
    """Names of policies that decided and are no more."""
    unfitted: int = 0
    """Jobs that received more than the nodes have in the jobs' needs: in the run they did less."""
    unfitted_part: float = 0.0
    """By at most this part of their work."""


def decide_again(log: LiveLog, find: Callable[[str], Policy], name: str = "live") -> Recorded:
    """Replay the log's events through a core under the policies that made it, found by name, comparing every target.

    Raises InputError where the log is damaged (an event that cannot be true, or no node), is not from its beginning, or
    its last policy is no more.
    """
    if log.gone:
        raise InputError(f"the log is not from its beginning: {log.gone}; dfrs export --archive puts them back")
    policies, missing = _policies(log, find)
    core = Core(policies.pop(log.policies[0][0]), np.zeros((0, 2)), log.command_limit)
    decided_by = [core.policy, *policies.values()]
    needs: dict[int, float] = {}
    """By serial number: the need of every job now."""
    serials: dict[int, int] = {}
    """By id: the serial number of the job's last submission."""
    rows: list[Floats] = []
    capacity = np.zeros((0, 2))
    """The most that each node ever had: it was not used beyond that."""
    mismatch: Mismatch | None = None
    submitted = 0
    for k, entry in enumerate(log.entries):
        if k in policies:
            core.hand_over(policies[k])
        event = decode(entry.event)
        kind = entry.event["event"]
        if kind == "submit":
            serials[int(entry.event["job_id"])] = submitted
            submitted += 1
        if kind in {"submit", "revise"} or (isinstance(event, Amend) and "need" in event.changed):
            job = int(entry.event["job_id"])
            if job not in serials:
                raise InputError(f"event {k + 1} of the log: job {job} was not submitted")
            needs[serials[job]] = float(entry.event["need"])
        before, logged = core.decisions, len(core.event_log)
        try:
            core.handle(event, entry.time_s)
        except InputError as error:
            raise InputError(f"event {k + 1} of the log: {error}") from None
        except DfrsError as error:
            mismatch = mismatch or _mismatch(k, entry, event, "", str(error))
        made = digest(core.target) if core.decisions > before and core.target is not None else ""
        if mismatch is None and made != entry.digest:
            mismatch = _mismatch(k, entry, event, made, "")
        rows.append(_needs_of(core, logged, needs))
        if kind in {"join", "capacity"}:
            capacity = np.maximum(core.capacity, np.pad(capacity, ((0, len(core.capacity) - len(capacity)), (0, 0))))
    if core.capacity.size == 0:
        raise InputError("the log names no node: nothing ran")
    events = core.event_log.events()
    final = np.array([needs[serial] for serial in range(submitted)])
    received_s = _measured(log, serials, final)
    told = _in_final_needs(events, np.concatenate([np.zeros(0), *rows]), final)
    last = np.isin(np.arange(submitted), list(serials.values()))
    run, left_out = _run(log, core, decided_by, capacity, told, final, received_s, last, name)
    done = run.workload.run_s
    lacking = 1.0 - done / np.fmax(received_s[[serials[job] for job in run.workload.job_id.tolist()]], done)
    return Recorded(
        run=run,
        node_events=tuple(_node_events(log)),
        decisions=core.decisions,
        mismatch=mismatch,
        left_out=left_out,
        missing=missing,
        unfitted=int((lacking > NOTABLE).sum()),
        unfitted_part=float(lacking.max(initial=0.0)),
    )


def _policies(log: LiveLog, find: Callable[[str], Policy]) -> tuple[dict[int, Policy], tuple[str, ...]]:
    """By the index of its first event, and the names of those that are no more, for which the next one decides.

    Raises what `find` raises for the last.
    """
    found: dict[int, Policy] = {}
    missing: list[str] = []
    later: Policy | None = None
    for index, name in reversed(log.policies):
        try:
            later = find(name)
        except InputError:
            if later is None:
                raise
            missing.append(name)
        found[index] = later
    return found, tuple(missing[::-1])


def _mismatch(index: int, entry: LogEntry, event: Any, replayed: str, problem: str) -> Mismatch:  # noqa: ANN401
    return Mismatch(
        index=index, now_s=entry.time_s, event=event, recorded=entry.digest, replayed=replayed, problem=problem
    )


def _needs_of(core: Core, begin: int, needs: Mapping[int, float]) -> Floats:
    """The present need of the job of each row of the event log from `begin` on; NaN for nodes."""
    jobs = core.event_log.jobs(begin)
    return np.array([needs.get(job, np.nan) for job in jobs.tolist()], dtype=np.float64)


def _measured(log: LiveLog, serials: Mapping[int, int], final: Floats) -> Floats:
    """(J,) work of the last submissions as it was measured, NaN elsewhere; their needs, into `final` (J,)."""
    received_s = np.full(len(final), np.nan)
    for job, serial in serials.items():
        work = log.measured(job)
        if work is not None:
            received_s[serial] = work.run_s
            final[serial] = final[serial] if work.need is None else work.need
    return received_s


def _in_final_needs(events: Events, need: Floats, final: Floats) -> Events:
    """The same shares of CPU as fractions of each job's need in the run."""
    known = events.job >= 0
    ratio = np.ones(len(events))
    ratio[known] = need[known] / final[events.job[known]]
    return replace(events, yield_=np.minimum(events.yield_ * ratio, 1.0))


def _run(
    log: LiveLog,
    core: Core,
    policies: Sequence[Policy],
    capacity: Floats,
    events: Events,
    need: Floats,
    received_s: Floats,
    last: Bools,
    name: str,
) -> tuple[Run, int]:
    """The run of the jobs that ended on nodes, and how many others there are.

    A job that lost its node counts from its last attempt, and one that was submitted anew from its last submission.
    """
    run_s, kept = _processing_s(events, len(need))
    kept &= last
    events, run_s, received_s = _of_kept(events, kept), run_s[kept], received_s[kept]
    measured = ~np.isnan(received_s)
    if measured.any():
        wanted_s = np.where(measured, received_s, run_s)
        events = replace(events, yield_=received_yields(events, need[kept], capacity[:, 0], wanted_s))
        run_s, _ = _processing_s(events, len(run_s))
    workload = _workload(log, need, run_s, kept, len(capacity), name)
    events = _of_the_run(events, *_late_nodes(log))
    running = np.isin(events.action, (*PLACING, Action.SHARE))
    run = Run(
        workload=workload,
        policy=log.policy,
        capacity=capacity,
        penalty=Penalty(),
        events=events,
        complete=True,
        end_s=float(events.time_s[-1]) if len(events) else 0.0,
        configuration={
            "order": "completions-first",
            # Who had nodes of their own and received less of them shared them with programs that are no jobs.
            "exclusive": all(traits_of(policy).exclusive for policy in policies)
            and bool((events.yield_[running] == 1.0).all()),
            "dedicated": all(traits_of(policy).dedicated for policy in policies),
            "command_limit": log.command_limit,
            "discovery": log.discovery,
            "live": True,
        },
    )
    return run, int(last.sum() - kept.sum())


def _processing_s(events: Events, count: int) -> tuple[Floats, Bools]:
    """(count,) integral of the yield of each job since it last began anew; (count,) whether it ended on nodes."""
    done, rate, since = np.zeros(count), np.zeros(count), np.zeros(count)
    placed, ended = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for row in np.flatnonzero(events.job >= 0).tolist():
        job, action, time_s = int(events.job[row]), int(events.action[row]), float(events.time_s[row])
        done[job] += rate[job] * (time_s - since[job])
        since[job] = time_s
        if action == Action.FINISH:
            ended[job] = placed[job]
        placed[job] = action not in {Action.PAUSE, Action.FINISH, Action.LOST}
        rate[job] = events.yield_[row] if placed[job] else 0.0
        if action == Action.LOST:
            done[job] = 0.0
    return np.maximum(done, LEAST_RUN_S), ended


def _workload(log: LiveLog, need: Floats, run_s: Floats, kept: Bools, nodes: int, name: str) -> Workload:
    submits = _submissions(log)
    names = sorted({str(log.jobs.get(int(event["job_id"]), {}).get("user", "")) for _, event in submits})

    def column(of: Callable[[float, Mapping[str, Any]], object], dtype: str) -> np.ndarray:
        return np.array([of(time_s, event) for time_s, event in submits], dtype=dtype)[kept]

    return Workload(
        job_id=column(lambda _, event: event["job_id"], "i8"),
        submit_s=column(lambda time_s, _: time_s, "f8"),
        tasks=column(lambda _, event: event["tasks"], "i8"),
        need=need[kept],
        memory=column(lambda _, event: event["memory"], "f8"),
        run_s=run_s,
        estimate_s=column(lambda _, event: float(event.get("estimate_s", "nan")), "f8"),
        user=column(lambda _, event: names.index(str(log.jobs.get(int(event["job_id"]), {}).get("user", ""))), "i8"),
        weight=column(lambda _, event: event.get("weight", 1.0), "f8"),
        requested_start_s=column(lambda _, event: float(event.get("requested_start_s", "nan")), "f8"),
        minimum_yield=column(lambda _, event: event.get("minimum", 0.0), "f8"),
        nodes=nodes,
        name=name,
    )


def _submissions(log: LiveLog) -> list[tuple[float, Mapping[str, Any]]]:
    """Time and document of each, as it was changed before it ended or was submitted anew."""
    found: list[tuple[float, dict[str, Any]]] = []
    last: dict[int, dict[str, Any]] = {}
    for entry in log.entries:
        event = decode(entry.event)
        if isinstance(event, Submit):
            last[event.job_id] = dict(entry.event)
            found.append((entry.time_s, last[event.job_id]))
        elif isinstance(event, Amend):
            last[event.job_id] |= event.changed
    return [(time_s, document) for time_s, document in found]


def _of_kept(events: Events, kept: Bools) -> Events:
    """The rows of nodes and of the last attempts of kept jobs, with jobs by their index among those kept."""
    begin = np.zeros(len(kept), np.int64)
    lost = np.flatnonzero(events.action == Action.LOST)
    begin[events.job[lost]] = lost + 1
    at = np.arange(len(events))
    known = np.flatnonzero(events.job >= 0)
    shown = np.ones(len(events), np.bool_)
    shown[known] = kept[events.job[known]] & (at[known] >= begin[events.job[known]])
    rows = np.flatnonzero(shown)
    index: Ints = np.append(np.cumsum(kept) - 1, -1)
    nodes = [events.nodes_of(row) for row in rows.tolist()]
    return replace(
        events,
        time_s=events.time_s[rows],
        action=events.action[rows],
        yield_=events.yield_[rows],
        why=events.why[rows],
        job=index[events.job[rows]],
        first=np.concatenate([[0], np.cumsum([len(each) for each in nodes], dtype=np.int64)]),
        nodes=np.concatenate([np.zeros(0, np.int64), *nodes]),
    )


def _of_the_run(events: Events, begin_s: float, late: Ints) -> Events:
    """The rows up to the last job's last, before which `late` nodes are down from `begin_s` on until they come."""
    count = int(np.flatnonzero(events.job >= 0)[-1]) + 1 if (events.job >= 0).any() else 0
    at = int(np.searchsorted(events.time_s[:count], begin_s))
    more, width = (1, len(late)) if len(late) else (0, 0)

    def rows(column: np.ndarray, value: float) -> np.ndarray:
        return np.insert(column[:count], [at] * more, value)

    first = events.first[: count + 1]
    return replace(
        events,
        time_s=rows(events.time_s, begin_s),
        job=rows(events.job, -1),
        action=rows(events.action, Action.DOWN),
        yield_=rows(events.yield_, np.nan),
        why=rows(events.why, 0),
        first=np.concatenate([first[: at + 1], first[at + 1 - more :] + width]),
        nodes=np.insert(events.nodes[: first[-1]], first[at], late),
    )


def _late_nodes(log: LiveLog) -> tuple[float, Ints]:
    """When the first job was submitted, and which nodes came after that."""
    begin_s = next((entry.time_s for entry in log.entries if entry.event["event"] == "submit"), 0.0)
    joined_s = np.array([entry.time_s for entry in log.entries if entry.event["event"] == "join"])
    return begin_s, np.flatnonzero(joined_s > begin_s)


def _node_events(log: LiveLog) -> Iterator[tuple[float, NodeChange | CapacityLeft]]:
    """Nodes that come late are down from the beginning until they do."""
    begin, late = _late_nodes(log)
    joined = 0
    for entry in log.entries:
        if entry.event["event"] == "join":
            opened = entry.event.get("open", True)
            if joined in late:
                yield begin, NodeChange(joined, Condition.DOWN)
            if joined in late or not opened:
                yield max(begin, entry.time_s), NodeChange(joined, Condition.UP if opened else Condition.DRAIN)
            joined += 1
        elif entry.event["event"] == "node":
            yield entry.time_s, NodeChange(int(entry.event["node"]), Condition(entry.event["condition"]))
        elif entry.event["event"] == "capacity_left":
            yield entry.time_s, CapacityLeft(int(entry.event["node"]), float(entry.event["cpu"]))
