"""Jobs that come after each other, submitted together: all of them or none."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

from dfrs.live.errors import ConflictError, NotFoundError, UnreachableError
from dfrs.live.following import PATIENCE_S, Patience, asleep
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.errors import DfrsError, InputError


class Submitter(Protocol):
    """What is asked of a `Client` here."""

    def submit(self, command: JobRequest) -> list[int]:
        """Job ids."""
        ...

    def release(self, job: int) -> None:
        """The opposite of hold."""
        ...

    def cancel(self, job: int) -> None:
        """End it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphJob:
    """A job of a graph, or all jobs of an array in it."""

    id: str
    request: JobRequest
    after: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Ids of the jobs that it comes after, by the field of the request (`after`, `after_any` …) that names them."""

    @property
    def predecessors(self) -> set[str]:
        """The ids of all jobs that it comes after."""
        return {each for ids in self.after.values() for each in ids}


class CycleOfJobsError(InputError):
    """Jobs that would wait for each other; `ids` are those, with the first once more at the end."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(f"after: these wait for each other: {', '.join(ids)}")
        self.ids = ids


def in_order(jobs: Sequence[GraphJob]) -> list[GraphJob]:
    """The same jobs, each one after those that it comes after. Raises CycleOfJobsError. All ids must be there, once."""
    known = {job.id: job for job in jobs}
    try:
        order = list(TopologicalSorter({job.id: sorted(job.predecessors) for job in jobs}).static_order())
    except CycleError as error:
        raise CycleOfJobsError(error.args[1]) from None
    return [known[each] for each in order]


def submit_graph(
    client: Submitter, jobs: Sequence[GraphJob], *, patience_s: float = PATIENCE_S
) -> dict[str, list[int]]:
    """Submit all of them: the numbers of each, by id, in the order of `jobs`.

    Those that come after none are held until all are accepted: whenever this ends before that, none of them runs. If
    one is refused, the others are cancelled, and what is raised says so. A controller that is away for up to
    `patience_s` is waited for, but with a submission, which is not sent twice: if it has no answer, what was accepted
    stays as it is, and is named. Raises CycleOfJobsError, and as `Client.submit` and `Client.release`.
    """
    numbers: dict[str, list[int]] = {}
    first: list[list[int]] = []
    patience = Patience(patience_s)
    for job in in_order(jobs):
        wanted: dict[str, object] = {
            name: tuple(number for each in ids for number in numbers[each]) for name, ids in job.after.items()
        }
        begins = not job.after and not job.request.held
        try:
            numbers[job.id] = client.submit(job.request.model_copy(update=wanted | ({"held": True} if begins else {})))
        except UnreachableError as error:
            rest = _in_doubt(numbers) if error.sent else _cancelled(client, numbers, patience)
            raise UnreachableError(f'job "{job.id}": {error}; {rest}', sent=error.sent) from error
        except DfrsError as error:
            raise type(error)(f'job "{job.id}": {error}; {_cancelled(client, numbers, patience)}') from error
        if begins:
            first.append(numbers[job.id])
    held = _each(client.release, first, patience)
    if held is not None:
        error, names = held
        raise type(error)(f"{error}; all jobs are accepted, but these are held until you release them: {names}")
    return {job.id: numbers[job.id] for job in jobs}


def _in_doubt(numbers: Mapping[str, Sequence[int]]) -> str:
    """What is to be said where nobody knows whether the next job was accepted.

    Nothing is cancelled: it may come after the end of one of these, however that ends, and would start.
    """
    left = f"; these do not run, cancel them or release those that are held: {_spans(list(numbers.values()))}"
    return f"dfrs queue shows whether it was accepted all the same{left if numbers else ''}"


def _cancelled(client: Submitter, numbers: Mapping[str, Sequence[int]], patience: Patience) -> str:
    """Take back what was submitted; in words, whether that was possible.

    The last one first: the end of one that others come after could let these start.
    """
    left = _each(client.cancel, list(numbers.values())[::-1], patience)
    return "no job of the graph is left" if left is None else f"cancel these, which do not run: {left[1]}"


def _each(
    act: Callable[[int], None], jobs: Sequence[Sequence[int]], patience: Patience
) -> tuple[DfrsError, str] | None:
    """Do it to one after the other: None, or why it could not be done to one, and that one and all after it in words.

    To one that has ended or is not held, which somebody else may have seen to, there is nothing to do.
    """
    for k, numbers in enumerate(jobs):
        try:
            for number in numbers:
                with suppress(ConflictError, NotFoundError):
                    asleep(patience.ask(partial(act, number)))
        except DfrsError as error:
            return error, _spans(jobs[k:])
    return None


def _spans(jobs: Sequence[Sequence[int]]) -> str:
    """Numbers in words; those of an array follow each other."""
    return ", ".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in jobs)
