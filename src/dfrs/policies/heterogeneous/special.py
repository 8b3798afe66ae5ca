"""Plans that are not for a gain in speed: thrashing jobs, and room for the first of the queue ([Atif2011] 5.7, 9)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan, nan

from dfrs.model import tolerances
from dfrs.policies.heterogeneous.easy import Dispatch
from dfrs.policies.heterogeneous.gains import gain_s
from dfrs.policies.heterogeneous.rules import has_left
from dfrs.policies.heterogeneous.search import PlanScenario, PlanSearch, Trade


def memory_trades(search: PlanSearch, locks: Mapping[int, float]) -> Iterator[Trade]:
    """PlanScenario 5: what could be done for each thrashing job, in order of submission, the first choice first.

    By index, each partition whose nodes have the memory that it is known to want: to free nodes; else with one job
    there whose processes fit where it is now, the one submitted first; else with several such jobs. `locks` may grow
    meanwhile: nothing more is said of a job whose partition is locked.
    """
    board = search.board
    for row in range(len(board.home)):
        if board.home[row] < 0 or row in board.fresh or not board.view.swapping[row]:
            continue
        for target in range(board.partitions):
            if target == board.home[row] or board.home[row] in locks or target in locks:
                continue
            problem = _no_memory(search, row, target)
            backs = [()] if problem else _partners(search, row, target)
            for back in backs:
                if board.home[row] not in locks:
                    yield _memory_trade(search, row, target, back, problem)


def _no_memory(search: PlanSearch, row: int, target: int) -> str:
    """Why a thrashing job is not helped by that partition, or nothing."""
    board, job = search.board, int(search.board.snapshot.jobs["id"][row])
    wanted = float(board.view.required[row])
    if not isfinite(wanted):
        return f"job {job} thrashes, but what it wants is not known"
    if all(wanted <= float(board.view.node_memory[n]) + tolerances.CAPACITY for n in board.nodes[row]):
        return f"job {job} has the memory it wants where it is"
    return search.bar_there(row, target)


def _partners(search: PlanSearch, row: int, target: int) -> Iterator[tuple[int, ...]]:
    """Jobs that could give way to a thrashing one, each by itself; at last as many together as it takes."""
    board = search.board
    if search.enough(row, target, ()):
        yield ()
        return
    able = [
        k
        for k, home in enumerate(board.home)
        if home == target
        and k not in board.fresh
        and not board.view.swapping[k]
        and not isnan(search.speed_now(k))
        and not search.rests(k)
        and not has_left(board.policy_state[k], board.home[row])
    ]
    yield from ((k,) for k in able if search.enough(row, target, (k,)))
    together: tuple[int, ...] = ()
    for k in able:
        if not isinstance(search.goals_back(row, (*together, k)), str):
            together = (*together, k)
        if len(together) > 1 and search.enough(row, target, together):
            yield together
            return
    if not able:
        yield ()


def _memory_trade(search: PlanSearch, row: int, target: int, back: tuple[int, ...], problem: str) -> Trade:
    board = search.board
    goals = problem or search.goals(row, target, back)
    return Trade(
        scenario=PlanScenario.MEMORY,
        lead=row,
        back=back,
        source=board.home[row],
        target=target,
        gain_s=nan,
        threshold_s=nan,
        goals={} if isinstance(goals, str) else goals,
        problem=goals if isinstance(goals, str) else "",
    )


def head_trades(search: PlanSearch, done: Dispatch, locks: Mapping[int, float]) -> Sequence[Trade]:
    """Moves of one job to free nodes elsewhere by which the first of the queue has room where it was, best first.

    The gain is what the head saves by starting when the move is over instead of at its reservation, as far as that is
    within beta tau, and what the moved job gains or loses in that time or until its end; less the stretch. Ties as in
    `PlanSearch.entries`.
    """
    board = search.board
    if done.head < 0:
        return []
    found: list[Trade] = []
    for row, home in enumerate(board.home):
        if home < 0 or home in locks or row in board.fresh or board.view.swapping[row] or search.rests(row):
            continue
        open_nodes = sorted({*board.free[home], *board.nodes[row]})
        if sum(board.holds(done.head, n) for n in open_nodes) < board.tasks[done.head]:
            continue
        found += [
            _head_trade(search, done, row, c)
            for c in range(board.partitions)
            if c != home and c not in locks and len(board.free[c]) >= board.tasks[row]
        ]
    return search.in_order(found)


def _head_trade(search: PlanSearch, done: Dispatch, row: int, target: int) -> Trade:
    board, rules = search.board, search.rules
    goals = search.goals(row, target, ())
    problem, mover = (goals, None) if isinstance(goals, str) else ("", search.mover_at(row, target, goals[row]))
    # What a job loses counts until its end only, and it need not have long to run.
    gain = nan if mover is None else gain_s([mover], replace(rules, one=True))
    if mover is None:
        problem = problem or "nothing is predicted where it would be"
    saved_s = head_saved_s(search, done, row)
    if saved_s <= 0.0:
        problem = problem or "the first of the queue would not start earlier"
    return Trade(
        scenario=PlanScenario.HEAD,
        lead=row,
        back=(),
        source=board.home[row],
        target=target,
        gain_s=gain + board.tasks[done.head] * saved_s,
        threshold_s=rules.threshold_s(board.tasks[row] + board.tasks[done.head]),
        goals={} if problem or isinstance(goals, str) else goals,
        problem=problem,
    )


def head_saved_s(search: PlanSearch, done: Dispatch, row: int) -> float:
    """Seconds by which the head starts earlier if that job is moved, within beta tau from now."""
    rules, now_s = search.rules, search.board.snapshot.now_s
    over_s = now_s + rules.copy_s * search.board.tasks[row]
    return min(done.shadow_s, now_s + rules.horizon_s) - over_s
