"""A placement that keeps the rules, to start a search from.

Tasks that rules tie together (one domain, few domains, a host that another group requires) are a block. Blocks are
placed one after another, those with the fewest nodes and the largest requirements first, hosts before their guests.
Each task goes to the node with the least (in every other attempt the largest) relative load among those that its
rules and its requirements leave. A task for which there is none makes another one move; failing that, its block is
the first of the next attempt ("squeaky wheel" optimisation, Joslin and Clements 1999).
"""

import copy
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from dfrs.kernels import rules as kernels
from dfrs.model import tolerances
from dfrs.model.instance import Bools, Floats, Instance, Ints
from dfrs.model.rule_arrays import RuleArrays, no_rules

ATTEMPTS = 24
"""How often blocks are put in another order."""
EJECTIONS = 256
"""How many tasks are tried as the one that makes room for another."""


def construct(
    instance: Instance, rng: np.random.Generator, present: Ints | None = None, attempts: int = ATTEMPTS
) -> Ints | None:
    """(T,) a node for each task within capacities at yield 0 and under the rules in force, or None if none is found.

    Tasks of `present` (T,; -1: nowhere) stay where they are as long as that breaks nothing.
    """
    rules = instance.rules.arrays if instance.rules is not None else no_rules(len(instance.need), len(instance.nodes))
    blocks = _blocks(instance, rules)
    urgent: list[int] = []
    for attempt in range(attempts):
        builder = Builder(instance, rules, tight=attempt % 2 == 1)
        if present is not None:
            builder.stay(present)
        order = _order(instance, rules, blocks, urgent, rng if attempt > 1 else None)
        failed = builder.place_all(order)
        if failed is None:
            place = builder.place
            if kernels.broken(rules, place) == 0:
                return place
            failed = int(rng.integers(len(place)))
        block = int(blocks[failed])
        urgent = [block, *(b for b in urgent if b != block)]
    return None


class Builder:
    """A partial placement: `place` (T,), `free` (N, D), members of groups in each domain, and who is still to come."""

    def __init__(self, instance: Instance, rules: RuleArrays, tight: bool = False) -> None:
        self.rules = rules
        self.size = instance.base
        self.capacity = instance.capacity
        self.place = np.full(len(instance.need), -1, dtype=np.int64)
        self.free = instance.capacity + tolerances.CAPACITY
        self.count = np.zeros(rules.offset[-1], dtype=np.int64)
        self.used = np.zeros(rules.level.size, dtype=np.int64)
        self.waiting = np.bincount(rules.group, minlength=rules.level.size)
        self._tight = tight
        self._wanted = instance.base if tight else instance.base + instance.slope
        self._load = np.zeros_like(instance.capacity)
        self._scale = 1.0 / instance.capacity.clip(1e-12)
        self._owed = np.zeros((rules.level.size, instance.base.shape[1]))
        owner = np.repeat(np.arange(len(self.place)), np.diff(rules.first))
        np.add.at(self._owed, rules.group, instance.base[owner])
        self._domains = [rules.domain[level] for level in rules.level]
        self._hosts: list[int] = rules.host.tolist()
        self._guests: list[int] = rules.guest.tolist()
        self._tasks_of = [owner[rules.group == g] for g in range(rules.level.size)]
        ends, group = rules.first.tolist(), rules.group.tolist()
        self._groups: list[list[int]] = [group[a:b] for a, b in pairwise(ends)]

    def fork(self, rules: RuleArrays) -> "Builder":
        """The same placement, to go on from, under other limits on the same groups."""
        fork = copy.copy(self)
        fork.rules = rules
        for label in ("place", "free", "count", "used", "waiting", "_load", "_owed"):
            setattr(fork, label, getattr(self, label).copy())
        return fork

    def lonely(self, g: int) -> Bools:
        """(N,) nodes in domains where group `g`, a host, has no member, but the group that requires it has."""
        return (self.members(self._guests[g]) > 0) & (self.members(g) == 0)

    def hosts_of(self, i: int) -> list[int]:
        """Groups of task `i` that another group requires."""
        return [g for g in self._groups[i] if self._guests[g] >= 0]

    def put(self, i: int, n: int) -> None:
        """Task `i`, which is nowhere, goes to node `n`."""
        self._change(i, n, 1)
        self.place[i] = n

    def take(self, i: int) -> int:
        """Task `i` goes away; where it was."""
        n = int(self.place[i])
        self._change(i, n, -1)
        self.place[i] = -1
        return n

    def _change(self, i: int, n: int, sign: int) -> None:
        self.free[n] -= sign * self.size[i]
        self._load[n] += sign * self._wanted[i]
        for g in self._groups[i]:
            c = self.rules.offset[g] + self._domains[g][n]
            before = self.count[c]
            self.count[c] += sign
            self.used[g] += int(before == 0) if sign > 0 else -int(before == 1)
            self.waiting[g] -= sign
            self._owed[g] -= sign * self.size[i]

    def members(self, g: int) -> Ints:
        """(N,) members of group `g` in the domain of each node."""
        return self.count[self.rules.offset[g] : self.rules.offset[g + 1]][self._domains[g]]

    def open(self, i: int) -> Bools:
        """(N,) where the rules let task `i` go, also so that what is to come can keep them."""
        rules = self.rules
        good = rules.allowed[rules.kind_of[i]].copy()
        for g in self._groups[i]:
            here = self.members(g)
            good &= here < rules.most[g]
            if self.used[g] >= rules.most_domains[g]:
                good &= here > 0
            elif self.used[g] == 0 and rules.most_domains[g] == 1:
                good &= self._room(g)
            if self.waiting[g] <= rules.fewest_domains[g] - self.used[g]:
                good &= here == 0
            if self._hosts[g] >= 0 and self._hosts[g] not in self._groups[i]:
                good &= self._hosted(self._hosts[g], here)
        for g in self.hosts_of(i):
            lonely = self.lonely(g)
            domains = np.unique(self._domains[g][lonely]).size
            if domains and self.waiting[g] <= domains:
                good &= lonely
        return good

    def _room(self, g: int) -> Bools:
        """(N,) whether all members of `g` that are still to come fit into the domain, were they cut in pieces."""
        domain = self._domains[g]
        free = np.zeros((int(domain.max()) + 1, self.free.shape[1]))
        np.add.at(free, domain, self.free)
        return (free >= self._owed[g]).all(axis=1)[domain]

    def _hosted(self, host: int, here: Ints) -> Bools:
        """(N,) where the host group is, or, where none of it is placed yet, may still come."""
        if self.used[host] == 0 and self.waiting[host] > 0:
            # Groups that require each other: one of them must be first.
            return here >= 0
        return self.members(host) > 0

    def fits(self, i: int) -> Bools:
        """(N,) where the requirements of task `i` fit."""
        return (self.free >= self.size[i]).all(axis=1)

    def best(self, i: int, good: Bools) -> int:
        """Of the nodes `good` (N,), the one with the least relative load after, or, if tight, the largest; or -1."""
        nodes = np.flatnonzero(good)
        if not nodes.size:
            return -1
        load = ((self._load[nodes] + self._wanted[i]) * self._scale[nodes]).max(axis=1)
        return int(nodes[load.argmax() if self._tight else load.argmin()])

    def stay(self, present: Ints) -> None:
        """Leave tasks where they are, the largest first, unless that breaks a rule or a capacity."""
        for i in np.argsort(-(self.size * self._scale.mean(axis=0)).max(axis=1), kind="stable").tolist():
            n = int(present[i])
            if n >= 0 and self.open(i)[n] and self.fits(i)[n]:
                self.put(i, n)

    def place_all(self, order: Iterable[int]) -> int | None:
        """Place the tasks in this order; the first that found no node, or None."""
        for i in order:
            if self.place[i] >= 0:
                continue
            n = self.best(i, self.open(i) & self.fits(i))
            if n >= 0:
                self.put(i, n)
            elif not self._eject_for(i):
                return i
        return None

    def _eject_for(self, i: int) -> bool:
        """Place task `i` where another one makes room by moving; whether that was possible."""
        placed = np.flatnonzero(self.place >= 0)
        at = self.place[placed]
        helps = (self.free[at] + self.size[placed] >= self.size[i]).all(axis=1)
        helps &= self.rules.allowed[self.rules.kind_of[i], at]
        for g in self._groups[i]:
            helps |= np.isin(placed, self._tasks_of[g])
        candidates = placed[helps]
        smallest = np.argsort((self.size[candidates] * self._scale.mean(axis=0)).max(axis=1), kind="stable")
        for j in candidates[smallest[:EJECTIONS]].tolist():
            before = self.take(j)
            target = self.best(i, self.open(i) & self.fits(i))
            if target >= 0:
                self.put(i, target)
                away = self.best(j, self.open(j) & self.fits(j))
                if away >= 0:
                    self.put(j, away)
                    if not self._deserted(j, before):
                        return True
                    self.take(j)
                self.take(i)
            self.put(j, before)
        return False

    def _deserted(self, j: int, node: int) -> bool:
        """Whether guests stay in a domain that the last of their hosts, `j`, left with `node`."""
        return any(bool(self.lonely(g)[node]) for g in self.hosts_of(j))


def _blocks(instance: Instance, rules: RuleArrays) -> Ints:
    """(T,) number of the block of each task: tasks that share a group on few domains, or are hosts and guests."""
    block = np.arange(len(instance.need))
    owner = np.repeat(np.arange(block.size), np.diff(rules.first))
    for g in range(rules.level.size):
        members = owner[rules.group == g]
        domains = rules.offset[g + 1] - rules.offset[g]
        if rules.host[g] >= 0:
            members = np.concatenate((members, owner[rules.group == rules.host[g]]))
        elif rules.most_domains[g] >= min(domains, members.size):
            continue
        joined = np.unique(block[members])
        block[np.isin(block, joined)] = joined[0]
    return block


def _order(
    instance: Instance, rules: RuleArrays, blocks: Ints, urgent: list[int], rng: np.random.Generator | None
) -> list[int]:
    """Tasks in the order of placing: urgent blocks first, then by how constrained and how large their block is."""
    size = (instance.base / instance.capacity.max(axis=0).clip(1e-12)).max(axis=1)
    wanted = (instance.need / instance.capacity.max(axis=0).clip(1e-12)).max(axis=1)
    size = size + 1e-3 * wanted
    choice = rules.allowed.sum(axis=1)[rules.kind_of] / rules.allowed.shape[1]
    weight = np.zeros(blocks.size)
    np.add.at(weight, blocks, size)
    narrow = np.ones(blocks.size)
    np.minimum.at(narrow, blocks, choice)
    bound = np.bincount(blocks, minlength=blocks.size) > 1
    key: Floats = weight * np.where(bound, 2.0, 1.0) / narrow.clip(1e-3)
    if rng is not None:
        key = key * rng.uniform(0.7, 1.4, key.size)
    for rank, block in enumerate(reversed(urgent)):
        key[block] = key.max() + 1.0 + rank
    depth = _depth(rules, blocks.size)
    return sorted(
        range(blocks.size), key=lambda i: (-key[blocks[i]], blocks[i], depth[i], -size[i] / choice[i].clip(1e-3))
    )


def _depth(rules: RuleArrays, tasks: int) -> Ints:
    """(T,) how many hosts in a chain must be there before each task, at most a few."""
    depth = np.zeros(tasks, dtype=np.int64)
    owner = np.repeat(np.arange(tasks), np.diff(rules.first))
    pairs = [(owner[rules.group == g], owner[rules.group == rules.host[g]]) for g in np.flatnonzero(rules.host >= 0)]
    for _ in range(min(len(pairs), 4)):
        for guests, hosts in pairs:
            outside = np.setdiff1d(guests, hosts)
            depth[outside] = np.maximum(depth[outside], min(int(depth[hosts].max()) + 1, 8))
    return depth
