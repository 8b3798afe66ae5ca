"""A storm: a controller and four nodes, on a loop without real time, to which the acts of a seed happen."""

import asyncio
import random
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import numpy as np

from dfrs.engine.codec import replay
from dfrs.engine.core import Core
from dfrs.live.controller.backups import back_up, restore
from dfrs.live.drivers.base import ImageFormat, TaskState
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.model.errors import DfrsError, ReplacedError
from dfrs.model.nodes import Condition
from dfrs.policies.names import find_policy
from dfrs.testing import InMemoryHosts, VirtualDisk, VirtualExecutor, abandon, end_now, make_controller, until
from dfrs.testing.cluster import DEFAULT_POLICY
from dfrs.testing.in_memory import AgentNode, InMemoryNode
from dfrs.testing.in_memory.agent_node import agents_on
from tests.storms.acts import NODES, acts_of, faults_of
from tests.storms.ledger import Ledger, Submission
from tests.storms.log import read_log

IMAGES = ImageFormat(machine="x", cpu=(), kernel="6.1", criu="4.1")
BEGIN_S = 1e6
"""The wall clock of nodes when a storm begins."""
QUIET_S = 3.0
"""For so long nothing must happen when all is over."""
LOST_S, FENCE_S = 20.0, 8.0
PACE = 0.25
"""Agents have so many seconds of the loop for each of the cluster's clock."""


class Hosts(InMemoryHosts):
    """Nodes that note what each task runs. Of two generations, as older copies of a database make them, both may run.

    Still nothing of one generation runs twice at a time.
    """

    forks = False

    def __post_init__(self):
        super().__post_init__()
        self.programs = {}
        """By which submission each task was started."""

    def started(self, node, task):
        """As there, and note what it runs."""
        self.programs[task] = int(node.tasks[task].desired.spec.environment["SUBMISSION"])
        super().started(node, task)

    def check(self):
        """As there; with forks, for each generation."""
        if not self.forks:
            super().check()
            return
        found = [(task.job, task.rank, task.generation) for task, _ in self.running()]
        if len(set(found)) < len(found):
            self.fail(f"runs twice: {sorted(found)}")


class Storm:
    """A controller on a database in `path`, and nodes. `faults` and `acts` are by default those of the seed."""

    def __init__(self, path, seed, loop, faults=None, acts=None):
        self.path, self.loop = path, loop
        self.faults = faults_of(seed) if faults is None else faults
        self.acts = acts_of(seed, self.faults) if acts is None else acts
        self.has_agents = "agents" in self.faults
        self.done = 0
        self.random = random.Random(f"storm {seed}")
        self.ledger = Ledger(may_refuse="disk" in self.faults, may_fail="sick" in self.faults)
        self.controller = None
        self.replaced = []
        self.kills = self.restores = 0
        self.saved = None
        """The ledger as it was when the database was copied."""
        self._clients = set()
        self._down = asyncio.Event()
        self._node_ahead = 0.0
        self._set_up_hosts(seed)
        self.disk = VirtualDisk(Path(path, "live.db"), random.Random(f"disk {seed}"))
        loop.after_each = self.look

    def _set_up_hosts(self, seed):
        faults = self.faults
        chaos, cuts = (0.2, 0.1 * (seed % 4))
        self.hosts = Hosts(
            seed=seed, chaos=chaos, cuts=cuts, stamp=lambda: BEGIN_S + self.loop.time() + self._node_ahead
        )
        self.hosts.forks = "forks" in faults
        for k in range(NODES):
            images = IMAGES if "images" in faults else None
            node = self.hosts.node(
                f"n{k}",
                host=f"h{k // 2}",
                kind=AgentNode if self.has_agents else InMemoryNode,
                pause_frees_memory=seed % 2 == 0,
                images=images,
            )
            node.full = 0.3 if seed % 10 == 2 else 0.0
            node.rigid = 0.3 if seed % 10 in {4, 5} else 0.0
            node.fence_s = FENCE_S * (PACE if self.has_agents else 1.0) if "away" in faults else None

    def look(self):
        """After each step of the loop: what users were told is so."""
        assert not self.hosts.broken, self.hosts.broken
        controller = self.controller
        if controller is not None and controller._running is not None and not self._down.is_set():
            known = all(self._boot_is_known(controller, node) for node in self.hosts.nodes.values())
            if not known or any(node.condition is Condition.DOWN for node in controller.state.nodes):
                self.ledger.excuse()
            self.ledger.look(controller)

    @staticmethod
    def _boot_is_known(controller, node):
        """Whether it is recorded that it was rebooted: before that, what it may have been told counts as lost by it."""
        number = controller.state.numbers.get(node.name)
        if number is None or number in controller.engine.arrivals._hellos:
            return False
        return controller.state.nodes[number].hello.boot == f"boot {node.boots}"

    # The controller.

    def _make(self):
        settings = {"start_s": 0.5 if "sick" in self.faults else 60.0}
        if self.has_agents:
            settings |= {"report_s": 0.25, "start_s": 4.0 if "sick" in self.faults else 60.0}
        if "away" in self.faults:
            settings |= {"lost_s": LOST_S, "silent_s": 5.0}
        return make_controller(
            self.path,
            clock=self.hosts.clock,
            steady=self.hosts.steady,
            checkpoint_events=40,
            writer=VirtualExecutor(self.loop),
            **settings,
        )

    async def start(self, away=(), again=0):
        """A controller that goes on from what is in the database, and nodes but for those that stay away.

        `again`: it is killed once more after so many steps, if it has not come up by then.
        """
        self.controller = made = self._make()
        starting = asyncio.ensure_future(made.start())
        if again:
            self.loop.after_steps(again, partial(self._end_start, made, starting))
        await asyncio.wait({starting})
        if starting.cancelled() or (problem := starting.exception()) is not None:
            await self._leave(made)
            if not starting.cancelled():
                # As a supervisor does: when there is room again.
                assert "disk" in self.faults, problem
                self.disk.full = False
            self.kills += 1
            await self.start(away)
            return
        self.disk.begin()
        self._down.clear()
        self.ledger.settle(made)
        for node in self.hosts.nodes.values():
            if node in away:
                node.cut()
            else:
                node.attach(made)

    @staticmethod
    def _end_start(made, starting):
        if not starting.done():
            end_now(made)
            starting.cancel()

    def crash(self):
        """The controller ends at this instant; whoever waits for it hears nothing."""
        if self._down.is_set():
            return
        self._down.set()
        end_now(self.controller)
        for client in self._clients:
            client.cancel()
        self.hosts.history.append(("kill",))
        self.kills += 1

    async def _gone(self):
        await self._down.wait()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await self._leave(self.controller)
        self.hosts.now += 0.001

    @staticmethod
    async def _leave(controller):
        """Its process is gone, and has no file open."""
        await abandon(controller)
        engine = controller.database._engine
        if engine is not None:
            engine.dispose()

    # Acts.

    async def act(self):
        """The next act happens."""
        act = self.acts[self.done]
        self.done += 1
        await getattr(self, f"_{act.verb}")(act)

    def _node(self, act):
        return list(self.hosts.nodes.values())[act["node"]]

    async def _have(self, request, wait):
        """Have a user ask for something; with `wait`, until they are told."""
        client = asyncio.ensure_future(request)
        self._clients.add(client)
        client.add_done_callback(self._answered)
        if wait:
            await asyncio.wait({client})

    def _answered(self, client):
        self._clients.discard(client)
        if not client.cancelled() and (error := client.exception()) is not None:
            self.hosts.broken.append(str(error))

    def _request(self, act, number):
        return JobRequest(
            command=("sleep", str(act["seconds"])),
            cpu_cores=act["cores"],
            tasks=act["tasks"],
            memory_bytes=act["memory"],
            restart=act["restart"],
            minimum_yield=act["minimum"],
            array=act["array"] if act["array"] > 1 else None,
            environment={"SUBMISSION": str(number)},
        )

    async def _submit(self, act):
        number = act.number
        while number in self.ledger.submissions:
            number += 1000
        submission = Submission(number, act["array"], act["restart"])
        await self._have(self.ledger.submit(self.controller, self._request(act, number), submission), act["wait"])

    async def _ask(self, act):
        jobs = sorted(self.ledger.of_job)
        if jobs:
            job = jobs[int(act["job"] * len(jobs))]
            self.hosts.history.append((act["what"], job))
            await self._have(self.ledger.ask(self.controller, act["what"], job), act["wait"])

    async def _drain(self, act):
        await self._have(self.ledger.drain(self.controller, act["what"], self._node(act).name), act["wait"])

    async def _attach(self, act):
        self._node(act).attach(self.controller)

    async def _cut(self, act):
        self._node(act).cut()

    async def _reboot(self, act):
        self.ledger.excuse()
        self._node(act).reboot()
        self._node(act).attach(self.controller)

    async def _tick(self, act):
        await self.pass_time(act["seconds"])
        self.ledger.look_at_shares(self.controller, self.hosts)

    async def pass_time(self, seconds):
        """Time passes for all."""
        self.hosts.tick(seconds)
        await asyncio.sleep(PACE * seconds if self.has_agents else 0.003)

    async def _kill(self, act):
        self.loop.after_steps(act["steps"], self.crash)
        await self._gone()
        await self.start(again=act["again"])

    async def _power(self, act):
        """Power is cut in a commit, or soon if there is none."""
        self.disk.on_cut = self.crash
        self.disk.cut_in_commit(act["commits"])
        late = self.loop.call_later(0.2, self.crash)
        await self._down.wait()
        late.cancel()
        self.disk.cut()
        await self._gone()
        self.disk.restore_power()
        await self.start(again=act["again"])

    async def _lose(self, act):
        self.hosts.losses = act["chance"]

    async def _one_way(self, act):
        self._node(act).cut_off = act["way"]

    async def _slow(self, act):
        self.controller.database._writer.slowness = act["times"]

    async def _full(self, act):
        self.disk.full = act["full"]

    async def _unsure(self, act):
        self.disk.loses_answers = act["chance"]

    async def _clock(self, act):
        self.hosts.wall_ahead += act["by"]

    async def _node_clock(self, act):
        self._node_ahead += act["by"]

    async def _away(self, act):
        """A node is down, or cut off, for so long that its jobs may be given up."""
        node = self._node(act)
        self.ledger.excuse()
        if act["down"]:
            node.die()
        else:
            node.cut()
        for _ in range(act["seconds"]):
            await self.pass_time(1.0)
        if act["down"]:
            node.dead = False
            node.reboot()
        self.ledger.excuse()
        node.attach(self.controller)

    async def _replace(self, act):
        """Another controller takes over, while some nodes are still connected to this one."""
        old, self.controller = self.controller, None
        if self._clients:
            await asyncio.wait(self._clients)
        self.hosts.history.append(("replace",))
        made = self._make()
        try:
            await made.start()
        except DfrsError:
            assert self.ledger.may_refuse
            # It may have taken over all the same.
            await self._leave(made)
            await self._leave(old)
            self.disk.full = False
            await self.start()
            return
        self.replaced.append(old)
        self.controller = made
        self.disk.begin()
        self.ledger.settle(made)
        for k, node in enumerate(self.hosts.nodes.values()):
            if act["chosen"] & 1 << k:
                node.attach(made)
        await self.pass_time(act["seconds"])
        with suppress(DfrsError):
            await old.submit(JobRequest(command=("never",), environment={"SUBMISSION": "-1"}), "ann", "ann")
            raise AssertionError("a controller that was replaced accepted a job")
        await until(old.engine.stopped.is_set, "the replaced controller stops")
        assert isinstance(old.engine.problem, ReplacedError)
        await old.stop()
        self.hosts.attach_all(made)

    async def _agent_killed(self, act):
        self._node(act).kill_agent()

    async def _unable(self, act):
        self._node(act).unable = act["why"]

    async def _problem(self, act):
        self._node(act).problem = act["why"]

    async def _save(self, act):
        del act
        self.saved = self.ledger.copied()
        back_up(Path(self.path, "live.db"), Path(self.path, "copy.db"), replace=True)

    async def _restore(self, act):
        """As a kill; and the next controller finds the copy, and gives out numbers again before all nodes are there."""
        if self.saved is None:
            return
        self.crash()
        await self._gone()
        self.hosts.history.append(("restore",))
        restore(Path(self.path, "copy.db"), Path(self.path, "live.db"))
        self.ledger = self.saved.copied()
        self.ledger.excuse()
        self.hosts.starts.clear()
        self.restores += 1
        await self.start([node for k, node in enumerate(self.hosts.nodes.values()) if act["away"] & 1 << k])
        drawn = random.Random(f"{act}")
        jobs = [each for each in acts_of(drawn.randrange(1 << 30), frozenset(), 20) if each.verb == "submit"]
        for each in jobs[: act["jobs"]]:
            await self._submit(each)

    # The end.

    async def calm(self):
        """Everything works again; every job ends, and then nothing happens any more."""
        hosts, ledger = self.hosts, self.ledger
        hosts.chaos = hosts.losses = self.disk.loses_answers = 0.0
        self.disk.full = False
        self.controller.database._writer.slowness = 1.0
        for node in hosts.nodes.values():
            node.unable = node.problem = ""
        if self._clients:
            await asyncio.wait(self._clients)
        # What was in trouble tries again by now.
        await asyncio.sleep(1.5)
        for name in hosts.nodes:
            await ledger.drain(self.controller, "undrain", name)
        hosts.attach_all(self.controller)
        for job in sorted(ledger.of_job):
            if self.controller.job(job).state is JobState.HELD:
                await ledger.ask(self.controller, "release", job)
        await self._all_end()
        await self._all_quiet()

    async def _all_end(self):
        for _ in range(4000):
            if not self.controller.state.jobs:
                return
            await self.pass_time(0.5)
        left = [self.controller.job(job) for job in sorted(self.controller.state.jobs)]
        raise AssertionError(f"never ended: {left[0].state} {left[:3]}")

    async def _all_quiet(self):
        controller, hosts = self.controller, self.hosts
        for _ in range(40):
            await self.pass_time(0.05)
        before = controller.state.sequence
        for _ in range(20):
            await self.pass_time(QUIET_S / 20)
        assert controller.state.sequence == before, "all jobs have ended, and there are still events"
        assert not hosts.running()
        for node in hosts.nodes.values():
            left = [task for task in node.tasks.values() if task.state is not TaskState.ABSENT]
            assert not left, f"{node.name}: still has {left[0].id}"
        for record in controller.state.nodes:
            assert not record.outbox
            assert not record.desired, f"{record.name}: is still to have {next(iter(record.desired.values()))}"

    async def story(self):
        """All of it. It fails at the first step at which anything is as it must never be."""
        agents = agents_on(self.loop, self.hosts.stamp) if self.has_agents else nullcontext()
        with self.disk, agents:
            await self.start()
            await until(lambda: len(self.controller.nodes()) == len(self.hosts.nodes))
            while self.done < len(self.acts):
                await self.act()
            await self.calm()
            for node in self.hosts.nodes.values() if self.has_agents else ():
                node.kill_agent()
            controller = self.controller
            assert controller.state.mismatches == 0
            assert controller.state.refused == 0
            assert not self.hosts.broken
            self.ledger.look(controller)
            self.ledger.at_the_end(controller, self.hosts)
            if "forks" not in self.faults:
                attempts = {(task.job, task.rank, task.attempt) for task in self.hosts.starts}
                assert len(attempts) == len(self.hosts.starts), "an attempt has two generations"
            await controller.stop()
            entries = [each for each in read_log(self.path) if each[1]["event"] != "restart"]
            assert replay(Core(find_policy(DEFAULT_POLICY), np.zeros((0, 2))), entries) is None
