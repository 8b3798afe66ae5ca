"""From accounting to a workload: what jobs needed, and when they started and ended in truth.

A job is submitted when it became eligible to run: what a dependency or a begin time held back, no scheduler could have
started. Its processing time is the time that it was on nodes. Its CPU need is the CPU time that it used over that, so
that a job that used 40 % of a core needs 0.4 of one; its memory is the peak of its steps. Where accounting measured
neither, what was allocated and requested is taken.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs.model.jobs import Workload
from dfrs.workloads.annotate import choose_estimates
from dfrs.workloads.live_log import LEAST_NEED
from dfrs.workloads.slurm.nodes import SlurmNodes
from dfrs.workloads.slurm.records import AGAIN, WAITING, Accounting, Record
from dfrs.workloads.trace_warnings import SHOWN, Example, TraceReport, TraceWarning

TASKS = ("node", "core")
CPU_FROM = ("measured", "allocated")
MEMORY_FROM = ("measured", "requested")
NO_CPU, NO_MEMORY, NEITHER = "no CPU time measured", "no memory measured", "memory neither measured nor requested"

_SLACK = 1e-9
"""Of a node: rounding does not make a job need another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How jobs are made of records."""

    tasks: str = "node"
    """`node`: a task is a job's part of one of its nodes. `core`: it is one of its CPUs, and a node is one CPU."""
    cpu_from: str = "measured"
    memory_from: str = "measured"
    estimates: str = "user"
    since: float | None = None
    """The instant from which on jobs are replayed; see `Replay`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """A workload of J jobs, and what became of them in truth.

    With `since`, jobs that had ended by then are left out, and those that were there are submitted then: first those
    that ran, with what was left of them, in the order of their starts, then those that waited.
    """

    workload: Workload
    capacity: Floats
    """(N, 2) of the nodes, which are CPUs where tasks are."""
    node_bytes: float
    """Memory of the reference node."""
    start_s: Floats
    end_s: Floats
    """(J,) on the workload's clock."""
    origin: float
    """Where that clock is 0, in seconds on the site's clock."""
    measured_cpu: int
    measured_memory: int
    """How many jobs have a measured need, and memory, where that was to be taken."""
    parts: int
    """How many jobs had less than all CPUs of their nodes."""
    report: TraceReport


@dataclass(slots=True)
class _Notes:
    """What was noticed, by rule."""

    found: dict[str, tuple[str, int, list[Example]]] = field(default_factory=dict[str, tuple[str, int, list[Example]]])

    def add(self, rule: str, handled: str, record: Record, name: str, value: object) -> None:
        _, count, examples = self.found.get(rule, ("", 0, []))
        if count < SHOWN:
            examples.append(Example(line=record.line, field=f"{name} of job {record.name}", value=str(value)))
        self.found[rule] = handled, count + 1, examples

    def count(self, *rules: str) -> int:
        return sum(self.found[rule][1] for rule in rules if rule in self.found)

    def warnings(self) -> tuple[TraceWarning, ...]:
        return tuple(
            TraceWarning(rule=rule, handled=handled, count=count, examples=tuple(examples))
            for rule, (handled, count, examples) in self.found.items()
        )


@dataclass(slots=True, kw_only=True)
class _Job:
    """One job that ran: its record, and when it came."""

    record: Record
    """Of the time that it ran to its end."""
    release: float
    start: float
    end: float
    run_s: float
    limit_s: float | None
    begun: bool = False
    """Whether it ran already when the replay begins."""

    @property
    def came(self) -> float:
        """When it began to run if that was before the replay, else when it was submitted."""
        return self.record.start if self.begun and self.record.start is not None else self.record.submit


def replay(accounting: Accounting, nodes: SlurmNodes, options: ReplayOptions) -> Replay:
    """The jobs of `accounting` that ran and ended, for a cluster of `nodes`.

    Raises InputError where no job remains, an option is none of its values, or a job had more CPUs on a node than the
    nodes have.
    """
    for name, value, known in (
        ("tasks", options.tasks, TASKS),
        ("cpu-from", options.cpu_from, CPU_FROM),
        ("memory-from", options.memory_from, MEMORY_FROM),
    ):
        if value not in known:
            raise InputError(f'--{name} "{value}": must be {" or ".join(known)}')
    notes = _Notes()
    jobs = _jobs(accounting.records, notes)
    jobs = jobs if options.since is None else _since(jobs, options.since, notes)
    if not jobs:
        left_out = "".join(f"; {rule}: {count}" for rule, (_, count, _) in notes.found.items())
        raise InputError(f"{accounting.source}: no job remains of {len(accounting.records)} records{left_out}")
    # What came at the same instant stays in this order: who ran, then who waited.
    jobs.sort(key=lambda job: (job.release, not job.begun, job.came))
    per_core = options.tasks == "core"
    units = nodes.split() if per_core else nodes
    tasks, need, memory = _needs(jobs, nodes, units, options, notes)
    origin = jobs[0].release if options.since is None else options.since
    run_s = np.array([job.run_s for job in jobs])
    users = {name: k for k, name in enumerate(sorted({job.record.user for job in jobs} - {""}))}
    workload = Workload(
        job_id=np.array(_numbers([job.record for job in jobs], accounting.records)),
        submit_s=np.array([job.release for job in jobs]) - origin,
        tasks=tasks,
        need=need,
        memory=memory,
        run_s=run_s,
        estimate_s=_estimates(jobs, run_s, options.estimates, notes),
        user=np.array([users.get(job.record.user, -1) for job in jobs]),
        weight=np.ones(len(jobs)),
        nodes=len(units.cpus),
        name=accounting.name,
    )
    report = TraceReport(source=accounting.source, lines=len(accounting.records), warnings=notes.warnings())
    return Replay(
        workload=workload,
        capacity=units.capacity,
        node_bytes=units.reference_memory,
        start_s=np.array([job.start for job in jobs]) - origin,
        end_s=np.array([job.end for job in jobs]) - origin,
        origin=origin,
        measured_cpu=len(jobs) - notes.count(NO_CPU),
        measured_memory=len(jobs) - notes.count(NO_MEMORY, NEITHER),
        parts=sum(job.record.cpus < job.record.nodes * nodes.cpus.min() - _SLACK for job in jobs),
        report=report,
    )


def _jobs(records: Iterable[Record], notes: _Notes) -> list[_Job]:
    """The jobs that ran and ended."""
    by_name: dict[str, list[Record]] = {}
    for record in records:
        by_name.setdefault(record.name, []).append(record)
    jobs: list[_Job] = []
    for same in by_name.values():
        same.sort(key=lambda record: record.submit)
        first = 0
        for k, record in enumerate(same):
            # After another state, a record of this number is of another job: numbers begin anew.
            if k + 1 == len(same) or record.state not in AGAIN:
                job = _job(same[first : k + 1], notes)
                jobs += [] if job is None else [job]
                first = k + 1
    return jobs


def _job(queued: Sequence[Record], notes: _Notes) -> _Job | None:
    """The job that was queued so often; None where it has not ended on nodes."""
    last = queued[-1]
    if last.end is None:
        waits = last.start is None or last.state in WAITING
        rule = "has not started" if waits else "has not ended"
        notes.add(rule, "left out", last, "State", last.state)
        return None
    ran = [record for record in queued if record.ran]
    if not ran:
        notes.add("never started", "left out", last, "State", last.state)
        return None
    record = ran[-1]
    start, end = ran[0].start, record.end
    assert start is not None
    assert end is not None
    first = queued[0]
    release = min(max(first.submit, first.eligible or first.submit), start)
    if release > first.submit:
        notes.add(
            "became eligible after its submission",
            "submitted then",
            first,
            "Eligible",
            f"{release - first.submit:.0f} s later",
        )
    if len(queued) > 1:
        notes.add(
            "queued again", "the last time on nodes taken, from the first submission on", first, "State", first.state
        )
    if "+" in record.name:
        notes.add("part of a heterogeneous job", "taken as a job of its own", record, "State", record.state)
    if record.gpus:
        notes.add("had GPUs, which are not modelled", "taken as any other", record, "State", record.state)
    if record.elapsed_s == 0:
        notes.add("run time 0", "1 s taken", record, "Elapsed", 0)
    run_s = max(record.elapsed_s, 1.0)
    return _Job(record=record, release=release, start=start, end=end, run_s=run_s, limit_s=record.limit_s)


def _since(jobs: Iterable[_Job], since: float, notes: _Notes) -> list[_Job]:
    """What was left of the jobs at an instant, and those that came later."""
    kept: list[_Job] = []
    for job in jobs:
        record = job.record
        if job.end <= since:
            notes.add("ended before --since", "left out", record, "State", record.state)
            continue
        if job.release < since:
            notes.add("there already at --since", "submitted then, with what was left", record, "State", record.state)
        job.begun = job.start < since
        begin = job.start if record.start is None else record.start
        if begin < since:
            left = (job.end - since) / (job.end - begin)
            if job.limit_s is not None:
                job.limit_s = max(job.limit_s - (1.0 - left) * job.run_s, 1.0)
            job.run_s *= left
        job.release, job.start = max(job.release, since), max(job.start, since)
        kept.append(job)
    return kept


def _needs(
    jobs: Sequence[_Job], nodes: SlurmNodes, units: SlurmNodes, options: ReplayOptions, notes: _Notes
) -> tuple[np.ndarray, Floats, Floats]:
    """(J,) tasks, and the CPU need and memory of each as fractions of the largest unit: a node, or a CPU."""
    tasks = np.empty(len(jobs), np.int64)
    need, memory = np.empty(len(jobs)), np.empty(len(jobs))
    for k, job in enumerate(jobs):
        record = job.record
        if record.cpus > record.nodes * nodes.reference_cpus * (1 + _SLACK):
            raise InputError(
                f"{record.where}: job {record.name} had {record.cpus} CPUs on {record.nodes} nodes: must be at most "
                f"the {nodes.reference_cpus:g} that a node has"
            )
        whole = _memory(record, options.memory_from, notes) * record.nodes
        tasks[k] = record.nodes
        if options.tasks == "core":
            blocked = math.ceil(whole / units.reference_memory - _SLACK)
            if blocked > record.cpus:
                rule = "more memory than that of its CPUs' parts of nodes"
                notes.add(rule, "CPUs with so much memory taken", record, "memory in bytes", f"{whole:.0f}")
            tasks[k] = max(record.cpus, blocked)
        cpus = _cpus(record, options.cpu_from, notes) / tasks[k] / units.reference_cpus
        share = whole / tasks[k] / units.reference_memory
        if cpus > 1 + _SLACK:
            notes.add(
                "more CPU time than its nodes have",
                "all of them taken",
                record,
                "CPUs used",
                f"{cpus * tasks[k] * units.reference_cpus:.6g}",
            )
        if share > 1 + _SLACK:
            notes.add("memory above that of a node", "a whole node's taken", record, "memory", f"{share:.3g} nodes")
        need[k], memory[k] = min(max(cpus, LEAST_NEED), 1.0), min(share, 1.0)
    return tasks, need, memory


def _cpus(record: Record, source: str, notes: _Notes) -> float:
    """How many CPUs the job kept busy."""
    measured = record.measured_cpu_s
    if source == "measured" and measured is not None and record.elapsed_s > 0:
        return measured / record.elapsed_s
    if source == "measured":
        notes.add(NO_CPU, "its allocated CPUs taken", record, "CPUs", record.cpus)
    return float(record.cpus)


def _memory(record: Record, source: str, notes: _Notes) -> float:
    """Bytes on each of its nodes."""
    measured = record.measured_memory
    if source == "measured" and measured is not None:
        return measured
    if record.requested is None:
        if measured is not None:
            notes.add("no memory requested", "what was measured taken", record, "memory in bytes", f"{measured:.0f}")
            return measured
        notes.add(NEITHER, "none taken", record, "State", record.state)
        return 0.0
    if source == "measured":
        notes.add(NO_MEMORY, "what it requested taken", record, "memory in bytes", f"{record.requested:.0f}")
    return record.requested


def _estimates(jobs: Sequence[_Job], run_s: Floats, estimates: str, notes: _Notes) -> Floats:
    limit = np.array([math.nan if job.limit_s is None else max(job.limit_s, 1.0) for job in jobs])
    if estimates in {"user", "raised"}:
        for job in jobs:
            if job.limit_s is None:
                notes.add("no time limit", "its run time taken for it", job.record, "State", job.record.state)
    given = np.where(np.isnan(limit), run_s, limit)
    return choose_estimates(estimates, run_s, given, np.maximum(given, run_s))


def _numbers(records: Iterable[Record], whole: Iterable[Record]) -> list[int]:
    """Slurm's numbers where they are known and stand once; for others, numbers after the largest in the whole file."""
    seen: set[int] = set()
    after = 1 + max(record.number or 0 for record in whole)
    numbers: list[int] = []
    for record in records:
        number = record.number
        if number is None or number in seen:
            number, after = after, after + 1
        seen.add(number)
        numbers.append(number)
    return numbers
