"""How sure the mean over the jobs of one long run is: batch means.

Jobs of one run are not independent: what one waits, the next waits too. The jobs are therefore divided, in the order
of submission, into `batches` consecutive batches of equal size; if batches are long, their means are nearly independent
and normal, and Student's t gives an interval for the mean: m +- t * s / sqrt(batches), with batches - 1 degrees of
freedom (A. M. Law, Simulation Modeling and Analysis, section 9.5.3 in the 4th edition). 10 to 30 batches are enough for
any run (B. Schmeiser, Batch Size Effects in the Analysis of Simulation Output, Operations Research 30(3), 1982).

The correlation of one batch mean with the next says whether batches were long enough: well above 0 they were not, and
the interval is too narrow.
"""

from dataclasses import dataclass
from typing import Any

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats

BATCHES = 20
"""Unless told otherwise."""
LEAST_BATCHES = 5
"""The least with which t is below 3."""
LEAST_JOBS = 30
"""In each batch."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMeans:
    """The mean over the batches and its confidence interval."""

    mean: float
    half_width: float
    correlation: float | None
    """Of each batch mean with the next (lag 1); None where all are equal."""
    batches: int
    batch_jobs: int
    left_out: int
    """First jobs that make no whole batch."""


def batch_means(values: Floats, batches: int = BATCHES, confidence: float = CONFIDENCE) -> BatchMeans:
    """The interval for the mean of `values` (J,), which are in the order of submission.

    What is left of J values by `batches` is left out at the beginning, where the run is least steady. Raises InputError
    where there are too few values or batches.
    """
    if batches < LEAST_BATCHES:
        raise InputError(f"batches = {batches}: must be at least {LEAST_BATCHES}")
    size = len(values) // batches
    if size < LEAST_JOBS:
        raise InputError(
            f"batches = {batches}: {len(values)} finished jobs are too few: "
            f"each batch must have at least {LEAST_JOBS} jobs, {batches * LEAST_JOBS} in all"
        )
    left_out = len(values) - size * batches
    means = values[left_out:].reshape(batches, size).mean(axis=1)
    off = means - means.mean()
    squares = float((off**2).sum())
    return BatchMeans(
        mean=float(means.mean()),
        half_width=_t(batches - 1, confidence) * (squares / (batches - 1) / batches) ** 0.5,
        correlation=float((off[1:] * off[:-1]).sum()) / squares if squares > 0 else None,
        batches=batches,
        batch_jobs=size,
        left_out=left_out,
    )


def _t(freedom: int, confidence: float) -> float:
    """The quantile of Student's t that a two-sided interval ends at."""
    from scipy.special import stdtrit  # noqa: PLC0415 - takes longer to import than most tables take to make

    quantile: Any = stdtrit(freedom, (1.0 + confidence) / 2.0)
    return float(quantile)
