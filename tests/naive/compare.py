"""What a kernel says about a case beside what its twin says: two values that must be equal.

Used with compiled kernels on drawn cases, and with deliberately broken ones on seeded cases. A kernel is an argument.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dfrs.kernels import packing as kernels
from dfrs.model.instance import Floats, Ints
from tests.cases import GreedyCase, KeyCase, PackingCase, SearchCase, YieldCase, empty_place
from tests.naive import greedy, packing, search, sorting, yields

Kernel = Callable[..., Any]
Pair = tuple[object, object]
METHODS = {"FF": kernels.FIRST_FIT, "BF": kernels.BEST_FIT, "LISTS": kernels.BY_LISTS}


def stable_order(kernel: Kernel, case: KeyCase) -> Pair:
    return kernel(case.key, case.ascending).tolist(), sorting.stable_order(case.key.tolist(), case.ascending)


def sort_order(kernel: Kernel, case: PackingCase) -> Pair:
    order = kernel(case.size, getattr(kernels, case.criterion), case.ascending, case.lexicographic)
    return order.tolist(), packing.sort_order(
        case.size.tolist(), case.criterion, case.ascending, case.lexicographic.tolist()
    )


def pack_first_fit(kernel: Kernel, case: PackingCase) -> Pair:
    return _one_after_another(kernel, case, packing.first_fit)


def pack_best_fit(kernel: Kernel, case: PackingCase) -> Pair:
    return _one_after_another(kernel, case, packing.best_fit)


def _one_after_another(kernel: Kernel, case: PackingCase, twin: Callable[..., packing.Packed]) -> Pair:
    place = empty_place(len(case.size))
    success = kernel(case.size, case.order, case.capacity, case.tolerance, case.partial, place)
    return (success, place.tolist()), twin(
        case.size.tolist(), case.order.tolist(), case.capacity.tolist(), case.tolerance, case.partial
    )


def list_code(kernel: Kernel, case: PackingCase) -> Pair:
    dims = case.size.shape[1]
    chosen = case.lexicographic[: case.window]
    return int(kernel(chosen, dims, case.ordered)), packing.list_code(chosen.tolist(), dims, case.ordered)


def largest(kernel: Kernel, case: PackingCase) -> Pair:
    out = np.empty((len(case.size), case.window), dtype=np.int64)
    for vector, row in zip(case.size, out, strict=True):
        kernel(vector, case.window, row)
    return out.tolist(), [packing.largest(vector, case.window) for vector in case.size.tolist()]


def group(kernel: Kernel, case: PackingCase) -> Pair:
    window, _, list_of_code = case.plan
    lists = int(list_of_code.max()) + 1
    start, task, vector = kernel(case.size, case.order, window, case.ordered, list_of_code, lists)
    members = packing.grouped(
        case.size.tolist(), case.order.tolist(), window, case.ordered, lambda code: int(list_of_code[code])
    )
    members += [[]] * (lists - len(members))
    ends = np.cumsum([0, *map(len, members)]).tolist()
    flat = [i for some in members for i in some]
    return (start.tolist(), task.tolist(), vector.tolist()), (ends, flat, [case.size[i].tolist() for i in flat])


def block_low(kernel: Kernel, case: PackingCase) -> Pair:
    tasks, dims = case.size.shape
    alive, begin = case.order % 3 > 0, tasks // 3
    end = tasks - tasks // 4
    low = np.empty(dims)
    kernel(case.size, alive, begin, end, low)
    living = [v for v, lives in zip(case.size[begin:end].tolist(), alive[begin:end], strict=True) if lives]
    return low.tolist(), packing.lowest(living, dims)


def first_that_fits(kernel: Kernel, case: PackingCase) -> Pair:
    """The vectors behind the first third are one list by decreasing sum, of which some are gone."""
    tasks, dims = case.size.shape
    vectors = case.size[np.argsort(-case.size.sum(axis=1), kind="stable")]
    alive, begin = case.order % 3 > 0, tasks // 3
    blocks = range(begin, tasks, kernels.BLOCK)
    others = 2
    low = np.full((others + len(blocks), dims), np.inf)
    for b, start in enumerate(blocks):
        block = slice(start, start + kernels.BLOCK)
        low[others + b] = packing.lowest(vectors[block][alive[block]].tolist(), dims)
    got, expected = [], []
    for room in [*case.capacity[:3], *vectors[:: max(1, tasks // 5)]]:
        for cursor in (begin, begin + (tasks - begin) // 2, tasks):
            got.append(kernel(vectors, alive, low, others, begin, tasks, cursor, room.copy()))
            expected.append(packing.first_that_fits(vectors.tolist(), alive.tolist(), cursor, tasks, room.tolist()))
    return got, expected


def pack_by_lists(kernel: Kernel, case: PackingCase) -> Pair:
    window, plan, list_of_code = case.plan
    place = empty_place(len(case.size))
    success = kernel(case.size, case.order, case.capacity, case.tolerance, window, plan, list_of_code, place)
    return _if_packed(success, place), _if_packed(*_twin_pack(case, "LISTS"))


def pack(kernel: Kernel, case: PackingCase) -> Pair:
    got, expected = [], []
    for name, number in METHODS.items():
        window, plan, list_of_code = case.plan
        place = empty_place(len(case.size))
        success = kernel(
            case.size,
            case.order,
            case.capacity,
            case.tolerance,
            number,
            case.partial,
            window,
            plan,
            list_of_code,
            place,
        )
        got.append(_if_packed(success, place))
        expected.append(_if_packed(*_twin_pack(case, name)))
    return got, expected


def _if_packed(success: bool, place: Ints | list[int]) -> list[int] | None:
    """What a packing that failed has placed is nobody's business: a packer may see early that it must fail."""
    return np.asarray(place).tolist() if success else None


def _twin_pack(
    case: PackingCase, method: str, size: Floats | None = None, order: list[int] | None = None
) -> packing.Packed:
    sizes = (case.size if size is None else size).tolist()
    ranked = case.order.tolist() if order is None else order
    nodes = case.capacity.tolist()
    if method == "FF":
        return packing.first_fit(sizes, ranked, nodes, case.tolerance, case.partial)
    if method == "BF":
        return packing.best_fit(sizes, ranked, nodes, case.tolerance, case.partial)
    return packing.by_lists(
        sizes, ranked, nodes, case.tolerance, window=case.window, ordered=case.ordered, by_index=case.by_index
    )


def dominance_order(kernel: Kernel, case: PackingCase) -> Pair:
    place = np.array([i % (len(case.capacity) + 1) - 1 for i in case.order], dtype=np.int64)
    return kernel(case.size, case.capacity, place).tolist(), search.dominance_order(
        case.size.tolist(), case.capacity.tolist(), place.tolist()
    )


def search_yield(kernel: Kernel, case: SearchCase) -> Pair:
    problem = case.packing
    window, plan, list_of_code = problem.plan
    place = empty_place(len(problem.size))
    searched = kernel(
        problem.size,
        case.slope,
        problem.capacity,
        problem.tolerance,
        (case.upper, case.width, case.ends),
        METHODS[case.method],
        getattr(kernels, problem.criterion),
        problem.ascending,
        problem.lexicographic,
        window,
        plan,
        list_of_code,
        case.dominance,
        place,
    )
    found, packed = search.search_yield(lambda target: _packing_at(case, target), case.upper, case.width, case.ends)
    return (searched, _if_packed(searched >= 0, place)), (found, packed)


def _packing_at(case: SearchCase, target: float) -> list[int] | None:
    problem = case.packing
    size = problem.size + target * case.slope
    order = packing.sort_order(size.tolist(), problem.criterion, problem.ascending, problem.lexicographic.tolist())
    success, place = _search_pack(case, size, order)
    if not success and case.dominance:
        order = search.dominance_order(size.tolist(), problem.capacity.tolist(), place)
        success, place = _search_pack(case, size, order)
    return place if success else None


def _search_pack(case: SearchCase, size: Floats, order: list[int]) -> packing.Packed:
    """In a search a packing is partial if and only if the add-on will want to know how far it came."""
    problem = case.packing
    nodes = problem.capacity.tolist()
    if case.method == "LISTS":
        return _twin_pack(problem, "LISTS", size, order)
    twin = packing.first_fit if case.method == "FF" else packing.best_fit
    return twin(size.tolist(), order, nodes, problem.tolerance, case.dominance)


def argmax(kernel: Kernel, case: GreedyCase) -> Pair:
    return [kernel(v) for v in case.base], [greedy.argmax(v) for v in case.base.tolist()]


def place_greedily(kernel: Kernel, case: GreedyCase) -> Pair:
    place = empty_place(len(case.base))
    success = kernel(case.base, case.fluid, case.order, case.capacity, case.tolerance, case.rule, place)
    return (success, place.tolist()), greedy.place_greedily(
        case.base.tolist(),
        case.fluid.tolist(),
        case.order.tolist(),
        case.capacity.tolist(),
        tolerance=case.tolerance,
        rule=case.rule,
    )


def place_by_load(kernel: Kernel, case: GreedyCase) -> Pair:
    place = empty_place(len(case.base))
    work = case.fluid.sum(axis=1)
    backtrack = case.attempts is not None
    success, used = kernel(
        case.base, work, case.order, case.capacity, case.tolerance, backtrack, case.attempts or 0, place
    )
    arguments = case.base.tolist(), work.tolist(), case.order.tolist(), case.capacity.tolist()
    if case.attempts is None:
        packed, placements, expected = greedy.place_by_load(*arguments, case.tolerance)
    else:
        packed, placements, expected = greedy.place_with_backtracking(
            *arguments, tolerance=case.tolerance, attempts=case.attempts
        )
    return (success, used, _if_packed(success, place)), (packed, placements, expected if packed else None)


def node_loads(kernel: Kernel, case: YieldCase) -> Pair:
    fixed, rate = kernel(case.base, case.slope, len(case.capacity), case.place)
    return (fixed.tolist(), rate.tolist()), yields.node_loads(
        case.base.tolist(), case.slope.tolist(), len(case.capacity), case.place.tolist()
    )


def minimum_yield(kernel: Kernel, case: YieldCase) -> Pair:
    """As the case is, and with a node less of everything than the tasks require."""
    short = np.maximum(case.capacity - 0.125, 0.0)
    got = [kernel(case.base, case.slope, c, case.place, case.tolerance) for c in (case.capacity, short)]
    return _rounded(got), _rounded([_twin_minimum(case, c) for c in (case.capacity, short)])


def fill_average(kernel: Kernel, case: YieldCase) -> Pair:
    raised = np.full(len(case.base), case.level)
    kernel(case.slope, case.room, case.place, raised, case.tolerance)
    expected = yields.fill_average(
        case.slope.tolist(), case.room.tolist(), case.place.tolist(), [case.level] * len(case.base)
    )
    return _rounded(raised), _rounded(expected)


def fill_max_min(kernel: Kernel, case: YieldCase) -> Pair:
    services = int(case.service_of.max()) + 1
    raised = np.full(services, case.level)
    kernel(case.slope, case.room, case.place, case.service_of, raised, case.tolerance)
    expected = yields.fill_max_min(
        case.slope.tolist(),
        case.room.tolist(),
        case.place.tolist(),
        case.service_of.tolist(),
        [case.level] * services,
    )
    return _rounded(raised), _rounded([float(y) for y in expected])


def _twin_minimum(case: YieldCase, capacity: Floats) -> float:
    return yields.minimum_yield(
        case.base.tolist(), case.slope.tolist(), capacity.tolist(), case.place.tolist(), case.tolerance
    )


def _rounded(values: object) -> list[float]:
    """Yields may differ by the rounding of a few operations, not more."""
    return [float(value) for value in np.round(np.asarray(values, dtype=float), 7) + 0.0]
