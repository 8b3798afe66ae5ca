"""Kernels in tests run the machine code that commands run, for arrays that may be written as for those that may not.

For numba these are different types. It would compile a kernel, and all that it calls, once more for each test that does
not make its arrays read-only as the core does.
"""

from functools import cached_property, partial

from dfrs.kernels.jit import Kernel

_make = Kernel.dispatcher.func


def use_compiled() -> None:
    """From now on each kernel that is called for the first time looks for code that is there before it compiles any."""
    Kernel.dispatcher = cached_property(_dispatcher)
    Kernel.dispatcher.__set_name__(Kernel, "dispatcher")


def _dispatcher(kernel):
    compiled = _make(kernel)
    compiled._compile_for_args = partial(_code_for, compiled, compiled._compile_for_args, {})
    return compiled


def _code_for(compiled, compile_for, chosen, *arguments):
    """What numba calls with arguments of types that it has not yet had; `chosen` is what was found for them before."""
    asked = tuple(map(compiled.typeof_pyval, arguments))
    if asked not in chosen:
        there = {key[0] for key in compiled._cache._cache_file._load_index()} if asked not in compiled.overloads else ()
        chosen[asked] = asked if asked in there else next((each for each in there if _serves(each, asked)), asked)
    return compile_for(*arguments) if chosen[asked] == asked else compiled.compile(chosen[asked])


def _serves(there, asked):
    """Whether code for arguments of these types does the same with those: what it may write, they may, too."""
    from numba.core import types  # noqa: PLC0415 - most tests call no kernel

    if there == asked:
        return True
    if isinstance(there, types.Array) and isinstance(asked, types.Array):
        return not there.mutable and asked == there.copy(readonly=False)
    if isinstance(there, tuple | types.BaseTuple) and type(there) is type(asked) and len(there) == len(asked):
        kinds = (getattr(each, "instance_class", None) for each in (there, asked))
        return len(set(kinds)) == 1 and all(map(_serves, there, asked))
    return False
