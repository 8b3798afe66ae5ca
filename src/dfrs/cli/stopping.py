"""Verbs that Ctrl-C and a plain kill ask to stop, and that end in order."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

from dfrs.cli.console import warn

INTERRUPTED = 130
"""Exit status of a verb that was stopped."""


@contextmanager
def stoppable(told: str) -> Generator[threading.Event]:
    """Ctrl-C and a plain kill set the event, and say `told`; a second one stops at once."""
    stop = threading.Event()

    def ask(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        warn(told)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
