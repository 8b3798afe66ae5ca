"""The port to Slurm, and Slurm's own commands behind it."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dfrs.live.backends.slurm.reading import NODE_FORMAT, JobReader, read_nodes
from dfrs.live.backends.slurm.records import SlurmJob, SlurmNode
from dfrs.live.backends.slurm.scontrol import AT_ONCE, AWAY, COMMAND_S, Scontrol, SlurmRefusedError, plain
from dfrs.live.errors import UnavailableError

LOOKS = frozenset({"squeue", "sinfo"})
"""Commands to which there is an answer, or it is not known what Slurm has."""


@dataclass(frozen=True, slots=True)
class Found:
    """Slurm at one moment."""

    jobs: Sequence[SlurmJob]
    """Of the partition."""
    others: Sequence[SlurmJob]
    """Of other partitions, where they are on nodes."""
    nodes: Sequence[SlurmNode]


class Slurm(Protocol):
    """What is asked of Slurm. All raise UnavailableError where it does not answer, and SlurmRefusedError."""

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

    async def mark(self, job: str, mark: str) -> None:
        """Store this with it."""
        ...

    async def explain(self, jobs: Sequence[str], why: str) -> None:
        """Store with them why they wait."""
        ...

    async def suspend(self, job: str) -> None:
        """Stop its processes where they are."""
        ...

    async def resume(self, job: str) -> None:
        """Let them go on."""
        ...

    async def requeue(self, job: str, *, ended: bool) -> None:
        """End it, whatever its user said of that, and have it back in the queue, held. `ended`: it is over already."""
        ...

    async def cancel(self, job: str) -> None:
        """End it for good."""
        ...


class SlurmCommands:
    """A `Slurm` by squeue, sinfo, scontrol and scancel of the PATH. `inside`: words before each of them."""

    def __init__(self, partition: str, inside: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> None:
        self._partition = partition
        self._inside = tuple(inside)
        self._environ = plain(environ)
        self._jobs = JobReader(partition)
        self._scontrol = Scontrol(inside, environ)
        self._cancelling = asyncio.Semaphore(AT_ONCE)

    async def look(self) -> Found:
        """As `Slurm.look`: two calls, a request to slurmctld for jobs, and those of sinfo for nodes."""
        nodes = ("sinfo", "--noheader", "--Node", "--partition", self._partition, "--Format", NODE_FORMAT)
        jobs, rows = await asyncio.gather(
            self._run("squeue", "--noheader", "--all", "--states=all", "--noconvert", more=self._jobs.environ),
            self._run(*nodes),
        )
        ours, others = await asyncio.to_thread(self._jobs.read, jobs, time.time())
        return Found(ours, others, read_nodes(rows))

    async def place(self, job: str, node: str, mark: str, *, requeue: bool) -> None:
        """As `Slurm.place`."""
        # StartTime: a job that was queued again is otherwise kept for two minutes.
        # NumNodes: of a job that may have several nodes Slurm would take more than this one.
        fields = f"ReqNodeList={node} NumNodes=1 AdminComment={mark} Requeue={int(requeue)} StartTime=now"
        await self._scontrol.do(f"update JobId={job} {fields}")

    async def release(self, job: str) -> None:
        """As `Slurm.release`."""
        await self._scontrol.do(f"release {job}")

    async def hold(self, jobs: Sequence[str]) -> None:
        """As `Slurm.hold`."""
        await self._scontrol.do(f"update JobId={','.join(jobs)} Priority=0")

    async def mark(self, job: str, mark: str) -> None:
        """As `Slurm.mark`."""
        await self._scontrol.do(f"update JobId={job} AdminComment={mark}")

    async def explain(self, jobs: Sequence[str], why: str) -> None:
        """As `Slurm.explain`."""
        await self._run("scontrol", "update", f"JobId={','.join(jobs)}", f"AdminComment={why}")

    async def suspend(self, job: str) -> None:
        """As `Slurm.suspend`."""
        await self._scontrol.do(f"suspend {job}")

    async def resume(self, job: str) -> None:
        """As `Slurm.resume`."""
        await self._scontrol.do(f"resume {job}")

    async def requeue(self, job: str, *, ended: bool) -> None:
        """As `Slurm.requeue`."""
        # Of a job that is over Slurm changes nothing.
        allow = () if ended else (f"update JobId={job} Requeue=1",)
        await self._scontrol.do(*allow, f"requeuehold {job}")

    async def cancel(self, job: str) -> None:
        """As `Slurm.cancel`."""
        async with self._cancelling:
            await self._run("scancel", job)

    async def _run(self, *words: str, more: Mapping[str, str] | None = None) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._inside,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environ | dict(more or {}),
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
        if process.returncode != 0:
            said = " ".join(err.decode(errors="replace").split())[:300] or f"ended with status {process.returncode}"
            if words[0] in LOOKS or any(away in said for away in AWAY):
                raise UnavailableError(f"Slurm: {words[0]}: {said}")
            raise SlurmRefusedError(f"Slurm: {' '.join(words[:2])}: {said}")
        return out
