"""The genetic algorithm of [Stillwell2010] 4.2.4: placements as chromosomes, greedy repair, roulette wheel, elitism.

A placement is feasible where requirements alone fit. The text leaves to GAlib, the library it used, what happens
around its operators; here that is GAlib's simple algorithm: generations do not overlap, two children at a time,
and the best of a generation takes the place of the worst of the next where that has none as good. The wheel turns
by fitness itself, not by GAlib's linear scaling of it: that is what comes out near the published figures.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Floats, Ints, Words, kernel

_WEYL = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)


@kernel
def uniform(state: Words) -> float:
    """The next number in [0, 1) of the SplitMix64 generator with `state` (1,), modified: the upper 53 bits."""
    state[0] += _WEYL
    z = state[0]
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return np.float64((z ^ (z >> _31)) >> _11) * 2.0**-53


@kernel
def below(state: Words, count: int) -> int:
    """An integer in [0, count)."""
    return np.int64(uniform(state) * count)


@kernel
def shuffle(state: Words, items: Ints) -> None:
    """Put `items` in a random order, in place."""
    for k in range(items.size - 1, 0, -1):
        other = below(state, k + 1)
        items[k], items[other] = items[other], items[k]


@kernel
def _overloaded(fixed: Floats, capacity: Floats, tolerance: float, n: int) -> bool:
    over = False
    for d in range(capacity.shape[1]):
        over |= capacity[n, d] - fixed[n, d] < -tolerance
    return over


@kernel
def _count_fitting(fixed: Floats, capacity: Floats, tolerance: float) -> int:
    count = 0
    for n in range(capacity.shape[0]):
        if not _overloaded(fixed, capacity, tolerance, n):
            count += 1
    return count


@kernel
def _sum_by_node(amount: Floats, place: Ints, total: Floats) -> None:
    total[:] = 0.0
    for i in range(place.size):
        n = place[i]
        for d in range(total.shape[1]):
            total[n, d] += amount[i, d]


@kernel
def _load(fixed: Floats, capacity: Floats, n: int) -> float:
    """The largest load of node `n`, over dimensions, relative to its capacity."""
    load = 0.0
    for d in range(capacity.shape[1]):
        if capacity[n, d] > 0.0:
            load = max(load, fixed[n, d] / capacity[n, d])
    return load


@kernel
def _least_loaded(need: Floats, fixed: Floats, capacity: Floats, tolerance: float, load: Floats, home: int) -> int:
    best = -1
    least = np.inf
    for n in range(capacity.shape[0]):
        if load[n] < least and n != home:
            fits = True
            for d in range(need.size):
                if fixed[n, d] + need[d] > capacity[n, d] + tolerance:
                    fits = False
                    break
            if fits:
                least = load[n]
                best = n
    return best


@kernel
def repair(base: Floats, capacity: Floats, tolerance: float, state: Words, place: Ints, fixed: Floats) -> None:
    """Move tasks away from overloaded nodes, taken in random order, as long as others have room; may fail.

    Of an overloaded node, tasks are tried by index; each goes to the least loaded node (by its largest load over
    dimensions, relative to capacity) that has room for its `base`. `fixed` (N, D) is the load of `place` (T,);
    both are modified.
    """
    nodes, dims = capacity.shape
    head = np.full(nodes, -1, dtype=np.int64)
    after = np.empty(place.size, dtype=np.int64)
    for i in range(place.size - 1, -1, -1):
        after[i] = head[place[i]]
        head[place[i]] = i
    load = np.empty(nodes)
    for n in range(nodes):
        load[n] = _load(fixed, capacity, n)
    order = np.arange(nodes)
    shuffle(state, order)
    for n in order:
        i = head[n]
        while i >= 0 and _overloaded(fixed, capacity, tolerance, n):
            target = _least_loaded(base[i], fixed, capacity, tolerance, load, n)
            if target >= 0:
                for d in range(dims):
                    fixed[n, d] -= base[i, d]
                    fixed[target, d] += base[i, d]
                load[n] = _load(fixed, capacity, n)
                load[target] = _load(fixed, capacity, target)
                place[i] = target
            i = after[i]


@kernel
def settle(
    base: Floats,
    slope: Floats,
    capacity: Floats,
    tolerance: float,
    state: Words,
    place: Ints,
    fixed: Floats,
    rate: Floats,
) -> float:
    """Repair a new chromosome `place` (T,) where it is not feasible; its fitness after that.

    N * (1 + Y) where its requirements fit and Y is its minimum yield; else the number of nodes not overloaded.
    `fixed` and `rate` (N, D) are scratch.
    """
    nodes, dims = capacity.shape
    _sum_by_node(base, place, fixed)
    fitting = _count_fitting(fixed, capacity, tolerance)
    if fitting < nodes:
        repair(base, capacity, tolerance, state, place, fixed)
        # Summed anew, in the order of the tasks: differences of loads are not quite the loads.
        _sum_by_node(base, place, fixed)
        fitting = _count_fitting(fixed, capacity, tolerance)
        if fitting < nodes:
            return np.float64(fitting)
    _sum_by_node(slope, place, rate)
    least = 1.0
    for n in range(nodes):
        for d in range(dims):
            free = capacity[n, d] - fixed[n, d]
            if rate[n, d] > 0.0 and rate[n, d] * least > free:
                least = max(free, 0.0) / rate[n, d]
    return nodes * (1.0 + least)


@kernel
def _select(state: Words, wheel: Floats) -> int:
    """A chromosome, with a probability in proportion to its fitness; `wheel` (P,) holds the running sums."""
    ball = uniform(state) * wheel[-1]
    return min(np.searchsorted(wheel, ball, side="right"), wheel.size - 1)


@kernel
def _mutate(state: Words, place: Ints) -> bool:
    """Swap the nodes of two tasks on different nodes; whether a pair was found in as many tries as there are tasks."""
    for _ in range(place.size):
        i = below(state, place.size)
        j = below(state, place.size)
        if place[i] != place[j]:
            place[i], place[j] = place[j], place[i]
            return True
    return False


@kernel
def _cross(state: Words, mother: Ints, father: Ints, one: Ints, other: Ints) -> None:
    """Cut both parents (T,) at one point: the children get the head of one and the tail of the other."""
    cut = below(state, mother.size + 1)
    one[:cut] = mother[:cut]
    one[cut:] = father[cut:]
    other[:cut] = father[:cut]
    other[cut:] = mother[cut:]


@kernel
def evolve(
    base: Floats,
    slope: Floats,
    capacity: Floats,
    tolerance: float,
    settings: tuple[int, int, float, float],
    upper: float,
    seed: int,
    place: Ints,
) -> tuple[float, int]:
    """Run the genetic algorithm; the best chromosome goes into `place` (T,). Returns (its fitness, generations run).

    `settings` = (population, generations, crossover, mutation): even number, number, probabilities. Ends early
    where a minimum yield of `upper` is reached: none is better.
    """
    population, generations, crossover, mutation = settings
    tasks, nodes = base.shape[0], capacity.shape[0]
    state = np.array([seed], dtype=np.uint64)
    fixed, rate = np.empty(capacity.shape), np.empty(capacity.shape)
    old = np.empty((population, tasks), dtype=np.int64)
    new = np.empty((population, tasks), dtype=np.int64)
    old_score, new_score = np.empty(population), np.empty(population)
    for p in range(population):
        for i in range(tasks):
            old[p, i] = below(state, nodes)
        old_score[p] = settle(base, slope, capacity, tolerance, state, old[p], fixed, rate)
    best = np.argmax(old_score)
    generation = 0
    while generation < generations and old_score[best] < nodes * (1.0 + upper):
        wheel = np.cumsum(old_score)
        for p in range(0, population, 2):
            mother = _select(state, wheel)
            father = _select(state, wheel)
            crossed = uniform(state) < crossover
            if crossed:
                _cross(state, old[mother], old[father], new[p], new[p + 1])
            else:
                new[p] = old[mother]
                new[p + 1] = old[father]
                new_score[p] = old_score[mother]
                new_score[p + 1] = old_score[father]
            for child in (p, p + 1):
                mutated = uniform(state) < mutation and _mutate(state, new[child])
                if crossed or mutated:
                    new_score[child] = settle(base, slope, capacity, tolerance, state, new[child], fixed, rate)
        if new_score.max() < old_score[best]:
            worst = np.argmin(new_score)
            new[worst] = old[best]
            new_score[worst] = old_score[best]
        old, new = new, old
        old_score, new_score = new_score, old_score
        best = np.argmax(old_score)
        generation += 1
    place[:] = old[best]
    return old_score[best], generation
