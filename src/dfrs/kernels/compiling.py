"""What becomes known of compilation, for those who must not load the compiler to ask."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Compilation:
    """Who is told that kernels are being compiled, and how long it took; numba speaks of those that are not cached."""

    announce: Callable[[], None] | None = None
    """Called when the first kernel starts to compile, once."""
    spent_s: float = 0.0
    _depth: int = 0
    _started_s: float = 0.0

    def start(self) -> None:
        """A kernel starts to compile, perhaps for one that is being compiled."""
        if self.announce is not None:
            announce, self.announce = self.announce, None
            announce()
        if self._depth == 0:
            self._started_s = time.perf_counter()
        self._depth += 1

    def end(self) -> None:
        """A kernel is compiled."""
        self._depth -= 1
        if self._depth == 0:
            self.spent_s += time.perf_counter() - self._started_s

    @contextmanager
    def going_on(self) -> Generator[None]:
        """While another process compiles what this one needs."""
        self.start()
        try:
            yield
        finally:
            self.end()


compilation = Compilation()
"""Of this process."""
