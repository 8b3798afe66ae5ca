"""Sharing by weights, in exact fractions: the least satisfied level first, node by node."""

from collections.abc import Sequence
from fractions import Fraction


def divided(
    node: Sequence[int], weight: Sequence[float], need: Sequence[float], capacity: Sequence[float]
) -> list[float]:
    """What each task uses. All on a node rise in proportion to their weights until they have their need."""
    used = [Fraction(0)] * len(node)
    for n, room in enumerate(capacity):
        rising = [t for t in range(len(node)) if node[t] == n and weight[t] > 0 and need[t] > 0]
        left = Fraction(room)
        rising.sort(key=lambda t: Fraction(need[t]) / Fraction(weight[t]))
        while rising:
            total = sum(Fraction(weight[t]) for t in rising)
            first = rising[0]
            if Fraction(need[first]) * total > left * Fraction(weight[first]):
                for t in rising:
                    used[t] = left * Fraction(weight[t]) / total
                break
            used[first] = Fraction(need[first])
            left -= used[first]
            rising.pop(0)
    return [float(share) for share in used]
