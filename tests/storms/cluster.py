"""The cluster of a storm: a controller on a real database, four nodes, and users whose answers are noted."""

import asyncio
import random
from functools import partial
from pathlib import Path

from dfrs.live.drivers.base import ImageFormat
from dfrs.live.errors import UnavailableError
from dfrs.model.nodes import Condition
from dfrs.testing import InMemoryHosts, VirtualDisk, VirtualExecutor, abandon, end_now, make_controller
from dfrs.testing.in_memory import AgentNode, InMemoryNode
from tests.storms.acts import NODES, acts_of, faults_of, has_resources
from tests.storms.ledger import Ledger

IMAGES = ImageFormat(machine="x", cpu=(), kernel="6.1", criu="4.1")
BEGIN_S = 1e6
"""The wall clock of nodes when a storm begins."""
LOST_S, FENCE_S = 20.0, 8.0
ROUNDING_S = 1e-3
MOST_STARTS = 10
"""A controller that does not start after so many attempts never will."""
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


class StormyCluster:
    """A controller on a database in `path`, and nodes. `faults` and `acts` are by default those of the seed."""

    def __init__(self, path, seed, loop, faults=None, acts=None):
        self.path, self.loop = path, loop
        self.faults = faults_of(seed) if faults is None else faults
        self.acts = acts_of(seed, self.faults) if acts is None else acts
        self.seed = seed
        self.has_agents = "agents" in self.faults
        self.done = 0
        self.random = random.Random(f"storm {seed}")
        self.ledger = Ledger(
            may_refuse="disk" in self.faults,
            may_fail="sick" in self.faults,
            has_fences="away" in self.faults,
            may_promise_much=bool(seed % 2) or seed % 10 == 2,
        )
        self.controller = None
        self.replaced = []
        self.kills = self.restores = 0
        self.saved = None
        """The ledger as it was when the database was copied."""
        self.clients = set()
        """Requests that are not answered yet."""
        self.down = asyncio.Event()
        """Set while there is no controller."""
        self.nodes_ahead = 0.0
        """By how much the clocks of nodes were set."""
        self._set_up_hosts(seed)
        self.disk = VirtualDisk(Path(path, "live.db"), random.Random(f"disk {seed}"))
        loop.after_each = self.look

    def _set_up_hosts(self, seed):
        faults = self.faults
        chaos, cuts = (0.2, 0.1 * (seed % 4))
        self.hosts = Hosts(
            seed=seed, chaos=chaos, cuts=cuts, stamp=lambda: BEGIN_S + self.loop.time() + self.nodes_ahead
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
            node.resources = {"gpu": 2} if has_resources(seed) else {}
            node.full = 0.3 if seed % 10 == 2 else 0.0
            node.rigid = 0.3 if seed % 10 in {4, 5} else 0.0
            node.fence_s = FENCE_S * (PACE if self.has_agents else 1.0) if "away" in faults else None

    def look(self):
        """After each step of the loop: what users were told is so."""
        assert not self.hosts.broken, self.hosts.broken
        controller = self.controller
        if controller is not None and controller._running is not None and not self.down.is_set():
            known = all(self._boot_is_known(controller, node) for node in self.hosts.nodes.values())
            if not known or any(node.condition is Condition.DOWN for node in controller.state.nodes):
                self.ledger.excuse()
            self.ledger.look(controller)

    @staticmethod
    def _boot_is_known(controller, node):
        """Whether it is recorded that it was rebooted: before that, what it may have been told counts as lost by it."""
        number = controller.state.numbers.get(node.name)
        if number is None or not controller.engine.descriptions.is_recorded(number):
            return False
        return controller.state.nodes[number].facts.boot == f"boot {node.boots}"

    # The controller.

    def make(self):
        """A controller, not started."""
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
        for _ in range(MOST_STARTS):
            self.controller = made = self.make()
            starting = asyncio.ensure_future(made.start())
            if again:
                self.loop.after_steps(again, partial(self._end_start, made, starting))
                again = 0
            await asyncio.wait({starting})
            problem = None if starting.cancelled() else starting.exception()
            if not starting.cancelled() and problem is None:
                break
            await self.leave(made)
            self.kills += 1
            if problem is not None:
                # As a supervisor does, but for bad input: when there is room again.
                passes = "disk" in self.faults and isinstance(problem, UnavailableError)
                assert passes, f"it does not start: {problem}"
                self.disk.full = False
        else:
            raise AssertionError(f"it does not start: {problem}")
        self.disk.begin()
        self.down.clear()
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
        if self.down.is_set():
            return
        self.down.set()
        end_now(self.controller)
        for client in self.clients:
            client.cancel()
        self.hosts.history.append(("kill",))
        self.kills += 1

    async def gone(self):
        """Return when its process is gone, and everybody who waited for it knows."""
        await self.down.wait()
        await asyncio.gather(*self.clients, return_exceptions=True)
        await self.leave(self.controller)
        self.hosts.now += 0.001

    @staticmethod
    async def leave(controller):
        """Its process is gone, and has no file open."""
        await abandon(controller)
        engine = controller.database._engine
        if engine is not None:
            engine.dispose()

    # Users, and time.

    async def have(self, request, wait):
        """Have a user ask for something; with `wait`, until they are told."""
        client = asyncio.ensure_future(request)
        self.clients.add(client)
        client.add_done_callback(self._answered)
        if wait:
            await asyncio.wait({client})

    def _answered(self, client):
        self.clients.discard(client)
        if not client.cancelled() and (error := client.exception()) is not None:
            self.hosts.broken.append(str(error))

    async def pass_time(self, seconds):
        """Time passes for all."""
        before_s = self.controller.state.now_s()
        self.hosts.tick(seconds)
        passed_s = self.controller.state.now_s() - before_s
        assert abs(passed_s - seconds) < ROUNDING_S, f"{seconds} s passed, and {passed_s} for the core"
        await asyncio.sleep(PACE * seconds if self.has_agents else 0.003)
