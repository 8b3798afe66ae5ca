"""What goes wrong with a live cluster: what controllers answer, which clients raise as well, and what clients meet."""

from dfrs.model.errors import DfrsError, InputError


class NotFoundError(DfrsError):
    """There is no such job, node, task or token."""


class ConflictError(DfrsError):
    """It cannot be done to something in this state."""


class NotAdmittedError(DfrsError):
    """The token of an agent does not admit this node. Give the node a token of its own, or do as the message says."""


class UnavailableError(DfrsError):
    """Not now: the database cannot be written, or the node is away. Trying again later makes sense."""


class UncertainError(UnavailableError):
    """The controller lost its database while this was written, and cannot find out any more whether it was. Look before
    you do it again. Clients raise UnreachableError for it.
    """


class TooManyError(InputError):
    """More than this user may have or do at once. `retry_s`: when the same may go; None: when others have ended."""

    def __init__(self, text: str, retry_s: int | None = None) -> None:
        super().__init__(text)
        self.retry_s = retry_s


class UnreachableError(DfrsError):
    """Nobody answers at that address. Start a cluster there, or name another with --server.

    `sent`: whether the question may have come there all the same, and been done.
    """

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class DeniedError(DfrsError):
    """The token is unknown, expired, or its role may not do this. Ask an admin for another."""


class NotEndedError(DfrsError, TimeoutError):
    """A job has not ended within the time that was given for it. It goes on."""


class JobFailedError(DfrsError):
    """A job ended without the result of its function: the message says how, with the end of its standard error."""


class TooLargeError(InputError):
    """A call, or what its function returned, is larger than what travels with a job: the message says how large."""
