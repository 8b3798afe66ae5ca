"""The off-line part: times after compilation beside the published ones, a peer in the same run, and memory.

Instances are of [Stillwell2010] section 4.3 with sigma 0.5, rho 0.25, slack 0.5, as the document's timings are. Each
figure is the mean over instances of the best of three runs.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from numpy.random import default_rng
from rich.table import Table

from benchmarks.common import best_of, console, peak_memory_mib
from benchmarks.peer import compare
from dfrs import Instance, generate_services
from dfrs.model.errors import InfeasibleError
from dfrs.placement.bounds import lp_bound
from dfrs.placement.registry import Options, find

LARGE = (
    ("VP_CPSUM", 1.38, 0.03),
    ("VP_FFSUM", 1.50, 0.05),
    ("VP_BFSUM", 1.62, None),
    ("VP_BEST", None, 0.3),
    ("GREEDY", 54.56, 1.5),
    ("GREEDYLIGHT", 1.75, 0.05),
)
"""Name, published seconds ([Stillwell2010] section 4.4.4), our goal in seconds."""


def timed(name: str, instance: Instance, repeats: int = 3) -> float:
    run = find(name).build(Options())
    return best_of(lambda: run(instance, default_rng(0)), repeats)


def warm(names: list[str]) -> None:
    small = generate_services(nodes=8, services=24, seed=0)
    for name in names:
        timed(name, small, 1)


def table(title: str) -> Table:
    made = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    made.add_column("algorithm", no_wrap=True)
    for column in ("time", "published", "ratio", "goal", "met"):
        made.add_column(column, justify="right")
    return made


def row(made: Table, name: str, seconds: float, published: float | None, goal: float | None) -> None:
    made.add_row(
        name,
        f"{seconds:.4f} s",
        "-" if published is None else f"{published:g} s",
        "-" if published is None else f"{published / seconds:.0f} x",
        "-" if goal is None else f"{goal:g} s",
        "-" if goal is None else ("yes" if seconds <= goal else "NO"),
    )


def packings_and_greedies(samples: int = 5) -> None:
    warm([name for name, _, _ in LARGE])
    for services, rho in ((8192, 0.25), (16384, 0.25), (16384, 0.0)):
        instances = [
            generate_services(nodes=1024, services=services, resources=4, rho=rho, seed=seed) for seed in range(samples)
        ]
        made = table(f"N=1,024 nodes, J={services:,} services, D=4, rho={rho}, mean of {samples} instances")
        try:
            bound = statistics.mean(lp_bound(instance) for instance in instances)
        except InfeasibleError as error:
            console.print(f"\n[bold]J={services:,}, rho={rho}[/bold]: not timed, {error}")
            continue
        for name, published, goal in LARGE:
            seconds = statistics.mean(timed(name, instance) for instance in instances)
            row(made, name, seconds, published if services == 8192 else None, goal if services == 8192 else None)
        console.print()
        console.print(made)
        console.print(f"mean LPBOUND {bound:.3f}", style="dim")


def programs_and_genetics() -> None:
    made = table("N=64 nodes, J=512 services, D=4, one instance, one run")
    instance = generate_services(nodes=64, services=512, resources=4, seed=0)
    warm(["GA"])
    for name, published, goal in (("GA", 13.79, 2.0), ("RRND", 255.44, 30.0)):
        row(made, name, timed(name, instance, 1), published, goal)
    console.print()
    console.print(made)


def memory() -> None:
    """Peak memory of a fresh process that allocates J=16,384 services to N=1,024 nodes."""
    peak = peak_memory_mib(
        "import dfrs\n"
        "i = dfrs.generate_services(nodes=1024, services=16384, resources=4, rho=0.0, seed=0)\n"
        "for a in ('VP_CPSUM', 'VP_FFSUM', 'GREEDY', 'SGB', 'BEST'): dfrs.allocate(i, a)\n"
    )
    console.print(
        f"\nPeak memory, J=16,384 on N=1,024 (VP_CPSUM, VP_FFSUM, GREEDY, SGB, BEST in one process): "
        f"{peak:.0f} MiB (goal: under 500) {'yes' if peak < 500 else 'NO'}"
    )


def start_up() -> None:
    """The whole of a second `dfrs allocate` on a small instance."""
    dfrs = Path(sys.executable).with_name("dfrs")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "small.json"
        subprocess.run(
            [dfrs, "generate", "services", "--nodes", "8", "--services", "20", "-o", file],
            check=True,
            capture_output=True,
        )
        command = [dfrs, "allocate", file, "-a", "VP_CPSUM"]
        subprocess.run(command, check=True, capture_output=True)
        seconds = best_of(lambda: subprocess.run(command, check=True, capture_output=True))
    console.print(f"Second start of `dfrs allocate`, 20 services: {seconds:.2f} s (goal: under 1.5)")


def main() -> None:
    """All of it, in order."""
    packings_and_greedies()
    programs_and_genetics()
    compare(console)
    memory()
    start_up()
