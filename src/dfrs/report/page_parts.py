"""What pages that open anywhere have in common: one file, with its data, its style and its script inside.

The parts are in `report/page/`. Numbers travel as little-endian arrays in base64.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dfrs.model.writing import write_text


def pack(values: ArrayLike, kind: str) -> str:
    """Little-endian array of NumPy type `kind` in base64."""
    return base64.b64encode(np.asarray(values).astype(f"<{kind}").tobytes()).decode()


def assemble(
    html: str, *, title: str, styles: Sequence[str], scripts: Sequence[str], document: Mapping[str, Any]
) -> str:
    """The page `html` with its title, the named style sheets and scripts, and `document` as its data.

    Raises ValueError where the document has a number that JSON has not.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    pieces = {
        "title": escape(title),
        "style": "\n".join(map(_part, styles)),
        "script": "\n".join(map(_part, scripts)),
        # "</" ends a script element and "<!--" hides its end, wherever they stand.
        "data": text.replace("<", "\\u003c"),
    }
    return re.sub("@@([a-z]+)@@", lambda found: pieces[found[1]], _part(html))


def write(text: str, path: Path) -> None:
    """Write a page to `path`. Raises InputError where that cannot be done."""
    write_text(path, text)


def _part(name: str) -> str:
    return resources.files("dfrs.report").joinpath("page", name).read_text(encoding="utf-8")
