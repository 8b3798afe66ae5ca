"""What a run's log says of speeds: how fast each job was where it was placed, and what each plan of migrations cost."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from dfrs.model.decisions import MEMORY
from dfrs.model.instance import Floats
from dfrs.model.run import PLACING, Action, Run
from dfrs.model.true_speeds import Migration, Placing


def speeds(run: Run) -> Floats:
    """(E,) progress per second at yield 1 of the job that each placing row puts somewhere; 1 for other rows."""
    speed = np.ones(len(run.events))
    run.speeds.write_rates(speed, _placings(run), run.capacity[:, MEMORY])
    return speed


def with_plans(run: Run, seconds: Floats) -> Floats:
    """`seconds` (E,) without progress by the run's penalty, changed in place where migrations cost otherwise."""
    run.speeds.write_costs(seconds, _plans(run))
    return seconds


def _placings(run: Run) -> Iterator[Placing]:
    events = run.events
    for row in np.flatnonzero(np.isin(events.action, PLACING)).tolist():
        yield Placing(row, int(events.job[row]), events.nodes_of(row).tolist())


def _plans(run: Run) -> Iterator[list[Migration]]:
    """Migrations at one time are one plan."""
    speed = speeds(run)
    last: dict[int, Placing] = {}
    plans: dict[float, list[Migration]] = defaultdict(list)
    for placing in _placings(run):
        row, job, nodes = placing
        if run.events.action[row] == Action.MIGRATE:
            before = last[job]
            move = Migration(row, before.nodes, nodes, float(speed[before.row]), float(speed[row]))
            plans[float(run.events.time_s[row])].append(move)
        last[job] = placing
    yield from plans.values()
