"""Options in a job script: lines `#DFRS --tasks 4 --cpu 0.5` in its leading comments.

They are read by the very parser of `dfrs submit`, before the words of the command line, so that the command line wins.
A script is run from where it is, by the interpreter its first line names: it needs not be executable, its content
stays out of the process list and the database, and `$0` and paths relative to it mean what they say. An edit before
the job starts therefore counts.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dfrs.model.errors import InputError

MARK = "#DFRS"
LONGEST_LINE = 8192
DEFAULT_INTERPRETER = ("/bin/sh",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of options."""

    number: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a script says of itself."""

    path: Path
    interpreter: tuple[str, ...]
    lines: tuple[Line, ...]

    def command(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """What runs it with these arguments."""
        return (*self.interpreter, str(self.path), *arguments)


def read_script(program: str, directory: Path) -> Script | None:
    """The script that `program` names, seen from `directory`; None if it is no file or has no options in it.

    Raises InputError for a line of options whose quotes do not close.
    """
    path = Path(directory, program)
    lines: list[Line] = []
    interpreter = DEFAULT_INTERPRETER
    try:
        with path.open("rb") as file:
            first = file.readline(LONGEST_LINE)
            if b"\x00" in first or not (first.startswith(b"#") or not first.strip()):
                return None
            if first.startswith(b"#!"):
                # As the kernel does it: one interpreter and at most one argument.
                interpreter = tuple(first[2:].decode().split(maxsplit=1)) or DEFAULT_INTERPRETER
            for number, raw in enumerate([first, *iter(lambda: file.readline(LONGEST_LINE), b"")], start=1):
                text = raw.decode().strip()
                if text.startswith(MARK) and (text == MARK or text[len(MARK)].isspace()):
                    lines.append(Line(number=number, words=_words(path, number, text)))
                elif text and not text.startswith("#"):
                    break
    except (OSError, UnicodeDecodeError, ValueError):
        return None
    if not lines:
        return None
    tidy = tuple(part.strip() for part in interpreter)
    return Script(path=path.resolve(), interpreter=tidy, lines=tuple(lines))


def _words(path: Path, number: int, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text[len(MARK) :], comments=True))
    except ValueError as error:
        raise InputError(f"{path}:{number}: {text[:80]!r}: {error}") from None
