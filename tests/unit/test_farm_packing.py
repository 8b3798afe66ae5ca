"""The farm's kernels against their naive twins, and against the optimum of tiny instances."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.bounds.heterogeneous import effective_yield_bound
from dfrs.kernels import farm_packing, farm_placing, farm_speeds, loads
from dfrs.model.decisions import MEMORY, RUNNING, WAITING, Snapshot
from dfrs.model.hardware import HardwareView
from dfrs.policies.heterogeneous.fractional import RULES
from tests import strategies
from tests.cases import Seeded
from tests.frozen import frozen
from tests.naive import farm_packing as naive
from tests.policy_cases import policy_case

SLACK = 5e-10
ORDERS, CLUSTERS, NODES = (
    ("LARGEST", "WHOLE", "REGRET"),
    ("FASTEST", "EMPTIEST"),
    ("BEST_FIT", "LEAST_LOADED", "COMPLEMENT"),
)


def build(source, *, crowded=False):
    return naive.farm_case(source, policy_case(source, crowded=crowded))


def drawn(**options):
    @st.composite
    def case(draw):
        source = strategies.Drawn(draw)
        return build(source, **options), source

    return case()


def kernel_inputs(case):
    speed, best = np.empty(case.known.shape), np.empty(case.base.rows)
    farm_speeds.relative_speeds(case.known, speed)
    tasks = np.array(case.base.jobs["tasks"], np.int64)
    farm_speeds.best_reachable(tasks, case.memory, speed, case.site, SLACK, best)
    return speed, best


def priorities(case):
    order = np.empty(case.base.rows, np.int64)
    loads.by_priority(case.base.jobs, case.base.now_s, loads.FLOW_VIRTUAL_SQUARED, order)
    return order


def pinned_rows(case, source):
    running = case.base.jobs["state"] == RUNNING
    return running & np.array([source.integer(0, 2) == 0 for _ in range(case.base.rows)])


def as_where(case, slots):
    return {r: sorted(nodes) for r, nodes in case.base.where(slots).items()}


def tidy(where):
    return {r: sorted(nodes) for r, nodes in where.items()}


@given(drawn())
def test_relative_speeds_are_those_of_the_text(drawn_case):
    case, _ = drawn_case
    speed, best = kernel_inputs(case)
    assert speed.tolist() == naive.relative(case.known)
    assert best.tolist() == [naive.best_reachable(case, r) for r in range(case.base.rows)]
    assert (speed[..., 0] <= speed[..., 1]).all()
    assert speed.max() == 1.0


@settings(max_examples=150)
@given(drawn(), st.sampled_from((0.01, 0.125, 0.25, 0.5, 1.0)), st.booleans())
def test_a_packing_is_that_of_the_text(drawn_case, level, stay):
    case, source = drawn_case
    speed, best = kernel_inputs(case)
    pinned = pinned_rows(case, source)
    rows = np.array([source.integer(0, 4) > 0 for _ in range(case.base.rows)])
    rule = [source.integer(0, len(names) - 1) for names in (ORDERS, CLUSTERS, NODES)]
    slots = np.full(len(case.base.before), -1, np.int64)
    packed = farm_packing.pack_at(
        case.base.jobs,
        case.base.first,
        case.base.before,
        rows,
        pinned,
        speed,
        case.memory,
        best,
        level,
        np.array(rule),
        stay,
        case.site,
        SLACK,
        slots,
    )
    named = tuple(names[k] for names, k in zip((ORDERS, CLUSTERS, NODES), rule, strict=True))
    chosen = set(np.flatnonzero(rows).tolist())
    found = naive.pack(case, chosen, set(np.flatnonzero(pinned).tolist()), level, named, SLACK, stay=stay)
    assert packed == (found is not None)
    if found is not None:
        assert {r: nodes for r, nodes in as_where(case, slots).items() if r in chosen} == tidy(found)


def searched(case, pinned, near=0.05):
    speed, best = kernel_inputs(case)
    rows = np.ones(case.base.rows, np.bool_)
    slots = np.full(len(case.base.before), -1, np.int64)
    level = farm_packing.search_level(
        case.base.jobs,
        case.base.first,
        case.base.before,
        rows,
        pinned,
        speed,
        case.memory,
        best,
        priorities(case),
        RULES.copy(),
        near,
        case.site,
        SLACK,
        slots,
    )
    for r in np.flatnonzero(~rows).tolist():
        slots[case.base.slots(r)] = -1
    return level, rows, slots


@settings(max_examples=80, deadline=None)
@given(drawn())
def test_the_search_is_that_of_the_text(drawn_case):
    case, source = drawn_case
    pinned = pinned_rows(case, source)
    level, rows, slots = searched(case, pinned)
    rules = [tuple(names[k] for names, k in zip((ORDERS, CLUSTERS, NODES), rule, strict=True)) for rule in RULES]
    expected, where = naive.search(
        case, set(np.flatnonzero(pinned).tolist()), priorities(case).tolist(), rules, 0.05, SLACK
    )
    assert level == expected
    assert as_where(case, slots) == tidy(where)
    assert set(np.flatnonzero(rows).tolist()) == set(where)


@settings(max_examples=100, deadline=None)
@given(drawn())
def test_what_is_packed_fits_and_has_its_level_in_one_sub_cluster(drawn_case):
    case, _ = drawn_case
    level, rows, slots = searched(case, np.zeros(case.base.rows, np.bool_))
    _, best = kernel_inputs(case)
    use = np.zeros((len(case.cluster), 2))
    for r in np.flatnonzero(rows).tolist():
        nodes = slots[case.base.slots(r)]
        assert (nodes >= 0).all()
        moved = sorted(nodes.tolist()) != sorted(case.base.before[case.base.slots(r)].tolist())
        assert len(np.unique(case.cluster[nodes])) == 1 or not moved
        demand = min(level, best[r])
        rate = naive.speed_at(case, r, nodes.tolist())
        assert rate >= demand - 1e-9
        np.add.at(use, nodes, [case.base.jobs["need"][r] * demand / rate, case.memory[r]])
    assert (use <= case.base.capacity + 1e-8).all()


@settings(max_examples=150)
@given(drawn())
def test_a_row_is_placed_as_the_text_says(drawn_case):
    case, _ = drawn_case
    speed, _ = kernel_inputs(case)
    r = case.base.subject
    slots, use = case.base.before.copy(), np.empty(case.base.capacity.shape)
    farm_placing.add_all(case.base.jobs, case.base.first, slots, speed, case.memory, case.site, use)
    where = {k: case.base.before[case.base.slots(k)].tolist() for k in case.base.where()}
    assert use.tolist() == naive.pressures(case, where)
    done = farm_placing.place_best(
        r,
        float(case.base.jobs["need"][r]),
        float(case.memory[r]),
        -1,
        speed,
        case.site,
        case.base.first,
        use,
        SLACK,
        slots,
    )
    found = naive.place_best(case, where, r, SLACK)
    assert done == (found is not None)
    assert as_where(case, slots) == tidy(where if found is None else found)


@settings(max_examples=150)
@given(drawn(crowded=True))
def test_a_submitted_job_comes_in_as_the_text_says(drawn_case):
    case, _ = drawn_case
    speed, _ = kernel_inputs(case)
    order = priorities(case)
    slots, reasons = case.base.before.copy(), np.zeros(case.base.rows, np.int64)
    farm_placing.admit(
        case.base.jobs,
        case.base.first,
        case.base.before,
        case.base.subject,
        order,
        speed,
        case.memory,
        case.site,
        SLACK,
        slots,
        reasons,
    )
    found = naive.admit(case, case.base.subject, order.tolist(), SLACK)
    assert as_where(case, slots) == tidy(found)
    before = case.base.where()
    for r in range(case.base.rows):
        assert (reasons[r] == 0) == (r in before or r not in found) or reasons[r] in {3, 4}


@given(drawn(crowded=True))
def test_those_who_wait_come_in_as_the_text_says(drawn_case):
    case, _ = drawn_case
    speed, _ = kernel_inputs(case)
    order = priorities(case)
    slots, reasons = case.base.before.copy(), np.zeros(case.base.rows, np.int64)
    farm_placing.readmit(case.base.jobs, case.base.first, order, speed, case.memory, case.site, SLACK, slots, reasons)
    assert as_where(case, slots) == tidy(naive.readmit(case, order.tolist(), SLACK))


def snapshot_of(case):
    arrays = [case.base.capacity, case.base.open, case.base.jobs, case.base.first, case.base.before]
    rows = case.base.rows
    view = HardwareView(
        partition=case.cluster,
        machine=case.machine,
        node_memory=case.base.capacity[:, 1],
        speed=case.known,
        required=np.full(rows, np.nan),
        swapping=np.zeros(rows, np.bool_),
    )
    return frozen(Snapshot(case.base.now_s, 2, -1, *arrays, 0.0, view))


def tiny(seed):
    """All nodes open, nobody running, at most four jobs of at most two tasks."""
    source = Seeded(np.random.default_rng(seed))
    base = policy_case(source, grains=(4,))
    keep = min(4, base.rows)
    jobs = base.jobs[:keep].copy()
    jobs["tasks"] = np.minimum(jobs["tasks"], 2)
    jobs["state"], jobs["memory"] = WAITING, jobs["memory"] / 2
    first = np.concatenate([[0], np.cumsum(jobs["tasks"])]).astype(np.int64)
    capacity = base.capacity[:4]
    base = type(base)(
        now_s=base.now_s,
        jobs=jobs,
        first=first,
        before=np.full(int(first[-1]), -1, np.int64),
        capacity=capacity,
        open=np.ones(len(capacity), np.bool_),
        subject=0,
    )
    return naive.farm_case(source, base)


def reached(case, slots):
    """Least effective yield of a placement of all jobs."""
    where = {r: slots[case.base.slots(r)].tolist() for r in range(case.base.rows)}
    use = naive.pressures(case, where)
    levels = [case.base.capacity[n][0] / load[0] for n, load in enumerate(use) if load[0] > 0]
    return min([naive.speed_at(case, r, nodes) for r, nodes in where.items()] + levels)


def test_packings_are_never_above_the_optimum_and_often_reach_it():
    solved = equal = near = 0
    for seed in range(300):
        case = tiny(seed)
        optimum = naive.exhaustive(case)
        level, rows, slots = searched(case, np.zeros(case.base.rows, np.bool_), near=0.0)
        bound = effective_yield_bound(snapshot_of(case))
        if optimum == -np.inf:
            assert not rows.all()
            continue
        assert optimum <= bound + 1e-9
        solved += 1
        if not rows.all():
            continue
        value = reached(case, slots)
        assert value >= min(level, *kernel_inputs(case)[1].tolist()) - 1e-9
        assert value <= optimum + 1e-9
        equal += value >= optimum - farm_packing.WIDTH
        near += value >= 0.9 * optimum
    assert solved >= 200
    print(f"of {solved} instances {equal} are solved to the width of the search, {near} to a tenth")
    assert equal >= 0.85 * solved
    assert near >= 0.9 * solved


@settings(max_examples=60, deadline=None)
@given(drawn())
def test_the_bound_is_above_every_packing_of_all(drawn_case):
    case, _ = drawn_case
    if (case.base.before >= 0).any() and not case.base.open.all():
        return
    _, rows, slots = searched(case, np.zeros(case.base.rows, np.bool_))
    within = all(len(np.unique(case.cluster[slots[case.base.slots(r)]])) == 1 for r in range(case.base.rows))
    if rows.all() and within:
        assert reached(case, slots) <= effective_yield_bound(snapshot_of(case)) + 1e-6


def test_on_equal_nodes_the_bound_is_that_of_one_partition():
    plain = replace(snapshot_of(tiny(1)), unequal=None)
    one = replace(plain, unequal=HardwareView.equal(plain.capacity[:, MEMORY], len(plain.jobs)))
    assert 0.0 < effective_yield_bound(plain) == effective_yield_bound(one) <= 1.0


def test_a_job_goes_to_the_hardware_that_suits_it():
    case = tiny(3)
    known = np.ones((case.base.rows, case.clusters, 2))
    level, rows, slots = searched(
        naive.FarmCase(base=case.base, cluster=case.cluster, machine=case.machine, known=known, memory=case.memory),
        np.zeros(case.base.rows, np.bool_),
    )
    assert level > 0
    assert rows.any()
    assert (slots < len(case.cluster)).all()
