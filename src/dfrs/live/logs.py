"""Logging of controller and agents: structlog to standard error, one line an event, JSON where nobody watches.

Lines of other libraries take the same way, so that what must not be shown is removed from all of them: tokens are never
logged, wherever they come from.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from dfrs.model.errors import InputError

LEVELS = ("debug", "info", "warning", "error")
HIDDEN = "[hidden]"

_SECRET_NAME = re.compile(r"(?:^|_)(?:token|secret|password|authorization|cookie)$", re.IGNORECASE)
_SECRETS = re.compile(r"(?<=\bbearer )\s*[^\s'\",;]+|(?<=\btoken=)[^\s&'\",;]+", re.IGNORECASE)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A processor: hides values of fields named like secrets, and bearer tokens in any text."""
    return {key: _hide(key, value) for key, value in event.items()}


def _hide(key: object, value: object) -> object:
    if isinstance(key, str) and _SECRET_NAME.search(key) and value is not None:
        return HIDDEN
    match value:
        case str():
            return _SECRETS.sub(HIDDEN, value)
        case Mapping():
            return {name: _hide(name, inner) for name, inner in value.items()}
        case list() | tuple():
            return [_hide(None, inner) for inner in value]
        case bytes():
            return _SECRETS.sub(HIDDEN, repr(value))
        case _:
            return value


def set_up(level: str = "info", *, stream: TextIO | None = None, as_json: bool | None = None) -> None:
    """Log from `level` up to `stream` (standard error); as JSON unless it is a terminal. Raises InputError."""
    if level not in LEVELS:
        raise InputError(f'log level "{level}": must be one of {", ".join(LEVELS)}')
    target: TextIO = sys.stderr if stream is None else stream
    as_json = not target.isatty() if as_json is None else as_json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    shown: Processor = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=True)
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Before redaction, so that it sees the text of exceptions too.
                structlog.processors.format_exc_info,
                redact,
                shown,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their figures and frames are of use to their own developers only.
    for name in ("websockets", "asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
