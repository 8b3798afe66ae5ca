"""Hardware and profiles as JSON files: `dfrs-farm/1` and `dfrs-profile/1`.

Bad input raises InputError with one line naming file, field, value and rule; a file is written whole or not at all.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dfrs.model.errors import InputError
from dfrs.model.hardware import Hardware, Latency, Partition, Profile, Waits
from dfrs.model.writing import write_text

LARGEST_FILE_BYTES = 16 * 2**20

Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False, strict=True)]
Bytes = Annotated[int, Field(ge=0, le=10**18, strict=True)]
Size = Annotated[int, Field(ge=1, le=10**18, strict=True)]
Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable text on one line")
    return text


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Title = Annotated[str, Field(max_length=1000), AfterValidator(_printable)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LatencyDocument(_Document):
    """Seconds a message by its size; sizes ascend."""

    sizes_bytes: Annotated[list[Size], Field(min_length=1, max_length=10_000)]
    seconds: Annotated[list[Amount], Field(min_length=1, max_length=10_000)]


class PartitionDocument(_Document):
    """One partition."""

    name: Name
    machines: Count
    cores: Count
    frequency_hz: Amount
    cycles: dict[Name, Amount] = {}
    latency: LatencyDocument | None = None
    node_memory_bytes: Size
    machine_memory_bytes: Size


class HardwareDocument(_Document):
    """The hardware of a cluster; `notes` say where figures come from and are not read."""

    format: Literal["dfrs-farm/1"]
    name: Name
    notes: list[str] = []
    clusters: Annotated[list[PartitionDocument], Field(min_length=1, max_length=10_000)]


class MessagesDocument(_Document):
    """Blocking messages of one size."""

    bytes: Size
    count: Amount


class WaitsDocument(_Document):
    """Non-blocking messages of one size, and the mean wait for one."""

    bytes: Size
    count: Amount
    mean_s: Amount


class ProfileDocument(_Document):
    """A whole profile; counters are single events, the mean over processes."""

    format: Literal["dfrs-profile/1"]
    job: Title
    cluster: Name
    tau_s: Amount
    processes: Count
    counters: dict[Name, Amount]
    blocking: Annotated[list[MessagesDocument], Field(max_length=100_000)] = []
    waiting: Annotated[list[WaitsDocument], Field(max_length=100_000)] = []
    colocated: Annotated[bool, Field(strict=True)] = False
    memory_bytes: Bytes = 0
    swap_bytes: Bytes = 0


def read_hardware(path: Path) -> Hardware:
    """The hardware of a `dfrs-farm/1` file."""
    return parse_hardware(_text(path), str(path))


def parse_hardware(text: str, source: str) -> Hardware:
    """The hardware of the text of a `dfrs-farm/1` file; `source` begins every message."""
    return hardware_of(_parse(text, source), source)


def read_profile(path: Path) -> Profile:
    """A profile from a `dfrs-profile/1` file."""
    return profile_of(_parse(_text(path), str(path)), str(path))


def hardware_of(document: Mapping[str, object], source: str) -> Hardware:
    """The hardware of a parsed document; `source` begins every message."""
    read = _validate(HardwareDocument, document, source)
    partitions: list[Partition] = []
    for k, entry in enumerate(read.clusters):
        latency: Latency | None = None
        where = f"{source}: clusters[{k}]"
        if entry.latency is not None:
            with _At(f"{where}.latency"):
                latency = Latency(sizes_bytes=tuple(entry.latency.sizes_bytes), seconds=tuple(entry.latency.seconds))
        with _At(where):
            partitions.append(
                Partition(
                    name=entry.name,
                    machines=entry.machines,
                    cores=entry.cores,
                    frequency_hz=entry.frequency_hz,
                    cycles=entry.cycles,
                    latency=latency,
                    node_memory_bytes=entry.node_memory_bytes,
                    machine_memory_bytes=entry.machine_memory_bytes,
                )
            )
    with _At(source, ": "):
        return Hardware(name=read.name, partitions=tuple(partitions))


def profile_of(document: Mapping[str, object], source: str) -> Profile:
    """The profile of a parsed document; `source` begins every message."""
    read = _validate(ProfileDocument, document, source)
    for field, entries in (("blocking", read.blocking), ("waiting", read.waiting)):
        seen: set[int] = set()
        for k, entry in enumerate(entries):
            if entry.bytes in seen:
                raise InputError(f"{source}: {field}[{k}].bytes = {entry.bytes}: a size must stand once")
            seen.add(entry.bytes)
    with _At(source, ": "):
        return Profile(
            job=read.job,
            cluster=read.cluster,
            tau_s=read.tau_s,
            processes=read.processes,
            counters=read.counters,
            blocking={entry.bytes: entry.count for entry in read.blocking},
            waiting={entry.bytes: Waits(count=entry.count, mean_s=entry.mean_s) for entry in read.waiting},
            colocated=read.colocated,
            memory_bytes=read.memory_bytes,
            swap_bytes=read.swap_bytes,
        )


def hardware_document(hardware: Hardware) -> dict[str, object]:
    """The `dfrs-farm/1` document of a cluster's hardware."""
    return {
        "format": "dfrs-farm/1",
        "name": hardware.name,
        "clusters": [
            {
                "name": c.name,
                "machines": c.machines,
                "cores": c.cores,
                "frequency_hz": c.frequency_hz,
                "cycles": dict(c.cycles),
                "latency": None
                if c.latency is None
                else {"sizes_bytes": list(c.latency.sizes_bytes), "seconds": list(c.latency.seconds)},
                "node_memory_bytes": c.node_memory_bytes,
                "machine_memory_bytes": c.machine_memory_bytes,
            }
            for c in hardware.partitions
        ],
    }


def profile_document(profile: Profile) -> dict[str, object]:
    """The `dfrs-profile/1` document of a profile."""
    return {
        "format": "dfrs-profile/1",
        "job": profile.job,
        "cluster": profile.cluster,
        "tau_s": profile.tau_s,
        "processes": profile.processes,
        "counters": dict(profile.counters),
        "blocking": [{"bytes": size, "count": count} for size, count in sorted(profile.blocking.items())],
        "waiting": [
            {"bytes": size, "count": waits.count, "mean_s": waits.mean_s}
            for size, waits in sorted(profile.waiting.items())
        ],
        "colocated": profile.colocated,
        "memory_bytes": profile.memory_bytes,
        "swap_bytes": profile.swap_bytes,
    }


def write_hardware(hardware: Hardware, path: Path) -> None:
    """Write a `dfrs-farm/1` file."""
    _write(hardware_document(hardware), path)


def write_profile(profile: Profile, path: Path) -> None:
    """Write a `dfrs-profile/1` file."""
    _write(profile_document(profile), path)


class _At:
    """Puts the place before the message of an InputError raised inside."""

    def __init__(self, where: str, joint: str = ".") -> None:
        self._where, self._joint = where, joint

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            raise InputError(f"{self._where}{self._joint}{error}") from None


def _write(document: Mapping[str, object], path: Path) -> None:
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise InputError(f"{path}: {path.stat().st_size} bytes: must be at most {LARGEST_FILE_BYTES}")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start}: not UTF-8 text") from None


def _parse(text: str, source: str) -> dict[str, object]:
    """The JSON object; refuses duplicate keys, which JSON readers silently drop, and numbers that are none."""

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(items)
        if len(result) < len(items):
            names = [name for name, _ in items]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f'{source}: key "{_plain(twice)}" stands twice in one object')
        return result

    try:
        document = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise InputError(f"{source}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply") from None
    except ValueError:
        raise InputError(f"{source}: a number has too many digits") from None
    if not isinstance(document, dict):
        raise InputError(f"{source}: must be a JSON object")
    return document


D = TypeVar("D", bound=BaseModel)
_PLAIN = {"missing": "is missing", "extra_forbidden": "there is no such field", "too_short": "must have at least one"}
"""What pydantic says in terms of Python."""


def _validate(model: type[D], document: Mapping[str, object], source: str) -> D:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        _refuse(error, source)


def _refuse(error: ValidationError, source: str) -> NoReturn:
    """One line for the first thing wrong, and how many more there are."""
    problems = error.errors(include_url=False)
    first = problems[0]
    where = ""
    for part in first["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else part
    where = _plain(where)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    value = "" if first["type"] in {"missing", "extra_forbidden"} else f" = {_short(first['input'])}"
    said = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = _PLAIN.get(first["type"], said)
    raise InputError(f"{source}: {where}{value}: {message[0].lower()}{message[1:]}{more}") from None


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
