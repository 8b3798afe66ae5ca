"""The agent: it reports what jobs use, gets the shares that are wanted in the answer, and writes them.

It decides nothing, keeps nothing, and starts nothing. While the controller is away shares stay as they are, and those
of a job that begins meanwhile are Linux's own.
"""

import asyncio
import os
import ssl
from collections.abc import Sequence

import httpx
import structlog
from pydantic import ValidationError

from dfrs.live.agent.connection import Backoff, Controllers, Server
from dfrs.live.drivers.base import TaskId
from dfrs.live.drivers.cpu_times import cpu_times
from dfrs.live.drivers.run_delays import RunDelays, count
from dfrs.live.protocol.shares import JobUse, ShareOrders, ShareReport
from dfrs.live.share_agent.groups import JobGroups, now_s
from dfrs.model.errors import DfrsError

PATH = "/agent/v1/shares"
WRITE_S = 0.2
"""Between two times that shares are written: processes of jobs come at any time."""
ANSWER_S = 75.0
"""So long may an answer take: longer than reports can be apart."""
FIRST_S, LAST_S = 0.5, 10.0
"""Until the next attempt to reach a controller."""

log = structlog.get_logger("dfrs.shares")


class ShareAgent:
    """Of one node."""

    def __init__(self, node: str, server: Server, groups: JobGroups) -> None:
        self._node = node
        self._server = server
        self._groups = groups
        self._delays = RunDelays()
        self._orders: ShareOrders | None = None
        self._new = asyncio.Event()
        self._failed = False
        """Whether shares could not be written the last time."""

    async def run(self) -> None:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._write_on())
            both.create_task(self._talk_on())

    async def _write_on(self) -> None:
        while True:
            if self._orders is not None:
                shares = {job.number: job.cores for job in self._orders.jobs}
                why = self._groups.set_shares(shares, self._orders.node_cores)
                if why is not None and not self._failed:
                    log.error("shares cannot be written: jobs have Linux's own", node=self._node, why=str(why))
                self._failed = why is not None
            self._new.clear()
            try:
                async with asyncio.timeout(WRITE_S):
                    await self._new.wait()
            except TimeoutError:
                continue

    async def _talk_on(self) -> None:
        controllers, backoff = Controllers(self._server.urls), Backoff(FIRST_S, LAST_S)
        verify: ssl.SSLContext | bool = self._server.trust() or False
        headers = {"authorization": f"Bearer {self._server.token}"}
        async with httpx.AsyncClient(verify=verify, headers=headers, timeout=ANSWER_S, trust_env=False) as client:
            said = ""
            while True:
                try:
                    orders = await self._exchange(client, controllers.url)
                except (httpx.HTTPError, DfrsError) as error:
                    if str(error) != said:
                        said = str(error)
                        log.warning("no shares from the controller", node=self._node, why=said)
                    if controllers.go_on():
                        await asyncio.sleep(backoff.next_s())
                    continue
                if said or self._orders is None:
                    log.info("shares come from the controller", node=self._node, url=controllers.url)
                said = ""
                controllers.welcomed()
                backoff.reset()
                self._orders = orders
                self._new.set()

    async def _exchange(self, client: httpx.AsyncClient, url: str) -> ShareOrders:
        report = ShareReport(
            node=self._node,
            version="" if self._orders is None else self._orders.version,
            time_s=now_s(),
            kind="" if self._failed else self._groups.kind,
            jobs=tuple(self._uses()),
        )
        body, kind = report.model_dump_json(), {"content-type": "application/json"}
        answer = await client.post(f"{url.rstrip('/')}{PATH}", content=body, headers=kind)
        try:
            if not answer.is_success:
                raise DfrsError(f"{answer.status_code}: {answer.text[:200]}")
            return ShareOrders.model_validate_json(answer.content)
        except ValidationError:
            raise DfrsError(f"{url}: gave an answer that is none of a dfrs controller") from None

    def _uses(self) -> Sequence[JobUse]:
        paused = {job.number for job in self._orders.jobs if job.paused} if self._orders is not None else set[int]()
        found: list[JobUse] = []
        names: list[TaskId] = []
        host = cpu_times(os.sched_getaffinity(0))
        for number in self._groups.numbers():
            counted = self._groups.count(number)
            if counted is None:
                continue
            name = TaskId(job=number, rank=0, attempt=0)
            watched_s, delayed_s, waiting_s = self._delays.look(
                name,
                now_s(),
                counted.cpu_s,
                count(counted.threads),
                stopped=number in paused,
                there=len(counted.threads),
                host=host,
            )
            names.append(name)
            found.append(
                JobUse(
                    number=number,
                    cpu_s=counted.cpu_s,
                    memory_bytes=counted.memory_bytes,
                    watched_s=watched_s,
                    delayed_s=delayed_s,
                    waiting_s=waiting_s,
                )
            )
        self._delays.keep(names)
        return found
