"""How equally users are treated: Jain's index and the Gini coefficient of their mean bounded stretches.

Jain's index is (sum x)^2 / (n sum x^2): 1 where all are equal, 1 / n where one has everything (R. Jain, D.-M. Chiu,
W. Hawe, A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer Systems, DEC
Research Report TR-301, 1984). The Gini coefficient is the mean difference of two, over twice the mean: 0 where all are
equal (C. Gini, Variabilità e mutabilità, 1912).
"""

import numpy as np

from dfrs.model.instance import Floats, Ints


def user_metrics(user: Ints, bounded_stretch: Floats) -> dict[str, float | int | None]:
    """Of jobs (J,) that finished, with their users, -1 for unknown: those jobs are left out.

    All but the number of users is None without a user.
    """
    known = user >= 0
    _, of, jobs = np.unique(user[known], return_inverse=True, return_counts=True)
    names = (
        "user_bounded_stretch_max",
        "user_bounded_stretch_mean",
        "user_bounded_stretch_jain_index",
        "user_bounded_stretch_gini",
    )
    if not len(jobs):
        return {"users": 0, **dict.fromkeys(names)}
    mean = np.sort(np.bincount(of, bounded_stretch[known]) / jobs)
    count, total = len(mean), float(mean.sum())
    # In order of size, the k-th of n is above k - 1 others and below n - k: the sum of all differences.
    differences = float(((2.0 * np.arange(1, count + 1) - count - 1.0) * mean).sum())
    figures = (
        float(mean[-1]),
        total / count,
        min(1.0, total**2 / (count * float((mean**2).sum()))),
        max(0.0, differences / (count * total)),
    )
    return {"users": count, **dict(zip(names, figures, strict=True))}
