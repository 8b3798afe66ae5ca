"""`dfrs cancel`, `hold`, `release` and `requeue`: what users do to their jobs."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json, job_words, live
from dfrs.cli.live.one_by_one import one_by_one, tell_failures
from dfrs.cli.live.selecting import All, Name, Selection, States, User, Words, Yes
from dfrs.cli.verbs import Verb

if TYPE_CHECKING:
    from dfrs.live.client import Client


@live
def cancel(
    client: "Client",
    jobs: Words = None,
    name: Name = None,
    user: User = None,
    state: States = None,
    everything: All = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """End jobs: their processes are asked to end, and killed if they do not.

    Jobs are named by numbers and ranges, or chosen by --name, --user, --state or --all; of a range, and of what is
    chosen, only those are meant to which it can be done.

    Examples:

        dfrs cancel 17 20-25

        dfrs cancel --name "fit-*" --state waiting
    """
    from dfrs.live.protocol.resources import ENDED, JobState

    possible = set(JobState) - ENDED - {JobState.ENDING}
    chosen = Selection(words=jobs or (), name=name, user=user, states=state or (), everything=everything, yes=yes)
    # The last one first: the end of one that others come after would end these, too, or let them start.
    last_first = dict(reversed(chosen.choose(client, "cancel", possible).items()))
    each_job(last_first, client.cancel, "cancelled", as_json)


@live
def hold(
    client: "Client",
    jobs: Words = None,
    name: Name = None,
    user: User = None,
    state: States = None,
    everything: All = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Keep jobs from running until they are released; one that runs is paused.

    Jobs are named by numbers and ranges, or chosen by --name, --user, --state or --all; of a range, and of what is
    chosen, only those are meant to which it can be done.

    Example: dfrs hold 17 20-25
    """
    from dfrs.live.protocol.resources import ENDED, JobState

    possible = set(JobState) - ENDED - {JobState.ENDING, JobState.HELD}
    chosen = Selection(words=jobs or (), name=name, user=user, states=state or (), everything=everything, yes=yes)
    each_job(chosen.choose(client, "hold", possible), client.hold, "held", as_json)


@live
def release(
    client: "Client",
    jobs: Words = None,
    name: Name = None,
    user: User = None,
    state: States = None,
    everything: All = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let held jobs run again.

    Jobs are named by numbers and ranges, or chosen by --name, --user, --state or --all; of a range, and of what is
    chosen, only those are meant to which it can be done.

    Example: dfrs release 17 20-25
    """
    from dfrs.live.protocol.resources import JobState

    possible = {JobState.HELD}
    chosen = Selection(words=jobs or (), name=name, user=user, states=state or (), everything=everything, yes=yes)
    each_job(chosen.choose(client, "release", possible), client.release, "released", as_json)


@live
def requeue(
    client: "Client",
    jobs: Words = None,
    name: Name = None,
    user: User = None,
    state: States = None,
    everything: All = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let jobs that have started begin anew: their processes are ended, and the jobs are queued again.

    Jobs are named by numbers and ranges, or chosen by --name, --user, --state or --all; of a range, and of what is
    chosen, only those are meant to which it can be done.

    Example: dfrs requeue 17 20-25
    """
    from dfrs.live.protocol.resources import JobState

    possible = {JobState.STARTING, JobState.RUNNING, JobState.PAUSED}
    chosen = Selection(words=jobs or (), name=name, user=user, states=state or (), everything=everything, yes=yes)
    # One that has begun anew before it is asked for again would begin anew once more.
    each_job(chosen.choose(client, "requeue", possible), client.requeue, "requeued", as_json, again=False)


def each_job(
    jobs: Mapping[int, bool], act: Callable[[int], None], done_word: str, as_json: bool, *, again: bool = True
) -> None:
    """Do it to each; what cannot be done to one does not keep the others from it. Status 1 if any failed.

    One that was not written by itself may have come to an end since it was chosen: then nothing is left to do.
    `again`: it may be asked for twice.
    """
    from dfrs.live.errors import ConflictError, NotFoundError

    done, errors = one_by_one(jobs, act, again=again)
    done.sort()
    failed = {
        job: errors[job]
        for job in sorted(errors)
        if jobs[job] or not isinstance(errors[job], ConflictError | NotFoundError)
    }
    if as_json:
        print_json({done_word: done, "failed": [{"job": job, "why": str(why)} for job, why in failed.items()]})
    elif done:
        out.print(f"{done_word} {job_words(done)}")
    tell_failures(failed, job_words)
    if failed:
        raise typer.Exit(1)


VERBS = (
    Verb(cancel),
    Verb(hold),
    Verb(release),
    Verb(requeue),
)
