"""Which hard rules leave no placement: a least set of them, and one line that says so.

Cheap cases come first: a task that its rules leave no node, groups too large for one domain, more tasks or domains
than there can be. Else a deletion filter (Chinneck and Dravnieks 1991) leaves out rules, many at a time, as long as no
placement exists without them. Whether one exists is known from `construct`, which finds some, or from a
mixed-integer program, which proves that there is none. A set is called minimal only where each rule left out of it
was proven to make a placement possible.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from dfrs.model import tolerances
from dfrs.model.instance import Bools, Instance, Ints
from dfrs.model.rule_scope import GroupPart, MaskPart
from dfrs.model.rules import Rules
from dfrs.placement.constructive import construct
from dfrs.placement.outcome import tightest
from dfrs.placement.rule_rows import add_rules
from dfrs.placement.solver import LinearProgram, SolverStatus

LARGEST = 2_000_000
"""Columns above which no program is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Hard rules, by position in the instance's rules, that no placement keeps together."""

    rules: tuple[int, ...]
    minimal: bool
    """Whether it is proven that leaving out any of them makes a placement possible."""
    text: str
    """One line that names the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`feasible` is None where time was up before either was proven; then there are no conflicts to show."""

    feasible: bool | None
    conflicts: tuple[Conflict, ...] = ()


def diagnose(instance: Instance, time_limit_s: float = 10.0) -> Diagnosis:
    """Whether some placement keeps all hard rules and capacities; if not, which rules conflict.

    `time_limit_s` is for all tests together. Requirements are those at yield 0: rigid needs and minimum yields.
    """
    test = _Test(instance, monotonic() + time_limit_s)
    if test.feasible([]) is False:
        text = f"no placement, even without rules: the requirements do not fit; {tightest(instance)}"
        return Diagnosis(feasible=False, conflicts=(Conflict(rules=(), minimal=True, text=text),))
    found = _cheap(instance, test)
    if found:
        return Diagnosis(feasible=False, conflicts=tuple(found))
    whole = test.feasible(sorted(test.parts))
    if whole is not False:
        return Diagnosis(feasible=whole)
    return Diagnosis(feasible=False, conflicts=(_filter(test, sorted(test.parts)),))


class _Test:
    """Whether a placement exists under some of the rules; answers are kept."""

    def __init__(self, instance: Instance, deadline_s: float) -> None:
        self.instance = instance
        self.rules = instance.rules or Rules()
        self.parts = {
            r: parts
            for r, (rule, parts) in enumerate(
                zip(self.rules.rules, self.rules.parts if instance.rules else (), strict=True)
            )
            if rule.price is None and parts
        }
        self._deadline_s = deadline_s
        self._known: dict[tuple[int, ...], bool | None] = {}

    def feasible(self, which: Sequence[int], capacities: bool = True) -> bool | None:
        """Whether some placement keeps the rules `which`; None where time is up."""
        key = (*which, -1) if not capacities else tuple(which)
        if key not in self._known:
            self._known[key] = self._solve(which, capacities)
        return self._known[key]

    def _solve(self, which: Sequence[int], capacities: bool) -> bool | None:
        part = replace(self.instance, rules=self.rules.only(which) if which else None)
        if not capacities:
            part = replace(part, need=np.zeros_like(part.need))
        left = self._deadline_s - monotonic()
        if left <= 0:
            return None
        if construct(part, np.random.default_rng(0), attempts=6) is not None:
            return True
        return _exists(part, max(0.0, self._deadline_s - monotonic()))


def _exists(instance: Instance, time_limit_s: float) -> bool | None:
    """Whether a placement exists, by a mixed-integer program."""
    shape = (len(instance.need), len(instance.nodes))
    if shape[0] * shape[1] > LARGEST:
        return None
    program = LinearProgram(f"placement of {instance.name or 'an instance'}")
    zero, one = np.zeros(shape), np.ones(shape)
    e = program.add_columns(zero, one, zero, integer=True)
    program.add_rows(np.arange(shape[0]) * shape[1], e.ravel(), np.ones(e.size), lower=1.0, upper=1.0)
    for d in range(len(instance.resources)):
        who = np.flatnonzero(instance.base[:, d] > 0)
        if who.size:
            index, start = e[who].T, np.arange(shape[1]) * who.size
            value = np.tile(instance.base[who, d], shape[1])
            program.add_rows(start, index.ravel(), value, upper=instance.capacity[:, d] + tolerances.CAPACITY)
    if instance.rules is not None:
        add_rules(program, e, instance.rules.arrays)
    solution = program.maximize(time_limit_s)
    if solution.known:
        return True
    return False if solution.status == SolverStatus.INFEASIBLE else None


def _filter(test: _Test, which: Sequence[int], reason: str = "") -> Conflict:
    """Leave out rules of `which`, in halves, as long as no placement keeps the others; `reason` is that of all."""
    keep = list(which)
    proven = True

    def shrink(chunk: list[int]) -> None:
        nonlocal keep, proven
        rest = [r for r in keep if r not in chunk]
        answer = test.feasible(rest)
        if answer is False:
            keep = rest
        elif len(chunk) > 1:
            shrink(chunk[: len(chunk) // 2])
            shrink(chunk[len(chunk) // 2 :])
        elif answer is None:
            proven = False

    shrink(list(keep))
    return _conflict(test, keep, reason if len(keep) == len(which) else "", proven)


def _conflict(test: _Test, which: Sequence[int], reason: str, minimal: bool) -> Conflict:
    """A conflict in words; where there is no better reason, whether it is there without capacities."""
    names = [f"rules[{r}] ({test.rules.rules[r]})" for r in which]
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    if not reason:
        alone = test.feasible(which, capacities=False) is False
        reason = "whatever the capacities" if alone else "with these capacities"
    least = "" if minimal else " (perhaps not all of them are needed for that)"
    return Conflict(rules=tuple(which), minimal=minimal, text=f"no placement keeps {joined}: {reason}{least}")


def _cheap(instance: Instance, test: _Test) -> list[Conflict]:
    """Conflicts that counting shows."""
    found: dict[tuple[int, ...], str] = {}
    _without_a_node(instance, test, found)
    for r, parts in test.parts.items():
        for part in parts:
            reason = _too_many(instance, part) if isinstance(part, GroupPart) else None
            if reason is not None and (r,) not in found:
                found[(r,)] = reason
    least = [which for which in found if not any(set(other) < set(which) for other in found)]
    conflicts = {c.rules: c for c in (_filter(test, which, found[which]) for which in least)}
    return list(conflicts.values())


def _without_a_node(instance: Instance, test: _Test, found: dict[tuple[int, ...], str]) -> None:
    """Tasks whose rules leave them no node, or none that is large enough."""
    masks = {r: [p for p in parts if isinstance(p, MaskPart)] for r, parts in test.parts.items()}
    concerned: dict[int, list[tuple[int, Bools]]] = {}
    for r, parts in masks.items():
        for part in parts:
            for i in part.tasks.tolist():
                concerned.setdefault(i, []).append((r, part.allowed))
    scope = test.rules.scope
    for i, own in concerned.items():
        fits = (instance.capacity + tolerances.CAPACITY >= instance.base[i]).all(axis=1)
        if not fits.any() or (np.logical_and.reduce([mask for _, mask in own]) & fits).any():
            continue
        every = np.ones(len(instance.nodes), dtype=np.bool_)
        start = every if not np.logical_and.reduce([mask for _, mask in own]).any() else fits
        least = _least(own, lambda masks, start=start: not (np.logical_and.reduce([start, *masks])).any())
        which = tuple(sorted({r for r, _ in least}))
        name = scope.task_name(i) if scope is not None else str(i)
        reason = f"they leave {name} no node" + ("" if start is every else " that is large enough")
        found.setdefault(which, reason)


def _least(own: list[tuple[int, Bools]], conflict: Callable[[list[Bools]], bool]) -> list[tuple[int, Bools]]:
    """Leave out masks as long as the others conflict."""
    for entry in list(own):
        rest = [other for other in own if other is not entry]
        if conflict([mask for _, mask in rest]):
            own = rest
    return own


def _too_many(instance: Instance, part: GroupPart) -> str | None:
    """Why a group cannot keep its limits on these nodes, whatever else there is; None where counting shows nothing."""
    assert instance.rules is not None
    assert instance.rules.scope is not None
    names, domain = instance.rules.scope.domains(part.level)
    tasks, domains = part.tasks.size, len(names)
    if part.most is not None and tasks > part.most * domains:
        return f"{tasks} tasks, but {domains} domains of level {part.level} with at most {part.most} in each"
    if part.fewest_domains > domains:
        return f"fewer domains of level {part.level} ({domains}) than it needs ({part.fewest_domains})"
    if part.fewest_domains > tasks:
        return f"fewer tasks ({tasks}) than the domains it needs ({part.fewest_domains})"
    if part.most_domains is not None and part.most_domains < domains:
        return _too_large(instance, part, domain, part.most_domains)
    return None


def _too_large(instance: Instance, part: GroupPart, domain: Ints, most: int) -> str | None:
    total = instance.base[part.tasks].sum(axis=0)
    held = np.zeros((int(domain.max()) + 1, total.size))
    np.add.at(held, domain, instance.capacity)
    room = np.sort(held, axis=0)[::-1][:most].sum(axis=0)
    over = np.flatnonzero(total > room + tolerances.CAPACITY * (1 + part.tasks.size))
    if not over.size:
        return None
    d = int(over[0])
    largest = f"the {most} largest have" if most > 1 else "the largest has"
    return (
        f"the tasks need {total[d]:.4g} of {instance.resources[d].name}, of the domains of level {part.level} "
        f"{largest} {room[d]:.4g}"
    )
