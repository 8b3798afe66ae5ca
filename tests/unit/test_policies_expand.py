"""Nodes for more tasks of a running job: where nodes are shared, and where a job has them for itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

from dfrs.engine.core import Core
from dfrs.engine.events import Change, Submit
from dfrs.model.decisions import Cause
from dfrs.model.elastic import Answer, CommandKind
from dfrs.policies.fractional.expand import on_free_nodes, on_shared_nodes
from dfrs.policies.names import find_policy
from tests.policy_cases import drawn, policy_case


def growing_case(source):
    """Something runs; some of it has a requested start that came. (case, row of a running job, more tasks)."""
    case = policy_case(source)
    jobs = case.jobs.copy()
    jobs["requested_start_s"] = np.nan
    jobs["need"] /= source.pick((1, 2, 4))
    jobs["memory"] /= source.pick((1, 2))
    for r in case.where():
        if source.integer(0, 2) == 0:
            jobs["requested_start_s"][r] = case.now_s - 100.0
    where = sorted(case.where())
    row = where[source.integer(0, len(where) - 1)] if where else -1
    return replace(case, jobs=jobs, moved=0.0), row, source.integer(1, 5)


def sums(case, rows, column):
    """(N,) of a column over the tasks of these rows."""
    used = np.zeros(len(case.capacity))
    for r, nodes in case.where().items():
        if r in rows:
            np.add.at(used, nodes, case.jobs[column][r])
    return used


def reserved_rows(case):
    """Dedicated rows that have their full need where they run; each beside those before it."""
    held = set()
    for r, nodes in case.where().items():
        if not np.isnan(case.jobs["requested_start_s"][r]):
            load = sums(case, {*held, r}, "need")
            held |= {r} if (load[nodes] <= case.capacity[nodes, 0] + 1e-9).all() else set()
    return held


def shared_slowly(case, row, more):
    """Task by task, by the words of the rule."""
    held = reserved_rows(case)
    everyone = set(case.where())
    guests = everyone - held
    need, memory = case.jobs["need"][row], case.jobs["memory"][row]
    cpu, kept = case.capacity[:, 0], sums(case, held, "need")
    rest = np.where(cpu - kept < 0.01 * cpu, 0.0, cpu - kept)
    load, full, wanted = sums(case, everyone, "need"), sums(case, everyone, "memory"), sums(case, guests, "need")
    has_guests = np.array([any(n in case.where()[r] for r in guests) for n in range(len(cpu))])
    chosen = []
    for _ in range(more):
        able = case.open & (full + memory <= case.capacity[:, 1] + 1e-9)
        if row in held:
            left = cpu - kept - need
            able &= np.where(has_guests, left >= 0.01 * np.maximum(wanted, cpu), left >= -1e-9)
            key = (load + need) / np.where(cpu > 0, cpu, 1.0)
        else:
            able &= rest > 0
            key = (wanted + need) / np.where(rest > 0, rest, 1.0)
        if not able.any():
            return None
        n = int(np.argmin(np.where(able, key, np.inf)))
        chosen.append(n)
        load[n] += need
        full[n] += memory
        kept[n] += need if row in held else 0.0
        wanted[n] += 0.0 if row in held else need
    return sorted(chosen)


def cases():
    return drawn(growing_case)


@given(drawn_case=cases())
def test_shared_nodes_are_those_of_least_load_with_room(drawn_case):
    case, row, more = drawn_case
    assume(row >= 0)
    nodes = on_shared_nodes(case.snapshot(Cause.COMMAND), row, more)
    expected = shared_slowly(case, row, more)
    assert (nodes is None) == (expected is None)
    if nodes is not None:
        assert sorted(nodes.tolist()) == expected
        assert nodes.dtype == np.int64


def free_slowly(case, row, more):
    """One task after the other: own nodes that hold it beside what they have, then nodes without tasks."""
    cpu, memory = (case.capacity - np.column_stack([sums(case, case.where(), c) for c in ("need", "memory")])).T
    taken = {n for nodes in case.where().values() for n in nodes}
    own = set(case.where()[row])
    chosen = []
    for n in [*sorted(own), *(n for n in range(len(cpu)) if n not in taken)]:
        while case.open[n] and len(chosen) < more:
            cpu[n] -= case.jobs["need"][row]
            memory[n] -= case.jobs["memory"][row]
            if min(cpu[n], memory[n]) < -1e-9:
                break
            chosen.append(n)
    return chosen if len(chosen) == more else None


@given(drawn_case=cases())
def test_free_nodes_come_after_room_on_the_job_s_own(drawn_case):
    case, row, more = drawn_case
    assume(row >= 0)
    nodes = on_free_nodes(case.snapshot(Cause.COMMAND), row, more)
    assert (None if nodes is None else nodes.tolist()) == free_slowly(case, row, more)


def core_with(name, *submissions):
    """On two reference nodes, all at 0 s."""
    core = Core(find_policy(name), np.ones((2, 2)))
    for submit in submissions:
        core.handle(submit, 0.0)
    return core


def present(core):
    """Nodes and yield of each running job."""
    return {name: (sorted(p.nodes), p.yield_) for name, p in core.snapshot().placements.items()}


@pytest.mark.parametrize(
    "name", ["Greedy*", "GreedyPM*/per/OPT=MIN/MVT=600", "Greedy/per/OPT=AVG", "GreedyP*/stretch-per"]
)
def test_yields_fall_when_a_job_grows_and_rise_when_it_shrinks(name):
    """The core checks each target. Each has a node for itself at first; then the larger one has a task on both."""
    core = core_with(name, Submit(1, 1, 1.0, 0.25), Submit(2, 1, 0.5, 0.25))
    assert present(core) == {1: ([0], 1.0), 2: ([1], 1.0)}
    core.handle(Change(1, CommandKind.EP, 1.0), 0.0)
    assert present(core) == {1: ([0, 1], pytest.approx(2 / 3)), 2: ([1], pytest.approx(2 / 3))}
    core.handle(Change(1, CommandKind.RP, 1.0), 0.0)
    assert present(core) == {1: ([0], 1.0), 2: ([1], 1.0)}


def test_memory_limits_growth():
    core = core_with("Greedy*", Submit(1, 1, 0.5, 0.5), Submit(2, 1, 0.5, 0.6))
    core.handle(Change(1, CommandKind.EP, 2.0), 5.0)
    assert core.answers.last is Answer.NO_ROOM
    core.handle(Change(1, CommandKind.EP, 1.0), 5.0)
    assert core.answers.last is Answer.GRANTED
    assert present(core) == {1: ([0, 0], 1.0), 2: ([1], 1.0)}


def test_memory_that_a_command_frees_is_used_at_once():
    core = core_with("Greedy*", Submit(1, 2, 0.5, 0.6), Submit(2, 1, 0.5, 0.6))
    core.handle(Change(1, CommandKind.RP, 1.0), 5.0)
    assert present(core) == {1: ([0], 1.0), 2: ([1], 1.0)}


def test_a_dedicated_job_grows_by_whole_shares_and_drives_nobody_out():
    """Its tasks need half a node each; batch jobs have what they leave, and must have something."""
    asked = Submit(1, 1, 0.5, 0.1, requested_start_s=0.0)
    core = core_with("Greedy*", asked, Submit(2, 2, 1.0, 0.1))
    assert present(core) == {1: ([0], 1.0), 2: ([0, 1], 0.5)}
    core.handle(Change(1, CommandKind.EP, 2.0), 5.0)
    assert core.answers.last is Answer.NO_ROOM
    core.handle(Change(1, CommandKind.EP, 1.0), 5.0)
    assert present(core) == {1: ([0, 1], 1.0), 2: ([0, 1], 0.5)}
    core.handle(Change(2, CommandKind.EP, 1.0), 5.0)
    assert present(core) == {1: ([0, 1], 1.0), 2: ([0, 0, 1], 0.25)}
