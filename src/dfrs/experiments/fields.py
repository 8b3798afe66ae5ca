"""What the fields of a campaign file's sources may hold, and how it is written in a file."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from dfrs.model.errors import DfrsError, InputError
from dfrs.policies.names import find_policy
from dfrs.workloads.annotate import Annotation, to_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.programs import find_programs

MOST_NUMBERS = 1_000_000
LARGEST = 2**63 - 1
"""What a column of whole numbers in results can hold."""
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")
T = TypeVar("T")


def _numbers(value: object) -> object:
    """`7`, `[1, 2, 5]` or `"1-100, 150"` as numbers; anything else is refused later, as it stands."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if not isinstance(value, str):
        return value
    numbers: list[int] = []
    for part in value.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError('must be numbers and ranges, as in "1-10, 15"')
        low, high = int(found[1]), int(found[2] or found[1])
        if high < low or high - low >= MOST_NUMBERS:
            raise ValueError(f"{part.strip()}: a range must go up, by fewer than {MOST_NUMBERS:,} numbers")
        numbers += range(low, high + 1)
    return numbers


def _compact(numbers: Sequence[int]) -> str:
    """As text, with ranges where numbers follow each other."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def one_or_several(value: object) -> object:
    """A value alone stands for a list of one."""
    return value if isinstance(value, list | tuple) else [value]


def named(field: str) -> Callable[[object], object]:
    """A name alone stands for a table with that name in `field`."""
    return lambda value: {field: value} if isinstance(value, str) else value


def known_policy(name: str) -> str:
    """The name of a policy. Raises ValueError with the nearest names for another."""
    try:
        find_policy(name)
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return name


def _installed(name: str) -> str:
    try:
        find_programs(name)
    except InputError as error:
        raise ValueError(str(error).partition(": ")[2]) from None
    return name


def different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """No value stands twice."""
    if len(set(values)) < len(values):
        raise ValueError("must be different")
    return values


def _annotation(value: str) -> str:
    try:
        Annotation.parse(value)
    except InputError as error:
        raise ValueError(str(error)) from None
    return value


def _estimates(value: str) -> str:
    # One job is enough to have the rule applied where it is kept.
    one = generate(Lublin.of(jobs=1, nodes=8), seed=0)
    try:
        to_workload(one, estimates=value)
    except InputError as error:
        raise ValueError(str(error)) from None
    return value


def _slice(value: str) -> str:
    first, _, end = value.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise ValueError('must be FIRST:END, as in "0:1000"')
    return value


def _from_one(values: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if values is not None and min(values) < 1:
        raise ValueError("weeks count from 1")
    return values


Several = Annotated[tuple[T, ...], Field(min_length=1), BeforeValidator(one_or_several)]
"""In a file one value, or a list."""
Numbers = Annotated[
    tuple[Annotated[int, Field(ge=0, le=LARGEST, strict=True)], ...],
    BeforeValidator(_numbers),
    AfterValidator(different),
    PlainSerializer(_compact),
    Field(min_length=1),
]
"""In a file a number, a list, or text such as "1-100"."""
Load = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Loads = Annotated[tuple[Load, ...], BeforeValidator(one_or_several), AfterValidator(different)]
Annotate = Annotated[str, AfterValidator(_annotation)]
Estimates = Annotated[str, AfterValidator(_estimates)]
Slice = Annotated[str, AfterValidator(_slice)]
"""`FIRST:END`, counted from 0."""
Weeks = Annotated[Numbers | None, AfterValidator(_from_one)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
PolicyName = Annotated[str, AfterValidator(known_policy)]
ProgramsName = Annotated[str, AfterValidator(_installed)]
"""Of measurements, see `dfrs.workloads.programs`."""
Count = Annotated[int, Field(ge=1, le=LARGEST, strict=True)]
Counts = Annotated[Several[Count], AfterValidator(different)]
Probability = Annotated[float, Field(ge=0, le=1)]
Probabilities = Annotated[Several[Probability], AfterValidator(different)]
Parts = Annotated[Several[Annotated[float, Field(ge=0, allow_inf_nan=False)]], AfterValidator(different)]


class Strict(BaseModel):
    """A part of a campaign file: a field it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def at_most(first: int, whole: int, what: str = "instances") -> None:
    """Raises InputError where the set has only `whole`, or `first` is more than a campaign may have."""
    if first > whole:
        raise InputError(f"first = {first:,}: there are {whole:,} {what}")
    if first > MOST_NUMBERS:
        raise InputError(f"{first:,} {what}: must be at most {MOST_NUMBERS:,}")


def spread(settings: int, count: int) -> list[tuple[int, int]]:
    """`count` pairs (setting, sample): all settings once before any twice, and any few of them spread evenly.

    Steps of about the golden section of the number of settings, prime to it, visit the slow loops of a nested
    list evenly and the fast ones in turn, which a division into equal parts would not.
    """
    step = next(s for s in range(round(settings * 0.618), settings + 1) if math.gcd(s, settings) == 1)
    return [(k % settings * step % settings, k // settings) for k in range(count)]
