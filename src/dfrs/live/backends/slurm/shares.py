"""Shares that jobs are to have on their nodes, for the agents beside slurmd, and what these measure."""

import asyncio
import hashlib
from dataclasses import dataclass

from dfrs.live.backends.slurm.jobs_seen import JobsSeen
from dfrs.live.backends.slurm.next_action import present
from dfrs.live.controller.backend import Wanted
from dfrs.live.controller.control import Control
from dfrs.live.drivers.base import TaskState
from dfrs.live.errors import NotFoundError
from dfrs.live.protocol.observed import NodeFacts, Sample
from dfrs.live.protocol.shares import JobShare, JobUse, ShareOrders, ShareReport

CONNECTED_S = 10.0
"""An agent that said nothing for so long is gone: shares stay as they are."""


@dataclass(frozen=True, slots=True)
class _Share:
    node: str
    cores: float
    paused: bool


class ShareBoard:
    """A `ShareDoor`."""

    def __init__(self) -> None:
        self._control: Control
        self._seen: JobsSeen
        self._shares: dict[str, _Share] = {}
        """By Slurm's names of jobs."""
        self._names: dict[str, dict[str, None]] = {}
        """Those on each node."""
        self._reported: dict[str, tuple[float, str]] = {}
        """When the agent of a node last said something, by the steady clock, and by what it gives shares."""
        self._changed = asyncio.Event()

    def open(self, control: Control, seen: JobsSeen) -> None:
        """First of all."""
        self._control, self._seen = control, seen

    def kind(self, node: str) -> str:
        """By what shares are given on a node; empty where no agent is connected that can."""
        at_s, kind = self._reported.get(node, (-CONNECTED_S, ""))
        return kind if self._control.settings.steady() - at_s < CONNECTED_S else ""

    def facts(self, node: str) -> NodeFacts:
        """As `ShareDoor.facts`."""
        record = self._control.node(node)
        if record is None:
            raise NotFoundError(f"node {node}: Slurm's partition has no such node, or it was never up")
        return record.facts

    # What is wanted.

    def want(self, name: str, wanted: Wanted | None) -> None:
        """What a job is to have; None: nothing."""
        before = self._shares.pop(name, None)
        if before is not None:
            self._names[before.node].pop(name, None)
        if wanted is not None and wanted.nodes:
            share = _Share(wanted.nodes[0], wanted.share_cores[0], wanted.state is TaskState.PAUSED)
            self._shares[name] = share
            self._names.setdefault(share.node, {})[name] = None
        if self._shares.get(name) != before:
            self.changed()

    def changed(self) -> None:
        """Have all agents that wait look at what is wanted."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _orders(self, node: str) -> ShareOrders:
        rows, jobs = self._seen.rows, list[JobShare]()
        for name in self._names.get(node, {}):
            row, share = rows.get(name), self._shares[name]
            if row is not None and row.number:
                jobs.append(JobShare(number=row.number, cores=share.cores, paused=share.paused))
        jobs.sort(key=lambda job: job.number)
        cores = self.facts(node).cpus
        text = repr((cores, [(job.number, job.cores, job.paused) for job in jobs]))
        version = hashlib.sha256(text.encode()).hexdigest()[:16]
        return ShareOrders(version=version, node_cores=cores, jobs=tuple(jobs))

    # What is said.

    async def exchange(self, report: ShareReport) -> ShareOrders:
        """As `ShareDoor.exchange`."""
        control, loop = self._control, asyncio.get_running_loop()
        self._take(report)
        end_s = loop.time() + control.settings.report_s
        while (orders := self._orders(report.node)).version == report.version and loop.time() < end_s:
            try:
                async with asyncio.timeout_at(end_s):
                    await self._changed.wait()
            except TimeoutError:
                break
        self._reported[report.node] = control.settings.steady(), report.kind
        return orders

    def _take(self, report: ShareReport) -> None:
        control = self._control
        record = control.node(report.node)
        if record is None:
            raise NotFoundError(f"node {report.node}: Slurm's partition has no such node, or it was never up")
        before = self.kind(report.node)
        self._reported[report.node] = control.settings.steady(), report.kind
        if report.kind != before:
            control.poke()
        use = {each.number: each for each in report.jobs}
        samples: list[Sample] = []
        for name in self._names.get(report.node, {}):
            row = self._seen.rows.get(name)
            mark = present(row)
            if row is not None and mark is not None and row.number in use:
                samples.append(_sample(mark.task, use[row.number]))
        control.used(record, report.time_s, samples, None)


def _sample(task: object, use: JobUse) -> Sample:
    return Sample.model_validate({"task": task, **use.model_dump(exclude={"number"})})
