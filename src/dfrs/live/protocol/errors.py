"""What a controller answers where it does not do what was asked. Clients raise the same."""

from dfrs.model.errors import DfrsError, InputError


class NotFoundError(DfrsError):
    """There is no such job, node, task or token."""


class ConflictError(DfrsError):
    """It cannot be done to something in this state."""


class NotAdmittedError(DfrsError):
    """The token of an agent does not admit this node. Give the node a token of its own, or do as the message says."""


class UnavailableError(DfrsError):
    """Not now: the database cannot be written, or the node is away. Trying again later makes sense."""


class TooManyError(InputError):
    """More than this user may have or do at once. `retry_s`: when the same may go; None: when others have ended."""

    def __init__(self, text: str, retry_s: int | None = None) -> None:
        super().__init__(text)
        self.retry_s = retry_s
