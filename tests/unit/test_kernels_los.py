"""The decisions of LOS and its kin against a twin written from the definitions, and proof that this can fail."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.kernels import batch_queue, profile, subset, whole_nodes
from dfrs.kernels import los as kernels
from dfrs.model import tolerances
from dfrs.model.decisions import JOB, RUNNING, WAITING, Cause, Reason, Snapshot
from tests import cases
from tests.frozen import frozen
from tests.naive import los as naive
from tests.strategies import Drawn
from tests.unit.test_kernels_batch import as_python

NOW_S = 100.0
CASES = 4_000
SKIPS = {None: batch_queue.IN_ORDER, 0: 0, 1: 1, 3: 3}


def los_case(source):
    """(snapshot, settings): up to 10 nodes of one kind and 12 jobs, some on nodes, some dedicated."""
    nodes = source.integer(1, 10)
    is_open = np.array([source.integer(0, 9) > 0 for _ in range(nodes)])
    left = [n for n in range(nodes) if is_open[n] or source.integer(0, 1)]
    rows, slots = [], []
    often = source.pick([1, 3])
    for k in range(source.integer(1, 12)):
        tasks = source.pick([1, 1, 2, 3, 4, 6])
        need, memory = source.pick([1.0, 1.0, 1.0, 0.5]), source.pick([0.0, 0.0, 0.5, 1 / 3])
        wanted_s = NOW_S + source.integer(-4, 8) if source.integer(0, often) == 0 else np.nan
        running = source.integer(0, 1) and len(left) >= tasks
        where = [left.pop(source.integer(0, len(left) - 1)) for _ in range(tasks)] if running else None
        start_s = NOW_S - source.integer(1, 20)
        policy_state = (
            source.pick([0, 0, 1, 3]) if np.isnan(wanted_s) else source.pick([0, 0, -1, -1, Reason.LATE_EARLIER])
        )
        rows.append(
            (
                k,
                k,
                -1,
                RUNNING if where else WAITING,
                tasks,
                need if not where else 1.0,
                memory,
                1.0,
                float(source.integer(1, 9)),
                NOW_S - source.integer(0, 30),
                float(source.integer(0, 7)) if where else 0,
                float(bool(where)),
                start_s if where or source.integer(0, 9) == 0 else np.nan,
                NOW_S - 50.0,
                0.0,
                0,
                0,
                wanted_s,
                policy_state,
                source.integer(0, 3) == 0,
                source.integer(0, 4) == 0,
                0.0,
                1.0,
            )
        )
        slots.append(sorted(where) if where else [-1] * tasks)
    snapshot = Snapshot(
        NOW_S,
        Cause.WAKE,
        -1,
        np.ones((nodes, 2)),
        is_open,
        np.array(rows, JOB),
        np.cumsum([0, *map(len, slots)]),
        np.concatenate(slots).astype(np.int64),
        0.0,
    )
    return frozen(snapshot), {
        "skips": source.pick(list(SKIPS)),
        "lookahead": source.pick([1, 2, 4, 99, 99]),
        "unit": source.pick([1, 1, 1, 2, 3]),
        "dedicated": bool(source.integer(0, 3)),
    }


@st.composite
def los_cases(draw):
    return los_case(Drawn(draw))


def decided(module, snapshot, options):
    """What the kernel starts and notes, as its twin says it."""
    rows = len(snapshot.jobs)
    after, yields = np.full_like(snapshot.task_nodes, -9), np.full(rows, np.nan)
    reasons, policy_state = np.zeros(rows, np.int64), np.full(rows, -9)
    jobs = snapshot.jobs if hasattr(module.plan, "py_func") else snapshot.jobs.view(np.recarray)
    changed = module.plan(
        SKIPS[options["skips"]],
        options["lookahead"],
        options["unit"],
        options["dedicated"],
        jobs,
        snapshot.first,
        snapshot.task_nodes,
        snapshot.capacity,
        snapshot.open,
        tolerances.CAPACITY,
        snapshot.now_s,
        after,
        yields,
        reasons,
        policy_state,
    )
    found = {}
    taken = set(snapshot.task_nodes[snapshot.task_nodes >= 0].tolist())
    for r in np.flatnonzero(reasons).tolist() if changed else ():
        own = after[snapshot.first[r] : snapshot.first[r + 1]]
        assert snapshot.jobs["state"][r] == WAITING
        assert snapshot.open[own].all()
        assert taken.isdisjoint(own.tolist())
        assert yields[r] == 1.0
        taken |= set(own.tolist())
        found[r] = Reason(reasons[r]).name
    assert changed == len(found)
    return found, policy_state.tolist()


@settings(max_examples=400, deadline=None)
@given(case=los_cases())
def test_a_decision_is_the_twins(case):
    assert decided(kernels, *case) == naive.plan(case[0], **case[1])


def test_the_kernel_speaks_of_reasons_as_the_model_does():
    for reason in Reason:
        for module in (kernels, batch_queue):
            assert getattr(module, reason.name, reason.value) == reason.value
    assert kernels.SAME_S == tolerances.SAME_S


@cache
def seeded():
    found = [los_case(cases.Seeded(np.random.default_rng(seed))) for seed in range(CASES)]
    return [(*case, naive.plan(case[0], **case[1])) for case in found]


def differs(module):
    try:
        return any(decided(module, snapshot, options) != expected for snapshot, options, expected in seeded())
    except (AssertionError, IndexError, UnboundLocalError, ZeroDivisionError):
        return True


MUTATIONS = (
    ("(kind >= 0).sum() // unit, 1)", "(kind >= 0).sum(), 1)"),
    ("min(in_units(released[m, 0], unit), total)", "released[m, 0]"),
    ("if profile[0, 0] > 0:", "if profile[0, 0] > 1:"),
    ("policy_state[batch] = queue[2]", "policy_state[batch] = policy_state[batch]"),
    ("if own <= nodes else total + 1", "if own <= nodes else total"),
    ("with_dedicated and not np.isnan", "not np.isnan"),
    ("range(4)", "range(3, 4)"),
    ("0 if jobs[r].extensions == 0 else 1", "0"),
    ("2 if policy_state[r] != PROMISED else", "0 if policy_state[r] != PROMISED else"),
    ("wanted_s < now_s - SAME_S)", "wanted_s <= now_s)"),
    ("length = cut(times, free, length, begin, max(wanted_s, now_s))", "length = length"),
    ("(on_time and times[at] > max(wanted_s, now_s) + SAME_S)", "False"),
    ("if on_time and policy_state[r] == 0:", "if policy_state[r] == 0:"),
    ("reasons[r] = (\n                    FREED\n", "reasons[r] = (\n                    ON_TIME\n"),
    ("policy_state[r] if late and policy_state[r] > 0 else ON_TIME", "ON_TIME"),
    ("policy_state[r] > 0 or jobs[r].requested_start_s > now_s", "jobs[r].requested_start_s > now_s"),
    ("jobs[q].start_s <= jobs[r].submit_s", "jobs[q].start_s < jobs[r].submit_s - 5"),
    ("jobs[q].extensions > 0 or ", ""),
    ("earlier > 0 and free", "free"),
    ("units[r] <= free + longer:", "units[r] < free + longer:"),
    ("units[r] <= free + longer + others + earlier", "units[r] <= free + others + earlier"),
    ("booked and q != r", "booked"),
    ("elif closed > 0:", "elif closed > 9:"),
    ("LATE_CHANGED if jobs[r].changes > 0 else", ""),
    ("(m == 0 or times[m] < now_s + estimate_s)", "(m == 0 or times[m] <= now_s + estimate_s)"),
    ("reason = BACKFILLED", "reason = QUEUE_HEAD"),
    ("skipped[head] >= skips", "skipped[head] > skips"),
    ("skipped[head] += 1", "skipped[head] += 0"),
    ("if stop < 0:\n            length = _reserve_head", "if False:\n            length = _reserve_head"),
    ("seen > lookahead", "seen >= lookahead"),
    ("< now_s + estimate_s[q]:\n                crossing", "<= now_s + estimate_s[q]:\n                crossing"),
    ("QUEUE_HEAD if q == head else FILLED", "FILLED"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("", ""), *MUTATIONS])
def test_a_changed_kernel_is_noticed(old, new):
    module = as_python(whole_nodes, profile, subset, batch_queue, kernels, old=old, new=new)
    assert differs(module) == (old != new)
