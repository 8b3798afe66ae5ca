"""An independent checker of machine reassignments: the rules of the ROADEF/EURO challenge 2012, word by word.

It reads the files itself and shares no code with the search: plain Python over dictionaries, one rule after the other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dfrs.model.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentReport:
    """What an assignment costs, by part, and each hard constraint that it breaks, one line each."""

    load: int
    balance: int
    process_move: int
    service_move: int
    machine_move: int
    problems: list[str]

    @property
    def cost(self) -> int:
        """The sum of the parts."""
        return self.load + self.balance + self.process_move + self.service_move + self.machine_move


@dataclass(slots=True)
class _Machine:
    neighbourhood: int
    location: int
    capacity: list[int]
    safety: list[int]
    move_cost: list[int]


@dataclass(slots=True)
class _Process:
    service: int
    need: list[int]
    move_cost: int


@dataclass(slots=True)
class _Model:
    transient: list[bool] = field(default_factory=list[bool])
    load_weight: list[int] = field(default_factory=list[int])
    machines: list[_Machine] = field(default_factory=list[_Machine])
    spread: list[int] = field(default_factory=list[int])
    depends: list[list[int]] = field(default_factory=list[list[int]])
    processes: list[_Process] = field(default_factory=list[_Process])
    balance: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    process_weight: int = 0
    service_weight: int = 0
    machine_weight: int = 0


def validate_reassignment(model: Path, before: Path, after: Path) -> ReassignmentReport:
    """Check the assignment file `after` of a model whose processes are as in the file `before`.

    Raises InputError where a file cannot be read.
    """
    problem = _read_model(model)
    old, new = (_read_places(path, problem) for path in (before, after))
    moved = [p for p in range(len(problem.processes)) if old[p] != new[p]]
    use = _use(problem, new)
    problems = [
        *_capacity_problems(problem, use, old, new),
        *_conflicts(problem, new),
        *_spread_problems(problem, new),
        *_dependency_problems(problem, new),
    ]
    per_service = Counter(problem.processes[p].service for p in moved)
    return ReassignmentReport(
        load=sum(
            problem.load_weight[r] * max(0, use[m][r] - machine.safety[r])
            for m, machine in enumerate(problem.machines)
            for r in range(len(problem.load_weight))
        ),
        balance=_balance_cost(problem, use),
        process_move=problem.process_weight * sum(problem.processes[p].move_cost for p in moved),
        service_move=problem.service_weight * max(per_service.values(), default=0),
        machine_move=problem.machine_weight * sum(problem.machines[old[p]].move_cost[new[p]] for p in moved),
        problems=problems,
    )


def _use(problem: _Model, place: list[int]) -> list[list[int]]:
    use = [[0] * len(problem.load_weight) for _ in problem.machines]
    for process, machine in zip(problem.processes, place, strict=True):
        for r, amount in enumerate(process.need):
            use[machine][r] += amount
    return use


def _balance_cost(problem: _Model, use: list[list[int]]) -> int:
    total = 0
    for first, second, target, weight in problem.balance:
        for m, machine in enumerate(problem.machines):
            left_first = machine.capacity[first] - use[m][first]
            left_second = machine.capacity[second] - use[m][second]
            total += weight * max(0, target * left_first - left_second)
    return total


def _capacity_problems(problem: _Model, use: list[list[int]], old: list[int], new: list[int]) -> Iterator[str]:
    """Capacity, and transient use: a process that moved counts on both machines."""
    both = [list(row) for row in use]
    for p, process in enumerate(problem.processes):
        if old[p] != new[p]:
            for r, amount in enumerate(process.need):
                if problem.transient[r]:
                    both[old[p]][r] += amount
    for m, machine in enumerate(problem.machines):
        for r, capacity in enumerate(machine.capacity):
            if both[m][r] > capacity:
                kind = "transient " if problem.transient[r] else ""
                yield f"machine {m}: {both[m][r]} of {kind}resource {r} is used, capacity {capacity}"


def _conflicts(problem: _Model, place: list[int]) -> Iterator[str]:
    on = Counter((process.service, m) for process, m in zip(problem.processes, place, strict=True))
    for (service, m), count in sorted(on.items()):
        if count > 1:
            yield f"machine {m}: {count} processes of service {service}"


def _spread_problems(problem: _Model, place: list[int]) -> Iterator[str]:
    locations: dict[int, set[int]] = defaultdict(set)
    for process, m in zip(problem.processes, place, strict=True):
        locations[process.service].add(problem.machines[m].location)
    for service, least in enumerate(problem.spread):
        if len(locations[service]) < least:
            yield f"service {service}: in {len(locations[service])} locations, must be in {least}"


def _dependency_problems(problem: _Model, place: list[int]) -> Iterator[str]:
    around: dict[int, set[int]] = defaultdict(set)
    for process, m in zip(problem.processes, place, strict=True):
        around[process.service].add(problem.machines[m].neighbourhood)
    for service, others in enumerate(problem.depends):
        for other in others:
            for n in sorted(around[service] - around[other]):
                yield f"service {service}: in neighbourhood {n} without service {other}, on which it depends"


def _words(path: Path) -> Iterator[int]:
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {error}") from None
    for number, line in enumerate(text.splitlines(), start=1):
        for word in line.split():
            try:
                yield int(word)
            except ValueError:
                raise InputError(f'{path}:{number}: "{word}": must be a whole number') from None


def _read_model(path: Path) -> _Model:
    words = _words(path)
    try:
        model = _model(words)
    except (StopIteration, RuntimeError):
        raise InputError(f"{path}: ends too early for a model") from None
    if next(words, None) is not None:
        raise InputError(f"{path}: goes on after the end of the model")
    return model


def _model(words: Iterator[int]) -> _Model:
    model = _Model()
    for _ in range(next(words)):
        model.transient.append(next(words) == 1)
        model.load_weight.append(next(words))
    resources = len(model.load_weight)
    machines = next(words)
    for _ in range(machines):
        model.machines.append(
            _Machine(
                next(words),
                next(words),
                _some(words, resources),
                _some(words, resources),
                _some(words, machines),
            )
        )
    for _ in range(next(words)):
        model.spread.append(next(words))
        model.depends.append(_some(words, next(words)))
    for _ in range(next(words)):
        model.processes.append(_Process(next(words), _some(words, resources), next(words)))
    for _ in range(next(words)):
        model.balance.append((next(words), next(words), next(words), next(words)))
    model.process_weight, model.service_weight, model.machine_weight = _some(words, 3)
    return model


def _some(words: Iterator[int], count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        numbers.append(next(words))
    return numbers


def _read_places(path: Path, problem: _Model) -> list[int]:
    places = list(_words(path))
    if len(places) != len(problem.processes):
        raise InputError(f"{path}: {len(places)} numbers: must be {len(problem.processes)}, one a process")
    for p, m in enumerate(places):
        if not 0 <= m < len(problem.machines):
            raise InputError(f"{path}: process {p}: machine {m}: must be from 0 to {len(problem.machines) - 1}")
    return places
