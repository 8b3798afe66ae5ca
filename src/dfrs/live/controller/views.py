"""The controller's state as users see it."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from dfrs.live.controller import reasons
from dfrs.live.controller.records import JobOutcome, JobRecord, NodeRecord, TaskRecord
from dfrs.live.controller.snapshot_copy import virtual_s
from dfrs.live.controller.state import State, waits_for_start
from dfrs.live.drivers.base import TaskState
from dfrs.live.protocol.resources import Job, JobPoint, JobRequest, JobState, NodeState
from dfrs.model.decisions import PAUSED, RUNNING
from dfrs.model.errors import InputError
from dfrs.model.nodes import Condition, most_tasks

LATEST_START_S = 10 * 366 * 86400.0
"""So far ahead a requested start may be."""
KEPT_S = 86400.0
"""So long a lost node is still shown."""
LEAST_ERROR_CORES = 0.01
"""Error bars are not shown any shorter."""
TAU_S = 10.0
"""Flow and virtual times count as at least so long in a stretch, as in the bounded stretches of simulations."""
APART = 0.05
"""What was received differs from what was granted when it does by more than this, and by two standard deviations."""
ON_NODES = frozenset({JobState.STARTING, JobState.RUNNING})
"""States of jobs that have a yield."""

Processors = tuple[str, tuple[int, ...]]
"""A host, and numbers of CPUs of it."""


class Present:
    """What views of all jobs and nodes at one instant have in common, worked out once: by default of now.

    `now` is what the wall clock says then, `now_s` the core's time.
    """

    def __init__(self, state: State, now: float | None = None, now_s: float | None = None) -> None:
        self.now = state.settings.clock() if now is None else now
        self.now_s = state.now_s() if now_s is None else now_s
        self._state = state

    @cached_property
    def used(self) -> Mapping[int, float]:
        """As `used_by_node`."""
        return used_by_node(self._state)

    @cached_property
    def outside(self) -> Mapping[int, float]:
        """As `outside_cores`."""
        return outside_cores(self._state, self.used)

    @cached_property
    def any_open(self) -> bool:
        """Whether some node takes new tasks."""
        return bool(self._state.picture.snapshot.open.any())

    @cached_property
    def nodes_by_state(self) -> str:
        """As `_what_nodes_are`."""
        return _what_nodes_are(self._state, self.now)

    @cached_property
    def waiting(self) -> reasons.Waiting:
        """Why jobs wait."""
        return reasons.Waiting(self._state, self.now)


def too_large(state: State, request: JobRequest) -> str:
    """Why a request fits on no set of the nodes known, and what would; "" if it fits."""
    if state.reference_cores is None or state.reference_bytes is None:
        return ""
    cpu, memory = state.need(request), state.memory_bytes(request) / state.reference_bytes
    if cpu > 1:
        return f"cpu_cores: {request.cpu_cores:g}: a task can need at most {state.reference_cores:g} cores here"
    if request.tasks == 1 and any(_holds(state, node, request) for node in state.nodes):
        return ""
    nodes = [node for node in present_nodes(state) if _counts(state, node)]
    reference = state.reference_bytes
    largest = min(reference, max((node.facts.memory_bytes for node in nodes), default=reference))
    if memory > 1 or state.memory_bytes(request) > largest:
        mib = largest / (1 << 20)
        return (
            f"memory_bytes: {state.memory_bytes(request)}: a task can have at most {largest} bytes ({mib:.0f} MiB) here"
        )
    sizes = [(node.facts.cpus, node.facts.memory_bytes) for node in nodes]
    capacity = np.array(sizes).reshape(-1, 2) / (state.reference_cores, state.reference_bytes)
    most = most_tasks(capacity, cpu, memory, exclusive=state.exclusive)
    if nodes and request.tasks > most:
        return f"tasks: {request.tasks}: all nodes together hold at most {most:g} such tasks"
    return ""


def _holds(state: State, node: NodeRecord, request: JobRequest) -> bool:
    """Whether such a task fits on a node that counts. The first one that it fits on is enough: of thousands of nodes no
    list is made for each submission.
    """
    facts = node.facts
    fits = state.memory_bytes(request) <= min(facts.memory_bytes, state.reference_bytes or 0)
    fits = fits and facts.cpus >= state.need(request) * (state.reference_cores or 0.0)
    return fits and is_present(state, node) and _counts(state, node)


def _counts(state: State, node: NodeRecord) -> bool:
    """Whether jobs may be meant for a node: it is there, or may well come back."""
    where = node_state(state, node)
    return where is not NodeState.LOST and not (where is NodeState.SILENT and node.drained)


def check_fits(state: State, request: JobRequest) -> None:
    """Raise InputError where it starts too far ahead, limits no array, or can never run on the nodes known; before any
    are, all may.
    """
    if request.array_limit is not None and request.array is None:
        raise InputError(f"array_limit: {request.array_limit}: must come with an array, whose jobs it limits")
    latest = state.settings.clock() + LATEST_START_S
    if request.start_at is not None and request.start_at > latest:
        raise InputError(f"start_at: {request.start_at:.0f}: must be at most 10 years ahead")
    problem = too_large(state, request)
    if problem:
        raise InputError(problem)


def job_state(state: State, job: JobRecord) -> JobState:
    """Where a job that has not ended is in its life."""
    if job.outcome is not None:
        return JobState.ENDING
    if job.held:
        return JobState.HELD
    if not job.registered:
        start_at = job.request.start_at
        waits = job.waits_for or (start_at is not None and start_at > state.settings.clock())
        return JobState.PENDING if waits else JobState.WAITING
    seen = state.picture.state(job.id)
    if seen == PAUSED:
        return JobState.PAUSED
    if seen != RUNNING:
        return JobState.WAITING
    started = job.tasks and all(task.started for task in job.tasks)
    return JobState.RUNNING if started else JobState.STARTING


def why(state: State, job: JobRecord, now: JobState, present: Present) -> str:
    """In words: why it is where it is."""
    if now is JobState.PENDING:
        if job.waits_for:
            begin = all(waits_for_start(job.request, name) for name in job.waits_for)
            names = ", ".join(str(name) for name in sorted(job.waits_for)[:5])
            return f"waits for job {names} to {'start' if begin else 'end'}"
        return reasons.requested_start(job.request.start_at or 0.0, present.now)
    if now is JobState.WAITING:
        return _why_waiting(state, job, present)
    if now is JobState.HELD:
        return job.why or "held since its submission"
    errors = [observation.error for task in job.tasks for observation in task.at.values() if observation.error]
    if errors and now in {JobState.STARTING, JobState.ENDING, JobState.RUNNING}:
        return errors[0]
    if now is JobState.STARTING and job.old:
        names = {state.nodes[number].name for task in job.old for number in task.at}
        return f"waits until its last attempt has ended on {', '.join(sorted(names))}"
    if now is JobState.STARTING:
        return f"is being started on {_names(places(state, job))}"
    return job.why


def _why_waiting(state: State, job: JobRecord, present: Present) -> str:
    if not state.nodes:
        return "waits: no node has joined yet"
    if job.over_quota and not job.registered:
        return job.over_quota
    if limited := state.arrays.why(job):
        return limited
    row = state.picture.rows.get(job.id)
    if not job.registered or row is None:
        return "waits: it was just submitted"
    if state.policy_problem is not None:
        return f"waits: {state.policy_problem}"
    if not present.any_open:
        return f"waits: no node takes new tasks now{present.nodes_by_state}"
    return present.waiting.why(job, row)


def _what_nodes_are(state: State, now: float) -> str:
    """How many nodes are what, in brackets; of those that are reserved, when the first is open again."""
    nodes = present_nodes(state)
    held = {node.name: state.reservations.on(node.name, now) for node in nodes if not node.drained}
    ends = [each.end_at for each in held.values() if each is not None]
    until = f"reserved until {reasons.clock_words(min(ends), now)}" if ends else ""
    found = Counter(
        until if where is NodeState.DRAINING and held.get(node.name) is not None else where.value
        for node, where in ((node, node_state(state, node)) for node in nodes)
    )
    words = ", ".join(f"{number} {where}" for where, number in sorted(found.items()))
    return f" ({words})" if words else ""


def _names(nodes: Sequence[str], most: int = 3) -> str:
    """Each once; the first ones, and how many more."""
    names = list(dict.fromkeys(nodes))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def host_of(task: TaskRecord) -> int | None:
    """The node on which a task is and has not ended; None: there is none."""
    if task.exit is not None:
        return None
    if len(task.at) == 1:
        # As `holder` has it, without a detour: nearly all of tens of thousands of tasks are on one node.
        ((node, only),) = task.at.items()
        gone = only.state is None or only.state is TaskState.EXITED or only.transfers < task.transfers
        return None if gone else node
    holder = task.holder
    return None if holder is None or task.at[holder].state is TaskState.EXITED else holder


def used_cores(record: JobRecord) -> float | None:
    """CPU of its tasks in the last seconds; None where nothing is known."""
    known = [task.used_cores for task in record.all_tasks if task.used_cores is not None and host_of(task) is not None]
    return math.fsum(known) if known else None


def used_bytes(record: JobRecord) -> int | None:
    """Memory of its tasks that run, as last reported; None where nothing is known."""
    known = [task.usage.memory_bytes for task in record.tasks if task.usage is not None and task.exit is None]
    return sum(known) if known else None


def used_by_node(state: State) -> Mapping[int, float]:
    """Cores that tasks use, by the number of their node, where they use any."""
    used: dict[int, float] = {}
    for record in state.jobs.values():
        # Few jobs have older tasks: for the others no list is put together.
        for task in record.all_tasks if record.old else record.tasks:
            cores = task.used_cores
            where = host_of(task) if cores else None
            if cores and where is not None:
                used[where] = used.get(where, 0.0) + cores
    return used


def cpu_s(job: JobRecord) -> float:
    """CPU time used by all tasks of this attempt."""
    total = 0.0
    for task in job.tasks:
        if task.exit is not None and task.exit.cpu_s is not None:
            total += task.exit.cpu_s
        elif task.usage is not None:
            total += task.usage.cpu_s
    return total


def peak_bytes(job: JobRecord) -> int | None:
    """The most memory that one of its ended tasks had; None where that is not known."""
    known = [task.exit.peak_bytes for task in job.tasks if task.exit is not None and task.exit.peak_bytes is not None]
    return max(known, default=None)


def need_cores(state: State, job: JobRecord) -> float:
    """What a task is taken to need."""
    if job.registered and job.need:
        return job.need * (state.reference_cores or 1.0)
    if state.reference_cores is None:
        return job.request.cpu_cores or 1.0
    return state.need(job.request) * state.reference_cores


def job(
    state: State,
    record: JobRecord,
    *,
    outcome: JobOutcome | None = None,
    where: JobState | None = None,
    present: Present | None = None,
) -> Job:
    """A job; with `outcome`, as it ended then. `present` is shared by all views of one instant; `where`: its state
    then.
    """
    present = present or Present(state)
    at = present.now
    if where is None:
        where = job_state(state, record) if outcome is None else outcome.state
    request, need = record.request, need_cores(state, record)
    row = state.picture.row(record.id)
    known = record.row if row is None else row
    granted_s = 0.0
    if known is not None and record.registered:
        then_s = state.picture.snapshot.now_s if row is not None else present.now_s
        granted_s = virtual_s(known, then_s, present.now_s)
    granted, worst = (granted_yield(state, record), _worst_served(record)) if where in ON_NODES else (None, None)
    received = None if worst is None else worst[0]
    measured_s = received_virtual_s(record, present.now_s)
    virtual = granted_s if measured_s is None else measured_s
    return Job(
        id=record.id,
        name=record.name,
        user=record.user,
        state=where,
        why=why(state, record, where, present) if outcome is None else outcome.exit,
        command=request.command,
        tasks=request.tasks,
        cpu_cores=request.cpu_cores,
        need_cores=need,
        need_error_cores=_error_cores(state, record),
        memory_bytes=state.memory_bytes(request),
        minimum_yield=request.minimum_yield,
        weight=request.weight,
        fair_share=state.fair_shares.factor(request, record.user) if outcome is None and state.fair_shares.on else None,
        yield_granted=granted,
        yield_received=None if received is None else received[0],
        yield_received_error=None if received is None else received[1],
        apart="" if granted is None else _apart(state, granted, worst, present),
        used_cores=used_cores(record),
        used_bytes=used_bytes(record),
        cpu_s=cpu_s(record),
        peak_bytes=peak_bytes(record),
        nodes=places(state, record),
        submitted_at=record.submitted_at,
        started_at=record.started_at,
        ended_at=None if outcome is None else at,
        start_at=request.start_at,
        virtual_s=virtual,
        virtual_measured=measured_s is not None or record.started_at is None,
        virtual_granted_s=granted_s - record.ungranted_s,
        stretch=stretch(record, at, virtual),
        estimate_s=request.estimate_s,
        time_limit_s=request.time_limit_s,
        after=request.after,
        after_failed=request.after_failed,
        after_any=request.after_any,
        after_start=request.after_start,
        array_index=record.array_index,
        array_limit=request.array_limit,
        attempt=record.attempt,
        generation=record.generation,
        pauses=0 if known is None else int(known["pauses"]),
        migrations=0 if known is None else int(known["migrations"]),
        exit="" if outcome is None else outcome.exit,
        exit_code=None if outcome is None else outcome.code,
        profile=request.profile,
        restart=request.restart,
        input=request.input or request.terminal is not None,
        terminal=request.terminal is not None,
        nodelist=request.nodelist,
        exclude=request.exclude,
        constraint=request.constraint,
        resources=request.resources,
        exclusive=request.exclusive,
        account=request.account,
        output_file=request.output_file,
        error_file=request.error_file,
    )


def stretch(record: JobRecord, at: float, virtual_s: float) -> float:
    """Of a job with that virtual time at that time of the wall clock."""
    flow_s = max(0.0, at - max(record.submitted_at, record.request.start_at or 0.0))
    return max(TAU_S, flow_s) / max(TAU_S, virtual_s)


def received_yield(record: JobRecord) -> tuple[float, float] | None:
    """(yield that its worst served task received in the last seconds, its error bar); None where it is not measured."""
    worst = _worst_served(record)
    return None if worst is None else worst[0]


def _worst_served(record: JobRecord) -> tuple[tuple[float, float], TaskRecord] | None:
    worst: tuple[tuple[float, float], TaskRecord] | None = None
    for task in record.tasks:
        received = None if task.exit is not None else task.received.yield_now
        if received is not None and (worst is None or received < worst[0]):
            worst = received, task
    return worst


def received_virtual_s(record: JobRecord, now_s: float) -> float | None:
    """Virtual time of its least advanced task, as it was received; None where that is not measured."""
    known = [task.received.virtual_s(now_s) for task in record.tasks]
    return min((each for each in known if each is not None), default=None)


def job_point(state: State, record: JobRecord, now: float) -> JobPoint:
    """This instant of a job that has not ended, as `job` has it."""
    on_nodes = job_state(state, record) in ON_NODES
    received = received_yield(record) if on_nodes else None
    return JobPoint(
        time=now,
        yield_granted=granted_yield(state, record) if on_nodes else None,
        yield_received=None if received is None else received[0],
        need_cores=need_cores(state, record),
        used_cores=used_cores(record),
        used_bytes=used_bytes(record),
    )


def granted_yield(state: State, record: JobRecord) -> float:
    """What the shares of its tasks are of their need, at most 1: that of its least task."""
    need, least = need_cores(state, record), 1.0
    if need > 0.0:
        for task in record.tasks:
            least = min(least, state.placement.share_cores(record, task) / need)
    return least


def _apart(state: State, granted: float, worst: tuple[tuple[float, float], TaskRecord] | None, present: Present) -> str:
    """Why what it receives is not what it was granted, in words; empty where it is."""
    if worst is None:
        return ""
    (received, error), task = worst
    if abs(received - granted) <= max(APART, 2.0 * error):
        return ""
    if received > granted:
        return "others leave it more than it was granted, or it needs less than it is taken to need"
    node = state.nodes[task.target]
    return f"{node.name}: {_why_less(node, task, present.outside.get(node.number, 0.0))}"


def outside_cores(state: State, used_by: Mapping[int, float]) -> Mapping[int, float]:
    """What programs that are no tasks use of each node's CPUs, by its number, where that is measured. `used_by`: as
    `used_by_node`.

    Nodes may have the same CPUs: then what tasks of all of them use is no such program's.
    """
    used: dict[Processors, float] = {}
    for number, cores in used_by.items():
        same = processors(state.nodes[number])
        used[same] = used.get(same, 0.0) + cores
    return {
        node.number: max(0.0, node.load.busy_cores - used.get(processors(node), 0.0))
        for node in state.nodes
        if node.load.last is not None
    }


def processors(node: NodeRecord) -> Processors:
    """Host and CPUs, by which nodes that have the same are known."""
    return node.facts.host, node.load.cpus


def left_cores(state: State, node: NodeRecord) -> float | None:
    """What is left of a node's CPUs for tasks, as the policy sees it; None where that is all of them."""
    part = state.picture.part_left(node.number)
    return None if part >= 1.0 else part * node.facts.cpus


def who_else(state: State, node: NodeRecord) -> str:
    """Who uses CPUs of a node beside its tasks, as the beginning of a sentence."""
    others = outside_cores(state, used_by_node(state)).get(node.number, 0.0)
    return "other virtual machines take" if node.load.steal_cores > others else "programs beside the cluster's use"


def _why_less(node: NodeRecord, task: TaskRecord, others: float) -> str:
    """What keeps a task of a node from what it was granted. `others`: cores that other programs use."""
    stolen = node.load.steal_cores
    words: list[str] = []
    if others > APART * node.facts.cpus:
        words.append(f"programs beside the cluster's use {others:.2f} cores of its host")
    if stolen > APART * node.facts.cpus:
        words.append(f"{stolen:.2f} cores are taken by other virtual machines")
    if task.capped_cores > APART:
        words.append(f"its cap keeps it from {task.capped_cores:.2f} cores")
    return "; ".join(words) or "its CPUs are not shared as exactly as that, or the shares are new"


def _error_cores(state: State, record: JobRecord) -> float | None:
    if record.request.cpu_cores is not None or record.need_error is None:
        return None
    return max(LEAST_ERROR_CORES, record.need_error * (state.reference_cores or 1.0))


def places(state: State, record: JobRecord) -> tuple[str, ...]:
    """Names of its nodes, one a task: where it is, or, as long as no node has it, is to be. Nothing before that."""
    return tuple(
        state.nodes[task.target if task.holder is None else task.holder].name
        for task in record.tasks
        if task.target >= 0
    )


def node_state(state: State, node: NodeRecord) -> NodeState:
    """What a node is to the controller."""
    if node.condition is Condition.DOWN:
        return NodeState.LOST
    if state.settings.steady() - node.seen_at >= state.settings.silent_s:
        return NodeState.SILENT
    if node.drained or state.reservations.on(node.name, state.settings.clock()) is not None:
        return NodeState.DRAINING
    return NodeState.UNHEALTHY if node.problem else NodeState.UP


def present_nodes(state: State) -> list[NodeRecord]:
    """Nodes by name, without those whose name another host has now, and those that have been lost for long."""
    return sorted((node for node in state.nodes if is_present(state, node)), key=lambda node: node.name)


def is_present(state: State, node: NodeRecord) -> bool:
    """Whether a node is still taken for one."""
    if state.numbers[node.name] != node.number:
        return False
    return node.condition is not Condition.DOWN or state.settings.steady() - node.seen_at < KEPT_S
