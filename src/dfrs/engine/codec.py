"""Events as JSON documents, targets as digests: what a shell records, and the proof that the record is complete.

The core has no clock and no chance. So its events, replayed in order with their times through a core of the same policy
that began the same, give the same targets to the bit; `replay` says where they do not.

A document has the event's kind under `event`, and its fields. Floats are exact: JSON numbers by their shortest
representation, and the strings "nan", "inf" and "-inf" where JSON has no number. A field with a default may be left
out, so that records outlive the fields that come later.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import numpy as np

from dfrs.engine.core import Core
from dfrs.engine.events import (
    Amend,
    Change,
    Complete,
    Event,
    Hold,
    MoveRefused,
    PauseRefused,
    Permitted,
    Predicted,
    Progressed,
    Ready,
    Revise,
    Reweigh,
    Speeds,
    Submit,
    Unhold,
    Wake,
    Withdraw,
)
from dfrs.model.decisions import Prices, Target
from dfrs.model.elastic import CommandKind
from dfrs.model.errors import DfrsError, InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.named_resources import Counts, NodeResources
from dfrs.model.nodes import Capacity, CapacityLeft, Condition, IslandsJoined, Join, NodeChange, PauseAbility

KINDS: Mapping[str, type[Event]] = MappingProxyType(
    {
        "submit": Submit,
        "change": Change,
        "complete": Complete,
        "wake": Wake,
        "ready": Ready,
        "progressed": Progressed,
        "reweigh": Reweigh,
        "node": NodeChange,
        "revise": Revise,
        "join": Join,
        "capacity": Capacity,
        "capacity_left": CapacityLeft,
        "pause_ability": PauseAbility,
        "prices": Prices,
        "amend": Amend,
        "withdraw": Withdraw,
        "hold": Hold,
        "unhold": Unhold,
        "permitted": Permitted,
        "pause_refused": PauseRefused,
        "move_refused": MoveRefused,
        "islands_joined": IslandsJoined,
        "predicted": Predicted,
        "node_resources": NodeResources,
    }
)
"""Events by what a document calls them."""

_NAMES = {kind: name for name, kind in KINDS.items()}
_WORDS = ("nan", "inf", "-inf")
_DIGEST_BYTES = 16


def encode(event: Event) -> dict[str, object]:
    """The event's document."""
    return {"event": _NAMES[type(event)]} | {f.name: _plain(getattr(event, f.name)) for f in fields(event)}


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in (value.tolist() if value.ndim == 1 else value)]
    if isinstance(value, tuple):
        return dict(value)
    if isinstance(value, CommandKind):
        return value.name
    if isinstance(value, Condition):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def decode(document: Mapping[str, object]) -> Event:
    """The event of a document. Raises InputError naming the field, its value and the rule."""
    if not isinstance(document, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"event = {document!r}: must be an object")
    kind = document.get("event")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"event = {kind!r}: must be one of {', '.join(KINDS)}")
    known = {f.name: f for f in fields(KINDS[kind])}
    for name in document:
        if name != "event" and name not in known:
            raise InputError(f"{kind}: {name}: there is no such field; fields are {', '.join(known) or 'none'}")
    values: dict[str, Any] = {name: _value(kind, f, document[name]) for name, f in known.items() if name in document}
    for name, f in known.items():
        if name not in values and f.default is MISSING:
            raise InputError(f"{kind}: {name}: is missing")
    event = KINDS[kind](**values)
    if isinstance(event, Ready | Progressed | Reweigh):
        (name,) = known.keys() - {"serials"}
        if len(event.serials) != len(values[name]):
            raise InputError(f"{kind}: {name}: {len(values[name])} values for {len(event.serials)} serials")
    return event


def _value(kind: str, field: "Field[Any]", value: object) -> object:
    convert, rule = _TYPES[field.type]
    try:
        return convert(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        raise InputError(f"{kind}: {field.name} = {value!r}: must be {rule}") from None


def _integer(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError
    return value


def _number(value: object) -> float:
    if isinstance(value, str) and value in _WORDS:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _each(convert: Callable[[object], object], dtype: str) -> Callable[[object], np.ndarray]:
    def column(value: object) -> np.ndarray:
        if not isinstance(value, list):
            raise TypeError
        return np.array([convert(each) for each in value], dtype)

    return column


def _pairs(value: object) -> np.ndarray:
    if not isinstance(value, list) or not all(isinstance(row, list) and len(row) == 2 for row in value):
        raise TypeError
    return np.array([[_number(each) for each in row] for row in value], "f8").reshape(-1, 2)


def _counts(value: object) -> Counts:
    if not isinstance(value, dict) or any(_integer(count) < 1 for count in value.values()):
        raise TypeError
    return tuple(sorted(value.items()))


_TYPES: Mapping[Any, tuple[Callable[..., object], str]] = {
    int: (_integer, "a whole number of 64 bits"),
    float: (_number, 'a number, "nan", "inf" or "-inf"'),
    bool: (_truth, "true or false"),
    CommandKind: (CommandKind.__getitem__, f"one of {', '.join(kind.name for kind in CommandKind)}"),
    Condition: (Condition, f"one of {', '.join(condition.value for condition in Condition)}"),
    Ints: (_each(_integer, "i8"), "a list of whole numbers of 64 bits"),
    Floats: (_each(_number, "f8"), 'a list of numbers, "nan", "inf" or "-inf"'),
    Counts: (_counts, "an object of whole numbers above 0"),
    Speeds: (_pairs, 'a list of pairs of numbers, "nan", "inf" or "-inf"'),
}


def digest(target: Target) -> str:
    """32 hexadecimal digits of what the target has done: nodes, yields and the next wake."""
    wake = np.zeros(0) if target.wake_at_s is None else np.array([target.wake_at_s])
    made = blake2b(digest_size=_DIGEST_BYTES)
    for array, kind in ((target.task_nodes, "<i8"), (target.yields, "<f8"), (wake, "<f8")):
        made.update(len(array).to_bytes(8, "little") + np.ascontiguousarray(array, kind).tobytes())
    return made.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Where a replay leaves the record."""

    index: int
    now_s: float
    event: Event
    recorded: str
    """The digest recorded, "" for an event on which nothing was decided."""
    replayed: str
    """That of the replay."""
    problem: str = ""
    """What the core says where it refuses the event, or the policy's answer."""


def replay(core: Core, entries: Iterable[tuple[float, Mapping[str, object], str]]) -> Mismatch | None:
    """Handle `entries` (time, document, digest) in order: the first that comes out otherwise than recorded, or None.

    Refused events are no part of a record: they change nothing. Where an event led to two decisions, the digest is that
    of the second one. Raises InputError for a wrong document.
    """
    for k, (now_s, document, recorded) in enumerate(entries):
        event = decode(document)
        decisions, replayed, problem = core.decisions, "", ""
        try:
            core.handle(event, now_s)
        except DfrsError as error:
            problem = str(error)
        if core.decisions > decisions and core.target is not None:
            replayed = digest(core.target)
        if problem or replayed != recorded:
            return Mismatch(index=k, now_s=now_s, event=event, recorded=recorded, replayed=replayed, problem=problem)
    return None
