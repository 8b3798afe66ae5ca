"""BEST as a vector packer: fewest bins on the sets of Mommessin et al. (2024), beside their best heuristic.

python -m benchmarks.vector_packing FOLDER --set Triplet                  # FOLDER has Triplet.tgz and Triplet.csv
python -m benchmarks.vector_packing FOLDER --set New --limit 3 --groups 20

FOLDER has the sets as their authors publish them (Vectorpack/experiments_vector_paper): an archive of instances, and a
table with lower bound, optimum (-1: unknown) and what each family of heuristics needs. Triplet's files list their items
bin by bin in a solution; items are shuffled here. All resources are rigid, so that a placement has yield 1 or is none;
BEST gets `--limit` seconds for the volume bound, and then for each number of bins from what the vector packings need
downwards until it fails.
"""

import argparse
import csv
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dfrs import Instance, allocate
from dfrs.model.errors import InfeasibleError
from dfrs.model.instance import Floats
from dfrs.model.resources import Kind, Resource
from dfrs.placement.bounds import lp_bound
from dfrs.placement.registry import Options


def parse(text: str) -> tuple[Floats, Floats]:
    """Capacity (D,) of a bin and sizes (T, D) of an instance file: D, capacities, items, sizes with a demand each."""
    numbers = np.array(text.split(), dtype=float)
    dims = int(numbers[0])
    count = int(numbers[1 + dims])
    rows = numbers[2 + dims : 2 + dims + count * (dims + 1)].reshape(count, dims + 1)
    return numbers[1 : 1 + dims], np.repeat(rows[:, :dims], rows[:, dims].astype(int), axis=0)


def packing(size: Floats, bins: int) -> Instance:
    """Items of `size` (T, D), relative to a bin, as services that need only rigid resources, on so many nodes."""
    tasks, dims = size.shape
    return Instance(
        resources=tuple(Resource(name=f"r{d}", kind=Kind.RIGID) for d in range(dims)),
        nodes=tuple(f"n{n}" for n in range(bins)),
        capacity=np.ones((bins, dims)),
        services=tuple(f"s{i}" for i in range(tasks)),
        minimum_yield=np.zeros(tasks),
        service_of=np.arange(tasks),
        need=size,
        rigid=np.ones((tasks, dims), dtype=np.bool_),
        move_cost=np.ones(tasks),
    )


def packs(size: Floats, bins: int, name: str, limit: float) -> bool:
    """Whether the algorithm packs the items into so many bins."""
    instance = packing(size, bins)
    try:
        lp_bound(instance)
    except InfeasibleError:
        return False
    found = allocate(instance, name, options=Options(time_limit_s=limit), second_phase="none")
    return found.allocation is not None


def fewest(size: Floats, limit: float) -> tuple[int, int]:
    """Bins that the best of the vector packings needs, and bins that BEST needs."""
    least = int(np.ceil(size.sum(axis=0) - 1e-9).max())
    packed = least
    while not packs(size, packed, "VP_BEST", limit):
        packed += 1
    # Where every bin must be full, few sets of items come into question: that can be easier than with a bin more.
    if packed > least and packs(size, least, "BEST", limit):
        return packed, least
    bins = packed
    while bins > least + 1 and packs(size, bins - 1, "BEST", limit):
        bins -= 1
    return packed, bins


def instances(folder: Path, name: str, groups: int) -> Iterator[tuple[dict[str, str], Floats]]:
    """Of each class, number of items and of resources, the first instance of known optimum without negative sizes.

    `groups` of them, evenly spaced in the order of the table.
    """
    with (folder / f"{name}.csv").open() as table:
        rows = [row for row in csv.DictReader(table, delimiter="\t") if int(row["OPT"]) > 0]
    with tarfile.open(folder / f"{name}.tgz") as archive:
        files = {Path(member.name).stem: member for member in archive.getmembers() if member.isfile()}
        chosen: dict[str, tuple[dict[str, str], Floats]] = {}
        for row in rows:
            group = row["instance_name"].rsplit("_", 1)[0]
            stream = archive.extractfile(files[row["instance_name"]]) if group not in chosen else None
            if stream is None:
                continue
            capacity, size = parse(stream.read().decode())
            if (size >= 0).all():
                order = np.random.default_rng(0).permutation(len(size))
                chosen[group] = row, (size / capacity)[order]
    found = list(chosen.values())
    for k in np.linspace(0, len(found) - 1, min(groups, len(found))).round().astype(int):
        yield found[k]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", choices=("New", "Triplet"), default="Triplet")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for BEST and each number of bins")
    parser.add_argument("--groups", type=int, default=13, help="how many groups of one size and number of resources")
    given = parser.parse_args()
    sums = np.zeros(4, dtype=int)
    print(f"{'instance':<18}{'packings':>9}{'theirs':>8}{'BEST':>6}{'OPT':>6}{'s':>8}")
    for row, size in instances(given.folder, given.set, given.groups):
        started = time.perf_counter()
        packed, bins = fewest(size, given.limit)
        figures = packed, int(row["best_overall"]), bins, int(row["OPT"])
        sums += figures
        print(
            f"{row['instance_name']:<18}{figures[0]:>9}{figures[1]:>8}{figures[2]:>6}{figures[3]:>6}"
            f"{time.perf_counter() - started:>8.1f}",
            flush=True,
        )
    print(f"{'sum':<18}{sums[0]:>9}{sums[1]:>8}{sums[2]:>6}{sums[3]:>6}")
    print(f"BEST is {100 * (sums[2] / sums[3] - 1):.2f} % above the optimum")


if __name__ == "__main__":
    main()
