"""Jobs that may not run on every node: the core is told on which ones they may, whenever these are others."""

import numpy as np

from dfrs.engine.events import Permitted
from dfrs.live.controller.controller_plan import ControllerPlan
from dfrs.live.controller.state import State
from dfrs.live.protocol.node_choice import permits
from dfrs.live.protocol.observed import NodeFacts
from dfrs.model.instance import Ints

_NONE = np.zeros(0, np.int64)


class NodeChoices:
    """Plans events for a state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._facts: list[NodeFacts] = []
        self._found: dict[int, Ints] = {}
        """By constraint, of nodes of these `facts`."""

    def plan(self, plan: ControllerPlan) -> None:
        """Tell the core what open jobs permit, before it is told of the jobs, and what nobody asks for any more."""
        state = self._state
        told, asked = state.core.permitted, state.choices
        if not told and not asked:
            return
        facts = [node.facts for node in state.nodes]
        if facts != self._facts:
            self._facts, self._found = facts, {}
        for constraint in told.keys() | asked.keys():
            nodes = self._permitted(constraint) if constraint in asked else _NONE
            if not np.array_equal(told.get(constraint, _NONE), nodes):
                plan.events.append(Permitted(constraint, nodes))

    def _permitted(self, constraint: int) -> Ints:
        """Numbers of the nodes on which jobs of an open constraint may run."""
        if constraint not in self._found:
            state = self._state
            request = state.choices.request(constraint)
            names = [
                node.number
                for node in state.nodes
                if state.numbers[node.name] == node.number and permits(request, node.facts)
            ]
            self._found[constraint] = np.array(names, np.int64)
        return self._found[constraint]
