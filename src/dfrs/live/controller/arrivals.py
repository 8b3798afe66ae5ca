"""Agents that say hello: kept until their node is in the record, welcomed, and recorded as what the node now is."""

from collections.abc import Callable, Collection

from dfrs.live.controller import tables
from dfrs.live.controller.node_lifecycle import NodeLifecycle, PendingAgent
from dfrs.live.controller.planner import ControllerPlan
from dfrs.live.controller.records import NodeRecord
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import TaskId, TaskState


class Arrivals:
    """From an agent's hello to the record of it. What a new node is to the core, `lifecycle` plans."""

    def __init__(self, state: State, lifecycle: NodeLifecycle, poke: Callable[[], None]) -> None:
        self.pending: dict[str, PendingAgent] = {}
        """Agents that are not welcomed yet, by the name of their node."""
        self._state = state
        self._lifecycle = lifecycle
        self._poke = poke
        self._hellos: dict[int, set[TaskId]] = {}
        """Nodes whose hello is not recorded, and tasks that only the hello before shows to be lost."""

    def strangers(self) -> list[PendingAgent]:
        """Agents whose nodes are not in the record; others that came since the last welcome get the next one."""
        return [agent for agent in self.pending.values() if self._lifecycle.known(agent.hello) is None]

    def welcome(self, among: Collection[PendingAgent]) -> None:
        """Greet those agents whose nodes are in the record, if they still wait."""
        state = self._state
        for agent in among:
            name = agent.hello.node
            node = self._lifecycle.known(agent.hello)
            if node is None or self.pending.get(name) is not agent:
                continue
            del self.pending[name]
            if node.link is not None and node.link is not agent.link:
                node.link.close("its agent has come anew")
            node.link, node.seen_at = agent.link, state.settings.steady()
            hello = agent.hello.lasting
            rebooted = "" not in {hello.boot, node.hello.boot} and hello.boot != node.hello.boot
            lost = state.placement.welcome(node, agent.hello, rebooted=rebooted)
            if hello != node.hello:
                node.hello = hello
                self._lifecycle.hello_again = True
                self._hellos[node.number] = self._hellos.get(node.number, set()) | lost
            state.placement.sync()
            state.placement.desired.greet(node, state.settings.report_s)
            self._poke()

    def hear_problem(self, node: NodeRecord, problem: str) -> None:
        """A node says whether it can do its work."""
        if problem != node.hello.problem:
            node.hello = node.hello.model_copy(update={"problem": problem})
            self._hellos.setdefault(node.number, set())
            self._poke()

    def record(self, plan: ControllerPlan) -> None:
        """What nodes now are: no sooner than the loss of tasks, which shows only by what they were before."""
        recorded = [
            number for number, lost in self._hellos.items() if not any(self._unsettled(plan, name) for name in lost)
        ]
        for number in recorded:
            hello = self._state.nodes[number].hello
            plan.rows.append((tables.SET_HELLO, {"b_number": number, "b_hello": hello.model_dump_json()}))

        def after() -> None:
            for number in recorded:
                del self._hellos[number]

        plan.after.append(after)

    def _unsettled(self, plan: ControllerPlan, name: TaskId) -> bool:
        """Whether neither this plan nor another node says what became of the task."""
        task = self._state.placement.find(name)
        if task is None or name.job in plan.fates:
            return False
        # What was handed over may have been taken by the node that is lost, and the word of that be late.
        unsure = {None, TaskState.HANDED}
        return all(observation.state in unsure for observation in task.at.values())
