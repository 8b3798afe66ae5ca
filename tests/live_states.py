"""Random states of a controller, made without nodes, processes or time: for tests of what users are shown of them."""

from dataclasses import replace

import numpy as np

from dfrs.live.controller import cluster_views
from dfrs.live.controller.best_yield import BestYield
from dfrs.live.controller.received import ReceivedTime
from dfrs.live.controller.records import JobOutcome, JobRecord, NodeRecord, TaskRecord
from dfrs.live.controller.snapshot_copy import SnapshotCopy
from dfrs.live.drivers.base import DriverAbilities, Exit, ExitKind, TaskId, TaskState
from dfrs.live.protocol.observed import HostUse, Sample
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.live.protocol.wire import Hello
from dfrs.model.decisions import Prices
from dfrs.model.nodes import Condition
from dfrs.testing import SnapshotJob, build_snapshot, make_controller

NOW = 1_700_000_000.0
NOBODY = 0
"""A number that no job has."""
GIB = 1 << 30
ABILITIES = DriverAbilities(
    shares="cgroup-v2",
    caps=True,
    memory_limits=True,
    pause_frees_memory=False,
    moves_on_host=True,
    measures_waiting=True,
)


class Clock:
    """Stands still unless a test turns it."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


def random_controller(seed, directory, *, most_jobs=12, most_nodes=5):
    """A controller that was never started, in a state that none but a test would bring it to."""
    rng = np.random.default_rng(seed)
    controller = make_controller(directory, policy="FCFS", cluster=f"random {seed}", clock=Clock())
    fill(controller.state, rng, int(rng.integers(most_jobs + 1)), int(rng.integers(most_nodes + 1)))
    return controller


def fill(state, rng, jobs, nodes):
    """Random nodes and jobs."""
    state.set_reference(float(rng.choice([1.0, 2.0, 4.0])), 8 * GIB)
    state.epoch = NOW - 5000.0
    state.start_clock()
    for number in range(nodes):
        _add_node(state, rng, number)
    rows = [_add_job(state, rng, name) for name in range(1, jobs + 1)]
    known = [row for row in rows if row is not None]
    snapshot = build_snapshot(known, nodes=[(1.0, 1.0)] * nodes, now_s=4990.0)
    names = snapshot.jobs["id"].tolist()
    prices = Prices(*(round(float(each), 3) for each in rng.random(3)))
    object.__setattr__(snapshot, "prices", prices)
    left = rng.choice([1.0, 1.0, 0.55, 0.05], size=nodes)
    state.picture = SnapshotCopy(snapshot, None, dict(zip(names, range(len(names)), strict=True)), left)
    for verb in state.prices.samples:
        state.prices._measured[verb].extend(rng.random(int(rng.integers(4))))
    if rng.random() > 0.2:
        best = BestYield.of(cluster_views.on_nodes(state), float(rng.random()))
        # In half of them a job has gone since then.
        gone = {NOBODY: float(rng.random())} if rng.random() < 0.5 else {}
        state.best = replace(best, needs={**best.needs, **gone})
    state.ended_counts.update({JobState.DONE: int(rng.integers(9)), JobState.FAILED: int(rng.integers(3))})
    state.decision_s = float(rng.random())


def _add_node(state, rng, number):
    hello = Hello(
        protocol=1,
        node=f"node-{number + 1}",
        host=f"host-{number // 2}",
        address="127.0.0.1",
        cpus=float(rng.choice([0.5, 1.0, 2.0, 16.0])),
        memory_bytes=int(rng.choice([4, 8])) * GIB,
        abilities=ABILITIES,
        version="1",
    )
    condition = Condition.DOWN if rng.random() < 0.1 else Condition.UP
    node = NodeRecord(number, hello, number // 2, condition, drained=bool(rng.random() < 0.2))
    node.seen_at = NOW - float(rng.choice([0.0, 1.0, 60.0]))
    if rng.random() < 0.7:
        # Nodes of a host may have the same CPUs, or their own.
        node.load.last = (NOW, HostUse(cpus=(0,), busy_s=1.0, steal_s=0.0))
        node.load.cpus = tuple(range(int(rng.integers(1, 3))))
        node.load.busy_cores = float(rng.choice([0.0, 0.3, 1.5, 8.0]))
        node.load.steal_cores = float(rng.choice([0.0, 0.0, 0.4]))
    state.nodes.append(node)
    state.numbers[hello.node] = number


def _add_job(state, rng, name):
    """Its row for the core's snapshot; None if the core does not know it."""
    nodes = len(state.nodes)
    tasks = int(rng.choice([1, 1, 2, 3]))
    cores = None if rng.random() < 0.5 else round(float(rng.uniform(0.05, 1.0)), 3)
    request = JobRequest(
        command=("prog", str(name)),
        name=f"job-{name}",
        tasks=tasks,
        cpu_cores=cores,
        memory_bytes=64 << 20,
        minimum_yield=float(rng.choice([0.0, 0.1])),
        after=(10**6,) if rng.random() < 0.1 else (),
    )
    user = str(rng.choice(["ann", "bob"]))
    job = JobRecord(name, name, request, user, NOW - float(rng.integers(10_000)))
    state.enter(job)
    job.need_error = None if rng.random() < 0.5 else float(rng.random()) * 0.1
    kind = str(rng.choice(["new", "held", "waiting", "paused", "running", "running", "running", "ending"]))
    if kind == "new" or (not nodes and kind not in {"held", "waiting"}):
        job.waits_for = frozenset({10**6} if request.dependencies else ())
        return None
    job.held, job.registered = kind == "held", kind != "held"
    job.need = min(1.0, state.need(request)) if cores else round(float(rng.uniform(0.01, 1.0)), 4)
    where = tuple(int(each) for each in rng.integers(nodes, size=tasks)) if nodes else ()
    if kind in {"running", "ending", "paused"}:
        _place(state, rng, job, where, paused=kind == "paused")
    if kind == "ending":
        job.outcome = JobOutcome(state=JobState.CANCELLED, exit="cancelled")
    if kind == "held":
        return None
    running = kind in {"running", "ending"}
    # The checker of snapshots wants a present that is admissible; what is shown comes from the records.
    return SnapshotJob(
        id=name,
        nodes=where if running else (),
        tasks=tasks,
        need=job.need,
        yield_=0.0 if running else None,
        paused=kind == "paused",
        virtual_s=float(rng.random()) * 1000,
    )


def _place(state, rng, job, where, *, paused):
    job.placed, job.paused = not paused, paused
    job.yield_ = 0.0 if paused else round(float(rng.uniform(0.0, 1.0)), 4)
    job.started_at = NOW - 500.0
    job.attempt = int(rng.integers(2))
    for rank, node in enumerate(where):
        task = TaskRecord(TaskId(job=job.id, rank=rank, attempt=job.attempt), target=node, started=True)
        job.tasks.append(task)
        if rng.random() < 0.1:
            task.started = False
            continue
        _put(state, rng, task, node, TaskState.PAUSED if paused else TaskState.RUNNING)
        if rng.random() < 0.15:
            # It goes from one node to another: both may have it.
            other = int(rng.integers(len(state.nodes)))
            if other != node:
                _put(state, rng, task, other, TaskState.HANDED)
                task.target = int(rng.choice([node, other]))
        if not paused and rng.random() < 0.3:
            share = float(rng.random()) * 0.5
            state.placement.overrides = {**state.placement.overrides, (job.id, rank): share}
        if rng.random() < 0.05:
            task.exit = Exit(kind=ExitKind.CODE, code=0, time_s=NOW, cpu_s=3.0)
    if job.attempt and rng.random() < 0.3:
        old = TaskRecord(TaskId(job=job.id, rank=0, attempt=0), target=where[0], started=True)
        job.old.append(old)
        _put(state, rng, old, where[0], TaskState.RUNNING)


def _put(state, rng, task, node, kind):
    observation = state.placement.whereabouts.put(task, node)
    observation.state = kind
    if rng.random() < 0.8:
        task.used_cores = round(float(rng.random()) * 1.2, 4)
        sample = Sample(task=task.id, cpu_s=5.0, memory_bytes=10 << 20)
        task.samples = ((NOW - 1.0, sample),)
    if rng.random() < 0.6:
        task.received = ReceivedTime(ran_s=400.0)
        most_cores, delayed = float(rng.choice([0.5, 1.0])), 0.0
        for k in range(1, int(rng.integers(2, 7))):
            delayed += float(rng.random())
            counted = {"watched_s": float(k), "delayed_s": delayed, "cpu_s": k - delayed, "waiting_s": delayed}
            task.received.report(1.0, Sample(task=task.id, memory_bytes=10 << 20, **counted), most_cores)
