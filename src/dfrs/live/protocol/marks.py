"""How long a JSON document keeps its parser busy, told without parsing it."""


class Marks:
    """Counts what stands around the values of a JSON document that comes in pieces."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._inside = False
        """Whether the next piece begins in a string."""
        self._escape = b""
        """A backslash at the end of the last piece, which belongs to the first character of the next."""

    def add(self, piece: bytes) -> bool:
        """Take the next piece; False where there are too many."""
        text = self._escape + piece
        self._escape = b"\\" if (len(text) - len(text.rstrip(b"\\"))) % 2 else b""
        if self._escape:
            text = text[:-1]
        # From the left, so that the second of two backslashes escapes nothing.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
        self._count += text.count(b'"')
        if self._count > self._most:
            return False
        parts = text.split(b'"')
        outside = b"".join(parts[1 if self._inside else 0 :: 2])
        self._inside ^= len(parts) % 2 == 0
        self._count += sum(outside.count(mark) for mark in (b",", b"[", b"{"))
        return self._count <= self._most
