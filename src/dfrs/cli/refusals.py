"""Options that have no effect beside another: refused, so that nobody believes they had one."""

from collections.abc import Mapping

from dfrs.model.errors import InputError


def refuse_beside(other: str, given: Mapping[str, bool], why: str = "") -> None:
    """Raise InputError for the first option of `given` that was given: it cannot go with `other`, which has `why`."""
    for option, is_given in given.items():
        if is_given:
            raise InputError(f"{option}: cannot go with {other}{why and ', which '}{why}")
