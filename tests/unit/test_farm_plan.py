"""Single moves in an order that every machine bears: found where there is one, and only then."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.policies.heterogeneous import plan as farm_plan
from dfrs.policies.heterogeneous.cluster_view import Board
from dfrs.policies.heterogeneous.plan import plan, units
from tests.farm_policy_cases import farm_snapshot
from tests.naive import farm as naive

SAME = [1.0, 1.0]


def board_of(shape, jobs, **given):
    shot = farm_snapshot(shape, jobs, **given)
    return shot, Board.of(shot, "x")


def after_goals(shot, goals):
    after = shot.task_nodes.copy()
    for row, nodes in goals.items():
        after[shot.first[row] : shot.first[row + 1]] = nodes
    return after


def test_figure_7_one_comes_then_one_leaves():
    jobs = [
        {"tasks": 4, "estimate_s": 9e3, "nodes": [0, 1, 2, 3], "speed": SAME, "required": 0.5},
        {"tasks": 4, "estimate_s": 9e3, "nodes": [4, 5, 6, 7], "speed": SAME, "required": 0.5},
    ]
    shot, board = board_of([(1, 4), (1, 4)], jobs)
    goals = {0: [4, 5, 6, 7], 1: [0, 1, 2, 3]}
    moves = plan(board, goals)
    assert [move.row for move in moves] == [0, 1] * 4
    naive.replay(shot, after_goals(shot, goals), moves)


def test_where_a_machine_is_full_the_other_side_begins():
    # A process of the second job takes all of its node, so nobody can come before one has left.
    jobs = [
        {"tasks": 2, "estimate_s": 9e3, "nodes": [0, 1], "speed": SAME, "required": 0.3},
        {"tasks": 2, "estimate_s": 9e3, "nodes": [2, 3], "speed": SAME, "required": 0.6, "swapping": True},
    ]
    shot, board = board_of([(1, 2), (1, 2)], jobs, memory=[1.0, 0.5])
    goals = {0: [2, 3], 1: [0, 1]}
    moves = plan(board, goals)
    assert [move.row for move in moves] == [1, 0, 1, 0]
    naive.replay(shot, after_goals(shot, goals), moves)


def test_two_full_machines_cannot_exchange_anything():
    jobs = [
        {"tasks": 2, "estimate_s": 9e3, "nodes": [0, 1], "speed": SAME, "required": 1.0},
        {"tasks": 2, "estimate_s": 9e3, "nodes": [2, 3], "speed": SAME, "required": 1.0},
    ]
    _, board = board_of([(1, 2), (1, 2)], jobs)
    assert plan(board, {0: [2, 3], 1: [0, 1]}) is None


def test_a_job_not_profiled_yet_may_use_all_of_its_node():
    jobs = [
        {"tasks": 1, "estimate_s": 9e3, "nodes": [0], "speed": SAME, "required": 0.6},
        {"tasks": 1, "estimate_s": 9e3, "nodes": [2], "speed": SAME, "required": 0.6},
        {"tasks": 1, "estimate_s": 9e3, "nodes": [1]},
        {"tasks": 1, "estimate_s": 9e3, "nodes": [3], "speed": SAME, "required": 1.0},
    ]
    shape, goals = [(1, 2), (1, 2)], {0: [2], 1: [0]}
    assert plan(board_of(shape, jobs)[1], goals) is None
    # Profiled, and its memory still not known: what it declares counts, here nothing.
    jobs[2]["speed"] = SAME
    assert [move.row for move in plan(board_of(shape, jobs)[1], goals)] == [1, 0]


def test_in_parallel_the_busiest_machine_counts():
    jobs = [
        {"tasks": 4, "estimate_s": 9e3, "nodes": [0, 1, 2, 3], "speed": SAME, "required": 0.1},
        {"tasks": 2, "estimate_s": 9e3, "nodes": [4, 6], "speed": SAME, "required": 0.1},
    ]
    _, board = board_of([(2, 2), (2, 2)], jobs)
    moves = plan(board, {0: [4, 5, 6, 7], 1: [0, 1]})
    assert units(board, [moves], parallel=False) == 6
    assert units(board, [moves], parallel=True) == 2
    assert units(board, [], parallel=True) == 0


@st.composite
def exchanges(draw):
    """Two sub-clusters, some jobs on them, and other nodes for those that change sides."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = [(int(rng.integers(1, 3)), int(rng.integers(1, 3))) for _ in range(2)]
    sizes = [machines * cores for machines, cores in shape]
    free = [list(range(sizes[0])), list(range(sizes[0], sum(sizes)))]
    jobs = []
    for _ in range(int(rng.integers(1, 5))):
        side = int(rng.integers(2))
        if free[side]:
            tasks = int(rng.integers(1, len(free[side]) + 1))
            nodes = sorted(rng.choice(free[side], tasks, replace=False).tolist())
            free[side] = [n for n in free[side] if n not in nodes]
            wants = float(rng.choice([0.1, 0.3, 0.5, 0.6, 0.9, 1.0]))
            jobs.append({"tasks": tasks, "estimate_s": 9e3, "nodes": nodes, "speed": SAME, "required": wants})
    goals = {}
    movers = [r for r in range(len(jobs)) if rng.integers(0, 3)]
    room = [list(here) for here in free]
    for r in movers:
        room[jobs[r]["nodes"][0] >= sizes[0]] += jobs[r]["nodes"]
    for r in movers:
        there = room[jobs[r]["nodes"][0] < sizes[0]]
        if len(there) >= jobs[r]["tasks"]:
            goals[r] = sorted(rng.choice(there, jobs[r]["tasks"], replace=False).tolist())
            for n in goals[r]:
                there.remove(n)
    stay = {n for r in movers if r not in goals for n in jobs[r]["nodes"]}
    if stay & {n for nodes in goals.values() for n in nodes}:
        goals = {}
    return farm_snapshot(shape, jobs, memory=[1.0, float(rng.choice([0.5, 1.0]))]), goals


def possible(shot, after, moves):
    try:
        naive.replay(shot, after, moves)
    except AssertionError:
        return False
    return True


@settings(max_examples=300)
@given(exchanges())
def test_an_order_is_found_exactly_where_there_is_one(case):
    shot, goals = case
    board = Board.of(shot, "x")
    goals = {r: nodes for r, nodes in goals.items() if all(board.suits(r, n) for n in nodes)}
    taken = [n for r, nodes in enumerate(board.nodes) for n in goals.get(r, nodes)]
    if len(taken) != len(set(taken)):
        return
    after = after_goals(shot, goals)
    moves = plan(board, goals)
    if moves is not None:
        naive.replay(shot, after, moves)
        return
    every = [
        farm_plan.PlannedMove(row=r, task=t, source=a, target=b)
        for r, nodes in goals.items()
        for t, (a, b) in enumerate(zip(board.nodes[r], nodes, strict=True))
        if a != b
    ]
    if len(every) <= 6:
        assert not any(possible(shot, after, order) for order in permutations(every))


def test_the_search_ends(monkeypatch):
    monkeypatch.setattr(farm_plan, "MOST_TRIED", 1)
    jobs = [{"tasks": 2, "estimate_s": 9e3, "nodes": [0, 1], "speed": SAME, "required": 0.1}]
    _, board = board_of([(1, 2), (1, 2)], jobs)
    assert plan(board, {0: [2, 3]}) is None


@pytest.mark.parametrize("tasks", [400])
def test_large_jobs_are_no_problem(tasks):
    shape = [(tasks // 8, 8), (tasks // 8, 8)]
    jobs = [
        {"tasks": tasks, "estimate_s": 9e3, "nodes": list(range(tasks)), "speed": SAME, "required": 0.4},
        {"tasks": tasks, "estimate_s": 9e3, "nodes": list(range(tasks, 2 * tasks)), "speed": SAME, "required": 0.4},
    ]
    _, board = board_of(shape, jobs)
    goals = {0: list(range(tasks, 2 * tasks)), 1: list(range(tasks))}
    assert len(plan(board, goals)) == 2 * tasks
