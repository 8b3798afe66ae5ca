"""What becomes known of compilation, for those who must not load the compiler to ask."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True, kw_only=True)
class Compilation:
    """Who is told that kernels are being compiled, how many were, and how long it took before kernels could run."""

    announce: Callable[[], None] | None = None
    """Called when the first kernel starts to compile, once."""
    apart: bool = False
    """Whether kernels that are not there yet are compiled by another process; see `apart.py`."""
    compiled: int = 0
    """Kernels, once for each combination of types; those found where compiled ones are kept are not counted."""
    spent_s: float = 0.0
    """On importing compiler and solver, on compiling, and on loading what was compiled before: not on the work."""
    _depth: int = 0
    _started_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def start(self) -> None:
        """A kernel starts to compile, perhaps for one that is being compiled."""
        self.compiled += 1
        self._tell()
        self._enter()

    def end(self) -> None:
        """A kernel is compiled."""
        self._leave()

    @contextmanager
    def loading(self) -> Generator[None]:
        """While this process makes a kernel or a library ready; whether that takes compilation is seen later."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def going_on(self) -> Generator[None]:
        """While another process compiles what this one needs."""
        self._tell()
        with self.loading():
            yield

    def clock_s(self) -> float:
        """Seconds on a clock that stands still while kernels are made ready: by it work is limited and timed."""
        with self._lock:
            return (self._started_s if self._depth else time.perf_counter()) - self.spent_s

    def _tell(self) -> None:
        if self.announce is not None:
            announce, self.announce = self.announce, None
            announce()

    def _enter(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._started_s = time.perf_counter()
            self._depth += 1

    def _leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self.spent_s += time.perf_counter() - self._started_s


compilation = Compilation()
"""Of this process."""
