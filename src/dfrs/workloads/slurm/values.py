"""Values as Slurm's commands print them (sacct(1), "Job Accounting Fields").

Each function takes the text of a field. Raises ValueError with the rule that the text breaks.
"""

import re
from datetime import UTC, datetime

UNKNOWN = frozenset({"", "Unknown", "None"})
"""Instants that have not come: `None` is the start of a job that was cancelled before it."""
NO_LIMIT = frozenset({"", "UNLIMITED", "Partition_Limit"})
MIB = 2.0**20

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
_DURATION = re.compile(r"(?:(?:(\d+)-)?(\d+):)?([0-5]\d):([0-5]\d(?:\.\d+)?)", re.ASCII)
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.ASCII)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def instant(text: str, *, local: bool = False) -> float | None:
    """Seconds of `YYYY-MM-DDTHH:MM:SS`, with an offset from UTC or without, or of Unix time; None where unknown.

    Without an offset it is the site's wall clock, read as if it were UTC: differences are right where clocks were not
    changed in between. With `local` it is this machine's time.
    """
    if text in UNKNOWN:
        return None
    if text.isascii() and text.isdigit():
        return float(text) or None
    try:
        if not _INSTANT.fullmatch(text):
            raise ValueError
        when = datetime.fromisoformat(text)
        return (when if local or when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("must be YYYY-MM-DDTHH:MM:SS, seconds since 1970, Unknown or None") from None


def duration(text: str) -> float:
    """Seconds of `[D-[HH:]]MM:SS[.mmm]`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("must be [D-[HH:]]MM:SS, as 1-02:03:04, 02:03:04 or 03:04.567")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def whole_seconds(text: str) -> float:
    """Seconds of a raw field, as ElapsedRaw."""
    return float(_whole(text))


def time_limit(text: str) -> float | None:
    """Seconds of a Timelimit; None where the job had none, or that of its partition."""
    try:
        return None if text in NO_LIMIT else duration(text)
    except ValueError as error:
        raise ValueError(f"{error}, UNLIMITED or Partition_Limit") from None


def raw_time_limit(text: str) -> float | None:
    """Seconds of a TimelimitRaw, which is in minutes; None where the job had none, or that of its partition."""
    if text in NO_LIMIT:
        return None
    try:
        return _whole(text) * 60.0
    except ValueError:
        raise ValueError("must be whole minutes, UNLIMITED or Partition_Limit") from None


def count(text: str) -> int:
    """A number of nodes, CPUs or tasks: 1024 nodes may be `1K`."""
    number = amount(text)
    if not number.is_integer():
        raise ValueError("must be a whole number")
    return int(number)


def amount(text: str, unit: str = "") -> float:
    """A number with a letter K, M, G, T or P for powers of 1024; `unit` is the letter where it has none."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError("must be a number, perhaps with K, M, G, T or P behind it, as 512M or 1.50G")
    return float(found[1]) * 1024.0 ** _POWER[found[2] or unit]


def requested_memory(text: str) -> tuple[float, str]:
    """Bytes of a ReqMem, and for what: `n` a node, `c` a CPU (until Slurm 21.08), "" the whole job."""
    per = text[-1:] if text[-1:] in {"n", "c"} else ""
    try:
        return amount(text.removesuffix(per), "M"), per
    except ValueError as error:
        raise ValueError(f"{error}, and n (for each node) or c (for each CPU)") from None


def tres(text: str) -> dict[str, str]:
    """Amounts of trackable resources by name, of `cpu=4,mem=16G,node=1,gres/gpu=2`."""
    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(name and amount for name, _, amount in parts):
        raise ValueError("must be NAME=AMOUNT with commas between, as cpu=4,mem=16G,node=1")
    return {name: amount for name, _, amount in parts}


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("must be a whole number")
    return int(text)
