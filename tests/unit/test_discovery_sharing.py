"""Sharing by weights agrees with exact fractions, wastes nothing, and the simulated host counts what it does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import sharing
from dfrs.model.decisions import Cause, Target
from dfrs.model.errors import InputError
from dfrs.model.needs import Revision
from dfrs.policies.discovery.methods import find_discovery
from dfrs.simulator.discovery import Costs, Oracle, Scene, share, traces
from tests.naive.sharing import divided

PART = st.integers(0, 64).map(lambda k: k / 64)


@st.composite
def shared_nodes(draw):
    nodes = draw(st.integers(1, 4))
    tasks = draw(st.integers(0, 12))
    node = draw(st.lists(st.integers(0, nodes - 1), min_size=tasks, max_size=tasks))
    weight = draw(st.lists(st.integers(0, 100).map(float), min_size=tasks, max_size=tasks))
    need = draw(st.lists(PART, min_size=tasks, max_size=tasks))
    capacity = draw(st.lists(PART, min_size=nodes, max_size=nodes))
    return np.array(node, np.int64), np.array(weight), np.array(need), np.array(capacity)


def used_by(node, weight, need, capacity):
    used = np.full(len(node), 7.0)
    sharing.divide(node, weight, need, capacity, used)
    return used


@given(case=shared_nodes())
def test_sharing_is_that_of_exact_fractions(case):
    assert used_by(*case).tolist() == pytest.approx(divided(*(a.tolist() for a in case)), abs=1e-12)


@given(case=shared_nodes())
def test_nobody_uses_more_than_it_needs_or_less_than_it_was_guaranteed_and_no_node_idles_beside_need(case):
    node, weight, need, capacity = case
    used, share_ = used_by(*case), np.empty(len(node))
    sharing.guaranteed(node, weight, capacity, share_)
    assert (used <= need + 1e-12).all()
    assert (used >= np.minimum(need, share_) - 1e-12).all()
    for n, room in enumerate(capacity):
        here = (node == n) & (weight > 0)
        assert used[here].sum() == pytest.approx(min(room, need[here].sum()), abs=1e-12)


def scene_of(seed=1, seconds=900, hogs=1):
    need = traces(np.random.default_rng(seed), 6, seconds, 200.0, hogs)
    node = np.array([0, 0, 0, 1, 1, 1, *range(hogs)])
    return Scene(capacity=np.ones(2), node=node, need=need, memory=np.full(len(node), 0.25))


def test_traces_hold_needs_for_exponential_times():
    need = traces(np.random.default_rng(3), 40, 40_000, 500.0, 1)
    changes = (np.diff(need[:, :40], axis=0) != 0).sum()
    assert changes / 40 == pytest.approx(80, rel=0.1)
    assert need[:, :40].mean() == pytest.approx(0.5, abs=0.05)
    assert (need[:, 40] == 1.0).all()


def test_equal_weights_are_divided_second_by_second():
    scene = scene_of()
    found = share(scene, find_discovery("EQUAL"))
    for second in range(0, 900, 77):
        used = divided(scene.node.tolist(), [1.0] * 7, scene.need[second].tolist(), [1.0, 1.0])
        assert found.yields[second] == pytest.approx(np.array(used) / scene.need[second])
    assert found.average_minimum == pytest.approx(found.yields.min(axis=1).mean())
    assert found.minimum_average == pytest.approx(found.yields.mean(axis=0).min())


def test_known_needs_give_equal_yields_on_a_full_node():
    scene = scene_of()
    found = share(scene, Oracle(need=scene.need))
    for n in range(2):
        here = scene.node == n
        expected = np.minimum(1.0, 1.0 / scene.need[:, here].sum(axis=1))
        assert found.yields[:, here] == pytest.approx(np.repeat(expected[:, None], here.sum(), axis=1))


def test_a_task_that_needs_nothing_has_yield_one():
    scene = Scene(capacity=np.ones(1), node=np.zeros(1, np.int64), need=np.zeros((9, 1)), memory=np.ones(1))
    assert (share(scene, find_discovery("EQUAL")).yields == 1.0).all()


def test_needs_of_other_tasks_are_refused():
    with pytest.raises(InputError, match="must be"):
        Scene(capacity=np.ones(1), node=np.zeros(1, np.int64), need=np.zeros((9, 2)), memory=np.ones(1))


class Once:
    """Tells a need once, at 20 s, and remembers what it was shown."""

    name = "once"

    def __init__(self):
        self.seen = []

    def step(self, now_s, table, usage, capacity):
        self.seen.append((now_s, table["node"].tolist(), usage["seconds"].tolist()))
        needs = {0: 0.5} if now_s == 20.0 else {}
        return Revision(table=table.copy(), weights=np.ones(len(table)), needs=needs, next_step_s=now_s + 20.0)


class Away:
    """Moves the first task to the other node."""

    def decide(self, snapshot):
        assert snapshot.cause is Cause.NEEDS
        slots = snapshot.task_nodes.copy()
        slots[0] = 1
        return Target(slots, np.ones(len(snapshot.jobs)))


def test_a_migration_copies_stops_and_arrives():
    need = np.ones((60, 2))
    scene = Scene(capacity=np.ones(2), node=np.zeros(2, np.int64), need=need, memory=np.full(2, 0.25))
    method = Once()
    found = share(scene, method, Away(), Costs(migration_s=7, stop_s=2))
    assert found.migrations == 1
    assert found.yields[:27].tolist() == [[0.5, 0.5]] * 27
    assert found.yields[27:29].tolist() == [[0.0, 1.0]] * 2
    assert found.yields[29:].tolist() == [[1.0, 1.0]] * 31
    assert [seen for seen in method.seen if seen[0] == 29.0] == [
        (29.0, [0, 0], [0.0, 2.0]),
        (29.0, [1, 0], [0.0, 0.0]),
    ]
