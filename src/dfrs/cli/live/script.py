"""Options in a job script: lines `#DFRS --tasks 4 --cpu 0.5` in its leading comments.

They are read by the very parser of `dfrs submit`, before the words of the command line, so that the command line wins.
A script is run from where it is, by the interpreter its first line names: it needs not be executable, its content
stays out of the process list and the database, and `$0` and paths relative to it mean what they say. An edit before
the job starts therefore counts. Lines `#SBATCH` count before those with `#DFRS`.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dfrs.cli.live import sbatch
from dfrs.model.errors import InputError

MARK = "#DFRS"
LONGEST_SCRIPT = 1 << 20
"""So much of a script is looked at for what is otherwise than under Slurm."""
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
    notes: tuple[str, ...] = ()
    """What its lines for Slurm ask for and do not get."""

    def command(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """What runs it with these arguments."""
        return (*self.interpreter, str(self.path), *arguments)


def read_script(program: str, directory: Path) -> Script | None:
    """The script that `program` names, seen from `directory`; None if it is no file or has no options in it.

    Raises InputError for a line of options whose quotes do not close, or that asks Slurm for what is not done here.
    """
    path = Path(directory, program)
    lines: list[Line] = []
    slurm: list[Line] = []
    rest = b""
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
                mark = text.split(maxsplit=1)[0] if text else ""
                if mark in {MARK, sbatch.MARK}:
                    found = lines if mark == MARK else slurm
                    found.append(Line(number=number, words=_words(path, number, text, mark)))
                elif text and not text.startswith("#"):
                    rest = raw + file.read(LONGEST_SCRIPT)
                    break
    except (OSError, UnicodeDecodeError, ValueError):
        return None
    if not lines and not slurm:
        return None
    tidy = tuple(part.strip() for part in interpreter)
    asked = sbatch.translate(str(path), [(line.number, line.words) for line in slurm], rest.decode("utf-8", "replace"))
    translated = [Line(number=number, words=words) for number, words in asked.options]
    return Script(path=path.resolve(), interpreter=tidy, lines=(*translated, *lines), notes=tuple(asked.notes))


def _words(path: Path, number: int, text: str, mark: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text[len(mark) :], comments=True))
    except ValueError as error:
        raise InputError(f"{path}:{number}: {text[:80]!r}: {error}") from None
