"""BEST on the large set of [Stillwell2010] 4.3 (N = 64; J = 200, 500; LPBOUND > 0): distance closed, failures.

python -m benchmarks.quality --limit 1                        # one sample of each scenario
python -m benchmarks.quality --limit 10 --first 5 --stride 22 # every 22nd instance
python -m benchmarks.quality --limit 1 --samples 5 --hard     # only where VP_CPSUM fails: BEST's failures
"""

import argparse
import statistics
from collections.abc import Iterator

from dfrs import Instance, allocate
from dfrs.model.errors import InfeasibleError
from dfrs.placement.bounds import lp_bound
from dfrs.placement.registry import Options
from dfrs.workloads.services import dissertation_instance, dissertation_sample, dissertation_scenarios


def instances(sample: int) -> Iterator[tuple[Instance, float]]:
    """The instances with a positive LPBOUND, with it."""
    for index, scenario in enumerate(dissertation_scenarios()):
        if scenario.services == 100:
            continue
        instance = dissertation_instance(scenario, dissertation_sample(index, sample))
        try:
            bound = lp_bound(instance)
        except InfeasibleError:
            continue
        if bound > 0:
            yield instance, bound


def reached(instance: Instance, name: str, limit: float) -> float | None:
    options = Options(time_limit_s=limit)
    return allocate(instance, name, options=options, second_phase="none").minimum_yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=1.0, help="seconds for BEST")
    parser.add_argument("--samples", type=int, default=1, help="samples of each scenario")
    parser.add_argument("--first", type=int, default=0, help="index of the first instance taken")
    parser.add_argument("--stride", type=int, default=1, help="take every so many instances")
    parser.add_argument("--hard", action="store_true", help="only instances on which VP_CPSUM fails")
    given = parser.parse_args()
    total, packing_failures, failed = 0, 0, list[float]()
    closed: list[float] = []
    distance: list[float] = []
    for sample in range(given.samples):
        for instance, bound in list(instances(sample))[given.first :: given.stride]:
            total += 1
            packed = reached(instance, "VP_CPSUM", given.limit)
            packing_failures += packed is None
            if given.hard and packed is not None:
                continue
            best = reached(instance, "BEST", given.limit)
            if best is None:
                failed.append(bound)
            else:
                distance.append((bound - best) / bound)
            low = packed or 0.0
            if bound - low > 1e-9:
                closed.append(((best or 0.0) - low) / (bound - low))
    print(
        f"BEST {given.limit:g} s: {total} instances, closed {100 * statistics.mean(closed):.2f} %, distance "
        f"{100 * statistics.mean(distance):.2f} %, failures {len(failed)} (VP_CPSUM {packing_failures}); "
        f"bounds where it fails: {', '.join(f'{b:.5f}' for b in failed) or 'none'}"
    )


if __name__ == "__main__":
    main()
