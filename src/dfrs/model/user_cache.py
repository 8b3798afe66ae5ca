"""What takes long and can be made again: kept for the user's next command."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dfrs.model.errors import InputError
from dfrs.model.writing import write_text

_KEPT = 64


def user_cache() -> Path:
    """The directory: dfrs in XDG_CACHE_HOME, else in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dfrs"


def remembered(name: str, key: str, make: Callable[[], str]) -> str:
    """What `make` gave for `key` before, in this or another process; of each `name` the latest are kept.

    It is made again where nothing can be read, and kept by nobody where nothing can be written.
    """
    known: dict[str, str] = {}
    # Without a home directory, pathlib raises RuntimeError.
    with suppress(OSError, ValueError, RuntimeError):
        path = user_cache() / f"{name}.json"
        read = json.loads(path.read_text(encoding="utf-8"))
        known = read if isinstance(read, dict) else {}
    found = known.get(key)
    if isinstance(found, str):
        return found
    made = make()
    latest = dict([*known.items(), (key, made)][-_KEPT:])
    with suppress(OSError, InputError, RuntimeError):
        path = user_cache() / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(latest, indent=0))
    return made
