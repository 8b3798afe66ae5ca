"""Files are written whole or not at all, into directories that are made."""

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dfrs.model.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Write `text` whole or not at all: to a temporary file beside `path`, then renamed. What is no text becomes ?.

    Where `path` is a link, what it leads to is replaced; a device or a pipe is written to.
    """
    write_bytes(path, text.encode(errors="replace"))


def require_writable(path: Path) -> None:
    """Raise InputError where `write_text` could not write `path` now: for what takes long before there is a text."""
    if path.is_dir():
        raise InputError(f"{path}: cannot write: is a directory")
    try:
        if _is_special(path):
            # To open a pipe would wait for its reader.
            if not os.access(path, os.W_OK):
                raise InputError(f"{path}: cannot write: Permission denied")
            return
        parent = _file(path).parent
        if not parent.is_dir():
            raise InputError(f"{path}: cannot write: there is no directory {parent}")
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None


def require_directory(path: Path) -> None:
    """Raise InputError where no files could be written into the directory `path` now, or where it could not be made."""
    try:
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: cannot make the directory: there is a file of that name")
        with tempfile.TemporaryFile(dir=nearest_directory(path)):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None


def nearest_directory(path: Path) -> Path:
    """`path`, or the nearest above it that exists."""
    return next((each for each in (path, *path.absolute().parents) if each.exists()), Path())


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` whole or not at all, as `write_text`."""
    write_parts(path, (data,))


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Write all parts, one after the other, whole or not at all, as `write_text`: no more than one is in memory."""
    try:
        if _is_special(path):
            with path.open("wb") as special:
                special.writelines(parts)
            return
        target = _file(path)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(parts)
                file.flush()
                # Else a power cut could leave the new name with nothing under it.
                os.fsync(handle)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None


def _is_special(path: Path) -> bool:
    """Whether there is a device or a pipe, or what else is neither a file nor a directory."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _file(path: Path) -> Path:
    """What a link leads to; else `path`."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def make_directory(path: Path) -> None:
    """Make it, and those above it, unless it is there. Raises InputError where that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot make the directory: {error.strerror}") from None
