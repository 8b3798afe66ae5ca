"""An independent check of placement rules, from the two documents alone."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

Document = dict[str, Any]
Task = tuple[str, int]
Wrong = tuple[int, str]
"""By how much a rule is broken, and how."""


class RuleCheck:
    """Rules of an instance document on one placement: service → nodes of its tasks, which all exist."""

    def __init__(self, instance: Document, placement: dict[str, list[str]]) -> None:
        nodes: Any = instance["nodes"]
        entries: list[Document] = [{"name": f"n{k}"} for k in range(nodes)] if isinstance(nodes, int) else nodes
        self.labels: dict[str, dict[str, str]] = {n["name"]: n.get("labels", {}) for n in entries}
        self.where: dict[Task, str] = {
            (service, rank): node for service, places in placement.items() for rank, node in enumerate(places)
        }
        self.rules: list[Document] = instance.get("rules") or []

    def problems(self) -> list[str]:
        """One line for each hard rule that is broken. Raises KeyError or ValueError for a rule that is not one."""
        lines: list[str] = []
        for r, rule in enumerate(self.rules):
            wrong = self.broken(rule)
            if rule.get("price") is None and wrong:
                title = rule.get("name") or rule["kind"]
                lines.append(f"rules[{r}] ({title}): {'; '.join(text for _, text in wrong)}")
        return lines

    def cost(self) -> float:
        """Price times by how much it is broken, of all soft rules."""
        return math.fsum(
            rule["price"] * amount
            for rule in self.rules
            if rule.get("price") is not None
            for amount, _ in self.broken(rule)
        )

    def broken(self, rule: Document) -> list[Wrong]:
        """What the placement breaks of one rule."""
        check: dict[str, Callable[[Document], list[Wrong]]] = {
            "together": lambda e: self._groups(e, most_domains=1),
            "apart": lambda e: self._groups(e, most=e.get("at_most", 1)),
            "spread": lambda e: self._groups(e, most=e.get("at_most"), fewest=e.get("at_least") or 0),
            "licensed": lambda e: self._groups(e, most_domains=e["at_most"]),
            "only": lambda e: self._nodes(self._tasks(e["services"]), lambda n: self._named(n, e["nodes"])),
            "never": lambda e: self._nodes(self._tasks(e["services"]), lambda n: not self._named(n, e["nodes"])),
            "maintenance": lambda e: self._nodes(list(self.where), lambda n: not self._named(n, e["nodes"])),
            "features": lambda e: self._nodes(self._tasks(e["services"]), lambda n: self._has(n, e["features"])),
            "requires": self._requires,
            "sticky": lambda _: [],
        }
        if rule["kind"] not in check:
            raise ValueError(f"there is no rule of kind {rule['kind']!r}")
        return check[rule["kind"]](rule)

    def _groups(
        self, rule: Document, most: int | None = None, most_domains: int | None = None, fewest: int = 0
    ) -> list[Wrong]:
        tasks = self._tasks(rule["services"])
        parts = [tasks]
        if rule.get("each"):
            parts = [[t for t in tasks if t[0] == service] for service in dict.fromkeys(t[0] for t in tasks)]
        level = rule.get("level", "node")
        wrong: list[Wrong] = []
        for part in parts:
            members = Counter(self._domain(self.where[t], level) for t in part)
            for domain, count in members.items():
                if most is not None and count > most:
                    wrong.append((count - most, f"{count} tasks of {part[0][0]} in {level} {domain}, at most {most}"))
            if most_domains is not None and len(members) > most_domains:
                text = f"tasks of {part[0][0]} in {len(members)} of level {level}, at most {most_domains}"
                wrong.append((len(members) - most_domains, text))
            # A service with few tasks needs as many domains as it has tasks.
            least = min(fewest, len(part)) if rule.get("each") else fewest
            if len(members) < least:
                text = f"tasks of {part[0][0]} in {len(members)} of level {level}, at least {least}"
                wrong.append((least - len(members), text))
        return wrong

    def _nodes(self, tasks: Iterable[Task], good: Callable[[str], bool]) -> list[Wrong]:
        return [(1, f"{s}/{k} is on {self.where[s, k]}") for s, k in tasks if not good(self.where[s, k])]

    def _requires(self, rule: Document) -> list[Wrong]:
        level = rule.get("level", "node")
        homes = {self._domain(self.where[t], level) for t in self._tasks(rule["needs"])}
        return [
            (1, f"{s}/{k} is in {level} {self._domain(self.where[s, k], level)} without a task that it requires")
            for s, k in self._tasks(rule["services"])
            if self._domain(self.where[s, k], level) not in homes
        ]

    def _domain(self, node: str, level: str) -> str:
        if level == "node":
            return node
        if level not in self.labels[node]:
            raise ValueError(f"node {node} has no label {level}")
        return self.labels[node][level]

    def _tasks(self, patterns: Iterable[str]) -> list[Task]:
        """Tasks of services that match a pattern; where none does, of service/rank."""
        services = list(dict.fromkeys(service for service, _ in self.where))
        found: set[Task] = set()
        for pattern in patterns:
            named = _matching(services, pattern)
            tasks = {t for t in self.where if t[0] in named}
            head, _, rank = pattern.rpartition("/")
            if not tasks and rank.isdecimal():
                named = _matching(services, head)
                tasks = {t for t in self.where if t[0] in named and t[1] == int(rank)}
            if not tasks:
                raise ValueError(f"{pattern} matches no service")
            found |= tasks
        return [t for t in self.where if t in found]

    def _named(self, node: str, patterns: Iterable[str]) -> bool:
        return any(named(node, self.labels[node], pattern) for pattern in patterns)

    def _has(self, node: str, features: Iterable[str]) -> bool:
        own = self.labels[node]
        for feature in features:
            label, equal, value = feature.partition("=")
            if not own.get(label) or (equal and not fnmatchcase(own[label], value)):
                return False
        return True


def _matching(names: list[str], pattern: str) -> set[str]:
    """The name itself, if there is one; else those that match."""
    return {pattern} if pattern in names else {name for name in names if fnmatchcase(name, pattern)}


def named(node: str, labels: dict[str, str], pattern: str) -> bool:
    """Whether a pattern names a node: by name, or by `label=value`."""
    label, equal, value = pattern.partition("=")
    if pattern == node:
        return True
    if equal and label in labels:
        return fnmatchcase(labels[label], value)
    return fnmatchcase(node, pattern)


def overcommitted(instance: Document, capacity: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Capacities of nodes times the factors of `overcommit`; of two for one node the later counts."""
    nodes: Any = instance["nodes"]
    entries: list[Document] = [] if isinstance(nodes, int) else nodes
    labels = {n["name"]: n.get("labels", {}) for n in entries}
    factor: dict[tuple[str, str], float] = {}
    for entry in instance.get("overcommit") or []:
        for node in capacity:
            if any(named(node, labels.get(node, {}), pattern) for pattern in entry.get("nodes", ["*"])):
                factor[node, entry["resource"]] = float(entry["factor"])
    return {
        node: {resource: value * factor.get((node, resource), 1.0) for resource, value in own.items()}
        for node, own in capacity.items()
    }
