"""Snapshots as a core makes them: kernels, which are compiled for the kinds of arrays they get, need no other copy."""

from dataclasses import fields, replace

import numpy as np

from dfrs.model.decisions import Snapshot


def frozen(shot: Snapshot, **changes) -> Snapshot:
    """The same but for `changes`, with arrays of its own that are read-only."""
    shot = replace(shot, **changes)
    return replace(shot, **_arrays(shot), unequal=shot.unequal and replace(shot.unequal, **_arrays(shot.unequal)))


def _arrays(of):
    found = {f.name: np.array(getattr(of, f.name)) for f in fields(of) if isinstance(getattr(of, f.name), np.ndarray)}
    for array in found.values():
        array.setflags(write=False)
    return found
