"""What campaigns are made of: runs, each one scenario under one configuration.

A scenario is a workload or an instance; a configuration is a policy or an algorithm with its options.

A run has a name that says everything its result depends on but the code of dfrs. Its key and its seed are functions of
that name, so that results repeat bit for bit wherever and in whatever order they are executed, but for times and for
what a time limit allows.
"""

import ast
import hashlib
import sys
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
from dfrs.model.user_cache import remembered
from dfrs.policies import plugins
from dfrs.policies.names import built_in

Row = dict[str, object]
Schema = Mapping[str, type[pl.DataType]]

FAILED = "failed"
"""Status of a run that raised; its message is in the column `message`."""
COMMON_COLUMNS: Schema = {
    "key": pl.String,
    "cell": pl.String,
    "status": pl.String,
    "message": pl.String,
    "cell_s": pl.Float64,
}
"""Columns that the results of all kinds have: `cell` is the run's name, `cell_s` the seconds it took, with its share of
preparing the scenario."""

SIMULATION = ("placement", "bounds", "engine", "kernels", "runs", "model", "policies", "simulator", "workloads")
"""All that a simulation may depend on, for `RunKind.code` of kinds that do not know it more closely."""
_MESSAGE = 500
_GROUP = "group:"
_MEANT = {".py", ".csv", ".json", ".toml"}
"""Endings of the files of other packages that count."""
_LIBRARIES = ("numpy", "numba", "highspy")
"""Their versions count as code."""
_RULES = "cells/1"
"""Changes with how names, keys and seeds are made."""


class NotSavedError(InputError):
    """A run was to be saved and could not be written: a fault of the disk, not of the run."""


class Scenario(Protocol):
    """A workload or an instance to run on: equal scenarios have equal names."""

    @property
    def name(self) -> str:
        """Says everything that the scenario is made from."""
        ...

    def columns(self) -> Row:
        """What names it in the results."""
        ...


class Configuration(Protocol):
    """A policy or an algorithm with its options. `label` is its name in tables, and no part of the run's name."""

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


@cache
def policy_code(name: str) -> str:
    """Changes with the source of a policy that is not built in; empty for one that is, see `RunKind.code`.

    Read once in a process, which also loads a module only once: later changes of the files are not what runs.
    """
    return "" if built_in(name) else plugins.code_digest(name.partition("/")[0])[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfiguration:
    """What configurations with a policy have in common."""

    policy: str
    code: str = field(init=False)
    """`policy_code` in the process that made the configuration. Others get it with it, and compare it with theirs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", policy_code(self.policy))

    @property
    def code_in_name(self) -> str:
        """The end of its name: results of a policy that is not built in are not those of its next version."""
        return f" code={self.code}" if self.code else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKind:
    """How runs of one kind are run. All functions are of a module, so that other processes find them."""

    name: str
    schema: Schema
    """Columns of its results beside COMMON_COLUMNS."""
    code: tuple[str, ...]
    """Source files and directories, relative to the package, that results depend on; `group:NAME` stands for the
    packages that the entry points of that group are in, with their data."""
    prepare: Callable[[Any], Any]
    """From a scenario to what `run` takes: done once for several configurations."""
    run: Callable[[Any, Any, int, Path | None], Row]
    """Prepared scenario, configuration, seed, and the directory to save the run in, if it is to be saved."""
    warm: Callable[[Any], object]
    """Load or compile what a configuration needs."""
    saves: bool = True
    """Whether there is more of a run than its row of results, which `run` saves where it is told to."""

    @property
    def columns(self) -> Schema:
        """Of a row of results."""
        return {**COMMON_COLUMNS, **self.schema}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One scenario under one configuration. With `alone` no other run executes beside it: its time is measured."""

    kind: RunKind
    scenario: Scenario
    configuration: Configuration
    alone: bool = False
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", hashlib.sha256(self.name.encode()).hexdigest()[:16])

    @property
    def name(self) -> str:
        """Stable: scenario and configuration with everything the result depends on but the code of dfrs."""
        return f"{self.scenario.name} | {self.configuration.name}" + (" | alone" if self.alone else "")

    @property
    def seed(self) -> int:
        """Of whatever chance plays in the run: from the name alone."""
        return int.from_bytes(hashlib.sha256(f"seed of {self.name}".encode()).digest()[:6])


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Runs of one scenario, to be executed one after the other in one process.

    `source` is the digest of the source files that are to execute them; `save_in` is where runs are saved.
    """

    runs: tuple[PlannedRun, ...]
    source: str
    save_in: Path | None = None


def perform(work: Work) -> list[Row]:
    """One row for each run. A run that raises gives a row that says so.

    Raises InputError where this process has other code than the one that asks.
    """
    kind, scenario = work.runs[0].kind, work.runs[0].scenario
    if source_digest(kind.code) != work.source:
        raise InputError(f"a worker has other code of dfrs {dfrs.__version__}: install the same on every machine")
    for run in work.runs:
        _check_policy(run.configuration)
        _warm(kind, run.configuration)
    started = time.perf_counter()
    try:
        prepared = kind.prepare(scenario)
    except (Exception, SystemExit) as error:  # one bad scenario must not end the others
        return [failure(run, error) for run in work.runs]
    preparing_s = (time.perf_counter() - started) / len(work.runs)
    return [_run(run, prepared, preparing_s, work.save_in) for run in work.runs]


def _check_policy(configuration: Configuration) -> None:
    """Raises InputError where this process has other code of the policy than the one that asks."""
    if isinstance(configuration, PolicyConfiguration) and policy_code(configuration.policy) != configuration.code:
        raise InputError(
            f'policy "{configuration.policy}": a worker has other code of it: install the same on every machine, '
            "and start the workers again"
        )


def _run(run: PlannedRun, prepared: object, preparing_s: float, save_in: Path | None) -> Row:
    started = time.perf_counter()
    try:
        row = run.kind.run(prepared, run.configuration, run.seed, None if save_in is None else save_in / run.key)
    except NotSavedError:
        raise
    except (Exception, SystemExit) as error:  # a policy may raise anything
        row = failure(run, error)
    else:
        row = _shared(run) | row
    return row | {"cell_s": preparing_s + time.perf_counter() - started}


def failure(run: PlannedRun, error: BaseException | str) -> Row:
    """The row of a run that gave no result."""
    try:
        told = str(error) if isinstance(error, DfrsError | str) else f"{type(error).__name__}: {error}"
    except Exception:  # of a policy's own kind, which may not even be told
        told = type(error).__name__
    # Names of files need not be text.
    message = " ".join(told.split())[:_MESSAGE].encode(errors="replace").decode()
    return _shared(run) | {"status": FAILED, "message": message}


def _shared(run: PlannedRun) -> Row:
    names = {"key": run.key, "cell": run.name}
    return dict.fromkeys(run.kind.columns) | names | run.scenario.columns() | run.configuration.columns()


_warmed: set[tuple[str, str]] = set()


def _warm(kind: RunKind, configuration: Configuration) -> None:
    """Load or compile what a configuration needs, once a process. Failures recur where they are recorded."""
    if (kind.name, configuration.name) in _warmed:
        return
    _warmed.add((kind.name, configuration.name))
    try:
        kind.warm(configuration)
    except (Exception, SystemExit):
        return


def warm(runs: Sequence[PlannedRun]) -> None:
    """Load or compile what these runs need in this process; others then find it compiled."""
    for run in runs:
        _warm(run.kind, run.configuration)


@cache
def code_digest(parts: tuple[str, ...]) -> str:
    """Changes with the source files `parts`, relative to the package, and with the libraries that compute.

    Comments, docstrings and layout do not count: results that took hours outlive a better sentence. To tell what does
    takes seconds: it is done once for each state of the files.
    """
    told = hashlib.sha256(f"{sys.version} {_digest(parts, bytes)}".encode() + Path(__file__).read_bytes())
    return remembered("code-digests", told.hexdigest(), lambda: _digest(parts, _meaning))


@cache
def source_digest(parts: tuple[str, ...]) -> str:
    """As `code_digest`, but changes with whatever is written: known in a moment wherever a worker runs."""
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
    for point in sorted(entry_points(group=part.removeprefix(_GROUP)), key=lambda point: point.name):
        package = point.module.rpartition(".")[0] or point.module
        found = find_spec(package)
        for folder in sorted(map(Path, (found and found.submodule_search_locations) or ())):
            for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in _MEANT):
                yield f"{point.name}={package}/{file.relative_to(folder).as_posix()}", file


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
