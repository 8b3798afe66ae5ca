"""Files of jobs that come after each other, for `dfrs submit --graph`: tables [[job]] whose fields are its options."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dfrs.cli.live.dependencies import KINDS, MOST
from dfrs.cli.live.job_options import JobOption, checked, fields_of, job_options
from dfrs.cli.quantities import quoted
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.job_graph import GraphJob

OWN = ("id", "command", "after")
"""Fields that are no options: the name of a job in the file, and the names of those before it."""
_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
_HEADER = re.compile(r"^\s*\[\[\s*job\s*\]\]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A job as the file has it. `where` names file, line and job in messages."""

    id: str
    where: str
    table: Mapping[str, Any]


def read_graph(client: "Client", path: Path, *, held: bool) -> "list[GraphJob]":
    """The jobs of a file, every one of them checked. Raises InputError with file, line, job, field and rule."""
    from dfrs.live.job_graph import CycleOfJobsError, in_order

    entries = {entry.id: entry for entry in _entries(path)}
    options = job_options()
    jobs = [_job(client, entry, entries, options, held=held) for entry in entries.values()]
    try:
        in_order(jobs)
    except CycleOfJobsError as error:
        raise InputError(f"{entries[error.ids[0]].where}: {error}") from None
    return jobs


def _entries(path: Path) -> Iterator[Entry]:
    """The tables of a file. Raises InputError."""
    try:
        text = path.read_text("utf-8-sig")
        found = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', 'not text')}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is no TOML: {error}") from None
    tables = found.pop("job", None)
    if found:
        raise InputError(f"{path}: {quoted(next(iter(found)))}: must be tables [[job]] and nothing else")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{path}: must have tables [[job]]")
    lines = [text.count("\n", 0, found.end()) + 1 for found in _HEADER.finditer(text)]
    # Tables may be written in another way, and a text may hold what looks like the beginning of one.
    places = [f"{path}:{line}" for line in lines] if len(lines) == len(tables) else [str(path)] * len(tables)
    seen: set[str] = set()
    for number, (table, place) in enumerate(zip(tables, places, strict=True), start=1):
        name = table.get("id")
        name = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
        if not isinstance(name, str) or not _ID.fullmatch(name):
            given = "is missing" if name is None else f"{quoted(name)}"
            rule = 'must be 1 to 128 letters, digits, "_", "." and "-"'
            raise InputError(f"{place}: job {number}: id: {given}: {rule}")
        if name in seen:
            raise InputError(f'{place}: job {number}: id: "{name}": another job has it')
        seen.add(name)
        yield Entry(id=name, where=f'{place}: job "{name}"', table=table)


def _job(
    client: "Client", entry: Entry, entries: Mapping[str, Entry], options: Mapping[str, JobOption], *, held: bool
) -> "GraphJob":
    from dfrs.live.job_graph import GraphJob

    after = _after(entry, entries)
    words = [*_words(entry, options), *(["--hold"] if held else []), "--", *_command(entry)]
    try:
        # Which numbers the others will have is not known yet: that there are some is, and how many.
        numbers = {name: tuple(range(1, _count(entries, ids) + 1)) for name, ids in after.items()}
        for ids in numbers.values():
            if len(ids) > MOST:
                raise InputError(f"after: {len(ids)} jobs: must be at most {MOST}")
        return GraphJob(id=entry.id, request=checked(client, fields_of(words) | numbers), after=after)
    except InputError as error:
        raise InputError(f"{entry.where}: {error}") from None


def _count(entries: Mapping[str, Entry], ids: Sequence[str]) -> int:
    """How many jobs they are: an array is many."""
    sizes = [entries[each].table.get("array", 1) for each in ids]
    return sum(size if isinstance(size, int) else 1 for size in sizes)


def _after(entry: Entry, entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """Ids by the field of a request."""
    given = entry.table.get("after", [])
    after: dict[str, list[str]] = {}
    for word in [given] if isinstance(given, str | int) else given if isinstance(given, list) else [None]:
        name, _, kind = str(word).partition(":")
        if not isinstance(word, str | int) or kind not in {"", *KINDS}:
            rule = 'must be ids, alone or with :ok, :failed, :any or :start, as ["first", "second:any"]'
            raise InputError(f"{entry.where}: after: {quoted(given if word is None else word)}: {rule}")
        if name not in entries:
            raise InputError(f"{entry.where}: after: {quoted(name)}: no job has this id")
        ids = after.setdefault(KINDS[kind or "ok"], [])
        if name not in ids:
            ids.append(name)
    return after


def _command(entry: Entry) -> list[str]:
    given = entry.table.get("command")
    words = given if isinstance(given, list) else []
    if not words or not all(isinstance(word, str | int | float) and not isinstance(word, bool) for word in words):
        shown = "is missing" if given is None else quoted(given)
        raise InputError(f'{entry.where}: command: {shown}: must be a program and its arguments, as ["sort", "a.txt"]')
    return [str(word) for word in words]


def _words(entry: Entry, options: Mapping[str, JobOption]) -> Iterator[str]:
    """Its fields as the command line has them. By default its name is its id."""
    for name, value in {"name": entry.id, **entry.table}.items():
        if name in OWN:
            continue
        option = options.get(name)
        if option is None:
            known = ", ".join(sorted({*options, *OWN}))
            raise InputError(f"{entry.where}: {quoted(name)}: must be one of {known}")
        if isinstance(value, bool) != option.is_flag:
            rule = "must be true or false" if option.is_flag else "must be no truth value"
            raise InputError(f"{entry.where}: {name}: {quoted(value)}: {rule}")
        if option.is_flag:
            yield from [f"--{name}"] if value else []
            continue
        for each in _values(value) if option.multiple else [value]:
            if not isinstance(each, str | int | float | date | time):
                raise InputError(f"{entry.where}: {name}: {quoted(value)}: must be one value")
            yield f"--{name}={each}"


def _values(value: object) -> list[object]:
    """Of an option that may be given several times."""
    if isinstance(value, dict):
        return [f"{name}={each}" for name, each in value.items()]
    return list(value) if isinstance(value, list) else [value]
