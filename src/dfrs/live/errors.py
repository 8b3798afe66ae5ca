"""What a program that uses a live cluster is told, beside what `protocol.ports` lists."""

from dfrs.model.errors import DfrsError, InputError


class UnreachableError(DfrsError):
    """Nobody answers at that address. Start a cluster there, or name another with --server."""


class DeniedError(DfrsError):
    """The token is unknown, expired, or its role may not do this. Ask an admin for another."""


class NotEndedError(DfrsError, TimeoutError):
    """A job has not ended within the time that was given for it. It goes on."""


class JobFailedError(DfrsError):
    """A job ended without the result of its function: the message says how, with the end of its standard error."""


class TooLargeError(InputError):
    """A call, or what its function returned, is larger than what travels with a job: the message says how large."""
