"""Commands lead from the present to the target, and no node is overcommitted on the way."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.engine.check import check
from dfrs.engine.commands import DETACH, NOTHING
from dfrs.engine.reconcile import reconcile
from dfrs.kernels import reconcile as kernels
from dfrs.model import tolerances
from dfrs.model.decisions import PAUSED, RUNNING, Cause, PolicyError, Reason
from dfrs.model.run import Action
from tests import cases, online_cases, strategies
from tests.naive import compare_online as compare
from tests.online_cases import OnlineCase

WITHOUT_NODES = (Action.PAUSE, DETACH)


@st.composite
def online(draw):
    return online_cases.reconcile_case(strategies.Drawn(draw))


@st.composite
def broken(draw):
    return online_cases.broken_case(strategies.Drawn(draw))


def all_open(case):
    return replace(case, open=np.ones(len(case.capacity), np.bool_))


def seeded(count, build=online_cases.reconcile_case):
    return [all_open(build(cases.Seeded(np.random.default_rng(seed)))) for seed in range(count)]


@pytest.mark.parametrize(
    ("kernel", "comparison"),
    [
        (kernels.closed_arrival, compare.closed_arrival),
        (kernels.keep_slots, compare.keep_slots),
        (kernels.classify, compare.classify),
        (kernels._add, compare.add),
        (kernels._fits, compare.fits),
        (kernels.order_moves, compare.order_moves),
        (kernels.plan, compare.plan),
        (kernels.commit, compare.commit),
    ],
    ids=lambda value: value.__name__,
)
@given(case=online())
def test_the_kernel_equals_its_twin(kernel, comparison, case):
    got, expected = comparison(kernel, case)
    assert got == expected


@given(case=broken())
def test_what_is_admissible_equals_its_twin(case):
    got, expected = compare.admissible(kernels.admissible, case)
    assert got == expected


@given(case=online())
def test_built_targets_are_admissible(case):
    check(case.snapshot(), case.target())


def performed(case):
    """(present after each command: {row: (nodes, yield)}, commands); what each command says is asserted."""
    snapshot = case.snapshot()
    commands, after, order, steps = reconcile(snapshot, case.target())
    row_of = {int(name): r for r, name in enumerate(case.jobs["id"])}
    where = {
        r: (tuple(case.before[case.slots(r)].tolist()), float(case.jobs["yield_"][r]))
        for r in range(case.rows)
        if case.jobs["state"][r] == RUNNING
    }
    states = [dict(where)]
    for command in commands:
        r = row_of[command.job_id]
        if command.action in WITHOUT_NODES:
            assert command.nodes == ()
            where.pop(r)
        elif command.action == Action.SHARE:
            assert command.nodes == ()
            assert command.yield_ != where[r][1]
            where[r] = (where[r][0], command.yield_)
        else:
            assert len(command.nodes) == case.jobs["tasks"][r]
            where[r] = (command.nodes, command.yield_)
        states.append(dict(where))
    return states, commands, (after, order, steps)


def overcommitted(case, state):
    used = np.zeros(case.capacity.shape)
    for r, (nodes, y) in state.items():
        for n in nodes:
            used[n] += case.jobs["need"][r] * y, case.jobs["memory"][r]
    return bool((used > case.capacity + tolerances.PLACEMENT).any())


@given(case=online())
def test_no_node_is_overcommitted_after_any_command_and_the_last_reaches_the_target(case):
    case = all_open(case)
    states, commands, _ = performed(case)
    assert not any(overcommitted(case, state) for state in states)
    wanted = {
        r: (Counter(case.after[case.slots(r)].tolist()), float(case.yields[r]))
        for r in range(case.rows)
        if case.after[case.first[r]] >= 0
    }
    assert {r: (Counter(nodes), y) for r, (nodes, y) in states[-1].items()} == wanted
    assert len(commands) <= 2 * case.rows


@given(case=online())
def test_reconciling_again_after_commit_is_nothing(case):
    case = all_open(case)
    _, _, (after, order, steps) = performed(case)
    jobs, nodes = case.jobs.copy(), case.before.copy()
    kernels.commit(jobs, case.first, nodes, after, case.yields, case.now_s, order, steps)
    done = replace(case, jobs=jobs, before=nodes)
    assert reconcile(done.snapshot(), done.target())[0] is NOTHING
    assert ((jobs["state"] == RUNNING) == (nodes[case.first[:-1]] >= 0)).all()
    assert (jobs["state"][jobs["pauses"] > case.jobs["pauses"]] == PAUSED).all()


@given(case=online())
def test_tasks_that_stay_keep_their_slot_and_moved_counts_the_others(case):
    case = all_open(case)
    _, commands, _ = performed(case)
    row_of = {int(name): r for r, name in enumerate(case.jobs["id"])}
    for k, command in enumerate(commands):
        r = row_of[command.job_id]
        if command.action == Action.MIGRATE:
            old, new = case.before[case.slots(r)], np.array(command.nodes)
            common = sum((Counter(old.tolist()) & Counter(new.tolist())).values())
            assert (old == new).sum() == common
            assert commands.moved[k] == len(new) - common > 0
        elif command.nodes:
            assert commands.moved[k] == len(command.nodes)
        else:
            assert commands.moved[k] == 0


@given(case=online())
def test_commands_come_in_the_promised_order(case):
    _, commands, _ = performed(all_open(case))
    rank = {Action.PAUSE: 0, DETACH: 2, Action.MIGRATE: 2, Action.START: 3, Action.RESUME: 3}
    present = {int(job["id"]): float(job["yield_"]) for job in case.jobs}
    ranks = [
        (1 if c.yield_ < present[c.job_id] else 4) if c.action == Action.SHARE else rank[c.action] for c in commands
    ]
    assert ranks == sorted(ranks)


@given(case=online(), seed=st.integers(0, 2**32 - 1))
def test_tasks_of_a_job_in_another_order_are_no_change(case, seed):
    rng = np.random.default_rng(seed)
    after = case.before.copy()
    for r in range(case.rows):
        after[case.slots(r)] = rng.permutation(after[case.slots(r)])
    closed = replace(case, after=after, yields=case.jobs["yield_"].copy(), open=np.zeros(len(case.open), np.bool_))
    assert reconcile(closed.snapshot(), closed.target())[0] is NOTHING


def test_cases_contain_every_kind_of_command():
    found = Counter(action for case in seeded(300) for action in performed(case)[1].action.tolist())
    assert min(found[a] for a in (*range(5), DETACH)) >= 20, found


def exchange_case(places, exchanged, memory=1.0, yields=None, present=None):
    """Jobs of one task each."""
    rows = len(places)
    jobs, _ = online_cases.job_table(cases.Seeded(np.random.default_rng(1)), rows, 500.0, 8)
    jobs["tasks"], jobs["need"], jobs["memory"], jobs["state"], jobs["ready_s"] = 1, 1.0, memory, RUNNING, 0.0
    jobs["id"] = np.arange(rows) + 1
    jobs["yield_"] = 1.0 if present is None else present
    return OnlineCase(
        now_s=500.0,
        jobs=jobs,
        first=np.arange(rows + 1),
        before=np.array(places),
        after=np.array(exchanged),
        yields=np.array(jobs["yield_"] if yields is None else yields),
        capacity=np.ones((max(places) + 1, 2)),
        open=np.ones(max(places) + 1, np.bool_),
        reasons=np.zeros(0, np.int64),
    )


@pytest.mark.parametrize("nodes", [2, 3, 7])
@pytest.mark.parametrize("resource", ["memory", "cpu"])
def test_jobs_that_fill_nodes_and_exchange_them_in_a_cycle_are_detached_once(nodes, resource):
    exchanged = [*range(1, nodes), 0]
    case = exchange_case(range(nodes), exchanged, memory=1.0 if resource == "memory" else 0.0)
    states, commands, _ = performed(case)
    assert commands.action.tolist() == [DETACH] + [Action.MIGRATE] * nodes
    assert commands.job_id[0] == commands.job_id[-1] == 1
    assert commands.reason[0] == Reason.NONE
    assert not any(overcommitted(case, state) for state in states)


def test_two_cycles_are_two_detached_jobs_and_a_chain_is_none():
    two = exchange_case(range(4), [1, 0, 3, 2])
    assert Counter(performed(two)[1].action.tolist()) == {DETACH: 2, Action.MIGRATE: 4}
    chain = exchange_case([0, 1, 2, 3], [1, 2, 3, -1], yields=[1.0, 1.0, 1.0, 0.0])
    assert performed(chain)[1].action.tolist() == [Action.PAUSE] + [Action.MIGRATE] * 3
    assert performed(chain)[1].job_id.tolist() == [4, 3, 2, 1]


def test_a_job_that_shrinks_makes_room_before_another_moves_in_and_grows_after_one_has_left():
    case = exchange_case([0, 1], [0, 0], memory=0.1, yields=[0.5, 0.5])
    assert performed(case)[1].action.tolist() == [Action.SHARE, Action.MIGRATE]
    case = exchange_case([0, 0, 1], [0, 1, -1], memory=0.1, present=[0.5, 0.5, 1.0], yields=[1.0, 1.0, 0.0])
    assert performed(case)[1].action.tolist() == [Action.PAUSE, Action.MIGRATE, Action.SHARE]


# What is refused.


def refused(case, **changes):
    with pytest.raises(PolicyError) as caught:
        check(case.snapshot(), case.target(**changes))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def pair():
    """Jobs 1 and 2 on nodes 0 and 1, of half a node's memory each."""
    return exchange_case([0, 1], [0, 1], memory=0.5)


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.5, np.inf, -np.inf, np.nextafter(1, 2)])
def test_a_yield_out_of_range_is_refused(pair, bad):
    error = refused(pair, yields=np.array([1.0, bad]))
    assert error.job == 2
    assert "yield" in str(error)
    assert "job 2" in str(error)


def test_a_yield_without_nodes_is_refused(pair):
    assert refused(pair, task_nodes=np.array([0, -1])).job == 2


@pytest.mark.parametrize("node", [2, -2, 10**12, -(10**12)])
def test_an_unknown_node_is_refused(pair, node):
    error = refused(pair, task_nodes=np.array([0, node]), yields=np.array([1.0, 0.0 if node < 0 else 1.0]))
    assert error.job == 2
    assert str(node) in str(error)


def test_a_job_with_only_some_of_its_tasks_on_nodes_is_refused():
    jobs = exchange_case([0, 1], [0, 1], memory=0.0).jobs[:1].copy()
    jobs["tasks"] = 2
    case = exchange_case([0, 1], [0, 1])
    case = replace(case, jobs=jobs, first=np.array([0, 2]), yields=np.array([0.5]))
    for nodes in ([0, -1], [-1, 0]):
        error = refused(case, task_nodes=np.array(nodes), yields=np.array([0.5 if nodes[0] == 0 else 0.0]))
        assert error.job == 1
        assert "all or none" in str(error)


def test_too_little_memory_and_too_little_cpu_are_refused_and_name_a_job_on_that_node(pair):
    nodes = np.array([1, 1])
    assert "node 1 would give out more CPU" in str(refused(pair, task_nodes=nodes))
    pair.jobs["memory"] = 0.6
    error = refused(pair, task_nodes=nodes, yields=np.array([0.1, 0.1]))
    assert "memory" in str(error)
    assert "node 1" in str(error)
    assert error.job in {1, 2}


def test_what_passes_capacity_by_no_more_than_the_tolerance_is_admitted(pair):
    nodes, half = np.array([1, 1]), np.array([0.5, 0.5])
    check(pair.snapshot(), pair.target(task_nodes=nodes, yields=half + tolerances.CAPACITY / 4))
    assert "CPU" in str(refused(pair, task_nodes=nodes, yields=half + tolerances.CAPACITY))


@pytest.mark.parametrize("wake", [500.0, 499.0, -np.inf, np.nan])
def test_a_wake_that_is_not_in_the_future_is_refused(pair, wake):
    assert "woken" in str(refused(pair, wake_at_s=wake))


@pytest.mark.parametrize(
    "changes",
    [
        {"task_nodes": np.array([0])},
        {"task_nodes": np.array([0, 1, 1])},
        {"task_nodes": np.array([[0, 1]])},
        {"task_nodes": np.array([0.0, 1.0])},
        {"task_nodes": np.array([0, 1], np.int32)},
        {"task_nodes": [0, 1]},
        {"task_nodes": None},
        {"yields": np.array([1.0])},
        {"yields": np.array([1.0, 1.0], np.float32)},
        {"yields": np.array([1, 1])},
        {"yields": [1.0, 1.0]},
        {"reasons": np.array([1])},
    ],
)
def test_a_wrong_shape_or_type_is_refused(pair, changes):
    refused(pair, **changes)


def test_a_task_that_comes_to_a_closed_node_is_refused_but_those_there_may_stay(pair):
    closed = replace(pair, open=np.array([True, False]), yields=np.array([0.5, 0.5]))
    assert len(reconcile(closed.snapshot(), closed.target())[0]) == 2
    moving = replace(closed, after=np.array([1, 1]))
    with pytest.raises(PolicyError, match="job 1 would come to node 1, which is closed"):
        reconcile(moving.snapshot(), moving.target())


# Reasons.


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (Cause.SUBMISSION, Reason.ROOM),
        (Cause.COMPLETION, Reason.FREED),
        (Cause.WAKE, Reason.PACKED),
        (Cause.NODES, Reason.FREED),
    ],
)
def test_where_the_policy_gives_no_reason_the_cause_gives_one(pair, cause, reason):
    case = replace(pair, after=np.array([-1, 0]), yields=np.array([0.0, 1.0]))
    commands = reconcile(case.snapshot(cause), case.target())[0]
    assert commands.reason.tolist() == [reason, reason]
    given_ones = reconcile(case.snapshot(cause), case.target(reasons=np.array([3, 8])))[0]
    assert given_ones.reason.tolist() == [3, 8]
