"""Names of DFRS policies (000 section 5.2.4): what a name may be made of, and the policy it stands for.

    [Greedy|GreedyP|GreedyPM|MCB][*][/per[=SECONDS]|/stretch-per[=SECONDS]|/due[=SECONDS]][/PART…]

The first part says what is done on a submission; `*`, that placements are also made on a completion; `per`, that all
jobs are mapped anew periodically (every 600 s), `stretch-per`, that this is done for the least stretch, `due`, that it
is done when a stretch doubles. Further parts, each at most once, in any order: `OPT=MIN|AVG|NONE` (with `stretch-per`:
`MAX|AVG|NONE`), `MFT=SECONDS` or `MVT=SECONDS`, `PRIO=VT|FLOW/VT|FLOW/VT^2`, `WEIGHT`, `DECAY=SECONDS`,
`BUDGET=NODES`, `NEEDS=SHARE` (MCB when needs are revised, if the minimum yield improves by more than that share of it),
a vector packing (`VP_CPSUM`, `MCB8`, …), `WINDOW=1|2`.
"""

import difflib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from dfrs.model.errors import InputError
from dfrs.policies.fractional.actions import MOVABLE, Action, Admit, Mode, Pin, PinKind, Priority, Readmit, Remap
from dfrs.policies.fractional.extensions import Budgeted, Deadlines, Improving, ScaledLines
from dfrs.policies.fractional.objective import YIELDS, Lines, StretchLines
from dfrs.policies.fractional.policy import Dfrs
from dfrs.policies.fractional.shares import AverageStretch, AverageYield, MaxMin, Shares
from dfrs.policies.fractional.vector_repack import DEFAULT_PACKING, PACKINGS, VectorRemap

PERIOD_S = 600.0
"""Twice the rescheduling penalty of the documents (000 section 5.3.1)."""

SUBMISSIONS = ("Greedy", "GreedyP", "GreedyPM", "MCB")

_MODES = {"Greedy": Mode.GREEDY, "GreedyP": Mode.GREEDY_P, "GreedyPM": Mode.GREEDY_PM}
_PRIORITIES = {
    "VT": Priority.VIRTUAL,
    "FLOW/VT": Priority.FLOW_VIRTUAL,
    "FLOW/VT^2": Priority.FLOW_VIRTUAL_SQUARED,
}
_PINS = {"MFT": PinKind.FLOW, "MVT": PinKind.VIRTUAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a name says."""

    submission: str = ""
    star: bool = False
    period_s: float | None = None
    due: bool = False
    weighted: bool = False
    decay_s: float = math.inf
    budget: float = math.inf
    needs: float | None = None
    stretch: bool = False
    share: str = ""
    pin: Pin = MOVABLE
    priority: str = "FLOW/VT^2"
    packing: str = DEFAULT_PACKING
    window: int = 1

    @property
    def packs(self) -> bool:
        """Whether MCB is ever used."""
        return self.submission == "MCB" or self.period_s is not None or self.needs is not None


def parse(name: str) -> Spec:
    """What `name` says. Raises InputError, naming the part and the rule, where it is not the name of a DFRS policy."""
    head, *parts = _split(name)
    spec = Spec(submission=head.removesuffix("*"), star=head.endswith("*"))
    if spec.submission and spec.submission not in SUBMISSIONS:
        raise _unknown(name, head, [s + star for s in SUBMISSIONS for star in ("*", "")])
    seen: set[str] = set()
    for part in parts:
        key, given, value = part.partition("=")
        setting = _SETTINGS.get(key) or (_set_packing if part in PACKINGS else None)
        if setting is None:
            raise _unknown(name, part, [*_SETTINGS, *PACKINGS])
        kind = _KINDS.get(key, "packing" if setting is _set_packing else key)
        if kind in seen:
            raise InputError(f'policy "{name}": part "{part}": there is another part for the {kind}')
        seen.add(kind)
        try:
            spec = setting(spec, key, value if given else None)
        except ValueError as error:
            raise InputError(f'policy "{name}": part "{part}": {error}') from None
    _check(name, spec, seen)
    return spec


def _split(name: str) -> list[str]:
    """The parts of a name; the slash in a priority's name does not end a part."""
    return [part.replace("\0", "/") for part in re.sub(r"(?<=/PRIO=FLOW)/(?=VT)", "\0", name).split("/")]


def _unknown(name: str, part: str, known: list[str]) -> InputError:
    near = difflib.get_close_matches(part, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"parts are {', '.join(known[:12])}, …"
    return InputError(f'policy "{name}": part "{part}": there is no such part; {hint}')


def seconds(value: str | None) -> float:
    """A number above 0. Raises ValueError."""
    try:
        number = float(value or "")
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError("must be given as a number above 0, as in MVT=600")
    return number


def _set_period(spec: Spec, key: str, value: str | None) -> Spec:
    return replace(spec, stretch=key == "stretch-per", period_s=PERIOD_S if value is None else seconds(value))


def _set_due(spec: Spec, _key: str, value: str | None) -> Spec:
    return replace(spec, due=True, period_s=PERIOD_S if value is None else seconds(value))


def _set_weight(spec: Spec, _key: str, value: str | None) -> Spec:
    if value is not None:
        raise ValueError("takes no value: weights come with the jobs")
    return replace(spec, weighted=True)


def _set_decay(spec: Spec, _key: str, value: str | None) -> Spec:
    return replace(spec, decay_s=seconds(value))


def _set_budget(spec: Spec, _key: str, value: str | None) -> Spec:
    return replace(spec, budget=seconds(value))


def _set_needs(spec: Spec, _key: str, value: str | None) -> Spec:
    return replace(spec, needs=seconds(value))


def _set_share(spec: Spec, _key: str, value: str | None) -> Spec:
    if value not in {"MIN", "MAX", "AVG", "NONE"}:
        raise ValueError("must be OPT=MIN, AVG or NONE, with stretch-per OPT=MAX, AVG or NONE")
    return replace(spec, share=value)


def _set_pin(spec: Spec, key: str, value: str | None) -> Spec:
    return replace(spec, pin=Pin(kind=_PINS[key], seconds=seconds(value)))


def _set_priority(spec: Spec, _key: str, value: str | None) -> Spec:
    if value not in _PRIORITIES:
        raise ValueError(f"must be PRIO={' or '.join(_PRIORITIES)}")
    return replace(spec, priority=value)


def _set_packing(spec: Spec, key: str, _value: str | None) -> Spec:
    return replace(spec, packing=key)


def _set_window(spec: Spec, _key: str, value: str | None) -> Spec:
    if value not in {"1", "2"}:
        raise ValueError("must be WINDOW=1 or 2")
    return replace(spec, window=int(value))


_SETTINGS: dict[str, Callable[[Spec, str, str | None], Spec]] = {
    "per": _set_period,
    "stretch-per": _set_period,
    "due": _set_due,
    "WEIGHT": _set_weight,
    "DECAY": _set_decay,
    "BUDGET": _set_budget,
    "NEEDS": _set_needs,
    "OPT": _set_share,
    "MFT": _set_pin,
    "MVT": _set_pin,
    "PRIO": _set_priority,
    "WINDOW": _set_window,
}
_KINDS = {"per": "period", "stretch-per": "period", "due": "period", "MFT": "age below which jobs are not moved"}
_KINDS["MVT"] = _KINDS["MFT"]


def _check(name: str, spec: Spec, seen: set[str]) -> None:
    """Raise InputError where parts do not go together."""
    rule = ""
    if spec.star and not spec.submission:
        rule = "* needs an action on submission before it, as in Greedy*"
    elif not spec.submission and spec.period_s is None:
        rule = "nothing would ever be placed: name an action on submission, or /per"
    elif spec.submission and not spec.star and spec.period_s is None:
        rule = "a job for which there is no room at once would wait for ever: add * or /per"
    elif not spec.packs and spec.pin.kind is not PinKind.NONE:
        rule = "MFT and MVT limit what MCB moves, and nothing here uses MCB: leave it out, or add /per"
    elif not spec.packs and seen & {"packing", "WINDOW"}:
        rule = "a packing is for MCB, and nothing here uses MCB: leave it out, or add /per"
    elif "WINDOW" in seen and PACKINGS[spec.packing].method not in {"CP", "PP"}:
        rule = f"{spec.packing} has no window: WINDOW is for Choose and Permutation Pack"
    elif not spec.packs and spec.budget < math.inf:
        rule = "BUDGET limits what MCB migrates, and nothing here uses MCB: leave it out, or add /per"
    elif spec.stretch and (spec.weighted or spec.decay_s < math.inf):
        rule = "WEIGHT and DECAY scale yields: they do not go with /stretch-per"
    elif spec.share == "AVG" and (spec.weighted or spec.decay_s < math.inf):
        rule = "WEIGHT and DECAY need OPT=MIN or NONE: an average knows no level"
    elif spec.stretch and spec.share == "MIN":
        rule = "stretches are made small: OPT=MAX, AVG or NONE"
    elif not spec.stretch and spec.share == "MAX":
        rule = "OPT=MAX is for /stretch-per; here it is OPT=MIN, AVG or NONE"
    if rule:
        raise InputError(f'policy "{name}": {rule}')


def build(name: str, spec: Spec) -> Dfrs:
    """The policy, under that name."""
    priority = _PRIORITIES[spec.priority]
    lines: Lines = YIELDS
    if spec.weighted or spec.decay_s < math.inf:
        lines = ScaledLines(weighted=spec.weighted, decay_s=spec.decay_s)
    aim = lines
    shares: Shares
    if spec.stretch:
        lines = stretch_lines = StretchLines(spec.period_s or PERIOD_S)
        shares = AverageStretch(lines=stretch_lines) if spec.share == "AVG" else _level_shares(spec, lines)
    else:
        shares = AverageYield() if spec.share == "AVG" else _level_shares(spec, lines)
    pack = _packer(spec, aim, priority)
    start: Action | None = pack if spec.submission == "MCB" else None
    restart: Action | None = start
    if spec.submission in _MODES:
        start = Admit(mode=_MODES[spec.submission], priority=priority)
        restart = Readmit(priority=priority)
    return Dfrs(
        name=name,
        on_submission=start,
        on_completion=restart if spec.star else None,
        on_wake=_packer(spec, lines, priority) if spec.period_s is not None else None,
        on_nodes=restart,
        on_needs=None if spec.needs is None else Improving(remap=_packer(spec, aim, priority), threshold=spec.needs),
        shares=shares,
        period_s=spec.period_s,
        deadlines=Deadlines(spec.period_s or PERIOD_S) if spec.due else None,
    )


def _level_shares(spec: Spec, lines: Lines) -> MaxMin:
    return MaxMin(lines=lines, even=spec.share == "NONE")


def _packer(spec: Spec, lines: Lines, priority: Priority) -> Action:
    pack = _unlimited_packer(spec, lines, priority)
    return pack if spec.budget == math.inf else Budgeted(remap=pack, amount=spec.budget)


def _unlimited_packer(spec: Spec, lines: Lines, priority: Priority) -> Action:
    if spec.packing == DEFAULT_PACKING and spec.window == 1:
        return Remap(lines=lines, priority=priority, pin=spec.pin)
    return VectorRemap(packing=spec.packing, window=spec.window, lines=lines, priority=priority, pin=spec.pin)
