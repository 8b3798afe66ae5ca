"""MCB and MCB-stretch, beside their slow twins, and beside the general packing kernels task by task."""

import numpy as np
import pytest
from hypothesis import given

from dfrs.kernels import repack
from dfrs.model.decisions import JOB, RUNNING, Cause, Snapshot
from dfrs.placement.packing import VectorPacking
from dfrs.policies.fractional.actions import Repack
from dfrs.policies.fractional.vector_repack import VectorRepack, plan_of_two
from tests.frozen import frozen
from tests.naive import compare_policies as compare
from tests.policy_cases import drawn, policy_case


@pytest.mark.parametrize(
    ("kernel", "comparison"),
    [
        (repack.find_pinned, compare.find_pinned),
        (repack.pin_stranded, compare.pin_stranded),
        (repack.upper_end, compare.upper_end),
        (repack.repack, compare.repack),
    ],
    ids=lambda value: value.__name__,
)
@given(case=drawn(policy_case))
def test_the_kernel_equals_its_twin(kernel, comparison, case):
    got, expected = comparison(kernel, case)
    assert got == expected


def large_state(seed, nodes=32, rows=30):
    """A queue on an empty cluster of which some jobs have run: sizes as in synthetic traces."""
    rng = np.random.default_rng(seed)
    jobs = np.zeros(rows, JOB)
    jobs["id"] = jobs["serial"] = np.arange(rows)
    jobs["tasks"] = np.where(rng.random(rows) < 0.3, 1, np.minimum(2 ** rng.integers(0, 6, rows), nodes))
    jobs["need"] = rng.choice([0.25, 1.0, 0.3, 0.77], rows)
    jobs["memory"] = rng.choice([0.1, 0.2, 0.35, 0.5, 0.9, 1.0], rows)
    jobs["weight"] = 1.0
    jobs["virtual_s"] = rng.choice([0.0, 10.0, 500.0], rows)
    first = np.concatenate([[0], np.cumsum(jobs["tasks"])])
    before = np.full(first[-1], -1)
    capacity = np.ones((nodes, 2))
    if seed % 3 == 0:
        capacity[nodes // 2 :] = (2.0, 1.5)
    return frozen(Snapshot(1000.0, Cause.WAKE, -1, capacity, np.ones(nodes, np.bool_), jobs, first, before, 0.0))


@pytest.mark.parametrize("action", [Repack(), VectorRepack(packing="MCB8")], ids=["MCB", "vectors"])
@pytest.mark.parametrize("only", [True, False])
def test_others_go_on_where_a_draining_node_has_a_job_that_fits_nowhere_else(action, only):
    jobs = np.zeros(3, JOB)
    jobs["id"] = jobs["serial"] = np.arange(3)
    jobs["tasks"], jobs["need"], jobs["weight"], jobs["state"] = 1, 0.5, 1.0, RUNNING
    jobs["memory"] = (1.5 if only else 1.0), 0.5, 0.5
    # The first has the highest priority.
    jobs["virtual_s"] = 10.0, 500.0, 500.0
    capacity, is_open = np.array([(1.0, 1.0), (1.0, 2.0)]), np.array([True, False])
    before = np.array([1, 0, 0])
    shot = frozen(Snapshot(1000.0, Cause.WAKE, -1, capacity, is_open, jobs, np.arange(4), before, 0.0))
    slots, reasons = before.copy(), np.zeros(3, np.int64)
    action(shot, slots, reasons)
    assert slots.tolist() == ([1, 0, 0] if only else [0, -1, -1])


@pytest.mark.parametrize("seed", range(60))
def test_packing_groups_at_once_equals_packing_task_by_task(seed):
    """Permutation Pack by the largest coordinate alone, in decreasing order of it (MCB8), is the same packing."""
    shot = large_state(seed)
    placements = []
    for action in (Repack(), VectorRepack(packing="MCB8"), VectorRepack(packing="VP_CPMAX")):
        slots, reasons = shot.task_nodes.copy(), np.zeros(len(shot.jobs), np.int64)
        action(shot, slots, reasons)
        placements.append((slots.tolist(), reasons.tolist()))
    assert placements[0] == placements[1] == placements[2]


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("method", ["CP", "PP"])
def test_the_plans_for_two_resources_are_those_of_the_general_packings(method, window):
    packing = VectorPacking(method=method, criterion="MAX", window=window)
    (_, mine, codes), (_, general, general_codes) = plan_of_two(packing, window), packing._lists(2)
    assert [np.array(a).tolist() for a in mine] == [np.array(a).tolist() for a in general]
    used = [c for c in range(len(general_codes)) if c in codes_of(window, method == "PP")]
    assert [codes[c] for c in used] == [general_codes[c] for c in used]
    assert len(codes) >= len(general_codes)


def codes_of(window, ordered):
    """Codes of lists that exist: digits in base 2 if ordered, bits if not."""
    if window == 1:
        return (0, 1) if ordered else (1, 2)
    return (1, 2) if ordered else (3,)
