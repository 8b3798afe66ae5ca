"""Jobs of a partition for which dfrs decides no longer: they go on without it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dfrs.live.backends.slurm.needs import is_held
from dfrs.live.backends.slurm.port import Slurm
from dfrs.live.backends.slurm.records import SlurmJob
from dfrs.live.backends.slurm.scontrol import SlurmRefusedError


@dataclass(frozen=True, slots=True)
class LeftJobs:
    """Jobs that do not go on by themselves, as commands take them: each task of an array is one."""

    paused: Sequence[str]
    waiting: Sequence[str]
    """Held since they were submitted, as are all jobs of the partition."""
    held: Sequence[str]
    """Held by their users, or by Slurm until somebody has seen to them."""


def left_jobs(jobs: Iterable[SlurmJob]) -> LeftJobs:
    """Those among the partition's jobs."""
    paused: list[str] = []
    waiting: list[str] = []
    held: list[str] = []
    for job in jobs:
        if job.state == "SUSPENDED":
            paused.append(job.id)
        elif job.pending and job.held:
            (held if is_held(job.comment) or job.special else waiting).append(job.id)
    return LeftJobs(paused, waiting, held)


async def hand_back(slurm: Slurm, left: LeftJobs) -> Mapping[str, str]:
    """Have Slurm resume what is paused and release what waits: jobs of which it refuses that, and why.

    Raises UnavailableError where Slurm does not answer; what was done then need not be done again.
    """
    # What is paused began earlier: nothing that waits is to take its CPUs meanwhile.
    refused = await _each(slurm.resume, left.paused)
    return refused | await _each(slurm.release, left.waiting)


async def _each(act: Callable[[str], Awaitable[None]], jobs: Sequence[str]) -> dict[str, str]:
    """Do it to all of them at once: those to which it could not be done, and why."""

    async def refusal(job: str) -> str:
        try:
            await act(job)
        except SlurmRefusedError as error:
            return str(error)
        return ""

    said = await asyncio.gather(*map(refusal, jobs))
    return {job: why for job, why in zip(jobs, said, strict=True) if why}
