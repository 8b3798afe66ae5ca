"""BEST on the large set of [Stillwell2010] 4.3 (N = 64; J = 200, 500; LPBOUND > 0): distance closed, failures.

python -m benchmarks.quality --limit 1                        # one sample of each scenario
python -m benchmarks.quality --limit 10 --first 5 --stride 22 # every 22nd instance
python -m benchmarks.quality --limit 1 --samples 5 --hard     # only where VP_CPSUM fails: BEST's failures
python -m benchmarks.quality --limit 10 --few 100 --threads 2 # gaps of instances with two to four tasks a node

BEST has one thread unless --threads says otherwise: figures do not depend on how many CPUs there are.
"""

import argparse
import statistics
from collections.abc import Iterator

import numpy as np

from dfrs import Instance, allocate, generate_services
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


def few_tasks(count: int) -> Iterator[Instance]:
    """Instances of 16 to 32 nodes with two to four tasks each on the average."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(16, 33))
        yield generate_services(
            nodes=nodes,
            services=round(nodes * rng.uniform(2, 4)),
            resources=int(rng.choice([2, 4])),
            slack=float(rng.choice([0.1, 0.2, 0.3, 0.4, 0.5])),
            sigma=float(rng.choice([0.25, 0.5, 1.0])),
            rho=float(rng.choice([0.0, 0.25, 0.5])),
            seed=seed,
        )


def print_gaps(count: int, options: Options) -> None:
    """How far BEST's value is from the bound that it proves itself, and from LPBOUND."""
    gaps, of_lp = list[float](), list[float]()
    for instance in few_tasks(count):
        outcome = allocate(instance, "BEST", options=options, second_phase="none")
        value = outcome.minimum_yield or 0.0
        gaps.append(100 * (outcome.bound - value) / max(outcome.bound, 1e-9))
        bound = lp_bound(instance)
        of_lp.append(100 * (bound - value) / bound)
    within = ", ".join(f"{sum(gap <= most for gap in gaps)} within {most} %" for most in (0.01, 0.5, 1.0))
    print(
        f"BEST {options.time_limit_s:g} s: {count} instances, {within} of the bound; "
        f"median {statistics.median(gaps):.3f} %, of LPBOUND {statistics.median(of_lp):.3f} %"
    )


def reached(instance: Instance, name: str, options: Options) -> float | None:
    return allocate(instance, name, options=options, second_phase="none").minimum_yield


def percent(shares: list[float]) -> str:
    """Their mean."""
    return f"{100 * statistics.mean(shares):.2f} %" if shares else "no instance"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=1.0, help="seconds for BEST")
    parser.add_argument("--threads", type=int, default=1, help="threads of BEST")
    parser.add_argument("--samples", type=int, default=1, help="samples of each scenario")
    parser.add_argument("--first", type=int, default=0, help="index of the first instance taken")
    parser.add_argument("--stride", type=int, default=1, help="take every so many instances")
    parser.add_argument("--hard", action="store_true", help="only instances on which VP_CPSUM fails")
    parser.add_argument("--few", type=int, default=0, help="so many instances with two to four tasks a node instead")
    given = parser.parse_args()
    options = Options(time_limit_s=given.limit, threads=given.threads)
    if given.few:
        print_gaps(given.few, options)
        return
    total, packing_failures, failed = 0, 0, list[float]()
    closed: list[float] = []
    distance: list[float] = []
    for sample in range(given.samples):
        for instance, bound in list(instances(sample))[given.first :: given.stride]:
            total += 1
            packed = reached(instance, "VP_CPSUM", options)
            packing_failures += packed is None
            if given.hard and packed is not None:
                continue
            best = reached(instance, "BEST", options)
            if best is None:
                failed.append(bound)
            else:
                distance.append((bound - best) / bound)
            low = packed or 0.0
            if bound - low > 1e-9:
                closed.append(((best or 0.0) - low) / (bound - low))
    print(
        f"BEST {given.limit:g} s: {total} instances, closed {percent(closed)}, distance {percent(distance)}, "
        f"failures {len(failed)} (VP_CPSUM {packing_failures}); "
        f"bounds where it fails: {', '.join(f'{b:.5f}' for b in failed) or 'none'}"
    )


if __name__ == "__main__":
    main()
