"""Rules on where services may run, as operators of virtual machines have them.

A rule is hard, or has a price: how much minimum yield keeping it may cost. By how much a rule is broken is counted in
tasks (on a wrong node, beyond the most of a domain, away from the group they require) or in domains (too many, too
few); a broken soft rule costs its price times that. Services are named by name, by pattern (`db*`), or task by task
(`db/0`); nodes by name, by pattern, or by a label (`rack=r1`). A failure domain is a set of nodes with the same value
of a label; the level `node` is there without labels.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.rule_arrays import Ints, RuleArrays
from dfrs.model.rule_scope import NODE, GroupPart, MaskPart, Part, Scope, breaches, compile_parts

Names = Sequence[str]
_NAMES = ("services", "nodes", "needs", "features")
"""Fields that are lists of names."""


@dataclass(frozen=True)
class Rule(ABC):
    """What all rules have. Raises InputError for a price that is not positive, or a limit below its least value."""

    kind: ClassVar[str] = ""
    least: ClassVar[Mapping[str, int]] = {}
    """Limits of the rule and the least value of each."""

    price: float | None = field(default=None, kw_only=True)
    """Minimum yield that a unit of breaking it costs; None: hard."""
    name: str = field(default="", kw_only=True)
    """Shown in messages instead of the rule's own words."""

    def __post_init__(self) -> None:
        if self.price is not None and not 0 < self.price < math.inf:
            raise InputError(f"{self.kind}: price = {self.price}: must be a positive number; leave it out: hard")
        for label, least in self.least.items():
            value = getattr(self, label)
            if value is not None and (type(value) is not int or value < least):
                raise InputError(f"{self.kind}: {label} = {value}: must be a whole number of at least {least}")
        for label in _NAMES:
            given = getattr(self, label, None)
            if given is not None:
                # One name instead of a list would be read letter by letter.
                object.__setattr__(self, label, (given,) if isinstance(given, str) else tuple(given))

    @abstractmethod
    def parts(self, scope: Scope, where: str) -> list[Part]:
        """What it demands on one instance. Raises InputError, beginning with `where`, for names that do not exist."""

    def __str__(self) -> str:
        if self.name:
            return self.name
        words = [self.kind]
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name in {"price", "name"} or value == entry.default:
                continue
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            words.append(text if entry.name == "services" else f"{entry.name}={text}")
        return " ".join(words)


def _where(where: str, label: str) -> str:
    return f"{where}.{label}"


@dataclass(frozen=True)
class Together(Rule):
    """Affinity: all tasks on one node, or in one domain of a level; with `each`, those of each service."""

    kind = "together"
    services: Names
    level: str = NODE
    each: bool = False

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """One group, or one for each service, in one domain."""
        groups = scope.groups(self.services, self.each, _where(where, "services"))
        return [GroupPart(tasks=tasks, level=self.level, most_domains=1) for tasks in groups]


@dataclass(frozen=True)
class Apart(Rule):
    """Anti-affinity: at most `at_most` of the tasks on one node or domain; with `each`, of each service."""

    kind = "apart"
    least: ClassVar[Mapping[str, int]] = {"at_most": 1}
    services: Names
    at_most: int = 1
    level: str = NODE
    each: bool = False

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """One group, or one for each service, with most members in a domain."""
        groups = scope.groups(self.services, self.each, _where(where, "services"))
        return [GroupPart(tasks=tasks, level=self.level, most=self.at_most) for tasks in groups]


@dataclass(frozen=True)
class Spread(Rule):
    """Over at least `at_least` domains of a level, or at most `at_most` tasks in one, or both.

    With `each` it is asked of each service; one with fewer tasks than `at_least` needs a domain for each task.
    """

    kind = "spread"
    least: ClassVar[Mapping[str, int]] = {"at_least": 1, "at_most": 1}
    services: Names
    at_least: int | None = None
    at_most: int | None = None
    level: str = NODE
    each: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at_least is None and self.at_most is None:
            raise InputError("spread: must have at_least, at_most or both")

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """One group, or one for each service."""
        groups = scope.groups(self.services, self.each, _where(where, "services"))
        least = [min(self.at_least or 0, tasks.size) if self.each else self.at_least or 0 for tasks in groups]
        return [
            GroupPart(tasks=tasks, level=self.level, most=self.at_most, fewest_domains=fewest)
            for tasks, fewest in zip(groups, least, strict=True)
        ]


@dataclass(frozen=True)
class Only(Rule):
    """Tasks that run on these nodes only."""

    kind = "only"
    services: Names
    nodes: Names

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """The nodes named."""
        allowed = scope.node_mask(self.nodes, _where(where, "nodes"))
        return [MaskPart(tasks=scope.members(self.services, _where(where, "services")), allowed=allowed)]


@dataclass(frozen=True)
class Never(Rule):
    """Tasks that run on any nodes but these."""

    kind = "never"
    services: Names
    nodes: Names

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """All other nodes."""
        allowed = ~scope.node_mask(self.nodes, _where(where, "nodes"))
        return [MaskPart(tasks=scope.members(self.services, _where(where, "services")), allowed=allowed)]


@dataclass(frozen=True)
class Features(Rule):
    """Tasks that need nodes with all these labels: `ssd`, any value, or `gpu=a100`."""

    kind = "features"
    services: Names
    features: Names

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """The nodes with all of them, which may be none."""
        allowed = scope.with_features(self.features)
        return [MaskPart(tasks=scope.members(self.services, _where(where, "services")), allowed=allowed)]


@dataclass(frozen=True)
class Maintenance(Rule):
    """Nodes on which nothing runs."""

    kind = "maintenance"
    nodes: Names

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """All tasks, on all other nodes."""
        allowed = ~scope.node_mask(self.nodes, _where(where, "nodes"))
        return [MaskPart(tasks=np.arange(len(scope.service_of)), allowed=allowed)]


@dataclass(frozen=True)
class Requires(Rule):
    """Tasks that run only in domains where a task of `needs` runs."""

    kind = "requires"
    services: Names
    needs: Names
    level: str = NODE

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """A group with its host group."""
        host = scope.members(self.needs, _where(where, "needs"))
        return [GroupPart(tasks=scope.members(self.services, _where(where, "services")), level=self.level, host=host)]


@dataclass(frozen=True)
class Licensed(Rule):
    """All tasks together on at most `at_most` nodes, or domains of a level."""

    kind = "licensed"
    least: ClassVar[Mapping[str, int]] = {"at_most": 1}
    services: Names
    at_most: int
    level: str = NODE

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """One group on few domains."""
        tasks = scope.members(self.services, _where(where, "services"))
        return [GroupPart(tasks=tasks, level=self.level, most_domains=self.at_most)]


@dataclass(frozen=True)
class Sticky(Rule):
    """What moving each of the tasks costs: the instance's `move_cost` of them becomes `cost`. It forbids nothing."""

    kind = "sticky"
    services: Names
    cost: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.cost < math.inf or self.price is not None:
            raise InputError(f"sticky: cost = {self.cost}: must be a finite number of at least 0, and no price")

    def parts(self, scope: Scope, where: str) -> list[Part]:
        """Nothing to forbid; the services must exist."""
        scope.members(self.services, _where(where, "services"))
        return []


RULES: dict[str, type[Rule]] = {
    rule.kind: rule
    for rule in (Together, Apart, Spread, Only, Never, Features, Maintenance, Requires, Licensed, Sticky)
}
"""Each rule under its name in files."""


@dataclass(frozen=True)
class Headroom:
    """Whatever `failures` nodes, or domains of a level, fail: the requirements of their tasks fit on the others.

    Where there are no more than that, all fail, which no placement survives.
    """

    failures: int = 1
    level: str = NODE

    def __post_init__(self) -> None:
        if type(self.failures) is not int or self.failures < 1:
            raise InputError(f"headroom.failures = {self.failures}: must be a whole number of at least 1")


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules of an instance, which binds them to its names. `soft` ones can be dropped, and then cost their price.

    `arrays` has all hard rules, and the soft ones that are not dropped: solve with all of them, then try without some.
    """

    rules: Sequence[Rule] = ()
    headroom: Headroom | None = None
    dropped: frozenset[int] = frozenset()
    """Positions in `soft`."""
    scope: Scope | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))

    def bind(
        self,
        nodes: Sequence[str],
        services: Sequence[str],
        service_of: Ints,
        labels: Sequence[Mapping[str, str]] = (),
    ) -> "Rules":
        """The same rules on these names; labels are one mapping for each node, or none.

        Nodes that they were bound to before may be named still, as where an instance loses nodes.
        """
        known = () if self.scope is None else self.scope.known
        return replace(self, scope=Scope(tuple(nodes), tuple(services), np.asarray(service_of), tuple(labels), known))

    def compile(
        self,
        nodes: Sequence[str],
        services: Sequence[str],
        service_of: Ints,
        labels: Sequence[Mapping[str, str]] = (),
    ) -> RuleArrays:
        """The arrays of the rules in force on these names. Raises InputError for a name that does not exist."""
        return self.bind(nodes, services, service_of, labels).arrays

    @cached_property
    def soft(self) -> tuple[Rule, ...]:
        """Rules with a price."""
        return tuple(self.rules[r] for r in self._soft)

    @cached_property
    def arrays(self) -> RuleArrays:
        """The rules in force: hard ones, and soft ones that are not dropped."""
        return compile_parts([part for r in self.in_force for part in self.parts[r]], self._bound)

    @cached_property
    def parts(self) -> tuple[list[Part], ...]:
        """What each rule demands. Raises InputError for a name or level that does not exist."""
        scope = self._bound
        parts: list[list[Part]] = []
        for r, rule in enumerate(self.rules):
            where = f"rules[{r}]"
            parts.append(rule.parts(scope, where))
            for part in parts[-1]:
                if isinstance(part, GroupPart):
                    scope.domains(part.level, f"{where}.level")
        if self.headroom is not None:
            scope.domains(self.headroom.level, "headroom.level")
        return tuple(parts)

    @property
    def in_force(self) -> list[int]:
        """Positions in `rules` of those that `arrays` has."""
        return [r for r, rule in enumerate(self.rules) if rule.price is None or self._soft.index(r) not in self.dropped]

    @property
    def binding(self) -> bool:
        """Whether any rule in force forbids anything."""
        return any(self.parts[r] for r in self.in_force)

    def without(self, k: int) -> "Rules":
        """The rules with soft rule `k` dropped: it may be broken at its price."""
        return replace(self, dropped=self.dropped | {range(len(self.soft))[k]})

    @property
    def hard_only(self) -> "Rules":
        """The rules with all soft ones dropped."""
        return replace(self, dropped=frozenset(range(len(self.soft))))

    def only(self, keep: Iterable[int]) -> "Rules":
        """Those at these positions of `rules` alone."""
        return replace(self, rules=tuple(self.rules[r] for r in keep), dropped=frozenset(), headroom=None)

    def broken(self, place: Ints) -> Ints:
        """(R,) by how much each rule is broken where tasks are at `place` (T,), -1 for nowhere."""
        amounts = [sum(b.amount for p in parts for b in breaches(p, place, self._bound)) for parts in self.parts]
        return np.array(amounts, dtype=np.int64)

    def cost(self, place: Ints) -> float:
        """Minimum yield that the broken soft rules are worth: the sum of price x by how much each is broken."""
        if not self._soft:
            return 0.0
        broken = self.broken(place)
        return math.fsum(float(self.rules[r].price or 0.0) * int(broken[r]) for r in self._soft)

    def problems(self, place: Ints) -> list[str]:
        """One line for each hard rule that `place` (T,) breaks, with the tasks; none if all are kept."""
        return self._lines(place, [r for r, rule in enumerate(self.rules) if rule.price is None])

    def concessions(self, place: Ints) -> list[str]:
        """One line for each soft rule that `place` (T,) breaks, with the tasks."""
        return self._lines(place, self._soft)

    def _lines(self, place: Ints, which: Sequence[int]) -> list[str]:
        lines: list[str] = []
        for r in which:
            found = [b.text for part in self.parts[r] for b in breaches(part, place, self._bound)]
            if found:
                lines.append(f"rules[{r}] {self.rules[r]}: {'; '.join(found)}")
        return lines

    def move_cost(self, given: np.ndarray) -> np.ndarray:
        """(T,) `given` costs of moving, and for tasks of a sticky rule what it says."""
        cost = np.array(given, dtype=np.float64)
        for r, rule in enumerate(self.rules):
            if isinstance(rule, Sticky):
                cost[self._bound.members(rule.services, f"rules[{r}].services")] = rule.cost
        return cost

    @cached_property
    def _soft(self) -> list[int]:
        return [r for r, rule in enumerate(self.rules) if rule.price is not None]

    @property
    def _bound(self) -> Scope:
        if self.scope is None:
            raise InputError("rules belong to an instance: give them to Instance, or bind them to its names")
        return self.scope
