"""As `compare`, for the kernels of DFRS decisions: what a kernel says beside what its twin says."""

from fractions import Fraction
from typing import Any

import numpy as np

from dfrs.kernels import jit
from dfrs.kernels import repack as repack_kernels
from tests.naive import policies
from tests.naive import rebalance as moves
from tests.naive.compare import Kernel, Pair
from tests.naive.compare_online import lists, records, rows_of
from tests.policy_cases import PolicyCase
from tests.rebalance_cases import RebalanceCase

TOLERANCE = 5e-10
MODES = ("Greedy", "GreedyP", "GreedyPM")
KINDS = range(3)
PINS = ((0, 600.0), (1, 600.0), (2, 600.0))
YIELD_SEARCH = (False, 0.01, 0.01, 0.0, 0.0)
STRETCH_SEARCH = (True, 0.0, 0.0, 0.01, 0.01)
HORIZON_S = 600.0


def node_use(kernel: Kernel, case: PolicyCase) -> Pair:
    used = np.full((len(case.capacity), 2), 7.0)
    kernel(records(kernel, case.jobs), case.first, case.before, used)
    return used.T.tolist(), [policies.use(case, case.where(), column) for column in ("need", "memory")]


def largest_load(kernel: Kernel, case: PolicyCase) -> Pair:
    load = policies.use(case, case.where(), "need")
    used = np.column_stack([load, load])
    ratios = [u / c if c > 0 else np.inf for u, c in zip(load, case.capacity[:, 0].tolist(), strict=True) if u > 0]
    return float(kernel(used, case.capacity)), max(ratios, default=0.0)


def by_priority(kernel: Kernel, case: PolicyCase) -> Pair:
    got = []
    for kind in KINDS:
        order = np.full(case.rows, -9)
        kernel(records(kernel, case.jobs), case.now_s, kind, order)
        got.append(order.tolist())
    return got, [policies.by_priority(case.jobs, case.now_s, kind) for kind in KINDS]


def count_room(kernel: Kernel, case: PolicyCase) -> Pair:
    used = np.array([policies.use(case, case.where(), column) for column in ("need", "memory")]).T.copy()
    got, expected = [], []
    for memory, most in ((0.0, 3), (0.25, 2), (0.125, 100), (1.0, 5)):
        room = np.full(len(case.capacity), -9)
        total = kernel(memory, most, used, case.capacity, case.open, TOLERANCE, room)
        free = case.capacity[:, 1] - used[:, 1] + TOLERANCE
        fitting = [
            max(k for k in range(most + 1) if k * memory <= f) if o and c > 0 else 0
            for f, o, c in zip(free.tolist(), case.open, case.capacity[:, 0], strict=True)
        ]
        got.append((total, room.tolist()))
        expected.append((sum(fitting), fitting))
    return got, expected


def admit(kernel: Kernel, case: PolicyCase) -> Pair:
    got, expected = [], []
    for number, mode in enumerate(MODES):
        for kind in KINDS:
            slots, reasons = case.before.copy(), np.zeros(case.rows, np.int64)
            kernel(
                records(kernel, case.jobs),
                case.first,
                case.before,
                case.capacity,
                case.open,
                case.subject,
                number,
                case.now_s,
                kind,
                TOLERANCE,
                slots,
                reasons,
            )
            where = policies.admit(case, mode, kind, TOLERANCE)
            got.append((case.where(slots), _given(case, slots, reasons)))
            expected.append((_sorted(where), _reasons(case, where, where.keys() - case.where().keys())))
    return got, expected


def _reasons(case: PolicyCase, where: policies.Where, started: set[int]) -> dict[int, int]:
    """ROOM (1) for who started; GAVE_WAY (3) or MOVED_FOR (4) for those who ran."""
    found = dict.fromkeys(started, 1)
    for r, nodes in case.where().items():
        if r not in where:
            found[r] = 3
        elif sorted(where[r]) != nodes:
            found[r] = 4
    return found


def _given(case: PolicyCase, slots: np.ndarray, reasons: np.ndarray) -> dict[int, int]:
    """Reasons of rows that changed."""
    before, after = case.where(), case.where(slots)
    return {r: int(reasons[r]) for r in range(case.rows) if before.get(r) != after.get(r)}


def _sorted(where: policies.Where) -> policies.Where:
    return {r: sorted(nodes) for r, nodes in sorted(where.items())}


def readmit(kernel: Kernel, case: PolicyCase) -> Pair:
    got, expected = [], []
    for kind in KINDS:
        slots, reasons = case.before.copy(), np.zeros(case.rows, np.int64)
        kernel(
            records(kernel, case.jobs),
            case.first,
            case.capacity,
            case.open,
            case.now_s,
            kind,
            TOLERANCE,
            slots,
            reasons,
        )
        where = policies.readmit(case, kind, TOLERANCE)
        got.append((case.where(slots), _given(case, slots, reasons)))
        expected.append((_sorted(where), dict.fromkeys(where.keys() - case.where().keys(), 2)))
    return got, expected


def find_pinned(kernel: Kernel, case: PolicyCase) -> Pair:
    got, expected = [], []
    for pin, seconds in PINS:
        pinned = np.ones(case.rows, np.bool_)
        kernel(records(kernel, case.jobs), case.now_s, pin, seconds, pinned)
        got.append(set(np.flatnonzero(pinned).tolist()))
        expected.append(pinned_rows(case, pin, seconds))
    return got, expected


def pin_stranded(kernel: Kernel, case: PolicyCase) -> Pair:
    pinned = np.arange(case.rows) % 4 == 0
    expected = set(np.flatnonzero(pinned).tolist())
    kernel(records(kernel, case.jobs), case.first, case.before, case.capacity, case.open, TOLERANCE, pinned)
    room = [memory for (cpu, memory), is_open in zip(case.capacity.tolist(), case.open, strict=True) if is_open and cpu]
    for row, nodes in case.where().items():
        tasks, size = int(case.jobs["tasks"][row]), float(case.jobs["memory"][row])
        held = sum(sum(k * size <= free + TOLERANCE for k in range(1, tasks + 1)) for free in room)
        if held < tasks and not all(case.open[node] for node in nodes):
            expected.add(row)
    return set(np.flatnonzero(pinned).tolist()), expected


def pinned_rows(case: PolicyCase, pin: int, seconds: float) -> set[int]:
    age = {0: lambda _: np.inf, 1: lambda job: case.now_s - job["submit_s"], 2: lambda job: job["virtual_s"]}[pin]
    return {r for r in case.where() if age(case.jobs[r]) < seconds}


def objective_cases(case: PolicyCase) -> list[tuple[policies.Objective, np.ndarray, np.ndarray, Any]]:
    """Yields, weighted yields, estimated stretches: (objective, base, slope, search)."""
    flow = case.now_s - case.jobs["submit_s"]
    weight = case.jobs["weight"] / case.jobs["weight"].max()
    zero = np.zeros(case.rows)
    return [
        (policies.Objective(base.tolist(), slope.tolist(), *search), base, slope, search)
        for base, slope, search in (
            (zero, np.ones(case.rows), YIELD_SEARCH),
            (zero, weight, YIELD_SEARCH),
            (-case.jobs["virtual_s"] / HORIZON_S, (flow + HORIZON_S) / HORIZON_S, STRETCH_SEARCH),
        )
    ]


def repack(kernel: Kernel, case: PolicyCase) -> Pair:
    got, expected = [], []
    jobs = records(kernel, case.jobs)
    for pin, seconds in PINS:
        pinned = pinned_rows(case, pin, seconds)
        mask = np.array([r in pinned for r in range(case.rows)])
        for objective, base, slope, search in objective_cases(case):
            order = np.array(policies.by_priority(case.jobs, case.now_s, 2))
            slots, reasons = np.full_like(case.before, -7), np.zeros(case.rows, np.int64)
            level = kernel(
                jobs,
                case.first,
                case.before,
                case.capacity,
                case.open,
                order,
                mask,
                base,
                slope,
                search,
                TOLERANCE,
                slots,
                reasons,
            )
            expected_level, where = policies.mcb(case, 2, pinned, objective, TOLERANCE, _kernel_end)
            got.append((level, case.where(slots), reasons.tolist()))
            left_out = [6 - (r in where) for r in range(case.rows)]
            expected.append((expected_level, _sorted(where), left_out))
    return got, expected


def _kernel_end(case: PolicyCase, rows: set[int], pinned: set[int], objective: policies.Objective) -> float:
    """The kernel's own, for the twin: one that differs in the last bit would break other ties."""
    masks = [np.array([r in some for r in range(case.rows)]) for some in (rows, pinned)]
    return repack_kernels.upper_end(
        case.jobs,
        np.array(objective.base),
        np.array(objective.slope),
        objective.strict,
        *masks,
        case.capacity,
        case.open,
    )


def upper_end(kernel: Kernel, case: PolicyCase) -> Pair:
    got, expected = [], []
    jobs = records(kernel, case.jobs)
    for pin, seconds in PINS:
        pinned = pinned_rows(case, pin, seconds)
        for rows in (set(range(case.rows)), set(range(0, case.rows, 2))):
            masks = [np.array([r in some for r in range(case.rows)]) for some in (rows, pinned)]
            for objective, base, slope, _ in objective_cases(case):
                got.append(round(kernel(jobs, base, slope, objective.strict, *masks, case.capacity, case.open), 7))
                expected.append(round(policies.upper_end(case, rows, pinned, objective), 7))
    return got, expected


def max_min(kernel: Kernel, case: PolicyCase) -> Pair:
    """Yields and weighted yields, beside water-filling in fractions."""
    got, expected = [], []
    for slope in (np.ones(case.rows), case.jobs["weight"].copy()):
        yields = np.full(case.rows, 7.0)
        kernel(records(kernel, case.jobs), case.first, case.before, case.capacity, 0 * slope, slope, 0.0, False, yields)
        got.append(yields.round(8).tolist())
        expected.append([round(float(y), 8) for y in fair_yields(case, slope)])
    return got, expected


def fair_yields(case: PolicyCase, slope: np.ndarray) -> list[Fraction]:
    """Yields slope * level, at most 1, exactly: raise the level, stop those on a node that is full."""
    where = case.where()
    need = {r: Fraction(case.jobs["need"][r].item()) for r in where}
    rise = {r: Fraction(slope[r].item()) for r in where}
    done: dict[int, Fraction] = {}
    while len(done) < len(where):
        left = where.keys() - done.keys()
        level = min(1 / rise[r] for r in left)
        full: set[int] = set()
        for n, size in enumerate(map(Fraction, case.capacity[:, 0].tolist())):
            free = size - sum((need[r] * y * where[r].count(n) for r, y in done.items()), Fraction(0))
            here = [r for r in left if n in where[r]]
            rate = sum((need[r] * rise[r] * where[r].count(n) for r in here), Fraction(0))
            if here and free / rate <= level:
                full = set(here) | (full if free / rate == level else set())
                level = free / rate
        done |= {r: rise[r] * level for r in left if r in full or rise[r] * level == 1}
    return [done.get(r, Fraction(0)) for r in range(case.rows)]


def rebalance(kernel: Kernel, case: RebalanceCase) -> Pair:
    """Nodes and reasons exactly; seconds, infinite ones too, to twelve digits."""
    slots, reasons = case.after.copy(), case.reasons.copy()
    again_s = kernel(
        case.jobs if isinstance(kernel, jit.Kernel) else records(kernel, case.jobs),
        case.first,
        case.before,
        case.capacity,
        case.open,
        case.island,
        case.fixed,
        case.slope,
        tuple(case.rule),
        TOLERANCE,
        slots,
        reasons,
    )
    at, why, expected_s = moves.rebalance(
        rows_of(case.jobs),
        lists(case, case.before),
        lists(case, case.after),
        case.capacity.tolist(),
        case.open.tolist(),
        case.island.tolist(),
        case.fixed.tolist(),
        case.slope.tolist(),
        case.rule,
        TOLERANCE,
        case.reasons.tolist(),
    )
    return (slots.tolist(), reasons.tolist(), f"{again_s:.12g}"), (at, why, f"{expected_s:.12g}")


def least_pressure(kernel: Kernel, case: RebalanceCase) -> Pair:
    table = case.jobs if isinstance(kernel, jit.Kernel) else records(kernel, case.jobs)
    got = kernel(table, case.first, case.after, case.slope, case.capacity, case.open)
    owner = [r for r, nodes in enumerate(lists(case, case.after)) for _ in nodes]
    there = [np.flatnonzero(case.after == n).tolist() for n in range(len(case.capacity))]
    state = (rows_of(case.jobs), owner, case.capacity.tolist(), case.open.tolist(), [], [], case.slope.tolist())
    return float(got), moves.Cluster(*state, case.rule, TOLERANCE, 0.0, there).least_pressure()
