"""A checkpoint as it is stored: arrays as npz, whose parts have checksums; one of them is the digest of the text."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DIGEST = "shell_digest"


def pack(arrays: Mapping[str, NDArray[Any]], shell: str) -> bytes:
    """The arrays as npz, with the digest of the text that belongs to them."""
    blob = io.BytesIO()
    np.savez_compressed(blob, allow_pickle=False, **{_DIGEST: np.array(_digest(shell))}, **arrays)
    return blob.getvalue()


def why_damaged(blob: bytes, shell: str) -> str | None:
    """Why they are not as they were written; None if they are. Texts of earlier versions have no digest."""
    try:
        with zipfile.ZipFile(io.BytesIO(blob)) as archive:
            bad = archive.testzip()
        with np.load(io.BytesIO(blob), allow_pickle=False) as found:
            written = str(found[_DIGEST]) if _DIGEST in found.files else None
        json.loads(shell)
    except Exception as error:  # what is no archive any more raises almost anything
        return f"{type(error).__name__}: {' '.join(str(error).split())[:60]}"
    if bad is not None:
        return f"{bad} is not as it was written"
    return None if written in {None, _digest(shell)} else "its text is not as it was written"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
