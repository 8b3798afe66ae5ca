"""What nodes now are: in force at once, and in the record as soon as that says what was lost by the change."""

from collections.abc import Set as AbstractSet

from dfrs.live.controller import tables
from dfrs.live.controller.controller_plan import ControllerPlan
from dfrs.live.controller.node_lifecycle import NodeLifecycle
from dfrs.live.controller.records import NodeRecord
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import TaskId, TaskState
from dfrs.live.protocol.observed import NodeFacts


class NodeDescriptions:
    """Of nodes in the record. What a new node is to the core, `lifecycle` plans."""

    def __init__(self, state: State, lifecycle: NodeLifecycle) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._unrecorded: dict[int, set[TaskId]] = {}
        """Nodes, and tasks that only what the record says of the node shows to be lost."""

    def change(self, node: NodeRecord, facts: NodeFacts, lost: AbstractSet[TaskId]) -> None:
        """The node has come, and is that; `lost`: tasks that it had before, as it has started anew since."""
        if facts != node.facts:
            node.facts = facts
            self._lifecycle.described += 1
            self._unrecorded[node.number] = self._unrecorded.get(node.number, set()) | lost

    def change_problem(self, node: NodeRecord, problem: str) -> bool:
        """It can do its work, or cannot for that reason; whether that is news."""
        if problem == node.facts.problem:
            return False
        node.facts = node.facts.model_copy(update={"problem": problem})
        self._unrecorded.setdefault(node.number, set())
        return True

    def is_recorded(self, number: int) -> bool:
        """Whether the record has what the node is."""
        return number not in self._unrecorded

    def record(self, plan: ControllerPlan) -> None:
        """Record what nodes now are: no sooner than the loss of tasks, which shows only by what they were before."""
        recorded = [
            number for number, lost in self._unrecorded.items() if not any(self._unsettled(plan, name) for name in lost)
        ]
        for number in recorded:
            facts = self._state.nodes[number].facts
            plan.rows.append((tables.SET_HELLO, {"b_number": number, "b_hello": facts.model_dump_json()}))

        def after() -> None:
            for number in recorded:
                del self._unrecorded[number]

        plan.after.append(after)

    def _unsettled(self, plan: ControllerPlan, name: TaskId) -> bool:
        """Whether neither this plan nor another node says what became of the task."""
        task = self._state.placement.find(name)
        if task is None or name.job in plan.fates:
            return False
        # What was handed over may have been taken by the node that is lost, and the word of that be late.
        unsure = {None, TaskState.HANDED}
        return all(observation.state in unsure for observation in task.at.values())
