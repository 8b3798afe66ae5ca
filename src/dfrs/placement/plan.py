"""From a present placement to a target: which task moves when, over which nodes, and what each move is for.

While a task moves it takes its requirements, and the part of its needs that its minimum yield promises, on both nodes:
the transient resources of the ROADEF/EURO challenge 2012. At every instant all tasks fit at scaled yield 0, the limits
on moves and the hard rules hold, and whoever stops the plan at any time, with moves under way ended or taken back, has
a placement with the same properties. Where the present placement breaks any of that, no step makes it worse.

`plan_order` finds an order of single steps, with `plan_detours` for temporary moves, `plan_schedule` gives them times,
`plan_reasons` says what they are for, `plan_bound` how short a plan could be, and `plan_document` writes it.
"""

import time
from dataclasses import dataclass

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Instance, Ints
from dfrs.model.move_limits import MoveLimits
from dfrs.placement.plan_beginning import best_beginning
from dfrs.placement.plan_bound import makespan_bound
from dfrs.placement.plan_detours import Effort, unlock
from dfrs.placement.plan_names import Names
from dfrs.placement.plan_order import Order, Step
from dfrs.placement.plan_reasons import Reasons, yields_after
from dfrs.placement.plan_schedule import Schedule, Timed
from dfrs.placement.plan_state import NOWHERE, PlanState
from dfrs.placement.plan_traffic import Traffic

ATTEMPTS = 6
"""Orders tried where the first one has temporary moves or leaves tasks behind."""

TRIES = (3_000, 20)
"""Temporary moves tried in all of them: so many, and so many for each task that is to move."""

ALIKE = 0.02
"""Of schedules that are longer than the shortest by less, relative to it, the one with higher yields is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One task goes to another node, or starts."""

    step: int
    """Moves of one step start together and count as done together; numbered from 0 in the order of their starts."""
    task: int
    service: str
    rank: int
    """Which of the service's tasks, from 0."""
    source: int
    """Node; -1 for a task that starts."""
    target: int
    start_s: float
    end_s: float
    bytes: float
    temporary: bool
    """Whether the task goes on to another node later."""
    reason: str
    minimum_yield_after: float | None
    """Least scaled yield of all placed tasks once this move, and all that end no later, are done; None while a node's
    requirements pass its capacity."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Moves in the order of their starts."""

    steps: tuple[Move, ...]
    makespan_s: float
    makespan_bound_s: float
    """No plan for the same tasks is shorter."""
    bytes: float
    temporary: int
    """How many moves are temporary."""
    complete: bool
    """Whether all tasks reach the target."""
    problems: tuple[str, ...]
    """One line for each task that does not."""
    timed: bool
    """Whether times are in seconds; otherwise each move lasts 1, since neither sizes nor limits say how long."""
    minimum_yield_before: float | None
    limits: MoveLimits
    present: Ints
    """(T,) where tasks are before; -1 for those that run nowhere yet."""
    target: Ints
    """(T,) where they should be."""
    final: Ints
    """(T,) where they are after the plan; the target if it is complete."""

    def placement_at(self, time_s: float) -> Ints:
        """(T,) where tasks are once all that ended by `time_s` is done and nothing else is."""
        place = self.present.copy()
        for move in sorted(self.steps, key=lambda m: (m.end_s, m.step)):
            if move.end_s <= time_s:
                place[move.task] = move.target
        return place


def make_plan(
    instance: Instance,
    present: Ints,
    target: Ints,
    limits: MoveLimits | None = None,
    *,
    rng: np.random.Generator | None = None,
    time_limit_s: float = 10.0,
    best_end: bool = False,
    not_temporary: str = "",
) -> Plan:
    """Moves from `present` (T,), -1 for tasks that run nowhere yet, to `target` (T,), under limits and hard rules.

    `limits` are the instance's by default. Orders after the first are drawn from `rng`; the same seed gives the same
    plan unless `time_limit_s` ends the search for temporary moves. With `best_end`, a plan that leaves tasks behind
    ends where they are placed best, if more moves make it worse. `not_temporary`: why no move may be temporary, in
    words; empty where moves may. Raises InputError for placements that are none.
    """
    nodes = len(instance.nodes)
    _check("present", present, len(instance.need), NOWHERE, nodes)
    _check("target", target, len(instance.need), 0, nodes)
    limits = limits or instance.move_limits or MoveLimits()
    rules = None if instance.rules is None else instance.rules.hard_only.arrays
    state = PlanState(instance, present, rules)
    traffic = Traffic(instance, limits)
    names = Names(instance, not_temporary or "no temporary move was found that helps")
    tries = TRIES[0] + TRIES[1] * int((present != target).sum())
    effort = None if not_temporary else Effort(tries, time.monotonic() + time_limit_s)
    steps, problems = _best_order(state, target, traffic, names, rng or np.random.default_rng(0), effort)
    timed = _schedule(state, steps, traffic)
    if best_end and problems:
        kept = best_beginning(instance, state, timed, target)
        if len(kept) < len(timed):
            timed, problems = kept, _left_behind(state, kept, target, traffic, names)
    final = present.copy()
    for now in timed:
        for i, _, b in now.step.legs:
            final[i] = b
    arrived = np.flatnonzero((final == target) & (final != present)).tolist()
    bound = makespan_bound(state, [(i, int(present[i]), int(target[i])) for i in arrived], traffic)
    before = state.minimum_yield
    moves = _moves(state, timed, final, names, traffic, instance)
    return Plan(
        steps=moves,
        makespan_s=max((t.end_s for t in timed), default=0.0),
        makespan_bound_s=bound,
        bytes=float(sum(m.bytes for m in moves)),
        temporary=sum(m.temporary for m in moves),
        complete=not problems,
        problems=tuple(problems),
        timed=traffic.timed,
        minimum_yield_before=before if before >= 0 else None,
        limits=limits,
        present=present.copy(),
        target=target.copy(),
        final=final,
    )


def _check(label: str, place: Ints, tasks: int, low: int, nodes: int) -> None:
    if place.shape != (tasks,):
        raise InputError(f"{label} has shape {place.shape}: must be ({tasks},), a node for each task")
    bad = np.flatnonzero((place < low) | (place >= nodes))
    if bad.size:
        i = int(bad[0])
        raise InputError(f"{label}[{i}] = {place[i]}: must be the index of a node, {low} to {nodes - 1}")


def _best_order(
    state: PlanState, target: Ints, traffic: Traffic, names: Names, rng: np.random.Generator, effort: Effort | None
) -> tuple[list[Step], list[str]]:
    """The order that leaves the fewest tasks behind, then has the fewest bytes in temporary moves; its problems.

    Without `effort` no move is temporary.
    """
    starting = min(state.place, default=0) == NOWHERE
    best: tuple[tuple[float, ...], list[Step], list[str]] | None = None
    for attempt in range(ATTEMPTS):
        drawn = rng if attempt > int(starting) else None
        order = Order(state, target, traffic, starts_last=starting and attempt % 2 == 1, rng=drawn)
        order.drain()
        while order.pending and unlock(order, effort):
            order.drain()
        aside = [i for step in order.steps if step.temporary for i, _, _ in step.legs]
        behind = sum(len(order.legs(order.blocks[k])) for k in order.pending)
        score = (behind, sum(traffic.bytes[i] for i in aside), len(aside))
        if best is None or score < best[0]:
            best = score, order.steps, _problems(order, names, "it was not tried again")
        for step in reversed(order.steps):
            state.undo(step.legs)
        if not any(score) or (effort is not None and effort.over):
            break
    return best[1:] if best is not None else ([], [])


def _left_behind(state: PlanState, timed: list[Timed], target: Ints, traffic: Traffic, names: Names) -> list[str]:
    """Why tasks do not reach their targets where only these steps are made."""
    for now in timed:
        state.apply(now.step.legs)
    order = Order(state, target, traffic)
    problems = _problems(order, names, "it gains nothing without the moves that are not possible")
    for now in reversed(timed):
        state.undo(now.step.legs)
    return problems


def _problems(order: Order, names: Names, possible: str) -> list[str]:
    """Why tasks do not reach their targets, in the state in which the order ends; `possible`: where they could."""
    found: list[str] = []
    for k in order.pending:
        legs = order.legs(order.blocks[k])
        blocker = order.blocker(legs)
        for i, a, b in legs:
            way = f"start on {names.node(b)}" if a < 0 else f"go from {names.node(a)} to {names.node(b)}"
            why = possible if blocker is None else names.blocked(i, blocker)
            found.append(f"{names.task(i)} does not {way}: {why}")
    return found


def _schedule(state: PlanState, steps: list[Step], traffic: Traffic) -> list[Timed]:
    """The shorter of two schedules, or the one with higher yields on the way if their lengths hardly differ."""
    schedule = Schedule(state, steps, traffic)
    found = [schedule.run(longest_first=longest) for longest in (False, True)]
    ends = [max((t.end_s for t in timed), default=0.0) for timed in found]
    alike = [timed for timed, end in zip(found, ends, strict=True) if end <= min(ends) * (1 + ALIKE)]
    return max(alike, key=lambda timed: _yield_seconds(state, timed, max(ends)))


def _yield_seconds(state: PlanState, timed: list[Timed], until_s: float) -> float:
    """Integral of the minimum yield from the start to `until_s`."""
    value, at, total = state.minimum_yield, 0.0, 0.0
    after = {t.end_s: y for t, y in zip(timed, yields_after(state, timed), strict=True)}
    for end in sorted(after):
        total += max(value, 0.0) * (end - at)
        value, at = -1.0 if after[end] is None else float(after[end] or 0.0), end
    return total + max(value, 0.0) * (until_s - at)


def _moves(
    state: PlanState, timed: list[Timed], final: Ints, names: Names, traffic: Traffic, instance: Instance
) -> tuple[Move, ...]:
    reasons = Reasons(state, timed, final, names).all()
    yields = yields_after(state, timed)
    first = np.searchsorted(instance.service_of, np.arange(len(instance.services)))
    moves: list[Move] = []
    for k, (step, start_s, end_s) in enumerate(timed):
        for (i, a, b), reason in zip(step.legs, reasons[k], strict=True):
            j = int(instance.service_of[i])
            moves.append(
                Move(
                    step=k,
                    task=i,
                    service=instance.services[j],
                    rank=i - int(first[j]),
                    source=a,
                    target=b,
                    start_s=start_s,
                    end_s=end_s,
                    bytes=traffic.bytes[i] if a >= 0 else 0.0,
                    temporary=step.temporary,
                    reason=reason,
                    minimum_yield_after=yields[k],
                )
            )
    return tuple(moves)
