"""Simulations into run directories: interrupted ones keep what they have, and continue to the same bytes."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

import dfrs
from dfrs.bounds.stretch import stretch_bound
from dfrs.experiments.checkpoint import Checkpoint
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.model.nodes import CapacityLeft, NodeChange
from dfrs.model.run import Run
from dfrs.policies.names import built_in, find_policy
from dfrs.policies.plugins import code_digest
from dfrs.runs.directory import read_summary, slug, summary, workload_digest, write_run
from dfrs.runs.metrics.schedule import TAU_S, Metrics, summarize
from dfrs.simulator.limits import ANYWHERE, FREE
from dfrs.simulator.simulation import PolicyStoppedError, Simulation, SimulationSettings

SAVE_EVERY_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationTask:
    """One run: a workload under a policy, into a directory; with `bound`, its distance from the best is stated."""

    workload: Workload
    policy: str
    settings: SimulationSettings
    directory: Path
    bound: bool = True

    @property
    def key(self) -> str:
        """Digest of all that decides the result: workload, policy, settings, version, code of others' policies."""
        settings = self.settings
        capacity = None if settings.capacity is None else settings.capacity.tolist()
        penalty = settings.penalty
        parts = [
            dfrs.__version__,
            workload_digest(self.workload),
            self.policy,
            settings.order,
            capacity,
            settings.seed,
            penalty.seconds,
            penalty.bytes_per_s,
            penalty.node_bytes,
            [(at, change.node, _becomes(change)) for at, change in settings.node_events],
        ]
        if settings.command_limit is not None:
            parts.append(settings.command_limit)
        if (settings.pauses, settings.moves) != (FREE, ANYWHERE):
            parts.append([settings.pauses, settings.moves, list(settings.hosts or ())])
        if not built_in(self.policy):
            parts.append(code_digest(self.policy.partition("/")[0]))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _becomes(change: NodeChange | CapacityLeft) -> str | float:
    return change.cpu if isinstance(change, CapacityLeft) else change.condition.value


def directories(workloads: Sequence[str], policies: Sequence[str], output: Path) -> dict[tuple[int, int], Path]:
    """Where each (workload, policy) goes, by their names: OUT/POLICY for one workload, OUT/WORKLOAD/POLICY for several.

    Raises InputError where two would go to the same place.
    """
    several = len(workloads) > 1
    found = {
        (w, p): output / slug(workload) / slug(policy) if several else output / slug(policy)
        for w, workload in enumerate(workloads)
        for p, policy in enumerate(policies)
    }
    if len(set(found.values())) < len(found):
        raise InputError(f"{output}: two runs would have the same directory: give each trace and policy once")
    return found


@lru_cache(maxsize=8)
def bounds(workload: Workload, refused: tuple[int, ...], cpu: float) -> tuple[float, float]:
    """Lower bounds on the maximum stretch and bounded stretch (tau TAU_S) of the jobs that are not refused."""
    jobs = workload.select(np.delete(np.arange(len(workload)), refused))
    plain = stretch_bound(jobs, capacity=cpu)
    return plain.value, stretch_bound(jobs, capacity=cpu, tau_s=TAU_S, near=plain.certificate.jobs).value


def measured(run: Run, *, bound: bool) -> Metrics:
    """The metrics of a run, with its distance from the bounds if asked for."""
    cpu = float(run.capacity[:, 0].sum())
    if not bound or not cpu > 0:
        return summarize(run, tau_s=TAU_S)
    plain, bounded = bounds(_as_commands_left_it(run), run.refused, cpu)
    return summarize(run, tau_s=TAU_S, stretch_bound=plain, bounded_stretch_bound=bounded)


def _as_commands_left_it(run: Run) -> Workload:
    """The workload with the processing times that jobs had in the end, and the fewest tasks they ever had.

    A job had at least that much to do, so what bounds these jobs bounds the run.
    """
    work, answers = run.workload, run.answers
    if not answers.granted.any():
        return work
    tasks, fewest = work.tasks.copy(), work.tasks.copy()
    index = {name: job for job, name in enumerate(work.job_id.tolist())}
    for k in np.flatnonzero(answers.change_tasks).tolist():
        job = index[int(answers.job_id[k])]
        tasks[job] += answers.change_tasks[k]
        fewest[job] = min(fewest[job], tasks[job])
    return work.with_columns(run_s=run.process_s, tasks=fewest)


def saved_summary(task: SimulationTask) -> dict[str, object] | None:
    """The summary of a complete earlier run of the same task; None if there is none.

    Raises InputError where the directory holds a run made with other settings, and no state of this one.
    """
    if not (task.directory / "summary.json").exists():
        return None
    document = read_summary(task.directory)
    if document["configuration"].get("key") != task.key:
        # A run that was killed before it could replace the other one has left its state.
        if Checkpoint(task.directory, task.key).exists:
            return None
        raise InputError(
            f"{task.directory}: holds a run with other settings: choose another directory, or leave out --resume"
        )
    bounded = not task.bound or "degradation_from_bound" in document["metrics"]
    return document if document["complete"] and bounded else None


def perform(
    task: SimulationTask,
    *,
    resume: bool = False,
    watch: Callable[[int], bool] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Run, dict[str, object]]:
    """Run `task`, write its directory, and return the run and its summary.

    While it runs, its state is saved every SAVE_EVERY_S seconds; where that fails it goes on, and `tell` is told once.
    Where `watch` stops it, the log so far is written as a valid partial run, beside the state. With `resume` it
    continues from such a state. Where the policy ends the run, the log up to there is written and
    PolicyStoppedError raised.
    """
    simulation = Simulation(task.workload, find_policy(task.policy), task.policy, task.settings)
    checkpoint = Checkpoint(task.directory, task.key)
    if resume:
        checkpoint.restore(simulation)
    else:
        checkpoint.remove()
    last_save_s, failed = time.monotonic(), False

    def save() -> None:
        """A run that cannot be saved goes on; the first time that is told."""
        nonlocal last_save_s, failed
        try:
            checkpoint.save(simulation)
        except InputError as error:
            if not failed:
                tell(f"{error}; the run cannot be continued from here")
            failed = True
        last_save_s = time.monotonic()

    def go_on(done: int) -> bool:
        if time.monotonic() - last_save_s > SAVE_EVERY_S:
            save()
        return watch is None or watch(done)

    try:
        run = simulation.run(go_on)
    except PolicyStoppedError as error:
        _write(task, error.run)
        raise
    document = _write(task, run)
    if run.complete:
        checkpoint.remove()
    else:
        save()
    return run, document


def _write(task: SimulationTask, run: Run) -> dict[str, object]:
    run = replace(run, configuration={**run.configuration, "key": task.key})
    metrics = measured(run, bound=task.bound)
    write_run(run, task.directory, metrics, dfrs.__version__)
    return summary(run, metrics, dfrs.__version__)
