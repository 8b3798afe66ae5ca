"""What a migration is predicted to gain: [Atif2011] equations 11 to 16.

A gain is in process seconds: seconds that a job saves times its processes, so that a plan which speeds up a large job
and slows down a small one is weighed fairly ([Atif2011] equation 13, Table 18).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dfrs.policies.heterogeneous.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """A job that would be moved, as far as gains go."""

    processes: int
    """[Atif2011]: eta."""
    saved_s: float
    """Seconds saved in each tau, below 0 where it gets slower ([Atif2011]: t_{A->B})."""
    left_s: float
    """Estimated seconds left ([Atif2011]: T^rem)."""


def saved_per_tau(tau_s: float, speed: float, speed_there: float) -> float:
    """t_{A->B}: seconds that a job saves in tau, from its speeds here and there, both above 0 ([Atif2011] equation 9).

    What takes tau here takes tau * speed / speed_there there.
    """
    return tau_s * (1.0 - speed / speed_there)


def counted_s(mover: Mover, stretch_s: float, rules: Rules) -> float:
    """T^beta: over how many seconds the job's gain or loss counts ([Atif2011] equation 14).

    None where a job that gains ends before it has recovered `stretch_s`, T^M of the whole plan. One that loses does
    so all the time. With rules that let jobs take part that end earlier, no job counts beyond its end.
    """
    whole_s = min(rules.horizon_s, max(mover.left_s, 0.0)) if rules.one else rules.horizon_s
    if mover.saved_s <= 0.0:
        return whole_s
    return whole_s if mover.left_s / rules.tau_s > stretch_s / mover.saved_s else 0.0


def gain_s(movers: Sequence[Mover], rules: Rules) -> float:
    """Process seconds that the cluster saves in the next beta tau if these jobs are moved ([Atif2011] eqs. 13, 15)."""
    stretch_s = rules.stretch_of(sum(mover.processes for mover in movers))
    return sum(_saved_s(mover, stretch_s, rules) for mover in movers) - stretch_s


def most_gain_s(mover: Mover, rules: Rules) -> float:
    """The most that the job adds to a plan's gain, whatever else is moved; without its part of the stretch."""
    return _saved_s(mover, 0.0, rules)


def _saved_s(mover: Mover, stretch_s: float, rules: Rules) -> float:
    """T_{A->B} times eta; nothing where nothing counts, also where the job would all but stop."""
    counted = counted_s(mover, stretch_s, rules)
    return mover.processes * mover.saved_s * counted / rules.tau_s if counted else 0.0


def passes(gain: float, threshold_s: float) -> bool:
    """[Atif2011] equation 16; and no plan without a gain, also where the threshold is 0."""
    return gain > threshold_s and gain > 0.0
