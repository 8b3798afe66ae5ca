"""`dfrs explain`: what happened to a job of a run, and why."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json

if TYPE_CHECKING:
    from dfrs.report.explain import Story
    from dfrs.report.witness import Answer


def explain(
    run: Annotated[Path, typer.Argument(help="Run directory.", show_default=False)],
    job: Annotated[int, typer.Argument(help="Id of the job.", show_default=False)],
    at: Annotated[
        str | None,
        typer.Option(help="Only that instant: seconds, HH:MM, HH:MM:SS or days-HH:MM:SS, from the workload's zero."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Tell a job's story: when it was started, paused, moved and at what yield, and for each pause whom it gave way to.

    Flow time, virtual time and priorities are recomputed from the log. Times are days+hours:minutes:seconds.

    Examples:

        dfrs explain out/runs/GreedyPM+_per_OPT=MIN_MVT=600 412

        dfrs explain out/runs/GreedyPM+_per_OPT=MIN_MVT=600 412 --at 2-03:30:00
    """
    from dfrs.report.clock import parse_time
    from dfrs.report.explain import find_job, story_document, tell
    from dfrs.report.runs import read_run
    from dfrs.report.witness import answer, answer_document

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


def _show_answer(found: "Answer") -> None:
    from dfrs.report.clock import clock

    out.print(f"job {found.job_id} at {clock(found.time_s)} ({found.time_s:g} s): {found.state}", style="bold")
    for sentence in found.sentences:
        out.print(sentence, markup=False)
    out.print(
        f"flow time {clock(found.flow_s)}, virtual time {clock(found.virtual_s)} ({found.virtual_s:.0f} s)", style="dim"
    )


def _show_story(story: "Story") -> None:
    from rich.table import Table
    from rich.text import Text

    from dfrs.report.clock import clock

    colours = {"pause": "red", "lost": "red", "refused": "red", "resume": "green", "start": "green",
               "finish": "bold", "migrate": "yellow", "shares": "dim"}  # fmt: skip
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
            clock(step.time_s), f"{step.time_s:.0f}", f"{step.virtual_s:.0f}", stretch,
            Text(step.text, style=colours.get(step.action, "")),
        )  # fmt: skip
    out.print(table)
    out.print(story.summary, markup=False)
