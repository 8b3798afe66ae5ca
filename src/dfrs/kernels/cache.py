"""Where compiled kernels are kept: one directory for each state of the sources of all kernels.

The code of a kernel holds the kernels that it calls and the constants that it reads, also those of other files, but
numba asks only whether the kernel's own file is as it was. So the directory is named by a digest of all files here and
of the libraries that compile them: what was compiled from other sources is not found. numba itself tells apart CPUs,
Python versions and types of arguments, and chooses where the directory is: beside the sources, in the user's cache
directory where these cannot be written, or in NUMBA_CACHE_DIR.

A kernel takes up to half a minute to compile, and the workers of a campaign need the same ones at the same time: one
process compiles, the others wait and find what it wrote. Who waits longer than `_PATIENCE_S` compiles too, as the
other may have been stopped, as a job of a cluster may be.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import time
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime.nrt import rtsys

from dfrs.kernels import sources
from dfrs.kernels.compiling import compilation

_PREFIX = "kernels-"
_PATIENCE_S = 60.0
_LOOK_S = 0.05
_KEPT = 4
"""Directories of other sources: who goes back to the branch before need not compile again."""
DIGEST = hashlib.sha256(
    f"{sources.DIGEST} {numba.__version__} {llvmlite.__version__} {np.__version__}".encode()
).hexdigest()[:16]
"""Of the sources that this process has loaded, and of what compiles them."""


class _Locator:
    """A directory for these sources in the one that numba chose for a kernel."""

    def __init__(self, chosen: Any) -> None:
        self._chosen = chosen

    def get_cache_path(self) -> str:
        return os.path.join(self.parent, _PREFIX + DIGEST)

    @property
    def parent(self) -> str:
        """Where the directories of all sources are."""
        return self._chosen.get_cache_path()

    def ensure_cache_path(self) -> None:
        """Make it before something is written; when it is new, the oldest of other sources go."""
        path = Path(self.get_cache_path())
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            _remove_old(path)

    def get_source_stamp(self) -> str:
        return DIGEST

    def get_disambiguator(self) -> str:
        return self._chosen.get_disambiguator()


class _Entries(CompileResultCacheImpl):
    @property
    def locator(self) -> Any:
        return _Locator(self._locator)

    def check_cachable(self, cres: Any) -> bool:
        """Not what was compiled while the sources changed: it may be of neither state."""
        return sources.sources_digest() == sources.DIGEST and super().check_cachable(cres)

    def reduce(self, cres: Any) -> Any:
        *parts, environments = super().reduce(cres)
        return *parts, [environment.__reduce__()[1] for environment in environments]

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        *parts, environments = payload
        return super().rebuild(target_context, (*parts, [_environment(*each) for each in environments]))


def _environment(module: str, constants: list[Any], name: str) -> Environment:
    """What code of another function that was compiled into a kernel refers to.

    numba would import the function's module, as interpreted code needs it, and with it most of what compiles.
    """
    found = lookup_environment(name)
    if found is None:
        found = Environment({"__name__": module})
        found.consts[:] = constants
        found.env_name = name
        Environment._memo[name] = found  # pyright: ignore[reportPrivateUsage]
    return found


class KernelCache(FunctionCache):
    """The cache of one kernel."""

    _impl_class = _Entries

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for these types, or None.

        numba would first import all that it may need to compile, which takes as long as loading some dozens of kernels.
        """
        rtsys.initialize(target_context)
        try:
            return self._load_overload(sig, target_context)
        except Exception:
            self._forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it; what cannot be kept, as on a full disk, the next process compiles anew."""
        with suppress(OSError):
            super().save_overload(sig, data)

    def has(self, sig: Any, target_context: Any) -> bool:
        """Whether something is kept for these types."""
        try:
            kept = self._cache_file._load_index()  # pyright: ignore[reportPrivateUsage]
        except Exception:
            self._forget()
            return False
        return self._index_key(sig, target_context.codegen()) in kept

    def _forget(self) -> None:
        """Keep nothing of the kernel any more, as its files cannot be read: after a power cut they may be empty."""
        with suppress(OSError):
            self._cache_file.flush()

    @contextmanager
    def alone(self) -> Generator[None]:
        """While this process loads or compiles the kernel, others wait, for some time."""
        try:
            locks = _locks(self._impl.locator.parent)
        except OSError:
            # Where nothing can be written, each process compiles for itself anyway.
            yield
            return
        byte = zlib.crc32(f"{DIGEST} {self._impl.filename_base}".encode())
        if not _locked(locks, byte):
            with compilation.going_on():
                end_s = time.monotonic() + _PATIENCE_S
                while not _locked(locks, byte) and time.monotonic() < end_s:
                    time.sleep(_LOOK_S)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.lockf(locks, fcntl.LOCK_UN, 1, byte)


@functools.cache
def _locks(directory: str) -> int:
    """A file of which each byte stands for a kernel. It stays open: closing it would end all locks of this process."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    return os.open(os.path.join(directory, "kernels.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _locked(locks: int, byte: int) -> bool:
    """Whether this process has the lock now; also where locks are not to be had."""
    try:
        fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _remove_old(path: Path) -> None:
    others = sorted((_written_s(other), other) for other in path.parent.glob(f"{_PREFIX}*") if other != path)
    for _, other in others[:-_KEPT]:
        shutil.rmtree(other, ignore_errors=True)


def _written_s(directory: Path) -> float:
    """When something was last compiled there; 0 if another process has just removed it."""
    try:
        return directory.stat().st_mtime
    except OSError:
        return 0.0
