"""Slurm's configuration files, as Slurm reads them: what is in force, and in which line of which file.

Keys are in any case, and of one that is given twice the last counts. A backslash at the end continues a line, `#`
begins a comment, `Include` reads another file in its place (`slurm.conf(5)`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dfrs.model.errors import InputError
from dfrs.model.text import visible

GROUPS = ("NodeName", "NodeSet", "PartitionName", "DownNodes", "FrontendName")
"""Keys that begin a line about one thing: what follows them is said of that."""
DEFAULT = "DEFAULT"
"""A partition of this name, or a node, says what those after it have that do not say it themselves."""
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-*+/]?=)\s*("[^"]*"|\S+)(?=\s|$)')
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*$")
DEEPEST, MOST = 20, 1 << 16
"""Files that include each other, and nodes of a range: more is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfLine:
    """A line, with those that continue it."""

    file: Path
    first: int
    last: int
    """Numbers of the lines that it fills, from 1."""
    pairs: tuple[tuple[str, str], ...]
    """Keys as they are written, values without quotation marks."""

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.file}:{self.first}"

    @property
    def group(self) -> str:
        """The key of `GROUPS` that it begins with; empty if it begins with none."""
        return next((name for name in GROUPS if name.lower() == self.pairs[0][0].lower()), "")

    def get(self, key: str) -> str | None:
        """The value of a key; None if the line does not have it."""
        return next((value for name, value in reversed(self.pairs) if name.lower() == key.lower()), None)

    def changed(self, values: Mapping[str, str]) -> str:
        """Its text with these values instead, or added."""
        left = {key.lower(): (key, value) for key, value in values.items()}
        pairs = [(name, left.pop(name.lower(), (name, value))[1]) for name, value in self.pairs]
        return " ".join(f"{name}={_quoted(value)}" for name, value in [*pairs, *left.values()])


@dataclass(frozen=True, slots=True)
class Partition:
    """What is said of a partition, and by what of it by defaults."""

    name: str
    line: ConfLine
    defaults: Sequence[ConfLine]
    """Lines of `PartitionName=DEFAULT` before it, the last first."""

    def get(self, *keys: str) -> str | None:
        """A value, under the first of these names that it has; None without any."""
        for line in (self.line, *self.defaults):
            for key in keys:
                if (value := line.get(key)) is not None:
                    return value
        return None


class SlurmConf:
    """A configuration file with all that it includes."""

    def __init__(self, path: Path, lines: Sequence[ConfLine]) -> None:
        self.path, self.lines = path, lines

    def setting(self, key: str) -> tuple[str, ConfLine] | None:
        """The value of a key, and the line that has it; None if no line does. Of two the last counts."""
        for line in reversed(self.lines):
            if not line.group and (value := line.get(key)) is not None:
                return value, line
        return None

    def get(self, key: str, default: str = "") -> str:
        """The value alone."""
        found = self.setting(key)
        return default if found is None else found[0]

    def words(self, key: str, default: str = "") -> set[str]:
        """A list with commas, in small letters; without prefixes as in `task/cgroup`."""
        return {word.strip().lower().rpartition("/")[2] for word in self.get(key, default).split(",") if word.strip()}

    def partitions(self) -> list[Partition]:
        """In their order."""
        found: list[Partition] = []
        defaults: list[ConfLine] = []
        for line in self.lines:
            if line.group != "PartitionName":
                continue
            names = line.get("PartitionName") or ""
            if names.upper() == DEFAULT:
                defaults.insert(0, line)
            else:
                found += [Partition(name, line, tuple(defaults)) for name in names.split(",")]
        return found

    def managed(self, name: str | None) -> Partition:
        """The partition of that name; of None the default one, or the only one. Raises InputError."""
        found = self.partitions()
        if name is not None:
            named = [each for each in found if each.name == name]
            rule = f"must be one of {', '.join(each.name for each in found) or 'none'}"
            message = f'{self.path}: PartitionName "{visible(name)}": {rule}'
        else:
            named = [each for each in found if (each.get("Default") or "").upper() == "YES"] or found
            message = f"{self.path}: must have one partition, or a default one; else name it with --partition"
        if len(named) != 1:
            raise InputError(message)
        return named[0]

    def nodes(self, partition: Partition) -> set[str]:
        """Names of the nodes of a partition."""
        features = {node: said.split(",") for node, said in self.of_nodes("Feature", "Features").items()}
        sets = {line.get("NodeSet"): _set_of(line, features) for line in self.lines if line.group == "NodeSet"}
        found: set[str] = set()
        for name in expand(partition.get("Nodes") or ""):
            if name.upper() == "ALL":
                found |= set(features)
            else:
                found |= sets.get(name, {name})
        return found

    def of_nodes(self, *keys: str) -> dict[str, str]:
        """What each node has under the first of these names that its line has, or else by default; empty without."""
        found: dict[str, str] = {}
        default = ""
        for line in self.lines:
            if line.group != "NodeName":
                continue
            value = next((said for key in keys if (said := line.get(key)) is not None), default)
            names = line.get("NodeName") or ""
            if names.upper() == DEFAULT:
                default = value
            else:
                found |= dict.fromkeys(expand(names), value)
        return found


def _set_of(line: ConfLine, features: Mapping[str, Sequence[str]]) -> set[str]:
    """The nodes of a NodeSet: those that it names, and those with its feature."""
    feature = line.get("Feature")
    return {*expand(line.get("Nodes") or ""), *(node for node, has in features.items() if feature in has)}


def read_conf(path: Path) -> SlurmConf:
    """A file and those that it includes. Raises InputError, which names file, line, value and rule."""
    return SlurmConf(path, tuple(_lines(path, path, "", 0)))


def _lines(path: Path, main: Path, cluster: str, depth: int) -> Iterator[ConfLine]:
    for first, last, text in _logical(_read(path)):
        if included := _INCLUDE.fullmatch(text):
            if depth == DEEPEST:
                raise InputError(f"{path}:{first}: Include: must not be {DEEPEST + 1} deep")
            name = included[1].replace("%c", cluster)
            # What is no absolute path is beside the file that Slurm was given.
            yield from _lines(main.parent / name, main, cluster, depth + 1)
        elif text.strip():
            line = ConfLine(file=path, first=first, last=last, pairs=_pairs(path, first, text))
            cluster = line.get("ClusterName") or cluster
            yield line


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise InputError(f"{path}: must be text in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None


def _logical(text: str) -> Iterator[tuple[int, int, str]]:
    """Numbers of the first and the last line, and what they say without comments."""
    begun, first = "", 0
    number = 0
    for number, raw in enumerate(text.split("\n"), 1):
        # A comment is not continued: it is gone before.
        line = _COMMENT.sub(r"\1", raw)
        first = first or number
        if continued := _CONTINUED.search(line):
            begun += line[: continued.start()] + continued[1]
            continue
        yield first, number, begun + line
        begun, first = "", 0
    if begun:
        yield first, number, begun


def _pairs(path: Path, number: int, text: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    at = 0
    while text[at:].strip():
        pair = _PAIR.match(text, at)
        if pair is None:
            raise InputError(f'{path}:{number}: "{visible(text[at:].strip()[:60])}": must be KEY=VALUE')
        found.append((pair[1], pair[3].strip('"').replace("\\#", "#")))
        at = pair.end()
    return tuple(found)


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) else value.replace("#", "\\#")


def expand(text: str) -> list[str]:
    """Names in Slurm's short form: `n[1-3,07],gpu` is n1, n2, n3, n07 and gpu. Raises InputError."""
    return [name for part in re.findall(r"(?:\[[^\]]*\]|[^,])+", text) for name in _expand_one(part.strip())]


def _expand_one(text: str) -> list[str]:
    before, bracket, rest = text.partition("[")
    if not bracket:
        return [before] if before else []
    inner, closed, after = rest.partition("]")
    numbers: list[str] = []
    for part in inner.split(","):
        low, dash, high = part.partition("-")
        last = high if dash else low
        if not (closed and low.isdecimal() and last.isdecimal() and int(last) - int(low) < MOST):
            raise InputError(f'nodes "{visible(text[:60])}": must be such as n[1-4,7]')
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(last) + 1)]
    return [before + number + tail for number in numbers for tail in _expand_one(after) or [""]]
