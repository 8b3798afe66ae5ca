"""Workloads with dedicated jobs and streams of users' commands, policies that take both, and runs of them, checked.

All times are small integers, so that commands often come in the instant of a submission, a start or a completion.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import dfrs
from dfrs.experiments.simulations import measured
from dfrs.model.decisions import RUNNING, Placement, Policy, Snapshot, Target, Traits
from dfrs.model.elastic import ElasticCommands
from dfrs.model.instance import Ints
from dfrs.model.jobs import Workload
from dfrs.model.nodes import Condition, NodeChange
from dfrs.model.run import Penalty, Run
from dfrs.policies.batch.backfilling import Fcfs
from dfrs.runs.directory import write_run
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.cases import Seeded, Source

LATEST_S = 24
IDS = (1, 12)
"""Ids from the first to the second are named by commands; not all are jobs."""
HUGE = 1_000_000_000


def random_elastic_workload(source: Source | int) -> Workload:
    """Up to 8 jobs for up to 4 nodes, some dedicated, some too large; up to 20 commands, sensible or not."""
    if isinstance(source, int):
        source = Seeded(np.random.default_rng(source))
    jobs, nodes = source.integer(1, 8), source.integer(1, 4)
    submit_s = [float(source.integer(0, LATEST_S)) for _ in range(jobs)]
    job_id = 1 + source.permutation(IDS[1])[:jobs]
    requested_s = [s + source.integer(0, 12) if source.integer(0, 2) == 0 else np.nan for s in submit_s]
    return Workload(
        job_id=job_id,
        submit_s=np.array(submit_s),
        tasks=np.array([source.pick((1, 1, 2, 3, 5)) for _ in range(jobs)]),
        need=np.array([source.pick((0.25, 0.5, 1.0)) for _ in range(jobs)]),
        memory=np.array([source.pick((0.125, 0.5, 1.0)) for _ in range(jobs)]),
        run_s=np.array([source.pick((0.5, 1.0, 3.0, 8.0, 20.0)) for _ in range(jobs)]),
        estimate_s=np.array([source.pick((np.nan, 1.0, 5.0, 12.0)) for _ in range(jobs)]),
        user=np.full(jobs, -1),
        weight=np.ones(jobs),
        nodes=nodes,
        name="elastic",
        requested_start_s=np.array(requested_s),
        commands=random_commands(source, job_id.tolist(), submit_s),
    )


def random_commands(source: Source, job_id: Sequence[int], submit_s: Sequence[float]) -> ElasticCommands:
    """Of all four kinds; before a job's submission, after its end, twice the same, and of amounts beyond all reason."""
    rows: list[tuple[float, int, int, float]] = []
    for _ in range(source.integer(0, 20)):
        if rows and source.integer(0, 5) == 0:
            rows.append(rows[source.integer(0, len(rows) - 1)])
            continue
        job = source.integer(0, len(job_id) - 1)
        name, at_s = job_id[job], submit_s[job] + source.integer(0, 12)
        if source.integer(0, 5) == 0:
            name, at_s = source.integer(*IDS), float(source.integer(0, 3 * LATEST_S))
        amount = source.pick((1, 1, 2, 3, 7, HUGE)) if source.integer(0, 3) else source.integer(1, 4)
        kind = source.integer(0, 3)
        if kind == 0 and amount == HUGE:
            amount = 40
        rows.append((at_s, name, kind, float(amount)))
    times, ids, kinds, amounts = (np.array(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    return ElasticCommands(
        time_s=np.array(times, float),
        job_id=np.array(ids, np.int64),
        kind=np.array(kinds, np.int64),
        amount=np.array(amounts, float),
    )


def random_settings(source: Source, nodes: int) -> SimulationSettings:
    """Penalties, limits, and nodes that fail and come back."""
    events: list[tuple[float, NodeChange]] = []
    for _ in range(source.pick((0, 0, 1, 2))):
        node, at_s = source.integer(0, nodes - 1), source.integer(0, 2 * LATEST_S)
        condition = source.pick((Condition.DOWN, Condition.DRAIN))
        back_s = float(at_s + source.integer(0, 9))
        events += [(float(at_s), NodeChange(node, condition)), (back_s, NodeChange(node, Condition.UP))]
    # A node that is up again is never taken down later by what began before.
    events.sort(key=lambda event: (event[0], event[1].condition is Condition.UP))
    return SimulationSettings(
        penalty=source.pick((Penalty(), Penalty(seconds=3.0), Penalty(seconds=1.0, bytes_per_s=4e9))),
        order=source.pick(("completions-first", "submissions-first")),
        node_events=tuple(events),
        command_limit=source.pick((None, None, None, 1, 2, 0)),
    )


class Shifty:
    """Places all jobs anew at every decision, in an order that a digest of the snapshot gives, at one yield.

    Jobs are paused, resumed and moved for no reason; more tasks find nodes where memory is free.
    """

    def __init__(self, *, dedicated: bool = True, calm: bool = False) -> None:
        self.traits, self.calm = Traits(elastic=True, dedicated=dedicated), calm

    def decide(self, snapshot: Snapshot, /) -> Target:
        rows = np.flatnonzero(~(snapshot.jobs["requested_start_s"] > snapshot.now_s))
        where = self._calm(snapshot, rows) if self.calm else self._placed(snapshot, self._drawn(snapshot, rows))
        load = np.zeros(len(snapshot.capacity))
        for r, nodes in where.items():
            np.add.at(load, list(nodes), snapshot.jobs["need"][r])
        fair = min(1.0, 1.0 / max(load.max(), 1e-9))
        booked = snapshot.jobs["requested_start_s"]
        booked = booked[booked > snapshot.now_s]
        return Target.of(
            snapshot,
            {int(snapshot.jobs["id"][r]): Placement(nodes, fair) for r, nodes in where.items()},
            wake_at_s=float(booked.min()) if len(booked) else None,
        )

    def expand(self, snapshot: Snapshot, row: int, more: int, /) -> Ints | None:
        free = self._free(snapshot)
        memory = snapshot.jobs["memory"][row]
        found = [n for n in range(len(free)) for _ in range(int((free[n] + 1e-9) / memory)) if snapshot.open[n]]
        return np.array(found[:more], dtype=np.int64) if len(found) >= more else None

    def _free(self, snapshot: Snapshot) -> np.ndarray:
        free = snapshot.capacity[:, 1].copy()
        for r in np.flatnonzero(snapshot.jobs["state"] == RUNNING).tolist():
            nodes = snapshot.task_nodes[snapshot.first[r] : snapshot.first[r + 1]]
            np.subtract.at(free, nodes, snapshot.jobs["memory"][r])
        return free

    def _drawn(self, snapshot: Snapshot, rows: np.ndarray) -> list[int]:
        digest = hashlib.sha256(snapshot.jobs.tobytes() + np.array([snapshot.now_s]).tobytes()).digest()
        return np.random.default_rng(list(digest[:4])).permutation(rows).tolist()

    def _calm(self, snapshot: Snapshot, rows: np.ndarray) -> dict[int, tuple[int, ...]]:
        """Those that run stay; the others come where there is room."""
        running = {
            r: tuple(snapshot.task_nodes[snapshot.first[r] : snapshot.first[r + 1]].tolist())
            for r in rows.tolist()
            if snapshot.jobs["state"][r] == RUNNING
        }
        return running | self._placed(snapshot, [r for r in rows.tolist() if r not in running], self._free(snapshot))

    def _placed(
        self, snapshot: Snapshot, order: Sequence[int], room: np.ndarray | None = None
    ) -> dict[int, tuple[int, ...]]:
        room = snapshot.capacity[:, 1].copy() if room is None else room
        found: dict[int, tuple[int, ...]] = {}
        for r in order:
            memory, tasks = float(snapshot.jobs["memory"][r]), int(snapshot.jobs["tasks"][r])
            slots = np.floor((room + 1e-9) / memory).astype(int) * snapshot.open
            if slots.sum() >= tasks:
                nodes = np.repeat(np.arange(len(room)), slots)[:tasks]
                np.subtract.at(room, nodes, memory)
                found[r] = tuple(nodes.tolist())
        return found


class ElasticFcfs:
    """FCFS that processes commands; more tasks of a running job come to free nodes, one each."""

    traits = Traits(exclusive=True, elastic=True)

    def decide(self, snapshot: Snapshot, /) -> Target:
        return Fcfs().decide(snapshot)

    def expand(self, snapshot: Snapshot, row: int, more: int, /) -> Ints | None:
        free = np.setdiff1d(np.flatnonzero(snapshot.open), snapshot.task_nodes)
        return free[:more].astype(np.int64) if len(free) >= more else None


POLICIES: dict[str, Policy] = {
    "shifty": Shifty(),
    "calm": Shifty(calm=True),
    "late": Shifty(dedicated=False, calm=True),
    "batch": ElasticFcfs(),
    "rigid": Fcfs(),
}
"""`late` is told of dedicated jobs at their requested start; `rigid` processes no commands."""


@contextmanager
def fast_directory() -> Iterator[Path]:
    """A directory in memory where there is one."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="run") as name:
        yield Path(name)


def elastic_run(workload: Workload, policy: Policy, settings: SimulationSettings | None = None) -> Run:
    """The whole run."""
    return Simulation(workload, policy, "elastic", settings).run()


def problems_of(run: Run, directory: Path) -> list[str]:
    """Write the run into that directory, over the one that is there; what the checker says of it.

    Its distance from the bound is one of the metrics, so that a bound that is not one shows too.
    """
    metrics = measured(run, bound=True)
    write_run(run, directory, metrics, dfrs.__version__)
    problems = validate_run(directory).problems
    worst = metrics["degradation_from_bound"]
    if worst is not None and run.complete and worst < 1 - 1e-9:
        problems.append(f"the maximum stretch is {worst} times its lower bound")
    return problems


def checked(seed: int, policy: str, directory: Path) -> list[str]:
    """One random stream of commands under one of POLICIES, with random settings; see `problems_of`."""
    source = Seeded(np.random.default_rng([seed, sorted(POLICIES).index(policy)]))
    workload = random_elastic_workload(source)
    return problems_of(elastic_run(workload, POLICIES[policy], random_settings(source, workload.nodes)), directory)
