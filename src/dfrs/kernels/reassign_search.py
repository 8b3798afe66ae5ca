"""Simulated annealing for machine reassignment: random moves, none of which breaks a hard constraint.

Shifts, swaps, ejections, cycles of three, and pushes. The temperature falls geometrically. The best assignment is
brought up to date when the walk is about to leave it: what changed since then is in a log.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.genetic import below, uniform
from dfrs.kernels.jit import Floats, Ints, Words, kernel
from dfrs.kernels.reassign import SHAPE, SOURCE, TARGET, WHO, State, carry_out, change, kept, possible, record
from dfrs.kernels.reassign_push import LONGEST, push

_COOL = 256
"""Steps at one temperature."""


@kernel
def draw(place: Ints, home: Ints, machines: int, mix: Floats, words: Words, move: Ints) -> bool:
    """A random move; False where the machines that came up are not all different."""
    kind = uniform(words)
    count = 1
    cycle = 0
    if kind >= mix[0]:
        count = 2 if kind < mix[2] else 3
        cycle = 0 if mix[1] <= kind < mix[2] else 1
    move[SHAPE, 0] = count
    move[SHAPE, 1] = cycle
    for k in range(count):
        p = below(words, place.size)
        move[WHO, k] = p
        move[SOURCE, k] = place[p]
        if k > 0:
            move[TARGET, k - 1] = place[p]
    a, b, c = move[SOURCE]
    if cycle:
        move[TARGET, count - 1] = a
        return a != b and (count == 2 or c not in (a, b))
    last = home[move[WHO, count - 1]] if uniform(words) < mix[3] else below(words, machines)
    move[TARGET, count - 1] = last
    return last != a and (count == 1 or b not in (last, a))


@kernel
def bring(place: Ints, log: Ints, changed: int, best: Ints) -> None:
    """Bring `best` up to date by the first `changed` of the log; where that is full, by everything."""
    if changed >= log.size:
        best[:] = place
    else:
        for k in range(changed):
            best[log[k]] = place[log[k]]


@kernel
def note(log: Ints, changed: int, who: Ints, count: int) -> int:
    """Log the first `count` of the processes `who` as changed; how many the log has then."""
    for k in range(count):
        if changed < log.size:
            log[changed] = who[k]
            changed += 1
    return changed


@kernel
def try_move(state: State, heat: float, words: Words, move: Ints) -> bool:
    """Record a possible move in the rules if they are kept and annealing at `heat` takes it; in `move`, its change."""
    delta = change(state, move)
    if delta > 0 and delta > -heat * np.log(1.0 - uniform(words)):
        return False
    record(state.rules, move, False)
    if not kept(state.rules, move):
        record(state.rules, move, True)
        return False
    move[SHAPE, 2] = delta
    return True


@kernel
def anneal(
    state: State, words: Words, steps: int, hot: float, cold: float, mix: Floats, best: Ints, least: int
) -> tuple[int, int]:
    """Draw `steps` moves at temperatures from `hot` to `cold`; (cost of `best`, moves made).

    `best` (P,) is an assignment of cost `least`, the present one if it has no less; it becomes the best. `mix` (5,) has
    the shares, cumulative, of shifts, swaps and ejections, the rest are cycles of three; how often a shift or ejection
    goes to the first machine of its process; and how often a push is made instead. Modifies state, words and best.
    """
    place, total = state.place, state.total
    need, room = state.loads.need, state.loads.room
    home, service, present = state.moves.home, state.rules.service, state.rules.present
    move, trail = np.zeros((4, 3), dtype=np.int64), np.zeros((2, LONGEST), dtype=np.int64)
    log = np.empty(place.size, dtype=np.int64)
    # Nothing is known of how `best` differs from where the walk is: all of it is copied at first.
    changed = log.size
    fresh = total[0] < least
    if fresh:
        least = total[0]
    made = 0
    heat = hot
    factor = (cold / hot) ** (_COOL / max(steps, 1))
    for step in range(steps):
        if step % _COOL == 0 and step > 0:
            heat *= factor
        pushing = uniform(words) < mix[4]
        if not pushing:
            if not draw(place, home, room.shape[0], mix, words, move):
                continue
            if not possible(need, room, home, service, present, move) or not try_move(state, heat, words, move):
                continue
        if fresh and (pushing or move[SHAPE, 2] > 0):
            bring(place, log, changed, best)
            changed = 0
            fresh = False
        if pushing:
            count = push(state, words, heat, move, trail)
            changed = note(log, changed, trail[0], count)
        else:
            carry_out(state, move, move[SHAPE, 2])
            count = move[SHAPE, 0]
            changed = note(log, changed, move[WHO], count)
        made += count > 0
        if total[0] < least:
            least = total[0]
            fresh = True
    if fresh:
        bring(place, log, changed, best)
    return least, made
