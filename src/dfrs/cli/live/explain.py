"""`dfrs explain`: what happened to a job of a run or of the live cluster, and why."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Authority, Json, Server, TokenFile, connected
from dfrs.cli.quantities import show_instant, show_seconds
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.text import visible
from dfrs.report.clock import clock, parse_time

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import ExpectedStart
    from dfrs.report.explain import Story
    from dfrs.report.witness import WitnessAnswer


def explain(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[RUN] JOB", help="Run directory and id of a job; or a live job's id.", show_default=False
        ),
    ],
    job: Annotated[int | None, typer.Argument(metavar=" ", show_default=False, hidden=True)] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Of a run, only that instant: seconds, HH:MM, HH:MM:SS or days-HH:MM:SS, from the workload's zero."
        ),
    ] = None,
    as_json: Json = False,
    server: Server = None,
    token_file: TokenFile = None,
    ca: Authority = None,
) -> None:
    """Tell a job's story: when it was started, paused, moved and at what yield, and why.

    Of a run: for each pause whom it gave way to. Flow time, virtual time and priorities are recomputed from the log;
    times are days+hours:minutes:seconds. Of a live job: why it is where it is now, how far the cluster is from the best
    possible, and when it is expected to start if it waits.

    Examples:

        dfrs explain out/runs/GreedyPM+_per_OPT=MIN_MVT=600 412

        dfrs explain out/runs/GreedyPM+_per_OPT=MIN_MVT=600 412 --at 2-03:30:00

        dfrs explain 17
    """
    if job is not None:
        _explain_run(Path(subject), job, at, as_json)
        return
    if not subject.isdecimal():
        raise InputError(f'explain "{subject}": must be the id of a live job, or a run directory and the id of a job')
    if at is not None:
        raise InputError(f"--at {at}: is for jobs of a run: dfrs explain RUN JOB --at TIME")
    with connected(server, token_file, ca) as client:
        _explain_live(client, int(subject), as_json)


def _explain_run(run: Path, job: int, at: str | None, as_json: bool) -> None:
    from dfrs.report.explain import find_job, story_document, tell
    from dfrs.report.witness import answer, answer_document
    from dfrs.runs.directory import read_run

    at_s = None if at is None else parse_time(at, "--at")
    log = read_run(run)
    index = find_job(log, job)
    if at_s is not None:
        found = answer(log, index, at_s)
        if as_json:
            print_json(answer_document(found))
        else:
            _show_answer(found)
        return
    story = tell(log, index)
    if as_json:
        print_json(story_document(story))
    else:
        _show_story(story)


def _explain_live(client: "Client", job: int, as_json: bool) -> None:
    found = client.explain(job)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    from dfrs.cli.views.live import activity_line, yield_words, yields_words
    from dfrs.live.protocol.resources import ENDED, JobState

    cluster, subject = found.cluster or client.cluster(), found.job
    out.print(f"job {subject.id} {visible(subject.name)}: {subject.state}", style="bold", markup=False)
    if found.now != subject.state:
        out.print(visible(found.now), markup=False, soft_wrap=True)
    for event in found.history:
        out.print(activity_line(event, cluster.now, with_job=False), soft_wrap=True)
    if subject.state in ENDED:
        words = "" if subject.stretch is None else f"stretch {subject.stretch:.2f}, "
        out.print(f"{words}paused {subject.pauses} times, moved {subject.migrations} times", style="dim")
        return
    if own := yield_words(subject):
        out.print(
            f"its yield: {own}{f' ({visible(subject.apart)})' if subject.apart else ''}", style="dim", soft_wrap=True
        )
    out.print(yields_words(cluster), style="dim")
    if subject.state in {JobState.WAITING, JobState.PENDING, JobState.PAUSED}:
        words = "start" if subject.started_at is None else "go on"
        out.print(_start_words(client.expected_start(job), words, cluster.now), style="dim", soft_wrap=True)


def _start_words(expected: "ExpectedStart", verb: str, now: float) -> str:
    if expected.at is None:
        return f"when it will {verb} cannot be said: {visible(expected.why)}"
    left = show_seconds(round(max(0.0, expected.at - now)))
    return f"expected to {verb} at {show_instant(expected.at, now)}, in {left}: {visible(expected.why)}"


def _show_answer(found: "WitnessAnswer") -> None:
    out.print(f"job {found.job_id} at {clock(found.time_s)} ({found.time_s:g} s): {found.state}", style="bold")
    for sentence in found.sentences:
        out.print(sentence, markup=False)
    out.print(
        f"flow time {clock(found.flow_s)}, virtual time {clock(found.virtual_s)} ({found.virtual_s:.0f} s)", style="dim"
    )


def _show_story(story: "Story") -> None:
    colours = {
        "pause": "red",
        "requeue": "red",
        "lost": "red",
        "refused": "red",
        "resume": "green",
        "start": "green",
        "finish": "bold",
        "migrate": "yellow",
        "shares": "dim",
    }
    tasks = f"{story.tasks} tasks" if story.tasks > 1 else "1 task"
    each = " each" if story.tasks > 1 else ""
    out.print(f"job {story.job_id} under {story.policy}", style="bold", markup=False)
    out.print(f"{tasks}, CPU need {story.need:g} and memory {story.memory:g}{each}; {clock(story.run_s)} of work")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("time", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("virtual", justify="right", no_wrap=True)
    table.add_column("stretch", justify="right", no_wrap=True)
    table.add_column("what happened", overflow="fold")
    for step in story.steps:
        stretch = f"{step.flow_s / step.virtual_s:.2f}" if step.virtual_s > 0 else ""
        table.add_row(
            clock(step.time_s),
            f"{step.time_s:.0f}",
            f"{step.virtual_s:.0f}",
            stretch,
            Text(step.text, style=colours.get(step.action, "")),
        )
    out.print(table)
    out.print(story.summary, markup=False)


VERBS = (Verb(explain),)
