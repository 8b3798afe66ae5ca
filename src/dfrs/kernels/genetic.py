"""The genetic algorithm of 000 section 4.2.4: placements as chromosomes, greedy repair, roulette wheel, elitism.

A placement is feasible where requirements alone fit. The text leaves to GAlib, the library it used, what happens
around its operators; here that is GAlib's simple algorithm: generations do not overlap, two children at a time,
and the best of a generation takes the place of the worst of the next where that has none as good.
"""

import numpy as np

from dfrs.kernels.jit import kernel

_WEYL = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)


@kernel
def uniform(state):
    """The next number in [0, 1) of the SplitMix64 generator whose `state` (1,) is a uint64; modified."""
    state[0] += _WEYL
    z = state[0]
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return np.float64((z ^ (z >> _31)) >> _11) * 2.0**-53


@kernel
def below(state, count):
    """An integer in [0, count)."""
    return np.int64(uniform(state) * count)


@kernel
def shuffle(state, items):
    """A random order of `items`, in place."""
    for k in range(items.size - 1, 0, -1):
        other = below(state, k + 1)
        items[k], items[other] = items[other], items[k]


@kernel
def _node_overloaded(fixed, capacity, tolerance, n):
    for d in range(capacity.shape[1]):
        if capacity[n, d] - fixed[n, d] < -tolerance:
            return True
    return False


@kernel
def fitness(base, slope, capacity, tolerance, place, fixed, rate):
    """N * (1 + Y) where the requirements of `place` (T,) fit and Y is its minimum yield; else the nodes not overloaded.

    Fills `fixed` and `rate` (N, D) with the sums of `base` and `slope` (T, D) on each node.
    """
    nodes, dims = capacity.shape
    fixed[:] = 0.0
    rate[:] = 0.0
    for i in range(place.size):
        n = place[i]
        for d in range(dims):
            fixed[n, d] += base[i, d]
            rate[n, d] += slope[i, d]
    fitting = 0
    least = 1.0
    for n in range(nodes):
        if _node_overloaded(fixed, capacity, tolerance, n):
            continue
        fitting += 1
        for d in range(dims):
            free = capacity[n, d] - fixed[n, d]
            if rate[n, d] > 0.0 and rate[n, d] * least > free:
                least = max(free, 0.0) / rate[n, d]
    return nodes * (1.0 + least) if fitting == nodes else np.float64(fitting)


@kernel
def repair(base, capacity, tolerance, state, place, fixed):
    """Move tasks away from overloaded nodes, taken in random order, as long as others have room; may fail.

    Of an overloaded node, tasks are tried by index; each goes to the node with the least load (the largest over
    dimensions, relative to capacity) that has room for its `base`. `fixed` (N, D) is the load of `place` (T,);
    both are modified.
    """
    nodes, dims = capacity.shape
    head = np.full(nodes, -1, dtype=np.int64)
    after = np.empty(place.size, dtype=np.int64)
    for i in range(place.size - 1, -1, -1):
        after[i] = head[place[i]]
        head[place[i]] = i
    order = np.arange(nodes)
    shuffle(state, order)
    for n in order:
        i = head[n]
        while i >= 0 and _node_overloaded(fixed, capacity, tolerance, n):
            target = _least_loaded(base[i], fixed, capacity, tolerance, n)
            if target >= 0:
                for d in range(dims):
                    fixed[n, d] -= base[i, d]
                    fixed[target, d] += base[i, d]
                place[i] = target
            i = after[i]


@kernel
def _least_loaded(need, fixed, capacity, tolerance, home):
    best = -1
    least = np.inf
    for n in range(capacity.shape[0]):
        if n == home:
            continue
        load = 0.0
        fits = True
        for d in range(need.size):
            if fixed[n, d] + need[d] > capacity[n, d] + tolerance:
                fits = False
                break
            if capacity[n, d] > 0.0:
                load = max(load, fixed[n, d] / capacity[n, d])
        if fits and load < least:
            least = load
            best = n
    return best


@kernel
def _select(state, wheel):
    """A chromosome, with a probability in proportion to its fitness; `wheel` (P,) holds the running sums."""
    ball = uniform(state) * wheel[-1]
    return min(np.searchsorted(wheel, ball, side="right"), wheel.size - 1)


@kernel
def _mutate(state, place):
    """Swap the nodes of two tasks on different nodes; a few tries, for there may be no such pair."""
    for _ in range(place.size):
        i = below(state, place.size)
        j = below(state, place.size)
        if place[i] != place[j]:
            place[i], place[j] = place[j], place[i]
            return True
    return False


@kernel
def evolve(base, slope, capacity, tolerance, settings, upper, seed, place):
    """Run the genetic algorithm; the best chromosome goes into `place` (T,). Returns (its fitness, generations run).

    `settings` = (population, generations, crossover, mutation): even number, number, probabilities. Ends early
    where a minimum yield of `upper` is reached: none is better.
    """
    population, generations, crossover, mutation = settings
    tasks = base.shape[0]
    nodes = capacity.shape[0]
    state = np.array([seed], dtype=np.uint64)
    fixed = np.empty(capacity.shape)
    rate = np.empty(capacity.shape)
    old = np.empty((population, tasks), dtype=np.int64)
    new = np.empty((population, tasks), dtype=np.int64)
    old_score = np.empty(population)
    new_score = np.empty(population)
    for p in range(population):
        for i in range(tasks):
            old[p, i] = below(state, nodes)
        old_score[p] = _settle(base, slope, capacity, tolerance, state, old[p], fixed, rate)
    best = np.argmax(old_score)
    generation = 0
    while generation < generations and old_score[best] < nodes * (1.0 + upper):
        wheel = np.cumsum(old_score)
        for p in range(0, population, 2):
            mother = _select(state, wheel)
            father = _select(state, wheel)
            new[p] = old[mother]
            new[p + 1] = old[father]
            new_score[p] = old_score[mother]
            new_score[p + 1] = old_score[father]
            crossed = uniform(state) < crossover
            if crossed:
                cut = below(state, tasks + 1)
                new[p, cut:] = old[father, cut:]
                new[p + 1, cut:] = old[mother, cut:]
            for child in (p, p + 1):
                mutated = uniform(state) < mutation and _mutate(state, new[child])
                if crossed or mutated:
                    new_score[child] = _settle(base, slope, capacity, tolerance, state, new[child], fixed, rate)
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


@kernel
def _settle(base, slope, capacity, tolerance, state, place, fixed, rate):
    """Fitness of a new chromosome `place` (T,), after an attempt to repair it where it is not feasible."""
    score = fitness(base, slope, capacity, tolerance, place, fixed, rate)
    if score < capacity.shape[0]:
        repair(base, capacity, tolerance, state, place, fixed)
        # Summed anew, in the order of the tasks: differences of loads are not quite the loads.
        score = fitness(base, slope, capacity, tolerance, place, fixed, rate)
    return score
