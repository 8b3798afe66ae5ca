"""Options `--resource NAME=COUNT`: what nodes have, and what tasks want of it."""

import re
from collections.abc import Mapping, Sequence

from dfrs.cli.quantities import quoted
from dfrs.model.errors import InputError

MOST = 65536
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


def parse_counts(words: Sequence[str], option: str = "--resource", *, least: int = 1) -> dict[str, int]:
    """Counts by name. Raises InputError."""
    counts: dict[str, int] = {}
    for word in words:
        name, equals, number = word.partition("=")
        if not equals or _NAME.fullmatch(name) is None:
            rule = 'must be NAME=COUNT, as gpu=2; a name has small letters, digits and "-", a letter first'
            raise InputError(f"{option}: {quoted(word)}: {rule}")
        if not (number.isascii() and number.isdecimal()) or not least <= int(number) <= MOST:
            raise InputError(f"{option}: {quoted(word)}: must have a whole number from {least} to {MOST}")
        if name in counts:
            raise InputError(f"{option}: {quoted(word)}: {name} is given twice")
        counts[name] = int(number)
    return counts


def of_task(words: Sequence[str], gpus: int | None) -> dict[str, int]:
    """What each task of a job wants; `gpus` is the short way to say `gpu=COUNT`. Raises InputError."""
    counts = parse_counts(words)
    if gpus is not None and "gpu" in counts:
        raise InputError(f"--gpus {gpus}: is the same as --resource gpu={gpus}: give one of them")
    return counts if gpus is None else counts | {"gpu": gpus}


def show_counts(counts: Mapping[str, int]) -> str:
    """As `gpu 2, licence-x 5`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
