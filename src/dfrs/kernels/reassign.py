"""State and costs of machine reassignment (ROADEF/EURO challenge 2012), and what a move of processes changes in them.

P processes, M machines, R resources, S services. All amounts and costs are integers, so that costs that follow moves
are exact. A move names up to three processes, their machines before and after. `NONE`, which stands for no process, is
index P: its needs are a row of zeros.

A process that moves keeps its transient resources on its first machine. There they count always, whether it is there or
not, so it takes no more of them when it comes back: row P + 1 + p of `need` has its other needs alone.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dfrs.kernels.jit import Ints, Words, kernel

_ONE = np.uint64(1)
_WORD = 6
_BIT = 63


class Loads(NamedTuple):
    """What processes use of machines, and what machines cost by it."""

    need: Ints
    """(2 (P + 1), R)"""
    room: Ints
    """(M, R) capacity that is left for processes whose first machine is another."""
    over: Ints
    """(M, R) use minus safety capacity."""
    spare: Ints
    """(M, R) capacity minus use."""
    weight: Ints
    """(R,) of the load cost."""
    balance: Ints
    """(B, 4) resource, resource, target, weight."""
    cost: Ints
    """(M,) load and balance cost of each machine."""


class Rules(NamedTuple):
    """Conflict, spread and dependency, and what they count."""

    service: Ints
    """(P,)"""
    location: Ints
    """(M,)"""
    neighbourhood: Ints
    """(M,)"""
    spread: Ints
    """(S,) fewest locations."""
    needs: tuple[Ints, Ints]
    """Service s depends on second[first[s]:first[s + 1]]."""
    needed_by: tuple[Ints, Ints]
    """The reverse."""
    present: Words
    """(S, M / 64) bits: where a service has a process."""
    in_location: NDArray[np.int32]
    """(S, locations) processes."""
    locations: Ints
    """(S,) locations with processes."""
    in_neighbourhood: NDArray[np.int32]
    """(S, neighbourhoods) processes."""


class Moves(NamedTuple):
    """What moves from the first machines cost."""

    home: Ints
    """(P + 1,) first machine; -1 of NONE."""
    process: Ints
    """(P,) weighted."""
    machine: NDArray[np.int32]
    """(M, M) not weighted."""
    weight: Ints
    """(2,) of machine and service moves."""
    moved: Ints
    """(S,) processes of each service that are not on their first machine."""
    tally: Ints
    """(P + 1,) services with so many of them."""
    most: Ints
    """(1,) the largest number."""


class State(NamedTuple):
    """All of it, and where processes are."""

    loads: Loads
    rules: Rules
    moves: Moves
    place: Ints
    """(P,)"""
    head: Ints
    """(M,) a process on each machine, or -1."""
    after: Ints
    """(P,) the next on its machine, in a circle."""
    ahead: Ints
    """(P,) the one before."""
    total: Ints
    """(1,) cost."""


WHO, SOURCE, TARGET, SHAPE = range(4)
"""Rows of a move (4, 3): processes, their machines before and after; their number, whether it is a cycle, its cost.

All machines are different, and each process but the first comes from where the one before it goes; in a cycle the first
does too. One array, as each array that a function takes costs time.
"""


@kernel
def fits(need: Ints, room: Ints, home: Ints, m: int, out: int, into: int) -> bool:
    """Whether machine `m` has the capacity for process `into` when `out` leaves it; each may be NONE."""
    rows = home.size
    o = out + rows if home[out] == m else out
    i = into + rows if home[into] == m else into
    lacks = False
    for r in range(need.shape[1]):
        lacks |= need[i, r] - need[o, r] > room[m, r]
    return not lacks


@kernel
def cost_after(loads: Loads, m: int, out: int, into: int) -> int:
    """Load and balance cost of machine `m` without process `out` and with `into`; each may be NONE."""
    need, over, spare, balance = loads.need, loads.over, loads.spare, loads.balance
    cost = 0
    for r in range(need.shape[1]):
        cost += loads.weight[r] * max(over[m, r] + need[into, r] - need[out, r], 0)
    for k in range(balance.shape[0]):
        a = balance[k, 0]
        b = balance[k, 1]
        left = spare[m, a] + need[out, a] - need[into, a]
        other = spare[m, b] + need[out, b] - need[into, b]
        cost += balance[k, 3] * max(balance[k, 2] * left - other, 0)
    return cost


@kernel
def exchange(loads: Loads, home: Ints, m: int, out: int, into: int) -> None:
    """Process `out` leaves machine `m` and `into` comes; each may be NONE. Costs follow."""
    loads.cost[m] = cost_after(loads, m, out, into)
    rows = home.size
    o = out + rows if home[out] == m else out
    i = into + rows if home[into] == m else into
    need = loads.need
    for r in range(need.shape[1]):
        change = need[into, r] - need[out, r]
        loads.over[m, r] += change
        loads.spare[m, r] -= change
        loads.room[m, r] -= need[i, r] - need[o, r]


@kernel
def travel(moves: Moves, p: int, m: int) -> int:
    """Cost of process `p` for being on machine `m`: of moving it, and of moving between these machines."""
    home = moves.home[p]
    if home == m:
        return 0
    return moves.process[p] + moves.weight[0] * np.int64(moves.machine[home, m])


@kernel
def has(present: Words, s: int, m: int) -> bool:
    """Whether service `s` has a process on machine `m`."""
    return (present[s, m >> _WORD] >> np.uint64(m & _BIT)) & _ONE != 0


@kernel
def count_moved(moves: Moves, s: int, change: int) -> None:
    """`change`, 1 or -1, more processes of service `s` are not on their first machine."""
    before = moves.moved[s]
    after = before + change
    moves.moved[s] = after
    moves.tally[before] -= 1
    moves.tally[after] += 1
    if after > moves.most[0]:
        moves.most[0] = after
    elif moves.tally[moves.most[0]] == 0:
        moves.most[0] -= 1


@kernel
def away(moves: Moves, p: int, source: int, target: int) -> int:
    """How the number of moved processes changes when `p` goes from `source` to `target`: 1, 0 or -1."""
    home = moves.home[p]
    return np.int64(home == source) - np.int64(home == target)


@kernel
def service_change(moves: Moves, service: Ints, move: Ints) -> int:
    """How the cost of service moves changes by a move."""
    changed = False
    for k in range(move[SHAPE, 0]):
        changed |= away(moves, move[WHO, k], move[SOURCE, k], move[TARGET, k]) != 0
    if not changed:
        return 0
    before = moves.most[0]
    count_moves(moves, service, move, 1)
    after = moves.most[0]
    count_moves(moves, service, move, -1)
    return moves.weight[1] * (after - before)


@kernel
def count_moves(moves: Moves, service: Ints, move: Ints, sign: int) -> None:
    """Count the processes that a move takes from their first machines or back; with `sign` -1, take it back."""
    for k in range(move[SHAPE, 0]):
        change = away(moves, move[WHO, k], move[SOURCE, k], move[TARGET, k])
        if change != 0:
            count_moved(moves, service[move[WHO, k]], sign * change)


@kernel
def leave(rules: Rules, s: int, m: int) -> None:
    """A process of service `s` leaves machine `m`, which has no other."""
    rules.present[s, m >> _WORD] &= ~(_ONE << np.uint64(m & _BIT))
    rules.in_neighbourhood[s, rules.neighbourhood[m]] -= 1
    place = rules.location[m]
    rules.in_location[s, place] -= 1
    if rules.in_location[s, place] == 0:
        rules.locations[s] -= 1


@kernel
def enter(rules: Rules, s: int, m: int) -> None:
    """A process of service `s` comes to machine `m`."""
    rules.present[s, m >> _WORD] |= _ONE << np.uint64(m & _BIT)
    rules.in_neighbourhood[s, rules.neighbourhood[m]] += 1
    place = rules.location[m]
    if rules.in_location[s, place] == 0:
        rules.locations[s] += 1
    rules.in_location[s, place] += 1


@kernel
def comes_out(move: Ints, k: int, none: int) -> int:
    """The process that makes place for process k of a move, or NONE."""
    if k + 1 < move[SHAPE, 0]:
        return move[WHO, k + 1]
    return move[WHO, 0] if move[SHAPE, 1] else none


@kernel
def possible(need: Ints, room: Ints, home: Ints, service: Ints, present: Words, move: Ints) -> bool:
    """Whether a move keeps the capacities and puts no two processes of a service on a machine.

    Nearly all moves end here, so it takes arrays, not the state.
    """
    none = service.size
    for k in range(move[SHAPE, 0]):
        p = move[WHO, k]
        m = move[TARGET, k]
        out = comes_out(move, k, none)
        s = service[p]
        if has(present, s, m) and (out == none or service[out] != s):
            return False
        if not fits(need, room, home, m, out, p):
            return False
    return True


@kernel
def change(state: State, move: Ints) -> int:
    """How the cost changes by a move."""
    loads, rules, moves = state.loads, state.rules, state.moves
    none = rules.service.size
    delta = 0
    if not move[SHAPE, 1]:
        delta += cost_after(loads, move[SOURCE, 0], move[WHO, 0], none) - loads.cost[move[SOURCE, 0]]
    for k in range(move[SHAPE, 0]):
        m = move[TARGET, k]
        delta += cost_after(loads, m, comes_out(move, k, none), move[WHO, k]) - loads.cost[m]
        delta += travel(moves, move[WHO, k], m) - travel(moves, move[WHO, k], move[SOURCE, k])
    return delta + service_change(moves, rules.service, move)


@kernel
def record(rules: Rules, move: Ints, back: bool) -> None:
    """Count a move in the rules; with `back`, take it back."""
    source, target = (TARGET, SOURCE) if back else (SOURCE, TARGET)
    for k in range(move[SHAPE, 0]):
        leave(rules, rules.service[move[WHO, k]], move[source, k])
    for k in range(move[SHAPE, 0]):
        enter(rules, rules.service[move[WHO, k]], move[target, k])


@kernel
def kept(rules: Rules, move: Ints) -> bool:
    """Whether a move that is recorded kept spread and dependency."""
    for k in range(move[SHAPE, 0]):
        s = rules.service[move[WHO, k]]
        if rules.locations[s] < rules.spread[s]:
            return False
        to = rules.neighbourhood[move[TARGET, k]]
        first, other = rules.needs
        for e in range(first[s], first[s + 1]):
            if rules.in_neighbourhood[other[e], to] == 0:
                return False
        left = rules.neighbourhood[move[SOURCE, k]]
        if rules.in_neighbourhood[s, left] == 0:
            first, other = rules.needed_by
            for e in range(first[s], first[s + 1]):
                if rules.in_neighbourhood[other[e], left] > 0:
                    return False
    return True


@kernel
def relink(state: State, p: int, m: int) -> None:
    """Process `p` goes to machine `m`, and from circle to circle."""
    place, head, after, ahead = state.place, state.head, state.after, state.ahead
    a = place[p]
    if after[p] == p:
        head[a] = -1
    else:
        after[ahead[p]] = after[p]
        ahead[after[p]] = ahead[p]
        head[a] = after[p]
    h = head[m]
    if h < 0:
        after[p] = p
        ahead[p] = p
    else:
        after[p] = h
        ahead[p] = ahead[h]
        after[ahead[h]] = p
        ahead[h] = p
    head[m] = p
    place[p] = m


@kernel
def carry_out(state: State, move: Ints, delta: int) -> None:
    """Make a move that is recorded in the rules; its change of cost is `delta`."""
    loads, rules, moves = state.loads, state.rules, state.moves
    none = rules.service.size
    if not move[SHAPE, 1]:
        exchange(loads, moves.home, move[SOURCE, 0], move[WHO, 0], none)
    for k in range(move[SHAPE, 0]):
        exchange(loads, moves.home, move[TARGET, k], comes_out(move, k, none), move[WHO, k])
        relink(state, move[WHO, k], move[TARGET, k])
    count_moves(moves, rules.service, move, 1)
    state.total[0] += delta
