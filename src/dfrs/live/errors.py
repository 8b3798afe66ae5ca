"""What a program that uses a live cluster is told, beside what `protocol.ports` lists."""

from dfrs.model.errors import DfrsError


class UnreachableError(DfrsError):
    """Nobody answers at that address. Start a cluster there, or name another with --server."""


class DeniedError(DfrsError):
    """The token is unknown, expired, or its role may not do this. Ask an admin for another."""


class NotEndedError(DfrsError, TimeoutError):
    """A job has not ended within the time that was given for it. It goes on."""
