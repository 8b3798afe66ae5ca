"""All pictures have one style, and are written whole or not at all."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from dfrs.model.errors import InputError
from dfrs.model.writing import write_bytes

INK, QUIET, GRID = "#1f2933", "#6b7785", "#e6e9ed"
_STYLE: dict[Any, Any] = {"font.family": "DejaVu Sans", "font.size": 10, "axes.edgecolor": QUIET, "text.color": INK}


def save(make: Callable[[], Figure], path: Path, *, dpi: int = 160) -> Path:
    """Make a figure in the style of all, and write it to `path`, whose ending chooses the format.

    Raises InputError where it cannot be written, or there is no such format.
    """
    kind = path.suffix.removeprefix(".").lower()
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure = make()
        try:
            # The version of the library in a file would make it another file with each version.
            metadata = {"Software": None} if kind == "png" else {}
            figure.savefig(buffer, format=kind, dpi=dpi, facecolor="white", metadata=metadata)
        except ValueError as error:
            raise InputError(f"{path}: cannot write the picture: {error}") from None
        finally:
            plt.close(figure)
    write_bytes(path, buffer.getvalue())
    return path
