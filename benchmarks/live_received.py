"""Is what users are told so, beside a load from outside? Two equal programs, one of declared need, and others.

    python -m benchmarks.live_received --outside 0 1 10

Needs root. For each number of programs that are no tasks and compute all the time: CPU that two equal tasks got, one of
which has declared what it needs, and for each job the stretch that it is told and the one that its program measured.
"""

import argparse
import os
import tempfile
from pathlib import Path

from rich.table import Table
from tests.received_scene import FOR, SLEEP, WORK, Observed, beside, cluster, observe

from benchmarks.common import console

SECONDS = 120.0
"""So long the two equal programs run."""


def scene(outside: int, seconds: float) -> dict[str, Observed]:
    """Jobs by name, of a cluster of its own: first the two equal ones, then one of each other kind."""
    one = ("--cpu", 1)
    with tempfile.TemporaryDirectory() as folder, beside(outside), cluster(Path(folder) / "state"):
        found = observe([("declared", one, FOR, seconds), ("unknown", (), FOR, seconds)], 4 * seconds)
        others = [("work", one, WORK, seconds / 12), ("sleeper", (), SLEEP, seconds / 4)]
        return found | observe(others, 10 * seconds)


def main() -> None:
    """The benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outside", type=int, nargs="+", default=[0, 1, 10], help="programs beside the cluster")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the two equal programs")
    options = parser.parse_args()
    table = Table(title=f"{os.cpu_count()} CPUs; two equal programs for {options.seconds:g} s, then others")
    for heading in ("outside", "job", "CPU s", "flow s", "alone s", "virtual s", "stretch", "off by"):
        table.add_column(heading, justify="left" if heading == "job" else "right")
    for outside in options.outside:
        found = scene(outside, options.seconds)
        for each in found.values():
            figures = (each.cpu_s, each.flow_s, each.alone_s, each.virtual_s, each.stretch)
            table.add_row(str(outside), each.name, *(f"{figure:.2f}" for figure in figures), f"{each.off:+.1%}")
        ratio = found["unknown"].cpu_s / found["declared"].cpu_s
        console.print(
            f"{outside} outside: the one of unknown need got {ratio:.3f} of the CPU of the other", markup=False
        )
    console.print(table)


if __name__ == "__main__":
    main()
