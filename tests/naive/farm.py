"""What ARRIVE-F promises, written from [Atif2011], sharing none of its code: gains, reservations, single moves."""

import math

from dfrs.model.decisions import Snapshot


def slots(snapshot: Snapshot, row: int, at=None) -> list[int]:
    nodes = snapshot.task_nodes if at is None else at
    return [n for n in nodes[snapshot.first[row] : snapshot.first[row + 1]].tolist() if n >= 0]


def clusters_of(snapshot: Snapshot, nodes) -> set[int]:
    return {int(snapshot.hardware.partition[n]) for n in nodes}


def speed(snapshot: Snapshot, row: int, nodes) -> float:
    (cluster,) = clusters_of(snapshot, nodes)
    together = len({int(snapshot.hardware.machine[n]) for n in nodes}) == 1
    return float(snapshot.hardware.speed[row, cluster, int(together)])


def left_s(snapshot: Snapshot, row: int) -> float:
    job = snapshot.jobs[row]
    return float(job["estimate_s"]) - (snapshot.now_s - float(job["start_s"]))


def gain(snapshot: Snapshot, after, rows, rules) -> float:
    """Equations 13 to 15 for all of `rows` together, from the speeds where they are and will be."""
    processes = {r: len(slots(snapshot, r)) for r in rows}
    stretch = rules.stretch_s * sum(processes.values())
    total = -stretch
    for r in rows:
        t = rules.tau_s - rules.tau_s * speed(snapshot, r, slots(snapshot, r)) / speed(
            snapshot, r, slots(snapshot, r, after)
        )
        blocks = rules.beta
        if rules.one:
            blocks = min(blocks, max(left_s(snapshot, r), 0.0) / rules.tau_s)
        if t > 0 and not left_s(snapshot, r) / rules.tau_s > stretch / t:
            blocks = 0.0
        if blocks:
            total += processes[r] * t * blocks
    return total


def footprint(snapshot: Snapshot, row: int, node: int) -> float:
    view = snapshot.hardware
    most, wanted = float(view.node_memory[node]), float(view.required[row])
    if math.isnan(wanted):
        wanted = float(snapshot.jobs["memory"][row]) if not all(map(math.isnan, view.speed[row].ravel())) else most
    return min(wanted, most)


def replay(snapshot: Snapshot, after, moves) -> None:
    """Assert that single moves lead from the snapshot to `after`, and that no machine is ever beyond its means."""
    view = snapshot.hardware
    where = {(r, t): n for r in range(len(snapshot.jobs)) for t, n in enumerate(slots(snapshot, r))}
    limit: dict[int, int] = {}
    memory: dict[int, float] = {}
    for n, machine in enumerate(view.machine.tolist()):
        limit[machine] = limit.get(machine, 0) + 1
        memory[machine] = memory.get(machine, 0.0) + float(view.node_memory[n])
    for move in moves:
        key = (move.row, move.task)
        assert where[key] == move.source
        # The process is on both machines while it is copied.
        during = [(key, move.target), *where.items()]
        on = int(view.machine[move.target])
        here = [(k[0], n) for k, n in during if int(view.machine[n]) == on]
        assert len(here) <= limit[on] + 1, "more than one process too many on a machine"
        assert sum(footprint(snapshot, r, n) for r, n in here) <= memory[on] + 1e-6, "a machine is out of memory"
        where[key] = move.target
    for r in {move.row for move in moves}:
        assert [where[r, t] for t in range(len(slots(snapshot, r)))] == slots(snapshot, r, after)


def reservation(snapshot: Snapshot, after, tasks: int, locks) -> float:
    """The earliest time at which any one sub-cluster has that many open nodes, by the estimates."""
    busy: dict[int, float] = {}
    for r in range(len(snapshot.jobs)):
        for n in slots(snapshot, r, after):
            started = not slots(snapshot, r)
            rest = float(snapshot.jobs["estimate_s"][r]) if started else left_s(snapshot, r)
            busy[n] = max(busy.get(n, -math.inf), snapshot.now_s + max(rest, 0.0))
    best = math.inf
    for c in set(snapshot.hardware.partition.tolist()):
        mine = [n for n in range(len(snapshot.open)) if snapshot.hardware.partition[n] == c and snapshot.open[n]]
        when = sorted(max(busy.get(n, snapshot.now_s), locks.get(c, -math.inf)) for n in mine)
        if len(when) >= tasks:
            best = min(best, when[tasks - 1])
    return best
