"""What a run's log says of a farm: how fast each job was where it was placed, and what each plan of migrations cost."""

from collections import Counter, defaultdict

import numpy as np

from dfrs.model.decisions import MEMORY
from dfrs.model.instance import Floats
from dfrs.model.run import PLACING, Action, Run


def speeds(run: Run) -> Floats:
    """(E,) progress per second at yield 1 of the job that each placing row puts somewhere; 1 for other rows."""
    farm, events = run.farm, run.events
    speed = np.ones(len(events))
    if farm is None:
        return speed
    memory = run.capacity[:, MEMORY]
    for row in np.flatnonzero(np.isin(events.action, PLACING)).tolist():
        speed[row] = farm.rate_on(int(events.job[row]), events.nodes_of(row).tolist(), memory)
    return speed


def migration_seconds(run: Run) -> Floats:
    """(E,) seconds without progress that each MIGRATE brings on a farm, see FarmTruth; 0 for other rows.

    Migrations at one time are one plan.
    """
    farm, events = run.farm, run.events
    seconds = np.zeros(len(events))
    if farm is None:
        return seconds
    speed = speeds(run)
    before: dict[int, int] = {}
    plans: dict[float, list[tuple[int, int]]] = defaultdict(list)
    for row in np.flatnonzero(np.isin(events.action, PLACING)).tolist():
        job = int(events.job[row])
        if events.action[row] == Action.MIGRATE:
            plans[float(events.time_s[row])].append((before[job], row))
        before[job] = row
    for plan in plans.values():
        leaving, arriving = Counter[int](), Counter[int]()
        for old, new in plan:
            here, there = Counter(events.nodes_of(old).tolist()), Counter(events.nodes_of(new).tolist())
            for total, moved in ((leaving, here - there), (arriving, there - here)):
                for node, tasks in moved.items():
                    total[int(farm.machine[node])] += tasks
        count = max([*leaving.values(), *arriving.values()]) if farm.parallel else arriving.total()
        for old, new in plan:
            slower = min(speed[old], speed[new]) / speed[new]
            seconds[new] = farm.stretch_s * count + farm.copy_s * count * (1.0 - slower)
    return seconds
