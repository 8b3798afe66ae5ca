"""Agents that say hello: kept until their node is in the record, and welcomed then."""

from collections.abc import Collection

from dfrs.live.backends.agents.records import AgentRecords, PendingAgent
from dfrs.live.backends.agents.steering import Steering
from dfrs.live.controller.control import Control


class Arrivals:
    """From an agent's hello to the welcome that it gets."""

    def __init__(self, control: Control, agents: AgentRecords, steering: Steering) -> None:
        self.pending: dict[str, PendingAgent] = {}
        """Agents that are not welcomed yet, by the name of their node."""
        self._control = control
        self._agents = agents
        self._steering = steering

    def add(self, agent: PendingAgent) -> None:
        """It has said hello, and takes the place of one of the same name that still waits."""
        name = agent.hello.node
        before = self.pending.get(name)
        if before is not None:
            before.link.close("its agent has come anew")
        self.pending[name] = agent
        self._control.poke()

    def welcome(self, among: Collection[PendingAgent]) -> None:
        """Greet those agents whose nodes are in the record, if they still wait."""
        control = self._control
        for agent in among:
            node = control.known(agent.hello)
            if node is None or self.pending.get(agent.hello.node) is not agent:
                continue
            del self.pending[agent.hello.node]
            record = self._agents[node.number]
            if record.link is not None and record.link is not agent.link:
                record.link.close("its agent has come anew")
            record.link = agent.link
            facts = agent.facts
            rebooted = "" not in {facts.boot, node.facts.boot} and facts.boot != node.facts.boot
            lost = self._steering.welcome(node, agent.hello, rebooted=rebooted)
            control.came(node, facts, lost)
            self._steering.sync()
            self._steering.desired.greet(node, control.settings.report_s)
            control.poke()
