"""In which order jobs that have not ended are listed: what users say, as `user,-age`."""

COLUMNS = ("job", "name", "user", "account", "state", "tasks", "need", "yield", "memory", "age")
"""By what jobs can be sorted."""
_WORD = f"-?({'|'.join(COLUMNS)})"
PATTERN = rf"^{_WORD}(,{_WORD})*$"
"""What may be said."""


def parse_order(text: str) -> list[tuple[str, bool]]:
    """Of a text that fits PATTERN: columns, that which counts most first, and whether its greatest comes first.

    A column that comes again changes nothing, and is left out: each is to be sorted by once.
    """
    order: dict[str, bool] = {}
    for word in text.split(","):
        order.setdefault(word.removeprefix("-"), word.startswith("-"))
    return list(order.items())
