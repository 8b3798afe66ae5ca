"""What ARRIVE-F promises on any farm, whatever the predictions, over many rounds; and that each promise can be broken.

`Toy.judge` has the promises: no job across sub-clusters, two processes on a node, or a machine beyond its nodes and
memory at any single step; a positive gain by a formula of its own; no return to a sub-cluster that was left; enough
memory for all that were moved; locks; who was moved rests.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.model.decisions import PolicyError
from dfrs.policies.heterogeneous import arrive_f
from dfrs.policies.heterogeneous import cluster_view as farm_board
from dfrs.policies.heterogeneous import gains as farm_gains
from dfrs.policies.heterogeneous import plan as farm_plan
from dfrs.policies.heterogeneous import rules as policy_rules
from dfrs.policies.heterogeneous import search as farm_search
from dfrs.policies.heterogeneous import special as farm_special
from dfrs.policies.heterogeneous.arrive_f import ArriveF
from dfrs.policies.heterogeneous.rules import Rules, left
from dfrs.policies.heterogeneous.search import PlanScenario
from tests.farm_policy_cases import Toy, broken, drive, farm_snapshot, seeded
from tests.strategies import Drawn


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_every_promise_over_many_rounds(seed):
    drive(seeded(seed))


@settings(max_examples=30)
@given(st.data())
def test_every_promise_on_farms_that_shrink(data):
    drive(Drawn(data.draw), rounds=12)


def test_all_scenarios_occur():
    found = set()
    for seed in (1013, 1015, 1045, *range(400)):
        found |= set(drive(seeded(seed)).counts)
        if found == set(PlanScenario):
            return
    assert found == set(PlanScenario)


@pytest.mark.parametrize("threshold", [0.0, 1e-12, 0.05])
def test_two_similar_jobs_do_not_swap_for_ever(threshold):
    # Section 9: LU.B.8.X and LU.B.8.Y, each predicted to gain where the other is, whichever way round.
    policy, policy_state, since_s, swaps = ArriveF(rules=Rules(threshold=threshold, stretch_s=0.0)), [0, 0], 0.0, 0
    nodes = [[0, 1], [2, 3]]
    for k in range(1, 200):
        now_s = k * 200.0
        jobs = [
            {
                "tasks": 2,
                "estimate_s": 1e9,
                "nodes": nodes[r],
                "policy_state": policy_state[r],
                "since_s": since_s,
                "start_s": 0.0,
                "speed": [1.0, 2.0] if nodes[r][0] == 0 else [2.0, 1.0],
                "required": 0.1,
            }
            for r in range(2)
        ]
        target = policy.decide(farm_snapshot([(1, 2), (1, 2)], jobs, now_s=now_s))
        after = [target.task_nodes[:2].tolist(), target.task_nodes[2:].tolist()]
        policy_state = target.policy_state.tolist()
        if after != nodes:
            nodes, since_s, swaps = after, now_s, swaps + 1
    assert swaps == 1
    assert [left(m) for m in policy_state] == [1, 2]


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_the_list_that_is_pruned_begins_as_the_whole_one(seed):
    """`entries` leaves out only what cannot pass: the same plan is chosen from `everything`."""
    toy = Toy.of(seeded(seed))
    for _ in range(25):
        toy.round()
        shown = [{k: v for k, v in job.items() if k != "wants"} for job in toy.jobs]
        shot = farm_snapshot(toy.shape, shown, now_s=toy.now_s, memory=toy.memory, closed=toy.closed)
        chosen = [c for c in toy.policy.considered(shot) if c.chosen]
        ids = shot.jobs["id"].tolist()
        plans = [
            (p.trade.scenario, tuple(ids[r] for r in p.trade.rows), p.trade.target) for p in toy.policy.plans(shot)
        ]
        assert [(c.scenario, c.jobs, c.target) for c in chosen] == plans


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_what_is_said_covers_every_pair_in_order_of_gain(seed):
    toy = drive(seeded(seed), rounds=15)
    shown = [{k: v for k, v in job.items() if k != "wants"} for job in toy.jobs]
    shot = farm_snapshot(toy.shape, shown, now_s=toy.now_s, memory=toy.memory, closed=toy.closed)
    said = [c for c in toy.policy.considered(shot) if c.scenario not in {PlanScenario.MEMORY, PlanScenario.HEAD}]
    cluster = shot.hardware.partition
    placed = {
        int(i): int(cluster[shot.task_nodes[a]])
        for i, a in zip(shot.jobs["id"], shot.first[:-1], strict=True)
        if shot.task_nodes[a] >= 0
    }
    apart = {frozenset((j, k)) for j in placed for k in placed if placed[j] != placed[k]}
    assert {frozenset(c.jobs[:2]) for c in said if len(c.jobs) > 1} >= apart or shot.task_nodes.min() < 0
    gains = [c.gain_s for c in said if c.scenario is not PlanScenario.MULTIPLE and not np.isnan(c.gain_s)]
    assert all(a >= b for a, b in pairwise(gains))
    assert all(c.why_not or c.gain_s > 0 for c in said)


MUTATIONS = (
    (farm_plan, "places[kind.target] > 0 and ", "", "-places[kinds[k].source], ", "places[kinds[k].source], "),
    (farm_plan, "memory[kind.target] >= kind.takes", "True"),
    (policy_rules, "return bool(policy_state >> partition & 1)", "return False"),
    (policy_rules, "left(policy_state) | 1 << partition |", "left(policy_state) |"),
    (farm_gains, "return gain > threshold_s and gain > 0.0", "return gain > threshold_s - 200.0"),
    (farm_gains, " - stretch_s", ""),
    (farm_board, "return enough and self.holds(row, node)", "return self.holds(row, node)"),
    (farm_board, "over_s > self.snapshot.now_s", "over_s > self.snapshot.now_s + 5.0"),
    (farm_board, "for c in (policy_rules.source(self.policy_state[row]), home):", "for c in (home,):"),
    (farm_search, "left_s <= rules.horizon_s and not rules.one", "False"),
    (farm_search, "since_s < self.rules.horizon_s", "since_s < 5.0"),
    (farm_search, "taken.update(found)", "pass"),
    (farm_search, "left = [n for r in leaving for n in board.nodes[r]]", "left = sum(board.nodes, [])"),
    (farm_special, "min(done.shadow_s, now_s + rules.horizon_s)", "now_s + 2 * rules.horizon_s"),
    (arrive_f, "now.locks |= dict.fromkeys", "dict.fromkeys"),
)


def test_as_they_stand_the_rules_keep_all_promises():
    assert not any(_fails(seed) for seed in range(60))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation[1])
def test_each_promise_can_be_broken(monkeypatch, mutation):
    broken(monkeypatch, *mutation)
    assert any(_fails(seed) for seed in range(200))


def _fails(seed: int) -> bool:
    lively = Rules(
        beta=(2.0, 20.0)[seed % 2],
        threshold=0.0,
        copy_s=(1.0, 60.0)[seed // 2 % 2],
        stretch_s=(0.7, 5.0)[seed % 2],
        parallel=seed % 3 == 0,
        head=seed % 5 < 2,
        every=1.0,
    )
    try:
        drive(seeded(seed), rounds=30, rules=lively)
    except (AssertionError, PolicyError):
        return True
    return False
