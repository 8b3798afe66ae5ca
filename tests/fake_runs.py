"""Cells that do as they are told, and leave a file for each time they are run.

In a module of its own, so that worker processes find them.
"""

import os
import signal
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from dfrs.experiments.planned_runs import PlannedRun, RunKind, code_digest
from dfrs.experiments.spec import Study
from dfrs.model.errors import InputError
from dfrs.simulator.simulation import StoppedError

SCHEMA = {"number": pl.Int64, "what": pl.String, "seed": pl.Int64, "value": pl.Float64, "run": pl.String}
DIFFERENT = ("cell_s", "run")
"""Columns that are otherwise when a cell is run again."""


@dataclass(frozen=True, kw_only=True)
class FakeScenario:
    """`directory` takes the files that tell what was run; with a file `fixed` in it, nothing fails any more."""

    number: int
    directory: Path = field(compare=False)
    broken: bool = False

    @property
    def name(self):
        return f"fake-{self.number}" + (" broken" if self.broken else "")

    @property
    def fixed(self):
        return (self.directory / "fixed").exists()

    def columns(self):
        return {"number": self.number}


@dataclass(frozen=True, kw_only=True)
class FakeConfiguration:
    """`what` happens to the cells of the cases in `at`, or of all; `seconds` pass before."""

    what: str = "value"
    label: str = "entry"
    at: tuple[int, ...] = ()
    seconds: float = 0.0

    @property
    def name(self):
        return f"{self.what} at {self.at}"

    def columns(self):
        return {"what": self.what}


@dataclass(frozen=True, kw_only=True)
class Source:
    cells: int
    directory: Path
    broken: tuple[int, ...] = ()
    name: str = "fake"

    def cases(self):
        return tuple(
            FakeScenario(number=k, directory=self.directory, broken=k in self.broken) for k in range(self.cells)
        )


class FakeStudy(Study):
    kind = property(lambda _: FAKE)


def prepare(case):
    if case.broken and not case.fixed:
        raise InputError(f"{case.name}:\nthere is no such part")
    return case


def run(case, entry, seed, keep):
    mark = f"{case.number}.{entry.label}.{os.getpid()}.{uuid.uuid4().hex}"
    (case.directory / mark).touch()
    time.sleep(entry.seconds)
    if not entry.at or case.number in entry.at:
        _happen(case, entry.what)
    if keep is not None:
        keep.mkdir(parents=True)
    return {"status": "complete", "seed": seed, "value": case.number / 7, "run": mark}


def _happen(case, what):
    once = case.directory / f"once.{case.number}"
    if what == "value" or case.fixed or (what == "kill once" and once.exists()):
        return
    if what.startswith("kill"):
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    raise {
        "ValueError": ValueError("a line\nand another"),
        "MemoryError": MemoryError("12 TiB"),
        "StoppedError": StoppedError("the policy ended its run", None),
        "SystemExit": SystemExit("a policy left"),
        "mute": MuteError(),
    }[what]


class MuteError(Exception):
    """Cannot even say what it is."""

    def __str__(self):
        raise RuntimeError("no words")


def warm(entry):
    pass


FAKE = RunKind(name="fake", schema=SCHEMA, code=("experiments/planned_runs.py",), prepare=prepare, run=run, warm=warm)


def code():
    return code_digest(FAKE.code)


def cells(directory, count, *entries, broken=(), alone=False):
    """FakeScenario by case. `directory` is made."""
    directory.mkdir(parents=True, exist_ok=True)
    cases = Source(cells=count, directory=directory, broken=tuple(broken)).cases()
    return [
        PlannedRun(kind=FAKE, case=case, entry=entry, alone=alone)
        for case in cases
        for entry in entries or (FakeConfiguration(),)
    ]


def study(directory, count, *entries, broken=()):
    """The same cells as a study."""
    directory.mkdir(parents=True, exist_ok=True)
    source = Source(cells=count, directory=directory, broken=tuple(broken))
    return FakeStudy(name="fakes", sources=(source,), entries=entries or (FakeConfiguration(),))


def runs(directory):
    """How often each (number, label) was run."""
    return Counter(tuple(mark.split(".")[:2]) for mark in _marks(directory))


def pids(directory):
    """Of the processes that ran anything."""
    return {int(mark.split(".")[2]) for mark in _marks(directory)}


def _marks(directory):
    return [path.name for path in directory.iterdir() if path.name.count(".") == 3]


def same(store):
    """The results, but for what is otherwise each time, in an order of their own."""
    return store.results(FAKE).drop(DIFFERENT).sort("key")
