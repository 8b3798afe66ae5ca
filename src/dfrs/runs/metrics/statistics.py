"""How sure a mean over instances is, and how two columns of results on the same instances compare.

A mean over a sample says nothing about what another sample would give, and degradations are so skewed that the
interval of a normal distribution would be wrong on both sides. Intervals are therefore bootstrapped, bias-corrected and
accelerated (BCa: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 14).

Instances that are made from one another, such as one trace at several loads, are not independent: they form a cluster,
and clusters are drawn whole. Where none are given, every instance is its own. Intervals take clusters for independent,
and are too narrow where there are fewer than about ten.

For the mean the acceleration has a closed form, in means without one cluster, so that no jackknife, which is quadratic
in the number of clusters, is computed. Resamples are drawn from a generator that a string seeds: the same values give
the same interval, to the bit, in whatever order they stand.
"""

from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats

Labels = NDArray[Any]
"""(I,) numbers or strings, the same for the instances of one cluster."""

CONFIDENCE = 0.95
RESAMPLES = 2000
TIED = 1e-9
"""Two values tie where they differ by at most this share of the larger one."""
LEAST_PAIRS = 6
"""Fewer pairs cannot tell two columns apart: the least p-value of five is 0.06."""

LEAST_CLUSTERS = 6
"""An interval of fewer says nothing that 95 % should stand beside."""

_BATCH = 200_000
"""Clusters drawn at a time: what a core's cache holds is resampled fastest."""
_ROUNDING = 1e-12
"""Relative; resamples of the same values in another order have means that differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The mean of `count` values and its confidence interval.

    `mean` is None of no values, `low` and `high` of fewer than two clusters. The interval lies within the values'
    range; of very skewed values it need not contain their mean.
    """

    mean: float | None
    low: float | None
    high: float | None
    count: int
    clusters: int
    """`count` where every instance is its own."""

    @property
    def shown(self) -> "Interval":
        """The same without low and high where they are of too few clusters to be shown to anyone."""
        return self if self.clusters >= LEAST_CLUSTERS else replace(self, low=None, high=None)


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
    """Two-sided, of Wilcoxon's signed-rank test of the clusters' mean differences; None where all instances tie, or
    with fewer clusters than LEAST_PAIRS."""


def mean_interval(
    values: Floats,
    *,
    seed: str,
    clusters: Labels | None = None,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval:
    """The mean of (I,) `values`, and its bootstrap interval from so many resamples; NaN is left out.

    The instances of each of (I,) `clusters` are drawn together; without, each is drawn by itself. Values that are all
    the same have themselves as interval. Raises InputError where clusters are not of as many instances.
    """
    if clusters is not None and clusters.shape != values.shape:
        raise InputError(f"clusters of {clusters.shape} and {values.shape} values: must be of the same instances")
    there = ~np.isnan(values)
    known = values[there]
    if not known.size:
        return Interval(mean=None, low=None, high=None, count=0, clusters=0)
    sums, sizes = _totals(known, None if clusters is None else clusters[there])
    mean, low, high = float(known.mean()), None, None
    if known.min() == known.max() and sums.size > 1:
        low = high = mean
    elif sums.size > 1:
        low, high = _bounds(sums, sizes, _generator(seed), confidence, resamples)
    return Interval(mean=mean, low=low, high=high, count=known.size, clusters=sums.size)


def paired(
    a: Floats,
    b: Floats,
    *,
    seed: str,
    clusters: Labels | None = None,
    lower_is_better: bool = True,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Paired:
    """Compare (I,) `a` to (I,) `b`, of the same instances; those on which either is NaN are left out.

    Wins and losses are counted by instance, whatever its cluster. Raises InputError where the columns, or (I,)
    `clusters`, are not of equal length.
    """
    if a.shape != b.shape:
        raise InputError(f"paired columns of {a.shape} and {b.shape} values: must be of the same instances")
    if clusters is not None and clusters.shape != a.shape:
        raise InputError(f"clusters of {clusters.shape} and {a.shape} values: must be of the same instances")
    both = ~np.isnan(a) & ~np.isnan(b)
    a, b, clusters = a[both], b[both], None if clusters is None else clusters[both]
    tied = np.abs(a - b) <= TIED * np.maximum(np.abs(a), np.abs(b))
    wins = int((~tied & ((a < b) == lower_is_better)).sum())
    ties = int(tied.sum())
    difference = mean_interval(a - b, seed=seed, clusters=clusters, confidence=confidence, resamples=resamples)
    return Paired(
        count=len(a),
        wins=wins,
        ties=ties,
        losses=len(a) - wins - ties,
        difference=difference,
        ratio=_ratio(a, b, seed, clusters, confidence, resamples),
        p_value=_p_value(np.where(tied, 0.0, a - b), clusters) if difference.clusters >= LEAST_PAIRS else None,
    )


def _ratio(
    a: Floats, b: Floats, seed: str, clusters: Labels | None, confidence: float, resamples: int
) -> Interval | None:
    if not ((a > 0.0).all() and (b > 0.0).all()):
        return None
    logs = mean_interval(
        np.log(a) - np.log(b), seed=seed, clusters=clusters, confidence=confidence, resamples=resamples
    )
    mean, low, high = (None if log is None else float(np.exp(log)) for log in (logs.mean, logs.low, logs.high))
    return replace(logs, mean=mean, low=low, high=high)


def _p_value(differences: Floats, clusters: Labels | None) -> float | None:
    """Of the clusters whose mean difference is other than 0."""
    sums, sizes = _totals(differences, clusters)
    means = (sums / sizes)[sums != 0.0]
    if not means.size:
        return None
    from scipy.stats import wilcoxon  # noqa: PLC0415 - takes longer to import than most pages take to write

    result: Any = wilcoxon(means)
    return float(result.pvalue)


def _generator(seed: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(sha256(seed.encode()).digest()))


def _totals(known: Floats, clusters: Labels | None) -> tuple[Floats, Floats]:
    """(C,) sums and (C,) sizes of the clusters.

    Sorted, and so are the values of each before they are added: which of them come first must not matter.
    """
    if clusters is None:
        return np.sort(known), np.ones_like(known)
    _, cluster = np.unique(clusters, return_inverse=True)
    order = np.lexsort((known, cluster))
    starts = np.flatnonzero(np.diff(cluster[order], prepend=-1))
    sums = np.add.reduceat(known[order], starts)
    sizes = np.diff(starts, append=known.size).astype(np.float64)
    order = np.lexsort((sizes, sums))
    return sums[order], sizes[order]


def _bounds(
    sums: Floats, sizes: Floats, generator: np.random.Generator, confidence: float, resamples: int
) -> tuple[float, float]:
    """Low and high: quantiles of the means of resamples."""
    means = np.empty(resamples)
    count, alike = len(sums), _alike(sizes)
    rows = max(1, _BATCH // count)
    for start in range(0, resamples, rows):
        part = means[start : start + rows]
        drawn = generator.integers(count, size=(len(part), count))
        part[:] = sums.take(drawn).sum(axis=1) / (count * sizes[0] if alike else sizes.take(drawn).sum(axis=1))
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, _levels(sums, sizes, means, (tail, 1.0 - tail)))
    return float(low), float(high)


def _alike(sizes: Floats) -> bool:
    return bool((sizes == sizes[0]).all())


def _levels(sums: Floats, sizes: Floats, means: Floats, levels: tuple[float, float]) -> tuple[float, float]:
    """At which quantiles the interval of these levels ends; at the levels themselves where BCa is not defined."""
    centre = sums.sum() / sizes.sum()
    rounding = _ROUNDING * np.abs(sums / sizes).max()
    below = float((means < centre - rounding).mean() + (means <= centre + rounding).mean()) / 2.0
    if not 0.0 < below < 1.0:
        return levels
    normal = NormalDist()
    bias = normal.inv_cdf(below)
    off = sums - sizes * centre
    if not _alike(sizes):
        # In proportion to how far the mean without a cluster is below the mean of all such means.
        off /= 1.0 - sizes / sizes.sum()
        off -= off.mean()
    if not off.any():
        return levels
    off /= np.abs(off).max()
    acceleration = float((off**3).sum() / (off**2).sum() ** 1.5) / 6.0
    low, high = (bias + normal.inv_cdf(level) for level in levels)
    if max(acceleration * low, acceleration * high) >= 1.0:
        return levels
    return normal.cdf(bias + low / (1.0 - acceleration * low)), normal.cdf(bias + high / (1.0 - acceleration * high))
