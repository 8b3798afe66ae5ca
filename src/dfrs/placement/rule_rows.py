"""Placement rules as rows of a mixed-integer program whose columns say which task is on which node.

For group g and domain x, with e[i, x] the sum of e[i, n] over the nodes of x and z[g, x] in [0, 1] whether x is used:

    sum over members i of e[i, x] <= most
    e[i, x] <= z[g, x] for each member i,           sum over x of z[g, x] <= most_domains
    z[g, x] <= sum over members i of e[i, x],       sum over x of z[g, x] >= fewest_domains
    e[i, x] <= sum over hosts h of e[h, x] for each member i

With e binary z need not be. A rule that cannot bind has no row.
"""

import numpy as np

from dfrs.model.instance import Ints
from dfrs.model.rule_arrays import RuleArrays
from dfrs.placement.solver import LinearProgram


def add_rules(
    program: LinearProgram,
    e: Ints,
    rules: RuleArrays,
    *,
    tasks: Ints | None = None,
    count: Ints | None = None,
    fewest: bool = True,
) -> list[tuple[int, Ints]]:
    """Add the rules on the columns `e` (F, N) of `tasks` (F,), by default all; others stay where `count` has them.

    `count` (offset[-1],) are the members of each group in each domain without `tasks`, by default none. Where others
    break a rule already, it must not be broken more. Without `fewest` the least number of domains is no matter.
    Returns the columns z, each with the columns of `e` whose maximum it is at a feasible point.
    """
    free = np.arange(len(e)) if tasks is None else tasks
    fixed = np.zeros(rules.offset[-1], dtype=np.int64) if count is None else count
    forbidden = e[~rules.allowed[rules.kind_of[free]]]
    if forbidden.size:
        program.set_bounds(forbidden, np.zeros(forbidden.size), np.zeros(forbidden.size))
    row = {int(i): k for k, i in enumerate(free)}
    members: list[list[int]] = [[] for _ in range(rules.level.size)]
    for i, k in row.items():
        for g in rules.group[rules.first[i] : rules.first[i + 1]]:
            members[g].append(k)
    domains: list[tuple[int, Ints]] = []
    for g in range(rules.level.size):
        if members[g]:
            domains += _Group(program, e, rules, g, np.array(members[g], dtype=np.int64), fixed).add(fewest)
        if rules.host[g] >= 0:
            _add_hosts(program, e, rules, g, members, fixed)
    return domains


class _Group:
    """The rows of one group."""

    def __init__(self, program: LinearProgram, e: Ints, rules: RuleArrays, g: int, members: Ints, count: Ints) -> None:
        self.program = program
        self.members = members
        self.e = e
        self.fixed = count[rules.offset[g] : rules.offset[g + 1]]
        self.nodes = _nodes(rules, g)
        self.most = int(rules.most[g])
        self.most_domains = int(rules.most_domains[g])
        self.fewest_domains = int(rules.fewest_domains[g])

    def add(self, fewest: bool) -> list[tuple[int, Ints]]:
        """The rows that can bind, and the columns z that they need."""
        members = self.members
        if self.most < members.size + int(self.fixed.max()):
            for nodes, there in zip(self.nodes, self.fixed.tolist(), strict=True):
                columns = self.e[np.ix_(members, nodes)].ravel()
                self.program.add_row(columns, np.ones(columns.size), upper=max(0, self.most - there))
        least = self.fewest_domains if fewest else 0
        narrow = self.most_domains < min(len(self.nodes), members.size + int((self.fixed > 0).sum()))
        return self._count_domains(narrow, least) if narrow or least > 1 else []

    def _count_domains(self, narrow: bool, least: int) -> list[tuple[int, Ints]]:
        domains = len(self.nodes)
        taken = (self.fixed > 0).astype(np.float64)
        used = self.program.add_columns(taken, np.ones(domains), np.zeros(domains))
        one = np.ones(1)
        found: list[tuple[int, Ints]] = []
        for z, nodes, there in zip(used, self.nodes, self.fixed.tolist(), strict=True):
            if there:
                continue
            found.append((int(z), self.e[np.ix_(self.members, nodes)].ravel()))
            if narrow:
                for i in self.members:
                    columns = np.append(self.e[i, nodes], z)
                    self.program.add_row(columns, np.append(np.ones(nodes.size), -one), upper=0.0)
            if least > 1:
                columns = found[-1][1]
                self.program.add_row(np.append(columns, z), np.append(-np.ones(columns.size), one), upper=0.0)
        if narrow:
            self.program.add_row(used, np.ones(domains), upper=float(max(self.most_domains, int(taken.sum()))))
        if least > 1:
            self.program.add_row(used, np.ones(domains), lower=float(least))
        return found


def _add_hosts(
    program: LinearProgram, e: Ints, rules: RuleArrays, g: int, members: list[list[int]], count: Ints
) -> None:
    """A member of `g` in a domain needs one of its host there, also a member that stays where it is."""
    h = int(rules.host[g])
    guests, hosts = np.array(members[g], dtype=np.int64), np.array(members[h], dtype=np.int64)
    for x, nodes in enumerate(_nodes(rules, g)):
        if count[rules.offset[h] + x]:
            continue
        there = e[np.ix_(hosts, nodes)].ravel() if hosts.size else np.zeros(0, dtype=np.int64)
        if count[rules.offset[g] + x] and there.size:
            program.add_row(there, np.ones(there.size), lower=1.0)
        # A task of both groups is its own host.
        for i in np.setdiff1d(guests, hosts):
            columns = np.concatenate((e[i, nodes], there))
            program.add_row(columns, np.concatenate((np.ones(nodes.size), -np.ones(there.size))), upper=0.0)


def _nodes(rules: RuleArrays, g: int) -> list[Ints]:
    """Nodes of each domain at the level of group `g`."""
    domain = rules.domain[rules.level[g]]
    return [np.flatnonzero(domain == x) for x in range(rules.offset[g + 1] - rules.offset[g])]
