"""What a handler of events is: it says whether an event can be true, and what it changes."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dfrs.engine.commands import Commands
from dfrs.engine.state import State
from dfrs.model.decisions import Cause
from dfrs.model.errors import InputError
from dfrs.model.named_resources import Counts


class Ask(NamedTuple):
    """The policy is to be asked, now and for this reason."""

    cause: Cause
    subject: int = -1
    """Row of the job that it is about, or -1."""


Steps = Iterable[Commands | Ask]
"""What is to be done because of an event, in order: commands that follow at once, and questions to the policy.

A handler that changes the state between two of them is a generator: each step is done before the handler goes on.
"""


class Handler(NamedTuple):
    """Of one kind of event."""

    row: Callable[[State, Any], int]
    """The row of the job that the event is about, -1 for none. Raises InputError for an event that cannot be true."""
    apply: Callable[[State, Any, int], Steps]
    """Changes the state, which is of the event's time by then; its last argument is that row."""


ON_COMPLETION, ON_NODES, ON_NEEDS = (Ask(Cause.COMPLETION),), (Ask(Cause.NODES),), (Ask(Cause.NEEDS),)


def no_row(_state: State, _event: object) -> int:
    """For events that are about no job, and always can be true."""
    return -1


def present_row(state: State, job_id: int) -> int:
    """The row of a job, -1 if it is held. Raises InputError where there is no such job."""
    row = state.rows.find(job_id)
    if row < 0 and job_id not in state.held:
        raise InputError(f"job {job_id}: is not in the system")
    return row


def refuse_counts(who: str, counts: Counts) -> None:
    """Raise InputError where counts of named resources are not in order of their names, each one above 0."""
    names = [name for name, _ in counts]
    if names != sorted(set(names)) or not all(name and count > 0 for name, count in counts):
        raise InputError(f"{who}: resources = {dict(counts)}: must be counts above 0, in order of their names")


def settle(state: State) -> Steps:
    """What revisions come to that the policy was not asked about: it may leave all yields at a submission."""
    return ON_NEEDS if state.unsettled else ()
