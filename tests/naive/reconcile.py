"""From a target to commands, on lists: `at[r]` is the list of nodes of row r, empty where it has none."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Job = Mapping[str, Any]
At = list[list[int]]
WAITING, RUNNING, PAUSED = range(3)
NEEDS = ("need", "memory")


def admissible(
    jobs: Sequence[Job],
    after: At,
    yields: Sequence[float],
    reasons: Sequence[int],
    last_reason: int,
    capacity: Sequence[Sequence[float]],
    tolerance: float,
) -> tuple[str, int, int]:
    """(rule, row, node): the first row that breaks a rule, else the first node that has too little."""
    wrong = [r for r, reason in enumerate(reasons) if reason not in range(last_reason + 1)]
    if wrong:
        return "BAD_REASON", wrong[0], -1
    for r, nodes in enumerate(after):
        if not 0 <= yields[r] <= 1:
            return "BAD_YIELD", r, -1
        if nodes[0] < 0 and yields[r] > 0:
            return "IDLE_YIELD", r, -1
        for n in nodes:
            if n < -1 or n >= len(capacity):
                return "BAD_NODE", r, n
            if (n < 0) != (nodes[0] < 0):
                return "PARTLY_PLACED", r, -1
    for n, (cpu, memory) in enumerate(capacity):
        tasks = [r for r, nodes in enumerate(after) for node in nodes if node == n]
        if sum(jobs[r]["memory"] for r in tasks) > memory + tolerance:
            return "MEMORY_OVER", -1, n
        if sum(jobs[r]["need"] * yields[r] for r in tasks) > cpu + tolerance:
            return "CPU_OVER", -1, n
    return "OK", -1, -1


def closed_arrival(before: At, after: At, is_open: Sequence[bool]) -> tuple[int, int]:
    for r, (old, new) in enumerate(zip(before, after, strict=True)):
        for was, n in zip(old, new, strict=True):
            if n >= 0 and n != was and not is_open[n]:
                return r, n
    return -1, -1


def keep_slots(old: list[int], new: list[int]) -> tuple[list[int], int]:
    """The nodes of `new` with tasks that may stay in their slot, the others by index; how many tasks move."""
    wanted = Counter(new)
    kept: list[int | None] = []
    for n in old:
        stays = n >= 0 and wanted[n] > 0
        wanted[n] -= stays
        kept.append(n if stays else None)
    others = iter(sorted(wanted.elements()))
    return [next(others) if n is None else n for n in kept], kept.count(None)


def classify(jobs: Sequence[Job], before: At, after: At, yields: Sequence[float]) -> tuple[list[str], list[int], At]:
    """(what each row needs, tasks moved, the target in kept slots)."""
    kinds, moves, kept = [], [], []
    for job, old, new, y in zip(jobs, before, after, yields, strict=True):
        runs, shall_run = job["state"] == RUNNING, new[0] >= 0
        kind, moved, slots = "KEEP", 0, new
        if runs and shall_run:
            slots, moved = keep_slots(old, new)
            kind = "MIGRATE" if moved else "SHARE" if y != job["yield_"] else "KEEP"
        elif runs:
            kind = "PAUSE"
        elif shall_run:
            kind, moved = ("RESUME" if job["state"] == PAUSED else "START"), len(new)
        kinds.append(kind)
        moves.append(moved)
        kept.append(slots)
    return kinds, moves, kept


def loads(jobs: Sequence[Job], where: Mapping[int, tuple[list[int], float]], nodes: int) -> list[list[float]]:
    """[CPU, memory] of each node, where row r has (its nodes, its yield)."""
    used = [[0.0, 0.0] for _ in range(nodes)]
    for r, (at, y) in where.items():
        for n in at:
            used[n][0] += jobs[r]["need"] * y
            used[n][1] += jobs[r]["memory"]
    return used


def fits(at: Sequence[int], used: Sequence[Sequence[float]], capacity: Sequence[Sequence[float]], tol: float) -> bool:
    return all(amount <= limit + tol for n in at for amount, limit in zip(used[n], capacity[n], strict=True))


def order_moves(
    jobs: Sequence[Job],
    before: At,
    after: At,
    yields: Sequence[float],
    capacity: Sequence[Sequence[float]],
    tolerance: float,
    kinds: Sequence[str],
) -> list[tuple[int, str]]:
    """Round after round, whoever finds room moves; if none does, the first still waiting is detached and comes last."""
    where = {
        r: (before[r], min(job["yield_"], yields[r]) if kinds[r] == "SHARE" else job["yield_"])
        for r, job in enumerate(jobs)
        if job["state"] == RUNNING and kinds[r] != "PAUSE"
    }
    waiting = [r for r, kind in enumerate(kinds) if kind == "MIGRATE"]
    steps: list[tuple[int, str]] = []
    detached: list[int] = []
    while waiting:
        blocked = []
        for r in waiting:
            trial = where | {r: (after[r], yields[r])}
            if fits(after[r], loads(jobs, trial, len(capacity)), capacity, tolerance):
                where = trial
                steps.append((r, "MIGRATE"))
            else:
                blocked.append(r)
        if len(blocked) == len(waiting):
            r = blocked.pop(0)
            del where[r]
            steps.append((r, "DETACH"))
            detached.append(r)
        waiting = blocked
    return steps + [(r, "MIGRATE") for r in detached]


def plan(
    jobs: Sequence[Job],
    before: At,
    after: At,
    yields: Sequence[float],
    capacity: Sequence[Sequence[float]],
    tolerance: float,
    kinds: Sequence[str],
) -> list[tuple[int, str]]:
    def rows(*names: str) -> list[int]:
        return [r for r, kind in enumerate(kinds) if kind in names]

    down = [(r, "SHARE") for r in rows("SHARE") if yields[r] < jobs[r]["yield_"]]
    up = [(r, "SHARE") for r in rows("SHARE") if yields[r] > jobs[r]["yield_"]]
    moves = order_moves(jobs, before, after, yields, capacity, tolerance, kinds)
    return [(r, "PAUSE") for r in rows("PAUSE")] + down + moves + [(r, kinds[r]) for r in rows("START", "RESUME")] + up


def commit(
    jobs: Sequence[Job], at: At, after: At, yields: Sequence[float], now_s: float, steps: Sequence[tuple[int, str]]
) -> tuple[list[dict[str, Any]], At]:
    """The jobs and their nodes when the steps are done."""
    changed, where = [dict(job) for job in jobs], [list(nodes) for nodes in at]
    for r, step in steps:
        job = changed[r]
        if step == "DETACH":
            continue
        job["yield_"] = yields[r]
        if step != "SHARE":
            where[r] = list(after[r])
            job["since_s"] = now_s
        if step == "PAUSE":
            job["state"], job["pauses"] = PAUSED, job["pauses"] + 1
        if step in ("START", "RESUME", "MIGRATE"):
            job["state"], job["ready_s"] = RUNNING, float("inf")
        if step == "MIGRATE":
            job["migrations"] += 1
        if step == "START":
            job["start_s"] = now_s
    return changed, where


def commands(
    jobs: Sequence[Job],
    after: At,
    yields: Sequence[float],
    moved: Sequence[int],
    reasons: Sequence[int],
    fallback: int,
    steps: Sequence[tuple[int, str]],
) -> list[tuple[int, int, float, int, int, list[int]]]:
    """(serial, job id, yield, tasks moved, reason, nodes) of each step."""
    rows = []
    for r, step in steps:
        places = step in ("START", "RESUME", "MIGRATE")
        reason = (reasons[r] if len(reasons) else fallback) if places or step == "PAUSE" else 0
        rows.append(
            (jobs[r]["serial"], jobs[r]["id"], yields[r], moved[r] if places else 0, reason, after[r] if places else [])
        )
    return rows
