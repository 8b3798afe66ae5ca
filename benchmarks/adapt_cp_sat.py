"""A rebalancer on CP-SAT, as ADAPT's peer: `python -m benchmarks.adapt_cp_sat GIVEN.npz FOUND.npz MOVES SECONDS`.

The same model: rigid loads within capacities, fluid ones within Z = 1/Y times them, at most so many moves, the least Z.
One worker; the solver is given the present placement to start from.
"""

import sys
import time

import numpy as np
from ortools.sat.python import cp_model

UNITS = 1_000_000
"""Integers for one reference node."""
GRAIN = 1_000
"""Integers for Z = 1."""
LARGEST = 1_000
"""Z is at most that."""


def main() -> None:
    """Read the problem, solve it for so many seconds, and write the placement (empty where there is none)."""
    given = np.load(sys.argv[1])
    started = time.process_time()
    present = given["present"].tolist()
    tasks, nodes = len(present), len(given["capacity"])
    model = cp_model.CpModel()
    x = [[model.new_bool_var("") for _ in range(nodes)] for _ in range(tasks)]
    for i, row in enumerate(x):
        model.add_exactly_one(row)
        for n, here in enumerate(row):
            model.add_hint(here, n == present[i])
    model.add(cp_model.LinearExpr.sum([x[i][n] for i, n in enumerate(present)]) >= tasks - int(sys.argv[3]))
    z = model.new_int_var(GRAIN, LARGEST * GRAIN, "z")
    for d, fluid in enumerate(given["fluid"].tolist()):
        need = np.ceil(given["need"][:, d] * UNITS).astype(int).tolist()
        capacity = np.floor(given["capacity"][:, d] * UNITS / GRAIN).astype(int).tolist()
        for n in range(nodes):
            load = cp_model.LinearExpr.weighted_sum([row[n] for row in x], need)
            model.add(load <= (capacity[n] * z if fluid else capacity[n] * GRAIN))
    model.minimize(z)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = float(sys.argv[4])
    solver.parameters.num_workers = 1
    known = solver.solve(model) in {cp_model.OPTIMAL, cp_model.FEASIBLE}
    place = [[solver.value(here) for here in row].index(1) for row in x] if known else []
    np.savez(sys.argv[2], place=np.array(place, dtype=np.int64), cpu_s=time.process_time() - started)


if __name__ == "__main__":
    main()
