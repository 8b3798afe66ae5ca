"""One vector packing instance given to VectorPack 0.1.5, by the dissertation's author, and to our kernels."""

import time

import numpy as np
from rich.console import Console

from dfrs import generate_services
from dfrs.kernels.packing import SUM, pack_best_fit, pack_first_fit, sort_order

TASKS, NODES = 2_000, 400


def compare(console: Console) -> None:
    """First fit and best fit, decreasing sum, on the same vectors and bins; time ratio and bins used."""
    try:
        from vectorpack.packs import pack_by_items  # noqa: PLC0415 - may be missing
        from vectorpack.util import zero  # noqa: PLC0415 - as above
    except ImportError:
        console.print("\nVectorPack is not installed: no peer to compare with.")
        return
    instance = generate_services(nodes=NODES, services=TASKS, resources=4, rho=0.0, slack=0.4, seed=1)
    size = instance.base + 0.35 * instance.slope
    items, bins = list(size), list(instance.capacity)

    def fullest(item: np.ndarray, free: np.ndarray) -> float:
        return float(free.sum())

    console.print(f"\n[bold]Peer[/bold]: {TASKS:,} vectors, {NODES} bins, 4 dimensions, decreasing sum")
    place = np.empty(TASKS, dtype=np.int64)
    for label, ours, select in (("first fit", pack_first_fit, zero), ("best fit", pack_best_fit, fullest)):
        started = time.perf_counter()
        theirs = pack_by_items(
            items, bins, item_key=lambda v: -v.sum(), **({} if select is zero else {"select_key": select})
        )
        theirs_s = time.perf_counter() - started
        ours_s = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            order = sort_order(size, SUM, False, instance.lexicographic)
            packed = ours(size, order, instance.capacity, 1e-9, False, place)
            ours_s = min(ours_s, time.perf_counter() - started)
        used = len(set(place.tolist())) if packed else None
        used_theirs = len(set(theirs)) if theirs else None
        console.print(
            f"  {label}: VectorPack {theirs_s:.2f} s, {used_theirs} bins; dfrs {1000 * ours_s:.2f} ms, {used} bins; "
            f"{theirs_s / ours_s:,.0f} times as fast (goal: 50 at equal or fewer bins)"
        )
