"""Moves of machine reassignment beside the definition: costs and hard constraints."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.kernels import reassign as kernels
from dfrs.kernels import reassign_push as pushes
from dfrs.kernels.reassign_search import anneal
from dfrs.placement.reassign_state import cost_parts, make_state
from tests.naive import reassign as naive
from tests.reassign_cases import arrays, reassignments


def fill(move, place, who, target, cycle):
    """Say a move to the kernels."""
    for k, (p, m) in enumerate(zip(who, target, strict=True)):
        move[: kernels.SHAPE, k] = p, place[p], m
    move[kernels.SHAPE, :2] = len(who), cycle


def possible(state, move):
    loads, rules, moves = state.loads, state.rules, state.moves
    return kernels.possible(loads.need, loads.room, moves.home, rules.service, rules.present, move)


def flat(state):
    """All arrays of a state, by name."""
    for name, part in zip(state._fields, state, strict=True):
        if isinstance(part, np.ndarray):
            yield name, part
        elif hasattr(part, "_fields"):
            yield from flat(part)


def assert_equal_to_new(instance, state):
    for (name, got), (_, expected) in zip(flat(state), flat(make_state(instance, state.place)), strict=True):
        if name not in ("head", "after", "ahead"):
            np.testing.assert_array_equal(got, expected, err_msg=name)
    for m, first in enumerate(state.head):
        circle = [] if first < 0 else [first]
        while circle and state.after[circle[-1]] != first:
            circle.append(state.after[circle[-1]])
            assert state.ahead[circle[-1]] == circle[-2]
        assert sorted(circle) == np.flatnonzero(state.place == m).tolist()


@settings(max_examples=200)
@given(case=reassignments())
def test_every_move_is_allowed_and_priced_as_defined(case):
    problem, place = case
    assert naive.is_feasible(problem, place)
    state = make_state(arrays(problem), np.array(place))
    assert state.total[0] == naive.cost(problem, place)
    move = np.zeros((4, 3), dtype=np.int64)
    for who, target, cycle in naive.moves(place, len(problem.capacity))[:300]:
        fill(move, place, who, target, cycle)
        then = naive.after(place, who, target)
        allowed = possible(state, move)
        if allowed:
            assert kernels.change(state, move) == naive.cost(problem, then) - naive.cost(problem, place)
            kernels.record(state.rules, move, False)
            allowed = kernels.kept(state.rules, move)
            kernels.record(state.rules, move, True)
        assert allowed == naive.is_feasible(problem, then)
    assert_equal_to_new(arrays(problem), state)


@settings(max_examples=200)
@given(case=reassignments(), picks=st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_what_the_state_counts_follows_moves(case, picks):
    problem, place = case
    instance = arrays(problem)
    state = make_state(instance, np.array(place))
    move = np.zeros((4, 3), dtype=np.int64)
    for pick in picks:
        allowed = [
            each
            for each in naive.moves(place, len(problem.capacity))[pick % 7 :: 7]
            if naive.is_feasible(problem, naive.after(place, each[0], each[1]))
        ]
        if not allowed:
            continue
        who, target, cycle = allowed[pick % len(allowed)]
        fill(move, place, who, target, cycle)
        assert possible(state, move)
        delta = kernels.change(state, move)
        kernels.record(state.rules, move, False)
        kernels.carry_out(state, move, delta)
        place = naive.after(place, who, target)
        assert tuple(state.place) == place
        assert_equal_to_new(instance, state)


@settings(max_examples=100)
@given(case=reassignments(), seed=st.integers(0, 2**32), heat=st.sampled_from([0.01, 3.0, 100.0]))
def test_annealing_keeps_every_constraint_and_its_best(case, seed, heat):
    problem, place = case
    instance = arrays(problem)
    state = make_state(instance, np.array(place))
    best = np.array(place)
    words, mix = np.array([seed], dtype=np.uint64), np.array([0.4, 0.7, 0.9, 0.5, 0.3])
    least = naive.cost(problem, place)
    for _ in range(5):
        before = least
        least, _ = anneal(state, words, 200, heat, heat / 10, mix, best, least)
        assert least <= before
        assert least <= naive.cost(problem, tuple(state.place))
        assert naive.is_feasible(problem, tuple(state.place))
        assert naive.is_feasible(problem, tuple(best))
        assert naive.cost(problem, tuple(best)) == least == cost_parts(instance, best).total
    assert_equal_to_new(instance, state)


@settings(max_examples=200)
@given(case=reassignments(), seed=st.integers(0, 2**32), heat=st.sampled_from([0.01, 3.0, 1e6]))
def test_pushes_keep_every_constraint_or_change_nothing(case, seed, heat):
    problem, place = case
    instance = arrays(problem)
    state = make_state(instance, np.array(place))
    words = np.array([seed], dtype=np.uint64)
    move, trail = np.zeros((4, 3), dtype=np.int64), np.zeros((2, pushes.LONGEST), dtype=np.int64)
    for _ in range(20):
        count = pushes.push(state, words, heat, move, trail)
        then = tuple(state.place)
        assert naive.is_feasible(problem, then)
        assert {p for p in range(len(place)) if then[p] != place[p]} <= set(trail[0, :count].tolist())
        place = then
        assert_equal_to_new(instance, state)


@given(case=reassignments(), pick=st.integers(0, 10**6))
def test_the_best_target_is_the_cheapest_with_room(case, pick):
    problem, place = case
    state = make_state(arrays(problem), np.array(place))
    p, barred = pick % len(place), pick // 7 % len(problem.capacity)
    got = pushes.best_target(state, p, barred, pick % len(problem.capacity))
    costs = {}
    for m in problem.machines:
        then = naive.after(place, [p], [m])
        full = any(naive.use_of_both(problem, then, m, r) > problem.capacity[m][r] for r in problem.resources) or any(
            problem.service[q] == problem.service[p] for q in problem.on(place, m)
        )
        if m not in (barred, place[p]) and not full:
            # All that differs between targets: their own cost, and what the move costs.
            away = m != problem.first[p]
            costs[m] = (
                naive.machine_cost(problem, then, m)
                - naive.machine_cost(problem, place, m)
                + away * problem.weights[0] * problem.process_move[p]
                + problem.weights[2] * problem.machine_move[problem.first[p]][m] * away
            )
    assert (got < 0 and not costs) or costs[got] == min(costs.values())
