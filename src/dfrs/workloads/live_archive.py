"""The log of a live cluster with what its controller has pruned put back from the archive of `dfrs serve --archive`."""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dfrs.model.errors import InputError

FORMAT = "dfrs-archive/1"


def complete(lines: Iterable[str], archive: Path) -> Generator[str]:
    """The lines of a log (as `dfrs export` reads them) from its first event on, and all jobs, each once.

    Raises InputError where the archive is not of this cluster, or lacks events that the log has no more.
    """
    rest = iter(lines)
    header = json.loads(next(rest))
    first = int(header.get("first_event", 1))
    yield json.dumps(header | {"first_event": 1, "pruned_until": None, "pruned_jobs": 0})
    last = 0
    for where, line in _lines(archive, "events", header["epoch"]) if first > 1 else ():
        number = line["sequence"]
        if number <= last or number >= first:
            # It was written a second time, or not deleted.
            continue
        if number != last + 1:
            raise InputError(f"{where}: events {last + 1} to {number - 1} are missing before this one")
        last = number
        yield _event(line)
    if last < first - 1:
        raise InputError(f"{archive}: events {last + 1} to {first - 1} are missing, also in the controller")
    told: set[int] = set()
    for line in rest:
        if line.startswith('{"job"'):
            told.add(json.loads(line)["job"]["id"])
        yield line
    for _, line in _lines(archive, "jobs", header["epoch"]):
        if line["job"]["id"] not in told:
            told.add(line["job"]["id"])
            yield json.dumps(line)


def _event(line: Mapping[str, Any]) -> str:
    event = line["event"]
    if event["event"] == "restart":
        who = {name: event[name] for name in ("policy", "version")}
        return json.dumps({"time_s": line["time_s"], "restart": who})
    return json.dumps({name: line[name] for name in ("time_s", "event", "digest")})


def _lines(archive: Path, kind: str, epoch: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line of that kind and where it stands, in the order in which they were written."""
    paths = sorted(archive.glob(f"{kind}-*.jsonl"))
    if not paths:
        raise InputError(
            f"{archive}: must be the directory of dfrs serve --archive, with a file {kind}-YEAR-MONTH.jsonl"
        )
    for path in paths:
        try:
            with path.open(encoding="utf-8") as file:
                for number, text in enumerate(file, 1):
                    if not text.endswith("\n"):
                        # A controller that was killed left half of it, or is writing it: it has deleted nothing of it.
                        break
                    where = f"{path}, line {number}"
                    document = _object(where, text)
                    if number > 1:
                        yield where, document
                    elif document.get("format") != FORMAT or document.get("epoch") != epoch:
                        raise InputError(f"{where}: must be the header of an archive of this cluster")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _object(where: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        raise InputError(f"{where}: is no JSON: {text[:40]!r}") from None
    if not isinstance(document, dict):
        raise InputError(f"{where}: must be a JSON object")
    return document
