"""Tiny machine reassignments with two assignments that keep all hard constraints: the first, and one to move from."""

from itertools import chain, product
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from dfrs.workloads.reassignment import Reassignment
from tests.naive.reassign import Place, Problem

small = st.integers(0, 9)


@st.composite
def reassignments(draw) -> tuple[Problem, Place]:
    """A problem, and an assignment of it."""
    machines, resources = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    service = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(lambda s: _most_alike(s) <= machines))
    services = draw(st.integers(max(service) + 1, max(service) + 2))
    first, place = (_places(draw, service, machines) for _ in range(2))
    rows = range(machines)

    def table(count: int, size: int) -> list[list[int]]:
        return draw(st.lists(st.lists(small, min_size=size, max_size=size), min_size=count, max_size=count))

    need = table(len(service), resources)
    transient = draw(st.lists(st.booleans(), min_size=resources, max_size=resources))
    room = table(machines, resources)
    for m, r in product(rows, range(resources)):
        both = [
            sum(need[p][r] for p in range(len(service)) if m in ({place[p], first[p]} if transient[r] else {place[p]})),
            sum(need[p][r] for p in range(len(service)) if first[p] == m),
        ]
        room[m][r] += max(both)
    neighbourhood, location = (draw(st.lists(st.integers(0, 2), min_size=machines, max_size=machines)) for _ in "nl")
    around = [_groups(service, where, neighbourhood, services) for where in (first, place)]
    located = [_groups(service, where, location, services) for where in (first, place)]
    depends = [
        [d for d in range(services) if d != s and all(a[s] <= a[d] for a in around) and draw(st.booleans())]
        for s in range(services)
    ]
    spread = [draw(st.integers(0, min(len(a[s]) for a in located))) for s in range(services)]
    balance = draw(st.lists(st.tuples(*[st.integers(0, resources - 1)] * 2, st.integers(0, 3), small), max_size=2))
    move = table(machines, machines)
    for m in rows:
        move[m][m] = 0
    problem = Problem(
        transient=transient,
        load_weight=table(1, resources)[0],
        neighbourhood=neighbourhood,
        location=location,
        capacity=room,
        safety=table(machines, resources),
        machine_move=move,
        spread=spread,
        depends=depends,
        service=service,
        need=need,
        process_move=table(1, len(service))[0],
        balance=balance,
        weights=draw(st.tuples(small, small, small)),
        first=first,
    )
    return problem, place


def _most_alike(service: list[int]) -> int:
    return max(service.count(s) for s in service)


def _places(draw, service: list[int], machines: int) -> Place:
    """No two of a service on a machine."""
    orders = [draw(st.permutations(range(machines))) for _ in range(max(service) + 1)]
    return tuple(orders[s][service[:p].count(s)] for p, s in enumerate(service))


def _groups(service: list[int], place: Place, group: list[int], services: int) -> list[set[int]]:
    return [{group[m] for s, m in zip(service, place, strict=True) if s == wanted} for wanted in range(services)]


def arrays(problem: Problem) -> Reassignment:
    """The same problem as the program has it."""
    ints = np.int64
    first = np.cumsum([0, *map(len, problem.depends)])
    return Reassignment(
        name="tiny",
        transient=np.array(problem.transient),
        load_weight=np.array(problem.load_weight, ints),
        neighbourhood=np.array(problem.neighbourhood, ints),
        location=np.array(problem.location, ints),
        capacity=np.array(problem.capacity, ints),
        safety=np.array(problem.safety, ints),
        machine_move=np.array(problem.machine_move, np.int32),
        spread=np.array(problem.spread, ints),
        dependencies=(first.astype(ints), np.array(list(chain.from_iterable(problem.depends)), ints)),
        service=np.array(problem.service, ints),
        need=np.array(problem.need, ints),
        process_move=np.array(problem.process_move, ints),
        balance=np.array(problem.balance, ints).reshape(-1, 4),
        weights=problem.weights,
        first=np.array(problem.first, ints),
    )


def model_text(problem: Problem) -> str:
    """The problem as a model file."""
    lines: list[list[object]] = [[len(problem.transient)]]
    lines += [[int(t), w] for t, w in zip(problem.transient, problem.load_weight, strict=True)]
    lines.append([len(problem.capacity)])
    lines += [
        [problem.neighbourhood[m], problem.location[m], *problem.capacity[m], *problem.safety[m], *costs]
        for m, costs in enumerate(problem.machine_move)
    ]
    lines.append([len(problem.spread)])
    lines += [[n, len(d), *d] for n, d in zip(problem.spread, problem.depends, strict=True)]
    lines.append([len(problem.service)])
    lines += [[s, *problem.need[p], problem.process_move[p]] for p, s in enumerate(problem.service)]
    lines.append([len(problem.balance)])
    for a, b, target, weight in problem.balance:
        lines += [[a, b, target], [weight]]
    lines.append(list(problem.weights))
    return "".join(" ".join(map(str, line)) + "\n" for line in lines)


def write(problem: Problem, folder: Path) -> tuple[Path, Path]:
    """Model and assignment files of the problem."""
    model, assignment = folder / "model_tiny.txt", folder / "assignment_tiny.txt"
    model.write_text(model_text(problem))
    assignment.write_text(" ".join(map(str, problem.first)) + "\n")
    return model, assignment
