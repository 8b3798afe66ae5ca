"""Files that can be read only once: what a shell makes of `<(…)`."""

import os
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def pipe_of(data):
    """The path of a pipe out of which comes `data`, which must be small enough to be in it as a whole."""
    reader, writer = os.pipe()
    try:
        os.write(writer, data)
        os.close(writer)
        yield Path(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
