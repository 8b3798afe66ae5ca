"""`dfrs logs`: what tasks of jobs wrote."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, print_json
from dfrs.cli.live.cluster import Json, live, patience
from dfrs.cli.live.completing import complete_jobs
from dfrs.cli.live.selecting import JOB, parse_jobs, present_jobs
from dfrs.cli.verbs import Verb
from dfrs.model.errors import DfrsError
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.drivers.base import Stream
    from dfrs.live.protocol.resources import OutputPart

INTERRUPTED = 130
PIECE_BYTES = 1 << 18
TAIL_BYTES = 1 << 16
"""Of the end of an output are looked at for its last lines; more and more if that is not enough."""


@live
def logs(
    client: "Client",
    jobs: Annotated[
        list[str],
        typer.Argument(metavar=JOB, help="Jobs and ranges of jobs.", show_default=False, autocompletion=complete_jobs),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the jobs end.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", help="Only the last lines: so many.", min=0, show_default=False)
    ] = None,
    rank: Annotated[int, typer.Option(help="Of which task, from 0.", min=0)] = 0,
    errors: Annotated[bool, typer.Option("--err", help="Standard error instead of standard output.")] = False,
    as_json: Json = False,
) -> None:
    """Print what a task of a job wrote to its standard output; with -f, as it comes.

    With several jobs each line begins with the number of its job. Of a range they are those that there are.

    Examples:

        dfrs logs -f 17

        dfrs logs --tail 5 17 20-25
    """
    stream: Stream = "err" if errors else "out"
    ranges = parse_jobs(jobs)
    alone = len(ranges) == 1 and len(ranges[0]) == 1
    outputs = [_Output(client, job, rank, stream, tail, follow=follow) for job in present_jobs(client, ranges)]
    try:
        if as_json:
            _document(outputs, follow=follow, alone=alone)
        elif alone:
            for _, text in _pieces(outputs, follow=follow, alone=True):
                print(text, end="", flush=True)
        else:
            for output, line in _lines(outputs, follow=follow):
                print(f"{output.job}: {line}", flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED if not follow else 0) from None
    if any(output.failed for output in outputs):
        raise typer.Exit(1)


class _Output:
    """What one task wrote, and writes, read piece by piece."""

    def __init__(
        self, client: "Client", job: int, rank: int, stream: "Stream", tail: int | None, *, follow: bool
    ) -> None:
        self.job, self.rank = job, rank
        self.stream: Stream = stream
        self.over = False
        """There is nothing more to read."""
        self.failed = ""
        """Why it could not be read."""
        self._client, self._tail, self._follow = client, tail, follow
        self._patience = patience()
        self._offset = 0
        self._attempt = 0

    def read(self) -> str:
        """What comes next; empty if nothing is there now."""
        if self._follow and self._offset == 0 and self._is_early():
            return ""
        if self._tail is not None:
            lines, self._tail = self._last(self._tail), None
            return lines
        part = self._ask(self._offset)
        before, self._attempt = self._attempt, part.attempt
        if self._offset and before != part.attempt:
            err.print(f"… job {self.job} begins anew", style="dim")
            self._offset = 0
            return ""
        if part.offset > self._offset:
            err.print(f"… {part.offset - self._offset} bytes were rotated away", style="dim")
        grew, self._offset = part.next_offset > self._offset, part.next_offset
        self.over = part.ended or not (self._follow or grew)
        return part.text

    def _is_early(self) -> bool:
        from dfrs.live.following import asleep
        from dfrs.live.protocol.resources import JobState

        early = {JobState.PENDING, JobState.HELD, JobState.WAITING, JobState.STARTING}
        return asleep(self._patience.ask(lambda: self._client.job(self.job))).state in early

    def _ask(self, offset: int, limit: int = PIECE_BYTES) -> "OutputPart":
        from dfrs.live.following import asleep

        return asleep(
            self._patience.ask(
                lambda: self._client.output(self.job, rank=self.rank, stream=self.stream, offset=offset, limit=limit)
            )
        )

    def _last(self, number: int) -> str:
        """The last lines of what is there now."""
        first = self._ask(0, limit=1)
        self._attempt = first.attempt
        size = TAIL_BYTES
        while True:
            begin = max(first.offset, first.end_offset - size)
            *lines, rest = self._between(begin, first.end_offset).split("\n")
            lines = [f"{line}\n" for line in lines] + ([rest] if rest else [])
            # The first one may have begun before what was read.
            if len(lines) > number or begin == first.offset:
                return "".join(lines[max(0, len(lines) - number) :])
            size *= 8

    def _between(self, begin: int, end: int) -> str:
        """What was written from there to there; reading goes on after that."""
        text, self._offset = "", begin
        while self._offset < end:
            part = self._ask(self._offset)
            if part.next_offset <= self._offset:
                break
            text, self._offset = text + part.text, part.next_offset
        self.over = not self._follow
        return text


def _pieces(outputs: Sequence[_Output], *, follow: bool, alone: bool) -> Iterator[tuple[_Output, str]]:
    """What they wrote: one after the other, or when following, each as it comes; also, maybe empty, the end of each.

    What fails of one of several does not keep the others from being read.
    """
    from dfrs.live.errors import UnreachableError
    from dfrs.live.following import OUTPUT_PAUSE_S

    left = list(outputs)
    while left:
        grew = False
        for output in list(left) if follow else left[:1]:
            text = ""
            try:
                text = output.read()
            except UnreachableError:
                raise
            except DfrsError as error:
                if alone:
                    raise
                output.failed, output.over = str(error), True
                err.print(f"dfrs: {visible(output.failed)}", markup=False, soft_wrap=True)
            if text or output.over:
                grew = True
                yield output, text
            if output.over:
                left.remove(output)
        if not grew and follow:
            time.sleep(OUTPUT_PAUSE_S)


def _lines(outputs: Sequence[_Output], *, follow: bool) -> Iterator[tuple[_Output, str]]:
    """As `_pieces`, in whole lines without their ends; the last one of an output may have none."""
    begun: dict[_Output, str] = {}
    for output, text in _pieces(outputs, follow=follow, alone=False):
        *lines, begun[output] = (begun.get(output, "") + text).split("\n")
        yield from ((output, line) for line in lines)
        if output.over and begun[output]:
            yield output, begun[output]


def _document(outputs: Sequence[_Output], *, follow: bool, alone: bool) -> None:
    """One object for one job, a list for several."""
    texts = dict.fromkeys(outputs, "")
    for output, text in _pieces(outputs, follow=follow, alone=alone):
        texts[output] += text
    made = [
        {"job": output.job, "rank": output.rank, "stream": output.stream, "text": text}
        for output, text in texts.items()
        if not output.failed
    ]
    print_json(made[0] if alone else made)


VERBS = (Verb(logs),)
