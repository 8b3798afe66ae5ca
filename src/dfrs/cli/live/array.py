"""How many jobs an array has, and how many of them run at once, as users write it: `100` or, like Slurm, `100%5`."""

import re

from dfrs.cli.quantities import quoted
from dfrs.model.errors import InputError

_ARRAY = re.compile(r"(\d{1,9})(?:%(\d{1,9}))?", re.ASCII)
_LIMIT = re.compile(r"\d{1,9}", re.ASCII)


class _Count(int):
    """A number, and how it was written."""

    text: str


def parse_array(text: str) -> dict[str, int]:
    """Fields of a request. Raises InputError."""
    found = _ARRAY.fullmatch(text)
    if found is None:
        rule = "must be a number of jobs, alone or with how many of them run at once, as 100%5"
        raise InputError(f"--array: {quoted(text)}: {rule}")
    counts = [_Count(number) for number in found.groups() if number is not None]
    for count in counts:
        count.text = text
    return dict(zip(("array", "array_limit"), counts, strict=False))


def parse_limit(text: str, option: str) -> int:
    """How many of them run at once. Raises InputError."""
    if _LIMIT.fullmatch(text) is None:
        raise InputError(f"{option}: {quoted(text)}: must be a number of jobs, or none")
    return int(text)
