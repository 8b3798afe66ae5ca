"""How numba compiles a kernel, or loads what it compiled before. Imported when the first kernel is called."""

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
from numba.core import event, types
from numba.core.bytecode import FunctionIdentity
from numba.core.compiler_lock import global_compiler_lock

from dfrs.kernels.apart import compile_apart
from dfrs.kernels.cache import KernelCache
from dfrs.kernels.compiling import compilation

# numba numbers the functions that a process compiles from 1, and names their machine code by that. Loaded from where
# several processes keep theirs, other functions can have the same name, and the first one loaded is called in place of
# the second: sorting in place of ordering (https://github.com/numba/numba/issues/10486).
FunctionIdentity._unique_ids = iter(lambda: secrets.randbits(64), -1)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def dispatcher_of(function: Callable[..., Any]) -> Any:
    """What numba calls a dispatcher: it has the machine code of `function` for each combination of types."""
    compiled: Any = numba.njit(nogil=True)(function)
    compiled._cache = KernelCache(function)
    compiled.compile = partial(_compile_once, compiled, compiled.compile)
    compiled.get_call_template = partial(_template_for_any_value, compiled.get_call_template)
    return compiled


def _compile_once(compiled: Any, compile_or_load: Callable[[object], object], signature: object) -> object:
    """Have machine code for these types: by `compile_or_load`, where it is not loaded, while other processes wait."""
    if signature in compiled.overloads:
        return compile_or_load(signature)
    # Threads first, then processes, as numba would take the lock of threads inside the other.
    with global_compiler_lock, compilation.loading():
        if compilation.apart and not compiled._cache.has(signature, compiled.targetctx):
            with compilation.going_on():
                compile_apart(compiled.py_func, signature)
            # Where nothing can be kept on disk, it would be compiled twice each time.
            compilation.apart = compiled._cache.has(signature, compiled.targetctx)
        with compiled._cache.alone():
            return compile_or_load(signature)


def _template_for_any_value(
    template: Callable[..., object], args: tuple[types.Type, ...], kws: dict[str, types.Type]
) -> object:
    """What numba calls with these types. With a constant it would compile a copy for that value alone."""
    return template(tuple(map(types.unliteral, args)), {name: types.unliteral(kws[name]) for name in kws})


class _Listener(event.Listener):
    def on_start(self, event: event.Event) -> None:
        compilation.start()

    def on_end(self, event: event.Event) -> None:
        compilation.end()


event.register("numba:compile", _Listener())
