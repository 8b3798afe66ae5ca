"""VP_CHEKURI."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chekuri:
    """Stub, replaced within the hour."""
