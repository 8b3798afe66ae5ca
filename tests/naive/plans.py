"""A plan carried out step by step from its definition: loads, limits and rules counted anew at every instant."""

from fractions import Fraction
from itertools import combinations

from dfrs.model.instance import Instance
from dfrs.placement.plan import Move, Plan
from tests.naive import rules as naive
from tests.naive.yields import minimum_yield

ROUNDING = 5e-9
MOST_AT_ONCE = 5
"""All orders in which moves under way may end are tried where there are no more of them."""


def problems(instance: Instance, plan: Plan) -> list[str]:
    """What the plan breaks of what it promises."""
    steps: dict[int, list[Move]] = {}
    for move in plan.steps:
        steps.setdefault(move.step, []).append(move)
    order = list(steps.values())
    wrong: list[str] = []
    place = plan.present.tolist()
    done: set[int] = set()
    for k, step in enumerate(order):
        now = step[0].start_s
        for r in sorted((r for r in range(k) if r not in done), key=lambda r: (order[r][0].end_s, r)):
            if order[r][0].end_s <= now:
                place = after(place, order[r])
                done.add(r)
        running = [order[r] for r in range(k) if r not in done]
        wrong += [f"step {k}: {text}" for text in start(instance, plan, place, running, step)]
    for step in sorted(order, key=lambda s: (s[0].end_s, s[0].step)):
        value = yield_at(instance, plan.placement_at(step[0].end_s).tolist())
        for move in step:
            if abs((move.minimum_yield_after or 0.0) - max(value, 0.0)) > 1e-6:
                wrong.append(f"{move}: the minimum yield after it is {value}")
    last = plan.placement_at(float("inf")).tolist()
    if last != plan.final.tolist() or plan.complete != (last == plan.target.tolist()):
        wrong.append("the plan does not end where it says")
    if plan.complete == bool(plan.problems):
        wrong.append("what is left is said where something is left, and only there")
    return wrong


def start(instance: Instance, plan: Plan, place: list[int], running: list[list[Move]], step: list[Move]) -> list[str]:
    wrong: list[str] = []
    moves = [m for other in running for m in other]
    if any(place[m.task] != m.source for m in step) or {m.task for m in step} & {m.task for m in moves}:
        wrong.append("a task is not where its move begins")
    if len({(m.start_s, m.end_s) for m in step}) > 1:
        wrong.append("its moves have different times")
    lasts = max(duration(instance, plan, m) for m in step)
    if abs(Fraction(step[0].end_s) - Fraction(step[0].start_s) - lasts) > Fraction(1, 10**6):
        wrong.append(f"lasts not {float(lasts)}")
    before, now = load(instance, place, moves), load(instance, place, [*moves, *step])
    for n, capacity in enumerate(instance.capacity.tolist()):
        for d, limit in enumerate(capacity):
            if now[n][d] > limit + ROUNDING and now[n][d] > before[n][d]:
                wrong.append(f"node {n} has {now[n][d]} of {d}, capacity {limit}")
    if any(m.source >= 0 for m in step):
        wrong += limits(instance, plan, [m for m in [*moves, *step] if m.source >= 0])
    return wrong + orders(instance, place, [*running, step])


def orders(instance: Instance, place: list[int], running: list[list[Move]]) -> list[str]:
    """Whatever order the steps under way end in, no rule is broken by any of them."""
    if instance.rules is None:
        return []
    rules = instance.rules.hard_only
    parts = [part for r in rules.in_force for part in rules.parts[r]]
    assert rules.scope is not None
    wrong: list[str] = []
    subsets = range(len(running)) if len(running) <= MOST_AT_ONCE else (len(running) - 1,)
    for size in subsets:
        for ended in combinations(range(len(running)), size):
            state = place
            for r in ended:
                state = after(state, running[r])
            for r in set(range(len(running))) - set(ended):
                changes = {m.task: m.target for m in running[r]}
                if not naive.may_become(parts, rules.scope, state, changes):
                    wrong.append(f"a rule is broken once {changes} is done after {ended}")
    return wrong


def after(place: list[int], step: list[Move]) -> list[int]:
    moved = {m.task: m.target for m in step}
    return [moved.get(i, at) for i, at in enumerate(place)]


def load(instance: Instance, place: list[int], moves: list[Move]) -> list[list[float]]:
    base = instance.base.tolist()
    found = [[0.0] * len(instance.resources) for _ in instance.nodes]
    for i, n in [*enumerate(place), *((m.task, m.target) for m in moves)]:
        if n >= 0:
            found[n] = [x + y for x, y in zip(found[n], base[i], strict=True)]
    return found


def limits(instance: Instance, plan: Plan, moves: list[Move]) -> list[str]:
    wrong: list[str] = []
    given = plan.limits
    if given.at_once is not None and len(moves) > given.at_once:
        wrong.append(f"{len(moves)} moves at once")
    for n in range(len(instance.nodes)):
        count = sum(n in (m.source, m.target) for m in moves)
        if given.per_node is not None and count > given.per_node:
            wrong.append(f"{count} moves of node {n}")
    if given.per_link is not None:
        rack = [own[given.link_level] for own in instance.labels]
        for link in set(rack):
            count = sum((rack[m.source] == link) != (rack[m.target] == link) for m in moves)
            if count > given.per_link:
                wrong.append(f"{count} moves of link {link}")
    return wrong


def duration(instance: Instance, plan: Plan, move: Move) -> Fraction:
    if move.source < 0:
        return Fraction(0)
    if not plan.timed:
        return Fraction(1)
    lasts = Fraction(plan.limits.latency_s)
    if plan.limits.bandwidth_bytes_per_s is not None:
        lasts += Fraction(float(instance.task_bytes[move.task])) / Fraction(plan.limits.bandwidth_bytes_per_s)
    return lasts


def yield_at(instance: Instance, place: list[int]) -> float:
    here = [i for i, n in enumerate(place) if n >= 0]
    base, slope = instance.base.tolist(), instance.slope.tolist()
    if not here:
        return 1.0
    return minimum_yield(
        [base[i] for i in here],
        [slope[i] for i in here],
        instance.capacity.tolist(),
        [place[i] for i in here],
        ROUNDING,
    )
