"""As `compare`, for the kernels of the control core and of the simulated world."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from dfrs.engine.commands import DETACH
from dfrs.kernels import jit
from dfrs.kernels.columns import Log
from dfrs.model import tolerances
from dfrs.model.instance import Floats
from dfrs.simulator.world import JOB as WORLD_JOB
from tests.naive import ledger, progress, reconcile
from tests.naive.compare import Kernel, Pair
from tests.online_cases import LAST_REASON, OnlineCase, ProgressCase

RULES = ("OK", "BAD_YIELD", "BAD_NODE", "PARTLY_PLACED", "MEMORY_OVER", "CPU_OVER", "IDLE_YIELD", "BAD_REASON")
STEPS = ("START", "PAUSE", "RESUME", "MIGRATE", "SHARE")
KINDS = {"KEEP": -1, **{name: k for k, name in enumerate(STEPS)}, "DETACH": DETACH}
UNTOUCHED = -77
SPEEDS = (0.25, 1.0, 1 / 3, 0.5)
"""Of a job where a command that moves so many tasks brings it, if nodes are not alike."""


def records(kernel: Kernel, jobs: Any) -> Any:
    """A copy of a record array whose rows have attributes in plain Python too."""
    table = jobs.copy()
    return table if isinstance(kernel, jit.Kernel) else table.view(np.recarray)


def rows_of(jobs: Any) -> list[dict[str, Any]]:
    return [dict(zip(jobs.dtype.names, job.tolist(), strict=True)) for job in jobs]


def same(table: Any, rows: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Both with NaN as text, which is equal to itself."""
    return (
        [[repr(value) for value in row.tolist()] for row in table],
        [[repr(row[name]) for name in table.dtype.names] for row in rows],
    )


def lists(case: OnlineCase, slots: np.ndarray) -> list[list[int]]:
    return [slots[case.slots(r)].tolist() for r in range(case.rows)]


def _flat(at: list[list[int]]) -> list[int]:
    return [n for nodes in at for n in nodes]


# The ledger.


def advance(kernel: Kernel, case: OnlineCase) -> Pair:
    """Jobs that do not run are given a yield too: it must not count."""
    got, expected = [], []
    for rows in {case.rows, case.rows // 2}:
        for then_s, now_s in ((case.now_s, case.now_s + 12.5), (case.now_s + 40, case.now_s + 50), (0.0, case.now_s)):
            present = case.jobs.copy()
            present["yield_"], present["ready_s"] = 0.5, np.minimum(present["ready_s"], case.now_s + 10)
            present["speed"] = np.array([0.25, 1.0, 1 / 3])[np.arange(case.rows) % 3]
            table, jobs = records(kernel, present), rows_of(present)
            kernel(table, rows, then_s, now_s)
            one, other = same(table, ledger.advance(jobs[:rows], then_s, now_s) + jobs[rows:])
            got.append(one)
            expected.append(other)
    return got, expected


def row_of(kernel: Kernel, case: OnlineCase) -> Pair:
    jobs, names = rows_of(case.jobs), range(99, 101 + case.rows)
    got = [
        int(kernel(records(kernel, case.jobs), rows, name)) for name in names for rows in (case.rows, case.rows // 2)
    ]
    return got, [ledger.row_of(jobs[:rows], name) for name in names for rows in (case.rows, case.rows // 2)]


def add_row(kernel: Kernel, case: OnlineCase) -> Pair:
    """Another job behind all others, where there is room for one of two tasks and more."""
    room = np.concatenate([case.jobs, np.ones(1, case.jobs.dtype)])
    table, first = records(kernel, room), np.append(case.first, UNTOUCHED)
    nodes = np.concatenate([case.before, np.full(4, UNTOUCHED)])
    asked = {"id": 7, "user": 3, "tasks": 2, "need": 0.25, "memory": 0.5, "weight": 2.0, "estimate_s": 60.0}
    asked |= {"requested_start_s": 90.0, "minimum": 0.125}
    kernel(table, first, nodes, case.rows, 99, case.now_s, tuple(asked.values()))
    one, other = same(table, [*rows_of(case.jobs), ledger.added(asked, 99, case.now_s)])
    at = [*lists(case, case.before), [-1, -1]]
    return (
        (one, first.tolist(), nodes.tolist()),
        (other, np.cumsum([0, *map(len, at)]).tolist(), [*_flat(at), UNTOUCHED, UNTOUCHED]),
    )


def remove_row(kernel: Kernel, case: OnlineCase) -> Pair:
    got, expected = [], []
    for gone in range(case.rows):
        table, first, nodes = records(kernel, case.jobs), case.first.copy(), case.before.copy()
        kernel(table, first, nodes, case.rows, gone)
        left = case.rows - 1
        at = [part for r, part in enumerate(lists(case, case.before)) if r != gone]
        one, other = same(table[:left], [job for r, job in enumerate(rows_of(case.jobs)) if r != gone])
        got.append((one, first[: left + 1].tolist(), nodes[: first[left]].tolist()))
        expected.append((other, np.cumsum([0, *map(len, at)]).tolist(), _flat(at)))
    return got, expected


def resize_row(kernel: Kernel, case: OnlineCase) -> Pair:
    """Every row to every number of tasks up to two more than it has."""
    got, expected = [], []
    for row in range(case.rows):
        at = lists(case, case.before)
        for tasks in range(1, len(at[row]) + 3):
            table, first = records(kernel, case.jobs), case.first.copy()
            nodes = np.concatenate([case.before, np.full(2, UNTOUCHED)])
            kernel(table, first, nodes, case.rows, row, tasks)
            after = [[*part, -1, -1][:tasks] if r == row else part for r, part in enumerate(at)]
            wanted = [job | {"tasks": tasks} if r == row else job for r, job in enumerate(rows_of(case.jobs))]
            one, other = same(table, wanted)
            got.append((one, first.tolist(), nodes[: first[-1]].tolist()))
            expected.append((other, np.cumsum([0, *map(len, after)]).tolist(), _flat(after)))
    return got, expected


def _serials(case: OnlineCase) -> np.ndarray:
    """Every serial number up to the highest: some belong to jobs that are gone."""
    return np.arange(-1, int(case.jobs["serial"].max(initial=0)) + 2)[::-1].copy()


def row_of_serial(kernel: Kernel, case: OnlineCase) -> Pair:
    table, rows = records(kernel, case.jobs), rows_of(case.jobs)
    found = [kernel(table, case.rows, serial) for serial in _serials(case).tolist()]
    return found, [ledger.row_of_serial(rows, serial) for serial in _serials(case).tolist()]


def set_ready(kernel: Kernel, case: OnlineCase) -> Pair:
    return _set(kernel, case, "ready_s")


def set_virtual(kernel: Kernel, case: OnlineCase) -> Pair:
    return _set(kernel, case, "virtual_s")


def _set(kernel: Kernel, case: OnlineCase, column: str) -> Pair:
    serials = _serials(case)
    values = serials * 1.5 + 7
    table = records(kernel, case.jobs)
    kernel(table, case.rows, serials, values)
    told = dict(zip(serials.tolist(), values.tolist(), strict=True))
    return same(table, ledger.set_column(rows_of(case.jobs), column, told))


def lose_node(kernel: Kernel, case: OnlineCase) -> Pair:
    got, expected = [], []
    for node in range(len(case.capacity)):
        table, nodes = records(kernel, case.jobs), case.before.copy()
        table["virtual_s"] = 5.0
        jobs = [job | {"virtual_s": 5.0} for job in rows_of(case.jobs)]
        lost = np.full(case.rows, UNTOUCHED)
        count = kernel(table, case.first, nodes, case.rows, node, lost)
        after, at, rows = ledger.lose_node(jobs, lists(case, case.before), node)
        one, other = same(table, after)
        got.append((one, nodes.tolist(), lost[:count].tolist(), lost[count:].tolist()))
        expected.append((other, _flat(at), rows, [UNTOUCHED] * (case.rows - len(rows))))
    return got, expected


# Reconciling.


def admissible(kernel: Kernel, case: OnlineCase) -> Pair:
    reasons = case.reasons, LAST_REASON
    code, row, node = kernel(
        records(kernel, case.jobs), case.first, case.after, case.yields, *reasons, case.capacity, tolerances.CAPACITY
    )
    return (RULES[code], int(row), int(node)), reconcile.admissible(
        rows_of(case.jobs),
        lists(case, case.after),
        case.yields.tolist(),
        case.reasons.tolist(),
        LAST_REASON,
        case.capacity.tolist(),
        tolerances.CAPACITY,
    )


def closed_arrival(kernel: Kernel, case: OnlineCase) -> Pair:
    row, node = kernel(records(kernel, case.jobs), case.first, case.before, case.after, case.open)
    return (int(row), int(node)), reconcile.closed_arrival(
        lists(case, case.before), lists(case, case.after), case.open.tolist()
    )


def keep_slots(kernel: Kernel, case: OnlineCase) -> Pair:
    got, expected = [], []
    after, count = case.after.copy(), np.zeros(len(case.capacity), np.int64)
    for r, (old, new) in enumerate(zip(lists(case, case.before), lists(case, case.after), strict=True)):
        if new[0] >= 0:
            moved = kernel(case.before, after, int(case.first[r]), int(case.first[r + 1]), count)
            got.append((after.tolist(), int(moved), count.tolist()))
            part, moves = reconcile.keep_slots(old, new)
            whole = (expected[-1][0] if expected else case.after.tolist()).copy()
            whole[case.slots(r)] = part
            expected.append((whole, moves, [0] * len(count)))
    return got, expected


def classify(kernel: Kernel, case: OnlineCase) -> Pair:
    after = case.after.copy()
    kind, moved = np.full((2, case.rows), UNTOUCHED)
    changes = kernel(
        records(kernel, case.jobs), case.first, case.before, after, case.yields, len(case.capacity), kind, moved
    )
    kinds, moves, kept = _classified(case)
    return (
        (int(changes), kind.tolist(), moved.tolist(), after.tolist()),
        (sum(name != "KEEP" for name in kinds), [KINDS[name] for name in kinds], moves, _flat(kept)),
    )


def _classified(case: OnlineCase) -> tuple[list[str], list[int], list[list[int]]]:
    return reconcile.classify(
        rows_of(case.jobs), lists(case, case.before), lists(case, case.after), case.yields.tolist()
    )


def add(kernel: Kernel, case: OnlineCase) -> Pair:
    used, where, got, expected = np.zeros(case.capacity.shape), {}, [], []
    for r, nodes in enumerate(lists(case, case.after)):
        if nodes[0] >= 0:
            kernel(records(kernel, case.jobs), case.first, case.after, r, float(case.yields[r]), 1.0, used)
            where[r] = (nodes, float(case.yields[r]))
        if r % 3 == 2 and r - 1 in where:
            kernel(records(kernel, case.jobs), case.first, case.after, r - 1, where[r - 1][1], -1.0, used)
            del where[r - 1]
        got.append(np.round(used, 12).tolist())
        expected.append(
            np.round(reconcile.loads(rows_of(case.jobs), where, len(case.capacity)), 12).reshape(-1, 2).tolist()
        )
    return [[[v + 0.0 for v in n] for n in g] for g in got], expected


def fits(kernel: Kernel, case: OnlineCase) -> Pair:
    """With loads at, just within and just beyond capacity and tolerance."""
    got, expected = [], []
    tolerance = tolerances.CAPACITY
    for r, nodes in enumerate(lists(case, case.after)):
        for n in range(len(case.capacity)):
            for d in range(2):
                for extra in (0.0, 0.5 * tolerance, 2 * tolerance, -0.5):
                    used = case.capacity * 0.5
                    used[n, d] = case.capacity[n, d] + extra
                    if nodes[0] >= 0:
                        got.append(bool(kernel(case.first, case.after, r, used, case.capacity, tolerance)))
                        expected.append(reconcile.fits(nodes, used.tolist(), case.capacity.tolist(), tolerance))
    return got, expected


def order_moves(kernel: Kernel, case: OnlineCase) -> Pair:
    kinds, _, kept = _classified(case)
    after, kind = np.array(_flat(kept), np.int64), np.array([KINDS[name] for name in kinds], np.int64)
    order, steps = np.full((2, 2 * case.rows + 1), UNTOUCHED)
    count = kernel(
        records(kernel, case.jobs),
        case.first,
        case.before,
        after,
        case.yields,
        case.capacity,
        tolerances.CAPACITY,
        kind,
        order,
        steps,
        1,
    )
    expected = reconcile.order_moves(
        rows_of(case.jobs),
        lists(case, case.before),
        kept,
        case.yields.tolist(),
        case.capacity.tolist(),
        tolerances.CAPACITY,
        kinds,
    )
    return _steps(order, steps, count), [(UNTOUCHED, UNTOUCHED), *_numbered(expected)]


def _steps(order: np.ndarray, steps: np.ndarray, count: int) -> list[tuple[int, int]]:
    return list(zip(order[:count].tolist(), steps[:count].tolist(), strict=True))


def _numbered(steps: list[tuple[int, str]]) -> list[tuple[int, int]]:
    return [(r, KINDS[name]) for r, name in steps]


def _planned(case: OnlineCase) -> tuple[list[tuple[int, str]], list[int], list[list[int]]]:
    kinds, moves, kept = _classified(case)
    steps = reconcile.plan(
        rows_of(case.jobs),
        lists(case, case.before),
        kept,
        case.yields.tolist(),
        case.capacity.tolist(),
        tolerances.CAPACITY,
        kinds,
    )
    return steps, moves, kept


def plan(kernel: Kernel, case: OnlineCase) -> Pair:
    kinds, _, kept = _classified(case)
    after, kind = np.array(_flat(kept), np.int64), np.array([KINDS[name] for name in kinds], np.int64)
    order, steps = np.full((2, 2 * case.rows), UNTOUCHED)
    count = kernel(
        records(kernel, case.jobs),
        case.first,
        case.before,
        after,
        case.yields,
        case.capacity,
        tolerances.CAPACITY,
        kind,
        order,
        steps,
    )
    return _steps(order, steps, count), _numbered(_planned(case)[0])


def commit(kernel: Kernel, case: OnlineCase) -> Pair:
    steps, _, kept = _planned(case)
    table, nodes = records(kernel, case.jobs), case.before.copy()
    order, step = _columns(steps)
    kernel(table, case.first, nodes, np.array(_flat(kept), np.int64), case.yields, case.now_s, order, step)
    jobs, at = reconcile.commit(
        rows_of(case.jobs), lists(case, case.before), kept, case.yields.tolist(), case.now_s, steps
    )
    one, other = same(table, jobs)
    return (one, nodes.tolist()), (other, _flat(at))


def _columns(steps: list[tuple[int, str]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(_numbered(steps), np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


# Columns.


def append_commands(kernel: Kernel, case: OnlineCase) -> Pair:
    steps, moves, kept = _planned(case)
    order, step = _columns(steps)
    count = len(order)
    serial, job_id, moved, reason = np.full((4, count), UNTOUCHED)
    yields, bounds = np.full(count, -1.0), np.full(count + 1, UNTOUCHED)
    nodes = np.full(len(case.after), UNTOUCHED)
    kernel(
        records(kernel, case.jobs),
        case.first,
        np.array(_flat(kept), np.int64),
        case.yields,
        np.array(moves, np.int64),
        case.reasons,
        5,
        order,
        step,
        (serial, job_id, yields, moved, reason),
        bounds,
        nodes,
    )
    parts = [nodes[a:b].tolist() for a, b in pairwise(bounds.tolist())]
    columns = (serial.tolist(), job_id.tolist(), yields.tolist(), moved.tolist(), reason.tolist(), parts)
    return [bounds[0], *zip(*columns, strict=True)], [
        0,
        *reconcile.commands(rows_of(case.jobs), kept, case.yields.tolist(), moves, case.reasons.tolist(), 5, steps),
    ]


def write_rows(kernel: Kernel, case: OnlineCase) -> Pair:
    """Behind three rows and two nodes that are there already; a third of the rows is to be skipped."""
    rows, before = case.rows, 3
    action = case.first[:rows] % 3
    log = [np.full(before + rows, -1.0), *np.full((2, before + rows), UNTOUCHED), np.full(before + rows, -1.0)]
    why, first, nodes = np.full((3, before + rows + 1 + len(case.after)), UNTOUCHED)
    given = (case.jobs["serial"].copy(), action, case.yields, case.jobs["tasks"].copy())
    at, held = kernel(case.now_s, given, case.first, case.after, 1, before, 2, Log(*log, why, first, nodes))
    kept = [r for r in range(rows) if action[r] != 1]
    tail = slice(before, at)
    parts = [case.after[case.slots(r)].tolist() for r in kept]
    ends = np.cumsum([2, *map(len, parts)]).tolist()
    return (
        (
            at,
            held,
            [column[tail].tolist() for column in (*log, why)],
            first[before + 1 : at + 1].tolist(),
            nodes[2:held].tolist(),
            nodes[:2].tolist(),
            first[: before + 1].tolist(),
        ),
        (
            before + len(kept),
            ends[-1],
            [[case.now_s] * len(kept), *([column[r].item() for r in kept] for column in given)],
            ends[1:],
            _flat(parts),
            [UNTOUCHED] * 2,
            [UNTOUCHED] * (before + 1),
        ),
    )


# The simulated world.


def _checkpoints(case: ProgressCase) -> Floats:
    """One job makes none, the next three on its way, and so on."""
    return np.where(np.arange(len(case.run_s)) % 2, case.run_s / 4, 0.0)


def checkpointed(kernel: Kernel, case: ProgressCase) -> Pair:
    """After each part of each job, and where sums may be off by a rounding."""
    got, expected = [], []
    for run_s, every_s in zip(case.run_s.tolist(), _checkpoints(case).tolist(), strict=True):
        for part in (0.0, 0.1, 0.25, 0.5, 0.7, 1.0):
            for off in (0.0, 1e-12, -1e-12):
                done_s = max(0.0, part * run_s * (1 + off))
                got.append(round(float(kernel(done_s, every_s)), 9))
                kept = progress.checkpointed(Fraction(done_s), Fraction(every_s))
                expected.append(round(float(kept), 9))
    return got, expected


def _world_table(kernel: Kernel, case: ProgressCase) -> Any:
    table = np.zeros(len(case.run_s), WORLD_JOB)
    table["run_s"], table["memory"], table["finish_s"], table["speed"] = case.run_s, case.memory, np.inf, 1.0
    table["checkpoint_s"] = _checkpoints(case)
    return records(kernel, table)


def _accounts(case: ProgressCase) -> list[tuple[float, float, float, float, float]]:
    """(progress, rate, since, ready, now): a job on its way, at each instant of the case."""
    time_s, rows = 0.0, []
    for now_s, commands in case.instants:
        for action, _, yield_, moved in commands:
            share = (0.0, 0.5, 1.0)[action % 3]
            rows.append((share, yield_, time_s, (0.0, time_s, time_s + moved, now_s + moved)[moved - 1], now_s))
        time_s = now_s
    return rows


def account(kernel: Kernel, case: ProgressCase) -> Pair:
    got, expected = [], []
    for share, rate, since_s, ready_s, now_s in _accounts(case):
        for j, run_s in enumerate(case.run_s.tolist()):
            for due_s in (now_s, now_s + 1, now_s - 1):
                table = _world_table(kernel, case)
                table[j] = (run_s, 0.5, share * run_s, rate, since_s, ready_s, due_s, 0.5, 0.0, 0.0)
                kernel(table, j, now_s)
                left = max(0.0, now_s - max(since_s, ready_s))
                done = run_s if due_s <= now_s else min(run_s, share * run_s + rate * left)
                got.append((round(float(table[j]["progress_s"]), 9), float(table[j]["since_s"]), table[j].item()[6]))
                expected.append((round(done, 9), now_s, due_s))
    return got, expected


def predict(kernel: Kernel, case: ProgressCase) -> Pair:
    got, expected = [], []
    for share, rate, since_s, ready_s, now_s in _accounts(case):
        for j, run_s in enumerate(case.run_s.tolist()):
            table = _world_table(kernel, case)
            table[j] = (run_s, 0.5, share * run_s, rate, since_s, ready_s, 0.0, 0.5, 0.0, 0.0)
            kernel(table, j, now_s)
            left, begin = run_s - share * run_s, max(now_s, ready_s)
            end = begin if left == 0 else begin + left / rate if rate > 0 else np.inf
            got.append(round(float(table[j]["finish_s"]), 6))
            expected.append(round(end, 6))
    return got, expected


def amend(kernel: Kernel, case: ProgressCase) -> Pair:
    """Jobs on their way or not, given more or less to do, some less than is left."""
    got, expected = [], []
    for share, rate, since_s, ready_s, now_s in _accounts(case):
        for j, run_s in enumerate(case.run_s.tolist()):
            for amount_s in (-50.0, -2.0, -0.1, 0.3, 7.0):
                table = _world_table(kernel, case)
                table[j] = (run_s, 0.5, share * run_s, rate, since_s, ready_s, np.inf, 0.5, 0.0, 0.0)
                change_s = kernel(table, j, amount_s, 1.0, now_s)
                done = share * run_s
                if rate > 0:
                    done = min(run_s, done + rate * max(0.0, now_s - max(since_s, ready_s)))
                after = max(run_s + amount_s, done, min(run_s, 1.0))
                end = max(now_s, ready_s) + (after - done) / rate if rate > 0 else np.inf
                got.append([round(float(x), 6) for x in (change_s, table[j]["run_s"], table[j]["finish_s"])])
                expected.append([round(float(x), 6) for x in (after - run_s, after, end)])
    return got, expected


def drop(kernel: Kernel, case: ProgressCase) -> Pair:
    """The order of those that stay is not promised."""
    jobs = len(case.run_s)
    got, expected = [], []
    for count in range(jobs + 1):
        for job in range(jobs):
            running = np.arange(jobs)[::-1].copy()
            here = set(running[:count].tolist())
            left = kernel(running, count, job)
            got.append((int(left), sorted(running[:left].tolist())))
            expected.append((len(here - {job}), sorted(here - {job})))
    return got, expected


def next_completion(kernel: Kernel, case: ProgressCase) -> Pair:
    got, expected = [], []
    finish = np.array([round(run_s) if run_s < 20 else np.inf for run_s in case.run_s.tolist()])
    table = _world_table(kernel, case)
    table["finish_s"] = finish
    turn = np.argsort(case.memory, kind="stable")
    table["turn"] = turn
    for shift in range(len(finish)):
        running = np.roll(np.arange(len(finish))[::-1], shift).copy()
        for count in range(len(finish) + 1):
            time_s, job = kernel(table, running, count)
            got.append((float(time_s), int(job)))
            ends = [(float(finish[j]), int(turn[j]), j) for j in running[:count].tolist() if np.isfinite(finish[j])]
            first = min(ends, default=(np.inf, 0, -1))
            expected.append((first[0], first[2]))
    return got, expected


def delay(kernel: Kernel, case: ProgressCase) -> Pair:
    """As `predict`, from another time on."""
    got, expected = [], []
    for share, rate, since_s, ready_s, now_s in _accounts(case):
        for j, run_s in enumerate(case.run_s.tolist()):
            table = _world_table(kernel, case)
            table[j] = (run_s, 0.5, share * run_s, rate, since_s, ready_s, 0.0, 0.5, 0.0, 0.0)
            kernel(table, j, now_s + 3.25, now_s)
            left, begin = run_s - share * run_s, now_s + 3.25
            end = begin if left == 0 else begin + left / rate if rate > 0 else np.inf
            got.append([round(float(table[j][name]), 6) for name in ("finish_s", "ready_s", "since_s")])
            expected.append([round(end, 6), round(begin, 6), round(since_s, 6)])
    return got, expected


def perform(kernel: Kernel, case: ProgressCase) -> Pair:
    """Where all nodes are alike, and where a command brings its job to where it is slower."""
    pairs = [_perform(kernel, case, slow) for slow in (False, True)]
    return [got for got, _ in pairs], [expected for _, expected in pairs]


def _perform(kernel: Kernel, case: ProgressCase, slow: bool) -> Pair:
    """The same commands to both worlds. Times are compared to nine digits, everything else exactly."""
    table = _world_table(kernel, case)
    jobs = len(table)
    running, count = np.zeros(jobs, np.int64), 0
    twin = progress.ExactWorld(case.run_s.tolist(), case.memory.tolist(), case.penalty_s, case.copy_s)
    for job, every_s in zip(twin.jobs, _checkpoints(case).tolist(), strict=True):
        job.every = Fraction(every_s)
    got: list[object] = []
    expected: list[object] = []
    gone: set[int] = set()
    for now_s, commands in (*case.instants, (1e6, ())):
        for _ in range(jobs):
            due, job = twin.next_completion()
            if job < 0 or float(due) > now_s + 1e-9:
                break
            got.append(_nearly(table[job]["finish_s"], due))
            expected.append(True)
            running_now = running[:count].tolist()
            running[: count - 1] = [j for j in running_now if j != job]
            count -= 1
            twin.advance(max(float(due), float(twin.now)))
            twin.jobs[job].running = False
            gone.add(job)
        twin.advance(now_s)
        rows, ready = [], []
        for action, job, yield_, moved in commands:
            if job not in gone and twin.possible(action, job):
                rows.append((action, job, yield_, moved))
                begin = twin.perform(*rows[-1], SPEEDS[moved - 1] if slow else 1.0)
                ready += [] if begin is None else [(job, begin)]
        columns = tuple(
            np.array([row[k] for row in rows], kind) for k, kind in enumerate((np.int64, np.int64, float, np.int64))
        )
        serials, ready_s = np.full(len(rows), UNTOUCHED), np.empty(len(rows))
        speeds = np.array([SPEEDS[row[3] - 1] for row in rows]) if slow else np.zeros(0)
        count, placed = kernel(
            table, running, count, now_s, columns, case.penalty_s, case.copy_s, speeds, serials, ready_s
        )
        got.append((int(placed), serials[:placed].tolist(), sorted(running[:count].tolist())))
        here = [j for j, job in enumerate(twin.jobs) if job.running]
        expected.append((len(ready), [job for job, _ in ready], here))
        pairs = zip(ready_s[:placed].tolist(), ready, strict=False)
        got.append([_nearly(at, begin) for at, (_, begin) in pairs])
        expected.append([True] * min(placed, len(ready)))
        ends = {j: twin.end_of(j) for j in range(jobs)}
        got.append([j in gone or _nearly(table[j]["finish_s"], ends[j]) for j in range(jobs)])
        expected.append([True] * jobs)
    return got, expected


def _nearly(time_s: float, exact: Any) -> bool:
    return time_s == exact if exact == np.inf else abs(time_s - float(exact)) <= 1e-9 * max(1.0, float(exact))
