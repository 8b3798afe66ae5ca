"""A storm: what each act does to the cluster, and how all of it ends."""

import asyncio
import random
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np

from dfrs.engine.codec import replay
from dfrs.engine.core import Core
from dfrs.live.controller.backups import back_up, restore
from dfrs.live.drivers.base import TaskState
from dfrs.live.protocol.resources import ENDED, JobRequest, JobState
from dfrs.model.errors import DfrsError, ReplacedError
from dfrs.policies.names import find_policy
from dfrs.testing import until
from dfrs.testing.cluster import DEFAULT_POLICY
from dfrs.testing.in_memory.agent_node import agents_on
from tests.storms.acts import ENDLESS_S, acts_of, wants_of
from tests.storms.cluster import StormyCluster
from tests.storms.ledger import Submission
from tests.storms.log import read_log

QUIET_S = 3.0
"""For so long nothing must happen when all is over."""


class Storm(StormyCluster):
    """The cluster to which the acts of a seed happen."""

    # Acts.

    async def act(self):
        """The next act happens."""
        act = self.acts[self.done]
        self.done += 1
        await getattr(self, f"_{act.verb}")(act)

    def _node(self, act):
        return list(self.hosts.nodes.values())[act["node"]]

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
            exclude=tuple(self.hosts.nodes)[: act["exclude"]],
            **wants_of(self.seed, act),
        )

    async def _submit(self, act):
        number = act.number
        while number in self.ledger.submissions:
            number += 1000
        submission = Submission(number, act["array"], act["seconds"] >= ENDLESS_S)
        await self.have(self.ledger.submit(self.controller, self._request(act, number), submission), act["wait"])

    async def _ask(self, act):
        jobs = sorted(self.ledger.of_job)
        if jobs:
            job = jobs[int(act["job"] * len(jobs))]
            self.hosts.history.append((act["what"], job))
            await self.have(self.ledger.ask(self.controller, act["what"], job), act["wait"])

    async def _drain(self, act):
        await self.have(self.ledger.drain(self.controller, act["what"], self._node(act).name), act["wait"])

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

    async def _kill(self, act):
        self.loop.after_steps(act["steps"], self.crash)
        await self.gone()
        await self.start(again=act["again"])

    async def _power(self, act):
        """Power is cut in a commit, or soon if there is none."""
        self.disk.on_cut = self.crash
        self.disk.cut_in_commit(act["commits"])
        late = self.loop.call_later(0.2, self.crash)
        await self.down.wait()
        late.cancel()
        self.disk.cut()
        await self.gone()
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
        self.nodes_ahead += act["by"]

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
        if self.clients:
            await asyncio.wait(self.clients)
        self.hosts.history.append(("replace",))
        made = self.make()
        try:
            await made.start()
        except DfrsError:
            assert self.ledger.may_refuse
            # It may have taken over all the same.
            await self.leave(made)
            await self.leave(old)
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
        self._node(act).restart_agent()

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
        await self.gone()
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
        if self.clients:
            await asyncio.wait(self.clients)
        # What was in trouble tries again by now.
        await asyncio.sleep(1.5)
        for name in hosts.nodes:
            await ledger.drain(self.controller, "undrain", name)
        hosts.attach_all(self.controller)
        for job in sorted(ledger.of_job):
            state = self.controller.job(job).state
            if ledger.submissions[ledger.of_job[job]].endless and state not in ENDED:
                await ledger.ask(self.controller, "cancel", job)
            elif state is JobState.HELD:
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
        assert not hosts.running(), f"still runs: {hosts.running()}"
        for node in hosts.nodes.values():
            left = [task for task in node.tasks.values() if task.state is not TaskState.ABSENT]
            assert not left, f"{node.name}: still has {left[0].id}"
        for record in controller.state.nodes:
            agent = controller.engine.backend.agents[record.number]
            assert not agent.outbox, f"{record.name}: is still to be told something"
            assert not agent.desired, f"{record.name}: is still to have {next(iter(agent.desired.values()))}"

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
            assert controller.state.mismatches == 0, "decisions came out otherwise when they were replayed"
            assert controller.state.refused == 0, "the core was told of what cannot be"
            assert not self.hosts.broken, self.hosts.broken
            self.ledger.look(controller)
            self.ledger.at_the_end(controller, self.hosts)
            if "forks" not in self.faults:
                attempts = {(task.job, task.rank, task.attempt) for task in self.hosts.starts}
                assert len(attempts) == len(self.hosts.starts), "an attempt has two generations"
            await controller.stop()
            entries = [each for each in read_log(self.path) if each[1]["event"] != "restart"]
            assert replay(Core(find_policy(DEFAULT_POLICY), np.zeros((0, 2))), entries) is None, (
                "the record does not replay"
            )
