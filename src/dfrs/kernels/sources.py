"""The state of the kernels' sources: it names what is compiled from them."""

import hashlib
from importlib.resources import files


def sources_digest() -> str:
    """Of the kernels' sources as they are on disk now."""
    state = hashlib.sha256()
    for file in sorted(files("dfrs.kernels").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            state.update(f"\n{file.name}\n".encode() + file.read_bytes())
    return state.hexdigest()


DIGEST = sources_digest()
"""Of the sources that this process has loaded: each kernel's file imports this before it is read any further."""
