"""A picture of a profile: messages by size, and time waited for the non-blocking ones (as in [Atif2011])."""

import math
from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dfrs.model.hardware import Profile

_BLUE, _RED, _QUIET, _GRID = "#1d4e89", "#d1495b", "#6b7785", "#e6e9ed"
_WIDTH = 0.4


def draw(profile: Profile) -> Figure:
    """Two panels over one axis of sizes, in powers of two: numbers a process, and seconds waited."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5.6), sharex=True, height_ratios=(2, 1))
    blocking = _by_power(profile.blocking)
    waiting = _by_power({size: waits.count for size, waits in profile.waiting.items()})
    waited = _by_power({size: waits.count * waits.mean_s for size, waits in profile.waiting.items()})
    powers = sorted({*blocking, *waiting})
    places = {power: k for k, power in enumerate(range(powers[0], powers[-1] + 1))} if powers else {}
    _bars(above, places, blocking, -_WIDTH / 2, _BLUE, "blocking")
    _bars(above, places, waiting, _WIDTH / 2, _RED, "non-blocking")
    _bars(below, places, waited, 0.0, _RED, "")
    if powers:
        above.set_yscale("log")
        above.set_ylim(bottom=min([*blocking.values(), *waiting.values(), 1.0]) / 2)
    above.set_ylabel("messages a process")
    below.set_ylabel("seconds waited\na process")
    below.set_xlabel("size of the message, bytes (from this power of two up to the next)")
    below.set_xticks(list(places.values()), [_size(power) for power in places], rotation=45 if len(places) > 9 else 0)
    above.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
    title = f"{profile.job}: {profile.processes} processes, {profile.tau_s:.3g} s"
    above.set_title(title, loc="left", fontsize=11, pad=14)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=_GRID)
        axes.set_axisbelow(True)
    if not powers:
        above.text(0.5, 0.5, "no messages", transform=above.transAxes, ha="center", color=_QUIET)
    figure.tight_layout()
    return figure


def _by_power(values: Mapping[int, float]) -> dict[int, float]:
    found: dict[int, float] = {}
    for size, value in values.items():
        power = int(math.log2(size))
        found[power] = found.get(power, 0.0) + value
    return found


def _bars(
    axes: Axes, places: Mapping[int, int], values: Mapping[int, float], shift: float, colour: str, label: str
) -> None:
    at = [places[power] + shift for power in values]
    axes.bar(at, list(values.values()), width=_WIDTH, color=colour, label=label)


def _size(power: int) -> str:
    for letter, least in (("G", 30), ("M", 20), ("K", 10)):
        if power >= least:
            return f"{1 << (power - least)}{letter}"
    return str(1 << power)
