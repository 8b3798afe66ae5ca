"""Runs of a stream of jobs on a farm: what is simulated, and what is read from the log ([Atif2011] section 8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dfrs.model.decisions import Snapshot, Target
from dfrs.model.hardware import COLOCATED, SPREAD, Hardware
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.model.run import PLACING, Action, Run
from dfrs.model.true_speeds import TrueSpeeds
from dfrs.policies.heterogeneous.arrive_f import ArriveF, Considered
from dfrs.policies.heterogeneous.rules import Rules
from dfrs.policies.names import find_policy
from dfrs.simulator.heterogeneous import HardwareSettings, hardware_capacity
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.workloads.programs import Program, Programs, StreamJob, check_order

LEAST_S = 0.5
"""No job is expected to take less: streams may have whole seconds, and some could be rounded to 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedStream:
    """A stream on a farm, ready to be simulated under any policy."""

    farm: Hardware
    names: tuple[str, ...]
    """(J,) of its jobs, in the order of the workload."""
    workload: Workload
    truth: TrueSpeeds
    prediction: Floats | None
    """(J, C, 2, C, 2) what profiles predict, see `HardwareSettings`; None: what is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One job that was migrated; those of one instant are one decision."""

    time_s: float
    job: int
    """Index in the workload."""
    tasks: int
    source: str
    """The sub-cluster where it was, with a prime where it was co-located ..."""
    target: str
    """... and where it came."""
    why: str

    def document(self) -> dict[str, object]:
        """As JSON has it; jobs count from 1 there."""
        return {
            "time_s": self.time_s,
            "job": self.job + 1,
            "tasks": self.tasks,
            "from": self.source,
            "to": self.target,
            "why": self.why,
        }


def prepare_stream(
    programs: Programs,
    jobs: Sequence[StreamJob],
    *,
    name: str,
    without: str = "",
    order: str | None = None,
    factors: Floats | None = None,
    errors: bool = True,
) -> PreparedStream:
    """A stream on the farm of the measurements, but for sub-clusters `without`, dispatched to the others in this order.

    `factors` (J,) multiply the times that jobs take, not their users' estimates. With `errors` predictions are as wrong
    as they were measured, without they are true. Raises InputError for a program of which nothing is known.
    """
    farm = _farm(programs, without, order or programs.order)
    names = tuple(cluster.name for cluster in farm.partitions)
    places = np.argsort(np.array([job.arrival_s for job in jobs]), kind="stable")
    ordered = [jobs[k] for k in places.tolist()]
    known = [programs.program(job.name, names) for job in ordered]
    expected_s = np.array([max(job.expected_s, LEAST_S) for job in ordered])
    relative = np.array([_times(each, farm) for each in known])
    real_s = relative * (expected_s if factors is None else expected_s * factors[places])[:, None, None]
    run_s = real_s.min(axis=(1, 2))
    workload = Workload(
        job_id=np.array([job.job for job in ordered]),
        submit_s=np.array([job.arrival_s for job in ordered]),
        tasks=np.array([job.processes for job in ordered]),
        need=np.ones(len(jobs)),
        memory=np.zeros(len(jobs)),
        run_s=run_s,
        estimate_s=expected_s,
        user=np.full(len(jobs), -1),
        weight=np.ones(len(jobs)),
        nodes=farm.nodes,
        name=name,
    )
    reference = float(farm.node_memory_bytes.max())
    wanted = np.array([each.memory_bytes for each in known]) / reference
    thrash = np.array([each.thrash for each in known])
    truth = TrueSpeeds.of(farm, run_s[:, None, None] / real_s, memory=wanted, thrash=thrash)
    return PreparedStream(
        farm=farm,
        names=tuple(job.name.upper() for job in ordered),
        workload=workload,
        truth=truth,
        prediction=np.array([_predictions(each, farm) for each in known]) if errors else None,
    )


def _farm(programs: Programs, without: str, order: str) -> Hardware:
    """Its sub-clusters in another order. Raises InputError where that does not name each of them once."""
    check_order(order, programs)
    farm = programs.farm
    return Hardware(name=farm.name, partitions=tuple(farm.partitions[farm.index(c)] for c in order if c not in without))


def _together(program: Program, farm: Hardware) -> Bools:
    """(C,) whether it can be co-located there: else it is spread, as are all that are not."""
    return np.array([program.processes <= cluster.cores for cluster in farm.partitions])


def _times(program: Program, farm: Hardware) -> Floats:
    """(C, 2) times relative to the expected one."""
    found = program.times.copy()
    found[:, COLOCATED] = np.where(_together(program, farm), found[:, COLOCATED], found[:, SPREAD])
    return found


def _predictions(program: Program, farm: Hardware) -> Floats:
    """(C, 2, C, 2) speeds that a profile taken somewhere predicts."""
    together, found = _together(program, farm), program.predicted.copy()
    found[:, COLOCATED] = np.where(together[:, None, None], found[:, COLOCATED], found[:, SPREAD])
    found[..., COLOCATED] = np.where(together, found[..., COLOCATED], found[..., SPREAD])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What ARRIVE-F looked at at one instant."""

    time_s: float
    considered: tuple[Considered, ...]


class _Listening:
    """ARRIVE-F that tells what it looked at."""

    traits = ArriveF.traits

    def __init__(self, policy: ArriveF, heard: list[Analysis]) -> None:
        self._policy, self._heard = policy, heard

    def decide(self, snapshot: Snapshot, /) -> Target:
        """As ARRIVE-F."""
        if self._policy.due(snapshot):
            considered = tuple(self._policy.considered(snapshot))
            self._heard.append(Analysis(time_s=snapshot.now_s, considered=considered))
        return self._policy.decide(snapshot)


def simulation(made: PreparedStream, policy: str, heard: list[Analysis] | None = None) -> Simulation:
    """Of the stream under the policy; what its analyses looked at is put into `heard`.

    How long profiles take, and whether plans are carried out in parallel, is as the policy is told; what a migration
    costs is not. Raises InputError for an unknown policy.
    """
    found = find_policy(policy)
    rules = Rules()
    if isinstance(found, ArriveF):
        found, rules = replace(found, names=tuple(cluster.name for cluster in made.farm.partitions)), found.rules
    settings = SimulationSettings(
        capacity=hardware_capacity(made.farm),
        hardware=HardwareSettings(
            truth=replace(made.truth, parallel=rules.parallel), prediction=made.prediction, tau_s=rules.tau_s
        ),
    )
    if heard is not None and isinstance(found, ArriveF):
        found = _Listening(found, heard)
    return Simulation(made.workload, found, policy, settings)


def measured(run: Run) -> dict[str, float]:
    """Average wait and turnaround, and the time from the first submission until the last job is done, in seconds."""
    work = run.workload
    return {
        "wait_s": float((run.start_s - work.submit_s).mean()),
        "turnaround_s": float((run.finish_s - work.submit_s).mean()),
        "total_s": float(run.finish_s.max() - work.submit_s.min()),
    }


def done_by(finish_s: Floats | Sequence[float], time_s: float) -> int:
    """How many jobs are done by then ([Atif2011]: Jobs@mig.run)."""
    return int((np.asarray(finish_s) <= time_s).sum())


def place(nodes: Ints, farm: Hardware) -> str:
    """The sub-cluster of these nodes, with a prime where they are on one machine and more than one; "A+B" of two."""
    names = "+".join(farm.partitions[c].name for c in np.unique(farm.partition[nodes]).tolist())
    return names + ("'" if len(nodes) > 1 and len(np.unique(farm.machine[nodes])) == 1 else "")


def moves_of(run: Run, farm: Hardware) -> list[Move]:
    """Every migration of a job, in the order of the log."""
    events, at = run.events, dict[int, int]()
    found: list[Move] = []
    for row in np.flatnonzero(np.isin(events.action, PLACING)).tolist():
        job = int(events.job[row])
        if events.action[row] == Action.MIGRATE:
            before, after = events.nodes_of(at[job]), events.nodes_of(row)
            found.append(
                Move(
                    time_s=float(events.time_s[row]),
                    job=job,
                    tasks=len(np.setdiff1d(after, before)),
                    source=place(before, farm),
                    target=place(after, farm),
                    why=events.reasons[int(events.why[row])],
                )
            )
        at[job] = row
    return found


def placed(run: Run, farm: Hardware) -> Mapping[int, tuple[float, float, str]]:
    """Of each job, by index, its start, its end, and where it was: "A", or "A>B'" if it was moved."""
    events, where = run.events, dict[int, list[str]]()
    for row in np.flatnonzero(np.isin(events.action, PLACING)).tolist():
        here = place(events.nodes_of(row), farm)
        mine = where.setdefault(int(events.job[row]), [])
        if not mine or mine[-1] != here:
            mine.append(here)
    start_s, finish_s = run.start_s, run.finish_s
    return {job: (float(start_s[job]), float(finish_s[job]), ">".join(names)) for job, names in sorted(where.items())}
