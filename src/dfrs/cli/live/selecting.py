"""Which jobs a verb is about: numbers and ranges, or all that fit a name, a user and a state."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err
from dfrs.cli.live.completing import complete_jobs
from dfrs.cli.quantities import quoted, show_count
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import Job, JobState

JOB = "[JOB|FIRST-LAST]..."
"""How several jobs are shown in the help."""
LARGEST = 2**63 - 1
"""No job has a greater number."""
_WORD = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar=JOB, help="Jobs and ranges of jobs: 17, 1-5.", show_default=False, autocompletion=complete_jobs
    ),
]
Name = Annotated[
    str | None, typer.Option(help='Only jobs of this name; * stands for anything: "fit-*".', show_default=False)
]
User = Annotated[str | None, typer.Option(help="Only jobs of this user; default: your own, admins: all.")]
AccountOption = Annotated[
    str | None, typer.Option("--account", "-A", help="Only jobs charged to this account.", show_default=False)
]
States = Annotated[
    list[str] | None, typer.Option("--state", metavar="STATE", help="Only jobs in this state; several times for more.")
]
All = Annotated[bool, typer.Option("--all", help="All your jobs, as admin those of everybody; asks first.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What somebody wrote to say which jobs they mean."""

    words: Sequence[str] = ()
    name: str | None = None
    user: str | None = None
    states: Sequence[str] = ()
    everything: bool = False
    yes: bool = False
    """Whether `everything` needs no answer."""

    def choose(self, client: "Client", verb: str, possible: "Iterable[JobState]") -> dict[int, bool]:
        """Their numbers, in order, and whether each was written by itself.

        Of ranges, and by name, user and state, they are those in a `possible` state: the verb can be done to no others.
        Unless an admin asks or a user is named, they are those of whoever asks.

        Raises InputError where nothing says which jobs, typer.Exit where the answer is no.
        """
        ranges = parse_jobs(self.words)
        filtered = bool(self.name is not None or self.user is not None or self.states or self.everything)
        if not ranges and not filtered:
            raise InputError("JOB: missing: give numbers, as 17 or 1-5, or choose by --name, --user, --state or --all")
        if not filtered and all(len(each) == 1 for each in ranges):
            return {each[0]: True for each in ranges}
        # One that is written by itself is tried in any state: who wrote it hears why it could not be done.
        written = set[int]() if filtered else {each[0] for each in ranges if len(each) == 1}
        found = self._open(client, ranges, set(possible))
        if self.everything and found and not self.yes:
            _confirm(verb, found)
        if not found and not written:
            err.print(f"no job to {verb}")
        return {job: job in written for job in sorted(written | {job.id for job in found})}

    def _open(self, client: "Client", ranges: Sequence[range], possible: "set[JobState]") -> "list[Job]":
        wanted = possible & set(parse_states(self.states)) if self.states else possible
        if not wanted:
            return []
        whose = self.user
        if whose is None:
            me = client.me()
            whose = None if me["role"] == "admin" else me["user"]
        return [
            job
            for job in client.all_jobs(user=whose, states=sorted(wanted))
            if (not ranges or any(job.id in each for each in ranges))
            and (self.name is None or fnmatchcase(job.name, self.name))
        ]


def parse_jobs(words: Sequence[str] | None) -> list[range]:
    """The jobs that `17`, `1-5` and `1-5,8` name. Raises InputError."""
    found: list[range] = []
    for word in words or ():
        for part in word.split(","):
            jobs = parse_range(part)
            if jobs is None:
                raise InputError(f"JOB: {quoted(word)}: must be the number of a job or a range, as 17 or 1-5")
            found.append(jobs)
    return found


def present_jobs(client: "Client", ranges: Sequence[range]) -> list[int]:
    """Jobs that are written by themselves, and those of each range that there are, in order of writing."""
    from dfrs.live.client import PAGE
    from dfrs.live.protocol.resources import JobState

    found: dict[int, None] = {}
    for each in ranges:
        if len(each) == 1:
            found[each[0]] = None
            continue
        before, there = min(each[-1] + 1, LARGEST), list[int]()
        while page := client.jobs(states=JobState, before=before, limit=PAGE):
            there += [job.id for job in page if job.id in each]
            before = page[-1].id
            if before <= each[0] or len(page) < PAGE:
                break
        found |= dict.fromkeys(reversed(there))
    return list(found)


def parse_range(text: str) -> range | None:
    """The jobs that `17` or `1-5` names; None for other texts."""
    found = _WORD.fullmatch(text)
    first = int(found[1]) if found else 0
    last = int(found[2] or found[1]) if found else 0
    return range(first, last + 1) if 1 <= first <= last <= LARGEST else None


def parse_states(words: Sequence[str] | None) -> "list[JobState]":
    """The states that `running` and `waiting,held` name: those of jobs that have not ended. Raises InputError."""
    from dfrs.live.protocol.resources import ENDED, JobState

    known = {state.value: state for state in JobState if state not in ENDED}
    parts = [part for word in words or () for part in word.split(",")]
    for part in parts:
        if part not in known:
            raise InputError(f"--state: {quoted(part)}: must be one of {', '.join(known)}")
    return [known[part] for part in parts]


def _confirm(verb: str, jobs: "Sequence[Job]") -> None:
    """Ask on the terminal. Raises InputError where there is none, typer.Exit for a no."""
    if not sys.stdin.isatty():
        raise InputError("--all: asks before it does anything, and nobody can answer: give --yes")
    whose = {job.user for job in jobs}
    users = "" if len(whose) == 1 else f" of {len(whose)} users"
    if not typer.confirm(f"{verb} {show_count(len(jobs), 'job')}{users}?", err=True):
        raise typer.Exit(1)
