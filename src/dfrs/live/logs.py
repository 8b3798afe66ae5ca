"""Logging of controller and agents: structlog to standard error, one line an event, JSON where nobody watches.

Lines of other libraries take the same way, so that what must not be shown is removed from all of them: tokens are never
logged, wherever they come from. Where somebody else configures a logger of their own, before or after, its records are
masked all the same.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from dfrs.model.errors import InputError
from dfrs.model.text import visible

LEVELS = ("debug", "info", "warning", "error")
HIDDEN = "[hidden]"
SERVER_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
"""They come with handlers of their own where the server was configured by itself."""

_SECRET_NAME = re.compile(r"(?:^|_)(?:token|secret|password|authorization|cookie)$", re.IGNORECASE)
# What is hidden already is left alone: it may have been quoted since, and a quote's backslash is no part of a token.
_SECRETS = re.compile(
    r"(?<=\bbearer )\s*(?!\[hidden\])[^\s'\",;]+|(?<=\btoken=)(?!\[hidden\])[^\s&'\",;]+", re.IGNORECASE
)


_LONG = frozenset({"exception", "stack"})
"""Fields of many lines."""


class MaskedRecord(logging.LogRecord):
    """A record whose text shows no bearer token, whichever handler and formatter it comes to."""

    def getMessage(self) -> str:  # noqa: N802 (the name is logging's)
        """The message with its arguments."""
        return _SECRETS.sub(HIDDEN, super().getMessage())

    def __setattr__(self, name: str, value: object) -> None:
        # A formatter keeps the text of an exception here, and reads it again.
        if name in {"exc_text", "stack_info"} and isinstance(value, str):
            value = _SECRETS.sub(HIDDEN, value)
        super().__setattr__(name, value)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A processor: hides values of fields named like secrets, and bearer tokens in any text."""
    return {key: _hide(key, value) for key, value in event.items()}


def show(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A processor for terminals: no character of a text, some of which are users', controls them."""
    return {key: _show(value, lines=key in _LONG) for key, value in event.items()}


def _show(value: object, *, lines: bool = False) -> object:
    match value:
        case str():
            return "\n".join(map(visible, value.split("\n"))) if lines else visible(value)
        case Mapping():
            return {_show(name): _show(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_show(inner) for inner in value]
        case _:
            return value


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
            redact,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    # JSON escapes what it must, and is read by programs.
    shown = [structlog.processors.JSONRenderer()] if as_json else [show, structlog.dev.ConsoleRenderer(colors=True)]
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Before redaction once more, so that it sees the text of exceptions too.
                structlog.processors.format_exc_info,
                redact,
                *shown,
            ],
        )
    )
    logging.setLogRecordFactory(MaskedRecord)
    for name in SERVER_LOGGERS:
        theirs = logging.getLogger(name)
        theirs.handlers.clear()
        theirs.propagate = True
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their figures and frames are of use to their own developers only.
    for name in ("websockets", "asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
