"""Methods that find out CPU needs, under their names ([Stillwell2010] section 7.2, and one of ours).

Each is a `dfrs.model.needs.Discovery`: a pure step. See `docs/explanation/discovery.md`.
"""

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from dfrs.kernels import observing
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs.model.needs import WEIGHTS, Discovery, Revision, Tasks, Usage, job_needs, mark_told
from dfrs.policies.discovery.dynamic import Dynamic

NO_STEP_S = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Finds nothing out: the shares of the policy hold, or with `equal` all tasks have the same weight."""

    name: str
    equal: bool = False

    def step(self, now_s: float, table: Tasks, usage: Usage, capacity: Floats, /) -> Revision:
        """Nothing new."""
        del now_s, usage
        if not self.equal:
            return Revision(table=table.copy(), weights=None, next_step_s=NO_STEP_S)
        new = table.copy()
        new["weight"] = WEIGHTS / np.bincount(table["node"], minlength=len(capacity))[table["node"]]
        return Revision(table=new, weights=new["weight"].copy(), next_step_s=NO_STEP_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """Needs from usage alone, all the time (ours).

    Weights are for equal yields by the estimates where these are good, and for equal shares where they are not; part of
    what a node has makes up for lower yields so far (`ahead_s`). At multiples of `probe_every_s`, for `probe_s`, each
    node that cannot give all of what is estimated offers the task that is known least, with an error of at least
    `probe_error`, all that it may need, if it is likely to need no more than the node has; the others keep `probe_keep`
    of what they would have. All nodes probe at the same time, so that the least yield of all suffers once; and only if
    what may be found out is expected to gain more of the least yield than that costs (`dfrs.kernels.observing.pays`).

    Of a TASK this uses low, high, trust, usage, noise, changes and age_s as `dfrs.kernels.observing`; used_s and
    seen_s, seconds times yield and seconds, of which the mean yield is made; chosen, 1 while it is probed; phase, the
    number of the present period of probes.
    """

    name: str
    step_s: float = 2.0
    change_s: float = 600.0
    """How long a need stays before it changes, as it is thought of a task of which nothing is known yet."""
    probe_every_s: float = 60.0
    probe_s: float = 2.0
    probe_keep: float = 0.05
    probe_error: float = 0.1
    probe_likely: float = 0.5
    """A need is probed that can be offered with at least this probability."""
    probe_worth: float = 1.0
    """So many times what a probe costs it must be expected to gain."""
    even: float = 0.9
    """All tasks have this part of the largest yield common to all nodes ..."""
    least_even: float = 0.4
    """... and at least this part of that of their own node; what is left is for the least mean yield on the node ..."""
    ahead_s: float = 900.0
    """... that is, if all stays as it is for so long: the shorter, the more have those that had less so far."""
    memory_s: float = 14_400.0
    """Mean yields, and how often needs change, are of about so long."""
    tell_s: float = 10.0
    """The policy is told at multiples of this at most (by OBSERVE+MIGRATION every 60 s) ..."""
    threshold: float = 0.05
    """... the needs that have changed by more than this, of the reference node."""

    def step(self, now_s: float, table: Tasks, usage: Usage, capacity: Floats, /) -> Revision:
        """See the class."""
        new = table.copy()
        observing.observe(now_s, new, usage, capacity, self.change_s, self.memory_s)
        self._probe(now_s, new, capacity)
        observing.remember(new, usage, self.memory_s)
        observing.weigh(new, capacity, self.even, self.least_even, self.ahead_s, self.probe_keep, WEIGHTS)
        needs = self._tell(now_s, new)
        return Revision(
            table=new, weights=new["weight"].copy(), needs=needs, repack=bool(needs), next_step_s=now_s + self.step_s
        )

    def _probe(self, now_s: float, table: Tasks, capacity: Floats) -> None:
        period = math.floor(now_s / self.probe_every_s)
        if now_s - period * self.probe_every_s >= self.probe_s:
            table["chosen"] = 0
        elif len(table) and table["phase"].max() < period:
            observing.choose(table, capacity, self.probe_error, self.probe_keep, self.probe_likely)
            sharing = (self.even, self.least_even, self.ahead_s, self.probe_keep)
            if not observing.pays(table, capacity, *sharing, self.probe_worth * self.probe_s, self.change_s):
                table["chosen"] = 0
        table["phase"] = period

    def _tell(self, now_s: float, table: Tasks) -> dict[int, float]:
        """Needs to be told, marked as told in `table`."""
        period = math.floor(now_s / self.tell_s)
        if not len(table) or math.floor(table["told_s"].max() / self.tell_s) >= period:
            return {}
        if (np.abs(table["estimate"] - table["told"]) <= self.threshold).all():
            return {}
        told = dict(zip(table["job"].tolist(), table["told"].tolist(), strict=True))
        needs = {job: need for job, need in job_needs(table).items() if abs(need - told[job]) > self.threshold}
        mark_told(now_s, table, needs)
        return needs


_MAKERS: dict[str, tuple[Callable[..., Discovery], dict[str, object]]] = {
    "NONE": (Fixed, {}),
    "EQUAL": (Fixed, {"equal": True}),
    "DYNAMIC": (Dynamic, {}),
    "DYNAMIC+MIGRATION": (Dynamic, {"migrates": True}),
    "OBSERVE": (Observe, {}),
    "OBSERVE+MIGRATION": (Observe, {"tell_s": 60.0}),
}
DISCOVERIES = tuple(_MAKERS)
"""Names that `find_discovery` knows."""


def settings_of(name: str) -> tuple[str, ...]:
    """Which settings a method has. Raises InputError with the nearest names."""
    if name not in _MAKERS:
        near = difflib.get_close_matches(name.upper(), DISCOVERIES, n=3, cutoff=0.5) or DISCOVERIES
        raise InputError(f'discovery "{name}": there is no such method; did you mean {" or ".join(near)}?')
    maker = _MAKERS[name][0]
    if not isinstance(maker, type):
        return ()
    return tuple(f.name for f in fields(maker) if f.type in {float, "float"})


def find_discovery(name: str, **settings: float) -> Discovery:
    """The method of that name with these settings. Raises InputError naming the setting and the rule."""
    known = settings_of(name)
    for key, value in settings.items():
        if key not in known:
            what = f"settings are {', '.join(known)}" if known else "it has no settings"
            raise InputError(f'discovery "{name}": there is no setting {key}; {what}')
        if not 0 < value < math.inf:
            raise InputError(f'discovery "{name}": {key} = {value}: must be a number above 0')
    maker, own = _MAKERS[name]
    return maker(name=name, **(own | settings))
