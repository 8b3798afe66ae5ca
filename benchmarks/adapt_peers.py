"""Other ways to rebalance a cluster, on the same model: what ADAPT is compared with."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dfrs import Instance
from dfrs.model.instance import Floats, Ints


def hottest_to_coldest(instance: Instance, present: Ints, moves: int) -> Ints:
    """From the host with the lowest yield, move the machine that helps most to the host where it does least harm.

    As load balancers do that move one machine at a time: a move is made if it raises the lower yield of the two hosts.
    """
    place = present.copy()
    fixed, rate = np.zeros_like(instance.capacity), np.zeros_like(instance.capacity)
    np.add.at(fixed, place, instance.base)
    np.add.at(rate, place, instance.slope)
    for _ in range(moves):
        yields = _yields(instance.capacity - fixed, rate)
        a = int(yields.argmin())
        best, best_value = None, float(yields[a])
        for i in np.flatnonzero(place == a):
            left = _yields(instance.capacity[[a]] - fixed[a] + instance.base[i], rate[[a]] - instance.slope[i])[0]
            there = _yields(instance.capacity - fixed - instance.base[i], rate + instance.slope[i])
            there[a] = -1.0
            b = int(there.argmax())
            value = min(float(left), float(there[b]))
            if value > best_value:
                best, best_value = (i, b), value
        if best is None:
            break
        i, b = best
        for loads, part in ((fixed, instance.base), (rate, instance.slope)):
            loads[a] -= part[i]
            loads[b] += part[i]
        place[i] = b
    return place


def _yields(free: Floats, rate: Floats) -> Floats:
    """(N,) the yield that each host allows; -1 where not even 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(rate > 1e-15, np.maximum(free, 0.0) / rate, 1.0).min(axis=1)
    return np.where((free < -1e-9).any(axis=1), -1.0, np.minimum(ratio, 1.0))


def cp_sat(instance: Instance, present: Ints, moves: int, time_limit_s: float) -> tuple[Ints | None, float]:
    """`benchmarks.adapt_cp_sat` in a process of its own, and its CPU seconds without imports.

    OR-tools and highspy both bring HiGHS, and cannot be in one process. Raises ModuleNotFoundError without OR-tools.
    """
    with TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npz"
        np.savez(
            given, need=instance.need, fluid=instance.slope.any(axis=0), capacity=instance.capacity, present=present
        )
        command = [sys.executable, "-m", "benchmarks.adapt_cp_sat", given, found, str(moves), str(time_limit_s)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if "No module named 'ortools'" in done.stderr:
            raise ModuleNotFoundError("ortools")
        if done.returncode:
            raise RuntimeError(done.stderr)
        result = np.load(found)
        return (result["place"] if result["place"].size else None), float(result["cpu_s"])
