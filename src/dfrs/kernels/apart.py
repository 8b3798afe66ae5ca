"""Compiles kernels in another process, for programs that run for months: whoever compiles keeps 200 MiB for it.

Meanwhile nothing keeps the interpreter's lock from those whom the program serves.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

LONGEST_S = 300.0
"""After so long it is taken to come to nothing."""


def compile_apart(function: Callable[..., Any], signature: object) -> None:
    """Have another process compile it for these types, and keep that on disk, if it can."""
    task = pickle.dumps((function.__module__, function.__qualname__, signature))
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "dfrs.kernels.apart"],
            input=task,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LONGEST_S,
            check=False,
        )


def main() -> None:
    """Compile what standard input says."""
    # Only the process that started this one writes there.
    module, name, signature = pickle.load(sys.stdin.buffer)  # noqa: S301
    getattr(import_module(module), name).dispatcher.compile(signature)


if __name__ == "__main__":
    main()
