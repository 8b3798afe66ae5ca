"""One way to compile a kernel: kept on disk, exact arithmetic, free of the interpreter lock."""

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

# Takes its digest before the kernels' files are read.
from dfrs.kernels import sources  # noqa: F401  # pyright: ignore[reportUnusedImport]
from dfrs.kernels.compiling import compilation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]
Plan = tuple[Ints, Ints, bool, bool]

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A function that numba compiles on first use: numba is imported then, and only what is called is loaded."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        """As it is written, for Python."""

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """The compiled function's result."""
        return self.dispatcher(*arguments, **named)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What numba makes of the function."""
        with compilation.loading():
            from dfrs.kernels.dispatcher import dispatcher_of  # noqa: PLC0415 - loads numba

            return dispatcher_of(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        """By this name numba asks what a kernel is that another one calls."""
        return self.dispatcher._numba_type_


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` by numba on first use; the machine code is kept on disk."""
    return cast("Callable[P, R]", Kernel(function))
