"""Names of files for what a job writes, with Slurm's patterns: `out-%j.txt`.

The controller fills in what it knows of the job, and the node the rest. What is filled in is taken as it is: a percent
sign in it begins no pattern.
"""

import re
from collections.abc import Mapping

MEANINGS = {
    "j": "number of the job",
    "A": "number of the first job of its array",
    "a": "index in its array",
    "x": "name of the job",
    "u": "its user",
    "t": "number of the task",
    "N": "node on which the task starts",
    "%": "a percent sign",
}
"""By the letter of a pattern."""
_PATTERN = re.compile(r"%(\d{0,2})([a-zA-Z%]?)", re.ASCII)


def letters(name: str) -> frozenset[str]:
    """The letters of the patterns in a name. Raises ValueError for a pattern that there is not."""
    found = list(_PATTERN.finditer(name))
    for match in found:
        if match[2] not in MEANINGS:
            known = ", ".join(f"%{letter}" for letter in MEANINGS)
            raise ValueError(f"{match[0]}: no such pattern: there are {known}")
    return frozenset(match[2] for match in found)


def fill(name: str, values: Mapping[str, str | int]) -> str:
    """The name with these values, by letter; other patterns stay. A number has zeros in front as in `%4t`."""

    def filled(match: re.Match[str]) -> str:
        value = values.get(match[2])
        if value is None:
            return match[0]
        text = f"{value:0{match[1] or 1}d}" if isinstance(value, int) else value
        return text.replace("%", "%%")

    return _PATTERN.sub(filled, name)


def complete(name: str, values: Mapping[str, str | int]) -> str:
    """The name of the file: with these values, and percent signs as they are."""
    return fill(name, values).replace("%%", "%")


def is_shared(name: str, tasks: int, array: int | None) -> bool:
    """Whether several tasks of what is submitted write to one file of that name."""
    used = letters(name)
    return (tasks > 1 and "t" not in used) or ((array or 1) > 1 and not used & {"j", "a"})
