"""Tasks, nodes, resources and rules in the words of the instance, for reasons and problems."""

from functools import cached_property

from dfrs.model.instance import Instance
from dfrs.model.rule_scope import GroupPart, MaskPart, Part, Scope
from dfrs.model.rules import Apart, Maintenance, Rule
from dfrs.placement.plan_state import BARRED, LIMIT, ROOM, Blocker


class Names:
    """Words for one instance.

    `not_temporary`: why no temporary move helps a task that has no room, or that a rule keeps.
    """

    def __init__(self, instance: Instance, not_temporary: str) -> None:
        self._instance = instance
        self._not_temporary = not_temporary
        self._scope = Scope(instance.nodes, instance.services, instance.service_of)

    def task(self, i: int) -> str:
        """`service/rank`, or the service where it has one task."""
        return self._scope.task_name(i)

    def node(self, n: int) -> str:
        """Name of a node."""
        return self._instance.nodes[n]

    def resource(self, d: int) -> str:
        """Name of a resource."""
        return self._instance.resources[d].name

    @cached_property
    def _parts(self) -> list[tuple[Rule, Part]]:
        """Each hard rule with each part of it, in the order of the rules' arrays."""
        rules = self._instance.rules
        if rules is None:
            return []
        hard = rules.hard_only
        return [(hard.rules[r], part) for r in hard.in_force for part in hard.parts[r]]

    @cached_property
    def _groups(self) -> list[tuple[Rule, GroupPart]]:
        """Rule and part of each group of the rules' arrays; a part with a host has two."""
        groups = [(rule, part) for rule, part in self._parts if isinstance(part, GroupPart)]
        return [pair for pair in groups for _ in range(1 if pair[1].host is None else 2)]

    def rule(self, g: int) -> str:
        """The rule of a group."""
        return str(self._groups[g][0])

    def keeping(self, g: int) -> str:
        """What mending the rule of a group does."""
        rule, part = self._groups[g]
        if isinstance(rule, Apart) and rule.at_most == 1 and not rule.name and part.tasks.size <= 3:
            names = [self.task(int(i)) for i in part.tasks]
            return f"keeps {listed(names)} apart"
        return f"meets {rule}"

    def barring(self, i: int, n: int) -> Rule | None:
        """A rule by which task `i` may not be on node `n`."""
        masks = ((rule, part) for rule, part in self._parts if isinstance(part, MaskPart))
        return next((rule for rule, part in masks if not part.allowed[n] and i in part.tasks), None)

    def leaving(self, i: int, a: int) -> str:
        """Why task `i` leaves node `a`, on which it may not be."""
        rule = self.barring(i, a)
        if isinstance(rule, Maintenance):
            return f"empties {self.node(a)} for maintenance"
        return f"leaves {self.node(a)}, where it may not be: {rule}"

    def blocked(self, i: int, blocker: Blocker) -> str:
        """Why a step with task `i` cannot be made."""
        if blocker.kind == ROOM:
            lacking = f"{blocker.lacking:.6g} of {self.resource(blocker.resource)}"
            return f"{self.node(blocker.key)} lacks {lacking}, and {self._not_temporary}"
        if blocker.kind == BARRED:
            return f"it may not be on {self.node(blocker.key)}: {self.barring(i, blocker.key)}"
        if blocker.kind == LIMIT:
            return blocker.text
        return f"{self.rule(blocker.key)} would be broken, and {self._not_temporary}"


def listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
