"""Synthetic CPU demand of machines over time: what a rebalancer that watches a cluster has to live with.

Each machine has a level, a daily pattern, noise that lasts some minutes, and bursts:

    demand = level * (1 + amplitude * cos(2 pi (hour - peak) / 24)) * week * exp(noise) + burst

Most machines peak in the afternoon and do less at the weekend; the others work at night. The noise is an AR(1) process;
bursts begin as a Poisson process and last exponentially long. The draws are NumPy's PCG64.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats

DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandScenario:
    """What demand is like; all of it is relative to what a machine was allocated."""

    level: float = 0.3
    """Mean of the machines' levels, which are exponential around it with a floor."""
    amplitude: float = 0.6
    """Of the daily pattern, at most 1."""
    night: float = 0.3
    """Part of the machines that peak at night."""
    weekend: float = 0.5
    """What the others do on the last two days of a week, as a part of a working day's."""
    noise: float = 0.25
    """Standard deviation of the logarithm."""
    noise_s: float = 900.0
    """After this time the correlation of the noise is 1/e."""
    bursts_per_day: float = 1.5
    burst_s: float = 1800.0
    """Mean length of a burst."""
    burst: float = 0.5
    """Mean height of a burst."""

    def __post_init__(self) -> None:
        rules = {
            "level": (self.level, 0 < self.level <= 1, "above 0 and at most 1"),
            "amplitude": (self.amplitude, 0 <= self.amplitude <= 1, "in [0, 1]"),
            "night": (self.night, 0 <= self.night <= 1, "in [0, 1]"),
            "weekend": (self.weekend, 0 <= self.weekend <= 1, "in [0, 1]"),
            "noise": (self.noise, 0 <= self.noise <= 2, "in [0, 2]"),
            "noise_s": (self.noise_s, 0 < self.noise_s < float("inf"), "a positive number of seconds"),
            "bursts_per_day": (self.bursts_per_day, 0 <= self.bursts_per_day <= 1000, "in [0, 1000]"),
            "burst_s": (self.burst_s, 0 < self.burst_s < float("inf"), "a positive number of seconds"),
            "burst": (self.burst, 0 <= self.burst <= 1, "in [0, 1]"),
        }
        for name, (value, holds, rule) in rules.items():
            if not holds:
                raise InputError(f"{name} = {value:g}: must be {rule}")


def machine_demand(scenario: DemandScenario, machines: int, ticks: int, tick_s: float, seed: int) -> Floats:
    """(ticks, machines) demand at each tick as a part of what the machine was allocated, in [0.01, 1].

    The first tick is midnight before a Monday. Raises InputError for less than one machine or tick.
    """
    if machines < 1 or ticks < 1 or not tick_s > 0:
        raise InputError(f"{machines} machines, {ticks} ticks of {tick_s:g} s: must be at least 1 of each, above 0 s")
    rng = np.random.default_rng(seed)
    level = np.maximum(0.05, scenario.level * rng.exponential(size=machines))
    at_night = rng.random(machines) < scenario.night
    peak = np.where(at_night, 2.0, 14.0) + rng.normal(0.0, 1.5, machines)
    time_s = np.arange(ticks)[:, None] * tick_s
    daily = 1.0 + scenario.amplitude * np.cos(2 * np.pi * (time_s / 3600.0 - peak) / 24.0)
    weekend = (time_s // DAY_S) % 7 >= 5
    week = np.where(weekend & ~at_night, scenario.weekend, 1.0)
    noise = _noise(scenario, machines, ticks, tick_s, rng)
    demand = level * daily * week * np.exp(noise) + _bursts(scenario, machines, ticks, tick_s, rng)
    return np.clip(demand, 0.01, 1.0)


def _noise(scenario: DemandScenario, machines: int, ticks: int, tick_s: float, rng: np.random.Generator) -> Floats:
    kept = np.exp(-tick_s / scenario.noise_s)
    fresh = rng.standard_normal((ticks, machines)) * scenario.noise
    noise = np.empty((ticks, machines))
    noise[0] = fresh[0]
    for k in range(1, ticks):
        noise[k] = kept * noise[k - 1] + np.sqrt(1.0 - kept**2) * fresh[k]
    return noise


def _bursts(scenario: DemandScenario, machines: int, ticks: int, tick_s: float, rng: np.random.Generator) -> Floats:
    height = np.zeros((ticks, machines))
    number = rng.poisson(scenario.bursts_per_day * ticks * tick_s / DAY_S, machines)
    for i, count in enumerate(number.tolist()):
        for begin_s, length_s, size in zip(
            rng.uniform(0.0, ticks * tick_s, count),
            rng.exponential(scenario.burst_s, count),
            rng.exponential(scenario.burst, count),
            strict=True,
        ):
            first = int(begin_s // tick_s)
            height[first : int((begin_s + length_s) // tick_s) + 1, i] += size
    return height
