"""A present placement that breaks a limit or a rule: the fewest moves that mend it.

Relief at yield 0, in several orders, gives a repair, and the covering problems of the nodes say how many moves every
repair needs. Where these differ and the problem is small, a mixed-integer program closes the gap. Its columns are
x (T, N), whether a task comes to a node other than its own; with m[i] = sum over n of x[i, n], and g the task's node,

    minimise sum of m[i]
    m[i] <= 1
    sum over i of base[i, d] * x[i, n] - sum over i on n of base[i, d] * m[i] <= capacity[n, d] - load[n, d]
    sum over i on n of m[i] >= what the covering problem of node n needs
    sum over i of cost[b, i] * m[i] <= amount[b]
"""

import numpy as np

from dfrs.model import tolerances
from dfrs.model.instance import Ints
from dfrs.placement.adapt_search import AdaptSearch
from dfrs.placement.budget_bound import Departures
from dfrs.placement.solver import LinearProgram, SolverStatus

ORDERS = (0.0, 0.1, 0.1, 0.3, 0.3, 1.0, 1.0)
"""Spreads of the factors by which relief takes tasks in another order."""
ENTRIES = 40_000
"""The program is tried up to so many columns: about a second of HiGHS."""
SHARE = 0.5
"""Of the time that is left, what the program may take."""
NODES = 20
"""Of branch and bound, instead of that where rounds count: seconds would depend on what else the machine does."""
COLUMN_WORK = 10_000
"""Elementary steps that a column of the program counts as, where rounds count."""


def repair(search: AdaptSearch, departures: Departures) -> None:
    """Offer a valid placement with as few moves as are found; sets `proven` where it is proven that there is none."""
    least = departures.fewest(0.0)
    for spread in ORDERS:
        if search.clock.over:
            break
        search.tilt(spread)
        place = search.relieve(search.present, 0.0)
        if place is not None:
            _offer_fewer(search, place)
        if search.place is not None and search.moved(search.place) <= least:
            break
    search.tilt(0.0)
    entries = search.present.size * len(search.instance.nodes)
    small = entries <= ENTRIES and search.rules.level.size == 0 and search.clock.affords(entries * COLUMN_WORK)
    if small and (search.place is None or search.moved(search.place) > least):
        _exactly(search, departures)
    if search.place is not None:
        search.repaired = search.moved(search.place)


def _offer_fewer(search: AdaptSearch, place: Ints) -> None:
    """Take `place`, without moves it does not need, where it has fewer than the best, whatever their yields."""
    before = search.place, search.value
    search.place, search.value = None, -1.0
    if search.offer(place, "repair"):
        search.value = 0.0
        search.give_back()
        if search.place is not None and (before[0] is None or search.moved(search.place) < search.moved(before[0])):
            place, search.place, search.value = search.place, None, -1.0
            search.offer(place, "repair")
            return
    search.place, search.value = before


def _exactly(search: AdaptSearch, departures: Departures) -> None:
    """The program, from the best repair known."""
    program, columns = _program(search, departures)
    if search.place is not None:
        values = np.zeros(program.columns)
        moved = np.flatnonzero((search.place != search.present) & (search.present >= 0))
        new = np.flatnonzero(search.present < 0)
        tasks = np.concatenate((moved, new))
        values[columns[tasks, search.place[tasks]]] = 1.0
        program.start_from(values)
    if search.clock.rounds is None:
        solution = program.maximize(search.clock.left_s * SHARE)
    else:
        search.clock.spend(search.present.size * len(search.instance.nodes) * COLUMN_WORK)
        solution = program.maximize(nodes=NODES)
    if solution.known:
        come = solution.values[columns.clip(0)] * (columns >= 0) > 0.5
        place = np.where(come.any(axis=1), come.argmax(axis=1), search.present)
        if (place >= 0).all():
            _offer_fewer(search, place)
    elif solution.status == SolverStatus.INFEASIBLE and search.place is None:
        search.proven = True


def _program(search: AdaptSearch, departures: Departures) -> tuple[LinearProgram, Ints]:
    """The program, and the column of each task on each node (T, N), -1 where there is none."""
    instance, present, rules = search.instance, search.present, search.rules
    tasks, nodes = len(present), len(instance.nodes)
    running = np.flatnonzero(present >= 0)
    possible = rules.allowed[rules.kind_of].copy()
    possible[running, present[running]] = False
    possible &= (instance.base[:, None, :] <= instance.capacity[None, :, :] + tolerances.CAPACITY).all(axis=2)
    columns = np.full((tasks, nodes), -1, dtype=np.int64)
    count = int(possible.sum())
    cost = np.broadcast_to(np.where(present >= 0, -1.0, 0.0)[:, None], possible.shape)[possible]
    program = LinearProgram(f"repair of {instance.name or 'an instance'}")
    columns[possible] = program.add_columns(np.zeros(count), np.ones(count), cost, integer=True)
    own = [row[row >= 0] for row in columns]
    for i in range(tasks):
        if own[i].size:
            program.add_row(own[i], np.ones(own[i].size), lower=0.0 if present[i] >= 0 else 1.0, upper=1.0)
    fewest, _ = departures.at(0.0)
    for n in range(nodes):
        here = running[present[running] == n]
        leave = np.concatenate([own[i] for i in here]) if here.size else np.zeros(0, dtype=np.int64)
        counts = [own[i].size for i in here]
        come = np.flatnonzero(columns[:, n] >= 0)
        if fewest[n] > 0:
            program.add_row(leave, np.ones(leave.size), lower=float(fewest[n]))
        for d in range(len(instance.resources)):
            free = instance.capacity[n, d] - instance.base[here, d].sum()
            value = np.concatenate((instance.base[come, d], -np.repeat(instance.base[here, d], counts)))
            index = np.concatenate((columns[come, n], leave))
            some = value != 0
            if some.any():
                program.add_row(index[some], value[some], upper=float(free))
    must = np.flatnonzero(departures.leaving)
    for i in must:
        program.add_row(own[i], np.ones(own[i].size), lower=1.0)
    for b, amount in enumerate(search.moves.amount):
        if np.isfinite(amount):
            price = np.concatenate([np.full(own[i].size, search.moves.cost[b, i]) for i in running])
            index = np.concatenate([own[i] for i in running])
            program.add_row(index[price > 0], price[price > 0], upper=float(amount))
    return program, columns
