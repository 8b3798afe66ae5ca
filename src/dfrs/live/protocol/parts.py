"""Messages of an agent as texts, each short enough for the controller."""

from collections.abc import Generator, Iterable
from typing import TypeVar

from dfrs.live.drivers.base import Wire
from dfrs.live.protocol.wire import PARTS, FromAgent, Hello, MoreTasks, ReportMessage
from dfrs.model.errors import InputError

ROWS, ROWS_BYTES = 200, 1 << 18
"""Most statuses or samples of one message, and their bytes, within a row."""

_Row = TypeVar("_Row", bound=Wire)


def texts(message: FromAgent) -> list[str]:
    """JSON of the message, or of several that say the same. Raises InputError for more tasks than there are parts."""
    match message:
        case Hello():
            first, *others = _split(message.tasks)
            if len(others) > PARTS:
                raise InputError(
                    f"{len(message.tasks)} tasks: more than a node may have; give its CPUs to several nodes"
                )
            hello = message.model_copy(update={"tasks": first, "parts": len(others)})
            return [hello.model_dump_json(), *(MoreTasks(tasks=rows).model_dump_json() for rows in others)]
        case ReportMessage():
            parts = _split(message.samples)
            return [message.model_copy(update={"samples": rows}).model_dump_json() for rows in parts]
        case _:
            return [message.model_dump_json()]


def _split(rows: tuple[_Row, ...]) -> list[tuple[_Row, ...]]:
    """At least one part."""
    return list(_parts(rows)) or [()]


def _parts(rows: Iterable[_Row]) -> Generator[tuple[_Row, ...]]:
    part: list[_Row] = []
    bytes_ = 0
    for row in rows:
        part.append(row)
        bytes_ += len(row.model_dump_json().encode())
        if len(part) >= ROWS or bytes_ >= ROWS_BYTES:
            yield tuple(part)
            part, bytes_ = [], 0
    if part:
        yield tuple(part)
