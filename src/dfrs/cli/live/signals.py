"""Which signals a verb heeds."""

import signal
from collections.abc import Iterable


def heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Those not ignored already: nohup has its program ignore SIGHUP, a script what it has in the background SIGINT."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
