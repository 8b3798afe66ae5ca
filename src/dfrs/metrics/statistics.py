"""How sure a mean over instances is, and how two columns of results on the same instances compare.

A mean over a sample says nothing about what another sample would give, and degradations are so skewed that the
interval of a normal distribution would be wrong on both sides. Intervals are therefore bootstrapped, bias-corrected and
accelerated (BCa: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 14). They take instances for
independent, and are too narrow where there are fewer than about ten.

For the mean the acceleration has a closed form, so that no jackknife, which is quadratic in the number of instances,
is computed. Resamples are drawn from a generator that a string seeds: the same values give the same interval, to the
bit, in whatever order they stand.
"""

from dataclasses import dataclass
from hashlib import sha256
from statistics import NormalDist
from typing import Any

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats

CONFIDENCE = 0.95
RESAMPLES = 2000
TIED = 1e-9
"""Two values tie where they differ by at most this share of the larger one."""
LEAST_PAIRS = 6
"""Fewer pairs cannot tell two columns apart: the least p-value of five is 0.06."""

_BATCH = 200_000
"""Values drawn at a time: what a core's cache holds is resampled fastest."""
_ROUNDING = 1e-12
"""Relative; resamples of the same values in another order have means that differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The mean of `count` values and its confidence interval.

    `mean` is None of no values, `low` and `high` of fewer than two. The interval lies within the values' range; of
    very skewed values it need not contain their mean.
    """

    mean: float | None
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Column a against column b, over the `count` instances on which both have a value."""

    count: int
    wins: int
    """Instances on which a is better than b ..."""
    ties: int
    losses: int
    """... and on which it is worse."""
    difference: Interval
    """The mean of a - b."""
    ratio: Interval | None
    """The geometric mean of a / b; None where any value is not above 0."""
    p_value: float | None
    """Two-sided, of Wilcoxon's signed-rank test; None where all instances tie, or with fewer than LEAST_PAIRS."""


def mean_interval(values: Floats, *, seed: str, confidence: float = CONFIDENCE, resamples: int = RESAMPLES) -> Interval:
    """The mean of (I,) `values`, and its bootstrap interval from so many resamples; NaN is left out.

    Values that are all the same have themselves as interval.
    """
    known = values[~np.isnan(values)]
    if not known.size:
        return Interval(mean=None, low=None, high=None, count=0)
    mean, low, high = float(known.mean()), None, None
    if known.min() == known.max() and known.size > 1:
        low = high = mean
    elif known.size > 1:
        # Sorted: which of them come first must not matter.
        low, high = _bounds(np.sort(known), _generator(seed), confidence, resamples)
    return Interval(mean=mean, low=low, high=high, count=known.size)


def paired(
    a: Floats,
    b: Floats,
    *,
    seed: str,
    lower_is_better: bool = True,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Paired:
    """Compare (I,) `a` to (I,) `b`, of the same instances; those on which either is NaN are left out.

    Raises InputError where they are not of equal length.
    """
    if a.shape != b.shape:
        raise InputError(f"paired columns of {a.shape} and {b.shape} values: must be of the same instances")
    both = ~np.isnan(a) & ~np.isnan(b)
    a, b = a[both], b[both]
    tied = np.abs(a - b) <= TIED * np.maximum(np.abs(a), np.abs(b))
    wins = int((~tied & ((a < b) == lower_is_better)).sum())
    ties = int(tied.sum())
    return Paired(
        count=len(a),
        wins=wins,
        ties=ties,
        losses=len(a) - wins - ties,
        difference=mean_interval(a - b, seed=seed, confidence=confidence, resamples=resamples),
        ratio=_ratio(a, b, seed, confidence, resamples),
        p_value=_p_value((a - b)[~tied]) if len(a) >= LEAST_PAIRS else None,
    )


def _ratio(a: Floats, b: Floats, seed: str, confidence: float, resamples: int) -> Interval | None:
    if not ((a > 0.0).all() and (b > 0.0).all()):
        return None
    logs = mean_interval(np.log(a) - np.log(b), seed=seed, confidence=confidence, resamples=resamples)
    mean, low, high = (None if log is None else float(np.exp(log)) for log in (logs.mean, logs.low, logs.high))
    return Interval(mean=mean, low=low, high=high, count=logs.count)


def _p_value(differences: Floats) -> float | None:
    """Of differences other than 0."""
    if not differences.size:
        return None
    from scipy.stats import wilcoxon  # noqa: PLC0415 - takes longer to import than most pages take to write

    result: Any = wilcoxon(differences)
    return float(result.pvalue)


def _generator(seed: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(sha256(seed.encode()).digest()))


def _bounds(known: Floats, generator: np.random.Generator, confidence: float, resamples: int) -> tuple[float, float]:
    """Low and high: quantiles of the means of resamples."""
    means = np.empty(resamples)
    rows = max(1, _BATCH // len(known))
    for start in range(0, resamples, rows):
        part = means[start : start + rows]
        part[:] = known.take(generator.integers(len(known), size=(len(part), len(known)))).mean(axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, _levels(known, means, (tail, 1.0 - tail)))
    return float(low), float(high)


def _levels(known: Floats, means: Floats, levels: tuple[float, float]) -> tuple[float, float]:
    """At which quantiles the interval of these levels ends; at the levels themselves where BCa is not defined."""
    centre = known.mean()
    rounding = _ROUNDING * np.abs(known).max()
    below = float((means < centre - rounding).mean() + (means <= centre + rounding).mean()) / 2.0
    if not 0.0 < below < 1.0:
        return levels
    normal = NormalDist()
    bias = normal.inv_cdf(below)
    off = known - centre
    off /= np.abs(off).max()
    acceleration = float((off**3).sum() / (off**2).sum() ** 1.5) / 6.0
    low, high = (bias + normal.inv_cdf(level) for level in levels)
    if max(acceleration * low, acceleration * high) >= 1.0:
        return levels
    return normal.cdf(bias + low / (1.0 - acceleration * low)), normal.cdf(bias + high / (1.0 - acceleration * high))
