"""Placement rules in inner loops: may a task go there, and by how much are rules broken.

`count` (offset[-1],) has the members of each group in each domain of its level, `used` (G,) the domains with members;
`record` keeps both up to date. By how much a group's rule is broken is a number of tasks or domains: members beyond
`most` in a domain, domains beyond `most_domains`, domains short of `fewest_domains`, and members in a domain where
the group's host has none.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Ints, kernel
from dfrs.model.rule_arrays import RuleArrays, no_rules

__all__ = ["RuleArrays", "broken", "count_members", "may_move", "may_place", "may_swap", "no_rules", "record"]

LAYOUT = "kind_of allowed domain level most most_domains fewest_domains host guest first group offset"
"""Fields of RuleArrays: compiled kernels are found by the sources here, so a change of them must change this line."""


@kernel
def record(rules: RuleArrays, count: Ints, used: Ints, i: int, a: int, b: int) -> None:
    """Task `i` goes from node `a` to node `b`, -1 for nowhere: update `count` and `used`."""
    for k in range(rules.first[i], rules.first[i + 1]):
        g = rules.group[k]
        domain = rules.domain[rules.level[g]]
        if a >= 0:
            c = rules.offset[g] + domain[a]
            count[c] -= 1
            used[g] -= int(count[c] == 0)
        if b >= 0:
            c = rules.offset[g] + domain[b]
            used[g] += int(count[c] == 0)
            count[c] += 1


@kernel
def count_members(rules: RuleArrays, place: Ints, count: Ints, used: Ints) -> None:
    """Fill `count` and `used` for `place` (T,), -1 for tasks that are nowhere."""
    count[:] = 0
    used[:] = 0
    for i in range(place.size):
        if place[i] >= 0:
            record(rules, count, used, i, -1, place[i])


@kernel
def _shift(rules: RuleArrays, g: int, i: int, j: int) -> int:
    """How many members group `g` takes along when `i` goes one way and `j` (-1: none) the other: 1, 0 or -1."""
    shift = 0
    for k in range(rules.first[i], rules.first[i + 1]):
        if rules.group[k] == g:
            shift += 1
    if j >= 0:
        for k in range(rules.first[j], rules.first[j + 1]):
            if rules.group[k] == g:
                shift -= 1
    return shift


@kernel
def _strays(rules: RuleArrays, count: Ints, g: int, a: int, b: int, guests: int, hosts: int) -> int:
    """Members of `g` without a host in the domains of nodes `a` and `b`, once `guests` and `hosts` went from a to b."""
    h = rules.host[g]
    domain = rules.domain[rules.level[g]]
    stray = 0
    if a >= 0 and count[rules.offset[h] + domain[a]] - hosts == 0:
        stray += count[rules.offset[g] + domain[a]] - guests
    if b >= 0 and count[rules.offset[h] + domain[b]] + hosts == 0:
        stray += count[rules.offset[g] + domain[b]] + guests
    return stray


@kernel
def _harms(rules: RuleArrays, count: Ints, used: Ints, g: int, a: int, b: int, i: int, j: int) -> bool:
    """Whether the exchange of `i` on `a` and `j` on `b` breaks a rule of group `g`, or one more than it is."""
    domain = rules.domain[rules.level[g]]
    if a >= 0 and b >= 0 and domain[a] == domain[b]:
        return False
    shift = _shift(rules, g, i, j)
    if shift == 0:
        return False
    source, target = (a, b) if shift > 0 else (b, a)
    before = count[rules.offset[g] + domain[source]] if source >= 0 else 0
    after = count[rules.offset[g] + domain[target]] if target >= 0 else 0
    if target >= 0 and after >= rules.most[g] and not (source >= 0 and before > rules.most[g]):
        return True
    opened = int(target >= 0 and after == 0) - int(source >= 0 and before == 1)
    if opened > 0 and used[g] >= rules.most_domains[g]:
        return True
    if opened < 0 and used[g] <= rules.fewest_domains[g]:
        return True
    if rules.host[g] >= 0:
        hosts = _shift(rules, rules.host[g], i, j)
        if _strays(rules, count, g, a, b, shift, hosts) > _strays(rules, count, g, a, b, 0, 0):
            return True
    guest = rules.guest[g]
    if guest >= 0:
        guests = _shift(rules, guest, i, j)
        return _strays(rules, count, guest, a, b, guests, shift) > _strays(rules, count, guest, a, b, 0, 0)
    return False


@kernel
def _harmless(rules: RuleArrays, count: Ints, used: Ints, i: int, a: int, j: int, b: int) -> bool:
    """Whether the exchange breaks no group's rule, and none more than it is."""
    for k in range(rules.first[i], rules.first[i + 1]):
        if _harms(rules, count, used, rules.group[k], a, b, i, j):
            return False
    if j >= 0:
        for k in range(rules.first[j], rules.first[j + 1]):
            if _harms(rules, count, used, rules.group[k], a, b, i, j):
                return False
    return True


@kernel
def may_place(rules: RuleArrays, count: Ints, used: Ints, i: int, b: int) -> bool:
    """Whether task `i`, which is nowhere, may go to node `b`; `fewest_domains` cannot say no to that."""
    return rules.allowed[rules.kind_of[i], b] and _harmless(rules, count, used, i, -1, -1, b)


@kernel
def may_move(rules: RuleArrays, count: Ints, used: Ints, i: int, a: int, b: int) -> bool:
    """Whether task `i` on `a` (-1: nowhere) may go to `b`: breaks no rule that is kept, makes no broken one worse.

    Never to a node that it may not be on, even from another such node.
    """
    return rules.allowed[rules.kind_of[i], b] and _harmless(rules, count, used, i, a, -1, b)


@kernel
def may_swap(rules: RuleArrays, count: Ints, used: Ints, i: int, a: int, j: int, b: int) -> bool:
    """Whether task `i` on `a` and task `j` on `b` may change places, by the rule of `may_move`."""
    return (
        rules.allowed[rules.kind_of[i], b]
        and rules.allowed[rules.kind_of[j], a]
        and _harmless(rules, count, used, i, a, j, b)
    )


@kernel
def broken(rules: RuleArrays, place: Ints) -> int:
    """By how much all rules are broken by `place` (T,), -1 for tasks that are nowhere; 0 where all are kept."""
    groups = rules.level.size
    count = np.zeros(rules.offset[groups], dtype=np.int64)
    used = np.zeros(groups, dtype=np.int64)
    count_members(rules, place, count, used)
    total = 0
    for i in range(place.size):
        if place[i] >= 0 and not rules.allowed[rules.kind_of[i], place[i]]:
            total += 1
    for g in range(groups):
        total += max(0, used[g] - rules.most_domains[g]) + max(0, rules.fewest_domains[g] - used[g])
        h = rules.host[g]
        for c in range(rules.offset[g], rules.offset[g + 1]):
            total += max(0, count[c] - rules.most[g])
            if h >= 0 and count[rules.offset[h] + c - rules.offset[g]] == 0:
                total += count[c]
    return total
