"""Hard rules while tasks move one after another: what was kept stays kept, what was broken gets no worse."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from dfrs.runs.validator.rules import Document, RuleCheck, Task, Wrong

OF_NODES = {"only", "never", "maintenance", "features"}
"""Rules on where single tasks may be; a task never goes where it may not."""

Key = tuple[int, str]
"""A rule, and the service where it counts each service's tasks by themselves."""


class _Named(RuleCheck):
    """Finds the tasks of patterns once, among all tasks; then those of them that are placed."""

    def __init__(self, instance: Document, placement: dict[str, list[str]]) -> None:
        super().__init__(instance, placement)
        self._all = dict(self.where)
        self._found: dict[tuple[str, ...], list[Task]] = {}

    def named_tasks(self, patterns: list[str]) -> list[Task]:
        """Tasks of patterns, placed or not."""
        key = tuple(patterns)
        if key not in self._found:
            now, self.where = self.where, self._all
            self._found[key] = super()._tasks(patterns)
            self.where = now
        return self._found[key]

    def _tasks(self, patterns: Iterable[str]) -> list[Task]:
        return [t for t in self.named_tasks(list(patterns)) if t in self.where]


class PlanRules:
    """The hard rules of an instance document, and where tasks are now."""

    def __init__(self, instance: Document, target: dict[Task, Any], present: dict[Task, str | None]) -> None:
        placement: dict[str, list[str]] = defaultdict(list)
        for (service, _), node in target.items():
            placement[service].append(node)
        self._check = _Named(instance, placement)
        self._where = {t: node for t, node in present.items() if node is not None}
        self._rules = {r: e for r, e in enumerate(instance.get("rules") or []) if e.get("price") is None}
        self._tasks: dict[Key, list[Task]] = defaultdict(list)
        self._keys: dict[Task, list[Key]] = defaultdict(list)
        self._amount: dict[Key, float] = {}
        for r, rule in self._rules.items():
            if rule["kind"] == "sticky":
                continue
            if rule["kind"] == "maintenance":
                every = list(target)
            else:
                every = [*self._check.named_tasks(rule["services"]), *self._check.named_tasks(rule.get("needs", []))]
            for t in dict.fromkeys(every):
                key = r, t[0] if rule.get("each") else ""
                self._tasks[key].append(t)
                self._keys[t].append(key)

    def move(self, changes: dict[Task, str]) -> list[str]:
        """Tasks are on other nodes now: one line for each rule that this breaks, or breaks more than before."""
        lines: list[str] = []
        keys = sorted({key for t in changes for key in self._keys[t]})
        groups = [key for key in keys if self._rules[key[0]]["kind"] not in OF_NODES]
        before = {key: self._broken(key) for key in groups}
        self._where |= changes
        for key in keys:
            rule = self._rules[key[0]]
            title = f"rules[{key[0]}] ({rule.get('name') or rule['kind']})"
            if rule["kind"] in OF_NODES:
                lines += [
                    f"{title}: {text}" for _, text in self._wrong(rule, [t for t in self._tasks[key] if t in changes])
                ]
                continue
            self._amount[key] = -1.0
            after = self._broken(key)
            if after > before[key]:
                lines.append(f"{title}: broken by {after:g}, was broken by {before[key]:g}")
        return lines

    def _broken(self, key: Key) -> float:
        """By how much, kept until a task of the rule moves; infinite while none of its tasks is placed."""
        if self._amount.get(key, -1.0) < 0:
            tasks = self._tasks[key]
            placed = any(t in self._where for t in tasks)
            rule = self._rules[key[0]]
            if rule.get("each"):
                # Of one service here. It counts as large as it is, though some of its tasks may not be placed yet.
                rule = rule | {"each": False}
                if rule.get("at_least") is not None:
                    rule["at_least"] = min(rule["at_least"], len(tasks))
            self._amount[key] = sum(a for a, _ in self._wrong(rule, tasks)) if placed else float("inf")
        return self._amount[key]

    def _wrong(self, rule: Document, tasks: list[Task]) -> list[Wrong]:
        self._check.where = {t: self._where[t] for t in tasks if t in self._where}
        return self._check.broken(rule) if self._check.where else []
