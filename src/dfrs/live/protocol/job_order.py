"""In which order jobs that have not ended are listed: what users say, as `user,-age`."""

COLUMNS = ("job", "name", "user", "account", "state", "tasks", "need", "yield", "memory", "age")
"""By what jobs can be sorted."""
_WORD = f"-?({'|'.join(COLUMNS)})"
PATTERN = rf"^{_WORD}(,{_WORD})*$"
"""What may be said."""


def parse_order(text: str) -> list[tuple[str, bool]]:
    """Of a text that fits PATTERN: columns, that which counts most first, and whether its greatest comes first."""
    return [(word.removeprefix("-"), word.startswith("-")) for word in text.split(",")]
