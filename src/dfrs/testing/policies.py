"""For tests of policies: snapshots in a few lines, a check of what is decided, random workloads."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from dfrs.engine.check import check
from dfrs.engine.reconcile import reconcile
from dfrs.model.decisions import JOB, PAUSED, RUNNING, WAITING, Cause, Policy, PolicyError, Snapshot, Target
from dfrs.model.errors import DfrsError, InputError
from dfrs.model.instance import Floats
from dfrs.model.jobs import Workload
from dfrs.model.nodes import Condition, NodeChange
from dfrs.policies.names import find_policy
from dfrs.runs.directory import write_run
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.version import __version__

SIZES = (0.1, 0.25, 0.5, 1.0)
RUN_S = (5.0, 60.0, 600.0, 4000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotJob:
    """A job of a snapshot. It runs where it has `nodes`, is paused if `paused`, and waits otherwise."""

    id: int | None = None
    """None: its number in the order given, from 1."""
    nodes: Sequence[int] = ()
    """Node index of each task."""
    tasks: int | None = None
    """None: as many as it has nodes, or 1."""
    need: float = 1.0
    """CPU need of each task; 1 is the whole of a reference node."""
    memory: float = 0.0
    """Memory requirement of each task."""
    yield_: float | None = None
    """At present; None: 1 if it runs, else 0."""
    paused: bool = False
    submit_s: float = 0.0
    virtual_s: float = 0.0
    weight: float = 1.0
    estimate_s: float = float("nan")
    """The user's estimate of the processing time; NaN where there is none."""
    requested_start_s: float = float("nan")
    """When a dedicated job is to start; NaN for a batch job."""
    minimum: float = 0.0
    """The least yield that was agreed."""
    user: int = -1


def build_snapshot(
    jobs: Iterable[SnapshotJob] = (),
    *,
    nodes: int | Sequence[tuple[float, float]] = 2,
    closed: Iterable[int] = (),
    now_s: float = 1000.0,
    cause: Cause = Cause.WAKE,
    subject: int = -1,
) -> Snapshot:
    """What a policy sees of these jobs, by order of submission (ties in the order given).

    `nodes`: so many reference nodes, or (CPU, memory) of each; no task may come to those that are `closed`. `subject`
    is the row of the job just submitted. Arrays are read-only, as a policy gets them. Raises InputError where the
    present would not be admissible.
    """
    rows = sorted(enumerate(jobs, 1), key=lambda numbered: numbered[1].submit_s)
    capacity = np.ones((nodes, 2)) if isinstance(nodes, int) else np.array(nodes, np.float64).reshape(-1, 2)
    is_open = np.ones(len(capacity), np.bool_)
    is_open[list(closed)] = False
    table = np.zeros(len(rows), JOB)
    slots: list[int] = []
    for row, (number, job) in zip(table, rows, strict=True):
        running, tasks = bool(job.nodes), job.tasks or max(1, len(job.nodes))
        if running and len(job.nodes) != tasks:
            name = number if job.id is None else job.id
            raise InputError(f"job {name}: {len(job.nodes)} nodes for {tasks} tasks: one each, or none")
        for name in ("need", "memory", "weight", "estimate_s", "requested_start_s", "submit_s", "virtual_s", "minimum"):
            row[name] = getattr(job, name)
        row["id"], row["serial"], row["user"] = number if job.id is None else job.id, number - 1, job.user
        row["tasks"], row["speed"] = tasks, 1.0
        row["state"] = RUNNING if running else PAUSED if job.paused else WAITING
        row["yield_"] = float(running) if job.yield_ is None else job.yield_
        row["start_s"] = job.submit_s if running or job.paused else np.nan
        row["since_s"], row["pauses"] = job.submit_s, int(job.paused)
        row["ready_s"] = job.submit_s if running else np.inf
        slots += job.nodes if running else [-1] * tasks
    first = np.concatenate([[0], np.cumsum(table["tasks"])]).astype(np.int64)
    arrays = (capacity, is_open, table, first, np.array(slots, np.int64))
    for array in arrays:
        array.setflags(write=False)
    snapshot = Snapshot(now_s, cause, subject, *arrays, 0.0)
    try:
        check(snapshot, Target(snapshot.task_nodes, np.array(table["yield_"])))
    except PolicyError as error:
        raise InputError(str(error)) from None
    return snapshot


def check_target(snapshot: Snapshot, target: object) -> None:
    """Raise PolicyError, which names job and rule, where `target` cannot be performed.

    It must have the snapshot's layout; every job has all of its tasks on nodes and a yield in [0, 1], or none; no node
    gives out more CPU or memory than it has; no task comes to a closed node; it wakes later than now.
    """
    check(snapshot, target)
    assert isinstance(target, Target)
    reconcile(snapshot, target)


class _Repeated:
    """Asks `policy` twice for each target, and compares."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> object:
        return getattr(self._policy, name)

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The policy's target. Raises PolicyError where it cannot be, or is another one when asked again."""
        target, again = self._policy.decide(snapshot), self._policy.decide(snapshot)
        check_target(snapshot, target)
        for each in fields(Target):
            one, other = getattr(target, each.name), getattr(again, each.name)
            if not (np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other):
                raise PolicyError(
                    None, f"gave another {each.name} for the same snapshot: must have no memory or chance"
                )
        return target


def random_workload(seed: int, *, jobs: int = 40, nodes: int = 4) -> Workload:
    """Jobs that come in bursts to a cluster that is often too small for them; sizes and times are often equal."""
    rng = np.random.default_rng(seed)
    run_s = rng.choice(RUN_S, jobs) * rng.choice([1.0, rng.uniform(0.5, 1.5)], jobs)
    return Workload(
        job_id=np.arange(1, jobs + 1),
        submit_s=np.cumsum(rng.choice([0.0, 0.0, 10.0, 300.0], jobs)),
        tasks=rng.integers(1, nodes + 1, jobs),
        need=rng.choice(SIZES, jobs),
        memory=rng.choice(SIZES, jobs),
        run_s=run_s,
        estimate_s=np.ceil(run_s * rng.choice([1.0, 2.0], jobs)),
        user=rng.integers(0, 3, jobs),
        weight=np.ones(jobs),
        nodes=nodes,
        name=f"random {seed}",
    )


def _failures(seed: int, workload: Workload) -> list[tuple[float, NodeChange]]:
    """Now and then a node fails or is drained, and comes back."""
    rng = np.random.default_rng([seed, 1])
    events: list[tuple[float, NodeChange]] = []
    for begin_s in np.sort(rng.uniform(0, workload.submit_s[-1] + 1000.0, 3)).tolist():
        node = int(rng.integers(workload.nodes))
        condition = Condition.DOWN if rng.random() < 0.5 else Condition.DRAIN
        events += [(begin_s, NodeChange(node, condition)), (begin_s + 400.0, NodeChange(node, Condition.UP))]
    return sorted(events, key=lambda event: event[0])


def check_policy(
    policy: str | Policy,
    seeds: Iterable[int] = range(10),
    *,
    workload: Callable[[int], Workload] = random_workload,
    capacity: Floats | None = None,
    failures: bool = True,
) -> None:
    """Simulate a policy on a workload for each seed. Raises AssertionError, which names the seed, where it fails.

    Every target must be admissible, and the same when the policy is asked again; every job must end. Nodes fail and
    are drained unless `failures` is False. Each run is then judged by the validator, which shares no code with what
    made it. `capacity` (N, 2): CPU and memory of each node, by default all are reference nodes.
    """
    chosen = find_policy(policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else type(policy).__name__
    for seed in seeds:
        load = workload(seed)
        settings = SimulationSettings(
            capacity=capacity, node_events=_failures(seed, load) if failures else (), seed=seed
        )
        try:
            run = Simulation(load, _Repeated(chosen), name, settings).run()
        except DfrsError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        with tempfile.TemporaryDirectory(prefix="dfrs-policy-") as directory:
            write_run(run, Path(directory), summarize(run), __version__)
            problems = validate_run(Path(directory)).problems
        if problems:
            raise AssertionError(
                f"seed {seed}: {problems[0]}" + f" (and {len(problems) - 1} more)" * (len(problems) > 1)
            )
