"""One way to compile a kernel: kept on disk, exact arithmetic, free of the interpreter lock."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import event, types
from numba.core.compiler_lock import global_compiler_lock
from numpy.typing import NDArray

from dfrs.kernels.cache import KernelCache
from dfrs.kernels.compiling import compilation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]
Plan = tuple[Ints, Ints, bool, bool]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` by numba on first use; the machine code is kept on disk."""
    compiled: Any = numba.njit(nogil=True)(function)
    compiled._cache = KernelCache(function)
    compile_or_load = compiled.compile

    def compile_once(signature: object) -> object:
        if signature in compiled.overloads:
            return compile_or_load(signature)
        # Threads first, then processes, as numba would take the lock of threads inside the other.
        with global_compiler_lock, compiled._cache.alone():
            return compile_or_load(signature)

    compiled.compile = compile_once
    template = compiled.get_call_template

    def for_any_value(args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> object:
        return template(tuple(map(types.unliteral, args)), {name: types.unliteral(kws[name]) for name in kws})

    # Of a kernel that is called with a constant, numba would compile a copy for that value alone.
    compiled.get_call_template = for_any_value
    return cast("Callable[P, R]", compiled)


class _Listener(event.Listener):
    def on_start(self, event: event.Event) -> None:
        compilation.start()

    def on_end(self, event: event.Event) -> None:
        compilation.end()


event.register("numba:compile", _Listener())
