"""Fields of a record that another tool wrote: each is checked where it is read, and a message says which it was."""

import json
import math
import re
from collections.abc import Mapping

from dfrs.model.errors import InputError

_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE | re.ASCII)
_LONGEST = 60


class Record:
    """An object of a document, or a row of a table. `where` is its file and place in it."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, Mapping):
            raise InputError(f"{where} = {shown(values)}: must be an object")
        self._values: Mapping[str, object] = values
        self.where = where

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) not in {None, ""} if _hashable(self._values.get(name)) else True

    def first(self, *names: str) -> str:
        """The first of `names` that it has; the first of all where it has none."""
        return next((name for name in names if name in self), names[0])

    def raw(self, name: str) -> object:
        """The value as it is; None without one."""
        return self._values.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """A text, or a whole number as text. Raises InputError where it is missing and has no default."""
        value = self._values.get(name)
        if value is None or value == "":
            if default is None:
                raise InputError(f"{self.where}: no {name}: must have one")
            return default
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputError(f"{self.where}: {name} = {shown(value)}: must be text")
        return str(value).strip()

    def number(self, name: str, default: float | None = None, *, above: float | None = None) -> float:
        """A finite number of at least 0, or above `above`. Raises InputError as `text` does."""
        value = self._values.get(name)
        if value is None or value == "":
            if default is None:
                raise InputError(f"{self.where}: no {name}: must have one")
            return default
        number = _float(value)
        low_enough = number > above if above is not None else number >= 0
        if not (math.isfinite(number) and low_enough):
            rule = f"a number above {above:g}" if above is not None else "a number of at least 0"
            raise InputError(f"{self.where}: {name} = {shown(value)}: must be {rule}")
        return number

    def size(self, name: str, unit: str = "") -> float:
        """Bytes above 0 of a text as `16G` or `512 MiB`, or of a number of `unit`. Raises InputError."""
        value = self.text(name) if isinstance(self._values.get(name), str) else str(self.number(name))
        found = _SIZE.fullmatch(value.strip())
        bare = found is not None and value.strip()[-1].isdigit()
        if found is None or (bare and not unit):
            raise InputError(f"{self.where}: {name} = {shown(value)}: must be a size with a unit, as 16G or 512M")
        size = float(found[1]) * _SIZES[unit if bare else (found[2] or "").upper()]
        if not size > 0:
            raise InputError(f"{self.where}: {name} = {shown(value)}: must be above 0")
        return size


def shown(value: object) -> str:
    """A value for a message: as JSON, and not all of it if it is long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _hashable(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)
