"""Imports for a verb that is over in a third of a second, without what takes part of that and is of no use to it."""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

_HTTPX_COMMAND = "httpx._main"
"""httpx's own command line, with a highlighter of syntax: httpx does without where it cannot be imported."""


@contextmanager
def quick_imports() -> Generator[None]:
    """Collect no cycles meanwhile, and do not look for any in what was imported later, as it stays; without the command
    line of httpx.
    """
    sys.modules.setdefault(_HTTPX_COMMAND, None)  # pyright: ignore[reportArgumentType]
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
