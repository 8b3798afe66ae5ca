"""Machine reassignment from its definition: costs and broken constraints of an assignment, added up anew each time."""

from dataclasses import dataclass
from itertools import product

Place = tuple[int, ...]


@dataclass
class Problem:
    transient: list[bool]
    load_weight: list[int]
    neighbourhood: list[int]
    location: list[int]
    capacity: list[list[int]]
    safety: list[list[int]]
    machine_move: list[list[int]]
    spread: list[int]
    depends: list[list[int]]
    service: list[int]
    need: list[list[int]]
    process_move: list[int]
    balance: list[tuple[int, int, int, int]]
    weights: tuple[int, int, int]
    first: Place

    @property
    def machines(self) -> range:
        return range(len(self.capacity))

    @property
    def resources(self) -> range:
        return range(len(self.load_weight))

    def on(self, place: Place, m: int) -> list[int]:
        return [p for p, where in enumerate(place) if where == m]

    def use(self, place: Place, m: int, r: int) -> int:
        return sum(self.need[p][r] for p in self.on(place, m))


def use_of_both(problem: Problem, place: Place, m: int, r: int) -> int:
    """Use of what is on a machine, and of a transient resource what was on it at first."""
    here = set(problem.on(place, m))
    if problem.transient[r]:
        here |= set(problem.on(problem.first, m))
    return sum(problem.need[p][r] for p in here)


def machine_cost(problem: Problem, place: Place, m: int) -> int:
    """Load and balance cost."""
    total = 0
    for r in problem.resources:
        total += problem.load_weight[r] * max(0, problem.use(place, m, r) - problem.safety[m][r])
    for a, b, target, weight in problem.balance:
        left = [problem.capacity[m][r] - problem.use(place, m, r) for r in (a, b)]
        total += weight * max(0, target * left[0] - left[1])
    return total


def cost(problem: Problem, place: Place) -> int:
    total = sum(machine_cost(problem, place, m) for m in problem.machines)
    moved = [p for p in range(len(place)) if place[p] != problem.first[p]]
    process, service, machine = problem.weights
    total += process * sum(problem.process_move[p] for p in moved)
    total += service * max(sum(problem.service[p] == s for p in moved) for s in range(len(problem.spread)))
    return total + machine * sum(problem.machine_move[problem.first[p]][place[p]] for p in range(len(place)))


def is_feasible(problem: Problem, place: Place) -> bool:
    if any(
        use_of_both(problem, place, m, r) > problem.capacity[m][r]
        for m, r in product(problem.machines, problem.resources)
    ):
        return False
    at: list[list[int]] = [[place[p] for p in range(len(place)) if problem.service[p] == s] for s in services(problem)]
    if any(len(set(machines)) < len(machines) for machines in at):
        return False
    if any(len({problem.location[m] for m in at[s]}) < problem.spread[s] for s in services(problem)):
        return False
    around = [{problem.neighbourhood[m] for m in machines} for machines in at]
    return all(around[s] <= around[other] for s in services(problem) for other in problem.depends[s])


def services(problem: Problem) -> range:
    return range(len(problem.spread))


def after(place: Place, who: list[int], target: list[int]) -> Place:
    moved = list(place)
    for p, m in zip(who, target, strict=True):
        moved[p] = m
    return tuple(moved)


def moves(place: Place, machines: int) -> list[tuple[list[int], list[int], bool]]:
    """Every shift, swap, ejection, and cycle and path of three: (processes, where they go, whether it is a cycle)."""
    found: list[tuple[list[int], list[int], bool]] = []
    for count in (1, 2, 3):
        for who in product(range(len(place)), repeat=count):
            through = [place[p] for p in who]
            if len(set(through)) < count:
                continue
            if count > 1:
                found.append((list(who), [*through[1:], through[0]], True))
            found += [(list(who), [*through[1:], m], False) for m in range(machines) if m not in through]
    return found
