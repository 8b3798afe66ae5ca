"""What is refused: options that have no effect beside another, and to write the file that is read."""

import os
from collections.abc import Mapping
from pathlib import Path

from dfrs.model.errors import InputError


def refuse_beside(other: str, given: Mapping[str, bool], why: str = "") -> None:
    """Raise InputError for the first option of `given` that was given: it cannot go with `other`, which has `why`."""
    for option, is_given in given.items():
        if is_given:
            raise InputError(f"{option}: cannot go with {other}{why and ', which '}{why}")


def refuse_same(output: Path | None, *read: Path | None) -> None:
    """Raise InputError where `output` is one of the files that are `read`, of which nothing else would be left."""
    if output is not None and os.path.realpath(output) in {os.path.realpath(path) for path in read if path is not None}:
        raise InputError(f"{output}: is read, and would be replaced by what is written: name another file")
