"""The minimum yield of a placement, by loops."""


def naive_minimum_yield(instance, place):
    """The highest yield that all running tasks can have, found node by node; None where requirements do not fit."""
    lowest = 1.0
    for n in range(len(instance.nodes)):
        for d in range(len(instance.resources)):
            base = slope = 0.0
            for i in range(len(instance.need)):
                if place[i] == n:
                    base += instance.base[i, d]
                    slope += instance.slope[i, d]
            free = instance.capacity[n, d] - base
            if free < -2e-9:
                return None
            if slope > 0:
                lowest = min(lowest, max(0.0, free) / slope)
    return lowest
