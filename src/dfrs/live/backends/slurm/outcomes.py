"""How jobs ended, in Slurm's words, as ends of tasks."""

from dfrs.live.backends.slurm.records import LOST, SlurmJob
from dfrs.live.drivers.base import Exit, ExitKind

_KINDS = {
    "TIMEOUT": ExitKind.TIME_LIMIT,
    "DEADLINE": ExitKind.TIME_LIMIT,
    "OUT_OF_MEMORY": ExitKind.OUT_OF_MEMORY,
    **dict.fromkeys(LOST, ExitKind.LOST),
}


def exit_of(job: SlurmJob) -> Exit:
    """The end of a job that has ended by itself, or by Slurm."""
    code, signal = job.exit_status >> 8, job.exit_status & 0x7F
    kind = _KINDS.get(job.state)
    if kind is not None:
        return Exit(kind=kind, time_s=job.since_s, message=f"Slurm: {job.state}")
    if job.state == "COMPLETED" or code:
        return Exit(kind=ExitKind.CODE, code=code, time_s=job.since_s)
    if signal:
        return Exit(kind=ExitKind.SIGNAL, signal=signal, time_s=job.since_s)
    return Exit(kind=ExitKind.STOPPED, time_s=job.since_s, message=f"Slurm: {job.state}")
