"""What the names in placement rules mean on one instance, and the arrays that come of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.rule_arrays import Bools, Ints, RuleArrays, frozen

NODE = "node"
"""The level of failure domains that every instance has."""

_LISTED = 8
_WILD = frozenset("*?[")


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskPart:
    """Tasks (M,) that may only be on the nodes of `allowed` (N,)."""

    tasks: Ints
    allowed: Bools


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupPart:
    """Tasks (M,) and how they spread over the domains of `level`; None and 0 where there is no limit.

    `host` are the tasks of which one must be in every domain where one of these is.
    """

    tasks: Ints
    level: str
    most: int | None = None
    most_domains: int | None = None
    fewest_domains: int = 0
    host: Ints | None = None


Part = MaskPart | GroupPart


@dataclass(frozen=True, eq=False)
class Scope:
    """The names of an instance: N nodes with labels, S services, T tasks."""

    nodes: tuple[str, ...]
    services: tuple[str, ...]
    service_of: Ints
    labels: tuple[Mapping[str, str], ...] = ()
    before: tuple[tuple[str, Mapping[str, str]], ...] = ()
    """Nodes that are no longer there, with their labels: a rule that names one is not an error."""

    @property
    def known(self) -> tuple[tuple[str, Mapping[str, str]], ...]:
        """All nodes that rules may name, with their labels."""
        here = set(self.nodes)
        labels = self.labels or ({},) * len(self.nodes)
        return (*zip(self.nodes, labels, strict=True), *(entry for entry in self.before if entry[0] not in here))

    @cached_property
    def _first(self) -> Ints:
        return np.searchsorted(self.service_of, np.arange(len(self.services) + 1))

    @cached_property
    def _service(self) -> dict[str, int]:
        return {name: j for j, name in enumerate(self.services)}

    @cached_property
    def _node(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.nodes)}

    @cached_property
    def _domains(self) -> dict[str, tuple[tuple[str, ...], Ints]]:
        return {}

    def task_name(self, i: int) -> str:
        """`service/rank`, or the service where it has one task."""
        j = int(self.service_of[i])
        alone = self._first[j + 1] - self._first[j] == 1
        return self.services[j] if alone else f"{self.services[j]}/{i - int(self._first[j])}"

    def list_tasks(self, tasks: Iterable[int]) -> str:
        """Names of tasks, shortened."""
        names = [self.task_name(int(i)) for i in tasks]
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return ", ".join(names[:_LISTED]) + more

    def members(self, patterns: Sequence[str], where: str) -> Ints:
        """Tasks that the patterns name: `service`, `service/rank`, `data*`. Raises InputError for one without any."""
        if not patterns:
            raise InputError(f"{where} = []: must name a service")
        return np.unique(np.concatenate([self._matching(pattern, where) for pattern in patterns]))

    def groups(self, patterns: Sequence[str], each: bool, where: str) -> list[Ints]:
        """The members as one group, or as one for each service."""
        members = self.members(patterns, where)
        if not each:
            return [members]
        of = self.service_of[members]
        return [members[of == j] for j in np.unique(of)]

    def node_mask(self, patterns: Sequence[str], where: str) -> Bools:
        """(N,) nodes that the patterns name: `n1`, `n*`, `rack=r1`. Raises InputError for one without any."""
        mask = np.zeros(len(self.nodes), dtype=np.bool_)
        for pattern in patterns:
            found = self._matching_nodes(pattern)
            if not found.any() and not any(_matches(pattern, *entry) for entry in self.before):
                raise InputError(f'{where}: "{pattern}" matches no node')
            mask |= found
        return mask

    def with_features(self, features: Sequence[str]) -> Bools:
        """(N,) nodes with every feature: `ssd`, a label that is not empty, or `gpu=a100`, a label's value."""
        mask = np.ones(len(self.nodes), dtype=np.bool_)
        for feature in features:
            label, equal, value = feature.partition("=")
            given = [self._label(n, label) for n in range(len(self.nodes))]
            mask &= np.array([g != "" and (not equal or fnmatchcase(g, value)) for g in given])
        return mask

    def domains(self, level: str, where: str = "level") -> tuple[tuple[str, ...], Ints]:
        """Names of the domains of a level, and (N,) the number of each node's. Raises InputError without labels."""
        if level == NODE:
            return self.nodes, np.arange(len(self.nodes), dtype=np.int64)
        if level not in self._domains:
            values = [self._label(n, level) for n in range(len(self.nodes))]
            if "" in values:
                raise InputError(
                    f'{where} = "{level}": node "{self.nodes[values.index("")]}" has no label of that name; '
                    f'must be "{NODE}" or a label of every node'
                )
            names = tuple(dict.fromkeys(values))
            number = {name: k for k, name in enumerate(names)}
            self._domains[level] = names, np.array([number[v] for v in values], dtype=np.int64)
        return self._domains[level]

    def _label(self, n: int, label: str) -> str:
        return str(self.labels[n].get(label, "")) if self.labels else ""

    def _matching(self, pattern: str, where: str) -> Ints:
        services = self._matching_services(pattern)
        if services:
            return np.concatenate([np.arange(self._first[j], self._first[j + 1]) for j in services])
        head, slash, rank = pattern.rpartition("/")
        services = self._matching_services(head) if slash and rank.isdecimal() else []
        if not services:
            raise InputError(f'{where}: "{pattern}" matches no service')
        tasks = [self._first[j] + int(rank) for j in services if self._first[j] + int(rank) < self._first[j + 1]]
        if not tasks:
            raise InputError(f'{where}: "{pattern}": no such service has a task of rank {rank}; ranks begin at 0')
        return np.array(tasks, dtype=np.int64)

    def _matching_services(self, pattern: str) -> list[int]:
        if pattern in self._service:
            return [self._service[pattern]]
        if not set(pattern) & _WILD:
            return []
        return [j for j, name in enumerate(self.services) if fnmatchcase(name, pattern)]

    def _matching_nodes(self, pattern: str) -> Bools:
        mask = np.zeros(len(self.nodes), dtype=np.bool_)
        if pattern in self._node:
            mask[self._node[pattern]] = True
        else:
            labels = self.labels or ({},) * len(self.nodes)
            mask[:] = [_matches(pattern, *entry) for entry in zip(self.nodes, labels, strict=True)]
        return mask


def _matches(pattern: str, node: str, labels: Mapping[str, str]) -> bool:
    label, equal, value = pattern.partition("=")
    if equal and label in labels:
        return fnmatchcase(str(labels[label]), value)
    return fnmatchcase(node, pattern) if set(pattern) & _WILD else pattern == node


def compile_parts(parts: Sequence[Part], scope: Scope) -> RuleArrays:
    """The arrays of rules on N nodes and T tasks; levels are numbered in the order in which parts use them."""
    tasks, nodes = len(scope.service_of), len(scope.nodes)
    kind_of, allowed = _kinds([p for p in parts if isinstance(p, MaskPart)], tasks, nodes)
    groups: list[tuple[GroupPart, int, int]] = []
    for part in parts:
        if isinstance(part, GroupPart):
            number = len(groups)
            groups.append((part, number + 1 if part.host is not None else -1, -1))
            if part.host is not None:
                groups.append((GroupPart(tasks=part.host, level=part.level), -1, number))
    levels = list(dict.fromkeys([NODE, *(part.level for part, _, _ in groups)]))
    numbers = [scope.domains(level) for level in levels]
    sizes = np.array([len(numbers[levels.index(part.level)][0]) for part, _, _ in groups], dtype=np.int64)
    owner = np.concatenate([part.tasks for part, _, _ in groups]) if groups else np.zeros(0, dtype=np.int64)
    group = np.repeat(np.arange(len(groups)), [part.tasks.size for part, _, _ in groups])
    order = np.argsort(owner, kind="stable")

    def column(values: Iterable[int]) -> Ints:
        return np.array(list(values), dtype=np.int64)

    return frozen(
        RuleArrays(
            kind_of=kind_of,
            allowed=allowed,
            domain=np.array([number for _, number in numbers], dtype=np.int64),
            level=column(levels.index(part.level) for part, _, _ in groups),
            most=column(tasks if part.most is None else part.most for part, _, _ in groups),
            most_domains=column(
                size if part.most_domains is None else part.most_domains
                for (part, _, _), size in zip(groups, sizes, strict=True)
            ),
            fewest_domains=column(part.fewest_domains for part, _, _ in groups),
            host=column(host for _, host, _ in groups),
            guest=column(guest for _, _, guest in groups),
            first=np.searchsorted(owner[order], np.arange(tasks + 1)).astype(np.int64),
            group=group[order].astype(np.int64),
            offset=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes))),
        )
    )


def _kinds(masks: Sequence[MaskPart], tasks: int, nodes: int) -> tuple[Ints, Bools]:
    if not masks:
        return np.zeros(tasks, dtype=np.int64), np.ones((1, nodes), dtype=np.bool_)
    concerned = np.zeros((tasks, len(masks)), dtype=np.bool_)
    for k, part in enumerate(masks):
        concerned[part.tasks, k] = True
    kinds, kind_of = np.unique(concerned, axis=0, return_inverse=True)
    allowed = np.ones((len(kinds), nodes), dtype=np.bool_)
    for k, part in enumerate(masks):
        allowed[kinds[:, k]] &= part.allowed
    return kind_of.reshape(-1).astype(np.int64), allowed


@dataclass(frozen=True, slots=True)
class Breach:
    """How one part is broken: by how much, in tasks or domains, and in words that name the tasks."""

    amount: int
    text: str


def breaches(part: Part, place: Ints, scope: Scope) -> list[Breach]:
    """What `place` (T,), -1 for tasks that are nowhere, breaks of a part."""
    tasks = part.tasks[place[part.tasks] >= 0]
    if isinstance(part, MaskPart):
        wrong = tasks[~part.allowed[place[tasks]]]
        where = [f"{scope.task_name(int(i))} on {scope.nodes[place[i]]}" for i in wrong[:_LISTED]]
        more = f" and {wrong.size - _LISTED} more" if wrong.size > _LISTED else ""
        return [Breach(int(wrong.size), ", ".join(where) + more)] if wrong.size else []
    names, domain = scope.domains(part.level)
    at = domain[place[tasks]]
    count = np.bincount(at, minlength=len(names))
    used = np.flatnonzero(count)
    found: list[Breach] = []
    for k in used if part.most is not None else ():
        if count[k] > part.most:
            listed = scope.list_tasks(tasks[at == k])
            text = f"{part.level} {names[k]} has {count[k]} of at most {part.most}: {listed}"
            found.append(Breach(int(count[k] - part.most), text))
    limits = f"on {used.size} domains of level {part.level}, must be at"
    if part.most_domains is not None and used.size > part.most_domains:
        text = f"{limits} most {part.most_domains}: {scope.list_tasks(tasks)}"
        found.append(Breach(int(used.size - part.most_domains), text))
    if used.size < part.fewest_domains:
        text = f"{limits} least {part.fewest_domains}: {scope.list_tasks(part.tasks)}"
        found.append(Breach(int(part.fewest_domains - used.size), text))
    if part.host is not None:
        hosts = place[part.host]
        lonely = ~np.isin(at, domain[hosts[hosts >= 0]])
        if lonely.any():
            text = f"no host in the {part.level} of {scope.list_tasks(tasks[lonely])}"
            found.append(Breach(int(lonely.sum()), text))
    return found
