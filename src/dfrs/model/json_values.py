"""What NumPy computes, as JSON."""

import numpy as np


def plain(value: object) -> object:
    """A number or array of NumPy as Python's, for `json.dumps(..., default=plain)`. Raises TypeError for all else."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON for {type(value).__name__}")
