"""The port to Slurm, and Slurm's own commands behind it."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dfrs.live.backends.slurm.reading import read_jobs, read_nodes
from dfrs.live.backends.slurm.records import SlurmJob, SlurmNode
from dfrs.live.errors import UnavailableError
from dfrs.model.errors import DfrsError

COMMAND_S = 30.0
"""So long may a command take: slurmctld makes them wait when it is busy."""
AWAY = (
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted or received",
    "Slurm backup controller in standby mode",
    "Socket timed out",
    "Connection refused",
    "slurm_receive_msg",
    "Unexpected message received",
)
"""What commands say when no slurmctld answers."""
MOST_NAMED = 500
"""Jobs in one command."""


class RefusedError(DfrsError):
    """Slurm answered, and does not do it: in its words."""


@dataclass(frozen=True, slots=True)
class Found:
    """Slurm at one moment."""

    jobs: Sequence[SlurmJob]
    """Of the partition."""
    others: Sequence[SlurmJob]
    """Of other partitions, where they are on nodes."""
    nodes: Sequence[SlurmNode]


class Slurm(Protocol):
    """What is asked of Slurm. All raise UnavailableError where it does not answer, and RefusedError."""

    async def look(self) -> Found:
        """All that is there now."""
        ...

    async def place(self, job: str, node: str, mark: str, *, requeue: bool) -> None:
        """A held job is to be on that node and has that mark. It stays held."""
        ...

    async def release(self, job: str) -> None:
        """Slurm starts it as soon as it can."""
        ...

    async def hold(self, jobs: Sequence[str]) -> None:
        """Slurm starts them no more, until they are released."""
        ...

    async def mark(self, jobs: Sequence[str], mark: str) -> None:
        """Store this with them."""
        ...

    async def suspend(self, job: str) -> None:
        """Stop its processes where they are."""
        ...

    async def resume(self, job: str) -> None:
        """Let them go on."""
        ...

    async def requeue(self, job: str) -> None:
        """End it, whatever its user said of that, and have it back in the queue, held."""
        ...

    async def cancel(self, job: str) -> None:
        """End it for good."""
        ...


class SlurmCommands:
    """A `Slurm` by squeue, sinfo, scontrol and scancel of the PATH. `inside`: words before each of them."""

    def __init__(self, partition: str, inside: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> None:
        self._partition = partition
        self._inside = tuple(inside)
        # Without this, long lists of an array's tasks are cut off.
        self._environ = {**environ, "SLURM_BITSTR_LEN": "0"}

    async def look(self) -> Found:
        """As `Slurm.look`: two calls, each one request to slurmctld."""
        jobs, nodes = await asyncio.gather(self._run("squeue", "--json"), self._run("sinfo", "--json"))
        ours, others = await asyncio.to_thread(read_jobs, jobs, self._partition)
        return Found(ours, others, read_nodes(nodes, self._partition))

    async def place(self, job: str, node: str, mark: str, *, requeue: bool) -> None:
        """As `Slurm.place`."""
        # StartTime: a job that was queued again is otherwise kept for two minutes.
        fields = (f"ReqNodeList={node}", f"AdminComment={mark}", f"Requeue={int(requeue)}", "StartTime=now")
        await self._run("scontrol", "update", f"JobId={job}", *fields)

    async def release(self, job: str) -> None:
        """As `Slurm.release`."""
        await self._run("scontrol", "release", job)

    async def hold(self, jobs: Sequence[str]) -> None:
        """As `Slurm.hold`."""
        await self._run("scontrol", "update", f"JobId={','.join(jobs)}", "Priority=0")

    async def mark(self, jobs: Sequence[str], mark: str) -> None:
        """As `Slurm.mark`."""
        await self._run("scontrol", "update", f"JobId={','.join(jobs)}", f"AdminComment={mark}")

    async def suspend(self, job: str) -> None:
        """As `Slurm.suspend`."""
        await self._run("scontrol", "suspend", job)

    async def resume(self, job: str) -> None:
        """As `Slurm.resume`."""
        await self._run("scontrol", "resume", job)

    async def requeue(self, job: str) -> None:
        """As `Slurm.requeue`."""
        await self._run("scontrol", "update", f"JobId={job}", "Requeue=1")
        await self._run("scontrol", "requeuehold", job)

    async def cancel(self, job: str) -> None:
        """As `Slurm.cancel`."""
        await self._run("scancel", job)

    async def _run(self, *words: str) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._inside,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environ,
            )
        except OSError as error:
            raise UnavailableError(f"Slurm: {words[0]}: {error.strerror}") from None
        try:
            async with asyncio.timeout(COMMAND_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise UnavailableError(f"Slurm: {words[0]}: no answer within {COMMAND_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode != 0 or (not out and words[-1] == "--json"):
            said = " ".join(err.decode(errors="replace").split())[:300]
            if any(away in said for away in AWAY) or words[-1] == "--json":
                raise UnavailableError(f"Slurm: {words[0]}: {said}")
            raise RefusedError(f"Slurm: {' '.join(words[:2])}: {said}")
        return out
