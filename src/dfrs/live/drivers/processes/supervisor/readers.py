"""Who reads along what a program writes: the program waits for them, as on any pipe, so that nothing of it is lost.

The driver notes in `reads`, a pipe with a name in the program's directory, how far they are, a line each time:

    <out or err> <offset>              all before that has been read

Nothing more is taken from the program's pipe while that would cost output that has not been read. A reader of whom
nothing was heard for `waits_s`, an entry of the program's `spec`, is gone: the program goes on, and the latest of its
output is kept, as of programs without that entry, which wait for nobody. Of several readers the last one heard counts.
"""

import contextlib
import os
import select
from collections.abc import Sequence

from .inputs import READ_BYTES, named_pipe
from .output import OutputFile

NAME = "reads"
ENTRY = "waits_s"


class Readers:
    """Those of one program."""

    def __init__(self, directory: str, outputs: Sequence[OutputFile], waits_s: float) -> None:
        self.pipe = named_pipe(f"{directory}/{NAME}")
        self._outputs = dict(zip(("out", "err"), outputs, strict=True))
        for output in outputs:
            output.waits_s = waits_s

    def watch(self, poll: "select.poll") -> None:
        """Be woken when something is heard of them."""
        poll.register(self.pipe, select.POLLIN)

    def hear(self, poll: "select.poll") -> None:
        """Note how far they are: the program may go on."""
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self.pipe, READ_BYTES).decode("ascii", "replace").splitlines():
                stream, _, offset = line.partition(" ")
                if stream in self._outputs and offset.isdecimal():
                    self._outputs[stream].note_read(int(offset))
        self.look(poll)

    def look(self, poll: "select.poll") -> None:
        """Let the program go on if it waits for nobody any more."""
        for output in self._outputs.values():
            output.go_on(poll)

    def close(self, poll: "select.poll") -> None:
        """Nobody reads along any more."""
        with contextlib.suppress(KeyError):
            poll.unregister(self.pipe)
        os.close(self.pipe)


def readers_of(directory: str, entries: list[tuple[str, str]], outputs: Sequence[OutputFile]) -> Readers | None:
    """Those of a program with that `spec`; None where it waits for nobody."""
    waits_s = dict(entries).get(ENTRY)
    return None if waits_s is None else Readers(directory, outputs, float(waits_s))
