"""Files that cells are run on are known by their content: they may move, but not change."""

import hashlib
from functools import lru_cache
from pathlib import Path

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
