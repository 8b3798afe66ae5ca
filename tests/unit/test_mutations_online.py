"""As `test_mutations`, for the kernels of the control core and of the simulated world."""

import pytest

from dfrs.kernels import columns, ledger, progress, reconcile
from tests import online_cases as cases
from tests.mutations import (
    Assign,
    Backwards,
    Call,
    Condition,
    Constant,
    Drop,
    Exchange,
    Keep,
    Omit,
    Operator,
    Part,
    Rewrite,
    Separate,
    Shift,
    Subject,
    Value,
    kernels_of,
    mutations_of,
)
from tests.naive import compare_online as compare

pytestmark = pytest.mark.slow

SUBJECTS = (
    Subject(
        ledger, "advance", compare.advance, cases.reconcile_case,
        (
            Rewrite("rows", "jobs.size"),
            Condition(0, True),
            Keep("call", 1, 0),
            Keep("call", 1, 1),
            Condition(1, True),
            Part("arithmetic", 1, 0, 1.0),
            Keep("arithmetic", 1, 0),
        ),
    ),
    Subject(
        ledger, "row_of", compare.row_of, cases.reconcile_case,
        (
            Rewrite("rows", "jobs.size"),
            Rewrite("jobs[r].id", "jobs[r].serial"),
            Rewrite("NOT_FOUND", "0"),
        ),
    ),
    Subject(
        ledger, "remove_row", compare.remove_row, cases.reconcile_case,
        (
            Value("arithmetic", 0, 1),
            Shift(0, 0, 1),
            Shift(0, 1, -1),
            Keep("arithmetic", 5, 0),
            Keep("arithmetic", 7, 0),
            Shift(1, 0, 1),
        ),
    ),
    Subject(
        ledger, "resize_row", compare.resize_row, cases.reconcile_case,
        (
            Keep("arithmetic", 0, 0),
            Rewrite("shift > 0", "shift >= 2"),
            Keep("arithmetic", 2, 0),
            Drop(2),
            Keep("arithmetic", 11, 0),
            Drop(5),
        ),
    ),
    Subject(
        ledger, "set_ready", compare.set_ready, cases.reconcile_case,
        (
            Rewrite("rows", "rows - 2"),
            Operator("<", "<=", 1),
            Rewrite("middle + 1", "high"),
            Keep("logic", 0, 0),
            Rewrite("k", "0", 3),
        ),
    ),
    Subject(
        ledger, "lose_node", compare.lose_node, cases.reconcile_case,
        (
            Assign(0),
            Rewrite("-1", "task_nodes[s] if task_nodes[s] != node else -1"),
            Rewrite("WAITING", "jobs[r].state"),
            Rewrite("jobs[r].virtual_s = 0.0", "jobs[r].virtual_s *= 0.5"),
            Rewrite("jobs[r].yield_ = 0.0", "jobs[r].yield_ *= 1.0"),
            Rewrite("r", "count", 8),
            Constant(1, 0, 3),
        ),
    ),
    Subject(
        reconcile, "admissible", compare.admissible, cases.broken_case,
        (
            Rewrite("0.0 <= yields[r] <= 1.0", "yields[r] <= 1.0"),
            Rewrite("0.0 <= yields[r] <= 1.0", "0.0 <= yields[r]"),
            Rewrite("not 0.0 <= yields[r] <= 1.0", "yields[r] < 0.0 or yields[r] > 1.0"),
            Condition(1, False),
            Operator(">=", ">", 1),
            Part("comparison", 3, 1, 0),
            Condition(3, False),
            Keep("arithmetic", 1, 0),
            Assign(1),
            Constant(1, 0, 5),
            Rewrite("memory[n] > capacity[n, 1] + tolerance", "memory[n] >= capacity[n, 1]"),
            Part("arithmetic", 3, 0, 1.0),
            Keep("arithmetic", 3, 0),
        ),
    ),
    Subject(
        reconcile, "closed_arrival", compare.closed_arrival, cases.reconcile_case,
        (
            Omit(0, 1),
            Keep("sign", 0, 0),
            Rewrite("r", "s", 3),
        ),
    ),
    Subject(
        reconcile, "keep_slots", compare.keep_slots, cases.reconcile_case,
        (
            Keep("logic", 0, 0),
            Keep("logic", 0, 1),
            Drop(3),
            Assign(2),
            Condition(3, False),
            Drop(10),
        ),
    ),
    Subject(
        reconcile, "classify", compare.classify, cases.reconcile_case,
        (
            Rewrite("jobs[r].state == RUNNING", "before[begin] >= -1"),
            Rewrite("keep_slots(before, after, begin, end, count)", "end - begin"),
            Rewrite("moved[r] > 0", "not same"),
            Operator("!=", ">"),
            Separate(1),
            Value("arithmetic", 1, 0),
            Keep("choice", 0, 1),
            Rewrite("jobs[r].state == RUNNING", "jobs[r].state != WAITING", 1),
            Rewrite("1", "moved[r]", 1),
        ),
    ),
    Subject(
        reconcile, "_add", compare.add, cases.reconcile_case,
        (
            Keep("arithmetic", 2, 1),
            Keep("arithmetic", 1, 0),
            Rewrite("sign", "0.5 * sign", 1),
        ),
    ),
    Subject(
        reconcile, "_fits", compare.fits, cases.reconcile_case,
        (
            Constant(2, 1),
            Keep("arithmetic", 1, 0),
            Rewrite("first[r + 1]", "first[r] + 1"),
        ),
    ),
    Subject(
        reconcile, "order_moves", compare.order_moves, cases.reconcile_case,
        (
            Keep("logic", 0, 0),
            Call("min", "max"),
            Condition(1, False),
            Part("call", 4, 4, 1.0),
            Part("call", 8, 4, 0.0),
            Drop(17),
            Drop(18),
            Rewrite("kept == left", "kept > 0"),
            Rewrite("0", "kept - 1", 4),
            Rewrite("r", "apart", 26),
            Rewrite("DETACH", "PAUSE"),
            Rewrite("k", "0", 4),
            Backwards(3),
        ),
    ),
    Subject(
        reconcile, "plan", compare.plan, cases.reconcile_case,
        (
            Assign(0),
            Operator("<", ">"),
            Value("comparison", 7, True),
            Keep("logic", 1, 0),
            Rewrite("kind[r]", "START", 5),
            Condition(2, False),
            Rewrite("PAUSE", "SHARE", 1),
        ),
    ),
    Subject(
        reconcile, "commit", compare.commit, cases.reconcile_case,
        (
            Rewrite("DETACH", "PAUSE"),
            Value("element", 3, 1.0),
            Condition(1, False),
            Rewrite("after", "task_nodes"),
            Drop(6),
            Rewrite("PAUSED", "WAITING"),
            Constant(1, 2, 1),
            Rewrite("np.inf", "now_s"),
            Rewrite("MIGRATE", "RESUME"),
            Keep("logic", 0, 0),
        ),
    ),
    Subject(
        columns, "append_commands", compare.append_commands, cases.reconcile_case,
        (
            Constant(0, 1, 1),
            Rewrite("jobs[r].serial", "r"),
            Rewrite("(0, 2, 3)", "(0, 3)"),
            Rewrite("(0, 2, 3)", "(0, 1, 2, 3)"),
            Rewrite("moved[r]", "first[r + 1] - first[r]"),
            Constant(4, 3),
            Constant(4, 5),
            Constant(0, 1, 5),
            Rewrite("end", "k", 3),
        ),
    ),
    Subject(
        columns, "write_rows", compare.write_rows, cases.reconcile_case,
        (
            Condition(0, False),
            Rewrite("k", "0", 3),
            Value("element", 7, 0.5),
            Shift(1, 0, 1),
            Exchange(10),
        ),
    ),
    Subject(
        progress, "_account", compare.account, cases.progress_case,
        (
            Operator("<=", "<"),
            Condition(0, False),
            Keep("call", 0, 0),
            Keep("call", 0, 1),
            Condition(1, True),
            Keep("arithmetic", 1, 1),
            Drop(3),
        ),
    ),
    Subject(
        progress, "_predict", compare.predict, cases.progress_case,
        (
            Keep("arithmetic", 0, 0),
            Operator("<=", "<"),
            Keep("call", 1, 0),
            Keep("arithmetic", 2, 0),
            Rewrite("table[j].rate > 0.0", "table[j].rate >= 0.5"),
        ),
    ),
    Subject(
        progress, "perform", compare.perform, cases.progress_case,
        (
            Rewrite("(SHARE, PAUSE, MIGRATE)", "(SHARE, MIGRATE)"),
            Rewrite("(SHARE, PAUSE, MIGRATE)", "(PAUSE, MIGRATE)"),
            Rewrite("step in (SHARE, MIGRATE)", "step == MIGRATE"),
            Drop(12),
            Drop(13),
            Condition(5, True),
            Drop(14),
            Drop(16),
            Condition(6, True),
            Rewrite("START", "RESUME", 2),
            Keep("arithmetic", 4, 0),
            Keep("arithmetic", 2, 1),
            Rewrite("j", "placed", 15),
            Rewrite("now_s + cost_s", "max(table[j].ready_s, now_s + cost_s)"),
            Drop(22),
            Rewrite("(START, RESUME, MIGRATE)", "(START, MIGRATE)"),
            Rewrite("(START, RESUME, MIGRATE)", "(RESUME, MIGRATE)"),
            Rewrite("(START, RESUME, MIGRATE)", "(START, RESUME, MIGRATE, SHARE)"),
            Value("comparison", 1, False),
            Keep("arithmetic", 0, 0),
        ),
    ),
    Subject(
        progress, "delay", compare.delay, cases.progress_case,
        (
            Drop(0),
            Drop(1),
        ),
    ),
    Subject(
        progress, "amend", compare.amend, cases.progress_case,
        (
            Drop(0),
            Keep("call", 2, 0),
            Keep("call", 1, 0),
            Drop(4),
            Rewrite("least - before", "amount_s"),
        ),
    ),
    Subject(
        progress, "drop", compare.drop, cases.progress_case,
        (
            Operator("==", ">="),
            Drop(0),
            Keep("arithmetic", 1, 0),
        ),
    ),
    Subject(
        progress, "next_completion", compare.next_completion, cases.progress_case,
        (
            Operator("<", "<="),
            Operator("<", ">", 1),
            Part("logic", 0, 1, False),
            Rewrite("count", "running.size"),
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    subject.check_as_it_stands()


@pytest.mark.parametrize(("subject", "mutation"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, mutation):
    subject.check_told(mutation)


@pytest.mark.parametrize("module", [columns, ledger, progress, reconcile], ids=lambda module: module.__name__)
def test_every_kernel_is_broken_at_least_twice(module):
    assert kernels_of(module) == {s.name for s in SUBJECTS if s.module is module and len(set(s.mutations)) >= 2}
