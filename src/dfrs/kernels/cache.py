"""Where compiled kernels are kept: one directory for each state of the sources of all kernels.

The code of a kernel holds the kernels that it calls and the constants that it reads, also those of other files, but
numba asks only whether the kernel's own file is as it was. So the directory is named by a digest of all files here and
of the libraries that compile them: what was compiled from other sources is not found. numba itself tells apart CPUs,
Python versions and types of arguments, and chooses where the directory is: beside the sources, in the user's cache
directory where these cannot be written, or in NUMBA_CACHE_DIR.
"""

import hashlib
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache

_PREFIX = "kernels-"
_KEPT = 4
"""Directories of other sources: who goes back to the branch before need not compile again."""


def sources_digest() -> str:
    """Of the kernels' sources as they are on disk now, and of what compiles them."""
    state = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {np.__version__}".encode())
    for file in sorted(files("dfrs.kernels").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            state.update(f"\n{file.name}\n".encode() + file.read_bytes())
    return state.hexdigest()[:16]


DIGEST = sources_digest()
"""Of the sources that this process has loaded."""


class _Locator:
    """A directory for these sources in the one that numba chose for a kernel."""

    def __init__(self, chosen: Any) -> None:
        self._chosen = chosen

    def get_cache_path(self) -> str:
        return os.path.join(self._chosen.get_cache_path(), _PREFIX + DIGEST)

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
        return sources_digest() == DIGEST and super().check_cachable(cres)


class KernelCache(FunctionCache):
    """The cache of one kernel."""

    _impl_class = _Entries


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
