"""Numbers of what is wanted: each is higher than all that were given out before, also by a controller before this."""

MINOR_BITS = 32
"""A version is the number of the last recorded event times two to the power of this, and a count."""


class Versions:
    """Gives them out. Whoever hears two wishes about the same thing goes by the one with the higher version."""

    def __init__(self) -> None:
        self.last = 0

    def advance(self, sequence: int) -> None:
        """From now on they are higher than all that were given out before the event of that number."""
        self.last = max(self.last, sequence << MINOR_BITS)

    def next(self) -> int:
        """The next one."""
        self.last += 1
        return self.last
