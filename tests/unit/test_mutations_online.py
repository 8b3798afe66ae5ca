"""As `test_mutations`, for the kernels of the control core and of the simulated world."""

import pytest

from dfrs.kernels import columns, ledger, progress, reconcile
from tests import online_cases as cases
from tests.naive import compare_online as compare
from tests.unit.test_mutations import Subject, agrees, kernels_of, mutations_of

pytestmark = pytest.mark.slow

SUBJECTS = (
    Subject(
        ledger, "advance", compare.advance, cases.reconcile_case,
        (
            ("range(rows)", "range(jobs.size)"),
            ("jobs[r].state == RUNNING", "True"),
            ("max(then_s, jobs[r].ready_s)", "then_s"),
            ("max(then_s, jobs[r].ready_s)", "jobs[r].ready_s"),
            ("if now_s > since:", "if True:"),
            ("jobs[r].virtual_s += jobs[r].yield_ *", "jobs[r].virtual_s += 1.0 *"),
            ("* jobs[r].speed *", "*"),
        ),
    ),
    Subject(
        ledger, "row_of", compare.row_of, cases.reconcile_case,
        (
            ("range(rows)", "range(jobs.size)"),
            ("jobs[r].id", "jobs[r].serial"),
            ("return NOT_FOUND", "return 0"),
        ),
    ),
    Subject(
        ledger, "remove_row", compare.remove_row, cases.reconcile_case,
        (
            ("first[row + 1] - begin", "1"),
            ("range(begin,", "range(begin + 1,"),
            ("first[rows] - width", "first[rows] - width - 1"),
            ("jobs[r] = jobs[r + 1]", "jobs[r] = jobs[r]"),
            ("first[r + 2] - width", "first[r + 2]"),
            ("range(row, rows - 1)", "range(row + 1, rows - 1)"),
        ),
    ),
    Subject(
        ledger, "resize_row", compare.resize_row, cases.reconcile_case,
        (
            ("tasks - jobs[row].tasks", "tasks"),
            ("if shift > 0:", "if shift >= 2:"),
            ("range(first[rows] - 1, first[row + 1] - 1, -1)", "range(first[rows] - 1, first[row + 1], -1)"),
            ("task_nodes[s] = -1", "pass"),
            ("range(row + 1, rows + 1)", "range(row + 1, rows)"),
            ("jobs[row].tasks = tasks", "pass"),
        ),
    ),
    Subject(
        ledger, "set_ready", compare.set_ready, cases.reconcile_case,
        (
            ("high = rows", "high = rows - 2"),
            ("jobs[middle].serial < serials[k]", "jobs[middle].serial <= serials[k]"),
            ("low = middle + 1", "low = high"),
            ("low < rows and jobs[low].serial == serials[k]", "low < rows"),
            ("ready_s[k]", "ready_s[0]"),
        ),
    ),
    Subject(
        ledger, "lose_node", compare.lose_node, cases.reconcile_case,
        (
            ("here |= task_nodes[s] == node", "here = task_nodes[s] == node"),
            ("task_nodes[s] = -1", "task_nodes[s] = task_nodes[s] if task_nodes[s] != node else -1"),
            ("jobs[r].state = WAITING", "jobs[r].state = jobs[r].state"),
            ("jobs[r].virtual_s = 0.0", "jobs[r].virtual_s *= 0.5"),
            ("jobs[r].yield_ = 0.0", "jobs[r].yield_ *= 1.0"),
            ("lost[count] = r", "lost[count] = count"),
            ("count += 1", "count += 0"),
        ),
    ),
    Subject(
        reconcile, "admissible", compare.admissible, cases.broken_case,
        (
            ("0.0 <= yields[r] <= 1.0", "yields[r] <= 1.0"),
            ("0.0 <= yields[r] <= 1.0", "0.0 <= yields[r]"),
            ("not (0.0 <= yields[r] <= 1.0)", "yields[r] < 0.0 or yields[r] > 1.0"),
            ("not placed and yields[r] > 0.0", "False"),
            ("n < -1 or n >= nodes", "n < -1 or n > nodes"),
            ("n < -1 or", "n < 0 or"),
            ("(n >= 0) != placed", "False"),
            ("cpu[n] += jobs[r].need * yields[r]", "cpu[n] += jobs[r].need"),
            ("memory[n] += jobs[r].memory", "memory[n] = jobs[r].memory"),
            ("capacity[n, 1] + tolerance", "capacity[n, 0] + tolerance"),
            ("memory[n] > capacity[n, 1] + tolerance", "memory[n] >= capacity[n, 1]"),
            ("cpu[n] > capacity[n, 0] + tolerance", "cpu[n] > 1.0 + tolerance"),
            ("cpu[n] > capacity[n, 0] + tolerance", "cpu[n] > capacity[n, 0]"),
        ),
    ),
    Subject(
        reconcile, "closed_arrival", compare.closed_arrival, cases.reconcile_case,
        (
            ("after[s] != before[s] and", ""),
            ("not open_nodes[after[s]]", "open_nodes[after[s]]"),
            ("return r, after[s]", "return s, after[s]"),
        ),
    ),
    Subject(
        reconcile, "keep_slots", compare.keep_slots, cases.reconcile_case,
        (
            ("n >= 0 and count[n] > 0", "n >= 0"),
            ("if n >= 0 and count[n] > 0", "if count[n] > 0"),
            ("            count[n] -= 1\n            after[s] = n", "            after[s] = n"),
            ("moved += 1", "moved = 1"),
            ("while count[n] == 0:", "while False:"),
            ("                after[s] = n\n                count[n] -= 1", "                after[s] = n"),
        ),
    ),
    Subject(
        reconcile, "classify", compare.classify, cases.reconcile_case,
        (
            ("jobs[r].state == RUNNING:\n                same", "before[begin] >= -1:\n                same"),
            ("moved[r] = keep_slots(before, after, begin, end, count)", "moved[r] = end - begin"),
            ("if moved[r] > 0:", "if not same:"),
            ("yields[r] != jobs[r].yield_", "yields[r] > jobs[r].yield_"),
            ("elif yields[r] !=", "if yields[r] !="),
            ("moved[r] = end - begin", "moved[r] = 0"),
            ("RESUME if jobs[r].state == PAUSED else START", "START"),
            ("elif jobs[r].state == RUNNING:", "elif jobs[r].state != WAITING:"),
            ("changes += 1", "changes += moved[r]"),
        ),
    ),
    Subject(
        reconcile, "_add", compare.add, cases.reconcile_case,
        (
            ("sign * jobs[r].need * yield_", "jobs[r].need * yield_"),
            ("sign * jobs[r].need * yield_", "sign * jobs[r].need"),
            ("used[at[s], 1] += sign", "used[at[s], 1] += 0.5 * sign"),
        ),
    ),
    Subject(
        reconcile, "_fits", compare.fits, cases.reconcile_case,
        (
            ("range(2)", "range(1)"),
            ("+ tolerance", ""),
            ("range(first[r], first[r + 1])", "range(first[r], first[r] + 1)"),
        ),
    ),
    Subject(
        reconcile, "order_moves", compare.order_moves, cases.reconcile_case,
        (
            ("jobs[r].state == RUNNING and kind[r] != PAUSE", "jobs[r].state == RUNNING"),
            ("min(yields[r], jobs[r].yield_) if", "max(yields[r], jobs[r].yield_) if"),
            ("if kind[r] == SHARE else jobs[r].yield_", "if False else jobs[r].yield_"),
            ("_add(jobs, first, before, r, low, 1.0, used)", "_add(jobs, first, before, r, 1.0, 1.0, used)"),
            ("_add(jobs, first, after, r, yields[r], 1.0, used)", "_add(jobs, first, after, r, 0.0, 1.0, used)"),
            ("_add(jobs, first, after, r, yields[r], -1.0, used)", "pass"),
            ("_add(jobs, first, before, r, jobs[r].yield_, 1.0, used)", "pass"),
            ("if kept == left:", "if kept > 0:"),
            ("r = waiting[0]", "r = waiting[kept - 1]"),
            ("detached[apart] = r", "detached[apart] = apart"),
            ("steps[filled] = DETACH", "steps[filled] = PAUSE"),
            ("waiting[k - 1] = waiting[k]", "waiting[k - 1] = waiting[0]"),
            ("for k in range(apart):", "for k in range(apart - 1, -1, -1):"),
        ),
    ),
    Subject(
        reconcile, "plan", compare.plan, cases.reconcile_case,
        (
            ("migrations |= kind[r] == MIGRATE", "migrations = kind[r] == MIGRATE"),
            ("yields[r] < jobs[r].yield_", "yields[r] > jobs[r].yield_"),
            ("yields[r] > jobs[r].yield_", "True"),
            ("if kind[r] == START or kind[r] == RESUME:", "if kind[r] == START:"),
            ("steps[filled] = kind[r]", "steps[filled] = START"),
            ("if migrations:", "if False:"),
            ("steps[filled] = PAUSE", "steps[filled] = SHARE"),
        ),
    ),
    Subject(
        reconcile, "commit", compare.commit, cases.reconcile_case,
        (
            ("if step == DETACH:", "if step == PAUSE:"),
            ("jobs[r].yield_ = yields[r]", "jobs[r].yield_ = 1.0"),
            ("if step == SHARE:", "if False:"),
            ("task_nodes[s] = after[s]", "task_nodes[s] = task_nodes[s]"),
            ("jobs[r].since_s = now_s", "pass"),
            ("jobs[r].state = PAUSED", "jobs[r].state = WAITING"),
            ("jobs[r].pauses += 1", "jobs[r].pauses += 2"),
            ("jobs[r].ready_s = np.inf", "jobs[r].ready_s = now_s"),
            ("if step == MIGRATE:", "if step == RESUME:"),
            ("elif step == START and np.isnan(jobs[r].start_s)", "elif step == START"),
        ),
    ),
    Subject(
        columns, "append_commands", compare.append_commands, cases.reconcile_case,
        (
            ("bounds[0] = 0", "bounds[0] = 1"),
            ("serial[k] = jobs[r].serial", "serial[k] = r"),
            ("if step in (0, 2, 3):", "if step in (0, 3):"),
            ("if step in (0, 2, 3):", "if step in (0, 1, 2, 3):"),
            ("tasks_moved[k] = moved[r]", "tasks_moved[k] = first[r + 1] - first[r]"),
            ("if step < 4:", "if step < 3:"),
            ("if step < 4:", "if step < 5:"),
            ("if reasons.size > 0 else fallback", "if reasons.size > 1 else fallback"),
            ("bounds[k + 1] = end", "bounds[k + 1] = k"),
        ),
    ),
    Subject(
        columns, "write_rows", compare.write_rows, cases.reconcile_case,
        (
            ("if action[k] == skip:", "if False:"),
            ("actions[at] = action[k]", "actions[at] = action[0]"),
            ("log_yields[at] = yields[k]", "log_yields[at] = 0.5"),
            ("for p in range(bounds[k], bounds[k + 1]):", "for p in range(bounds[k] + 1, bounds[k + 1]):"),
            ("at += 1\n        firsts[at] = held", "firsts[at] = held\n        at += 1"),
        ),
    ),
    Subject(
        progress, "_account", compare.account, cases.progress_case,
        (
            ("table[j].finish_s <= now_s", "table[j].finish_s < now_s"),
            ("table[j].finish_s <= now_s", "False"),
            ("max(table[j].since_s, table[j].ready_s)", "table[j].since_s"),
            ("max(table[j].since_s, table[j].ready_s)", "table[j].ready_s"),
            ("if now_s > since:", "if True:"),
            ("+ table[j].rate * (now_s - since)", "+ (now_s - since)"),
            ("table[j].since_s = now_s", "pass"),
        ),
    ),
    Subject(
        progress, "_predict", compare.predict, cases.progress_case,
        (
            ("table[j].run_s - table[j].progress_s", "table[j].run_s"),
            ("if left <= 0.0:", "if left < 0.0:"),
            ("max(now_s, table[j].ready_s) + left", "now_s + left"),
            ("left / table[j].rate", "left"),
            ("elif table[j].rate > 0.0:", "elif table[j].rate >= 0.5:"),
        ),
    ),
    Subject(
        progress, "perform", compare.perform, cases.progress_case,
        (
            ("step in (SHARE, PAUSE, MIGRATE)", "step in (SHARE, MIGRATE)"),
            ("step in (SHARE, PAUSE, MIGRATE)", "step in (PAUSE, MIGRATE)"),
            ("if step in (SHARE, MIGRATE):", "if step == MIGRATE:"),
            ("table[j].finish_s = np.inf", "pass"),
            ("table[j].progress_s = 0.0", "pass"),
            ("if step == LOST:", "if True:"),
            ("count = drop(running, count, j)", "pass"),
            ("else:\n            continue", "else:\n            pass"),
            ("if step != SHARE:", "if True:"),
            ("0.0 if step == START else", "0.0 if step == RESUME else"),
            ("copy_s * moved[k] * table[j].memory", "copy_s * table[j].memory"),
            ("penalty_s + copy_s", "copy_s"),
            ("serials[placed] = j", "serials[placed] = placed"),
            ("table[j].ready_s = now_s + cost_s", "table[j].ready_s = max(table[j].ready_s, now_s + cost_s)"),
            ("        _predict(table, j, now_s)", "        pass"),
            ("step in (START, RESUME, MIGRATE):", "step in (START, MIGRATE):"),
            ("step in (START, RESUME, MIGRATE):", "step in (RESUME, MIGRATE):"),
            ("step in (START, RESUME, MIGRATE):", "step in (START, RESUME, MIGRATE, SHARE):"),
            ("if speeds.size > 0 and step in", "if False and step in"),
            ("= yields[k] * table[j].speed\n        elif", "= yields[k]\n        elif"),
        ),
    ),
    Subject(
        progress, "delay", compare.delay, cases.progress_case,
        (
            ("table[job].ready_s = ready_s", "pass"),
            ("_predict(table, job, now_s)", "pass"),
        ),
    ),
    Subject(
        progress, "amend", compare.amend, cases.progress_case,
        (
            ("_account(table, job, now_s)", "pass"),
            ("min(before, least_s)", "before"),
            ("max(min(before, least_s), table[job].progress_s)", "min(before, least_s)"),
            ("_predict(table, job, now_s)", "pass"),
            ("else least - before", "else amount_s"),
        ),
    ),
    Subject(
        progress, "drop", compare.drop, cases.progress_case,
        (
            ("running[p] == job", "running[p] >= job"),
            ("running[p] = running[count - 1]", "pass"),
            ("return count - 1", "return count"),
        ),
    ),
    Subject(
        progress, "next_completion", compare.next_completion, cases.progress_case,
        (
            ("finish < time_s or", "finish <= time_s or"),
            ("j < job", "j > job"),
            ("(finish == time_s and j < job)", "False"),
            ("for p in range(count):", "for p in range(running.size):"),
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    for got, expected in subject.pairs(subject.compiled_by_python(subject.source)):
        assert got == expected


@pytest.mark.parametrize(("subject", "old", "new"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, old, new):
    assert subject.source.count(old) == 1, "the source has changed: choose another mutation"
    mutant = subject.compiled_by_python(subject.source.replace(old, new))
    assert not agrees(subject, mutant)


@pytest.mark.parametrize("module", [columns, ledger, progress, reconcile], ids=lambda module: module.__name__)
def test_every_kernel_is_broken_at_least_twice(module):
    assert kernels_of(module) == {s.name for s in SUBJECTS if s.module is module and len(set(s.mutations)) >= 2}
