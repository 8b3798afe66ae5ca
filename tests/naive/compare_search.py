"""As `compare`, for the kernels that search among placements."""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from dfrs.kernels.exact import which_stay_broken
from dfrs.kernels.local_search import Descent, start_descent
from dfrs.kernels.rules import count_members
from dfrs.model.rule_scope import compile_parts
from tests.naive import exact, genetic, local_search, set_packing
from tests.naive.compare import Kernel, Pair
from tests.naive.rules import may_become
from tests.search_cases import ClimbCase, ExactCase, GeneticCase, PricingCase


@cache
def _exact(case: ExactCase) -> tuple[float, bool, int, list[int] | None]:
    return exact.Search(
        case.base.tolist(),
        case.slope.tolist(),
        case.capacity.tolist(),
        case.tolerance,
        case.order.tolist(),
        case.twin.tolist(),
        case.kind.tolist(),
        case.parts,
        case.scope,
        case.limits,
    ).run()


def branch_and_bound(kernel: Kernel, case: ExactCase) -> Pair:
    """The same placements tried in the same order."""
    best = np.full(len(case.base), -1)
    found, complete, trials = kernel(
        case.base,
        case.slope,
        case.capacity,
        case.tolerance,
        case.order,
        case.twin,
        case.kind,
        which_stay_broken(case.rules),
        case.rules,
        case.limits,
        best,
    )
    return (found, complete, trials, best.tolist() if found >= 0 else None), _exact(case)


def words(case: ClimbCase) -> np.ndarray:
    return np.array([case.seed], dtype=np.uint64)


def draw(kernel: Kernel, case: ClimbCase) -> Pair:
    state, twin = words(case), local_search.Xorshift(case.seed)
    counts = (1, 2, 3, 7, 1024, 1 << 30) * 3
    got = [int(kernel(state, count)) for count in counts]
    assert all(0 <= number < count for number, count in zip(got, counts, strict=True))
    return (got, int(state[0])), ([twin.below(count) for count in counts], twin.word)


def overload(kernel: Kernel, case: ClimbCase) -> Pair:
    """Of each node as it is, and after each task in turn has been exchanged for the next one."""
    load = np.array(local_search.loads(case.base.tolist(), case.place.tolist(), len(case.capacity)))
    nothing, got, expected = np.zeros(load.shape[1]), [], []
    for here, most in zip(load, case.capacity, strict=True):
        for out, into in [(nothing, nothing), *zip(case.base[:-1], case.base[1:], strict=True)]:
            got.append(float(kernel(here, out, into, 1.0 / most)))
            expected.append(local_search.overload((here - out + into).tolist(), most.tolist()))
    return got, expected


def aimed_partner(kernel: Kernel, case: ClimbCase) -> Pair:
    size = case.base.tolist()
    ranked = local_search.ranking(size)
    ranked_size = np.sort(case.base.T, axis=1)
    load = local_search.loads(size, case.place.tolist(), len(case.capacity))
    state, twin, got, expected = words(case), local_search.Xorshift(case.seed), [], []
    for i, n in enumerate(case.place):
        most = case.capacity[n]
        got.append(int(kernel(case.base[i], np.array(load[n]), 1.0 / most, np.array(ranked), ranked_size, state)))
        expected.append(local_search.aimed_partner(size[i], load[n], most.tolist(), ranked, size, twin))
    return (got, int(state[0])), (expected, twin.word)


def _descents(case: ClimbCase) -> tuple[Descent, local_search.Descent]:
    """One of each, neither of which has made a step."""
    lists = case.base.tolist(), case.slope.tolist(), case.capacity.tolist()
    draws = local_search.Xorshift(case.seed)
    target, tolerance = case.aims[0], 0.0
    return (
        start_descent(case.base, case.slope, case.capacity, tolerance, case.rules, case.place, target, case.seed),
        local_search.Descent(*lists, case.parts, case.scope, case.place.tolist(), target, draws),
    )


def _shown(descent: Descent) -> dict[str, object]:
    """All that a step may change, as plain lists."""
    hots = int(descent.number[0])
    ends = zip(descent.first[:-1], descent.held, strict=True)
    members = [descent.member[first : first + count].tolist() for first, count in ends]
    return {
        "place": descent.place.tolist(),
        "best": descent.best.tolist() if descent.aim[1] >= 0 else None,
        "size": descent.size.tolist(),
        "load": descent.load.tolist(),
        "over": descent.over.tolist(),
        "hot": descent.hot[:hots].tolist(),
        "at": descent.at.tolist(),
        "room": np.diff(descent.first).tolist(),
        "members": members,
        "at slots": descent.member[descent.slot].tolist(),
        "ranked": descent.ranked.tolist(),
        "ranked_size": descent.ranked_size.tolist(),
        "aim": descent.aim.tolist(),
        "crowded": bool(descent.number[1]),
        "grouped": descent.grouped.tolist(),
        "used": descent.used.tolist(),
        "word": int(descent.words[0]),
    }


def _told(twin: local_search.Descent) -> dict[str, object]:
    nodes = range(len(twin.capacity))
    rules = compile_parts(twin.parts, twin.scope)
    grouped, used = np.zeros(rules.offset[-1], dtype=np.int64), np.zeros(rules.level.size, dtype=np.int64)
    count_members(rules, np.array(twin.place), grouped, used)
    of = twin.ranked_sizes
    return {
        "place": list(twin.place),
        "best": twin.best,
        "size": twin.sizes(),
        "load": local_search.loads(twin.sizes(), twin.place, len(nodes)),
        "over": [twin.over(n, twin.place) for n in nodes],
        "hot": list(twin.hot),
        "at": [twin.hot.index(n) if n in twin.hot else -1 for n in nodes],
        "room": list(twin.room),
        "members": [list(here) for here in twin.members],
        "at slots": list(range(len(twin.place))),
        "ranked": [list(one) for one in twin.ranked],
        "ranked_size": [[of[i][d] for i in one] for d, one in enumerate(twin.ranked)],
        "aim": [twin.target, twin.found, twin.ranked_at],
        "crowded": twin.crowded,
        "grouped": grouped.tolist(),
        "used": used.tolist(),
        "word": twin.draws.word,
    }


def aim_at(kernel: Kernel, case: ClimbCase) -> Pair:
    """Also from a state full of other numbers."""
    descent, twin = _descents(case)
    for array in (descent.size, descent.load, descent.over, descent.hot, descent.at, descent.number[:1]):
        array[:] = -9
    kernel(descent, 0.75)
    twin.target = 0.75
    twin.hot = twin.overloaded()
    return _shown(descent), _told(twin)


def lay_out(kernel: Kernel, case: ClimbCase) -> Pair:
    """After every task has gone to the next node."""
    descent, twin = _descents(case)
    descent.place[:] = (descent.place + 1) % len(case.capacity)
    descent.number[1] = 1
    kernel(descent)
    twin.place = [(n + 1) % len(case.capacity) for n in twin.place]
    twin.lay_out()
    keys = ("room", "members", "at slots", "crowded")
    told = _told(twin)
    return [_shown(descent)[key] for key in keys], [told[key] for key in keys]


def rank(kernel: Kernel, case: ClimbCase) -> Pair:
    """At another yield than the first."""
    descent, twin = _descents(case)
    descent.size[:] = case.base + 0.5 * case.slope
    descent.aim[0] = twin.target = 0.5
    kernel(descent)
    twin.rank()
    told = _told(twin)
    keys = ("ranked", "ranked_size", "aim")
    return [_shown(descent)[key] for key in keys], [told[key] for key in keys]


def note(kernel: Kernel, case: ClimbCase) -> Pair:
    """Nodes that become overloaded, and that cease to be, in turn."""
    descent, _ = _descents(case)
    hot = descent.hot[: descent.number[0]].tolist()
    expected, got = [], []
    for k, n in enumerate(np.random.default_rng(case.seed).integers(len(case.capacity), size=20).tolist()):
        over = 0.5 * (k % 3)
        if over > 0 and n not in hot:
            hot.append(n)
        elif over == 0 and n in hot:
            local_search.take_last_for(hot, n)
        kernel(descent, n, over)
        got.append((descent.hot[: descent.number[0]].tolist(), descent.at.tolist(), float(descent.over[n])))
        expected.append((list(hot), [hot.index(m) if m in hot else -1 for m in range(len(case.capacity))], over))
    return got, expected


def exchange(kernel: Kernel, case: ClimbCase) -> Pair:
    """A few moves and swaps, between different nodes, one after the other."""
    descent, twin = _descents(case)
    rng = np.random.default_rng(case.seed)
    tasks, nodes = len(case.base), len(case.capacity)
    for _ in range(8):
        i, j, b = int(rng.integers(tasks)), int(rng.integers(-tasks, tasks)), int(rng.integers(nodes))
        j = max(j, -1)
        b = twin.place[j] if j >= 0 else b
        if b == twin.place[i]:
            continue
        kernel(descent, i, b, j)
        twin.exchange(i, b, None if j < 0 else j)
    keys = ("place", "load", "members", "at slots", "grouped", "used")
    return [_shown(descent)[key] for key in keys], [_told(twin)[key] for key in keys]


def may(kernel: Kernel, case: ClimbCase) -> Pair:
    """Of each task, to each node and in exchange for each task elsewhere."""
    descent, twin = _descents(case)
    place, got, expected = twin.place, [], []
    for i, a in enumerate(place):
        changes = [(b, -1, {i: b}) for b in range(len(case.capacity)) if b != a]
        changes += [(b, j, {i: b, j: a}) for j, b in enumerate(place) if b != a]
        got += [bool(kernel(descent, i, b, j)) for b, j, _ in changes]
        expected += [may_become(case.parts, case.scope, place, change) for _, _, change in changes]
    return got, expected


def rise(kernel: Kernel, case: ClimbCase) -> Pair:
    """Where all that is left is added and where a quarter is, on nodes of which none, some or all are overloaded."""
    got, expected = [], []
    for factor, rise in product((1.0, 2.0, 4.0, 64.0), (1.0, 0.25)):
        descent, twin = _descents(replace(case, capacity=case.capacity * factor))
        got.append((bool(kernel(descent, 0.0, rise, 1.0)), _shown(descent)))
        expected.append((twin.rise(rise, 1.0), _told(twin)))
    return got, expected


@cache
def _climb(case: ClimbCase) -> list[tuple[bool, dict[str, object]]]:
    twin = _descents(case)[1]
    return [(twin.climb(case.aims[1:], case.steps, heat), _told(twin)) for heat in case.heats]


def climb(kernel: Kernel, case: ClimbCase) -> Pair:
    """The same steps, call after call: to the same best and last placement, with as many numbers drawn."""
    descent = _descents(case)[0]
    rounds = [(bool(kernel(descent, 0.0, case.aims[1:], case.steps, heat)), _shown(descent)) for heat in case.heats]
    return rounds, _climb(case)


def _quietly(kernel: Kernel, *arguments: object) -> Any:
    """Words that wrap around are meant to, though numpy warns of it where they are not in compiled code."""
    with np.errstate(over="ignore"):
        return kernel(*arguments)


def _start(case: GeneticCase) -> tuple[np.ndarray, genetic.SplitMix]:
    return np.array([case.seed], dtype=np.uint64), genetic.SplitMix(case.seed)


def _base_loads(case: GeneticCase) -> np.ndarray:
    return np.array(genetic.loads(case.base.tolist(), case.place.tolist(), len(case.capacity)))


def uniform(kernel: Kernel, case: GeneticCase) -> Pair:
    state, twin = _start(case)
    return [float(_quietly(kernel, state)) for _ in range(5)], [twin.uniform() for _ in range(5)]


def below(kernel: Kernel, case: GeneticCase) -> Pair:
    state, twin = _start(case)
    return (
        [int(_quietly(kernel, state, count)) for count in range(1, 9)],
        [twin.below(count) for count in range(1, 9)],
    )


def shuffle(kernel: Kernel, case: GeneticCase) -> Pair:
    (state, twin), items = _start(case), np.arange(7)
    _quietly(kernel, state, items)
    return items.tolist(), twin.shuffled(7)


def is_overloaded(kernel: Kernel, case: GeneticCase) -> Pair:
    loads = _base_loads(case)
    return (
        [bool(kernel(loads, case.capacity, case.tolerance, n)) for n in range(len(loads))],
        [genetic.overloaded(one, most, case.tolerance) for one, most in zip(loads, case.capacity, strict=True)],
    )


def count_fitting(kernel: Kernel, case: GeneticCase) -> Pair:
    loads = _base_loads(case)
    over = [genetic.overloaded(one, most, case.tolerance) for one, most in zip(loads, case.capacity, strict=True)]
    return int(kernel(loads, case.capacity, case.tolerance)), over.count(False)


def sum_by_node(kernel: Kernel, case: GeneticCase) -> Pair:
    total = np.full(case.capacity.shape, 5.0)
    kernel(case.base, case.place, total)
    return total.tolist(), _base_loads(case).tolist()


def load(kernel: Kernel, case: GeneticCase) -> Pair:
    loads = _base_loads(case)
    return (
        [float(kernel(loads, case.capacity, n)) for n in range(len(loads))],
        [genetic.share(one, most) for one, most in zip(loads.tolist(), case.capacity.tolist(), strict=True)],
    )


def least_loaded(kernel: Kernel, case: GeneticCase) -> Pair:
    loads, capacity = _base_loads(case), case.capacity.tolist()
    shares = np.array([genetic.share(one, most) for one, most in zip(loads.tolist(), capacity, strict=True)])
    pairs = list(zip(case.base, case.place.tolist(), strict=True))
    return (
        [int(kernel(need, loads, case.capacity, case.tolerance, shares, home)) for need, home in pairs],
        [genetic.least_loaded(need.tolist(), loads.tolist(), capacity, case.tolerance, home) for need, home in pairs],
    )


def repair(kernel: Kernel, case: GeneticCase) -> Pair:
    """With loads kept true to the placement."""
    (state, twin), place, fixed = _start(case), case.place.copy(), _base_loads(case)
    _quietly(kernel, case.base, case.capacity, case.tolerance, state, place, fixed)
    expected = case.place.tolist()
    genetic.repair(case.base.tolist(), case.capacity.tolist(), case.tolerance, twin, expected)
    loads = genetic.loads(case.base.tolist(), expected, len(fixed))
    return (place.tolist(), fixed.tolist(), int(state[0])), (expected, loads, twin.word)


def settle(kernel: Kernel, case: GeneticCase) -> Pair:
    (state, twin), place, shape = _start(case), case.place.copy(), case.capacity.shape
    score = _quietly(
        kernel, case.base, case.slope, case.capacity, case.tolerance, state, place, np.empty(shape), np.empty(shape)
    )
    best = case.place.tolist()
    expected = genetic.settle(
        case.base.tolist(), case.slope.tolist(), case.capacity.tolist(), case.tolerance, twin, best
    )
    return (score, place.tolist(), int(state[0])), (expected, best, twin.word)


def select(kernel: Kernel, case: GeneticCase) -> Pair:
    """Among scores some of which are 0, once all of them."""
    (state, twin), got, expected = _start(case), [], []
    for scores in (case.base[:, 0], 0.0 * case.base[:, 0], case.slope[:, 0]):
        got.append(int(_quietly(kernel, state, np.cumsum(scores))))
        expected.append(genetic.select(twin, scores.tolist()))
    return got, expected


def mutate(kernel: Kernel, case: GeneticCase) -> Pair:
    (state, twin), place, expected = _start(case), case.place.copy(), case.place.tolist()
    done = bool(_quietly(kernel, state, place))
    return (done, place.tolist()), (genetic.mutate(twin, expected), expected)


def cross(kernel: Kernel, case: GeneticCase) -> Pair:
    (state, twin), mother = _start(case), case.place
    father = np.arange(len(mother)) + 10
    one, other = np.empty_like(mother), np.empty_like(mother)
    _quietly(kernel, state, mother, father, one, other)
    return [one.tolist(), other.tolist()], genetic.cross(twin, mother.tolist(), father.tolist())


@cache
def _evolve(case: GeneticCase) -> tuple[float, int, list[int]]:
    return genetic.evolve(
        case.base.tolist(),
        case.slope.tolist(),
        case.capacity.tolist(),
        case.tolerance,
        case.settings,
        case.upper,
        case.seed,
    )


def evolve(kernel: Kernel, case: GeneticCase) -> Pair:
    place = np.full(len(case.base), -1)
    score, generations = _quietly(
        kernel, case.base, case.slope, case.capacity, case.tolerance, case.settings, case.upper, case.seed, place
    )
    return (score, generations, place.tolist()), _evolve(case)


def fractional(kernel: Kernel, case: PricingCase) -> Pair:
    """From each task on, in rooms that end within a task and that end with one."""
    weight = case.size[:, 0] + 1 / 16
    starts = [(first, room) for first in range(len(weight)) for room in (0.0, 0.5, 4.0)]
    got = [round(float(kernel(case.worth, weight, first, room)), 9) for first, room in starts]
    lists = case.worth.tolist(), weight.tolist()
    return got, [round(set_packing.fractional(*lists, first, room), 9) for first, room in starts]


def price_sets(kernel: Kernel, case: PricingCase) -> Pair:
    """Every set above the threshold; and the highest worth, of a set that fits."""
    lists = case.size.tolist(), case.capacity.tolist(), case.worth.tolist()
    told = set_packing.above(*lists, case.threshold)
    got = []
    for every in (True, False):
        sets, length, value = np.full((200, 8), -1), np.zeros(200, dtype=np.int64), np.zeros(200)
        found, complete = kernel(
            case.size, case.capacity, case.worth, case.threshold, every, 10**5, sets, length, value
        )
        named = [tuple(sorted(sets[r, : length[r]].tolist())) for r in range(found)]
        true = value[:found].tolist() == [sum(case.worth[list(each)]) for each in named] and set(named) <= told
        got.append((complete, true, sorted(named) if every else max([case.threshold, *value[:found].tolist()])))
    highest = max(case.threshold, set_packing.highest(*lists))
    return got, [(True, True, sorted(told)), (True, True, highest)]


def join_resources(kernel: Kernel, case: PricingCase) -> Pair:
    """Whatever fits weighs at most 1; and as the only resource, a task weighs its share of it."""
    inside = (case.size <= case.capacity).all(axis=1)
    size, worth = case.size[inside], case.worth[inside]
    joint, single = np.full(len(size), np.nan), np.full(len(size), np.nan)
    kernel(size, case.capacity, worth, joint)
    kernel(size[:, :1].copy(), case.capacity[:1], worth, single)
    most = max(sum(joint[list(chosen)]) for chosen in set_packing.fitting(size.tolist(), case.capacity.tolist()))
    share = [s / case.capacity[0] + 1e-12 if case.capacity[0] > 0 else np.nan for s in size[:, 0]]
    same = np.array_equal(single, np.array(share), equal_nan=True)
    return (bool(most <= 1.0 + 1e-9) or not case.capacity.any(), same), (True, True)
