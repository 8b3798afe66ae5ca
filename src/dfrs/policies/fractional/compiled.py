"""Which fractional policies have a compiled event loop, and how it is told what they do."""

from types import NoneType

from dfrs.kernels import fractional_loop as kernels
from dfrs.kernels.fractional_loop import Actions
from dfrs.policies.fractional.actions import MARGIN, MOVABLE, Admit, Mode, PolicyAction, Priority, Readmit, Repack
from dfrs.policies.fractional.objective import YIELDS
from dfrs.policies.fractional.shares import MaxMin, Shares

_CODES: dict[type, int] = {
    NoneType: kernels.NOTHING,
    Admit: kernels.ADMIT,
    Readmit: kernels.READMIT,
    Repack: kernels.REPACK,
}


def compiled_actions(
    on_submission: PolicyAction | None,
    on_completion: PolicyAction | None,
    on_wake: PolicyAction | None,
    shares: Shares,
    period_s: float | None,
) -> Actions | None:
    """What `dfrs.kernels.fractional_loop` is told; None where it does not know one of the actions, or the shares."""
    actions = (on_submission, on_completion, on_wake)
    if any(type(each) not in _CODES for each in actions) or not isinstance(shares, MaxMin):
        return None
    repacks = [each for each in actions if isinstance(each, Repack)]
    modes = {each.mode for each in actions if isinstance(each, Admit)}
    priorities = {each.priority for each in actions if isinstance(each, Admit | Readmit | Repack)}
    pins = {each.pin for each in repacks}
    objectives = {shares.objective, *(each.objective for each in repacks)}
    if objectives != {YIELDS} or max(map(len, (modes, priorities, pins))) > 1:
        return None
    pin = next(iter(pins), MOVABLE)
    return Actions(
        _CODES[type(on_submission)],
        _CODES[type(on_completion)],
        _CODES[type(on_wake)],
        next(iter(modes), Mode.GREEDY).value,
        next(iter(priorities), Priority.FLOW_VIRTUAL_SQUARED).value,
        pin.kind.value,
        float(pin.seconds),
        YIELDS.search,
        YIELDS.floor,
        shares.even,
        period_s or 0.0,
        MARGIN,
    )
