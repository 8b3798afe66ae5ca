"""The kernels of ADAPT beside their slow twins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.kernels import (
    adapt_anneal,
    adapt_bound,
    adapt_cool,
    adapt_cover,
    adapt_exact,
    adapt_mend,
    adapt_relief,
    adapt_state,
)
from dfrs.kernels.rules import broken, count_members, may_move, may_swap, no_rules
from dfrs.kernels.yields import node_loads
from dfrs.model.instance import Instance
from dfrs.model.rules import Apart, Never, Requires, Rules, Spread, Together
from dfrs.placement.adapt_search import AdaptSearch, Clock
from tests.naive import adapt as naive
from tests.naive.local_search import Xorshift
from tests.rule_cases import random_instance

SEEDS = st.integers(0, 2**32 - 1)


class Case:
    """Some tasks on some nodes, limits, rules, and a placement at a yield aimed at. Grains of 1/16, so ties happen."""

    def __init__(self, seed, *, rules=True, largest=7):
        rng = np.random.default_rng(seed)
        tasks, nodes, dims = int(rng.integers(1, largest + 1)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
        self.rng, self.tasks, self.nodes, self.dims = rng, tasks, nodes, dims
        fluid = rng.random((tasks, dims)) < 0.5
        need = rng.integers(0, 9, (tasks, dims)) / 16
        self.base, self.slope = np.where(fluid, 0.0, need), np.where(fluid, need, 0.0)
        self.capacity = rng.integers(4, 17, (nodes, dims)) / 16 * -(-tasks // (3 * nodes))
        self.origin = rng.integers(-1, nodes, tasks)
        self.place = np.where(rng.random(tasks) < 0.6, self.origin, rng.integers(0, nodes, tasks))
        self.place[self.place < 0] = 0
        units = int(rng.integers(0, 3))
        self.cost = np.where(self.origin >= 0, rng.integers(0, 5, (units, tasks)) / 4, 0.0)
        away = (self.origin >= 0) & (self.place != self.origin)
        self.amount = self.cost[:, away].sum(axis=1) + rng.integers(0, 9, units) / 4
        self.target = float(rng.integers(0, 9) / 8)
        self.rules = no_rules(tasks, nodes)
        if rules and rng.random() < 0.5:
            instance = random_instance(rng, tasks, nodes, int(rng.integers(1, 4)))
            assert instance.rules is not None
            self.rules = instance.rules.arrays
        self.moves = adapt_state.Moves(
            base=frozen(self.base),
            slope=frozen(self.slope),
            capacity=frozen(self.capacity),
            origin=frozen(self.origin),
            cost=frozen(self.cost),
            amount=frozen(self.amount),
            price=frozen(self.cost.max(axis=0, initial=0.0)),
        )
        self.board = self.fresh()

    def fresh(self):
        groups = self.rules.level.size
        return adapt_state.Board(
            place=np.empty(self.tasks, dtype=np.int64),
            head=np.empty(self.nodes, dtype=np.int64),
            after=np.empty(self.tasks, dtype=np.int64),
            before=np.empty(self.tasks, dtype=np.int64),
            size=np.empty((self.tasks, self.dims)),
            free=np.empty((self.nodes, self.dims)),
            scale=np.empty(self.dims),
            tilt=np.ones(self.tasks),
            spent=np.zeros(len(self.amount)),
            source=np.empty(self.tasks, dtype=np.int64),
            counts=np.zeros(int(self.rules.offset[-1]), dtype=np.int64),
            used=np.zeros(groups, dtype=np.int64),
        )

    def set_up(self, place=None, target=None):
        given = self.place if place is None else np.asarray(place)
        adapt_state.set_up(self.moves, self.rules, self.board, given, self.target if target is None else target)
        return self.board

    def check(self):
        """The board is what its placement says."""
        board, place = self.board, self.board.place
        size = naive.sizes(self.base.tolist(), self.slope.tolist(), self.target)
        np.testing.assert_allclose(board.size, size, atol=1e-12)
        np.testing.assert_allclose(board.free, naive.free(size, self.capacity.tolist(), place), atol=1e-12)
        assert board.spent == pytest.approx(naive.spent(self.cost.tolist(), self.origin, place))
        count, used = board.counts.copy(), board.used.copy()
        count_members(self.rules, place, count, used)
        assert np.array_equal(count, board.counts)
        assert np.array_equal(used, board.used)
        for n in range(self.nodes):
            listed, i = [], board.head[n]
            while i >= 0:
                assert board.before[i] == (listed[-1] if listed else -1)
                listed.append(int(i))
                i = board.after[i]
            assert sorted(listed) == np.flatnonzero(place == n).tolist()

    def within(self):
        return all(
            s <= a + 1e-9
            for s, a in zip(naive.spent(self.cost.tolist(), self.origin, self.board.place), self.amount, strict=True)
        )


def frozen(array):
    fixed = np.array(array, order="C", copy=True)
    fixed.setflags(write=False)
    return fixed


@settings(max_examples=100)
@given(SEEDS)
def test_a_board_is_what_its_placement_says_whatever_is_lifted_and_put(seed):
    case = Case(seed)
    board = case.set_up()
    case.check()
    for _ in range(8):
        i = int(case.rng.integers(case.tasks))
        if board.place[i] >= 0:
            before, cost = board.spent.copy(), case.cost[:, i]
            dear = board.place[i] == case.origin[i] and bool((before + cost > case.amount).any())
            assert adapt_state.affords(case.moves, board, i) == (not dear)
            adapt_state.lift(case.moves, case.rules, board, i)
        else:
            adapt_state.put(case.moves, case.rules, board, i, int(case.rng.integers(case.nodes)))
        case.check()


@settings(max_examples=150)
@given(SEEDS)
def test_departures_are_the_fewest_and_cost_no_more_than_they_must(seed):
    case = Case(seed)
    place = np.where(case.rng.random(case.tasks) < 0.1, -1, case.place)
    fewest, least = np.zeros(case.nodes, dtype=np.int64), np.zeros(len(case.amount))
    first, member = adapt_bound.members_of(place, case.nodes)
    here = np.flatnonzero(place >= 0)
    fixed, rate = node_loads(case.base[here], case.slope[here], case.nodes, place[here])
    room = case.capacity + 1e-9
    adapt_bound.departures(
        case.base, case.slope, room, fixed, rate, first, member, case.cost, case.target, fewest, least
    )
    size = naive.sizes(case.base.tolist(), case.slope.tolist(), case.target)
    counts, costs = naive.departures(size, room.tolist(), place, case.cost.tolist())
    assert fewest.tolist() == counts
    assert (least <= np.array(costs) + 1e-9).all()
    alike = [b for b, cost in enumerate(case.cost) if len(set(cost[place >= 0].tolist())) == 1]
    for b in alike:
        assert least[b] == pytest.approx(sum(counts) * case.cost[b][place >= 0][0])


@settings(max_examples=150)
@given(SEEDS)
def test_a_cover_covers_and_has_no_task_too_many(seed):
    case = Case(seed, rules=False)
    board = case.set_up(place=np.zeros(case.tasks, dtype=np.int64))
    lack = case.rng.integers(-4, 13, case.dims) / 16
    if lack.max() <= 0:
        return
    only_free = bool(case.rng.random() < 0.3)
    out = np.empty(case.tasks, dtype=np.int64)
    count = adapt_cover.cover(case.moves, board, 0, lack, only_free, out)
    size = board.size.tolist()
    away = [case.origin[i] != 0 for i in range(case.tasks)]
    may = [i for i in range(case.tasks) if away[i] or (not only_free and adapt_state.affords(case.moves, board, i))]
    if count < 0:
        assert not naive.covers(size, may, lack.tolist())
        return
    some = out[:count].tolist()
    assert set(some) <= set(may)
    assert naive.covers(size, some, lack.tolist())
    assert not any(naive.covers(size, [j for j in some if j != i], lack.tolist()) for i in some)
    if count == 1:
        alone = [i for i in may if naive.covers(size, [i], lack.tolist())]
        rank = {i: (0.0 if away[i] else float(case.moves.price[i]), adapt_state.weight(board, i)) for i in alone}
        assert rank[some[0]] == min(rank.values())
    prices = {0.0 if away[i] else float(case.moves.price[i]) for i in may}
    if len(prices) == 1 and (lack > 0).sum() == 1:
        assert count == naive.least_cover([size[i] for i in may], [1.0] * len(may), lack.tolist())


@settings(max_examples=150)
@given(SEEDS)
def test_a_task_goes_home_or_where_it_leaves_least(seed):
    case = Case(seed)
    board = case.set_up()
    i = int(case.rng.integers(case.tasks))
    adapt_state.lift(case.moves, case.rules, board, i)
    room = naive.free(board.size.tolist(), case.capacity.tolist(), board.place)
    fitting = [
        n
        for n in range(case.nodes)
        if all(s <= f + 1e-12 for s, f in zip(board.size[i], room[n], strict=True))
        and adapt_state.permitted(case.rules, board, i, n)
    ]
    got = adapt_relief.best_node(case.moves, case.rules, board, i)
    if case.origin[i] in fitting:
        assert got == case.origin[i]
    elif not fitting:
        assert got == -1
    else:
        spare = {n: sum(w * f for w, f in zip(board.scale, room[n], strict=True)) for n in fitting}
        assert spare[got] == pytest.approx(min(spare.values()))


@settings(max_examples=150)
@given(SEEDS)
def test_what_is_permitted_breaks_no_rule_that_was_kept(seed):
    case = Case(seed)
    board = case.set_up()
    i = int(case.rng.integers(case.tasks))
    kept = broken(case.rules, board.place) == 0
    adapt_state.lift(case.moves, case.rules, board, i)
    for n in range(case.nodes):
        if adapt_state.permitted(case.rules, board, i, n):
            after = board.place.copy()
            after[i] = n
            assert not kept or broken(case.rules, after) == 0


def under_rules(*rules):
    """Tasks a to d of CPU 0.25, a to c on the first of four nodes and d on the second, under rules."""
    instance = Instance.from_arrays(
        np.ones((4, 1)), np.full((4, 1), 0.25), [False], services=("a", "b", "c", "d"), rules=Rules(rules)
    )
    assert instance.rules is not None
    present, one = np.array([0, 0, 0, 1]), np.ones(1)
    clock = Clock(time_limit_s=1.0, rounds=1)
    arrays = instance.rules.arrays
    rng = np.random.default_rng(0)
    search = AdaptSearch(instance, present, np.ones((1, 4)), 4 * one, arrays, 1.0, clock, rng)
    adapt_state.set_up(search.moves, search.rules, search.board, present, 1.0)
    return search.moves, search.rules, search.board


@pytest.mark.parametrize(
    ("rule", "leave"),
    [
        (Apart(("a", "b", "c", "d"), level="node"), [0, 1]),
        (Apart(("a", "b", "c"), at_most=2, level="node"), [0]),
        (Together(("a", "b", "d"), level="node"), [3]),
        (Spread(("a", "b", "c"), at_least=2, level="node"), [0]),
        (Requires(("d",), ("a",), level="node"), [3]),
        (Never(("b",), ("n0",)), [1]),
        (Apart(("a", "d"), level="node"), []),
    ],
)
def test_those_leave_whose_departure_mends_a_rule_and_no_others(rule, leave):
    moves, rules, board = under_rules(rule)
    pending = np.empty(4, dtype=np.int64)
    count = adapt_mend.evict(moves, rules, board, pending, 0)
    assert pending[:count].tolist() == leave
    assert np.flatnonzero(board.place < 0).tolist() == leave


def test_a_host_that_left_guests_behind_goes_back_to_them():
    moves, rules, board = under_rules(Requires(("a",), ("b",), level="node"))
    adapt_state.lift(moves, rules, board, 1)
    assert [adapt_state.permitted(rules, board, 1, n) for n in range(4)] == [True, False, False, False]
    adapt_state.lift(moves, rules, board, 0)
    assert [adapt_state.permitted(rules, board, 1, n) for n in range(4)] == [True] * 4


@settings(max_examples=150)
@given(SEEDS)
def test_relief_ends_within_capacities_and_limits_or_says_where_it_failed(seed):
    case = Case(seed)
    board = case.set_up()
    pending = np.empty(case.tasks, dtype=np.int64)
    count = adapt_mend.evict(case.moves, case.rules, board, pending, 0)
    if count >= 0:
        count = adapt_relief.shed(case.moves, case.rules, board, 0, case.nodes, pending, count)
    case.check()
    assert case.within()
    if count < 0:
        return
    assert sorted(pending[:count].tolist()) == np.flatnonzero(board.place < 0).tolist()
    assert not any(adapt_state.overloaded(board, n) for n in range(case.nodes))
    order = adapt_relief.by_weight(board, pending[:count])
    assert sorted(order.tolist()) == sorted(pending[:count].tolist())
    heavy = [adapt_state.weight(board, i) for i in order]
    assert heavy == sorted(heavy, reverse=True)
    failed, stuck, rooms = 0, False, 0
    while failed < count and not stuck:
        before = failed
        failed, looked, stuck = adapt_relief.settle(case.moves, case.rules, board, order, failed, count, 1)
        assert looked <= 1
        rooms += 1
        assert stuck or failed > before
    assert rooms <= count
    case.check()
    assert case.within()
    assert set(np.flatnonzero(board.place < 0)) == set(order[failed:].tolist())
    assert (board.free >= -1e-9).all()


@settings(max_examples=150)
@given(SEEDS)
def test_nothing_can_be_given_back_twice(seed):
    case = Case(seed)
    board = case.set_up(target=0.0)
    case.target = 0.0
    if (board.free < 0).any():
        return
    kept = broken(case.rules, board.place) == 0
    before = (board.place != case.origin) & (case.origin >= 0)
    came = adapt_relief.give_back(case.moves, case.rules, board)
    case.check()
    after = (board.place != case.origin) & (case.origin >= 0)
    assert came == (before.sum() > after.sum())
    assert not (after & ~before).any()
    assert (board.free >= -1e-9).all()
    assert not kept or broken(case.rules, board.place) == 0
    for i in np.flatnonzero(after):
        adapt_state.lift(case.moves, case.rules, board, i)
        home = case.origin[i]
        assert not (adapt_state.fits(board, i, home) and adapt_state.permitted(case.rules, board, i, home))
        case.set_up(place=np.where(np.arange(case.tasks) == i, case.place, board.place), target=0.0)
        break


@settings(max_examples=60)
@given(SEEDS)
def test_exact_search_finds_the_best_of_all_placements(seed):
    case = Case(seed, largest=4)
    count, used = case.board.counts, case.board.used
    count[:], used[:] = 0, 0
    best = np.empty(case.tasks, dtype=np.int64)
    order = case.rng.permutation(case.tasks)
    found, complete, _ = adapt_exact.search(case.moves, case.rules, count, used, order, (-1e-9, 1.0, 10**6), best)
    base, slope, capacity = case.base.tolist(), case.slope.tolist(), case.capacity.tolist()
    all_placements = naive.placements(case.origin, case.cost.tolist(), case.amount.tolist(), case.nodes, case.rules)
    highest = max((naive.minimum(base, slope, capacity, place) for place in all_placements), default=-1.0)
    assert complete
    assert found == pytest.approx(highest, abs=1e-8)


@settings(max_examples=100)
@given(SEEDS)
def test_the_greedy_raises_the_lowest_yield_as_its_twin_does(seed):
    case = Case(seed)
    board = case.set_up(target=0.0)
    case.target = 0.0
    # One step: which of equals comes first depends on the order of a node's list afterwards.
    made = adapt_cool.cool(case.moves, case.rules, board, 1)

    def may(place, changes):
        ((i, b),) = changes.items()
        now = np.array(place)
        count, used = board.counts.copy(), board.used.copy()
        count_members(case.rules, now, count, used)
        return may_move(case.rules, count, used, i, now[i], b)

    problem = case.base.tolist(), case.slope.tolist(), case.capacity.tolist()
    limits = case.origin.tolist(), case.cost.tolist(), case.amount.tolist()
    place = case.place.tolist()
    assert made == naive.cool(problem, limits, may, place, 1)
    # Another move may be as good up to rounding.
    got, expected = (naive.minimum(*problem, p) for p in (board.place.tolist(), place))
    assert got == pytest.approx(expected)
    assert broken(case.rules, board.place) <= broken(case.rules, case.place)
    adapt_cool.cool(case.moves, case.rules, board, 20)
    case.check()
    assert case.within()


@settings(max_examples=100)
@given(SEEDS)
def test_annealing_does_what_its_twin_does(seed):
    case = Case(seed)
    board = case.set_up()
    kept = broken(case.rules, board.place)
    best = np.full(case.tasks, -1, dtype=np.int64)
    # A success adds all that is left, so that yields aimed at, and sizes, stay exact.
    aims, steps, heat = (case.target, 2.0, 1.0), 60, (0.1, 1e-3)
    word = seed * 2 + 1
    state = np.array([word], dtype=np.uint64)
    found, target = adapt_anneal.anneal(case.moves, case.rules, board, aims, steps, heat, state, best)

    def may(place, changes):
        count, used = board.counts.copy(), board.used.copy()
        now = np.array(place)
        count_members(case.rules, now, count, used)
        (i, b), *rest = changes.items()
        if rest:
            return may_swap(case.rules, count, used, i, now[i], rest[0][0], b)
        return may_move(case.rules, count, used, i, now[i], b)

    place = case.place.tolist()
    problem = case.base.tolist(), case.slope.tolist(), case.capacity.tolist()
    limits = case.origin.tolist(), case.cost.tolist(), case.amount.tolist()
    expected = naive.anneal(problem, limits, may, aims, place, steps, heat, Xorshift(word))
    assert board.place.tolist() == place
    assert found == pytest.approx(expected[0])
    assert target == expected[1]
    assert (None if found < 0 else best.tolist()) == expected[2]
    case.target = target
    case.check()
    assert case.within()
    assert broken(case.rules, board.place) <= kept
