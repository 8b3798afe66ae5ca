"""OBSERVE beside equal shares, simulated: on nodes that have less to give than usual, and with each part of it changed.

python -m benchmarks.discovery              # capacities; 12 hours as in [Stillwell2010] section 7.3, 12 traces
python -m benchmarks.discovery --parts      # parts of OBSERVE
python -m benchmarks.discovery --seconds 1800 --traces 16 --speed 5  # half an hour, as benchmarks.live_discovery

Tasks and needs are those of chapter 7. For the first table every node has only a part of its capacity, as beside a load
from outside, and discovery knows it.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.common import console
from benchmarks.live_discovery import REAL_SECONDS_OF
from benchmarks.online import table
from dfrs.experiments.kinds.discovery import DiscoveryScenario
from dfrs.model.instance import Floats
from dfrs.policies.discovery.methods import find_discovery
from dfrs.simulator.discovery import Costs, share

CAPACITIES = (1.0, 0.8, 0.65, 0.5)
SCENES = {"balanced": 0, "unbalanced": 2}
"""By how many tasks need a whole node."""
FIRST_SEED = 101
FAST_S = 120.0
"""How long needs stay where they change quickly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A method on a trace."""

    hogs: int
    seconds: int
    seed: int = FIRST_SEED
    capacity: float = 1.0
    change_s: float = 1_200.0
    method: str = "OBSERVE"
    settings: Mapping[str, float] = field(default_factory=dict[str, float])
    noise: float = 0.0

    def run(self) -> tuple[float, float, float]:
        """Average minimum yield, minimum average yield, mean error of the estimates."""
        scenario = DiscoveryScenario(seed=self.seed, hogs=self.hogs, seconds=self.seconds, change_s=self.change_s)
        scene = scenario.scene()
        scene = replace(scene, capacity=scene.capacity * self.capacity)
        found = share(
            scene, find_discovery(self.method, **self.settings), costs=Costs(noise=self.noise, seed=self.seed)
        )
        return found.average_minimum, found.minimum_average, float(found.error.mean())


def measured(cases: Sequence[Case], traces: int) -> Floats:
    """(cases, traces, 3) on seeds from FIRST_SEED on."""
    asked = [replace(case, seed=FIRST_SEED + k) for case in cases for k in range(traces)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return np.array(list(pool.map(Case.run, asked))).reshape(len(cases), traces, 3)


def show_capacities(seconds: int, traces: int, settings: Mapping[str, float]) -> None:
    """By how much OBSERVE with these settings is above equal shares, on smaller and smaller nodes."""
    made = table(
        f"OBSERVE above equal shares, %: {traces} traces of {seconds / 3600:g} h; mean (worst)",
        "scene",
        "capacity",
        "average minimum yield",
        "minimum average yield",
    )
    rows = [(scene, part) for scene in SCENES for part in CAPACITIES]
    own = [Case(hogs=SCENES[scene], seconds=seconds, capacity=part) for scene, part in rows]
    observed = measured([replace(case, settings=settings) for case in own], traces)
    equal = measured([replace(case, method="EQUAL") for case in own], traces)
    gains = 100.0 * (observed[:, :, :2] / equal[:, :, :2] - 1.0)
    for (scene, part), each in zip(rows, gains, strict=True):
        cells = [f"{mean:+.1f} ({worst:+.1f})" for mean, worst in zip(each.mean(axis=0), each.min(axis=0), strict=True)]
        made.add_row(scene, f"{part:g}", *cells)
    console.print(made)


def show_parts(seconds: int, traces: int) -> None:
    """What each part of OBSERVE does: average minimum yield, minimum average yield, error of the estimates."""
    usual = Case(hogs=0, seconds=seconds)
    variants = {
        "equal weights": replace(usual, method="EQUAL"),
        "OBSERVE": usual,
        "without probes": replace(usual, settings={"probe_error": 1.0}),
        "probes whatever they cost": replace(usual, settings={"probe_worth": 1e-9}),
        "even = 1": replace(usual, settings={"even": 1.0}),
        "even = 0.8": replace(usual, settings={"even": 0.8}),
        "ahead_s = 300": replace(usual, settings={"ahead_s": 300.0}),
        "ahead_s = 3600": replace(usual, settings={"ahead_s": 3_600.0}),
        "change_s = 60": replace(usual, settings={"change_s": 60.0}),
        "change_s = 6000": replace(usual, settings={"change_s": 6_000.0}),
        "noise 0.003": replace(usual, noise=0.003),
        "noise 0.01": replace(usual, noise=0.01),
        "steps and probes of 10 s": replace(usual, settings={"step_s": 10.0, "probe_s": 10.0, "probe_every_s": 300.0}),
        "needs change after 2 minutes: OBSERVE": replace(usual, change_s=FAST_S),
        "... equal weights": replace(usual, change_s=FAST_S, method="EQUAL"),
        "... DYNAMIC": replace(usual, change_s=FAST_S, method="DYNAMIC"),
    }
    made = table(f"Parts of OBSERVE: means of {traces} traces of {seconds / 3600:g} h", "", *SCENES)
    means = [
        measured([replace(case, hogs=hogs) for case in variants.values()], traces).mean(axis=1)
        for hogs in SCENES.values()
    ]
    for name, *cells in zip(variants, *means, strict=True):
        made.add_row(name, *(", ".join(f"{value:.3f}" for value in cell) for cell in cells))
    console.print(made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", action="store_true", help="the parts of OBSERVE instead of capacities")
    parser.add_argument("--seconds", type=int, default=43_200, help="of each trace")
    parser.add_argument("--traces", type=int, default=12)
    parser.add_argument("--speed", type=float, default=1.0, help="of the traces: steps and probes last longer in them")
    given = parser.parse_args()
    if given.parts:
        show_parts(given.seconds, given.traces)
    else:
        found = {name: given.speed * value for name, value in REAL_SECONDS_OF["OBSERVE"].items()}
        show_capacities(given.seconds, given.traces, found)
