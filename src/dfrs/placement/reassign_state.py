"""Machine reassignment: what an assignment costs, whether it keeps the hard constraints, and the state of the search.

Load, balance, process, service and machine move cost; capacity, conflict, spread, dependency and transient use: as the
problem statement of the ROADEF/EURO challenge 2012 has them.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.kernels.reassign import Loads, Moves, Rules, State
from dfrs.model.errors import InputError
from dfrs.workloads.reassignment import Ints, Reassignment


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """The parts of an assignment's cost, weighted."""

    load: int
    balance: int
    process_move: int
    service_move: int
    machine_move: int

    @property
    def total(self) -> int:
        """The objective."""
        return self.load + self.balance + self.process_move + self.service_move + self.machine_move


def used(instance: Reassignment, place: Ints) -> Ints:
    """(M, R) what processes use where they are."""
    total = np.zeros_like(instance.capacity)
    np.add.at(total, place, instance.need)
    return total


def cost_parts(instance: Reassignment, place: Ints) -> CostParts:
    """The cost of the assignment `place` (P,)."""
    use = used(instance, place)
    left = instance.capacity - use
    first, second, target, weight = instance.balance.T
    lacking = np.maximum(target * left[:, first] - left[:, second], 0)
    moved = place != instance.first
    process, service, machine = instance.weights
    per_service = np.bincount(instance.service[moved], minlength=instance.spread.size)
    return CostParts(
        load=int((instance.load_weight * np.maximum(use - instance.safety, 0)).sum()),
        balance=int((weight * lacking).sum()),
        process_move=process * int(instance.process_move[moved].sum()),
        service_move=service * int(per_service.max()),
        machine_move=machine * int(instance.machine_move[instance.first, place].sum(dtype=np.int64)),
    )


def occupied(instance: Reassignment, place: Ints) -> Ints:
    """(M, R) what processes use where they are, and of transient resources where they were too."""
    total = used(instance, place)
    gone = place != instance.first
    np.add.at(total, instance.first[gone], np.where(instance.transient, instance.need[gone], 0))
    return total


def require_feasible(instance: Reassignment, place: Ints, what: str) -> None:
    """Raise InputError that names the first hard constraint which `place` breaks; `what` says whose it is."""
    full = np.argwhere(occupied(instance, place) > instance.capacity)
    if full.size:
        m, r = map(int, full[0])
        use, most = int(occupied(instance, place)[m, r]), int(instance.capacity[m, r])
        raise InputError(f"{what}: machine {m}: uses {use} of resource {r}: must be at most its capacity {most}")
    both = np.sort(instance.service * len(instance.capacity) + place)
    twice = both[1:][both[1:] == both[:-1]]
    if twice.size:
        s, m = divmod(int(twice[0]), len(instance.capacity))
        raise InputError(f"{what}: machine {m}: has two processes of service {s}: must have at most one")
    _, located = _count(instance, place, instance.location)
    few = np.flatnonzero(located < instance.spread)
    if few.size:
        s = int(few[0])
        raise InputError(f"{what}: service {s}: is in {located[s]} locations: must be in at least {instance.spread[s]}")
    there, _ = _count(instance, place, instance.neighbourhood)
    first, other = instance.dependencies
    depending = np.repeat(np.arange(instance.spread.size), np.diff(first))
    lonely = np.argwhere((there[depending] > 0) & (there[other] == 0))
    if lonely.size:
        e, n = map(int, lonely[0])
        raise InputError(
            f"{what}: service {depending[e]}: depends on service {other[e]}, which must be in neighbourhood {n} too"
        )


def _count(instance: Reassignment, place: Ints, group: Ints) -> tuple[np.ndarray, Ints]:
    """(S, groups) processes of each service in each group of machines; (S,) groups with processes."""
    counts = np.zeros((instance.spread.size, int(group.max()) + 1), dtype=np.int32)
    np.add.at(counts, (instance.service, group[place]), 1)
    return counts, np.count_nonzero(counts, axis=1).astype(np.int64)


def make_state(instance: Reassignment, place: Ints) -> State:
    """The state of the search at `place` (P,), which must keep the hard constraints."""
    processes, services = len(instance.need), instance.spread.size
    process, service, machine = instance.weights
    none = np.zeros((1, instance.need.shape[1]), dtype=np.int64)
    lasting = np.where(instance.transient, 0, instance.need)
    use = used(instance, place)
    always = np.zeros_like(use)
    np.add.at(always, instance.first, np.where(instance.transient, instance.need, 0))
    present = use.copy()
    came = place != instance.first
    guests = np.zeros_like(use)
    np.add.at(guests, place[came], np.where(instance.transient, instance.need[came], 0))
    present[:, instance.transient] = (always + guests)[:, instance.transient]
    loads = Loads(
        need=np.ascontiguousarray(np.vstack([instance.need, none, lasting, none])),
        room=instance.capacity - present,
        over=use - instance.safety,
        spare=instance.capacity - use,
        weight=instance.load_weight,
        balance=instance.balance,
        cost=_machine_costs(instance, use),
    )
    moved = np.bincount(instance.service[came], minlength=services).astype(np.int64)
    moves = Moves(
        home=np.append(instance.first, -1),
        process=process * instance.process_move,
        machine=instance.machine_move,
        weight=np.array([machine, service], dtype=np.int64),
        moved=moved,
        tally=np.bincount(moved, minlength=processes + 1).astype(np.int64),
        most=np.array([moved.max()], dtype=np.int64),
    )
    total = np.array([cost_parts(instance, place).total], dtype=np.int64)
    head, after, ahead = _circles(place, len(use))
    return State(
        loads=loads,
        rules=_rules(instance, place),
        moves=moves,
        place=place.copy(),
        head=head,
        after=after,
        ahead=ahead,
        total=total,
    )


def _circles(place: Ints, machines: int) -> tuple[Ints, Ints, Ints]:
    """(M,) the first process on each machine or -1; (P,) the next on the same machine, around; (P,) the one before."""
    order = np.argsort(place, kind="stable")
    count = np.bincount(place, minlength=machines)
    end = np.cumsum(count)
    start = end - count
    head = np.where(count > 0, order[np.minimum(start, place.size - 1)], -1)
    following = np.arange(1, place.size + 1)
    following[end[count > 0] - 1] = start[count > 0]
    after = np.empty_like(place)
    after[order] = order[following]
    ahead = np.empty_like(place)
    ahead[after] = np.arange(place.size)
    return head, after, ahead


def _machine_costs(instance: Reassignment, use: Ints) -> Ints:
    left = instance.capacity - use
    first, second, target, weight = instance.balance.T
    load = (instance.load_weight * np.maximum(use - instance.safety, 0)).sum(axis=1)
    return load + (weight * np.maximum(target * left[:, first] - left[:, second], 0)).sum(axis=1)


def _rules(instance: Reassignment, place: Ints) -> Rules:
    services, machines = instance.spread.size, len(instance.capacity)
    in_location, locations = _count(instance, place, instance.location)
    in_neighbourhood, _ = _count(instance, place, instance.neighbourhood)
    present = np.zeros((services, machines // 64 + 1), dtype=np.uint64)
    bit = np.uint64(1) << (place % 64).astype(np.uint64)
    np.bitwise_or.at(present, (instance.service, place // 64), bit)
    first, other = instance.dependencies
    depending = np.repeat(np.arange(services), np.diff(first))
    order = np.argsort(other, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(other, minlength=services))]).astype(np.int64)
    return Rules(
        service=instance.service,
        location=instance.location,
        neighbourhood=instance.neighbourhood,
        spread=instance.spread,
        needs=instance.dependencies,
        needed_by=(start, depending[order].astype(np.int64)),
        present=present,
        in_location=in_location,
        locations=locations,
        in_neighbourhood=in_neighbourhood,
    )
