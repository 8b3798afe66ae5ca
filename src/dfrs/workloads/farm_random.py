"""Random workloads of a heterogeneous cluster: programs as jobs of Lublin streams, after [Atif2011] section 8.

One stream a sub-cluster, each of batch jobs for a machine of 8 processors, merged on one clock. Each job becomes a
random program (`Programs.draw`); its run time by the model is its time on the sub-cluster that times are relative to,
and is the user's estimate. What the document leaves open is decided here: jobs longer than `LONGEST_S` are left out, as
no job of its appendix is longer; the gaps are scaled to an offered load; and a job's speeds are what is measured of its
program, times a random error of its own on each sub-cluster, so that no two jobs are alike. Predictions do not know
that error, beside those they have.
"""

from dataclasses import dataclass, replace

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.hardware import COLOCATED, SPREAD, Hardware
from dfrs.model.instance import Floats
from dfrs.model.jobs import Workload
from dfrs.model.true_speeds import TrueSpeeds
from dfrs.workloads.lublin import BATCH_128, Lublin, for_machine, generate
from dfrs.workloads.programs import Program, Programs
from dfrs.workloads.transform import scale_to_load

LONGEST_S = 8_000.0
"""The longest job of [Atif2011]'s appendix is expected to take 7,914 s."""
VARIATION = 0.1
"""Standard deviation of the logarithm of a job's own error on a sub-cluster."""
_STREAM_NODES = 8
_SIZES = {"serial": 0.05, "power_of_2": 0.87, "low": 1.2, "medium": 2.35, "stage": 0.6}
"""Of the stream: with these, jobs are as large as those of [Atif2011]'s appendix; as published most are of two."""
_MOST_DRAWN = 100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FarmWorkload:
    """A workload, what is true of its jobs on the farm, and what profiles of them predict."""

    farm: Hardware
    workload: Workload
    """Processing times are those at rate 1, where a job is fastest; memory is declared as it is."""
    truth: TrueSpeeds
    predicted: Floats
    """(J, C, 2, C, 2) speeds (C, 2) by a profile taken on a sub-cluster, spread or co-located."""
    names: tuple[str, ...]
    """(J,) of each job's program."""


def farm_workload(programs: Programs, *, seed: int, jobs: int = 200, load: float = 0.7) -> FarmWorkload:
    """Workload number `seed`, of so many jobs; load 1 is what the farm does if jobs are where they fall.

    That is: tasks * mean time over the sub-clusters, spread, over nodes * span. Raises InputError.
    """
    if jobs < 1 or seed < 0:
        raise InputError(f"seed = {seed}, jobs = {jobs}: must be at least 0 and at least 1")
    farm = programs.farm
    clusters = tuple(cluster.name for cluster in farm.partitions)
    submit_s, run_s, sizes = _streams(len(farm.partitions), jobs, seed)
    rng = np.random.default_rng([seed, 2011])
    drawn = [programs.program(programs.draw(int(size), rng), clusters) for size in sizes]
    own = np.exp(rng.normal(0.0, VARIATION, (jobs, len(farm.partitions), 1)))
    rate = np.array([_possible(1 / each.times, each, farm) for each in drawn]) * own
    best = rate.max(axis=(1, 2))
    reference = max(cluster.node_memory_bytes for cluster in farm.partitions)
    memory = np.array([each.memory_bytes for each in drawn]) / reference
    workload = Workload(
        job_id=np.arange(1, jobs + 1),
        submit_s=submit_s,
        tasks=np.array([each.processes for each in drawn]),
        need=np.ones(jobs),
        memory=np.minimum(memory, 1.0),
        run_s=run_s / best,
        estimate_s=run_s,
        user=np.full(jobs, -1),
        weight=np.ones(jobs),
        nodes=farm.nodes,
        name=f"farm-{seed}-{load:g}",
    )
    truth = TrueSpeeds.of(farm, rate / best[:, None, None], memory=workload.memory, thrash=programs.thrash)
    return FarmWorkload(
        farm=farm,
        workload=_loaded(workload, rate[..., SPREAD] / best[:, None], load),
        truth=truth,
        predicted=np.array([_possible(each.predicted, each, farm) for each in drawn]),
        names=tuple(each.name for each in drawn),
    )


def _streams(count: int, jobs: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """(J,) submissions, times on A and processes of `count` streams, merged by submission."""
    stream = replace(for_machine(BATCH_128, _STREAM_NODES), **_SIZES)
    model = Lublin(jobs=jobs + _MOST_DRAWN, nodes=_STREAM_NODES, streams=(stream,))
    rows: list[tuple[float, float, float]] = []
    for k in range(count):
        trace = generate(model, seed=seed * count + k, rng="numpy")
        first = float(trace.submit_s[0])
        rows += [
            (float(at) - first, float(run), float(size))
            for at, run, size in zip(trace.submit_s, trace.run_s, trace.processors, strict=True)
            if 1.0 <= run <= LONGEST_S
        ]
    rows.sort(key=lambda row: row[0])
    if len(rows) < jobs:
        raise InputError(f"jobs = {jobs}: the streams have only {len(rows)} of at most {LONGEST_S:g} s")
    submit_s, run_s, sizes = np.array(rows[:jobs]).T
    return submit_s, run_s, sizes


def _possible(speeds: Floats, program: Program, farm: Hardware) -> Floats:
    """(..., C, 2) speeds; where a program has more processes than a machine has nodes, those of its spread.

    Processes that share nodes cannot all be there when a message comes, which is then not for nothing.
    """
    cores = np.array([cluster.cores for cluster in farm.partitions])
    together = np.where(cores >= program.processes, speeds[..., COLOCATED], speeds[..., SPREAD])
    return np.stack([speeds[..., SPREAD], together], axis=-1)


def _loaded(workload: Workload, spread: Floats, load: float) -> Workload:
    """Its gaps scaled so that time where jobs fall, with (J, C) rates `spread`, is `load` of the farm."""
    if len(workload) < 2:
        return workload
    expected = workload.with_columns(run_s=workload.run_s * (1.0 / spread).mean(axis=1))
    scaled = scale_to_load(expected, load)
    return replace(workload, submit_s=scaled.submit_s)
