"""Whether a placement survives the failure of nodes or domains, and the reserve that makes an allocator's do so.

After a failure the tasks that ran there must find room on the other nodes, where the requirements of the tasks that
stay leave it: requirements are rigid needs and minimum yields, what tasks take at yield 0. Nobody else moves. The
hard rules hold, but for the least number of domains of a spread: a domain that failed cannot be used.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np

from dfrs.model.allocation import Allocator, Outcome
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Instance, Ints
from dfrs.model.resources import Kind
from dfrs.model.rule_arrays import RuleArrays, no_rules
from dfrs.model.rule_scope import Scope
from dfrs.model.rules import Headroom
from dfrs.placement.constructive import Builder
from dfrs.placement.outcome import found
from dfrs.placement.rule_rows import add_rules
from dfrs.placement.solver import LinearProgram, SolverStatus

SMALL = 20_000
"""Tasks times nodes above which a failure that first fit does not survive is not tried exactly."""
NODES = 100
"""Of branch and bound for a failure, where answers have to repeat."""
RESERVES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
"""Of the reserve that equal domains would need, for a placement that survives where the first one does not."""
OF_THE_PROBLEM = ("bound_without_budget", "staying_yield")
"""Details that are so whatever the placement; with a reserve out of sight they would be others."""
MOST_FAILURES = 100_000
"""Combinations of domains that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Failure:
    """What happens if some domains fail together."""

    domains: tuple[str, ...]
    survived: bool
    proven: bool
    """Whether `survived` is certain: a way back was found, or a program proved that there is none."""
    left: Ints
    """Tasks without a node in the best that was found; none if survived."""
    missing: Floats
    """(D,) what they require, as fractions of the reference node."""

    def text(self, instance: Instance) -> str:
        """One line."""
        what = " and ".join(self.domains)
        if self.survived:
            return f"{what}: survived"
        amounts = ", ".join(
            f"{amount:.4g} of {r.name}"
            for r, amount in zip(instance.resources, self.missing, strict=True)
            if amount > 0
        )
        names = _scope(instance).list_tasks(self.left)
        doubt = "" if self.proven else " by first fit; there may be room"
        return f"{what}: not survived{doubt}: no room for {names}{': ' + amounts if amounts else ''}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reserved:
    """The least uniform reserve found with which an allocator's placement survives."""

    reserve: float
    """Fraction of each node's rigid resources that the allocator did not know of."""
    outcome: Outcome
    """On the whole capacities."""
    tried: dict[float, bool]
    """Reserve → whether there was a placement that survives."""


def check_headroom(
    instance: Instance, place: Ints, headroom: Headroom | None = None, time_limit_s: float | None = 1.0
) -> list[Failure]:
    """Every failure of `headroom` (by default the instance's, or one node) of a placement (T,), in order of domains.

    Where more are to fail than there are, all do. Domains without tasks are survived. `time_limit_s` is for each
    failure that needs an exact answer; None bounds that by work instead, so that answers repeat. Raises InputError
    where a level does not exist or there are too many combinations. Tasks that run nowhere, -1 in `place`, need no room
    elsewhere.
    """
    return list(_failures(instance, place, _asked(instance, headroom), time_limit_s))


def survives(
    instance: Instance, place: Ints, headroom: Headroom | None = None, time_limit_s: float | None = 1.0
) -> bool:
    """Whether every failure is survived; stops at the first that is not."""
    return all(failure.survived for failure in _failures(instance, place, _asked(instance, headroom), time_limit_s))


def least_reserve(
    instance: Instance,
    allocator: Allocator,
    *,
    headroom: Headroom | None = None,
    width: float = 0.01,
    seed: int = 0,
    time_limit_s: float | None = 1.0,
) -> Reserved | None:
    """Bisect the reserve of rigid resources, to `width`, below which the allocator's placement no longer survives.

    A node keeps room for the largest task that fits there: of a single device nothing can be reserved. What is found
    is a certificate, not an optimum: with less reserve a placement may survive by luck. None where no reserve that was
    tried does.
    """
    asked = _asked(instance, headroom)
    rigid = _rigid(instance)
    tried: dict[float, bool] = {}
    places: dict[float, Ints] = {}

    def works(reserve: float) -> bool:
        allocation = _placed_with(instance, allocator, reserve, seed).allocation
        place = None if allocation is None else allocation.place
        tried[reserve] = place is not None and survives(instance, place, asked, time_limit_s)
        if place is not None and tried[reserve]:
            places[reserve] = place
        return tried[reserve]

    if works(0.0):
        return Reserved(reserve=0.0, outcome=found(instance, places[0.0]), tried=tried)
    low, high = 0.0, _most_reserve(instance, rigid)
    if high <= 0.0 or not works(high):
        # Too much of a reserve leaves too little room to place tasks at all.
        middle = next((r for k in range(1, 8) if works(r := high * (1 - k / 8))), None) if high > 0.0 else None
        if middle is None:
            return None
        high = middle
    while high - low > width:
        middle = (low + high) / 2
        if works(middle):
            high = middle
        else:
            low = middle
    return Reserved(reserve=high, outcome=found(instance, places[high]), tried=tried)


def keep_headroom(
    instance: Instance, outcome: Outcome, allocator: Allocator, seed: int, time_limit_s: float | None = 1.0
) -> Outcome:
    """`outcome`, or where its placement does not survive what the instance asks for, one of `allocator` that does.

    With growing reserves, RESERVES times the part of all domains that fails, as equal domains would need it; the first
    placement that survives is taken. The bound stays; where none survives, so does the outcome.
    """
    if instance.rules is None or instance.rules.headroom is None or outcome.allocation is None:
        return outcome
    asked = instance.rules.headroom
    if survives(instance, outcome.allocation.place, asked, time_limit_s):
        return outcome
    names, _ = _scope(instance).domains(asked.level, "headroom.level")
    most = _most_reserve(instance, _rigid(instance))
    for times in RESERVES:
        reserve = min(times * asked.failures / len(names), most)
        other = _placed_with(instance, allocator, reserve, seed)
        if other.allocation is not None and survives(instance, other.allocation.place, asked, time_limit_s):
            of_all = {name: outcome.details[name] for name in OF_THE_PROBLEM if name in outcome.details}
            details = {**other.details, **of_all, "reserve": reserve}
            return found(instance, other.allocation.place, bound=outcome.bound, details=details)
    return outcome


def _placed_with(instance: Instance, allocator: Allocator, reserve: float, seed: int) -> Outcome:
    """How the allocator places tasks with so much of each node's rigid resources out of sight."""
    left = np.maximum(instance.capacity * (1.0 - reserve), _largest_need(instance))
    part = replace(instance, capacity=np.where(_rigid(instance), left, instance.capacity))
    return allocator(part, np.random.default_rng(seed))


def _rigid(instance: Instance) -> Bools:
    return np.array([r.kind == Kind.RIGID for r in instance.resources])


def _asked(instance: Instance, headroom: Headroom | None) -> Headroom:
    if headroom is not None:
        return headroom
    own = instance.rules.headroom if instance.rules is not None else None
    return own or Headroom()


def _scope(instance: Instance) -> Scope:
    if instance.rules is not None and instance.rules.scope is not None:
        return instance.rules.scope
    return Scope(instance.nodes, instance.services, instance.service_of, instance.labels)


def _largest_need(instance: Instance) -> Floats:
    """(N, D) of the tasks whose need of a resource fits on a node, the largest."""
    largest = np.zeros_like(instance.capacity)
    for row in np.unique(instance.base, axis=0):
        largest = np.where(row <= instance.capacity, np.maximum(largest, row), largest)
    return largest


def _most_reserve(instance: Instance, rigid: Bools) -> float:
    """The largest reserve with which requirements still fit in sum."""
    used = instance.base.sum(axis=0) / instance.capacity.sum(axis=0).clip(1e-300)
    return float((1.0 - used[rigid]).min(initial=1.0)) if rigid.any() else 0.0


def _failures(instance: Instance, place: Ints, headroom: Headroom, time_limit_s: float | None) -> Iterator[Failure]:
    names, domain = _scope(instance).domains(headroom.level, "headroom.level")
    running = np.flatnonzero(place >= 0)
    busy = np.unique(domain[place[running]])
    failures = min(headroom.failures, len(names))
    if comb(len(names), failures) > MOST_FAILURES:
        raise InputError(
            f"headroom: {comb(len(names), failures)} combinations of {failures} of {len(names)} "
            f"domains: must be at most {MOST_FAILURES}"
        )
    rules = no_rules(len(place), len(instance.nodes)) if instance.rules is None else instance.rules.hard_only.arrays
    # Of a group that must be on several domains the rest may be on fewer now.
    rules = rules._replace(fewest_domains=np.zeros_like(rules.fewest_domains))
    before = Builder(instance, rules)
    for i in running.tolist():
        before.put(i, int(place[i]))
    for failed in combinations(range(len(names)), failures):
        down = np.isin(domain, failed)
        labels = tuple(names[x] for x in failed)
        if not np.isin(failed, busy).any():
            none = np.zeros(0, dtype=np.int64)
            missing = np.zeros(len(instance.resources))
            yield Failure(domains=labels, survived=True, proven=True, left=none, missing=missing)
        else:
            yield _failure(instance, before, down, labels, time_limit_s)


def _failure(
    instance: Instance, before: Builder, down: Bools, labels: tuple[str, ...], time_limit_s: float | None
) -> Failure:
    victims = np.flatnonzero((before.place >= 0) & down[before.place])
    after = before.rules._replace(allowed=before.rules.allowed & ~down)
    builder = before.fork(after)
    for i in victims:
        builder.take(int(i))
    count, free = builder.count.copy(), builder.free.copy()
    left, proven = _first_fit(builder, victims), True
    if left.size:
        proven = False
        if victims.size * len(instance.nodes) <= SMALL:
            exact = _exact(instance, after, victims, count, free, time_limit_s)
            if exact is not None:
                left, proven = exact, True
    missing = instance.base[left].sum(axis=0)
    return Failure(domains=labels, survived=left.size == 0, proven=proven, left=left, missing=missing)


def _first_fit(builder: Builder, victims: Ints) -> Ints:
    """Victims that found no room by first fit, hosts first, then by decreasing size."""
    size = (builder.size[victims] / builder.capacity.max(axis=0).clip(1e-12)).max(axis=1)
    hosts = np.array([-len(builder.hosts_of(i)) for i in victims.tolist()])
    left: list[int] = []
    for i in victims[np.lexsort((-size, hosts))].tolist():
        good = np.flatnonzero(builder.open(i) & builder.fits(i))
        if good.size:
            builder.put(i, int(good[0]))
        else:
            left.append(i)
    if not left:
        # Placed, but not where guests that stay need them.
        left = [i for i in victims.tolist() if any(bool(builder.lonely(g).any()) for g in builder.hosts_of(i))]
    return np.array(left, dtype=np.int64)


def _exact(
    instance: Instance, rules: RuleArrays, victims: Ints, count: Ints, free: Floats, time_limit_s: float | None
) -> Ints | None:
    """Victims without room where as little as possible, in sum of relative sizes, is left; None where not found."""
    shape = (victims.size, len(instance.nodes))
    program = LinearProgram("tasks of failed nodes")
    size = instance.base[victims]
    # Leaving a task out counts at least as much as how little is left counts.
    weight = 1.0 + (size / instance.capacity.max(axis=0).clip(1e-12)).sum(axis=1)
    zero = np.zeros(shape)
    e = program.add_columns(zero, np.ones(shape), np.repeat(weight[:, None], shape[1], axis=1), integer=True)
    program.add_rows(np.arange(shape[0]) * shape[1], e.ravel(), np.ones(e.size), upper=1.0)
    for d in range(size.shape[1]):
        who = np.flatnonzero(size[:, d] > 0)
        if who.size:
            index, start = e[who].T, np.arange(shape[1]) * who.size
            room = np.maximum(free[:, d], 0.0)
            program.add_rows(start, index.ravel(), np.tile(size[who, d], shape[1]), upper=room)
    add_rules(program, e, rules, tasks=victims, count=count, fewest=False)
    solution = program.maximize(time_limit_s, nodes=NODES if time_limit_s is None else None)
    if solution.status == SolverStatus.INFEASIBLE:
        # Guests that stay have lost a host that cannot come back: all victims count as left.
        return victims
    if not solution.known:
        return None
    left = victims[solution.values[e].sum(axis=1) < 0.5]
    return left if solution.status == SolverStatus.OPTIMAL or not left.size else None


def headroom_lines(instance: Instance, place: Ints) -> list[str]:
    """One line for each failure, of those the instance asks for, that a placement (T,) does not survive."""
    return [failure.text(instance) for failure in check_headroom(instance, place) if not failure.survived]
