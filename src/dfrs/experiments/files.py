"""Files that campaigns use are known by their content: they may move, but not change."""

import hashlib
import os
from functools import lru_cache
from pathlib import Path

import dfrs
from dfrs.model.errors import InputError


def file_digest(path: Path) -> str:
    """SHA-256 of a file. Raises InputError where it cannot be read."""
    try:
        state = path.stat()
        return _digest(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None


def check_digest(path: Path, digest: str) -> None:
    """Raises InputError where the file is gone or is another."""
    if file_digest(path) != digest:
        raise InputError(f"{path}: has changed since the campaign was read")


@lru_cache(maxsize=64)
def _digest(path: Path, _changed_ns: int, _size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_trace(name: str, beside: Path) -> Path:
    """Where a trace file is: as named, or relative to `beside`, DFRS_TRACES, or shared/traces beside the checkout.

    Raises InputError where it is in none of them.
    """
    checkout = Path(dfrs.__file__).parents[3] / "shared" / "traces"
    places = [beside, Path(os.environ.get("DFRS_TRACES", checkout))]
    for place in places:
        if (path := (place / name).absolute()).is_file():
            return path
    looked = " and ".join(str(place) for place in places)
    raise InputError(f"{name}: there is no such file (looked in {looked}; DFRS_TRACES says where traces are)")


def directory_of(context: object) -> Path:
    """The directory of the campaign's file, which pydantic is given as a context; the present one without."""
    return Path(context["directory"]) if isinstance(context, dict) else Path()
