"""An hour of a large cluster: 1,000 agents, 10,000 queued jobs, 1,000,000 past events, and a user who goes on.

Agents are connected over WebSockets as real ones are; their tasks are in memory. First the cluster ages: all of the
queue has its turn, and as many jobs end as are kept in memory. Then the controller starts again, as many jobs end once
more, so that little is left that fills with time alone, and the time begins. A dashboard and scripts ask every route,
and each second a short job comes. Shown is what the controller needs and how fast it answers, over time, and how much
of the CPUs other virtual machines took meanwhile. The exit status is 1 where a route takes longer at 99 % of the whole
time than is asked, or memory is more, or grows.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
from rich.table import Table
from tests.live_processes import LiveCluster, wait_until
from websockets.asyncio.client import ClientConnection

from benchmarks.common import console
from benchmarks.live_history import ANSWER_GOAL_MS, MEMORY_GOAL_MIB, ask, ended_job, lengthen, peak_mib, queue, stop
from benchmarks.online import table
from dfrs.live.agent.connection import Server
from dfrs.live.controller.ended_jobs import MOST_ENDED
from dfrs.live.protocol.agent_door import Attachment, Link
from dfrs.live.protocol.wire import FromAgent, Hello, from_controller
from dfrs.testing import InMemoryHosts
from dfrs.testing.in_memory import GIB, InMemoryNode

AGENTS = 1_000
MEMORY = 5 * GIB // 4
"""Of a node, in bytes: two of the jobs that wait have room, and a few short ones beside them."""
SHORT = {"command": ["sleep", "5"], "memory_bytes": 16 << 20, "cpu_cores": 0.1}
REPORT_S, SUBMIT_S, ASK_S = 1.0, 1.0, 10.0
"""Seconds between two reports of an agent, two submissions, and two rounds of questions."""
POLICY, FIRST_POLICY = "GreedyPM*/per/OPT=MIN/MVT=600", "GreedyPM*/per=30/OPT=MIN"
"""While the cluster ages, jobs take turns every half minute."""
AT_ONCE, AGE_S = 100, 3.0
"""Short jobs of one submission then, and seconds between two."""
PARTS = 6
"""The time is shown in so many."""
PATIENCE_S, AGED_S = 300.0, 1800.0
"""Seconds until all agents are there, and until the cluster has aged, at most."""
NO_GROWTH_MIB, LEAST_MINUTES = 1.0, 10.0
"""In 10 minutes: so much is not told apart from what the allocator keeps or gives back, and less not in less time."""
ENDED = ("done", "failed", "cancelled")
BEGUN = ("starting", "running", "paused", "ending")


class _Wire:
    """The controller at the other end of a WebSocket, as a node in memory sees it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._out: asyncio.Queue[str] = asyncio.Queue()
        self.link: Link | None = None

    def attach(self, hello: Hello, link: Link) -> Attachment:
        """Say hello."""
        self.link = link
        self.receive(hello)
        return self

    def receive(self, message: FromAgent) -> None:
        """Send it to the controller."""
        self._out.put_nowait(message.model_dump_json())

    def detach(self) -> None:
        """Nothing holds it."""

    async def carry(self) -> None:
        """Both ways, until it breaks."""
        assert self.link is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            async for text in self._socket:
                if (message := from_controller(text)) is not None:
                    self.link.send(message)
            raise ConnectionError(self._socket.close_reason)

    async def _send(self) -> None:
        while True:
            await self._socket.send(await self._out.get())


async def _keep(node: InMemoryNode, server: Server, after_s: float) -> None:
    """One agent: connect, and report each second; where the connection breaks, again."""
    await asyncio.sleep(after_s)
    while True:
        with contextlib.suppress(OSError, ExceptionGroup):
            async with server.connect(server.url, 60.0) as socket, asyncio.TaskGroup() as group:
                wire = _Wire(socket)
                node.enter(wire)
                group.create_task(wire.carry())
                while True:
                    await asyncio.sleep(REPORT_S)
                    node.hosts.history.clear()
                    node.tick(REPORT_S)
        node.cut()
        await asyncio.sleep(1.0)


def crowd(url: str, token: str, end: Event, agents: int = AGENTS, memory: int = MEMORY) -> None:
    """So many agents, in this process; memory of each one's node in bytes."""

    async def run() -> None:
        hosts = InMemoryHosts(watched=False)
        server = Server(url=url, token=token)
        nodes = [hosts.node(f"m{k}", host=f"h{k}", cpus=2.0, memory=memory) for k in range(agents)]
        kept = [asyncio.create_task(_keep(node, server, k / 100.0)) for k, node in enumerate(nodes)]
        await asyncio.to_thread(end.wait)
        for each in kept:
            each.cancel()

    asyncio.run(run())


def _now_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def _stolen_s() -> float:
    """CPU seconds that other virtual machines took of this one since it began, of all CPUs together."""
    steal = Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]
    return int(steal) / os.sysconf("SC_CLK_TCK")


class _Growth:
    """Memory over time, and how many jobs have begun and ended."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seen: list[tuple[float, float, int, int]] = []

    def note(self, mib: float, cluster: LiveCluster) -> None:
        """Of now."""
        jobs = cluster.client.get("/api/v1/cluster").raise_for_status().json()["jobs"]
        ended = sum(jobs[state] for state in ENDED)
        begun = ended + sum(jobs[state] for state in BEGUN)
        self._seen.append(((time.monotonic() - self._began) / 60, mib, begun, ended))

    def slope(self) -> float:
        """MiB in 10 minutes after the first third of the time, by a line of least squares; NaN of too few looks."""
        minutes, mib = np.array([each[:2] for each in self._after()]).T
        return float(np.polyfit(minutes, mib, 1)[0]) * 10 if len(minutes) > 2 else float("nan")

    def _after(self) -> list[tuple[float, float, int, int]]:
        return [each for each in self._seen if each[0] >= self._seen[-1][0] / 3]

    def verdict(self) -> str:
        """In one line: how memory grew after the first third of the time."""
        first, after, slope = self._seen[0], self._after(), self.slope()
        minutes = [each[0] for each in after]
        begun, ended = after[-1][2] - after[0][2], after[-1][3] - after[0][3]
        return (
            f"Growth of memory: {slope:+.1f} MiB in 10 minutes, from minute {minutes[0]:.1f} to {minutes[-1]:.1f}, in "
            f"which {begun:,} jobs began and {ended:,} ended; {after[-1][1] - first[1]:+.0f} MiB since the first look, "
            f"with {after[-1][2] - first[2]:,} begun and {after[-1][3] - first[3]:,} ended. "
            f"{_judged(slope, minutes[-1] - minutes[0])}"
        )


def _judged(slope: float, minutes: float) -> str:
    if minutes < LEAST_MINUTES:
        return f"Too short a time for a verdict: {LEAST_MINUTES:g} minutes after that third are needed"
    return f"{'No growth' if slope <= NO_GROWTH_MIB else 'IT GROWS'}: at most {NO_GROWTH_MIB:g} MiB in 10 minutes"


def _watch(cluster: LiveCluster, seconds: float, growth: _Growth, whole: dict[str, list[float]]) -> list[str]:
    """A row of the table: what was seen in so many seconds; `whole` gets how long each route's answers took."""
    found: dict[str, list[float]] = {}
    memory: list[float] = []
    up: list[int] = []
    submitted, begun, stolen = 0, time.monotonic(), _stolen_s()
    next_ask = begun
    while (now := time.monotonic()) - begun < seconds:
        if now >= next_ask:
            next_ask = now + ASK_S
            ask(cluster, 5000, found)
            memory.append(_now_mib(cluster.controller.pid))
            growth.note(memory[-1], cluster)
            up.append(sum(node["state"] == "up" for node in cluster.client.get("/api/v1/nodes").json()))
        cluster.client.post("/api/v1/jobs", json=SHORT).raise_for_status()
        submitted += 1
        time.sleep(max(0.0, SUBMIT_S - (time.monotonic() - now)))
    for path, spent in found.items():
        whole.setdefault(path, []).extend(spent)
    worst = {path: float(np.quantile(spent, 0.99)) * 1000 for path, spent in found.items()}
    slowest = max(worst, key=worst.__getitem__)
    jobs = cluster.client.get("/api/v1/cluster").json()["jobs"]
    database = sum(path.stat().st_size for path in cluster.state.glob("dfrs.db*")) / (1 << 20)
    return [
        f"{np.median(memory):,.0f}",
        f"{max(memory):,.0f}",
        f"{database:,.0f}",
        f"{min(up):,}",
        f"{submitted:,}",
        f"{jobs['waiting']:,}",
        f"{jobs['running']:,}",
        f"{100 * (_stolen_s() - stolen) / (time.monotonic() - begun) / (os.cpu_count() or 1):.1f}",
        f"{worst[slowest]:.0f}",
        slowest.replace("/api/v1", ""),
    ]


def _routes(whole: Mapping[str, Sequence[float]]) -> Table:
    """How long the answers of each route took in all of the time, the slowest first."""
    made = table("Answers, ms", "route", "asked", "median", "99 %", "longest")
    at = {path: np.quantile(spent, [0.5, 0.99, 1.0]) * 1000 for path, spent in whole.items()}
    for path in sorted(at, key=lambda path: -at[path][1]):
        made.add_row(path.replace("/api/v1", ""), str(len(whole[path])), *(f"{each:.0f}" for each in at[path]))
    return made


def _age(cluster: LiveCluster) -> None:
    """Until all of the queue has begun, and more short jobs have come than are kept after their end."""
    end_s, come = time.monotonic() + AGED_S, 0
    while come <= MOST_ENDED or cluster.client.get("/api/v1/cluster").raise_for_status().json()["jobs"]["waiting"]:
        if time.monotonic() > end_s:
            raise TimeoutError(f"after {AGED_S:g} s jobs of the queue still wait for their first turn")
        if come <= MOST_ENDED:
            cluster.client.post("/api/v1/jobs", json=SHORT | {"array": AT_ONCE}).raise_for_status()
            come += AT_ONCE
        time.sleep(AGE_S)


def _await_agents(cluster: LiveCluster) -> None:
    begun = time.monotonic()
    wait_until(lambda: len(cluster.up()) == AGENTS + 1, f"{AGENTS:,} agents", PATIENCE_S)
    console.print(f"{AGENTS:,} agents connected after {time.monotonic() - begun:.0f} s")


def main(minutes: float = 60.0) -> bool:
    """Make the past, start, let agents come and the cluster age, start again, and watch: whether all is as asked."""
    end = multiprocessing.Event()
    with tempfile.TemporaryDirectory() as name, LiveCluster(Path(name), nodes=1, policy=FIRST_POLICY) as cluster:
        final = ended_job(cluster)
        queue(cluster)
        stop(cluster)
        lengthen(cluster.state / "dfrs.db", final)
        cluster.start_controller()
        token = (cluster.state / "agent.token").read_text().strip()
        agents = multiprocessing.Process(target=crowd, args=(cluster.server, token, end))
        agents.start()
        _await_agents(cluster)
        begun = time.monotonic()
        _age(cluster)
        console.print(f"All jobs of the queue have begun after {time.monotonic() - begun:.0f} s")
        stop(cluster)
        cluster.serve_options = tuple(POLICY if each == FIRST_POLICY else each for each in cluster.serve_options)
        cluster.start_controller()
        _await_agents(cluster)
        # Not all that it keeps of the past is stored, and tables of jobs grow once where jobs come and go.
        _age(cluster)
        made = table(
            f"{minutes:g} minutes with {AGENTS:,} agents; answers at most {ANSWER_GOAL_MS:g} ms and memory at most "
            f"{MEMORY_GOAL_MIB:g} MiB are asked",
            "until, min",
            "memory, MiB",
            "at most",
            "database, MiB",
            "nodes up, least",
            "submitted",
            "waiting",
            "running",
            "stolen, %",
            "slowest route at 99 %, ms",
            "which",
        )
        growth, whole = _Growth(), dict[str, list[float]]()
        for part in range(PARTS):
            row = [f"{minutes * (part + 1) / PARTS:g}", *_watch(cluster, minutes * 60 / PARTS, growth, whole)]
            console.print(" ".join(row))
            made.add_row(*row)
        console.print(made)
        console.print(_routes(whole))
        console.print(growth.verdict())
        peak = peak_mib(cluster.controller.pid)
        console.print(f"Most memory of all: {peak:,.0f} MiB")
        end.set()
        agents.join()
        slowest = max(float(np.quantile(spent, 0.99)) * 1000 for spent in whole.values())
        return slowest <= ANSWER_GOAL_MS and peak <= MEMORY_GOAL_MIB and growth.slope() <= NO_GROWTH_MIB


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    sys.exit(not main(**vars(parser.parse_args())))
