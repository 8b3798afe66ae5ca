"""What campaigns are made of: cells, each a case (what is run on) under an entry (what is run, how).

A cell has a name that says everything its result depends on but the code. Its key and its seed are functions of that
name, so that results repeat bit for bit wherever and in whatever order cells are run, but for times and for what a
time limit allows.
"""

import ast
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import polars as pl

import dfrs
from dfrs.model.errors import DfrsError, InputError

Row = dict[str, object]
Schema = Mapping[str, type[pl.DataType]]

FAILED = "failed"
"""Status of a cell that raised; its message is in the column `message`."""
COMMON_COLUMNS: Schema = {
    "key": pl.String,
    "cell": pl.String,
    "status": pl.String,
    "message": pl.String,
    "cell_s": pl.Float64,
}
"""Columns that the results of all kinds have: `cell` is the name, `cell_s` what the cell took with its preparation."""

_MESSAGE = 500
_GROUP = "group:"
_MEANT = {".py", ".csv", ".json", ".toml"}
"""Endings of the files of other packages that count."""
_LIBRARIES = ("numpy", "numba", "highspy")
"""Their versions count as code."""
_RULES = "cells/1"
"""Changes with how names, keys and seeds are made."""


class NotSavedError(InputError):
    """A run was to be kept and could not be written: what is wrong with the disk is not the cell's fault."""


class Scenario(Protocol):
    """What is run on: equal cases have equal names."""

    @property
    def name(self) -> str:
        """Says everything that the case is made from."""
        ...

    def columns(self) -> Row:
        """What names it in the results."""
        ...


class Configuration(Protocol):
    """What is run, how. `label` is how tables call it, and no part of the cell's name."""

    @property
    def label(self) -> str:
        """How tables call it."""
        ...

    @property
    def name(self) -> str:
        """Says every setting."""
        ...

    def columns(self) -> Row:
        """What names it in the results."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKind:
    """How cells of one kind are run. All functions are of a module, so that other processes find them."""

    name: str
    schema: Schema
    """Columns of its results beside COMMON_COLUMNS."""
    code: tuple[str, ...]
    """Source files and directories, relative to the package, that results depend on; `group:NAME` stands for the
    packages that the entry points of that group are in, with their data."""
    prepare: Callable[[Any], Any]
    """From a case to what `run` takes: done once for several entries."""
    run: Callable[[Any, Any, int, Path | None], Row]
    """Prepared case, entry, seed, and the directory that keeps the run itself, if it is to be kept."""
    warm: Callable[[Any], object]
    """Load or compile what an entry needs."""

    @property
    def columns(self) -> Schema:
        """Of a row of results."""
        return {**COMMON_COLUMNS, **self.schema}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run. With `alone`, nothing else of ours runs beside it, as its time is what is asked for."""

    kind: RunKind
    case: Scenario
    entry: Configuration
    alone: bool = False
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", hashlib.sha256(self.name.encode()).hexdigest()[:16])

    @property
    def name(self) -> str:
        """Stable: case and entry with everything the result depends on but the code."""
        return f"{self.case.name} | {self.entry.name}" + (" | alone" if self.alone else "")

    @property
    def seed(self) -> int:
        """Of whatever chance plays in the run: from the name alone."""
        return int.from_bytes(hashlib.sha256(f"seed of {self.name}".encode()).digest()[:6])


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Cells of one case, to be run one after the other in one process.

    `source` is the digest of the source files that it is to be run by; `keep` is where runs themselves are kept.
    """

    cells: tuple[PlannedRun, ...]
    source: str
    keep: Path | None = None


def perform(work: Work) -> list[Row]:
    """One row a cell. A cell that raises gives a row that says so.

    Raises InputError where this process has other code than the one that asks.
    """
    kind, case = work.cells[0].kind, work.cells[0].case
    if source_digest(kind.code) != work.source:
        raise InputError(f"a worker has other code of dfrs {dfrs.__version__}: install the same on every machine")
    for cell in work.cells:
        _warm(kind, cell.entry)
    started = time.perf_counter()
    try:
        prepared = kind.prepare(case)
    except (Exception, SystemExit) as error:  # whatever is wrong with one case must not end the others
        return [failure(cell, error) for cell in work.cells]
    preparing_s = (time.perf_counter() - started) / len(work.cells)
    return [_run(cell, prepared, preparing_s, work.keep) for cell in work.cells]


def _run(cell: PlannedRun, prepared: object, preparing_s: float, keep: Path | None) -> Row:
    started = time.perf_counter()
    try:
        row = cell.kind.run(prepared, cell.entry, cell.seed, None if keep is None else keep / cell.key)
    except NotSavedError:
        raise
    except (Exception, SystemExit) as error:  # a policy may raise anything
        row = failure(cell, error)
    else:
        row = _shared(cell) | row
    return row | {"cell_s": preparing_s + time.perf_counter() - started}


def failure(cell: PlannedRun, error: BaseException | str) -> Row:
    """The row of a cell that gave no result."""
    try:
        told = str(error) if isinstance(error, DfrsError | str) else f"{type(error).__name__}: {error}"
    except Exception:  # of a policy's own kind, which may not even be told
        told = type(error).__name__
    # Names of files need not be text.
    message = " ".join(told.split())[:_MESSAGE].encode(errors="replace").decode()
    return _shared(cell) | {"status": FAILED, "message": message}


def _shared(cell: PlannedRun) -> Row:
    names = {"key": cell.key, "cell": cell.name}
    return dict.fromkeys(cell.kind.columns) | names | cell.case.columns() | cell.entry.columns()


_warmed: set[tuple[str, str]] = set()


def _warm(kind: RunKind, entry: Configuration) -> None:
    """Load or compile, once a process, what an entry needs. What fails here fails again where it is recorded."""
    if (kind.name, entry.name) in _warmed:
        return
    _warmed.add((kind.name, entry.name))
    try:
        kind.warm(entry)
    except (Exception, SystemExit):
        return


def warm(cells: Sequence[PlannedRun]) -> None:
    """Load or compile what these cells need in this process; others then find it compiled."""
    for cell in cells:
        _warm(cell.kind, cell.entry)


@cache
def code_digest(parts: tuple[str, ...]) -> str:
    """Changes with the source files `parts`, relative to the package, and with the libraries that compute.

    Comments, docstrings and layout do not count: results that took hours outlive a better sentence.
    """
    return _digest(parts, _meaning)


@cache
def source_digest(parts: tuple[str, ...]) -> str:
    """As `code_digest`, but changes with whatever is written: known in a moment, where meaning takes half a second."""
    return _digest(parts, bytes)


def _digest(parts: tuple[str, ...], told: Callable[[bytes], bytes]) -> str:
    root = Path(dfrs.__file__).parent
    digest = hashlib.sha256()
    for part in parts:
        for name, file in _sources(root, part):
            digest.update(name.encode())
            content = file.read_bytes()
            digest.update(told(content) if file.suffix == ".py" else content)
    digest.update(f"{_RULES} {' '.join(COMMON_COLUMNS)}".encode())
    for library in _LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()[:12]


def _sources(root: Path, part: str) -> Iterator[tuple[str, Path]]:
    """The files of a part, with the names that they have wherever they are installed."""
    if not part.startswith(_GROUP):
        path = root / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield file.relative_to(root).as_posix(), file
        return
    for entry in sorted(entry_points(group=part.removeprefix(_GROUP)), key=lambda entry: entry.name):
        package = entry.module.rpartition(".")[0] or entry.module
        found = find_spec(package)
        for folder in sorted(map(Path, (found and found.submodule_search_locations) or ())):
            for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in _MEANT):
                yield f"{entry.name}={package}/{file.relative_to(folder).as_posix()}", file


def _meaning(source: bytes) -> bytes:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [statement for statement in body if not _is_text(statement)]  # type: ignore[attr-defined]
    return ast.dump(tree).encode()


def _is_text(statement: object) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
