"""Files are written whole or not at all, into directories that are made."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dfrs.model.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Write `text` whole or not at all: to a temporary file beside `path`, then renamed. What is no text becomes ?."""
    write_bytes(path, text.encode(errors="replace"))


def require_writable(path: Path) -> None:
    """Raise InputError where `write_text` could not write `path` now: for what takes long before there is a text."""
    if path.is_dir():
        raise InputError(f"{path}: cannot write: is a directory")
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot write: there is no directory {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` whole or not at all, as `write_text`."""
    write_parts(path, (data,))


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Write all parts, one after the other, whole or not at all, as `write_text`: no more than one is in memory."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(parts)
                file.flush()
                # Else a power cut could leave the new name with nothing under it.
                os.fsync(handle)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None


def make_directory(path: Path) -> None:
    """Make it, and those above it, unless it is there. Raises InputError where that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot make the directory: {error.strerror}") from None
