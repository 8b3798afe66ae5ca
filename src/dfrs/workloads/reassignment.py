"""Instances of the ROADEF/EURO challenge 2012, machine reassignment: model and assignment files, and solutions.

A model file is a list of whole numbers between white space: resources (transient, weight of the load cost), machines
(neighbourhood, location, capacities, safety capacities, costs of a move to each machine), services (spread, services
that it depends on), processes (service, requirements, cost of a move), balance costs (two resources, target, weight),
and the weights of process, service and machine moves. An assignment file has the machine of each process. Lines mean
nothing to the reader; they are for its messages.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dfrs.model.errors import InputError
from dfrs.model.writing import write_text

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST = 10**15
"""No number of a file is larger."""
EXACT = 2**62
"""Amounts and costs of a model add up to less: then sums and differences of costs are exact in 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reassignment:
    """An instance: R resources, M machines, S services, P processes, B balance costs."""

    name: str
    transient: Bools
    """(R,) resources that a process that moves takes on its first machine too."""
    load_weight: Ints
    """(R,)"""
    neighbourhood: Ints
    """(M,)"""
    location: Ints
    """(M,)"""
    capacity: Ints
    """(M, R)"""
    safety: Ints
    """(M, R) use above it has a cost."""
    machine_move: NDArray[np.int32]
    """(M, M) cost of a move from a machine to another, before its weight."""
    spread: Ints
    """(S,) fewest locations of a service's processes."""
    dependencies: tuple[Ints, Ints]
    """Service s depends on second[first[s]:first[s + 1]]."""
    service: Ints
    """(P,)"""
    need: Ints
    """(P, R)"""
    process_move: Ints
    """(P,) before its weight."""
    balance: Ints
    """(B, 4) two resources, target, weight: weight x max(0, target x what is left of the first - of the second)."""
    weights: tuple[int, int, int]
    """Of process, service and machine move cost."""
    first: Ints
    """(P,) the machine on which each process is before."""


class _Numbers:
    """The numbers of a file, taken from the front."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot read: {error.strerror}") from None
        self._at = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self._values = np.fromstring(self._text.decode("ascii"), dtype=np.int64, sep=" ")
        except (ValueError, DeprecationWarning):
            self._refuse()
        if self._values.size == 0:
            raise InputError(f"{path}: has no numbers")

    def _refuse(self) -> None:
        for line, text in enumerate(self._text.split(b"\n"), start=1):
            for word in text.split():
                if not word.isdigit():
                    shown = word[:20].decode("ascii", "replace")
                    raise InputError(f'{self.path}:{line}: "{shown}": must be a whole number from 0 to {MOST}')
        raise InputError(f"{self.path}: must be whole numbers between white space")

    def take(self, count: int, what: str) -> Ints:
        """The next `count` numbers."""
        taken = self._values[self._at : self._at + count]
        if taken.size < count:
            missing = count - taken.size
            raise InputError(f"{self.path}: ends within {what}: {missing} more numbers must follow")
        wrong = np.flatnonzero((taken < 0) | (taken > MOST))
        if wrong.size:
            self.refuse(self._at + int(wrong[0]), what, f"must be a whole number from 0 to {MOST}")
        self._at += count
        return taken

    def one(self, what: str, least: int = 0, most: int = MOST) -> int:
        """The next number, from `least` to `most`."""
        value = int(self.take(1, what)[0])
        if not least <= value <= most:
            self.refuse(self._at - 1, what, f"must be from {least} to {most}")
        return value

    def table(self, rows: int, columns: int, what: str) -> Ints:
        """The next `rows` rows."""
        return self.take(rows * columns, what).reshape(rows, columns)

    def within(self, values: Ints, below: int, what: str, back: int, step: int) -> None:
        """Check that values[k], `back - k step` numbers ago, is less than `below`."""
        wrong = np.flatnonzero(values >= below)
        if wrong.size:
            k = int(wrong[0])
            self.refuse(self._at - back + k * step, f"{what} {k}", f"must be from 0 to {below - 1}")

    def refuse(self, at: int, what: str, rule: str) -> None:
        """Raise InputError for number `at` of the file."""
        left = at
        for line, text in enumerate(self._text.split(b"\n"), start=1):
            words = len(text.split())
            if left < words:
                raise InputError(f"{self.path}:{line}: {what}: {self._values[at]}: {rule}")
            left -= words

    def end(self) -> None:
        """Raise InputError if numbers are left."""
        if self._at < self._values.size:
            self.refuse(self._at, "after the last number of the model", "must be the end of the file")


def read_reassignment(model: Path, assignment: Path) -> Reassignment:
    """The instance in a model file, from where the assignment file says that processes are.

    Raises InputError for what is not a model or an assignment to it. Whether the assignment keeps the hard constraints
    is for the search to say.
    """
    numbers = _Numbers(model)
    resources = numbers.one("number of resources", 1)
    kinds = numbers.table(resources, 2, "resources")
    numbers.within(kinds[:, 0], 2, "transient of resource", kinds.size, 2)
    machines = numbers.one("number of machines", 1)
    rows = numbers.table(machines, 2 + 2 * resources + machines, "machines")
    capacity, safety, move = np.split(rows[:, 2:], [resources, 2 * resources], axis=1)
    if (move > np.iinfo(np.int32).max).any():
        raise InputError(f"{model}: machines: cost of a move {move.max()}: must be at most {np.iinfo(np.int32).max}")
    spread, dependencies = _services(numbers)
    processes = numbers.one("number of processes", 1)
    table = numbers.table(processes, resources + 2, "processes")
    numbers.within(table[:, 0], spread.size, "service of process", table.size, resources + 2)
    balance = numbers.table(numbers.one("number of balance costs"), 4, "balance costs")
    for column in range(2):
        what = f"resource {column + 1} of balance cost"
        numbers.within(balance[:, column], resources, what, balance.size - column, 4)
    weights = numbers.take(3, "weights of moves")
    numbers.end()
    instance = Reassignment(
        name=model.stem.removeprefix("model_"),
        transient=kinds[:, 0] == 1,
        load_weight=kinds[:, 1].copy(),
        neighbourhood=_dense(rows[:, 0]),
        location=_dense(rows[:, 1]),
        capacity=capacity.copy(),
        safety=safety.copy(),
        machine_move=move.astype(np.int32),
        spread=spread,
        dependencies=dependencies,
        service=table[:, 0].copy(),
        need=table[:, 1:-1].copy(),
        process_move=table[:, -1].copy(),
        balance=balance.copy(),
        weights=(int(weights[0]), int(weights[1]), int(weights[2])),
        first=read_assignment(assignment, processes, machines),
    )
    largest = _largest(instance)
    if largest >= EXACT:
        raise InputError(
            f"{model}: amounts and costs may add up to {largest:.1e}: must be less than {EXACT:.1e}, so that they are "
            "exact: use larger units"
        )
    return instance


def _largest(instance: Reassignment) -> float:
    """What no amount or cost of any assignment is above; rounded, as a limit may be."""
    need, capacity = (table.sum(axis=0, dtype=np.float64) for table in (instance.need, instance.capacity))
    amount = need + capacity
    first, second, target, weight = instance.balance.T
    process, service, machine = instance.weights
    # Also what is multiplied by 0 is added up first.
    parts = (
        amount.sum(),
        (instance.load_weight * need).sum(),
        (np.maximum(weight, 1) * (target * amount[first] + amount[second])).sum(),
        max(process, 1) * instance.process_move.sum(dtype=np.float64),
        service * len(instance.need),
        max(machine, 1) * int(instance.machine_move.max()) * len(instance.need),
    )
    return sum(map(float, parts))


def _services(numbers: _Numbers) -> tuple[Ints, tuple[Ints, Ints]]:
    count = numbers.one("number of services", 1)
    spread = np.zeros(count, dtype=np.int64)
    start = np.zeros(count + 1, dtype=np.int64)
    named: list[Ints] = []
    for s in range(count):
        spread[s] = numbers.one(f"spread of service {s}")
        depends = numbers.take(numbers.one(f"number of dependencies of service {s}", 0, count), "services")
        numbers.within(depends, count, f"service {s}: dependency", depends.size, 1)
        named.append(depends)
        start[s + 1] = start[s] + depends.size
    return spread, (start, np.concatenate(named))


def _dense(labels: Ints) -> Ints:
    """The same partition by numbers from 0: files may number locations as they like."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def read_assignment(path: Path, processes: int, machines: int) -> Ints:
    """(P,) machine of each process. Raises InputError where there are not just as many, or no such machine."""
    numbers = _Numbers(path)
    place = numbers.take(processes, f"the machines of {processes} processes")
    numbers.within(place, machines, "machine of process", processes, 1)
    numbers.end()
    return place.copy()


def write_assignment(path: Path, place: Ints) -> None:
    """Write a solution (P,) as the challenge wants it: the machine of each process on one line."""
    write_text(path, " ".join(map(str, place.tolist())) + "\n")


def read_best_known(path: Path) -> dict[str, int]:
    """Best known cost by instance: a CSV file with the columns `instance` and `best_known`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {error}") from None
    header = lines[0].split(",") if lines else []
    if "instance" not in header or "best_known" not in header:
        raise InputError(f"{path}:1: must name the columns instance and best_known")
    known: dict[str, int] = {}
    for line, text in enumerate(lines[1:], start=2):
        cells = dict(zip(header, text.split(","), strict=False))
        value = cells.get("best_known", "")
        if not value.isdigit():
            raise InputError(f'{path}:{line}: best_known = "{value}": must be a whole number')
        known[cells["instance"]] = int(value)
    return known
