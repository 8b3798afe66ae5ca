"""As `compare`, for the kernels that search among placements."""

from functools import cache
from typing import Any

import numpy as np

from tests.naive import exact, genetic, local_search
from tests.naive.compare import Kernel, Pair
from tests.search_cases import ClimbCase, ExactCase, GeneticCase


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
        case.origin.tolist(),
        case.cost.tolist(),
        case.budget,
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
        case.origin,
        case.cost,
        case.budget,
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


def fill(kernel: Kernel, case: ClimbCase) -> Pair:
    target, (nodes, dims) = 0.75, case.capacity.shape
    size, load, over = np.empty(case.base.shape), np.full((nodes, dims), np.nan), np.empty(nodes)
    hot, at = np.full(nodes, -9), np.full(nodes, -9)
    hots = kernel(
        case.base, case.slope, target, case.capacity, 1.0 / case.capacity, case.place, size, load, over, hot, at
    )
    sizes = local_search.sizes(case.base.tolist(), case.slope.tolist(), target)
    loads = local_search.loads(sizes, case.place.tolist(), nodes)
    overs = [local_search.overload(one, most) for one, most in zip(loads, case.capacity.tolist(), strict=True)]
    hottest = [n for n in range(nodes) if overs[n] > 0]
    return (
        (hots, size.tolist(), load.tolist(), over.tolist(), hot[:hots].tolist(), at.tolist()),
        (len(hottest), sizes, loads, overs, hottest, [hottest.index(n) if n in hottest else -1 for n in range(nodes)]),
    )


@cache
def _climb(case: ClimbCase) -> tuple[float, float, list[int] | None, list[int], int]:
    place, draws = case.place.tolist(), local_search.Xorshift(case.seed)
    found, target, best = local_search.climb(
        case.base.tolist(),
        case.slope.tolist(),
        case.capacity.tolist(),
        case.aims,
        place,
        case.origin.tolist(),
        case.cost.tolist(),
        case.budget,
        case.steps,
        case.heat,
        draws,
    )
    return found, target, best, place, draws.word


def climb(kernel: Kernel, case: ClimbCase) -> Pair:
    """The same steps: to the same best and last placement, with as many numbers drawn."""
    place, best, state = case.place.copy(), np.full(len(case.place), -1), words(case)
    found, target = kernel(
        case.base,
        case.slope,
        case.capacity,
        0.0,
        case.aims,
        place,
        case.origin,
        case.cost,
        case.budget,
        case.steps,
        case.heat,
        state,
        best,
    )
    return (found, target, best.tolist() if found >= 0 else None, place.tolist(), int(state[0])), _climb(case)


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
