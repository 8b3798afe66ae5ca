"""Manual pages, made of what the help says: `python -m dfrs.cli.manual DIRECTORY`, one for each verb.

A page is in the format of man(7). What the help has in bold is bold, and lines of examples are not filled.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from dfrs.cli.main import app
from dfrs.version import __version__

SECTION = 1
_MARKUP = re.compile(r"\[/?(?:bold|dim|italic|red|green|yellow|cyan)\]")
_STATUS = (
    ("0", "done"),
    ("1", "the answer is no, or it could not be done"),
    ("2", "bad input; one line on standard error says what is wrong, and where"),
    ("3", "no feasible solution"),
    ("4", "another controller has taken over"),
    ("130", "interrupted"),
)
_OWN_STATUS = {"run", "exec", "attach"}
"""Verbs that end with the status of a program."""


def pages(command: Any = None, path: tuple[str, ...] = ("dfrs",)) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """The name of each page, and its text: of a command, and of all below it."""
    command = get_command(app) if command is None else command
    below = [(name, command.get_command(None, name)) for name in _names(command)]
    yield f"{'-'.join(path)}.{SECTION}", _page(command, path, [(name, each) for name, each in below if each])
    for name, each in below:
        yield from pages(each, (*path, name))


def _names(command: Any) -> list[str]:  # noqa: ANN401
    return list(command.list_commands(None)) if hasattr(command, "list_commands") else []


def _page(command: Any, path: tuple[str, ...], below: list[tuple[str, Any]]) -> str:  # noqa: ANN401
    name = "-".join(path)
    lines = [f'.TH "{name.upper()}" "{SECTION}" "" "dfrs {__version__}" "dfrs"', ".SH NAME"]
    summary = _summary(command)
    lines.append(f"{_escaped(name)} \\- {_escaped(summary)}")
    lines += [".SH SYNOPSIS", f".B {_escaped(' '.join(path))}", _escaped(_usage(command))]
    lines += [".SH DESCRIPTION", *_text(command.help or summary)]
    given = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if arguments := [each for each in given if each.param_type_name == "argument"]:
        lines.append(".SH ARGUMENTS")
        for each in arguments:
            words = " ".join(_plain(each.help or "").split())
            lines += [".TP", f".I {_escaped(each.metavar or each.name.upper())}", _escaped(words)]
    if options := [each for each in given if each.param_type_name == "option"]:
        lines.append(".SH OPTIONS")
        for each in options:
            names, words = each.get_help_record(_context(command))
            lines += [".TP", f".B {_escaped(names)}", _escaped(" ".join(_plain(words).split()))]
    if below:
        lines.append(".SH COMMANDS")
        for verb, each in below:
            lines += [".TP", f".B {_escaped(verb)}", _escaped(_summary(each))]
    lines.append(".SH EXIT STATUS")
    if path[-1] in _OWN_STATUS:
        lines.append("That of the program, 128 and the signal if one has killed it; else:")
    for status, words in _STATUS:
        lines += [".TP", f".B {status}", _escaped(words)]
    others = [*(["-".join(path[:-1])] if len(path) > 1 else []), *(f"{name}-{verb}" for verb, _ in below)]
    if others:
        lines += [".SH SEE ALSO", ",\n".join(f".BR {_escaped(other)} ({SECTION})" for other in others)]
    return "\n".join(lines).replace(",\n.BR", "\n.BR") + "\n"


def _context(command: Any) -> Any:  # noqa: ANN401
    return command.context_class(command)


def _usage(command: Any) -> str:  # noqa: ANN401
    return " ".join(command.collect_usage_pieces(_context(command)))


def _summary(command: Any) -> str:  # noqa: ANN401
    first = _plain(command.help or "").strip().partition("\n\n")[0]
    return " ".join(first.split()).rstrip(".:")


def _text(text: str) -> Iterator[str]:
    """Paragraphs; those that are indented are examples."""
    for part in re.split(r"\n\s*\n", _plain(text).strip("\n")):
        if part.startswith("    "):
            yield from (".PP", ".nf", ".RS 4", *(_escaped(line.strip()) for line in part.splitlines()), ".RE", ".fi")
        else:
            yield from (".PP", _escaped(" ".join(part.split())))


def _plain(text: str) -> str:
    return _MARKUP.sub("", text).replace("\b", "")


def _escaped(text: str) -> str:
    r"""Text that troff shows as it is: a line that begins with . or ' is no request, - is what one can type."""
    made = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    made = made.replace("~", "\\(ti").replace("^", "\\(ha")
    return f"\\&{made}" if made.startswith(".") else made


def write(folder: Path) -> list[Path]:
    """Write all pages into a folder, which is made; their paths. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, text in pages():
        written.append(folder / name)
        written[-1].write_text(text)
    return written


if __name__ == "__main__":
    print(f"{len(write(Path(sys.argv[1])))} pages in {sys.argv[1]}")
