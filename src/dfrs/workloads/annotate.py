"""From a trace to a workload: tasks, CPU needs, memory and estimates, which traces do not have or have otherwise.

A trace counts processors; a workload has tasks on nodes that are shared ([Stillwell2010] section 5.3.2). What a task
needs is assumed, by one of these annotations:

- `dfrs`, for synthetic traces on quad-core nodes: tasks = processors, each node one of the trace's processors. The task
  of a one-task job is sequential, CPU need 0.25; other tasks are multi-threaded, need 1. Memory is 10 % with
  probability 0.55, else 10 * x % with x uniform on 2, …, 10.
- `hpc2n`, for dual-core nodes with 2 GB: `smp:2:2`.
- `smp:CORES:GIB`, for nodes with that many cores and that much memory: memory per processor is the larger of
  requested and used, at least 20 % of a core's part of the node and at most 10 % of the node, which is also taken where
  none is given: 10 % of a dual-core node, as in the document, and little enough for all cores of larger ones. Where the
  number of processors
  is a multiple of CORES and CORES times that memory is less than a node's (if it is the same, not), tasks have CORES
  threads: tasks = processors / CORES, need 1, memory CORES times that of a processor. Else tasks = processors, need
  1 / CORES.
- `none`: whole processors, as batch schedulers give them out: tasks = processors, need 1, memory 0.
- `unit:N`: processors that are given out in groups of N, as Blue Gene/P does with its 32 ([Kumar2011] section V): a
  node is a group, tasks = processors / N rounded up, need 1, memory 0. Of a machine, what is left of a group is not
  used.

Users' commands for more or fewer processors become commands for tasks: the amount is divided by the processors that a
task of that job stands for, and rounded up.
"""

from dataclasses import dataclass, replace

import numpy as np

from dfrs.model.elastic import TIME_KINDS, ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.workloads.cwf import Cwf
from dfrs.workloads.swf import CANCELLED_STATUS, Swf
from dfrs.workloads.trace_warnings import TraceReport, TraceWarning, trace_warning

OVERRUN = ("keep", "cut")
LARGER = ("keep", "drop", "clamp")

SEQUENTIAL_NEED = 0.25
SMALL_MEMORY = 0.1
SMALL_MEMORY_PROBABILITY = 0.55
KB_PER_GIB = 2.0**20
BYTES_PER_KB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tasks:
    """What J jobs consist of."""

    tasks: Ints
    need: Floats
    memory: Floats
    processors: Ints
    """(J,) that each task stands for."""
    warnings: tuple[TraceWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """How processors of a trace become tasks on nodes. Raises InputError for what is not one."""

    name: str
    cores: int = 1
    """Processors of the trace in each node."""
    node_kb: float = np.inf

    def __post_init__(self) -> None:
        if not self.cores >= 1 or not self.node_kb > 0:
            what = "N" if self.name.startswith("unit:") else "cores and memory"
            raise InputError(f"annotate = {self.name}: {what} must be above 0")

    @classmethod
    def parse(cls, text: str) -> "Annotation":
        """`dfrs`, `hpc2n`, `none` (or `processors`, the same), `smp:CORES:GIB`, or `unit:N`."""
        if text in {"dfrs", "none", "processors"}:
            return cls(name="none" if text == "processors" else text)
        parts = ("smp:2:2" if text == "hpc2n" else text).split(":")
        try:
            if len(parts) == 3 and parts[0] == "smp":
                return cls(name=text, cores=int(parts[1]), node_kb=float(parts[2]) * KB_PER_GIB)
            if len(parts) == 2 and parts[0] == "unit":
                return cls(name=text, cores=int(parts[1]))
        except ValueError:
            pass
        raise InputError(f'annotate = "{text}": must be dfrs, hpc2n, none, smp:CORES:GIB or unit:N')

    @property
    def node_bytes(self) -> float | None:
        """Memory of a node; None where the annotation does not say."""
        return self.node_kb * BYTES_PER_KB if np.isfinite(self.node_kb) else None

    @property
    def least_memory(self) -> float:
        """What each processor of a trace has at least, as a fraction of a node with so many."""
        return min(SMALL_MEMORY, 2 * SMALL_MEMORY / self.cores)

    @property
    def meaning(self) -> str:
        """What a node is, and what tasks need, in one line."""
        if self.name == "dfrs":
            small, chance = f"{100 * SMALL_MEMORY:g} %", SMALL_MEMORY_PROBABILITY
            return (
                f"a node is a processor of the trace; tasks need a CPU of 1, those of one-task jobs {SEQUENTIAL_NEED}; "
                f"memory is drawn, {small} of a node with probability {chance}, else 20 to 100 %"
            )
        if self.node_bytes is None:
            node = "a processor" if self.cores == 1 else f"{self.cores} processors"
            return f"a node is {node} of the trace; tasks need a whole node and no memory"
        least_mib = self.least_memory * self.node_kb / 1024
        return (
            f"a node has {self.cores} processors of the trace and {self.node_kb / KB_PER_GIB:g} GiB; "
            f"each processor of a job needs the memory that the trace says, at least {100 * self.least_memory:.3g} % "
            f"of a node ({least_mib:,.0f} MiB)"
        )

    def tasks_of(self, swf: Swf, processors: Ints, seed: int) -> Tasks:
        """Tasks of the jobs of `swf`, which have `processors` (J,); `dfrs` draws two doubles a job, in their order."""
        one = np.ones(len(swf), np.int64)
        if self.name == "none" or self.name.startswith("unit:"):
            tasks = -(-processors // self.cores)
            return Tasks(tasks=tasks, need=np.ones(len(swf)), memory=np.zeros(len(swf)), processors=one * self.cores)
        if self.name == "dfrs":
            small, size = np.random.default_rng(seed).random((len(swf), 2)).T
            large = (2 + np.floor(9 * size)) / 10
            return Tasks(
                tasks=processors,
                need=np.where(processors == 1, SEQUENTIAL_NEED, 1.0),
                memory=np.where(small < SMALL_MEMORY_PROBABILITY, SMALL_MEMORY, large),
                processors=one,
            )
        return self._threaded(swf, processors)

    def _threaded(self, swf: Swf, processors: Ints) -> Tasks:
        known = np.maximum(swf.requested_kb, swf.used_kb)
        share = np.maximum(known / self.node_kb, self.least_memory)
        threaded = (processors % self.cores == 0) & (share * self.cores < 1.0)
        least = f"{100 * self.least_memory:.3g} %"
        return Tasks(
            tasks=np.where(threaded, processors // self.cores, processors),
            need=np.where(threaded, 1.0, 1.0 / self.cores),
            memory=np.minimum(np.where(threaded, share * self.cores, share), 1.0),
            processors=np.where(threaded, self.cores, 1),
            warnings=(
                _odd("no memory given", f"{least} of a node taken", known <= 0, swf, "memory (KB)", known),
                _odd("memory above that of a node", "a whole node's taken", share > 1.0, swf, "memory (KB)", known),
            ),
        )


def _odd(rule: str, handled: str, bad: Bools, swf: Swf, label: str, values: np.ndarray | None = None) -> TraceWarning:
    return trace_warning(rule, handled, bad, swf.line, label, getattr(swf, label) if values is None else values)


def to_workload(
    trace: Swf | Cwf,
    *,
    nodes: int | None = None,
    annotate: str = "dfrs",
    estimates: str | float = "perfect",
    overrun: str = "keep",
    larger: str = "keep",
    seed: int = 0,
) -> tuple[Workload, TraceReport]:
    """The workload of a trace on `nodes` nodes (default: the header's MaxProcs, else MaxNodes, by the cores of a node).

    A job has its allocated processors, or where that is not above 0 those it requested, or else is dropped. A run time
    below 0 is unknown: the job is dropped; one of 0 is 1 s. A job with more processors than all nodes have is kept (who
    runs the workload says that it cannot), or with `larger` dropped or cut to the machine. A run time above the
    requested one is kept, or with `overrun="cut"` the requested one is taken, as where jobs are killed.

    `estimates`: "perfect", the run time; "user", the requested time, or where there is none the run time; "raised", as
    "user" but at least the trace's run time and 1 s; "none"; a factor of at least 1 on the run time.

    Of a `Cwf` the workload has requested starts and commands, also those on jobs that were dropped. Raises InputError
    where an option is none of these, the number of nodes is not known, or no job remains.
    """
    swf = trace.jobs if isinstance(trace, Cwf) else trace
    annotation = Annotation.parse(annotate)
    _check_option("overrun", overrun, OVERRUN)
    _check_option("larger", larger, LARGER)
    nodes = _nodes(swf, annotation, nodes)
    processors, keep, warnings = _processors(swf, nodes * annotation.cores, larger)
    # Drawn for all lines of the trace, so that what a job gets does not hang on which others are dropped.
    tasks = annotation.tasks_of(swf, processors, seed)
    run_s, estimate_s, odd_times = _times(swf, estimates, overrun)
    keep &= swf.run_s >= 0
    report = swf.report.and_([*warnings, *odd_times, *tasks.warnings])
    if not keep.any():
        first = f"; {report.warnings[0].refusal(report.source)}" if report.warnings else ""
        raise InputError(f"{report.source or swf.name}: no valid job remains of {len(swf)}{first}")
    workload = Workload(
        job_id=swf.job_id[keep],
        submit_s=swf.submit_s[keep],
        tasks=tasks.tasks[keep],
        need=tasks.need[keep],
        memory=tasks.memory[keep],
        run_s=run_s[keep],
        estimate_s=estimate_s[keep],
        user=np.maximum(swf.user, -1)[keep],
        weight=np.ones(int(keep.sum())),
        nodes=nodes,
        name=swf.name,
    )
    if isinstance(trace, Cwf):
        starts, commands = trace.requested_start_s[keep], _in_tasks(trace.commands, swf, tasks.processors)
        workload = workload.with_columns(requested_start_s=starts, commands=commands)
    return workload, report


def _in_tasks(commands: ElasticCommands, swf: Swf, processors: Ints) -> ElasticCommands:
    """`commands`, which have amounts in processors, on jobs whose tasks stand for `processors` (J,) each."""
    if not len(commands):
        return commands
    order = np.argsort(swf.job_id)
    at = order[np.minimum(np.searchsorted(swf.job_id[order], commands.job_id), len(swf) - 1)]
    # Whatever an unknown job's tasks would be, its amount stays above 0.
    tasks = np.ceil(commands.amount / processors[at])
    return replace(commands, amount=np.where(np.isin(commands.kind, TIME_KINDS), commands.amount, tasks))


def _check_option(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f'{name} = "{value}": must be one of {", ".join(known)}')


def _nodes(swf: Swf, annotation: Annotation, nodes: int | None) -> int:
    if nodes is not None:
        if nodes < 1:
            raise InputError(f"nodes = {nodes}: must be at least 1")
        return nodes
    machine = swf.machine_processors
    if machine is None:
        where = swf.report.source or swf.name
        raise InputError(f"{where}: the header has neither MaxProcs nor MaxNodes: give the number of nodes")
    if annotation.name.startswith("unit:") and machine > annotation.cores and machine % annotation.cores:
        where = swf.report.source or swf.name
        raise InputError(f"{where}: annotate = {annotation.name}: must divide the {machine} processors of the header")
    return max(machine // annotation.cores, 1)


def _processors(swf: Swf, machine: int, larger: str) -> tuple[Ints, Bools, list[TraceWarning]]:
    """(J,) processors, at least 1; (J,) which jobs to keep; what was odd."""
    unknown = swf.processors < 1
    neither = unknown & (swf.requested_processors < 1)
    processors = np.where(unknown, np.maximum(swf.requested_processors, 1), swf.processors)
    too_large = (processors > machine) & ~neither
    handled = {"keep": "kept", "drop": "dropped", "clamp": f"{machine} taken"}[larger]
    asked, cancelled = unknown & ~neither, swf.status == CANCELLED_STATUS
    warnings = [
        _odd("number of processors unknown", "requested processors taken", asked & ~cancelled, swf, "processors"),
        _odd("cancelled, processors unknown", "requested processors taken", asked & cancelled, swf, "processors"),
        _odd("number of processors unknown, none requested", "dropped", neither, swf, "processors"),
        _odd("larger than the cluster", handled, too_large, swf, "processors", processors),
    ]
    keep = ~neither & ~(too_large & (larger == "drop"))
    return np.minimum(processors, machine) if larger == "clamp" else processors, keep, warnings


def _times(swf: Swf, estimates: str | float, overrun: str) -> tuple[Floats, Floats, list[TraceWarning]]:
    """(J,) run times, above 0; (J,) estimates; what was odd."""
    run_s = np.where(swf.run_s > 0, swf.run_s, 1.0)
    requested_s = np.where(swf.requested_s > 0, swf.requested_s, np.nan)
    over = run_s > requested_s
    warnings = [
        _odd("run time unknown", "dropped", swf.run_s < 0, swf, "run_s"),
        _odd("run time 0", "1 s taken", swf.run_s == 0, swf, "run_s"),
        _odd("run time above the requested time", "cut to it" if overrun == "cut" else "kept", over, swf, "run_s"),
    ]
    if estimates in {"user", "raised"}:
        warnings.append(_odd("no requested time", "run time taken", np.isnan(requested_s), swf, "requested_s"))
    given = np.where(np.isnan(requested_s), run_s, requested_s)
    raised = np.maximum(np.maximum(given, run_s), 1.0)
    if overrun == "cut":
        run_s = np.where(over, requested_s, run_s)
    return run_s, choose_estimates(estimates, run_s, given, raised), warnings


def choose_estimates(estimates: str | float, run_s: Floats, given_s: Floats, raised_s: Floats) -> Floats:
    """(J,) estimates as `to_workload` names them, from run times and requested times as they are and raised."""
    named = {"perfect": run_s, "user": given_s, "raised": raised_s, "none": np.full(len(run_s), np.nan)}
    if isinstance(estimates, str) and estimates in named:
        return named[estimates]
    return run_s * _factor(estimates)


def _factor(estimates: str | float) -> float:
    try:
        factor = float(estimates)
    except ValueError:
        factor = np.nan
    if not 1.0 <= factor < np.inf:
        raise InputError(f'estimates = "{estimates}": must be perfect, user, raised, none, or a factor of at least 1')
    return factor
