"""What a check found."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from dfrs.model.errors import DfrsError

Verdict = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of `dfrs doctor`."""

    check: str
    """What was looked at."""
    verdict: Verdict
    found: str
    mend: str = ""
    """What to do about it; empty where it is well."""


Check = Callable[[], Iterable[Finding]]


def ok(check: str, found: str) -> Finding:
    """It is well."""
    return Finding(check=check, verdict="ok", found=found)


def warning(check: str, found: str, mend: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding(check=check, verdict="warning", found=found, mend=mend)


def wrong(check: str, found: str, mend: str) -> Finding:
    """It does not work."""
    return Finding(check=check, verdict="wrong", found=found, mend=mend)


def run(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """What all checks found; one that fails itself is a finding, too."""
    for name, check in checks:
        try:
            yield from check()
        except (DfrsError, OSError, ValueError) as error:
            yield wrong(name, f"cannot be checked: {error}", "see whether that file or address is as it should be")
