"""How numba compiles a kernel, or loads what it compiled before. Imported when the first kernel is called."""

import secrets
from collections.abc import Callable
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
    compile_or_load = compiled.compile

    def compile_once(signature: object) -> object:
        if signature in compiled.overloads:
            return compile_or_load(signature)
        # Threads first, then processes, as numba would take the lock of threads inside the other.
        with global_compiler_lock, compilation.loading():
            if compilation.apart and not compiled._cache.has(signature, compiled.targetctx):
                with compilation.going_on():
                    compile_apart(function, signature)
                # Where nothing can be kept on disk, it would be compiled twice each time.
                compilation.apart = compiled._cache.has(signature, compiled.targetctx)
            with compiled._cache.alone():
                return compile_or_load(signature)

    compiled.compile = compile_once
    template = compiled.get_call_template

    def for_any_value(args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> object:
        return template(tuple(map(types.unliteral, args)), {name: types.unliteral(kws[name]) for name in kws})

    # Of a kernel that is called with a constant, numba would compile a copy for that value alone.
    compiled.get_call_template = for_any_value
    return compiled


class _Listener(event.Listener):
    def on_start(self, event: event.Event) -> None:
        compilation.start()

    def on_end(self, event: event.Event) -> None:
        compilation.end()


event.register("numba:compile", _Listener())
