"""Who must leave because of a rule: tasks where they may not be, and members of groups that break theirs."""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.adapt_state import Board, Moves, affords, lift
from dfrs.kernels.jit import Ints, kernel
from dfrs.kernels.rules import RuleArrays


@kernel
def _emptied(rules: RuleArrays, board: Board, g: int) -> int:
    """The domain of group `g` with the fewest members, if it has members in too many domains; otherwise -1."""
    if board.used[g] <= rules.most_domains[g]:
        return -1
    best, fewest = -1, np.iinfo(np.int64).max
    for c in range(rules.offset[g], rules.offset[g + 1]):
        if 0 < board.counts[c] < fewest:
            best, fewest = c - rules.offset[g], board.counts[c]
    return best


@kernel
def _must_leave(rules: RuleArrays, board: Board, i: int, emptied: Ints, wanted: Ints) -> bool:
    """Whether task `i`, on a node, breaks a rule of one of its groups that its departure mends."""
    for k in range(rules.first[i], rules.first[i + 1]):
        g = rules.group[k]
        domain = rules.domain[rules.level[g], board.place[i]]
        members = board.counts[rules.offset[g] + domain]
        host = rules.host[g]
        if (
            members > rules.most[g]
            or domain == emptied[g]
            or (host >= 0 and board.counts[rules.offset[host] + domain] == 0)
            or (wanted[g] > 0 and members > 1)
        ):
            return True
    return False


@kernel
def evict(moves: Moves, rules: RuleArrays, board: Board, pending: Ints, count: int) -> int:
    """Lift the tasks that rules do not let stay into `pending`, which has `count` already; how many then.

    -1 where the limits do not let one leave that is where it may not be. Of groups, tasks leave by number: from
    domains with too many members, from the smallest of too many domains, from where the host of a guest is not, and
    for domains that have no member yet.
    """
    tasks, groups = moves.origin.size, rules.level.size
    for i in range(tasks):
        n = board.place[i]
        if n >= 0 and not rules.allowed[rules.kind_of[i], n]:
            if not affords(moves, board, i):
                return -1
            lift(moves, rules, board, i)
            pending[count] = i
            count += 1
    if groups == 0:
        return count
    emptied = np.empty(groups, dtype=np.int64)
    wanted = np.empty(groups, dtype=np.int64)
    again = True
    while again:
        again = False
        for g in range(groups):
            emptied[g] = _emptied(rules, board, g)
        for g in range(groups):
            wanted[g] = max(0, rules.fewest_domains[g] - board.used[g])
            for k in range(count):
                i = pending[k]
                for q in range(rules.first[i], rules.first[i + 1]):
                    wanted[g] -= int(rules.group[q] == g)
        for i in range(tasks):
            if board.place[i] >= 0 and _must_leave(rules, board, i, emptied, wanted) and affords(moves, board, i):
                for k in range(rules.first[i], rules.first[i + 1]):
                    wanted[rules.group[k]] -= 1
                lift(moves, rules, board, i)
                pending[count] = i
                count += 1
                again = True
    return count
