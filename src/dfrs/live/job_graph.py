"""Jobs that come after each other, submitted together: all of them or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

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


def submit_graph(client: Submitter, jobs: Sequence[GraphJob]) -> dict[str, list[int]]:
    """Submit all of them: the numbers of each, by id, in the order of `jobs`.

    Those that come after none are held until all are accepted: whenever this ends early, none of them runs. If one is
    refused, the others are cancelled, and what is raised says so. Raises CycleOfJobsError, and as `Client.submit`.
    """
    numbers: dict[str, list[int]] = {}
    first: list[int] = []
    for job in in_order(jobs):
        wanted: dict[str, object] = {
            name: tuple(number for each in ids for number in numbers[each]) for name, ids in job.after.items()
        }
        begins = not job.after and not job.request.held
        try:
            numbers[job.id] = client.submit(job.request.model_copy(update=wanted | ({"held": True} if begins else {})))
        except DfrsError as error:
            raise type(error)(f'job "{job.id}": {error}; {_cancelled(client, numbers)}') from error
        if begins:
            first += numbers[job.id]
    for number in first:
        client.release(number)
    return {job.id: numbers[job.id] for job in jobs}


def _cancelled(client: Submitter, numbers: Mapping[str, Sequence[int]]) -> str:
    """Take back what was submitted; in words, whether that was possible."""
    left: list[int] = []
    for number in (number for several in numbers.values() for number in several):
        try:
            client.cancel(number)
        except DfrsError:
            left.append(number)
    return f"cancel these, which do not run: {', '.join(map(str, left))}" if left else "no job of the graph is left"
