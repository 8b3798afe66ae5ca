"""Names of the farm's batch policies: FARM-EASY, and ARRIVE-F with its parameters as parts (003 sections 8 and 9)."""

import difflib
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType

from dfrs.model.errors import InputError
from dfrs.policies.heterogeneous.arrive_f import ArriveF
from dfrs.policies.heterogeneous.easy import FarmEasy

HEADS = ("FARM-EASY", "ARRIVE-F")
"""First parts of the names that `find_farm` knows."""

_NUMBERS: Mapping[str, tuple[str, bool]] = MappingProxyType({
    "TAU": ("tau_s", True), "BETA": ("beta", True), "THRESH": ("threshold", False), "STRETCH": ("stretch_s", False),
    "COPY": ("copy_s", True), "EVERY": ("every", True),
})  # fmt: skip
"""Field of the rules, and whether 0 is refused."""
_FLAGS: Mapping[str, str] = MappingProxyType({"PARALLEL": "parallel", "HEAD": "head", "ONE": "one"})

_LARGEST = 1e9


def find_farm(name: str) -> FarmEasy | ArriveF:
    """The policy of a name whose first part is in HEADS. Raises InputError with the rule that the name breaks.

    Parts of ARRIVE-F, each at most once: `TAU=S`, `BETA=N`, `THRESH=X`, `STRETCH=S`, `COPY=S`, `EVERY=N`, `PARALLEL`,
    `HEAD`, `ONE`; see `dfrs.policies.heterogeneous.rules.Rules`.
    """
    head, *parts = name.split("/")
    if head == "FARM-EASY":
        if parts:
            raise InputError(f'policy "{name}": FARM-EASY has no parts')
        return FarmEasy()
    policy, seen = ArriveF(name=name), set[str]()
    for part in parts:
        key, equals, value = part.partition("=")
        if key not in _NUMBERS and key not in _FLAGS:
            raise InputError(f'policy "{name}": part "{part}": there is no such part; {_hint(key)}')
        if key in seen:
            raise InputError(f'policy "{name}": part "{part}": there is another part for {key}')
        seen.add(key)
        try:
            field, setting = _setting(key, value if equals else None)
        except ValueError as error:
            raise InputError(f'policy "{name}": part "{part}": {error}') from None
        policy = replace(policy, rules=replace(policy.rules, **{field: setting}))
    return policy


def _hint(key: str) -> str:
    known = (*(f"{key}=…" for key in _NUMBERS), *_FLAGS)
    near = difflib.get_close_matches(key.upper(), (*_NUMBERS, *_FLAGS), n=1)
    return f"did you mean {near[0]}?" if near else f"parts are {', '.join(known)}"


def _setting(key: str, value: str | None) -> tuple[str, float | bool]:
    """Field and value. Raises ValueError with the rule."""
    if key in _FLAGS:
        if value is not None:
            raise ValueError("takes no value")
        return _FLAGS[key], True
    field, above = _NUMBERS[key]
    try:
        number = float(value or "")
    except ValueError:
        number = inf
    if not (number > 0.0 if above else number >= 0.0) or number > _LARGEST:
        raise ValueError(f"must be given as a number {'above' if above else 'of at least'} 0, as in {key}=10")
    return field, number
