"""What the parts beyond the documents bring: `python -m benchmarks.beyond [TRACES]`, a table for each.

Reference Lublin traces 1 to TRACES (20), 128 nodes, penalty 300 s; degradation is the maximum bounded stretch over its
bound, as in the published tables.
"""

import statistics
import sys

import numpy as np
from rich.table import Table

from benchmarks.common import console
from benchmarks.online import MAIN, lublin
from dfrs.experiments.simulations import measured
from dfrs.model.jobs import Workload
from dfrs.model.run import Penalty, Run
from dfrs.policies.names import find_policy
from dfrs.runs.metrics.schedule import Metrics
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.transform import scale_to_load

LIGHT_NODES, LIGHT_JOBS = 1_000, 2_000
COLUMNS = (
    ("degradation", "bounded_degradation_from_bound", ",.2f"),
    ("mean stretch", "stretch_mean", ",.2f"),
    ("pauses/job", "pauses_per_job", ",.2f"),
    ("moves/job", "migrations_per_job", ",.2f"),
    ("moved GB/s", "migration_gb_per_s", ",.3f"),
)


def run(workload: Workload, policy: str, capacity: np.ndarray | None = None) -> Run:
    settings = SimulationSettings(capacity=capacity, penalty=Penalty(seconds=300.0))
    return Simulation(workload, find_policy(policy), policy, settings).run()


def show(title: str, rows: dict[str, list[Metrics]]) -> None:
    made = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    made.add_column("policy", no_wrap=True)
    for heading, _, _ in COLUMNS:
        made.add_column(heading, justify="right")
    for name, metrics in rows.items():
        made.add_row(name, *(format(statistics.mean(m[key] for m in metrics), form) for _, key, form in COLUMNS))
    console.print()
    console.print(made)


def parts(workloads: list[Workload]) -> None:
    """Decay, deadlines and budgets against the documents' best policy."""
    names = (
        MAIN,
        f"{MAIN}/DECAY=600",
        f"{MAIN}/DECAY=3600",
        MAIN.replace("/per", "/due"),
        MAIN.replace("/per", "/per=1800"),
        MAIN.replace("/per", "/due=1800"),
        MAIN.replace("/per", "/due") + "/DECAY=600",
    )
    rows = {name: [measured(run(w, name), bound=True) for w in workloads] for name in names}
    show(f"Decay and deadlines, {len(workloads)} traces", rows)
    few = workloads[: max(1, len(workloads) // 4)]
    limited = (MAIN, *(f"{MAIN}/BUDGET={nodes}" for nodes in (1000, 100, 10)))
    rows = {name: [measured(run(w, name), bound=True) for w in few] for name in limited}
    show(f"Budget of migrations in node memories an hour, {len(few)} traces", rows)


def paying(workloads: list[Workload]) -> None:
    """Repackings that must pay, at the traces' own load and at a tenth of 1,000 nodes, there beside EASY."""
    due = MAIN.replace("/per", "/due")
    names = (MAIN, f"{MAIN}/PAYS", due, f"{due}/PAYS")
    rows = {name: [measured(run(w, name), bound=True) for w in workloads] for name in names}
    show(f"Repackings that pay, {len(workloads)} traces", rows)
    sources = {
        "as wide as 1,000 nodes": [lightly(Lublin.of(jobs=LIGHT_JOBS, nodes=LIGHT_NODES), seed) for seed in (1, 2, 3)],
        "as wide as 128 nodes": [lightly(Lublin.of(jobs=LIGHT_JOBS, nodes=128), seed) for seed in (1, 2, 3)],
    }
    for width, light in sources.items():
        rows = {name: [measured(run(w, name), bound=True) for w in light] for name in ("EASY", *names)}
        show(f"A tenth of {LIGHT_NODES:,} nodes, {len(light)} traces of {LIGHT_JOBS:,} jobs {width}", rows)


def lightly(model: Lublin, seed: int) -> Workload:
    """A trace of the model that is a tenth of what 1,000 nodes could do."""
    return scale_to_load(to_workload(generate(model, seed=seed), nodes=LIGHT_NODES, annotate="dfrs", seed=seed)[0], 0.1)


def weights(workloads: list[Workload]) -> None:
    """Mean stretch of every tenth job and of the others, without weights, and where the tenth job weighs 4."""
    made = Table(title="Weights: every tenth job has weight 4", title_justify="left", box=None, header_style="bold")
    for heading in ("policy", "mean stretch, weight 4", "mean stretch, weight 1"):
        made.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    for name, weight in ((MAIN, 1.0), (f"{MAIN}/WEIGHT", 4.0)):
        heavy, light = [], []
        for workload in workloads:
            chosen = np.arange(len(workload)) % 10 == 0
            stretch = run(workload.with_columns(weight=np.where(chosen, weight, 1.0)), name).stretch
            heavy.append(stretch[chosen].mean())
            light.append(stretch[~chosen].mean())
        made.add_row(name, f"{statistics.mean(heavy):.3f}", f"{statistics.mean(light):.3f}")
    console.print()
    console.print(made)


def unequal_nodes(workloads: list[Workload]) -> None:
    """The same total CPU and memory on 128 equal nodes, and on 64 of 1.5 and 64 of 0.5 reference nodes."""
    mixed = np.repeat([[1.5, 1.5], [0.5, 0.5]], 64, axis=0)
    rows: dict[str, list[Metrics]] = {}
    for name in (MAIN, MAIN.replace("/per", "/due")):
        rows[f"{name}, equal"] = [measured(run(w, name), bound=True) for w in workloads]
        rows[f"{name}, unequal"] = [measured(run(w, name, mixed), bound=True) for w in workloads]
    show(f"Unequal nodes, {len(workloads)} traces", rows)


def main() -> None:
    """All tables."""
    workloads = [lublin(seed) for seed in range(1, 1 + (int(sys.argv[1]) if len(sys.argv) > 1 else 20))]
    parts(workloads)
    paying(workloads)
    weights(workloads)
    unequal_nodes(workloads)


if __name__ == "__main__":
    main()
