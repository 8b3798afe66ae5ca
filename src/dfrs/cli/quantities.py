"""Sizes, durations and instants as people write and read them on the command line.

What is written is read strictly: a number without a unit, a unit twice or in the wrong order is refused, not guessed.
"""

import math
import re
import time
from datetime import datetime

from dfrs.model.amounts import show_bytes, show_cores, show_seconds
from dfrs.model.errors import InputError
from dfrs.report.clock import parse_time

__all__ = [
    "LONGEST",
    "parse_bytes",
    "parse_instant",
    "parse_seconds",
    "parse_swap",
    "quoted",
    "show_bytes",
    "show_cores",
    "show_count",
    "show_instant",
    "show_seconds",
]

LONGEST = 80
"""Characters of bad input that a message repeats."""
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s?([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_MINUTES = re.compile(r"(\d+):([0-5]?\d)", re.ASCII)
_SPAN = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)


def quoted(text: object) -> str:
    """What somebody wrote, for a message: on one line, and not all of it if it is long."""
    whole = str(text)
    return f'"{repr(whole[:LONGEST])[1:-1]}{"..." if len(whole) > LONGEST else ""}"'


def parse_bytes(text: str, field: str = "size") -> int:
    """Bytes: `512M`, `1.5G`, `2GiB`; K, M, G and T are powers of 1024, and a bare number of bytes ends in B.

    Raises InputError.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or text.strip()[-1].isdigit():
        raise InputError(f"{field}: {quoted(text)}: must be a number with a unit, as 512M or 1.5G")
    size = float(found[1]) * _SIZES[found[2].upper()]
    if not 1 <= size < 1 << 60:
        raise InputError(f"{field}: {quoted(text)}: must be at least 1 byte and less than an exbibyte")
    return round(size)


def parse_swap(text: str, field: str = "swap") -> int:
    """Bytes of swap space or of images: as `parse_bytes`, or 0. Raises InputError."""
    if text.strip() in {"0", "0B"}:
        return 0
    try:
        return parse_bytes(text, field)
    except InputError as error:
        raise InputError(f"{error}; or 0 for none") from None


def parse_seconds(text: str, field: str = "duration") -> float:
    """Seconds, above 0: `90s`, `2h`, `1d2h`, `01:30:00`, `2-03:04:05`; `1:30` is 90 s. Raises InputError."""
    bare = text.strip()
    found = _SPAN.fullmatch(bare)
    if bare and found is not None:
        seconds = sum(float(part or 0) * unit for part, unit in zip(found.groups(), _UNITS_S.values(), strict=True))
    elif short := _MINUTES.fullmatch(bare):
        seconds = 60.0 * int(short[1]) + int(short[2])
    elif ":" in bare and bare.isascii() and bare.count(":") + bare.count("-") > 1:
        seconds = parse_time(bare, field)
    else:
        raise InputError(f"{field}: {quoted(text)}: must be a time with units, as 90s, 2h or 1d2h, or M:SS or HH:MM:SS")
    if not 0 < seconds < math.inf:
        raise InputError(f"{field}: {quoted(text)}: must be above 0")
    return seconds


def parse_instant(text: str, field: str = "instant", now: float | None = None) -> float:
    """A wall-clock time to come, in seconds since 1970: `2026-11-23 08:00`, here and in local time, or `+30m`.

    `now` is the wall clock. Raises InputError.
    """
    present = time.time() if now is None else now
    bare = text.strip()
    if bare.startswith("+"):
        return present + parse_seconds(bare[1:], field)
    try:
        if not bare.isascii():
            raise ValueError
        instant = datetime.fromisoformat(bare).timestamp()
    except (ValueError, OverflowError):
        raise InputError(f'{field}: {quoted(text)}: must be a date and time, as "2026-11-23 08:00", or +30m') from None
    if instant <= present:
        raise InputError(f"{field}: {quoted(text)}: must be to come")
    return instant


def show_count(number: int, thing: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def show_instant(instant: float, now: float) -> str:
    """Local time; without the date where it is today's."""
    when, today = datetime.fromtimestamp(instant), datetime.fromtimestamp(now)
    return when.strftime("%H:%M:%S" if when.date() == today.date() else "%Y-%m-%d %H:%M")
